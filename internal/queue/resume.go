package queue

import (
	"math"
	"slices"
	"sort"

	"github.com/fronta-mq/fronta/progress"
)

// Segment is what a former owner told of a stretch of offsets: from where the
// segment before it ends (the first one: from where reading starts) up to End.
// See [progress.Segment] for what heads and markers say.
type Segment struct {
	End     int64
	Check   uint32           // of the first head's lane, 0 if it is not known
	Heads   []progress.Range // ascending, disjoint
	Markers []int64          // ascending; those of Heads that are markers

	// Former says that the order of the segment is not the owner's own. What
	// is unfinished in it obeys both, see AdmitFormer.
	Former bool
	// Unordered says that every record of the segment is a lane of its own. A
	// head that is not there any more concerns no other record then.
	Unordered bool
}

// Recollection is what former owners tell of a record that is read again.
type Recollection uint8

// What Recall answers.
const (
	Unfinished Recollection = iota // admit it
	Finished                       // drop it: the queue has stepped over it
	Missed                         // a head was not there: all is forgotten from this record on, admit it
	Mismatch                       // another lane than the one that was told of: the same
)

// String names the recollection.
func (r Recollection) String() string {
	switch r {
	case Unfinished:
		return "unfinished"
	case Finished:
		return "finished"
	case Missed:
		return "missed"
	case Mismatch:
		return "mismatch"
	default:
		return "unknown"
	}
}

// past is what a partition knows from former owners: what they told of records
// that are still to be read, and stretches in former orders of which something
// is unfinished. A partition without either has none, and then nothing of this
// costs anything.
//
// Reading goes through the stretches one by one. In the one that is being
// read lanes are learned: at a head that is unfinished or a marker. A record
// of a learned lane is unfinished, any other that is no head is finished and
// never comes into the queue. When the stretch ends what was learned is
// forgotten: the next one tells of its lanes by itself.
//
// A learned lane must stay known to the next owner even while all that has
// been read of it is finished, since its next record is unfinished. So when
// its last record in memory is finished, that one's bit stays in the frontier
// as a marker until the lane's next record is admitted or the stretch ends.
// Without that:
//
//	owner A leaves behind: head 0 of lane x, and 5, of x too, behind it
//	owner B reads 0, finishes it and commits when it has come to 3: no head
//	owner C finds no head that teaches it lane x: it takes 5 for finished
//
// What must stay true: stretches ascend without holes; those before at are
// read, and if all are, the last one has unfinished records; every head that
// was not come to lies at or above the horizon; a lane in learned has an
// unfinished record of the stretch in memory or is marked, never both.
type past struct {
	stretches []stretch
	at        int // the one being read; len(stretches): all are read

	// The first stored head that was not come to, MaxInt64 if there is none.
	next     int64
	nextIn   int // its stretch
	nextHead int // its place in heads
	nextMark int // the place in markers of the first one at or above it
	ahead    int64

	learned map[Lane]int32 // index in lanes
	lanes   []learnedLane
	marked  int // of lanes

	pending pending

	links map[Slot]link // of records in lanes of former orders
	pairs int64         // of a stretch and one of its lanes with unfinished records, those alone among them
}

// stretch is a Segment under way.
type stretch struct {
	Segment
	index      int // in the segments passed to Resume
	start      int64
	unfinished int
	tails      map[Lane]Slot // of a former one: the last unfinished record of each lane
}

// learnedLane is a lane of which records in the rest of the stretch are
// unfinished.
type learnedLane struct {
	chunk  int32 // of its marker in the frontier
	bit    uint16
	marked bool
	check  uint32
}

// pending is a record that Recall found unfinished, until it is admitted.
type pending struct {
	offset int64 // −1: none
	lane   Lane  // by the order of the stretch
	check  uint32
	head   bool
}

// Resume is New for a partition of which former owners told. Segments ascend;
// from the first one on that contradicts itself or the ones before it, they
// are left out. The slices in them are kept and not changed.
func Resume(start int64, segments []Segment) *Partition {
	p := New(start)
	t := newPast()
	from := start
	for i, s := range segments {
		heads, ok := s.heads(from)
		if !ok {
			break
		}
		t.ahead += heads
		t.stretches = append(t.stretches, stretch{Segment: s, index: i, start: from})
		from = s.End
	}
	if len(t.stretches) > 0 {
		t.nextHead = -1
		t.nextRange()
		p.past = t
	}
	return p
}

func newPast() *past {
	return &past{next: math.MaxInt64, learned: map[Lane]int32{}, links: map[Slot]link{}, pending: pending{offset: none}}
}

// heads counts the heads of a segment that starts at from. It is not ok if
// they don't lie in the segment in ascending order.
func (s *Segment) heads(from int64) (n int64, ok bool) {
	if s.End <= from {
		return 0, false
	}
	at, marks := from, s.Markers
	for _, r := range s.Heads {
		if r.From < at || r.To <= r.From || r.To > s.End {
			return 0, false
		}
		n += r.To - r.From
		for at = r.From; len(marks) > 0 && marks[0] < r.To; marks = marks[1:] {
			if marks[0] < at {
				return 0, false
			}
			at = marks[0] + 1
		}
		at = r.To
	}
	return n, len(marks) == 0
}

// Resuming says that reading has not come to the end of what former owners
// told: records have to be recalled before they are admitted.
func (p *Partition) Resuming() bool { return p.past != nil && p.past.reading() != nil }

// reading is the stretch that is being read, nil if all are read.
func (t *past) reading() *stretch {
	if t.at == len(t.stretches) {
		return nil
	}
	return &t.stretches[t.at]
}

// find is the place of the stretch with offset, len(stretches) if it lies
// above them all.
func (t *past) find(offset int64) int {
	if n := len(t.stretches); n == 1 {
		if offset < t.stretches[0].End {
			return 0
		}
		return 1
	}
	return sort.Search(len(t.stretches), func(i int) bool { return offset < t.stretches[i].End })
}

// SegmentAt tells which of the segments passed to Resume has the record at
// offset, and whether its order is a former one. It is not ok where none has,
// or nothing of the segment matters any more.
func (p *Partition) SegmentAt(offset int64) (index int, former, ok bool) {
	if p.past == nil {
		return none, false, false
	}
	i := p.past.find(offset)
	if i == len(p.past.stretches) || offset < p.past.stretches[i].start {
		return none, false, false
	}
	s := &p.past.stretches[i]
	if i < p.past.at && s.unfinished == 0 {
		return none, false, false
	}
	return s.index, s.Former, true
}

// Recall tells whether the record at offset, the next that was read, is
// unfinished. lane is its lane by the order of its segment, check that lane's
// check. While the partition is Resuming it must be asked before a record is
// admitted; asked again before the record is admitted it answers the same.
//
// An unfinished record must be admitted next: by AdmitFormer if its segment is
// a former one, else by Admit. After Missed and Mismatch nothing is known of
// the record nor of any behind it, and Admit is right. A record below the
// horizon was read before and is to be dropped.
func (p *Partition) Recall(offset int64, lane Lane, check uint32) Recollection {
	switch {
	case p.past == nil:
		return Unfinished
	case offset < p.horizon:
		return Finished
	case !p.pass(offset):
		return Missed
	case !p.Resuming():
		return Unfinished
	}
	t, s := p.past, p.past.reading()
	if s.Unordered {
		lane = Alone
	}
	head := t.next == offset
	if head && s.Check != 0 && s.Check != check && offset == s.Heads[0].From {
		p.forget(offset)
		return Mismatch
	}
	i, known := t.learned[lane]
	switch {
	case head && t.nextIsMarker():
		t.passHead()
		if lane != Alone {
			if !known {
				i = t.learn(lane, check)
			}
			// Records of the lane in memory, if there are any, hold the
			// frontier by themselves.
			if l := &t.lanes[i]; !known || l.marked {
				p.unmark(l)
				c, bit := p.frontier.add(offset)
				t.mark(l, c, bit)
			}
		}
	case head || known:
		t.pending = pending{offset, lane, check, head}
		return Unfinished
	}
	p.pass(offset + 1)
	return Finished
}

// Forget says that what former owners told of records to be read can't be
// used, since a lane can't be computed, say. From here on all records are
// unfinished, as after Missed, but for those below the frontier: whatever
// their lanes, it has been told that they are finished. So the record at hand
// is to be recalled again, with any lane.
func (p *Partition) Forget() {
	if !p.Resuming() {
		return
	}
	index, known := p.past.reading().index, p.Frontier()
	p.forget(p.horizon)
	if known > p.horizon {
		// The frontier is beyond the horizon only while nothing is unfinished
		// in memory, so nothing is left of the past.
		p.past = newPast()
		p.past.stretches = append(p.past.stretches, stretch{
			Segment: Segment{End: known, Unordered: true}, index: index, start: p.horizon,
		})
		p.past.nextIn = 1
	}
}

// Missed tells, once, at which offset a head was missing.
func (p *Partition) Missed() (offset int64, ok bool) {
	offset, ok = p.missed-1, p.missed > 0
	p.missed = 0
	return offset, ok
}

// pass says that reading has come to offset: what was not delivered below it
// never will be. The answer is false if a head was missing.
func (p *Partition) pass(offset int64) bool {
	t := p.past
	for s := t.reading(); s != nil; s = t.reading() {
		end := min(s.End, offset)
		if t.next < end {
			if !s.Unordered {
				// What follows in the head's lane can't be told from others.
				p.missed = t.next + 1
				p.horizon = max(p.horizon, offset)
				p.forget(end)
				return false
			}
			t.passHeads(end)
		}
		if offset < s.End {
			break
		}
		p.unlearn()
		if t.at++; t.at == len(t.stretches) {
			p.endReading()
		}
	}
	p.horizon = max(p.horizon, offset)
	return true
}

// forget drops what was told of records from the offset on, which lies in the
// stretch that is being read or at its end.
func (p *Partition) forget(from int64) {
	t := p.past
	n := t.at
	if s := t.reading(); from > s.start {
		s.End = from
		n++
	}
	t.stretches = slices.Delete(t.stretches, n, len(t.stretches))
	t.next, t.nextIn, t.ahead = math.MaxInt64, n, 0
	p.unlearn()
	p.endReading()
}

// unlearn forgets the lanes that were learned, and their markers.
func (p *Partition) unlearn() {
	t := p.past
	for i := range t.lanes {
		p.unmark(&t.lanes[i])
	}
	clear(t.learned)
	t.lanes = t.lanes[:0]
	t.pending.offset = none
}

// settle lets go of stretches at the end of those that are read: what nothing
// is unfinished of may as well be the beginning of what follows. When none is
// left, the partition is like any other.
//
// Only the last stretch can join what follows while something of it is
// unfinished, if it is in the owner's order, and only when its reading ends.
// An earlier one can't, even when all between is finished:
//
//	order key: a stretch of order partition up to 10, one of order key up to 20
//	owner of order partition: 5 runs; 12, finished under order key, lies between
//	one segment up to 20 of order partition with head 5 would tell: 12 is unfinished
func (p *Partition) settle() {
	t := p.past
	n := len(t.stretches)
	if t.at < n {
		return
	}
	for n > 0 && t.stretches[n-1].unfinished == 0 {
		n--
	}
	t.stretches = slices.Delete(t.stretches, n, len(t.stretches))
	t.at = n
	if n == 0 {
		p.past = nil
	}
}

// endReading is called when all stretches are read.
func (p *Partition) endReading() {
	t := p.past
	if n := len(t.stretches); n > 0 && !t.stretches[n-1].Former {
		t.stretches = slices.Delete(t.stretches, n-1, n)
	}
	t.at = len(t.stretches)
	t.learned, t.lanes = nil, nil
	p.settle()
}

// learn adds a lane that is not known yet.
func (t *past) learn(lane Lane, check uint32) int32 {
	i := int32(len(t.lanes))
	t.lanes = append(t.lanes, learnedLane{check: check})
	t.learned[lane] = i
	return i
}

// mark makes the bit at that place in the frontier the marker of a lane.
func (t *past) mark(l *learnedLane, c int32, bit uint16) {
	l.chunk, l.bit, l.marked = c, bit, true
	t.marked++
}

// unmark takes away the marker of a lane, if it has one.
func (p *Partition) unmark(l *learnedLane) {
	if l.marked {
		p.frontier.remove(l.chunk, l.bit)
		l.marked = false
		p.past.marked--
	}
}

// nextIsMarker says whether the next stored head is a marker.
func (t *past) nextIsMarker() bool {
	m := t.stretches[t.nextIn].Markers
	return t.nextMark < len(m) && m[t.nextMark] == t.next
}

// passHead steps over the next stored head.
func (t *past) passHead() {
	if t.nextIsMarker() {
		t.nextMark++
	}
	t.ahead--
	t.next++
	if t.next == t.stretches[t.nextIn].Heads[t.nextHead].To {
		t.nextRange()
	}
}

// passHeads steps over stored heads below offset, of the stretch of the next
// one.
func (t *past) passHeads(offset int64) {
	in := t.nextIn
	for t.nextIn == in && t.next < offset {
		end := t.stretches[in].Heads[t.nextHead].To
		to := min(offset, end)
		t.ahead -= to - t.next
		if t.next = to; to == end {
			t.nextRange()
		}
	}
	if t.nextIn == in {
		for m := t.stretches[in].Markers; t.nextMark < len(m) && m[t.nextMark] < offset; {
			t.nextMark++
		}
	}
}

// nextRange moves on to the range of stored heads after the present one.
func (t *past) nextRange() {
	for t.nextHead++; t.nextIn < len(t.stretches); t.nextIn++ {
		if heads := t.stretches[t.nextIn].Heads; t.nextHead < len(heads) {
			t.next = heads[t.nextHead].From
			return
		}
		t.nextHead, t.nextMark = 0, 0
	}
	t.next = math.MaxInt64
}

// frontier is the frontier of a partition that has come to horizon and has
// neither unfinished records nor markers.
func (t *past) frontier(horizon int64) int64 {
	if t.at == len(t.stretches) {
		return horizon
	}
	return min(t.next, t.end())
}

// end is where the last stretch ends.
func (t *past) end() int64 { return t.stretches[len(t.stretches)-1].End }

// Known is the offset up to which a snapshot tells what is finished: the
// horizon or, while Resuming, the end of the last segment.
func (p *Partition) Known() int64 {
	if p.Resuming() {
		return p.past.end()
	}
	return p.horizon
}

// Heads is how many heads a snapshot has now: one for each lane with unfinished
// records, and for each record that is a lane of its own, in a former order the
// stretch's own lanes; stored heads that were not come to; and markers. No
// snapshot has more before another record is admitted.
func (p *Partition) Heads() int64 {
	if p.past == nil {
		return int64(p.lanes.count + p.count - p.keyed)
	}
	n := p.past.pairs + int64(p.past.marked)
	return n + min(p.past.ahead, math.MaxInt64-n)
}

// ExactHeads is what an exact snapshot has at most: unfinished records, stored
// heads that were not come to, and a marker at the frontier.
func (p *Partition) ExactHeads() int64 {
	n := int64(p.count)
	if p.past == nil {
		return n
	}
	n += int64(min(p.past.marked, 1))
	return n + min(p.past.ahead, math.MaxInt64-n)
}

// SetAttempts says how many attempts of the record in slot s have failed,
// which must be unfinished: under former owners, say.
func (p *Partition) SetAttempts(s Slot, n int) {
	r, ok := p.get(s)
	if !ok {
		return
	}
	if n <= 0 {
		r.flags &^= tried
		return
	}
	r.flags |= tried
	p.details[s].attempts = int32(min(n, math.MaxInt32))
}
