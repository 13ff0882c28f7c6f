package fronta_test

// Orders: which records wait for each other, and which never do (P-2, P-4).

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// lanes watches that no two records of a lane run at once or out of order.
type lanes struct {
	t       *testing.T
	mu      sync.Mutex
	running map[string]int64
	last    map[string]int64
	most    int // lanes that ran at once
	n       int
}

func newLanes(t *testing.T) *lanes {
	return &lanes{t: t, running: make(map[string]int64), last: make(map[string]int64)}
}

// run is a handler's frame. A lane named "" is the record's own.
func (l *lanes) run(lane string, r *fronta.Record, work func() error) error {
	if lane == "" {
		lane = "alone " + strconv.FormatInt(r.Offset, 10)
	}
	lane = fmt.Sprintf("%s/%d %s", r.Topic, r.Partition, lane)
	l.mu.Lock()
	if other, ok := l.running[lane]; ok {
		l.t.Errorf("lane %.60q: %d runs while %d does", lane, r.Offset, other)
	}
	if last, ok := l.last[lane]; ok && r.Offset < last {
		l.t.Errorf("lane %.60q: %d runs after %d", lane, r.Offset, last)
	}
	l.running[lane], l.last[lane] = r.Offset, r.Offset
	l.most = max(l.most, len(l.running))
	l.mu.Unlock()
	err := work()
	l.mu.Lock()
	delete(l.running, lane)
	if err == nil {
		l.n++
	}
	l.mu.Unlock()
	return err
}

func (l *lanes) atOnce() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// P-2, H-061, H-062, H-064: what each order lets run at once. Each record takes
// a second; how long all of them take together says how many ran side by side.
func TestOrders(t *testing.T) {
	huge := bytes.Repeat([]byte{7}, 1<<20)
	// Two huge keys that differ only in front are two keys.
	huge2 := bytes.Clone(huge)
	huge2[0]++
	keys := [][]byte{nil, {}, {0}, []byte("a"), []byte("a"), {0xff, 0xfe}, huge, huge2}
	const rounds = 4
	var rs []*kgo.Record
	for round := range rounds {
		for i, k := range keys {
			rs = append(rs, &kgo.Record{Topic: orders, Partition: int32(round % 2), Key: bytes.Clone(k), Value: []byte{byte(i)}})
			if k != nil && len(k) == 0 {
				rs[len(rs)-1].Key = []byte{}
			}
		}
	}
	byKey := func(r *fronta.Record) string {
		if r.Key == nil {
			return ""
		}
		return "key " + string(r.Key)
	}
	for name, tt := range map[string]struct {
		order   fronta.Order
		lane    func(*fronta.Record) string // of the watch; nil: none
		seconds int                         // of the longest lane
		least   int                         // lanes at once
	}{
		// "a" comes twice a round, in each partition in two rounds.
		"key":  {fronta.ByKey(), byKey, 4, 14},
		"zero": {fronta.Order{}, byKey, 4, 14},
		"key func": {
			fronta.ByKeyFunc("value", func(r *kgo.Record) []byte { return r.Value }),
			func(r *fronta.Record) string { return "value " + string(r.Value) }, 2, 16,
		},
		"key func, nil": {fronta.ByKeyFunc("none", func(r *kgo.Record) []byte { return nil }), nil, 1, 32},
		"key func, one": {
			fronta.ByKeyFunc("one", func(r *kgo.Record) []byte { return []byte{} }),
			func(*fronta.Record) string { return "one" }, 16, 2,
		},
		// The two records without a key wait for nobody; the others are one lane.
		"one bucket": {fronta.ByBucket(1), func(r *fronta.Record) string {
			if r.Key == nil {
				return ""
			}
			return "bucket"
		}, 14, 4},
		"many buckets": {fronta.ByBucket(1 << 30), byKey, 4, 14},
		"partition":    {fronta.ByPartition(), func(*fronta.Record) string { return "partition" }, 16, 2},
		"unordered":    {fronta.Unordered(), nil, 1, 32},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 2, func(b *bench) {
				copies := make([]*kgo.Record, len(rs))
				for i, r := range rs {
					c := *r
					copies[i] = &c
				}
				b.produce(copies...)
				watch := newLanes(b.t)
				var calls journal
				cfg := b.config()
				cfg.Order = tt.order
				c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
					lane := ""
					if tt.lane != nil {
						lane = tt.lane(r)
					}
					return watch.run(lane, r, func() error {
						calls.add(r)
						return sleep(ctx, time.Second)
					})
				})
				b.until("all are accepted", func() bool { return c.Stats().Accepted == int64(len(rs)) })
				c.stop()
				got := calls.all()
				if len(got) != len(rs) {
					t.Errorf("%d calls, want %d", len(got), len(rs))
				}
				took := got[len(got)-1].at.Sub(got[0].at) + time.Second
				if s := int(took.Round(time.Second) / time.Second); s != tt.seconds {
					t.Errorf("the records took %d s, want %d: the longest lane's", s, tt.seconds)
				}
				if watch.atOnce() < tt.least {
					t.Errorf("at most %d lanes ran at once, want %d", watch.atOnce(), tt.least)
				}
				for p := range int32(2) {
					b.wantCommitted(p, int64(len(rs)/2))
				}
			})
		})
	}
}

func TestOrderNames(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]fronta.Order{
		"key": {}, "key:f": fronta.ByKeyFunc("f", nil), "bucket:7": fronta.ByBucket(7), "partition": fronta.ByPartition(), "unordered": fronta.Unordered(),
	} {
		if got := o.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

// H-061: many records without a key run side by side, those with one in order.
func TestKeylessRecordsAmongKeyed(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		const n = 10_000
		rs := make([]*kgo.Record, n)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: orders, Value: []byte("v")}
			if i%2 == 0 {
				rs[i].Key = []byte(strconv.Itoa(i % 100))
			}
		}
		b.produce(rs...)
		watch := newLanes(b.t)
		cfg := b.config()
		cfg.Concurrency = 64
		begin := time.Now()
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			return watch.run(string(r.Key), r, func() error { return sleep(ctx, 10*time.Millisecond) })
		})
		b.until("all are accepted", func() bool { return c.Stats().Accepted == n })
		ideal := n * 10 * time.Millisecond / 64
		if took := time.Since(begin); took > ideal*3/2 {
			b.t.Errorf("took %s, ideal is %s", took, ideal)
		}
		if watch.atOnce() != 64 {
			b.t.Errorf("%d ran at once, want 64", watch.atOnce())
		}
		c.stop()
	})
}

// H-064, P-4: the same key in two topics and two partitions of each is four
// lanes, and one that is blocked stops none of the others.
func TestSameKeyElsewhere(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		if err := b.broker.Cluster().CreateTopic("refunds", 2, nil); err != nil {
			b.t.Fatal(err)
		}
		for _, topic := range []string{orders, "refunds"} {
			for p := range int32(2) {
				b.produce(&kgo.Record{Topic: topic, Partition: p, Key: key("k"), Value: []byte("1")}, &kgo.Record{Topic: topic, Partition: p, Key: key("k"), Value: []byte("2")})
			}
		}
		cfg := b.config()
		cfg.Topics = []string{orders, "refunds"}
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			if r.Topic == "refunds" && r.Partition == 1 {
				return errDeclined
			}
			return nil
		})
		b.until("the other six", func() bool { return c.Stats().Accepted == 6 })
		time.Sleep(time.Minute)
		if s := c.Stats(); s.Accepted != 6 || s.Unfinished != 2 {
			b.t.Errorf("accepted %d, unfinished %d; want 6 and 2", s.Accepted, s.Unfinished)
		}
		c.stop()
	})
}

// A key function that panics is a failed attempt of that record, with a stack;
// the handler is not called, others go on, and the record goes by the rules.
func TestKeyFunctionPanics(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("a", "poison"), record("a", "2"), record("b", "3"))
		hook := new(recorder)
		cfg := b.config()
		cfg.Order = fronta.ByKeyFunc("value", func(r *kgo.Record) []byte {
			if string(r.Value) == "poison" {
				panic("no such field")
			}
			return r.Key
		})
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.Hooks = fronta.DeadLetterTopic(letters), 3, []any{hook}
		var calls journal
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error { calls.add(r); return nil })
		b.until("the dead letter", func() bool { return c.Stats().DeadLettered == 1 && c.Stats().Accepted == 3 })
		c.stop()
		if got := calls.offsets(); slices.Contains(got, 1) || len(got) != 3 {
			b.t.Errorf("the handler was called for %v", got)
		}
		retries := hook.of("retry")
		if len(retries) != 2 {
			b.t.Fatalf("%d retries, want 2", len(retries))
		}
		var p *fronta.PanicError
		if !errors.As(retries[0].err, &p) || p.Value != "no such field" || !strings.Contains(string(p.Stack), "order_test.go") {
			b.t.Errorf("the attempt failed with %v", retries[0].err)
		}
		dead := b.deadLetters()[0]
		if dead.Reason != deadletter.Panic || dead.DeliveryCount != 3 || !strings.Contains(dead.Error, `key function "value"`) {
			b.t.Errorf("dead letter: %q, %d deliveries, %q", dead.Reason, dead.DeliveryCount, dead.Error)
		}
		b.wantCommitted(0, 4)
	})
}

// P-4: one key without end does not starve the others (H-065).
func TestHotKeyDoesNotStarveOthers(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		var rs []*kgo.Record
		for i := range 2000 {
			if i%10 == 0 {
				rs = append(rs, record("cold"+strconv.Itoa(i), "c"))
				continue
			}
			rs = append(rs, record("hot", "h"))
		}
		b.produce(rs...)
		var cold journal
		cfg := b.config()
		cfg.Concurrency = 4
		begin := time.Now()
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			if string(r.Value) == "c" {
				defer cold.add(r)
			}
			return sleep(ctx, 50*time.Millisecond)
		})
		cold.wait(b.t, 200)
		// 200 records of 50 ms on the three slots that the hot key leaves.
		if took, ideal := time.Since(begin), 200*50*time.Millisecond/3; took > ideal*13/10 {
			b.t.Errorf("the cold keys took %s, ideal is %s", took, ideal)
		}
		c.stop()
	})
}

// A partition that never runs out of work does not starve another one.
func TestPartitionsTakeTurns(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		rs := numbered(3000, 3000)
		for range 10 {
			r := record("x", "late")
			r.Partition = 1
			rs = append(rs, r)
		}
		b.produce(rs...)
		var late journal
		cfg := b.config()
		cfg.Concurrency = 2
		begin := time.Now()
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			if r.Partition == 1 {
				defer late.add(r)
			}
			return sleep(ctx, 100*time.Millisecond)
		})
		late.wait(b.t, 10)
		if took := time.Since(begin); took > 5*time.Second {
			b.t.Errorf("ten records of the small partition took %s", took)
		}
		c.stop()
	})
}
