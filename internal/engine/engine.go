// Package engine runs handlers over queues: it owns the partitions' cores
// (package queue), the workers, the timers and the dead letters, and knows
// nothing of consumer groups. A driver puts records in ([Engine.Offer]), asks
// how far each partition may be committed ([Engine.Positions]) and takes
// partitions away ([Engine.Revoke], [Engine.Lose]).
//
// One lock guards all of it. Everything under it is O(1) per record and
// nothing under it blocks, calls user code or logs; workers come for many
// records at once when handlers are fast. What user code causes (hooks, logs,
// dead letters) is collected as effects and run after the lock is released,
// in order.
//
// What must stay true:
//
//   - A record counts as finished only under the lock and only while its
//     partition is open. Closing a partition and reading the offset to commit
//     is one step, so a result that comes later changes nothing (H-033).
//   - At most Concurrency handlers run; a record that waits for a retry or for
//     its dead letter holds neither a goroutine nor a place among them.
//   - A handler that outlives its partition's ownership keeps its lane closed
//     in this process until it returns, also for the partition's next
//     ownership (P-2).
package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Why a handler's context was cancelled, and why a settle was refused. Package
// fronta exports them.
var (
	ErrStopping       = errors.New("fronta: the consumer is stopping")
	ErrLost           = errors.New("fronta: ownership of the partition was lost")
	ErrHandlerTimeout = errors.New("fronta: the handler ran past HandlerTimeout")
	ErrSettled        = errors.New("fronta: the delivery was settled before")
	ErrDropped        = errors.New("fronta: the delivery was dropped without being settled")
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Delivery is a record as the handler sees it. Its fields are those of
// fronta.Record, in the same order, so that a pointer to one converts to a
// pointer to the other.
type Delivery struct {
	*kgo.Record
	DeliveryCount int
	Fence         int64
	Failure       *Failure
}

// Failure is what is known of a record's failed attempts.
type Failure struct {
	First time.Time // when the first one ended
	Last  time.Time // when the last one ended
	Err   error     // of the last one
}

// Verb is what a handler's outcome asks for.
type Verb uint8

// The verbs. The zero Verb accepts.
const (
	Accept  Verb = iota
	Fail         // a failed attempt: again later
	Snooze       // again later, not a failure
	Reject       // never again
	Stop         // stop the consumer; the record stays
	notRun       // the handler was not called; back into the queue
	crashed      // nor was it, and never will be: the process does not survive it
)

// Outcome is how an attempt ended.
type Outcome struct {
	Verb   Verb
	Err    error
	Delay  time.Duration     // for Snooze, and for Fail when Timed
	Timed  bool              // Fail: Delay replaces the retry policy's
	Reason deadletter.Reason // Fail: what the dead letter says if it was the last attempt
}

// Config is what an Engine runs by. All of it is checked by package fronta.
type Config struct {
	Handle  func(context.Context, *Delivery) error // nil: records are pulled by Receive
	Outcome func(error) Outcome                    // what an error that Handle returned asks for
	Lane    func(*kgo.Record) (queue.Lane, error)  // an error is a failed attempt of the record

	// LaneInside says that Lane is quick and none of the user's code, so that
	// it may be called under the lock, and only for records that need a lane.
	LaneInside bool

	OrderName  string                        // names Lane's order in what is committed
	Check      func(*kgo.Record) uint32      // Lane's Ordering.Check; nil: none
	Former     func(name string) *Ordering   // an order that an earlier owner had; nil: not known
	Exact      bool                          // progress lists unfinished records, not lane heads
	Bound      func(window, heads int64) int // how many bytes progress can come to; nil: package progress's own
	MaxCrashes int                           // of the process during a record, before that is dead-lettered; 0: not watched

	Concurrency    int
	MaxInFlight    int
	MaxBytes       int64
	HandlerTimeout time.Duration // 0: none
	StuckAfter     time.Duration // 0: never reported

	Backoff       func(*Delivery, error) time.Duration
	MaxDeliveries int // 0: for ever
	Letters       LetterWriter
	Discard       bool // without Letters: rejected and exhausted records are discarded
	Budget        Budget

	Log    *slog.Logger
	Events Events
}

// LetterWriter writes dead letters.
type LetterWriter interface {
	// Write starts writing the letter and returns at once; done is called
	// from any goroutine when the brokers have acknowledged it or the attempt
	// has failed. ctx carries values only: the write has a deadline of its own.
	Write(ctx context.Context, letter Letter, done func(error))
}

// Letter is a record on its way to the dead-letter topic.
type Letter struct {
	Record     *kgo.Record
	Fence      int64
	Reason     deadletter.Reason
	Deliveries int
	Failure    Failure
}

// Engine runs the partitions of one consumer.
type Engine struct {
	cfg  Config
	base time.Time // the clock's zero
	ctx  context.Context
	end  context.CancelCauseFunc

	mu       sync.Mutex
	parts    map[TopicPartition]*Part
	zombies  map[TopicPartition]map[*task]struct{} // handlers that outlived their ownership
	ready    partRing
	crowded  partRing           // have records and wait for room under MaxInFlight
	waiting  map[*Part]struct{} // partitions with a record that waits for its time
	stopping bool
	fatal    error
	fatalCh  chan struct{} // closed once fatal is set

	unfinished int   // records admitted, over all open partitions
	bytes      int64 // their size, and that of staged ones
	staged     int   // records read and not admitted
	running    int   // handlers running, deliveries out, letters being written
	idleCh     chan struct{}
	budget     tokens

	workers workers
	pull    receivers

	timer     *time.Timer
	timerDue  queue.Time
	watch     watchdog
	intake    intake
	counters  Counters
	urgent    chan struct{}
	pending   effects // of what is noticed where none can be run
	careful   *Part   // has the suspect that is marked or runs
	capacity  int     // bytes of progress that a commit has room for
	sealed    bool    // see Seal
	lastFence int64
	cores     sync.Pool   // of *queue.Snapshot
	forceHalt atomic.Bool // no handler may start any more, whatever its partition
}

// New returns an engine without partitions. Shut it down with Close.
func New(cfg Config) *Engine {
	e := &Engine{
		cfg:     cfg,
		base:    time.Now(),
		parts:   make(map[TopicPartition]*Part),
		zombies: make(map[TopicPartition]map[*task]struct{}),
		waiting: make(map[*Part]struct{}),
		fatalCh: make(chan struct{}),
		urgent:  make(chan struct{}, 1),

		timerDue: queue.Never,
	}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	e.cores.New = func() any { return new(queue.Snapshot) }
	e.budget.init(cfg.Budget)
	e.workers.init(e)
	e.watch.init(e)
	e.intake.init()
	return e
}

func (e *Engine) now() queue.Time { return queue.Time(time.Since(e.base)) }

// Fatal is closed when the consumer has to stop because of Failure.
func (e *Engine) Fatal() <-chan struct{} { return e.fatalCh }

// Failure is why the consumer has to stop, or nil.
func (e *Engine) Failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fatal
}

// Fail asks for the consumer to stop because of err. The first one counts.
func (e *Engine) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failLocked(err)
}

func (e *Engine) failLocked(err error) {
	if e.fatal == nil {
		e.fatal = err
		e.stopLocked()
		close(e.fatalCh)
	}
}

// Halt ends the starting of handlers and the reading of records. What runs
// goes on and is settled as usual.
func (e *Engine) Halt() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopLocked()
}

func (e *Engine) stopLocked() {
	if e.stopping {
		return
	}
	e.stopping = true
	e.forceHalt.Store(true)
	e.pull.closeLocked(ErrStopping)
	e.intake.wakeLocked()
}

// Cancel cancels the contexts of all handlers with cause.
func (e *Engine) Cancel(cause error) { e.end(cause) }

// Drain waits until no handler runs, no delivery is out, those of partitions
// that are gone included, and no dead letter is being written, or until ctx
// ends.
func (e *Engine) Drain(ctx context.Context) error {
	for {
		e.mu.Lock()
		if e.running == 0 && len(e.zombies) == 0 {
			e.mu.Unlock()
			return nil
		}
		if e.idleCh == nil {
			e.idleCh = make(chan struct{})
		}
		idle := e.idleCh
		e.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// releaseLocked takes one from the number of records that somebody works on.
func (e *Engine) releaseLocked(p *Part) {
	e.running--
	e.idleLocked()
	p.active--
	if p.active == 0 && p.idleCh != nil {
		close(p.idleCh)
		p.idleCh = nil
	}
}

// idleLocked lets Drain go on if there is nothing to wait for any more.
func (e *Engine) idleLocked() {
	if e.running == 0 && e.idleCh != nil && len(e.zombies) == 0 {
		close(e.idleCh)
		e.idleCh = nil
	}
}

func (e *Engine) claimLocked(p *Part) {
	e.running++
	p.active++
}

// Close gives up every partition and ends the engine's goroutines, but for
// handlers that do not return: those are reported as stuck.
func (e *Engine) Close() {
	e.mu.Lock()
	e.stopLocked()
	var fx effects
	for tp := range e.parts {
		e.closePartLocked(e.parts[tp], ErrStopping, &fx)
	}
	if e.timer != nil {
		e.timer.Stop()
	}
	e.workers.closeLocked()
	e.watch.closeLocked(&fx)
	e.mu.Unlock()
	e.end(ErrStopping)
	fx.run()
}

// effects are what has to be done outside the lock.
type effects []func()

func (fx *effects) add(f func()) { *fx = append(*fx, f) }

func (fx effects) run() {
	for _, f := range fx {
		f()
	}
}
