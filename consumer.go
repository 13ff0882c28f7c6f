package fronta

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/internal/group"
	"github.com/fronta-mq/fronta/progress"
)

// Consumer consumes topics as a member of a consumer group. It is used once:
// with [Consumer.Run], or with [Consumer.Receive] and [Consumer.Close]. Its
// methods may be called from any goroutine, also from handlers and hooks.
type Consumer struct {
	cfg Config

	hard  context.Context // ends when a stop is cut short
	abort context.CancelFunc

	paused pauses // outlives assignments

	mu     sync.Mutex
	state  state
	engine *engine.Engine
	driver *group.Driver
	pulled atomic.Bool     // Receive was called
	done   chan struct{}   // closed when the consumer has stopped
	err    error           // once done
	asked  context.Context // ends when Close or Shutdown is called
	stop   context.CancelFunc
}

type state uint8

const (
	stateNew state = iota
	stateRunning
	statePulling
	stateStopped
)

// ErrRunning is what Run and Receive answer when the consumer is already used
// in the other way, or Run was called before.
var ErrRunning = errors.New("fronta: the consumer is in use or was used before: a Consumer runs once, with Run or with Receive")

// ErrClosed is what Run and Receive answer when the consumer was closed.
var ErrClosed = errors.New("fronta: the consumer is closed")

// NewConsumer checks cfg and returns a consumer that has not started: no
// connection is made and nothing has to be freed before [Consumer.Run] or
// [Consumer.Receive]. The error is a [ConfigError] that names the field.
func NewConsumer(cfg Config) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Consumer{cfg: cfg, done: make(chan struct{}), paused: pauses{m: make(map[TopicPartition]bool)}}
	c.hard, c.abort = context.WithCancel(context.Background())
	c.asked, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Run calls h for every record until ctx ends, [Consumer.Close] is called, a
// handler returns [Stop], or an error occurs that no retry can mend. Then it
// stops in good order: reading ends, running handlers have Config.DrainTimeout
// before their context is cancelled, what was achieved is committed, the group
// is left. Records that were read and not started are not handled; they come
// again when the group is next consumed.
//
// It returns nil when ctx or Close ended it, and the wrapped error otherwise.
// All handlers have returned by then, except those that ignored their
// cancelled context for another 5 s (or DrainTimeout, if shorter): they are
// reported as stuck, and whatever they return changes nothing.
//
// A call that finds the consumer used returns [ErrRunning] or [ErrClosed].
func (c *Consumer) Run(ctx context.Context, h Handler) error {
	if h == nil {
		return errNilHandler
	}
	if f, ok := h.(HandlerFunc); ok && f == nil {
		return errNilHandler
	}
	h, err := c.cfg.handler(h)
	if err != nil {
		return err
	}
	if err := c.start(stateRunning, func(ctx context.Context, d *engine.Delivery) error {
		return h.Handle(ctx, (*Record)(d))
	}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.asked, cancel)()
	c.run(ctx)
	return c.err
}

// start makes the engine and its driver.
func (c *Consumer) start(as state, handle func(context.Context, *engine.Delivery) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case stateNew:
	case stateStopped:
		return ErrClosed
	default:
		return ErrRunning
	}
	c.state = as
	c.driver = group.New(c.groupConfig())
	c.engine = engine.New(c.engineConfig(handle, c.driver))
	c.driver.Attach(c.engine)
	return nil
}

// run drives the consumer until it has stopped.
func (c *Consumer) run(ctx context.Context) {
	err := c.driver.Run(ctx, c.hard)
	c.mu.Lock()
	c.state = stateStopped
	c.err = err
	close(c.done)
	c.mu.Unlock()
	c.abort()
	c.stop()
}

// Close stops the consumer in good order, as the end of Run's context does.
// While Run is under way, Close only asks for that and returns nil at once
// (so that a handler may call it); Run returns when it is done. A consumer
// that hands out records by Receive is stopped when Close returns, and its
// error is returned; deliveries still out have Config.DrainTimeout. Closing a
// consumer that never ran, or a second time, does nothing.
func (c *Consumer) Close() error {
	c.mu.Lock()
	was := c.state
	if was == stateNew {
		c.state = stateStopped
		close(c.done)
	}
	c.mu.Unlock()
	c.stop()
	switch was {
	case statePulling:
		<-c.done
		return c.err
	case stateNew:
		c.abort()
		return nil
	default:
		if c.pulled.Load() {
			return c.result()
		}
		return nil
	}
}

// Shutdown is Close with a limit: it waits until the consumer has stopped, in
// whichever way it runs, and when ctx ends before that, handlers are cancelled
// at once instead of after Config.DrainTimeout. It returns the consumer's
// error, or the cause of ctx if the consumer had not stopped five seconds
// after ctx ended. From inside a handler, pass the handler's ctx or call Close.
func (c *Consumer) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	if c.state == stateNew {
		c.state = stateStopped
		close(c.done)
	}
	c.mu.Unlock()
	c.stop()
	select {
	case <-c.done:
		return c.result()
	case <-ctx.Done():
	}
	c.abort()
	grace := time.NewTimer(shutdownGrace)
	defer grace.Stop()
	select {
	case <-c.done:
		return c.result()
	case <-grace.C:
		return context.Cause(ctx)
	}
}

const shutdownGrace = 5 * time.Second

func (c *Consumer) result() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Done is closed when the consumer has stopped.
func (c *Consumer) Done() <-chan struct{} { return c.done }

// Pause keeps partitions from being read and their records from being started,
// until Resume; without partitions of a topic named, use PauseTopic. What runs
// goes on. A pause outlives rebalances: a partition that comes back, or comes
// for the first time, is paused if Pause named it.
func (c *Consumer) Pause(partitions ...TopicPartition) { c.setPaused(partitions, true) }

// Resume ends a Pause.
func (c *Consumer) Resume(partitions ...TopicPartition) { c.setPaused(partitions, false) }

// PauseTopic pauses all partitions of a topic, those that come later too. It
// is independent of Pause: a partition is read when neither holds it.
func (c *Consumer) PauseTopic(topic string) {
	c.setPaused([]TopicPartition{{topic, wholeTopic}}, true)
}

// ResumeTopic ends a PauseTopic. Partitions that Pause named stay paused.
func (c *Consumer) ResumeTopic(topic string) {
	c.setPaused([]TopicPartition{{topic, wholeTopic}}, false)
}

const wholeTopic = -1

// pauses are what the user has paused. Its lock is taken under the engine's,
// so nothing else is called while it is held.
type pauses struct {
	mu sync.Mutex
	m  map[TopicPartition]bool
}

func (p *pauses) holds(tp engine.TopicPartition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m[TopicPartition(tp)] || p.m[TopicPartition{tp.Topic, wholeTopic}]
}

func (c *Consumer) setPaused(tps []TopicPartition, paused bool) {
	c.paused.mu.Lock()
	for _, tp := range tps {
		if paused {
			c.paused.m[tp] = true
		} else {
			delete(c.paused.m, tp)
		}
	}
	c.paused.mu.Unlock()
	c.mu.Lock()
	e := c.engine
	c.mu.Unlock()
	if e != nil {
		e.PauseWhere(c.paused.holds)
	}
}

func (c *Consumer) groupConfig() group.Config {
	cfg := &c.cfg
	revoke := cfg.DrainTimeout
	if r := cfg.rebalanceTimeout; r > 0 {
		revoke = min(revoke, r*3/4)
	}
	return group.Config{
		Client: cfg.Client, Context: cfg.context, Group: cfg.Group, Topics: cfg.Topics, Regex: cfg.Regex,
		NextGen: cfg.Protocol == ConsumerProtocol, ReadCommitted: cfg.Isolation == ReadCommitted,
		Start: cfg.StartAt.offset(), StartLatest: cfg.StartAt.kind == startLatest, StartSince: cfg.StartAt.since(),
		Reset: cfg.OutOfRange.offset(), ResetLatest: cfg.OutOfRange == ResetLatest,
		FetchMaxBytes:   int32(min(max(cfg.MaxBufferedBytes, 1<<20), 32<<20)),
		DeadLetterTopic: cfg.DeadLetter.topic, MetadataLimit: cfg.MetadataLimit, Progress: cfg.Progress.format(),
		CommitInterval: cfg.CommitInterval, CommitRefresh: commitRefresh, CommitTimeout: commitTimeout,
		DrainTimeout: cfg.DrainTimeout, RevokeTimeout: revoke, LeaveTimeout: leaveTimeout,
		StartTimeout: cfg.StartTimeout,
		Log:          cfg.Logger, Events: c.groupEvents(),
	}
}

// format is what package progress calls p.
func (p Progress) format() progress.Format {
	switch p {
	case AtleonV1:
		return progress.AtleonV1
	case ParallelConsumer:
		return progress.ParallelConsumer
	default:
		return progress.Fronta
	}
}

// bound says how many bytes a form comes to at most; nil: package progress
// knows.
func (p Progress) bound() func(window, unfinished int64) int {
	var each, width int64
	switch p {
	case AtleonV1:
		// A step to the next finished offset and a run of them for each
		// unfinished one, or a step for each offset.
		each, width = 16, 1
	case ParallelConsumer:
		// Two runs of four bytes, or a bit for each offset.
		each, width = 8, 8
	default:
		return nil
	}
	return func(window, unfinished int64) int {
		return int(min(window/width, unfinished*each, 1<<30)) + 32
	}
}

const (
	commitRefresh = 30 * time.Second
	commitTimeout = 10 * time.Second
	leaveTimeout  = 5 * time.Second
)

func (c *Consumer) engineConfig(handle func(context.Context, *engine.Delivery) error, d *group.Driver) engine.Config {
	cfg := &c.cfg
	out := engine.Config{
		Handle: handle, Outcome: outcomeOf, Lane: cfg.Order.lanes(), LaneInside: cfg.Order.kind != orderByKeyFunc,
		Concurrency: cfg.Concurrency, MaxInFlight: cfg.MaxInFlight, MaxBytes: cfg.MaxBufferedBytes,
		HandlerTimeout: cfg.HandlerTimeout, StuckAfter: cfg.StuckAfter,
		Backoff: func(d *engine.Delivery, err error) time.Duration {
			return max(cfg.Retry.Delay((*Record)(d), err), 0)
		},
		OrderName: progress.OrderName(cfg.Order.String()), Check: cfg.Order.check(), Former: cfg.former,
		Exact: cfg.Progress != FrontaProgress, Bound: cfg.Progress.bound(), MaxCrashes: cfg.MaxCrashes,
		MaxDeliveries: cfg.MaxDeliveries, Discard: cfg.DeadLetter.discard, Budget: cfg.DeadLetter.engineBudget(),
		Log: cfg.Logger, Events: c.engineEvents(),
	}
	if cfg.DeadLetter.topic != "" {
		out.Letters = d.Writer()
	}
	return out
}
