package engine

import (
	"fmt"

	"github.com/fronta-mq/fronta/internal/queue"
)

// checkLocked says which of the engine's invariants is broken, nil if none.
// They hold whenever nobody has the lock. quiet says that besides nothing is
// about to happen: everybody who could do something without time passing has
// done it.
func checkLocked(e *Engine, quiet bool) error {
	var sum struct {
		active, unfinished, staged, held int
		bytes                            int64
	}
	inRing := make(map[*Part]int)
	for i := range e.ready.n {
		inRing[e.ready.parts[(e.ready.first+i)%len(e.ready.parts)]]++
	}
	for p, n := range inRing {
		if n > 1 {
			return fmt.Errorf("%v is in the ring of ready partitions %d times", p.TopicPartition, n)
		}
		if !p.inReady {
			return fmt.Errorf("%v is in the ring of ready partitions and does not know it", p.TopicPartition)
		}
	}
	for tp, p := range e.parts {
		if p.TopicPartition != tp || !p.open {
			return fmt.Errorf("%v is listed as %v, open: %v", p.TopicPartition, tp, p.open)
		}
		sum.active += p.active
		sum.staged += p.stagedN
		sum.bytes += p.bytes
		if p.held {
			sum.held++
		}
		if p.q != nil {
			sum.unfinished += p.q.Len()
		}
		if p.run != nil {
			sum.unfinished++
		}
		if err := checkPartLocked(e, p, inRing[p] > 0); err != nil {
			return fmt.Errorf("%v: %w", tp, err)
		}
	}
	switch {
	case e.running != sum.active:
		return fmt.Errorf("running is %d, the partitions' active are %d", e.running, sum.active)
	case e.unfinished != sum.unfinished:
		return fmt.Errorf("unfinished is %d, the partitions have %d", e.unfinished, sum.unfinished)
	case e.unfinished > e.cfg.MaxInFlight:
		return fmt.Errorf("unfinished is %d, more than MaxInFlight %d", e.unfinished, e.cfg.MaxInFlight)
	case e.staged != sum.staged:
		return fmt.Errorf("staged is %d, the partitions have %d", e.staged, sum.staged)
	case e.bytes != sum.bytes:
		return fmt.Errorf("bytes are %d, the partitions have %d", e.bytes, sum.bytes)
	case e.intake.heldN != sum.held:
		return fmt.Errorf("held partitions are %d, counted %d", sum.held, e.intake.heldN)
	}
	for p := range e.waiting {
		if !p.open {
			return fmt.Errorf("%v waits for its time and is closed", p.TopicPartition)
		}
	}
	for tp, zs := range e.zombies {
		if len(zs) == 0 {
			return fmt.Errorf("%v: an empty set of zombies", tp)
		}
		for t := range zs {
			if t.part.open {
				return fmt.Errorf("%v: the handler of offset %d is a zombie and its partition open", tp, t.Offset)
			}
		}
	}
	if err := checkWorkersLocked(e); err != nil {
		return err
	}
	if quiet {
		return checkQuietLocked(e)
	}
	return nil
}

func checkPartLocked(e *Engine, p *Part, inRing bool) error {
	if p.inReady != inRing {
		return fmt.Errorf("inReady is %v, in the ring: %v", p.inReady, inRing)
	}
	var staged int
	var stagedBytes, bytes int64
	last := int64(-1)
	if p.q != nil {
		last = p.q.Horizon() - 1
	}
	if p.run != nil {
		if p.q.Len() > 0 {
			return fmt.Errorf("a run is under way beside %d records in the queue", p.q.Len())
		}
		if p.run.run != p {
			return fmt.Errorf("its run is not its worker's")
		}
		for i := range p.run.tasks {
			t := &p.run.tasks[i]
			if t.Offset <= last {
				return fmt.Errorf("P-1: offset %d is in a run and the horizon beyond it", t.Offset)
			}
			last = t.Offset
			bytes += int64(t.size)
		}
	}
	for i, b := range p.staged {
		if len(b.tasks) == 0 {
			return fmt.Errorf("staged batch %d is empty", i)
		}
		for i := range b.tasks {
			t := &b.tasks[i]
			if t.Offset <= last {
				return fmt.Errorf("P-1: offset %d is staged behind offset %d", t.Offset, last)
			}
			if t.part != p {
				return fmt.Errorf("staged offset %d belongs to another ownership", t.Offset)
			}
			last = t.Offset
			staged++
			stagedBytes += int64(t.size)
		}
		if b.end <= last {
			return fmt.Errorf("a staged batch ends at %d, its last record is %d", b.end, last)
		}
	}
	bytes += stagedBytes
	if staged != p.stagedN || stagedBytes != p.stagedB {
		return fmt.Errorf("%d records of %d bytes are staged, counted %d of %d", staged, stagedBytes, p.stagedN, p.stagedB)
	}
	if p.q == nil {
		if staged > 0 {
			return fmt.Errorf("records are staged and the start is not known")
		}
		return nil
	}
	parked := 0
	var err error
	p.q.Each(func(i queue.Info) bool {
		t := p.tasks[i.Slot]
		switch {
		case t == nil:
			err = fmt.Errorf("offset %d has no task", i.Offset)
		case t.Offset != i.Offset || t.slot != i.Slot || t.part != p:
			err = fmt.Errorf("offset %d has the task of offset %d", i.Offset, t.Offset)
		case t.DeliveryCount <= i.Attempts: // more after a rewind
			err = fmt.Errorf("offset %d: delivery count %d after %d failed attempts", i.Offset, t.DeliveryCount, i.Attempts)
		case i.Offset < p.q.Frontier():
			err = fmt.Errorf("P-1: offset %d is unfinished, the frontier is %d", i.Offset, p.q.Frontier())
		}
		if err != nil {
			return false
		}
		if i.State == queue.Parked {
			parked++
		}
		bytes += int64(t.size)
		return true
	})
	if err != nil {
		return err
	}
	if bytes != p.bytes {
		return fmt.Errorf("bytes are %d, counted %d", bytes, p.bytes)
	}
	if parked != len(p.letters)+len(p.blocked) {
		return fmt.Errorf("%d records are parked, %d for letters, %d blocked", parked, len(p.letters), len(p.blocked))
	}
	if len(p.blocked) > 0 && len(e.zombies[p.TopicPartition]) == 0 {
		return fmt.Errorf("%d records are blocked by zombies that are gone", len(p.blocked))
	}
	work := p.q.Running()
	if p.run != nil {
		work++
	}
	if p.active < work || p.active > work+len(p.letters) {
		return fmt.Errorf("active is %d with %d handlers and %d letters", p.active, work, len(p.letters))
	}
	if p.q.Waiting() > 0 && !p.q.Leaving() {
		if _, ok := e.waiting[p]; !ok {
			return fmt.Errorf("%d records wait for their time and nobody will wake them", p.q.Waiting())
		}
		// tick may have fired already and wait for the lock, hence not timerDue
		// against now.
		if !e.stopping && e.timerDue > max(p.q.NextWake(), e.now())+1e6 {
			return fmt.Errorf("the next record is due at %d, the timer at %d", p.q.NextWake(), e.timerDue)
		}
	}
	if p.paused || p.halted.Load() || p.inReady || p.gated {
		return nil
	}
	if c := p.care; c != nil && (c.busy || c.waiting || e.careful != nil && e.careful != p) {
		return nil
	}
	if p.q.Ready() > 0 {
		return fmt.Errorf("%d records are ready and the partition gets no turn", p.q.Ready())
	}
	// Records may be kept back for a run while handlers return soon.
	if e.admissibleLocked(p) && !p.crowded && (p.q.Running() == 0 || p.q.Running() < p.q.Len()) {
		return fmt.Errorf("%d records can be admitted and the partition gets no turn", p.stagedN)
	}
	return nil
}

func checkWorkersLocked(e *Engine) error {
	ws := &e.workers
	stalled := 0
	for w := range ws.all {
		if w.stalled {
			stalled++
		}
		if w.run != nil && w.run.run != w {
			return fmt.Errorf("a worker's run is not its partition's")
		}
	}
	busy := len(ws.all) - len(ws.idle)
	switch {
	case stalled != ws.stalled:
		return fmt.Errorf("%d workers are stalled, counted %d", stalled, ws.stalled)
	case ws.waking < 0 || ws.waking > busy:
		return fmt.Errorf("%d workers are being woken, %d are at work", ws.waking, busy)
	case len(ws.all) > e.cfg.Concurrency:
		return fmt.Errorf("%d workers, Concurrency is %d", len(ws.all), e.cfg.Concurrency)
	case e.counters.Out < 0 || e.cfg.Handle == nil && e.counters.Out > int64(e.cfg.Concurrency):
		return fmt.Errorf("%d deliveries are out, Concurrency is %d", e.counters.Out, e.cfg.Concurrency)
	}
	return nil
}

// checkQuietLocked finds work that nobody does although somebody could.
func checkQuietLocked(e *Engine) error {
	if e.stopping || e.workers.closed {
		return nil
	}
	if n := e.workers.waking; n > 0 {
		return fmt.Errorf("%d workers were woken and did not come", n)
	}
	for _, p := range e.parts {
		if p.crowded && e.ready.n == 0 && e.admissibleLocked(p) && !p.paused && !p.halted.Load() {
			return fmt.Errorf("%v waits for room that there is", p.TopicPartition)
		}
	}
	for i := range e.ready.n {
		p := e.ready.parts[(e.ready.first+i)%len(e.ready.parts)]
		if !p.open || p.paused || p.halted.Load() || p.q.Ready() == 0 && !e.admissibleLocked(p) {
			continue
		}
		if e.cfg.Handle == nil {
			if len(e.pull.waiting) > 0 && e.counters.Out < int64(e.cfg.Concurrency) {
				return fmt.Errorf("%v is ready and %d callers of Receive wait", p.TopicPartition, len(e.pull.waiting))
			}
			continue
		}
		// With the patrol armed more workers may come in a moment.
		if busy := len(e.workers.all) - len(e.workers.idle); busy < e.cfg.Concurrency && !e.workers.armed {
			return fmt.Errorf("%v is ready and %d of %d workers are at work", p.TopicPartition, busy, e.cfg.Concurrency)
		}
	}
	return nil
}

// goneLocked says what is left of an engine that was closed and whose handlers
// have all returned.
func goneLocked(e *Engine) error {
	if err := checkLocked(e, false); err != nil {
		return err
	}
	switch {
	case len(e.parts) > 0, len(e.zombies) > 0, len(e.waiting) > 0:
		return fmt.Errorf("after Close: %d partitions, %d with zombies, %d waiting", len(e.parts), len(e.zombies), len(e.waiting))
	case e.running != 0, e.unfinished != 0, e.staged != 0, e.bytes != 0, e.intake.heldN != 0:
		return fmt.Errorf("after Close: running %d, unfinished %d, staged %d, bytes %d, held %d",
			e.running, e.unfinished, e.staged, e.bytes, e.intake.heldN)
	case len(e.workers.all) > 0, e.workers.stalled != 0, e.workers.waking != 0:
		return fmt.Errorf("after Close: %d workers, %d stalled, %d waking", len(e.workers.all), e.workers.stalled, e.workers.waking)
	case e.counters.Out != 0:
		return fmt.Errorf("after Close: %d deliveries out", e.counters.Out)
	}
	return nil
}
