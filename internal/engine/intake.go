package engine

import "slices"

// intake decides when the driver reads and what. Each partition has a share of
// MaxBytes, and of a number of records, for what is read and unfinished:
//
//   - While some partition holds less than half of its share, the driver reads.
//   - Partitions that hold all of theirs are left out of that reading (held)
//     until they are down to three quarters. Holding costs the client what it
//     has fetched of them ahead, so a partition is held only while another one
//     needs reading; if all are full, the driver just does not ask.
//
// So a partition whose records do not get done stops neither the reading nor
// the work of the others, and memory is bounded by MaxBytes plus what one
// fetch brings (records are asked for by their number, guessed from the size of
// those before), besides what the client itself has fetched ahead.
type intake struct {
	wake      chan struct{}
	waiting   bool // the driver waits for room
	heldN     int
	interrupt func() // ends the driver's wait for records

	perRecord int64 // mean size of a record, as seen lately
}

func (in *intake) init() {
	in.wake = make(chan struct{}, 1)
	in.perRecord = 4096 // until records are seen
}

// readAhead is how many records may be staged, over all partitions, when
// records are so small that MaxBytes would allow very many.
func (e *Engine) readAhead() int { return max(1<<16, 2*e.cfg.MaxInFlight) }

// levelLocked is how much of its share p holds, in percent.
func (e *Engine) levelLocked(p *Part) int64 {
	share := int64(max(1, len(e.parts)))
	return max(p.bytes*share*100/e.cfg.MaxBytes, int64(p.stagedN)*share*100/int64(e.readAhead()))
}

const (
	levelLow    = 50
	levelResume = 75
	levelHold   = 100
)

// roomLocked wakes the driver if p has just got room that it waits for.
func (in *intake) roomLocked(e *Engine, p *Part) {
	if !in.waiting && in.heldN == 0 {
		return
	}
	level := e.levelLocked(p)
	if in.waiting && level < levelLow || p.held && !p.paused && level < levelResume {
		in.wakeLocked()
	}
}

func (in *intake) wakeLocked() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
	if in.interrupt != nil {
		in.interrupt()
	}
}

// Reading is what the driver should do next.
type Reading struct {
	Max  int // how many records to ask for; 0: wait for Room
	Hold []TopicPartition
	Free []TopicPartition // held before, to be read again
}

// Reading says what to read next. While the driver waits for records,
// interrupt is called when the answer may have changed.
func (e *Engine) Reading(interrupt func()) Reading {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := &e.intake
	in.interrupt = interrupt
	if e.stopping {
		return Reading{}
	}
	need := len(e.parts) == 0
	for _, p := range e.parts {
		if !p.paused && e.levelLocked(p) < levelLow {
			need = true
			break
		}
	}
	in.waiting = !need
	var r Reading
	for tp, p := range e.parts {
		level := e.levelLocked(p)
		hold := p.paused || need && (level >= levelHold || p.held && level >= levelResume) || !need && p.held
		switch {
		case hold && !p.held:
			p.held = true
			in.heldN++
			r.Hold = append(r.Hold, tp)
		case !hold && p.held:
			p.held = false
			in.heldN--
			r.Free = append(r.Free, tp)
		}
	}
	if need {
		r.Max = int(min(max((e.cfg.MaxBytes-e.bytes)/in.perRecord, 1), 1<<16))
	}
	return r
}

// Read ends the wait for which Reading was given an interrupt.
func (e *Engine) Read() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.intake.interrupt = nil
}

// sizeLocked takes into account how large the records were that were just
// read.
func (in *intake) sizeLocked(mean int64) {
	in.perRecord = max(in.perRecord+(mean-in.perRecord)/4, 1)
}

// Room is signalled when Reading may have a new answer.
func (e *Engine) Room() <-chan struct{} { return e.intake.wake }

// Pause keeps partitions from being read and from being started, until Resume.
// What runs goes on. It answers with those that are not open.
func (e *Engine) Pause(tps ...TopicPartition) (unknown []TopicPartition) {
	return e.setPaused(tps, true)
}

// Resume ends a Pause.
func (e *Engine) Resume(tps ...TopicPartition) (unknown []TopicPartition) {
	return e.setPaused(tps, false)
}

func (e *Engine) setPaused(tps []TopicPartition, paused bool) (unknown []TopicPartition) {
	var fx effects
	e.mu.Lock()
	for _, tp := range tps {
		p := e.parts[tp]
		if p == nil {
			unknown = append(unknown, tp)
			continue
		}
		e.pauseLocked(p, paused)
	}
	e.intake.wakeLocked()
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
	slices.SortFunc(unknown, compare)
	return unknown
}

// PauseWhere pauses the open partitions for which paused answers true, and
// resumes the others. paused is called under the engine's lock, so that of two
// calls that overlap the later one sees what the earlier one's caller wanted.
func (e *Engine) PauseWhere(paused func(TopicPartition) bool) {
	var fx effects
	e.mu.Lock()
	for tp, p := range e.parts {
		if is := paused(tp); is != p.paused {
			e.pauseLocked(p, is)
		}
	}
	e.intake.wakeLocked()
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

func (e *Engine) pauseLocked(p *Part, paused bool) {
	p.paused = paused
	if paused && p.run != nil {
		e.breakRunLocked(p.run)
	}
	if c := p.care; paused && c != nil && !c.busy {
		c.waiting, c.marked, p.suspect = false, -1, -1
		p.version++
		e.yieldLocked(p)
	}
	e.readyLocked(p)
}
