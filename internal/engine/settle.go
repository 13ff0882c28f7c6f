package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/queue"
)

// settleLocked carries out how an attempt ended. It answers false, and changes
// nothing but counters, when the attempt is not the record's current one or
// its partition is gone.
func (e *Engine) settleLocked(t *task, out Outcome, fx *effects) bool {
	p := t.part
	if !p.open {
		e.buryLocked(t)
		if out.Verb != notRun {
			e.counters.Late++
			fx.add(func() { e.cfg.Events.late(&t.Delivery) })
		}
		return false
	}
	if p.tasks[t.slot] != t {
		return false
	}
	if p.care != nil {
		e.survivedLocked(t)
	}
	if out.Verb == Accept {
		e.counters.Accepted++
		e.budget.refill(1)
		e.finishLocked(t)
		return true
	}
	if (out.Verb == Fail || out.Verb == Reject && e.cfg.Handle != nil) && p.ctx.Err() != nil {
		// The handler gave up because it was told to: the record is as
		// unfinished as before, and this was no attempt (H-085). Nor is what
		// it says then to be taken for a verdict on the record.
		e.counters.Abandoned++
		out.Verb = notRun
	}
	if e.cfg.Handle == nil {
		// The caller of Receive may still look at its delivery, or a second
		// verb of its own may just ask the retry policy about it.
		t = e.renewLocked(t)
	}
	switch out.Verb {
	case crashed:
		t.DeliveryCount-- // this one is not made
		t.failed(out.Err)
		e.discardOrWriteLocked(t, deadletter.Crash, out.Err, fx)
	case notRun:
		p.q.Return(t.slot)
		e.releaseLocked(p)
		e.readyLocked(p)
	case Stop:
		p.q.Return(t.slot)
		e.releaseLocked(p)
		e.failLocked(&StopError{At: t.at(), Err: out.Err})
	case Snooze:
		e.counters.Snoozed++
		e.renewLocked(t)
		e.waitLocked(p, t.slot, out.Delay, p.q.Snooze)
	case Reject:
		e.counters.Rejected++
		t.failed(out.Err)
		if e.cfg.Letters == nil && !e.cfg.Discard {
			// Nowhere to put it and not allowed to drop it: it stays.
			fx.add(func() { e.cfg.Events.homeless(&t.Delivery, out.Err) })
			e.retryLocked(t, out, fx)
			return true
		}
		e.discardOrWriteLocked(t, deadletter.Rejected, out.Err, fx)
	case Fail:
		e.counters.Failed++
		t.failed(out.Err)
		if e.cfg.MaxDeliveries > 0 && t.DeliveryCount >= e.cfg.MaxDeliveries && (e.cfg.Letters != nil || e.cfg.Discard) {
			if e.budget.take() {
				reason := out.Reason
				if reason == "" {
					reason = deadletter.Deliveries
				}
				e.discardOrWriteLocked(t, reason, out.Err, fx)
				return true
			}
			// Too many records fail at once for it to be their own fault:
			// this one goes on being tried (P-6).
			e.counters.Withheld++
			fx.add(func() { e.cfg.Events.withheld(&t.Delivery) })
		}
		e.retryLocked(t, out, fx)
	}
	return true
}

// failed notes a failure on an attempt that has just ended. Its handler has
// returned, so nobody else looks at the fields.
func (t *task) failed(err error) {
	f := &Failure{First: time.Now(), Err: err}
	f.Last = f.First
	if t.Failure != nil {
		f.First = t.Failure.First
	}
	t.Failure = f
}

func (e *Engine) retryLocked(t *task, out Outcome, fx *effects) {
	e.counters.Retried++
	next := e.renewLocked(t)
	next.DeliveryCount++
	fx.add(func() { e.cfg.Events.retry(&t.Delivery, out.Err, out.Delay) })
	e.waitLocked(t.part, t.slot, out.Delay, t.part.q.Retry)
}

// renewLocked makes a new task for the record's next attempt: the handler of
// this one may still look at its own.
func (e *Engine) renewLocked(t *task) *task {
	next := *t
	if t.more != nil && t.more.keyErr != nil {
		next.more = &taskState{keyErr: t.more.keyErr}
	} else {
		next.more = nil
	}
	t.part.tasks[t.slot] = &next
	return &next
}

func (e *Engine) waitLocked(p *Part, s queue.Slot, delay time.Duration, wait func(queue.Slot, queue.Time) bool) {
	due := e.now() + queue.Time(max(delay, 0))
	wait(s, due)
	p.version++
	e.releaseLocked(p)
	e.readyLocked(p) // others may have been kept back for a run
	e.waiting[p] = struct{}{}
	e.setTimerLocked(due)
}

// finishLocked ends a record for good.
func (e *Engine) finishLocked(t *task) {
	p := t.part
	p.q.Finish(t.slot)
	p.version++
	p.tasks[t.slot] = nil
	p.bytes -= int64(t.size)
	e.bytes -= int64(t.size)
	e.unfinished--
	e.letInLocked()
	e.releaseLocked(p)
	e.readyLocked(p)
	e.intake.roomLocked(e, p)
}

// discardOrWriteLocked sends a record where records go that are never to be
// tried again. Until the dead letter is acknowledged it counts as unfinished,
// and its lane waits.
func (e *Engine) discardOrWriteLocked(t *task, reason deadletter.Reason, err error, fx *effects) {
	if e.cfg.Letters == nil {
		e.counters.Discarded++
		e.finishLocked(t)
		fx.add(func() { e.cfg.Events.discarded(&t.Delivery, reason, err) })
		return
	}
	p := t.part
	p.q.Park(t.slot)
	e.readyLocked(p) // others may have been kept back for a run
	if p.letters == nil {
		p.letters = make(map[*task]struct{})
	}
	p.letters[t] = struct{}{}
	t.state().letter = &Letter{
		Record: t.Delivery.Record, Fence: t.Fence, Reason: reason, Deliveries: t.DeliveryCount, Failure: *t.Failure,
	}
	e.writeLocked(t, fx)
}

// writeLocked starts writing a dead letter; the record counts as being worked
// on meanwhile.
func (e *Engine) writeLocked(t *task, fx *effects) {
	ctx := context.WithoutCancel(t.part.ctx)
	fx.add(func() {
		e.cfg.Letters.Write(ctx, *t.more.letter, func(err error) { e.written(t, err) })
	})
}

// written is told how the writing of a dead letter ended.
func (e *Engine) written(t *task, err error) {
	var fx effects
	e.mu.Lock()
	p := t.part
	switch {
	case !p.open:
		// The next owner handles the record again; a letter that was written
		// after all is a duplicate then.
		if err == nil {
			e.counters.Late++
		}
	case err == nil:
		e.counters.DeadLettered++
		delete(p.letters, t)
		e.finishLocked(t)
		letter := *t.more.letter
		fx.add(func() { e.cfg.Events.deadLettered(letter) })
		e.wakeLocked(&fx)
	default:
		e.counters.LetterErrors++
		t.more.tries++
		delay := letterBackoff(t.more.tries)
		tries := t.more.tries
		fx.add(func() { e.cfg.Events.letterFailed(&t.Delivery, tries, delay, err) })
		t.more.retry = time.AfterFunc(delay, func() { e.rewrite(t) })
		e.releaseLocked(p)
	}
	e.mu.Unlock()
	fx.run()
}

func (e *Engine) rewrite(t *task) {
	var fx effects
	e.mu.Lock()
	if t.part.open && !t.part.halted.Load() && !e.stopping {
		e.claimLocked(t.part)
		e.writeLocked(t, &fx)
	}
	e.mu.Unlock()
	fx.run()
}

// letterBackoff is the wait before the writing of a dead letter is tried
// again: 250 ms, doubling up to 30 s, less up to half of it by chance: writes
// that failed together, for want of room in the client, must not come back
// together for ever.
func letterBackoff(tries int) time.Duration {
	const first, longest = 250 * time.Millisecond, 30 * time.Second
	d := longest
	if tries <= 7 {
		d = min(first<<(tries-1), longest)
	}
	return d/2 + rand.N(d/2)
}

// setTimerLocked makes sure that tick runs at due or earlier.
func (e *Engine) setTimerLocked(due queue.Time) {
	if due >= e.timerDue || e.stopping {
		return
	}
	e.timerDue = due
	delay := max(time.Duration(due-e.now()), 0)
	if e.timer == nil {
		e.timer = time.AfterFunc(delay, e.tick)
		return
	}
	e.timer.Reset(delay)
}

// tick makes ready what has waited long enough.
func (e *Engine) tick() {
	var fx effects
	e.mu.Lock()
	e.timerDue = queue.Never
	now := e.now()
	next := queue.Never
	for p := range e.waiting {
		p.q.Tick(now)
		e.readyLocked(p)
		wake := p.q.NextWake()
		if wake == queue.Never {
			delete(e.waiting, p)
		}
		next = min(next, wake)
	}
	if next != queue.Never {
		// Waits that end within a millisecond of each other share a wake-up.
		e.setTimerLocked(max(next, now+queue.Time(time.Millisecond)))
	}
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

// At says where a record stands in the log.
type At struct {
	TopicPartition
	Offset int64
}

func (t *task) at() At {
	return At{TopicPartition{t.Topic, t.Delivery.Partition}, t.Offset}
}

func (a At) String() string {
	return fmt.Sprintf("topic %q partition %d offset %d", a.Topic, a.Partition, a.Offset)
}

// StopError is the failure of an engine that a handler asked to stop.
type StopError struct {
	At  At
	Err error
}

func (s *StopError) Error() string {
	return fmt.Sprintf("fronta: handler asked to stop at %s (the record stays unfinished): %v", s.At, s.Err)
}

func (s *StopError) Unwrap() error { return s.Err }
