package engine

import (
	"context"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/queue"
)

// receivers are the callers of Receive that wait for a record, the longest
// waiting first.
type receivers struct {
	waiting []*receiver
	closed  error
}

type receiver struct {
	got chan *task // buffered: one task
}

func (r *receivers) closeLocked(err error) {
	if r.closed != nil {
		return
	}
	r.closed = err
	for _, w := range r.waiting {
		close(w.got)
	}
	r.waiting = nil
}

// Pulled is a record handed out by Receive.
type Pulled struct{ t *task }

// Delivery is the record.
func (p Pulled) Delivery() *Delivery { return &p.t.Delivery }

// At says where the record stands in the log.
func (p Pulled) At() At { return p.t.at() }

// Receive hands out the next record that may be worked on. It waits until
// there is one, or ctx ends, or the engine stops; then it answers with
// ErrStopping, or with the failure that stopped it.
func (e *Engine) Receive(ctx context.Context) (Pulled, error) {
	if err := ctx.Err(); err != nil {
		return Pulled{}, context.Cause(ctx)
	}
	var fx effects
	e.mu.Lock()
	if e.pull.closed != nil {
		err := e.closedLocked()
		e.mu.Unlock()
		return Pulled{}, err
	}
	w := &receiver{got: make(chan *task, 1)}
	e.pull.waiting = append(e.pull.waiting, w)
	e.handOutLocked(&fx)
	e.mu.Unlock()
	fx.run()

	select {
	case t, ok := <-w.got:
		if !ok {
			return Pulled{}, e.closed()
		}
		return Pulled{t}, nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	for i, x := range e.pull.waiting {
		if x == w {
			e.pull.waiting = append(e.pull.waiting[:i], e.pull.waiting[i+1:]...)
			break
		}
	}
	e.mu.Unlock()
	// A record may have come in the same instant: it is the caller's then.
	select {
	case t, ok := <-w.got:
		if ok {
			return Pulled{t}, nil
		}
		return Pulled{}, e.closed()
	default:
		return Pulled{}, context.Cause(ctx)
	}
}

func (e *Engine) closed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closedLocked()
}

func (e *Engine) closedLocked() error {
	if e.fatal != nil {
		return e.fatal
	}
	return e.pull.closed
}

// handOutLocked gives ready records to waiting receivers.
func (e *Engine) handOutLocked(fx *effects) {
	for len(e.pull.waiting) > 0 && !e.stopping && e.counters.Out < int64(e.cfg.Concurrency) {
		t := e.nextLocked(nil)
		e.flushLocked(fx)
		if t == nil {
			return
		}
		e.counters.Out++
		if s := t.more; s != nil && s.crashes > 0 {
			fx.add(func() { _ = e.Settle(Pulled{t}, Outcome{Verb: crashed, Err: &CrashError{s.crashes}}) })
			continue
		}
		if s := t.more; s != nil && s.keyErr != nil {
			// No handler may see it: it fails here. The retry policy is user
			// code and is asked outside the lock.
			fx.add(func() {
				_ = e.Settle(Pulled{t}, Outcome{Verb: Fail, Err: s.keyErr, Reason: deadletter.Panic})
			})
			continue
		}
		s := t.state()
		s.since = time.Now()
		if d := e.cfg.HandlerTimeout; d > 0 {
			s.deadline = time.AfterFunc(d, func() { e.expire(t) })
		}
		w := e.pull.waiting[0]
		e.pull.waiting = e.pull.waiting[1:]
		w.got <- t
	}
}

// Settle carries out a verb on a record handed out by Receive. It answers
// ErrSettled if another came first and ErrLost if the partition is gone.
func (e *Engine) Settle(p Pulled, out Outcome) error {
	t := p.t
	return e.settlePulled(t, e.withDelay(t, out), nil)
}

func (e *Engine) settlePulled(t *task, out Outcome, still func() bool) error {
	var fx effects
	e.mu.Lock()
	defer func() {
		e.mu.Unlock()
		fx.run()
	}()
	if still != nil && !still() {
		return ErrSettled
	}
	if err := e.currentLocked(t); err != nil {
		if _, zombie := e.zombies[t.part.TopicPartition][t]; zombie {
			e.counters.Out--
			e.settleLocked(t, out, &fx)
			e.wakeLocked(&fx)
		}
		return err
	}
	if s := t.more; s != nil && s.deadline != nil {
		s.deadline.Stop()
	}
	e.counters.Out--
	e.settleLocked(t, out, &fx)
	e.wakeLocked(&fx)
	return nil
}

// currentLocked says whether t is a handed-out attempt that nobody has settled.
func (e *Engine) currentLocked(t *task) error {
	p := t.part
	if !p.open {
		return ErrLost
	}
	if p.tasks[t.slot] != t {
		return ErrSettled
	}
	if info, ok := p.q.Info(t.slot); !ok || info.State != queue.Running {
		return ErrSettled
	}
	return nil
}

// Renew gives a record handed out by Receive another HandlerTimeout from now.
func (e *Engine) Renew(p Pulled) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.currentLocked(p.t); err != nil {
		return err
	}
	s := p.t.state()
	if s.deadline == nil {
		return nil
	}
	s.deadline.Reset(e.cfg.HandlerTimeout)
	s.since, s.reported = time.Now(), false
	return nil
}

// expire releases a delivery whose deadline has passed. A Renew that came in
// the same instant has moved the deadline on:
//
//	timer:  fires, waits for the lock
//	caller: Renew takes the lock, resets the timer, is told that all is well
//	timer:  gets the lock; the delivery is younger than its deadline
func (e *Engine) expire(t *task) {
	out := e.withDelay(t, Outcome{Verb: Fail, Err: ErrHandlerTimeout, Reason: deadletter.Timeout})
	err := e.settlePulled(t, out, func() bool {
		return time.Since(t.more.since) >= e.cfg.HandlerTimeout
	})
	if err == nil {
		e.mu.Lock()
		e.counters.Expired++
		e.mu.Unlock()
		e.cfg.Events.stuck(&t.Delivery, e.cfg.HandlerTimeout, true)
	}
}

// Dropped is told that a delivery was garbage-collected unsettled: it is
// reported, and released as a failed attempt, since nobody else ever will.
func (e *Engine) Dropped(p Pulled) {
	t := p.t
	e.mu.Lock()
	since := t.more.since
	e.mu.Unlock()
	out := e.withDelay(t, Outcome{Verb: Fail, Err: ErrDropped})
	if e.settlePulled(t, out, nil) == nil {
		e.mu.Lock()
		e.counters.Expired++
		e.mu.Unlock()
		e.cfg.Events.stuck(&t.Delivery, time.Since(since), true)
	}
}
