package queue

import (
	"fmt"
	"slices"
)

// twin is a Partition as one would write it without a thought for speed:
// slices that are searched from the front. Whatever Partition answers, the
// twin has to answer too.
type twin struct {
	horizon    int64
	unfinished []*twinRecord // in the order of offsets
	ready      []*twinRecord // in the order in which Take hands them out
	leaving    bool

	told    []twinSegment // what former owners told, without what was forgotten or is of no use any more
	learned []*twinLane   // of the segment that is being read
	recall  *twinRecall   // found unfinished, to be admitted
	over    bool          // all of told was read
	missed  []int64
}

type twinRecord struct {
	slot     Slot // as Admit named it
	offset   int64
	lane     Lane
	both     bool // obeys former too
	former   Lane
	state    State
	attempts int
	due      Time
}

// own is the record's lane by the order of its segment.
func (r *twinRecord) own() Lane {
	if r.both {
		return r.former
	}
	return r.lane
}

// at is the unfinished record in a slot, or nil.
func (w *twin) at(s Slot) *twinRecord {
	for _, r := range w.unfinished {
		if r.slot == s {
			return r
		}
	}
	return nil
}

// head is the first unfinished record of a lane, or nil.
func (w *twin) head(l Lane) *twinRecord {
	for _, r := range w.unfinished {
		if r.lane == l {
			return r
		}
	}
	return nil
}

func (w *twin) makeReady(r *twinRecord) {
	r.state = Ready
	w.ready = append(w.ready, r)
}

// blocked says whether r has to wait for a record before it.
func (w *twin) blocked(r *twinRecord) bool {
	for _, before := range w.unfinished {
		if before.offset >= r.offset {
			break
		}
		if w.same(before, r, false) || w.same(before, r, true) {
			return true
		}
	}
	return false
}

// same says whether two records are in one lane, by the order of their segment
// if that is a former one.
func (w *twin) same(a, b *twinRecord, former bool) bool {
	if former {
		return a.both && b.both && a.former != Alone && a.former == b.former && w.segment(a.offset) == w.segment(b.offset)
	}
	return a.lane != Alone && a.lane == b.lane
}

func (w *twin) admit(offset int64, l Lane) *twinRecord {
	return w.enter(&twinRecord{slot: none, offset: offset, lane: l})
}

func (w *twin) admitFormer(offset int64, l, former Lane) *twinRecord {
	return w.enter(&twinRecord{slot: none, offset: offset, lane: l, both: len(w.told) > 0, former: former})
}

func (w *twin) enter(r *twinRecord) *twinRecord {
	if r.offset < w.horizon {
		return nil
	}
	w.reach(r.offset)
	if s := w.reading(); s == nil {
		r.both = false
	} else {
		if s.Unordered {
			r.former = Alone
		}
		q := w.recall
		if q == nil || q.offset != r.offset || s.Former != r.both || q.lane != r.own() {
			w.forget(r.offset)
			r.both = false
		} else if q.lane != Alone && w.lane(q.lane) == nil {
			w.learned = append(w.learned, &twinLane{lane: q.lane, newest: none, check: q.check})
		}
	}
	w.recall = nil
	r.state = Queued
	if !w.blocked(r) {
		w.makeReady(r)
	}
	w.unfinished = append(w.unfinished, r)
	w.reach1(r.offset)
	return r
}

func (w *twin) admitRunning(offset int64, l Lane) *twinRecord {
	if len(w.unfinished) > 0 || offset < w.horizon || len(w.told) > 0 {
		return nil
	}
	w.horizon = offset + 1
	r := &twinRecord{slot: none, offset: offset, lane: l, state: Running}
	w.unfinished = append(w.unfinished, r)
	return r
}

func (w *twin) advance(offset int64) {
	if offset > w.horizon {
		w.reach(offset)
	}
}

func (w *twin) take() *twinRecord {
	if w.leaving || len(w.ready) == 0 {
		return nil
	}
	r := w.ready[0]
	w.ready = slices.Delete(w.ready, 0, 1)
	r.state = Running
	return r
}

func (w *twin) giveBack(r *twinRecord) bool {
	if r == nil || r.state != Running {
		return false
	}
	r.state = Ready
	w.ready = slices.Insert(w.ready, 0, r)
	return true
}

func (r *twinRecord) settleable() bool {
	return r != nil && (r.state == Running || r.state == Parked)
}

func (w *twin) finish(r *twinRecord) bool {
	if !r.settleable() {
		return false
	}
	i := slices.Index(w.unfinished, r)
	w.unfinished = slices.Delete(w.unfinished, i, i+1)
	// The next of its lane first, then the next of its lane of the former
	// order.
	for _, former := range []bool{false, true} {
		i := slices.IndexFunc(w.unfinished, func(next *twinRecord) bool { return w.same(r, next, former) })
		if i >= 0 && w.unfinished[i].state == Queued && !w.blocked(w.unfinished[i]) {
			w.makeReady(w.unfinished[i])
		}
	}
	if s := w.reading(); s != nil && r.offset >= s.start {
		if l := w.lane(r.own()); l != nil {
			l.newest = max(l.newest, r.offset)
		}
	}
	w.prune()
	return true
}

func (w *twin) wait(r *twinRecord, due Time, attempts int) bool {
	if !r.settleable() {
		return false
	}
	r.state, r.due = Waiting, due
	r.attempts += attempts
	return true
}

func (w *twin) park(r *twinRecord) bool {
	if r == nil || r.state != Running {
		return false
	}
	r.state = Parked
	return true
}

func (w *twin) countAttempt(r *twinRecord) bool {
	if !r.settleable() {
		return false
	}
	r.attempts++
	return true
}

// earliest is the record that Tick makes ready first, or nil.
func (w *twin) earliest() *twinRecord {
	var first *twinRecord
	for _, r := range w.unfinished {
		if r.state == Waiting && (first == nil || r.due < first.due) {
			first = r
		}
	}
	return first
}

func (w *twin) tick(now Time) int {
	n := 0
	for r := w.earliest(); r != nil && r.due <= now; r = w.earliest() {
		r.due = 0
		w.makeReady(r)
		n++
	}
	return n
}

func (w *twin) nextWake() Time {
	if r := w.earliest(); r != nil && !w.leaving {
		return r.due
	}
	return Never
}

func (w *twin) frontier() int64 {
	first := w.known()
	if o, ok := w.nextStored(w.horizon); ok {
		first = o
	}
	for _, o := range w.markers() {
		first = min(first, o)
	}
	if len(w.unfinished) > 0 {
		first = min(first, w.unfinished[0].offset)
	}
	return first
}

func (w *twin) in(s State) int {
	n := 0
	for _, r := range w.unfinished {
		if r.state == s {
			n++
		}
	}
	return n
}

// backlog is the number of records in r's lane that come behind it.
func (w *twin) backlog(r *twinRecord) int {
	n := 0
	for _, other := range w.unfinished {
		if r != nil && r.lane != Alone && other.lane == r.lane && other.offset > r.offset {
			n++
		}
	}
	return n
}

// compare says in what p and the twin differ, in all that can be seen of p and
// in the order of what is ready.
func (w *twin) compare(p *Partition) error {
	ready, lanes := len(w.ready), 0
	if w.leaving {
		ready = 0
	}
	for _, r := range w.unfinished {
		if r.lane != Alone && w.head(r.lane) == r {
			lanes++
		}
	}
	for _, v := range []struct {
		name      string
		got, want int64
	}{
		{"Frontier", p.Frontier(), w.frontier()},
		{"Horizon", p.Horizon(), w.horizon},
		{"Len", int64(p.Len()), int64(len(w.unfinished))},
		{"Ready", int64(p.Ready()), int64(ready)},
		{"Running", int64(p.Running()), int64(w.in(Running))},
		{"Waiting", int64(p.Waiting()), int64(w.in(Waiting))},
		{"Lanes", int64(p.Lanes()), int64(lanes)},
		{"NextWake", int64(p.NextWake()), int64(w.nextWake())},
		{"Known", p.Known(), w.known()},
	} {
		if v.got != v.want {
			return fmt.Errorf("%s is %d, the twin says %d", v.name, v.got, v.want)
		}
	}
	if got, want := p.Resuming(), w.reading() != nil; got != want {
		return fmt.Errorf("Resuming is %v, the twin says %v", got, want)
	}
	if got, ok := p.Missed(); ok != (len(w.missed) > 0) || ok && got != w.missed[len(w.missed)-1] {
		return fmt.Errorf("Missed is %d, %v, the twin says %d", got, ok, w.missed)
	}
	w.missed = nil
	if p.Leaving() != w.leaving {
		return fmt.Errorf("Leaving is %v, the twin says %v", p.Leaving(), w.leaving)
	}
	if p.ready.len() != len(w.ready) {
		return fmt.Errorf("%d are ready, the twin has %d", p.ready.len(), len(w.ready))
	}
	for i, r := range w.ready {
		if got := p.ready.slots[(p.ready.first+uint32(i))&p.ready.mask()]; got != r.slot {
			return fmt.Errorf("slot %d is ready at %d, the twin says %d", got, i, r.slot)
		}
	}
	for _, r := range w.unfinished {
		want := Info{Slot: r.slot, Offset: r.offset, Lane: r.lane, State: r.state, Attempts: r.attempts, Due: r.due}
		if got, ok := p.Info(r.slot); !ok || got != want {
			return fmt.Errorf("Info(%d) is %+v, %v, the twin says %+v", r.slot, got, ok, want)
		}
		if o, n := p.Offset(r.slot), p.Attempts(r.slot); o != r.offset || n != r.attempts {
			return fmt.Errorf("slot %d: offset %d, %d attempts, the twin says %+v", r.slot, o, n, want)
		}
	}
	n := 0
	p.Each(func(Info) bool {
		n++
		return true
	})
	if n != len(w.unfinished) {
		return fmt.Errorf("Each tells of %d records, the twin has %d", n, len(w.unfinished))
	}
	return nil
}
