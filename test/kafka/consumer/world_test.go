// Package consumer_test runs the library on Apache Kafka. Package checker judges: members tell it what they start, end and
// commit, the dead-letter topic is read back, and at the end nothing may be lost, reordered or repeated beyond what is
// promised.
package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/checker"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	kafkatest.Main(m)
}

// patience bounds each wait, far above what it needs.
const patience = 90 * time.Second

// world is a topic, its dead letters, the members that consume it, and the judge.
type world struct {
	t       *testing.T
	cluster *kafkatest.Cluster
	client  *kgo.Client
	check   *checker.Checker
	topic   string
	letters string
	group   string
	config  func(*fronta.Config)

	partitions int
	produced   int

	mu       sync.Mutex
	keys     map[at]string
	numbers  map[int]at
	finished map[at]bool                     // accepted or dead-lettered
	fence    int64                           // the highest that was seen
	told     map[checker.Partition]time.Time // when the judge heard of its last commit
	changed  chan struct{}
}

type at struct {
	partition int32
	offset    int64
}

func newWorld(t *testing.T, cluster *kafkatest.Cluster, partitions int, config func(*fronta.Config)) *world {
	t.Helper()
	name := fmt.Sprintf("w%d", time.Now().UnixNano())
	w := &world{
		t: t, cluster: cluster, client: cluster.NewClient(t),
		check: checker.New(checker.Options{Progress: checker.Exact, FencesRise: true}),
		topic: name, letters: name + ".dlq", group: name, config: config, partitions: partitions,
		keys: make(map[at]string), numbers: make(map[int]at), finished: make(map[at]bool), told: make(map[checker.Partition]time.Time), changed: make(chan struct{}),
	}
	cluster.CreateTopic(t, w.topic, partitions, nil)
	cluster.CreateTopic(t, w.letters, partitions, nil)
	return w
}

// produce writes n records with keys in turn, and tells the judge.
func (w *world) produce(n, keys int) {
	w.t.Helper()
	w.produceAs(n, func(i int) string { return "key-" + strconv.Itoa(i%keys) })
}

// produceAs writes n records, the values counting on, with the key for each value, and tells the judge.
func (w *world) produceAs(n int, key func(i int) string) {
	w.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		number := w.produced + i
		records[i] = &kgo.Record{Topic: w.topic, Key: []byte(key(number)), Value: strconv.AppendInt(nil, int64(number), 10)}
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		w.t.Fatalf("produce to %s: %v", w.topic, err)
	}
	w.mu.Lock()
	for i, r := range records {
		w.keys[at{r.Partition, r.Offset}] = string(r.Key)
		w.numbers[w.produced+i] = at{r.Partition, r.Offset}
	}
	w.mu.Unlock()
	for _, r := range records {
		w.check.Produced(checker.Partition{Topic: r.Topic, Partition: r.Partition}, r.Offset, string(r.Key))
	}
	w.produced += n
}

// done notes that a record is finished, and wakes await.
func (w *world) done(partition int32, offset int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finished[at{partition, offset}] = true
	w.wakeLocked()
}

// count is how many records are finished.
func (w *world) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.finished)
}

func (w *world) isDone(a at) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished[a]
}

// fenced notes a fence.
func (w *world) fenced(fence int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fence = max(w.fence, fence)
}

// nextFence is higher than all that were seen.
func (w *world) nextFence() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fence + 1
}

// apart is how far apart two commits have to be for the judge. A commit is taken to cover what was finished before the one
// before it was heard of. When one follows another at once, that can be wrong:
//
//	handler:  says that it is done, is descheduled
//	consumer: hears that a commit is confirmed, says so, begins the next one
//	handler:  goes on, the consumer learns that it is done
const apart = commitInterval / 2

// committed tells the judge of a commit, unless it followed the last one of its partition at once.
func (w *world) committed(owner string, p checker.Partition, offset int64, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.Sub(w.told[p]) >= apart {
		w.told[p] = at
		w.check.Committed(owner, p, offset)
	}
}

// forget begins to count anew what is finished.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.finished)
}

// find is where the record with a number is.
func (w *world) find(number int) at {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.numbers[number]
	if !ok {
		w.t.Fatalf("no record %d was produced", number)
	}
	return a
}

// wake has those who wait look again.
func (w *world) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked()
}

func (w *world) wakeLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until n records are finished.
func (w *world) await(n int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d records are finished", n), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.finished) >= n
	})
}

// until waits for something that comes true with a finished record, a commit or an assignment.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		w.mu.Lock()
		changed := w.changed
		w.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			w.t.Fatalf("not within %s: %s\n%s", patience, what, w.check.Report())
		}
	}
}

// member is one consumer of the world.
type member struct {
	w    *world
	name string
	c    *fronta.Consumer
	stop context.CancelFunc
	end  chan error

	thrownOut atomic.Bool // by the brokers, and it has not told of it yet
	accepted  sync.Map    // of *fronta.Record: what the handler finished
}

var errRefused = errors.New("refused")

// join starts a member whose handler is handle.
func (w *world) join(name string, handle fronta.HandlerFunc, more ...func(*fronta.Config)) *member {
	w.t.Helper()
	m := &member{w: w, name: name, end: make(chan error, 1)}
	cfg := fronta.Config{
		Client: append(w.cluster.Opts(), kgo.ClientID(name), kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond)),
		Group:  w.group, Topics: []string{w.topic}, CommitInterval: commitInterval,
		DeadLetter: fronta.DeadLetterTopic(w.letters), MaxDeliveries: 4, Retry: fronta.ConstantBackoff(20 * time.Millisecond),
		Middleware: []fronta.Middleware{m.watch}, Hooks: []any{m},
		Logger: slog.New(slog.DiscardHandler),
	}
	if w.config != nil {
		w.config(&cfg)
	}
	for _, f := range more {
		f(&cfg)
	}
	c, err := fronta.NewConsumer(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.c, m.stop = c, cancel
	go func() { m.end <- c.Run(ctx, handle) }()
	w.t.Cleanup(func() { cancel(); <-c.Done() })
	return m
}

// leave stops the member in good order.
func (m *member) leave() {
	m.w.t.Helper()
	m.stop()
	if err := <-m.end; err != nil {
		m.w.t.Errorf("member %s: %v", m.name, err)
	}
	if m.thrownOut.Load() {
		// It left before it could notice: what it finished since its last commit is nobody's knowledge.
		m.lost()
	}
	m.w.check.Stopped(m.name)
}

// lost tells the judge that whatever the member holds is lost.
func (m *member) lost() {
	for p := range m.w.partitions {
		m.w.check.Lost(m.name, checker.Partition{Topic: m.w.topic, Partition: int32(p)})
	}
}

func (m *member) watch(next fronta.Handler) fronta.Handler {
	return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) (err error) {
		p := checker.Partition{Topic: r.Topic, Partition: r.Partition}
		m.w.fenced(r.Fence)
		m.w.check.Started(m.name, p, r.Offset, r.DeliveryCount, r.Fence)
		result := checker.Failed
		defer func() {
			m.w.check.Ended(m.name, p, r.Offset, result)
			if result == checker.Accepted {
				m.accepted.Store(r, true)
				m.w.done(r.Partition, r.Offset)
			}
		}()
		err = next.Handle(ctx, r)
		switch {
		case err == nil:
			result = checker.Accepted
		case ctx.Err() != nil:
			result = checker.Abandoned
		case errors.Is(err, errRefused):
			result = checker.RejectedPending
		}
		return err
	})
}

func each(tps []fronta.TopicPartition, f func(checker.Partition)) {
	for _, tp := range tps {
		f(checker.Partition{Topic: tp.Topic, Partition: tp.Partition})
	}
}

func (m *member) OnAssigned(tps []fronta.TopicPartition, _ int64) {
	each(tps, func(p checker.Partition) { m.w.check.Assigned(m.name, p) })
}

func (m *member) OnRevoked(tps []fronta.TopicPartition) {
	if m.thrownOut.Load() {
		m.lost()
	}
	each(tps, func(p checker.Partition) { m.w.check.Revoked(m.name, p) })
}

func (m *member) OnLost(tps []fronta.TopicPartition, _ error) {
	m.thrownOut.Store(false)
	each(tps, func(p checker.Partition) { m.w.check.Lost(m.name, p) })
	m.w.wake()
}

// OnLate: a handler was done in the instant in which its partition left. The judge has heard of it, the consumer has not
// taken it into account, as it says here.
func (m *member) OnLate(r *fronta.Record) {
	if _, ok := m.accepted.Load(r); ok {
		m.w.check.Lost(m.name, checker.Partition{Topic: r.Topic, Partition: r.Partition})
	}
}

func (m *member) OnCommitted(tp fronta.TopicPartition, offset int64) {
	m.w.committed(m.name, checker.Partition{Topic: tp.Topic, Partition: tp.Partition}, offset, time.Now())
	m.w.wake()
}

func (m *member) OnDeadLettered(r *fronta.Record, reason deadletter.Reason, _ error) {
	m.w.check.DeadLettered(checker.Partition{Topic: r.Topic, Partition: r.Partition}, r.Offset, string(reason))
	m.w.done(r.Partition, r.Offset)
}

// committed is the sum of the offsets that the brokers have confirmed to the member.
func (m *member) committed() (sum int64) {
	for _, p := range m.c.Stats().Partitions {
		sum += max(p.Committed, 0)
	}
	return sum
}

// judge asks for the verdict, and whether the group's offsets are at the log's end.
func (w *world) judge() checker.Report {
	w.t.Helper()
	report := w.check.Finish()
	if !report.OK() {
		w.t.Errorf("%s", report)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	ends, err := kadm.NewClient(w.client).ListEndOffsets(ctx, w.topic)
	if err != nil {
		w.t.Fatal(err)
	}
	stored := w.stored()
	ends.Each(func(end kadm.ListedOffset) {
		have, ok := stored[end.Partition]
		switch {
		case !ok && end.Offset > 0:
			w.t.Errorf("%s/%d: nothing is committed, the log ends at %d", end.Topic, end.Partition, end.Offset)
		case ok && (have.offset != end.Offset || len(have.Segments) > 0):
			w.t.Errorf("%s/%d: committed %d with %+v, the log ends at %d", end.Topic, end.Partition, have.offset, have.Progress, end.Offset)
		}
	})
	return report
}

// readLetters reads n dead letters.
func (w *world) readLetters(n int) []deadletter.Letter {
	w.t.Helper()
	client := w.cluster.NewClient(w.t, kgo.ConsumeTopics(w.letters), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var letters []deadletter.Letter
	for len(letters) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			w.t.Fatalf("read %d of %d dead letters", len(letters), n)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			l, err := deadletter.Parse(r)
			if err != nil {
				w.t.Error(err)
			}
			letters = append(letters, l)
		})
	}
	return letters
}

// eachProtocol runs f for the classic and the newer group protocol.
func eachProtocol(t *testing.T, f func(t *testing.T, set func(*fronta.Config))) {
	t.Run("classic", func(t *testing.T) {
		f(t, func(c *fronta.Config) { c.Protocol = fronta.ClassicProtocol })
	})
	t.Run("consumer", func(t *testing.T) {
		f(t, func(c *fronta.Config) {
			c.Protocol = fronta.ConsumerProtocol
			// The broker decides on session and heartbeat.
			c.Client = append(c.Client, kgo.SessionTimeout(45*time.Second), kgo.HeartbeatInterval(3*time.Second))
		})
	})
}

// work takes up to 3 ms, the same for a record each time.
func work(r *fronta.Record) { time.Sleep(time.Duration(r.Offset%4) * time.Millisecond) }
