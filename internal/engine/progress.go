package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a commit says of a partition is offset and progress, taken from one
// state under the lock (H-142). What an ownership begins with is what the
// commit before it said.
//
// An ownership has to be known before it acts: nothing of a partition is
// started until the first commit of its ownership is confirmed. That commit
// makes its fence durable, so that the next owner's is higher whatever becomes
// of this one, and says that the partition is not in clean hands, so that the
// next owner learns of a crash even if this process dies with its first record.

// Ordering is an order of records as the engine needs it.
type Ordering struct {
	Name  string
	Lane  func(*kgo.Record) (queue.Lane, error)
	Check func(*kgo.Record) uint32 // a hash of the lane that is the same in every process, never 0; it may panic
}

// Start is where the reading of a partition begins.
type Start struct {
	TopicPartition
	Offset int64 // below 0: at the first record that is read
	Epoch  int32
	End    int64              // of the log, as far as is known; below 0: not known
	Stored *progress.Progress // what the commit at Offset said; nil: nothing that can be relied on
}

// Position is how far a partition may be committed.
type Position struct {
	TopicPartition
	Offset  int64
	Epoch   int32 // of the record before Offset, −1 unknown
	Fence   int64
	Version uint64 // rises with every change that is worth a commit and does not move Offset

	reach   int64 // what a commit of it makes durable, see care.go
	suspect int64
}

// Snapshot is a position with everything that is committed with it.
type Snapshot struct {
	Position
	Progress progress.Progress
}

// Begin says where the reading of partitions starts, once that is known, and
// answers with the fence of their records. It is higher than all that former
// owners have told of, and at least the clock's milliseconds, so that it goes
// on rising when the group, and with it what owners told, is deleted and made
// again.
//
// refused are partitions whose progress names an order that is not known here:
// they are read from their offset with nothing taken as finished.
func (e *Engine) Begin(starts []Start) (fence int64, refused map[TopicPartition]error) {
	fence = max(time.Now().UnixMilli(), 1)
	for _, s := range starts {
		if s.Stored != nil {
			fence = max(fence, s.Stored.Fence+1)
		}
	}
	var fx effects
	e.mu.Lock()
	fence = max(fence, e.lastFence+1)
	e.lastFence = fence
	for i := range starts {
		s := &starts[i]
		p := e.parts[s.TopicPartition]
		if p == nil || p.q != nil {
			continue
		}
		p.Fence = fence
		p.gated = true
		e.beginCareLocked(p, s)
		if s.Offset < 0 {
			continue
		}
		if err := e.resumeLocked(p, s); err != nil {
			if refused == nil {
				refused = make(map[TopicPartition]error)
			}
			refused[s.TopicPartition] = err
		}
		if s.Epoch >= 0 {
			p.epochLocked(s.Offset, s.Epoch)
		}
		e.urgentLocked(p)
	}
	e.flushLocked(&fx)
	e.mu.Unlock()
	fx.run()
	return fence, refused
}

// unordered is the name of the order in which each record is a lane of its own.
const unordered = "unordered"

// segmentOrder is the order of a segment that a former owner told of.
type segmentOrder struct {
	Ordering
	end    int64
	former bool // not this consumer's order
	all    bool // each record is a lane of its own
}

// resumeLocked opens p at s.Offset, to skip what s.Stored says is finished.
func (e *Engine) resumeLocked(p *Part, s *Start) error {
	p.reading = s.Offset
	st := s.Stored
	if st == nil || len(st.Segments) == 0 {
		p.q = queue.New(s.Offset)
		return nil
	}
	orders := make([]segmentOrder, len(st.Segments))
	segments := make([]queue.Segment, len(st.Segments))
	for i := range st.Segments {
		seg := &st.Segments[i]
		o := &Ordering{Name: e.cfg.OrderName, Lane: e.cfg.Lane, Check: e.cfg.Check}
		former := seg.Order != e.cfg.OrderName
		if former {
			o = nil
			if e.cfg.Former != nil {
				o = e.cfg.Former(seg.Order)
			}
			if o == nil {
				p.q = queue.New(s.Offset)
				return fmt.Errorf("it was written under the order %q, which this consumer does not know", seg.Order)
			}
		}
		orders[i] = segmentOrder{Ordering: *o, end: seg.End, former: former, all: seg.Order == unordered}
		segments[i] = queue.Segment{End: seg.End, Check: seg.Check, Heads: seg.Heads, Markers: seg.Markers, Former: former, Unordered: seg.Order == unordered}
		if o.Check == nil {
			segments[i].Check = 0
		}
	}
	p.q = queue.Resume(s.Offset, segments)
	p.orders, p.attempts, p.told, p.toldEnd, p.toldAt = orders, st.Attempts, st.Horizon(), st.Horizon(), st.Epoch
	return nil
}

// toldOf computes, outside the lock, what recallLocked has to know of a record.
// Key functions may be slow, and may panic.
func (e *Engine) toldOf(p *Part, t *task) {
	i := 0
	for i < len(p.orders)-1 && t.Offset >= p.orders[i].end {
		i++
	}
	o, s := &p.orders[i], t.state()
	err := s.keyErr
	switch {
	case o.former:
		s.former, err = o.Lane(t.Delivery.Record)
	case e.cfg.LaneInside:
		_, err = o.Lane(t.Delivery.Record)
	}
	if err == nil && o.Check != nil {
		s.check = o.checkOf(t.Delivery.Record)
	}
	s.lost = err
}

// checkOf is Check, 0 if it panics.
func (o *Ordering) checkOf(r *kgo.Record) (check uint32) {
	defer func() {
		if recover() != nil {
			check = 0
		}
	}()
	return o.Check(r)
}

// recalled is what a former owner has told of a record.
type recalled uint8

const (
	nothing  recalled = iota // or that it is unfinished
	finished                 // the record was dropped
	former                   // that it is unfinished, under an order that still binds it
)

// recallLocked finds out what a former owner has told of a record that is about
// to be admitted.
func (e *Engine) recallLocked(p *Part, t *task) recalled {
	if t.Offset >= p.told {
		return nothing
	}
	if !p.q.Resuming() {
		e.forgotLocked(p, t.Offset)
		return nothing
	}
	i, isFormer, ok := p.q.SegmentAt(t.Offset)
	s := t.state()
	if !ok {
		return nothing
	}
	lane := t.lane
	if isFormer {
		lane = s.former
	}
	if s.lost != nil && !p.orders[i].all {
		// Without the record's lane nothing can be told of those that follow.
		p.q.Forget()
		e.forgetLocked(p, t.Offset, fmt.Errorf("its lane is not known: %w", s.lost))
		if !p.q.Resuming() {
			return nothing
		}
		lane, isFormer = queue.Alone, false
	}
	switch p.q.Recall(t.Offset, lane, s.check) {
	case queue.Finished:
		e.counters.Recalled++
		p.epochLocked(t.Offset, t.LeaderEpoch)
		p.bytes -= int64(t.size)
		e.bytes -= int64(t.size)
		return finished
	case queue.Mismatch:
		e.forgetLocked(p, t.Offset, fmt.Errorf("it was written under the order %q, which computes another lane now", p.orders[i].Name))
		return nothing
	case queue.Missed:
		e.forgotLocked(p, t.Offset)
		return nothing
	}
	for len(p.attempts) > 0 && p.attempts[0].Offset <= t.Offset {
		if p.attempts[0].Offset == t.Offset {
			t.DeliveryCount += p.attempts[0].N
		}
		p.attempts = p.attempts[1:]
	}
	if isFormer {
		return former
	}
	return nothing
}

// forgotLocked is called when reading has come to offset at and the core has
// given up what it was told: a head was not there any more.
func (e *Engine) forgotLocked(p *Part, at int64) {
	if missed, ok := p.q.Missed(); ok {
		e.forgetLocked(p, at, fmt.Errorf("the unfinished record at offset %d is not in the log any more (compaction or retention)", missed))
	}
}

// passToldLocked is called when the next record to admit is the one at next. If
// it lies beyond all that former owners told of, so does reading, though the
// last records they told of may be gone: markers are of no use any more then.
func (e *Engine) passToldLocked(p *Part, next int64) {
	if p.told > 0 && next >= p.told && p.q.Resuming() {
		p.q.Advance(p.told)
		e.forgotLocked(p, p.told)
	}
}

func (e *Engine) forgetLocked(p *Part, at int64, why error) {
	horizon := p.told
	p.attempts = nil
	// Below its frontier the core still knows everything to be finished.
	p.told = max(at, p.q.Known())
	e.counters.Forgotten++
	e.later(func() { e.cfg.Events.forgotten(p.TopicPartition, at, horizon, why) })
}

// fitsLocked says whether progress has room for a record at offset next that
// would be the first of its lane, however the others end. Otherwise admission
// waits for some of them to end.
func (e *Engine) fitsLocked(p *Part, next int64) bool {
	if e.capacity == 0 || next < p.told || p.q.Len() == 0 {
		return true // where nothing is unfinished, nothing would ever make room
	}
	heads := p.q.Heads()
	if e.cfg.Exact {
		heads = p.q.ExactHeads()
	}
	if heads == 0 {
		return true
	}
	window := next + 1 - p.q.Frontier()
	if f := e.cfg.Bound; f != nil {
		return f(window, heads+1) <= e.capacity
	}
	return progress.Bound(window, heads+1)+progress.HeaderBytes+len(p.crashes)*8 <= e.capacity
}

// later runs f when the lock is released next.
func (e *Engine) later(f func()) { e.pending.add(f) }

func (e *Engine) flushLocked(fx *effects) {
	if len(e.pending) > 0 {
		*fx = append(*fx, e.pending...)
		e.pending = nil
	}
}

// urgentLocked asks the driver for a commit of p now.
func (e *Engine) urgentLocked(p *Part) {
	p.version++
	select {
	case e.urgent <- struct{}{}:
	default:
	}
}

// Urgent is signalled when the position of a partition should be committed
// now, not at the next tick.
func (e *Engine) Urgent() <-chan struct{} { return e.urgent }

// Confirmed says that the brokers have stored a position, with its progress.
func (e *Engine) Confirmed(at Position) {
	var fx effects
	e.mu.Lock()
	if p := e.parts[at.TopicPartition]; p != nil && p.Fence == at.Fence {
		p.gated = false
		e.careConfirmedLocked(p, at)
		e.readyLocked(p)
		e.wakeLocked(&fx)
		e.flushLocked(&fx)
	}
	e.mu.Unlock()
	fx.run()
}

// SetCapacity says how many bytes of progress a commit has room for. 0: none,
// and nothing is held back for it.
func (e *Engine) SetCapacity(bytes int) {
	var fx effects
	e.mu.Lock()
	e.capacity = bytes
	e.shareOutLocked()
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

// Seal says that the consumer ends in good order: what is committed from now
// on says so.
func (e *Engine) Seal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
	for _, p := range e.parts {
		p.version++
	}
}

// Positions are the positions of all open partitions whose start is known, or
// of those named.
func (e *Engine) Positions(only ...TopicPartition) []Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ps []Position
	if len(only) > 0 {
		for _, tp := range only {
			if p := e.parts[tp]; p != nil && p.q != nil {
				ps = append(ps, p.positionLocked())
			}
		}
		return ps
	}
	for _, p := range e.parts {
		if p.q != nil {
			ps = append(ps, p.positionLocked())
		}
	}
	return ps
}

func (p *Part) positionLocked() Position {
	at := Position{TopicPartition: p.TopicPartition, Offset: p.q.Frontier(), Epoch: -1, Fence: p.Fence, Version: p.version}
	// Epochs below the frontier's are of no use any more.
	for len(p.epochs) > 1 && p.epochs[1].from < at.Offset {
		p.epochs = p.epochs[1:]
	}
	if len(p.epochs) > 0 {
		at.Epoch = p.epochs[0].epoch
	}
	return at
}

// Snapshot is the position of an open partition whose start is known, and its
// progress.
func (e *Engine) Snapshot(tp TopicPartition) (Snapshot, bool) {
	e.mu.Lock()
	p := e.parts[tp]
	if p == nil || p.q == nil {
		e.mu.Unlock()
		return Snapshot{}, false
	}
	d := e.draftLocked(p, e.sealed)
	e.mu.Unlock()
	return d.finish(), true
}

// draft is a snapshot as it was taken under the lock. What costs more, and
// what calls user code, is done when it is finished.
type draft struct {
	e      *Engine
	s      Snapshot
	core   *queue.Snapshot
	orders []segmentOrder
	firsts []*kgo.Record // the first head's record of each segment, if it is in memory
	ahead  []progress.Count
}

func (e *Engine) draftLocked(p *Part, clean bool) draft {
	d := draft{e: e, core: e.cores.Get().(*queue.Snapshot), orders: p.orders}
	p.q.Snapshot(d.core, e.cfg.Exact)
	d.s.Position = p.positionLocked()
	epoch := p.epoch
	if p.toldEnd > 0 && d.core.Horizon >= p.toldEnd {
		epoch = max(epoch, p.toldAt) // the record that had it may be gone
	}
	if d.s.Offset > p.q.Horizon() {
		d.s.Epoch = p.toldAt
	}
	d.s.Progress = progress.Progress{Offset: d.s.Offset, Epoch: epoch, Fence: p.Fence, Clean: clean, Suspect: -1}
	for i := range d.core.Segments {
		var r *kgo.Record
		if s := d.core.Segments[i].First.Slot; s >= 0 {
			r = p.tasks[s].Delivery.Record
		}
		d.firsts = append(d.firsts, r)
	}
	// Failed attempts of records that are not read again yet are handed on.
	for i := range p.attempts {
		if o := p.attempts[i].Offset; o >= p.q.Horizon() {
			d.ahead = p.attempts[i:]
			break
		}
	}
	e.careProgressLocked(p, &d.s, d.core.Horizon)
	return d
}

// finish makes a snapshot of a draft.
func (d *draft) finish() Snapshot {
	d.core.Fill()
	m := &d.s.Progress
	for i := range d.core.Segments {
		told := &d.core.Segments[i]
		o := Ordering{Name: d.e.cfg.OrderName, Check: d.e.cfg.Check}
		switch {
		case d.e.cfg.Exact:
			o = Ordering{Name: unordered}
		case told.Index >= 0:
			o = d.orders[told.Index].Ordering
		}
		seg := progress.Segment{End: told.End, Order: o.Name, Heads: slices.Clone(told.Heads), Markers: slices.Clone(told.Markers)}
		switch {
		case told.First.HasCheck:
			seg.Check = told.First.Check
		case d.firsts[i] != nil && o.Check != nil:
			seg.Check = o.checkOf(d.firsts[i])
		}
		m.Segments = append(m.Segments, seg)
	}
	m.Attempts = append(slices.Clone(d.core.Attempts), d.ahead...)
	d.e.cores.Put(d.core)
	return d.s
}
