package fronta_test

// What the tests of the public API share: an embedded broker for each test, on
// the bubble's clock where time matters, and a consumer that is watched.
//
// What must stay true: a test that passes leaves neither goroutine nor
// consumer behind, and none waits by sleeping on the real clock.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	orders  = "orders"
	letters = "orders.dlq"
	billing = "billing"
)

// bench is a broker and a client to produce and to look with.
type bench struct {
	t      *testing.T
	broker *fake.Broker
	client *kgo.Client
	admin  *kadm.Client
}

// virtual runs a test on the bubble's clock, with a broker that has the topic
// orders with this many partitions, and the dead-letter topic with two.
func virtual(t *testing.T, partitions int, test func(b *bench), opts ...fake.Option) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(newBench(t, append([]fake.Option{fake.Virtual(), fake.Topic(orders, partitions), fake.Topic(letters, 2)}, opts...)...))
	})
}

func newBench(t *testing.T, opts ...fake.Option) *bench {
	t.Helper()
	broker, err := fake.Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	b := &bench{t: t, broker: broker}
	b.client = b.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20))
	b.admin = kadm.NewClient(b.client)
	return b
}

func (b *bench) newClient(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	c, err := kgo.NewClient(append(b.broker.Opts(), opts...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return c
}

func key(k string) []byte { return []byte(k) }

// record is a record of partition 0 of orders.
func record(k, v string) *kgo.Record {
	return &kgo.Record{Topic: orders, Key: key(k), Value: []byte(v)}
}

// numbered are n records whose keys repeat after keys of them.
func numbered(n, keys int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = record("k"+strconv.Itoa(i%keys), strconv.Itoa(i))
	}
	return rs
}

// produce stores records as they are, in the partitions that they name.
func (b *bench) produce(rs ...*kgo.Record) {
	b.t.Helper()
	if err := b.client.ProduceSync(b.t.Context(), rs...).FirstErr(); err != nil {
		b.t.Fatalf("produce: %v", err)
	}
}

// committed is the offset that the group has stored for a partition of orders, −1
// if none.
func (b *bench) committed(partition int32) int64 {
	b.t.Helper()
	offsets, err := b.admin.FetchOffsets(b.t.Context(), billing)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	if err != nil {
		b.t.Fatalf("fetch offsets: %v", err)
	}
	if o, ok := offsets.Lookup(orders, partition); ok {
		return o.At
	}
	return -1
}

func (b *bench) wantCommitted(partition int32, want int64) {
	b.t.Helper()
	if got := b.committed(partition); got != want {
		b.t.Errorf("committed offset of partition %d is %d, want %d", partition, got, want)
	}
}

// deadLetters are the dead letters in their topic, by partition and offset.
func (b *bench) deadLetters() []deadLetter {
	b.t.Helper()
	ends, err := b.admin.ListEndOffsets(b.t.Context(), letters)
	if err != nil {
		b.t.Fatal(err)
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	if n == 0 {
		return nil
	}
	c, err := kgo.NewClient(append(b.broker.Opts(), kgo.ConsumeTopics(letters))...)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	var found []deadLetter
	for int64(len(found)) < n {
		fetches := c.PollFetches(b.t.Context())
		if err := fetches.Err(); err != nil {
			b.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			l, err := deadletter.Parse(r)
			if err != nil {
				b.t.Fatal(err)
			}
			found = append(found, deadLetter{l, r})
		})
	}
	slices.SortFunc(found, func(a, b deadLetter) int {
		return cmp.Or(cmp.Compare(a.record.Partition, b.record.Partition), cmp.Compare(a.record.Offset, b.record.Offset))
	})
	return found
}

type deadLetter struct {
	deadletter.Letter
	record *kgo.Record
}

// config is a configuration that reaches the broker.
func (b *bench) config() fronta.Config {
	return fronta.Config{
		Client: b.broker.Opts(), Group: billing, Topics: []string{orders},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func (b *bench) consumer(cfg fronta.Config) *fronta.Consumer {
	b.t.Helper()
	c, err := fronta.NewConsumer(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	return c
}

// running is a consumer whose Run is under way.
type running struct {
	*fronta.Consumer
	t      *testing.T
	cancel context.CancelFunc
	err    error
	ended  chan struct{}
}

func (b *bench) run(cfg fronta.Config, h fronta.HandlerFunc) *running {
	b.t.Helper()
	c := b.consumer(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Consumer: c, t: b.t, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = c.Run(ctx, h)
	}()
	b.t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// stop ends the consumer's context and waits for Run, which has to return nil.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := r.wait(); err != nil {
		r.t.Errorf("Run returned %v, want nil", err)
	}
}

func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(10 * time.Minute):
		r.t.Fatal("Run does not return")
		return nil
	}
}

// until waits until ok holds. It looks often, on the bubble's clock, where
// sleeping takes no time, and less often the longer it takes.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for begin := time.Now(); !ok(); {
		age := time.Since(begin)
		if age > 30*time.Minute {
			b.t.Fatalf("never came true: %s", what)
		}
		time.Sleep(min(max(age/50, 10*time.Millisecond), time.Second))
	}
}

// journal notes what handlers did, in order.
type journal struct {
	mu      sync.Mutex
	entries []entry
	changed chan struct{}
}

type entry struct {
	at        time.Time
	offset    int64
	partition int32
	key       []byte
	delivery  int
	fence     int64
}

func (j *journal) add(r *fronta.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{time.Now(), r.Offset, r.Partition, r.Key, r.DeliveryCount, r.Fence})
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

func (j *journal) all() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries)
}

func (j *journal) offsets() []int64 {
	var offsets []int64
	for _, e := range j.all() {
		offsets = append(offsets, e.offset)
	}
	return offsets
}

// wait waits until n entries are there.
func (j *journal) wait(t *testing.T, n int) {
	t.Helper()
	limit := time.After(20 * time.Minute)
	for {
		j.mu.Lock()
		if len(j.entries) >= n {
			j.mu.Unlock()
			return
		}
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		changed := j.changed
		j.mu.Unlock()
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d of %d entries came", j.len(), n)
		}
	}
}

// logged is a logger whose lines a test can read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logged) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// sleep is a handler's work: it ends early when ctx does.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errDeclined = errors.New("card declined")

// hold makes the broker keep the answers to requests of one kind, which it
// does not act on before release is called.
func (b *bench) hold(k kmsg.Key) (held <-chan struct{}, release func()) {
	arrived, open := make(chan struct{}), make(chan struct{})
	var once, free sync.Once
	c := b.broker.Cluster()
	c.ControlKey(int16(k), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		select {
		case <-open:
			return nil, nil, false
		default:
		}
		c.SleepControl(func() {
			once.Do(func() { close(arrived) })
			<-open
		})
		return nil, nil, false
	})
	release = func() { free.Do(func() { close(open) }) }
	b.t.Cleanup(release)
	return arrived, release
}

// fail makes the broker answer requests about a topic with err until the
// returned fault is removed.
func (b *bench) fail(f kfake.Fault) *kfake.FaultHandle {
	f.Count = -1
	return b.broker.Cluster().Fault(f)
}

// errUnknownMember voids a membership.
var errUnknownMember = kerr.UnknownMemberID

func (b *bench) failCommits() *kfake.FaultHandle {
	return b.fail(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Group: billing, Err: kerr.UnknownTopicOrPartition})
}
