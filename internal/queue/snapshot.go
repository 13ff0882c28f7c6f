package queue

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/fronta-mq/fronta/progress"
)

// Snapshot is what is known of a partition at one moment, as a commit tells
// it. The zero value is ready for use; one that is used again keeps its memory
// and allocates nothing once it has been large enough.
//
// It is made in two steps, so that the owner's lock is held for the first one
// alone: [Partition.Snapshot] copies bits, [Snapshot.Fill] makes ranges of
// them. What they write stands until the snapshot is used again.
type Snapshot struct {
	Offset  int64 // the frontier: what is to be committed
	Horizon int64 // where the last of Segments ends, Offset if there is none

	// Segments ascend. All end above Offset, and the first one has a head
	// there. Their Heads and Markers are there after Fill.
	Segments []Told

	// Attempts are heads of which attempts have failed, in the order of
	// offsets after Fill.
	Attempts []progress.Count

	chunks  []headBits // by their place in the frontier
	order   []int32    // of chunks, by offset
	wanted  []wanted
	stored  []storedHeads
	markers []int64 // in memory, all of them in the segment that is being read
	ranges  []progress.Range
	marks   []int64
}

// Told is a segment of a snapshot.
type Told struct {
	Index   int   // in the segments passed to Resume, −1: it is in the owner's order
	End     int64 // it begins at the End of the one before it, the first one at the snapshot's Offset
	First   First
	Heads   []progress.Range // ascending, disjoint, not touching
	Markers []int64          // ascending; those of Heads that are markers
}

// First is the first head of a segment.
type First struct {
	Offset   int64  // −1: the segment has no head
	Slot     Slot   // of the record, −1 if it is not in memory
	Check    uint32 // of its lane, if HasCheck
	HasCheck bool   // never if the record is in memory
}

// headBits are the heads in a chunk of the frontier.
type headBits struct {
	words  [chunkWords]uint64
	base   int64
	wanted int32 // the first one of the chunk
}

// wanted is the first head of a segment, whose slot is not known yet.
type wanted struct {
	told  int32 // of which segment
	next  int32 // another one in the same chunk
	chunk int32
	bit   uint16
}

// storedHeads are heads of a segment that were not come to. The slices are
// those of Resume, which never change.
type storedHeads struct {
	told    int
	from    int64 // those below are passed
	heads   []progress.Range
	markers []int64
	check   uint32 // of the first one's lane, 0 if it is not known
}

// Snapshot writes into dst what a commit is to tell of the partition. Its cost
// is one pass over the slots and the chunks of the frontier.
//
// A record is a head if nothing of its lane is unfinished before it in its
// segment. With exact all unfinished records are heads, in one segment without
// markers. It then tells nothing of records that were not read and of which
// it is not known for certain whether they are finished, since that depends on
// their lanes. A marker at the frontier, and one that was not come to, counts
// as unfinished.
func (p *Partition) Snapshot(dst *Snapshot, exact bool) {
	*dst = Snapshot{
		Offset:   p.Frontier(),
		Segments: dst.Segments[:0], Attempts: dst.Attempts[:0],
		chunks: dst.chunks, order: dst.order[:0], wanted: dst.wanted[:0], stored: dst.stored[:0],
		markers: dst.markers[:0], ranges: dst.ranges[:0], marks: dst.marks[:0],
	}
	dst.Horizon = dst.Offset
	at := none // of Segments, the one that is being read
	if exact {
		p.tellExact(dst)
		at = 0
	} else {
		at = p.tellSegments(dst)
	}
	if n := len(dst.Segments); n > 0 {
		dst.Horizon = dst.Segments[n-1].End
	} else {
		return
	}
	// All unfinished records are heads: then their bits are there already.
	whole := exact || p.past == nil && p.Heads() == int64(p.count)
	p.copyChunks(dst, whole)
	low, check := p.copyMarkers(dst, exact)
	if exact {
		check = 0 // it is that of another order
	}
	p.findFirsts(dst, exact, at, low, check)
	p.copyHeads(dst, exact, whole)
}

func (s *Snapshot) tell(index int, end int64) {
	s.Segments = append(s.Segments, Told{Index: index, End: end, First: First{Offset: none, Slot: none}})
}

// store adds the heads of stretch i that were not come to to the last segment.
func (s *Snapshot) store(t *past, i int) {
	if i < t.nextIn {
		return
	}
	st := &t.stretches[i]
	h := storedHeads{told: len(s.Segments) - 1, heads: st.Heads, markers: st.Markers, check: st.Check}
	if i == t.nextIn {
		if t.next != st.Heads[0].From {
			h.check = 0
		}
		h.from, h.heads, h.markers = t.next, h.heads[t.nextHead:], h.markers[t.nextMark:]
	}
	if len(h.heads) > 0 {
		s.stored = append(s.stored, h)
	}
}

// tellSegments lists the segments of p and answers which one is being read.
func (p *Partition) tellSegments(dst *Snapshot) (at int) {
	at = none
	end := dst.Offset
	if t := p.past; t != nil {
		for i := range t.stretches {
			s := &t.stretches[i]
			if s.End <= dst.Offset || i < t.at && s.unfinished == 0 {
				continue
			}
			if i == t.at {
				at = len(dst.Segments)
			}
			dst.tell(s.index, s.End)
			if i >= t.at {
				dst.store(t, i)
			}
			end = s.End
		}
	}
	if p.horizon > end {
		dst.tell(none, p.horizon)
	}
	return at
}

// tellExact lists the one segment of an exact snapshot. It reaches as far as
// it is known of every single record whether it is finished.
func (p *Partition) tellExact(dst *Snapshot) {
	end, upTo := p.horizon, 0
	if t := p.past; t != nil {
		for upTo = t.at; upTo < len(t.stretches) && t.certain(upTo); upTo++ {
			end = t.stretches[upTo].End
		}
	}
	if end <= dst.Offset {
		return
	}
	dst.tell(none, end)
	if t := p.past; t != nil {
		for i := t.at; i < upTo; i++ {
			dst.store(t, i)
		}
		for i := range dst.stored {
			dst.stored[i].markers = nil
		}
	}
}

// certain says whether it depends on no lane what is unfinished in the rest of
// stretch i.
func (t *past) certain(i int) bool {
	s := &t.stretches[i]
	if s.Unordered {
		return true
	}
	return (i < t.nextIn || len(s.Heads) == 0) && (i != t.at || len(t.lanes) == 0)
}

// copyChunks makes room for the heads of each chunk, or copies them.
func (p *Partition) copyChunks(dst *Snapshot, whole bool) {
	f := &p.frontier
	if n := len(f.chunks); n > cap(dst.chunks) {
		dst.chunks = make([]headBits, n, n+n/4)
	} else {
		dst.chunks = dst.chunks[:n]
	}
	for c := f.head; c != none; c = f.chunks[c].next {
		ch := &f.chunks[c]
		h := &dst.chunks[c]
		h.base, h.wanted = ch.base, none
		if whole {
			h.words = ch.words
		} else {
			h.words = [chunkWords]uint64{}
		}
		dst.order = append(dst.order, c)
	}
}

// copyMarkers makes heads of the markers in memory and answers with the lowest
// one and its lane's check.
func (p *Partition) copyMarkers(dst *Snapshot, exact bool) (low int64, check uint32) {
	low = none
	if p.past == nil || p.past.marked == 0 {
		return low, 0
	}
	for i := range p.past.lanes {
		l := &p.past.lanes[i]
		if !l.marked {
			continue
		}
		o := p.frontier.offset(l.chunk, l.bit)
		if low == none || o < low {
			low, check = o, l.check
		}
		switch word := &dst.chunks[l.chunk].words[l.bit/64]; {
		case !exact:
			*word |= 1 << (l.bit % 64)
			dst.markers = append(dst.markers, o)
		case o != dst.Offset:
			*word &^= 1 << (l.bit % 64)
		}
	}
	return low, check
}

// findFirsts finds the first head of each segment. That is its first
// unfinished record or marker, or else the first stored head. low is the first
// marker, in segment at.
func (p *Partition) findFirsts(dst *Snapshot, exact bool, at int, low int64, check uint32) {
	i, from := 0, dst.Offset
	for _, c := range dst.order {
		if i == len(dst.Segments) {
			break
		}
		words := &p.frontier.chunks[c].words
		if exact {
			words = &dst.chunks[c].words
		}
		for i < len(dst.Segments) {
			told := &dst.Segments[i]
			bit, ok := firstBit(words, from-dst.chunks[c].base)
			if !ok {
				break
			}
			if o := dst.chunks[c].base + int64(bit); o < told.End {
				told.First.Offset = o
				if i == at && o == low {
					told.First.Check, told.First.HasCheck = check, check != 0
				} else {
					dst.wanted = append(dst.wanted, wanted{told: int32(i), next: dst.chunks[c].wanted, chunk: c, bit: bit})
					dst.chunks[c].wanted = int32(len(dst.wanted) - 1)
				}
			}
			from = told.End
			i++
		}
	}
	for i := range dst.stored {
		h := &dst.stored[i]
		told := &dst.Segments[h.told]
		if told.First.Offset != none {
			continue
		}
		told.First.Offset = max(h.heads[0].From, h.from)
		if !exact {
			told.First.Check, told.First.HasCheck = h.check, h.check != 0
		}
	}
}

// firstBit is the first one that is set at or above from.
func firstBit(words *[chunkWords]uint64, from int64) (bit uint16, ok bool) {
	if from >= chunkBits {
		return 0, false
	}
	from = max(from, 0)
	mask := ^uint64(0) << (from % 64)
	for i := from / 64; i < chunkWords; i++ {
		if w := words[i] & mask; w != 0 {
			return uint16(i*64) + uint16(bits.TrailingZeros64(w)), true
		}
		mask = ^uint64(0)
	}
	return 0, false
}

// copyHeads finds the records that are heads. With whole, they are in dst
// already, and only a record with attempts or that is the first of its segment
// matters.
func (p *Partition) copyHeads(dst *Snapshot, exact, whole bool) {
	var only wanted
	if whole = whole && len(dst.wanted) == 1; whole {
		only = dst.wanted[0]
	}
	for s := range p.records {
		r := &p.records[s]
		if whole && r.flags&tried == 0 && (r.bit != only.bit || r.chunk != only.chunk) {
			continue
		}
		switch f := r.flags & (former | first); {
		case r.state > Queued && f == 0:
		case r.state == Free:
			continue
		case exact:
		case f == former && r.flags&behindFormer != 0, f == 0:
			continue
		}
		h := &dst.chunks[r.chunk]
		h.words[r.bit/64] |= 1 << (r.bit % 64)
		if r.flags&tried != 0 {
			dst.Attempts = append(dst.Attempts, progress.Count{Offset: h.base + int64(r.bit), N: int(p.details[s].attempts)})
		}
		for w := h.wanted; w != none; w = dst.wanted[w].next {
			if dst.wanted[w].bit == r.bit {
				dst.Segments[dst.wanted[w].told].First.Slot = Slot(s)
			}
		}
	}
}

// Fill completes a snapshot: the heads and markers of its segments, and the
// order of its attempts. It touches no partition.
func (s *Snapshot) Fill() {
	slices.SortFunc(s.Attempts, func(a, b progress.Count) int { return cmp.Compare(a.Offset, b.Offset) })
	slices.Sort(s.markers)
	s.ranges, s.marks = s.ranges[:0], s.marks[:0]
	from, order, stored, markers := s.Offset, s.order, s.stored, s.markers
	for i := range s.Segments {
		told := &s.Segments[i]
		ranges, marks := len(s.ranges), len(s.marks)
		for len(order) > 0 {
			h := &s.chunks[order[0]]
			if h.base < told.End {
				s.addBits(h, from, told.End, ranges)
			}
			if h.base+chunkBits > told.End {
				break // there is more of it in the next segment, or all
			}
			order = order[1:]
		}
		for len(markers) > 0 && markers[0] < told.End {
			s.marks = append(s.marks, markers[0])
			markers = markers[1:]
		}
		for len(stored) > 0 && stored[0].told == i {
			for _, r := range stored[0].heads {
				s.addRange(max(r.From, stored[0].from), r.To, ranges)
			}
			s.marks = append(s.marks, stored[0].markers...)
			stored = stored[1:]
		}
		// When the memory is outgrown, what stands stays in the old one.
		told.Heads, told.Markers = s.ranges[ranges:len(s.ranges):len(s.ranges)], s.marks[marks:len(s.marks):len(s.marks)]
		from = told.End
	}
}

// addBits adds the heads of a chunk from from up to, not including, to. first
// is the place of the segment's first range.
func (s *Snapshot) addBits(h *headBits, from, to int64, first int) {
	for i, w := range h.words {
		base := h.base + int64(i*64)
		if n := from - base; n > 0 {
			w = w >> n << n
		}
		if n := to - base; n < 64 {
			w &= 1<<max(n, 0) - 1
		}
		for w != 0 {
			low := bits.TrailingZeros64(w)
			high := low + bits.TrailingZeros64(^(w >> low))
			s.addRange(base+int64(low), base+int64(high), first)
			w = w >> high << high // nothing is left if high is 64
		}
	}
}

// addRange adds a range to those from the place first on, above them.
func (s *Snapshot) addRange(from, to int64, first int) {
	if n := len(s.ranges); n > first && s.ranges[n-1].To == from {
		s.ranges[n-1].To = to
		return
	}
	s.ranges = append(s.ranges, progress.Range{From: from, To: to})
}
