package engine

import "time"

// A run is the short way for handlers that take next to no time. Putting a
// record into a lane, taking it out and settling it under the lock costs more
// than such a handler does. But while nothing of a partition is unfinished,
// one worker may work straight through its staged records, in the order of
// offsets, without putting them into lanes at all: nobody else works on the
// partition meanwhile, so the order of every lane is kept.
//
// A run ends early, it is broken, when one of its records fails or takes long
// (the patrol sees to that), or when the partition goes away. What ran is
// finished, the record that is running takes its place in the queue as if it
// had come there the long way, and the rest is staged again.
//
// The frontier stands where the run began until it has ended or is broken, a
// moment later.
//
// runBelow is how quick handlers must be for it.
const runBelow = 500 * time.Nanosecond

// startRunLocked gives w a run of p, if p can have one.
func (e *Engine) startRunLocked(p *Part, w *worker) bool {
	if e.workers.average >= runBelow || p.stagedN == 0 || p.run != nil || p.q.Len() > 0 || e.unfinished >= e.cfg.MaxInFlight || len(e.zombies) > 0 ||
		p.reaching || len(p.crashes) > 0 || p.q.Resuming() {
		return false
	}
	if !e.cfg.LaneInside {
		for i := range p.staged[0].tasks {
			if p.staged[0].tasks[i].more != nil {
				return false // its key function failed
			}
		}
	}
	w.tasks, w.runBytes = p.unstageBatchLocked(e)
	p.run, w.run, w.inRun = w, p, true
	e.unfinished++ // a run takes one place, that of the record it works on
	e.claimLocked(p)
	return true
}

// runSoonLocked says that p can have a run as soon as the handlers return that
// work on it now, which is not worth admitting records for. If one of them
// takes long after all, the patrol makes p ready again.
func (e *Engine) runSoonLocked(p *Part) bool {
	n := p.q.Running()
	return n > 0 && n == p.q.Len() && e.workers.average < runBelow && e.workers.stalled == 0 && len(e.zombies) == 0 &&
		e.cfg.Handle != nil
}

// endRunLocked finishes a run whose records have all been accepted.
func (e *Engine) endRunLocked(w *worker) {
	p := w.run
	e.ranLocked(p, w.tasks, w.runBytes)
	p.q.Advance(w.tasks[len(w.tasks)-1].Offset + 1)
	p.run, w.run = nil, nil
	e.unfinished--
	e.letInLocked()
	p.passLocked()
	e.releaseLocked(p)
	e.readyLocked(p)
	e.intake.roomLocked(e, p)
}

// ranLocked accounts for records of a run that were accepted.
func (e *Engine) ranLocked(p *Part, tasks []task, bytes int64) {
	p.bytes -= bytes
	e.bytes -= bytes
	e.counters.Accepted += int64(len(tasks))
	e.budget.refill(len(tasks))
	if n := len(tasks); n > 0 && tasks[n-1].LeaderEpoch > p.epoch {
		for i := range tasks {
			p.epochLocked(tasks[i].Offset, tasks[i].LeaderEpoch)
		}
	}
}

// comeBackLocked is called when w comes back from a run.
func (e *Engine) comeBackLocked(w *worker) {
	w.inRun = false
	switch {
	case w.run == nil: // broken meanwhile
		if w.taken > 0 && len(w.results) == 0 {
			w.results = append(w.results, result{t: &w.tasks[w.taken-1]})
		}
	case len(w.results) == 0:
		e.endRunLocked(w)
	default:
		// It stopped at a record that was not accepted.
		e.cutRunLocked(w, int(w.next.Load())-1, true)
	}
}

// breakRunLocked ends a run at the record that its worker is working on. The
// worker will find that the run is none of its any more, and settle that
// record, and no other, the ordinary way.
func (e *Engine) breakRunLocked(w *worker) {
	p := w.run
	size := w.size.Load()
	switch next := w.next.Swap(size + 1); {
	case next > size:
		// It has come to the end and waits for the lock.
		w.next.Store(next)
		e.cutRunLocked(w, int(size), false)
		e.releaseLocked(p)
	case next == 0:
		// It has not come to the first record; now it never will.
		e.cutRunLocked(w, 0, false)
		e.releaseLocked(p)
	default:
		w.taken = next
		e.cutRunLocked(w, int(next)-1, true)
	}
}

// cutRunLocked ends a run at index i of its batch: what is before it is
// finished, it itself is put into the queue as running, if it is, and the
// rest is staged again.
func (e *Engine) cutRunLocked(w *worker, i int, running bool) {
	p := w.run
	var bytes int64
	for j := range w.tasks[:i] {
		bytes += int64(w.tasks[j].size)
	}
	e.ranLocked(p, w.tasks[:i], bytes)
	if i > 0 {
		p.q.Advance(w.tasks[i-1].Offset + 1)
	}
	rest := w.tasks[i:]
	if running {
		rest = rest[1:]
	}
	if len(rest) > 0 {
		end := max(p.passed, rest[len(rest)-1].Offset+1)
		p.passed = 0
		p.restageLocked(e, rest, end)
	}
	p.run, w.run = nil, nil
	e.unfinished--
	if running {
		e.enterLocked(p, &w.tasks[i], p.q.AdmitRunning)
	}
	p.passLocked()
	e.readyLocked(p)
	e.intake.roomLocked(e, p)
}
