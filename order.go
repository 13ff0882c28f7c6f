package fronta

import (
	"fmt"
	"hash/crc32"
	"hash/maphash"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Order says which records must not run at the same time: those of one lane,
// which run one after another in the order of their offsets. A lane belongs to
// one partition of one topic; records of the same key in two partitions are
// two lanes. The zero Order is [ByKey].
type Order struct {
	kind orderKind
	name string
	n    int
	key  func(*kgo.Record) []byte
}

type orderKind uint8

const (
	orderByKey orderKind = iota
	orderByKeyFunc
	orderByBucket
	orderByPartition
	orderUnordered
)

// ByKey runs records with byte-equal keys one after another. A record without
// a key (nil) waits for nobody; an empty key is a key.
func ByKey() Order { return Order{} }

// ByKeyFunc is [ByKey] with a key that key computes from the record, such as a
// field of its value; nil means that the record waits for nobody. key must
// depend on the record alone, and is called from more than one goroutine.
//
// name stands for the function where an order has to be named; choose another
// one when what the function computes changes.
//
// If key panics for a record, the handler is not called: no lane is known in
// which that would be safe. The attempt counts as failed with
// [PanicError], and in the end the record is dead-lettered by Config's rules.
func ByKeyFunc(name string, key func(*kgo.Record) []byte) Order {
	return Order{kind: orderByKeyFunc, name: name, key: key}
}

// ByBucket spreads keys over n lanes per partition by a hash of the key (CRC-32C)
// and runs each lane's records one after another: fewer lanes than keys, for a
// resource that only so many may use at once. A record without a key waits for
// nobody.
func ByBucket(n int) Order { return Order{kind: orderByBucket, n: n} }

// ByPartition runs all records of a partition one after another.
func ByPartition() Order { return Order{kind: orderByPartition} }

// Unordered lets every record run at any time.
func Unordered() Order { return Order{kind: orderUnordered} }

// String names the order: "key", "key:NAME", "bucket:N", "partition" or
// "unordered".
func (o Order) String() string {
	switch o.kind {
	case orderByKey:
		return "key"
	case orderByKeyFunc:
		return "key:" + o.name
	case orderByBucket:
		return fmt.Sprintf("bucket:%d", o.n)
	case orderByPartition:
		return "partition"
	case orderUnordered:
		return "unordered"
	default:
		return fmt.Sprintf("Order(%d)", o.kind)
	}
}

const maxBuckets = 1 << 30

func (o Order) validate() error {
	switch o.kind {
	case orderByKey, orderByPartition, orderUnordered:
		return nil
	case orderByKeyFunc:
		if o.name == "" {
			return fmt.Errorf("ByKeyFunc has no name: give the key function a name that stands for what it computes")
		}
		if o.key == nil {
			return fmt.Errorf("ByKeyFunc(%q) has no function", o.name)
		}
		return nil
	case orderByBucket:
		if o.n < 1 || o.n > maxBuckets {
			return fmt.Errorf("ByBucket(%d): the number of buckets must be from 1 to %d", o.n, maxBuckets)
		}
		return nil
	default:
		return fmt.Errorf("unknown order: use ByKey, ByKeyFunc, ByBucket, ByPartition or Unordered")
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lanes returns the function that computes a record's lane.
func (o Order) lanes() func(*kgo.Record) (queue.Lane, error) {
	seed := maphash.MakeSeed()
	hash := func(key []byte) queue.Lane {
		if key == nil {
			return queue.Alone
		}
		if h := maphash.Bytes(seed, key); h != 0 {
			return queue.Lane(h)
		}
		return 1 // 0 is Alone
	}
	switch o.kind {
	case orderByKeyFunc:
		return func(r *kgo.Record) (lane queue.Lane, err error) {
			defer recoverKey(o.name, &lane, &err)
			return hash(o.key(r)), nil
		}
	case orderByBucket:
		return func(r *kgo.Record) (queue.Lane, error) {
			if r.Key == nil {
				return queue.Alone, nil
			}
			return queue.Lane(crc32.Checksum(r.Key, castagnoli)%uint32(o.n)) + 1, nil
		}
	case orderByPartition:
		return func(*kgo.Record) (queue.Lane, error) { return 1, nil }
	case orderUnordered:
		return func(*kgo.Record) (queue.Lane, error) { return queue.Alone, nil }
	default:
		return func(r *kgo.Record) (queue.Lane, error) { return hash(r.Key), nil }
	}
}

// check returns the function that hashes a record's lane alike in every
// process. It panics where the key function does.
func (o Order) check() func(*kgo.Record) uint32 {
	of := func(key []byte) uint32 {
		if key == nil {
			return checkAlone
		}
		return max(crc32.Checksum(key, castagnoli), 1)
	}
	switch o.kind {
	case orderByKeyFunc:
		return func(r *kgo.Record) uint32 { return of(o.key(r)) }
	case orderByBucket:
		lane := o.lanes()
		return func(r *kgo.Record) uint32 {
			l, _ := lane(r)
			return max(uint32(l), 1)
		}
	case orderByPartition:
		return func(*kgo.Record) uint32 { return 1 }
	case orderUnordered:
		return func(*kgo.Record) uint32 { return checkAlone }
	default:
		return func(r *kgo.Record) uint32 { return of(r.Key) }
	}
}

// checkAlone is the check of a record that has no lane.
const checkAlone = 0xa10e

func (o Order) ordering() *engine.Ordering {
	return &engine.Ordering{Name: progress.OrderName(o.String()), Lane: o.lanes(), Check: o.check()}
}

// former finds the order that is named in what a group has committed.
func (c *Config) former(name string) *engine.Ordering {
	for _, o := range append([]Order{ByKey(), ByPartition(), Unordered(), c.Order}, c.FormerOrders...) {
		if progress.OrderName(o.String()) == name {
			return o.ordering()
		}
	}
	if n, ok := strings.CutPrefix(name, "bucket:"); ok {
		if n, err := strconv.Atoi(n); err == nil && n >= 1 && n <= maxBuckets {
			return ByBucket(n).ordering()
		}
	}
	return nil
}

func recoverKey(name string, lane *queue.Lane, err *error) {
	v := recover()
	if v == nil {
		return
	}
	*lane = queue.Alone
	*err = fmt.Errorf("key function %q: %w", name, &PanicError{Value: v, Stack: debug.Stack()})
}
