package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	p0 = TopicPartition{"orders", 0}
	p1 = TopicPartition{"orders", 1}
	p2 = TopicPartition{"orders", 2}
)

// verdict is an error that asks for an outcome, as those of package fronta do.
type verdict struct{ Outcome }

func (v *verdict) Error() string { return fmt.Sprintf("verdict %d", v.Verb) }

var errBad = errors.New("bad record")

func verdictOf(err error) Outcome {
	var v *verdict
	if errors.As(err, &v) {
		return v.Outcome
	}
	return Outcome{Verb: Fail, Err: err}
}

func snooze(d time.Duration) error { return &verdict{Outcome{Verb: Snooze, Delay: d}} }
func reject() error                { return &verdict{Outcome{Verb: Reject, Err: errBad}} }
func failFor(d time.Duration) error {
	return &verdict{Outcome{Verb: Fail, Err: errBad, Delay: d, Timed: true}}
}

// lane puts records with equal keys into one lane: a small hash is enough for
// tests, and its collisions are none of theirs.
func lane(r *kgo.Record) (queue.Lane, error) {
	if r.Key == nil {
		return queue.Alone, nil
	}
	h := queue.Lane(14695981039346656037)
	for _, b := range r.Key {
		h = (h ^ queue.Lane(b)) * 1099511628211
	}
	return max(h, 1), nil
}

// rig is an engine with handlers that tests steer by offset. It runs inside
// of a synctest bubble: after synctest.Wait everything that can happen without
// time passing has happened.
type rig struct {
	*Engine
	t *testing.T

	mu      sync.Mutex
	plan    map[int64]func(context.Context, *Delivery) error // by offset
	started []int64
	ended   []int64

	over chan struct{} // closed when the test is over: handlers that wait return
}

func config() Config {
	return Config{
		Outcome: verdictOf, Lane: lane, LaneInside: true,
		Concurrency: 16, MaxInFlight: 1000, MaxBytes: 1 << 30,
		Backoff: func(*Delivery, error) time.Duration { return time.Minute },
		Budget:  Budget{Burst: 1 << 20},
		Log:     slog.New(slog.DiscardHandler),
	}
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, plan: make(map[int64]func(context.Context, *Delivery) error), over: make(chan struct{})}
	cfg := config()
	cfg.Handle = r.handle
	if change != nil {
		change(&cfg)
	}
	r.Engine = New(cfg)
	t.Cleanup(func() {
		close(r.over)
		r.Close()
		time.Sleep(1000 * time.Hour) // handlers that sleep return
	})
	return r
}

func (r *rig) handle(ctx context.Context, d *Delivery) error {
	r.mu.Lock()
	r.started = append(r.started, d.Offset)
	do := r.plan[d.Offset]
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.ended = append(r.ended, d.Offset)
		r.mu.Unlock()
	}()
	if do == nil {
		return nil
	}
	return do(ctx, d)
}

// on says what the handler does with the record at offset from now on.
func (r *rig) on(offset int64, do func(context.Context, *Delivery) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan[offset] = do
}

// block makes the handler of offset wait until the answer is sent.
func (r *rig) block(offset int64) chan<- error {
	answer := make(chan error, 1)
	r.on(offset, func(context.Context, *Delivery) error { return r.until(answer) })
	return answer
}

func positions(ss []Snapshot) (ps []Position) {
	for _, s := range ss {
		ps = append(ps, s.Position)
	}
	return ps
}

// until waits for the answer, heedless of the handler's context.
func (r *rig) until(answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-r.over:
		return nil
	}
}

// quick makes the engine believe that handlers take next to no time, so that
// workers take batches and runs, or the opposite.
func (r *rig) quick(yes bool) {
	r.Engine.mu.Lock()
	defer r.Engine.mu.Unlock()
	r.workers.average = time.Millisecond
	if yes {
		r.workers.average = 1
	}
}

// wait lets everything happen that needs no time, and checks the invariants.
func (r *rig) wait() {
	r.t.Helper()
	synctest.Wait()
	r.check(true)
}

// pass is wait after d.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	time.Sleep(d)
	r.wait()
}

func (r *rig) check(quiet bool) {
	r.t.Helper()
	r.Engine.mu.Lock()
	defer r.Engine.mu.Unlock()
	if err := checkLocked(r.Engine, quiet); err != nil {
		r.t.Fatal(err)
	}
}

// close ends the engine and demands that nothing is left of it.
func (r *rig) close() {
	r.t.Helper()
	r.Close()
	synctest.Wait()
	r.Engine.mu.Lock()
	defer r.Engine.mu.Unlock()
	if err := goneLocked(r.Engine); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) startedNow() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64(nil), r.started...)
}

func (r *rig) count(offset int64) (n int) {
	for _, o := range r.startedNow() {
		if o == offset {
			n++
		}
	}
	return n
}

// at demands a position.
func (r *rig) at(tp TopicPartition, want int64) {
	r.t.Helper()
	ps := r.Positions(tp)
	if len(ps) != 1 || ps[0].Offset != want {
		r.t.Fatalf("%v: positions %+v, want offset %d", tp, ps, want)
	}
}

func rec(tp TopicPartition, offset int64, key string) *kgo.Record {
	r := &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: offset}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

// marker is what a transaction leaves in the log.
func marker(tp TopicPartition, offset int64) *kgo.Record {
	r := rec(tp, offset, "")
	r.Attrs = controlAttrs
	return r
}

var controlAttrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Transactional: true, Control: true})

// keyless are n records from offset on that wait for nobody.
func keyless(tp TopicPartition, from, n int64) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = rec(tp, from+int64(i), "")
	}
	return rs
}
