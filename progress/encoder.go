package progress

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"sort"
)

// Limit is how long a text may be.
type Limit struct {
	// Units is how many UTF-16 units the text may have, what Apache Kafka's
	// offset.metadata.max.bytes counts. 0 or less: none.
	Units int `json:"units"`
	// ASCII rules the wide form out, for brokers that count otherwise.
	ASCII bool `json:"ascii,omitempty"`
}

// Bytes is how many bytes of the binary form fit. No text has more than 32,767
// bytes of UTF-8, the most that a string of Kafka's protocol may have.
func (l Limit) Bytes() int {
	n := asciiRoom(l.Units)
	if !l.ASCII {
		n = max(n, wideRoom(l.Units))
	}
	return max(n, 0)
}

// Fit says how a progress fitted its limit.
type Fit struct {
	Units   int   `json:"units"`          // of the text, UTF-16
	Wide    bool  `json:"wide,omitempty"` // the text is in the wide form
	Horizon int64 `json:"horizon"`        // the text tells nothing of this offset and above it
	Heads   int64 `json:"heads"`          // that the text tells of, markers among them

	// Short says that something had to be left out: what follows, or, in
	// other libraries' formats, finished records alone. What such a format has
	// no place for does not count.
	Short bool `json:"short,omitempty"`

	// What was left out, in the order in which that is done. Without its
	// attempts a record's failures are counted anew. A marker that is told as
	// a head will run again, and so will everything from Horizon on.
	LeftOutAttempts int   `json:"left_out_attempts,omitempty"`
	LeftOutMarkers  int   `json:"left_out_markers,omitempty"` // below Horizon, told as heads
	LeftOutHeads    int64 `json:"left_out_heads,omitempty"`   // markers among them
	LeftOutCrashes  int   `json:"left_out_crashes,omitempty"`
}

// Encoder writes progress in fronta's format. The zero Encoder is ready. It
// keeps the memory that it needed for the next time, and serves one goroutine
// at a time.
type Encoder struct {
	// What the progress has that can be written.
	from     int64
	end      int64     // its horizon
	segments []Segment // without Heads and Markers
	ranges   []Range   // of heads; those of two segments that touch are one
	before   []uint64  // heads before each of ranges, and all of them at the end
	markers  []uint64  // as numbers of heads
	attempts []numbered
	crashes  []Count
	tag      uint32
	about    [20]byte // what tag is computed from

	// The heads, coded, and the state after them.
	coded  []byte
	state  coder
	steady bool
	second []byte // of the way of coding that was not taken
	sizes  []int  // about the length of the learning way before each of ranges

	lists [2]list
	data  []byte // the whole
}

// numbered is a number of attempts, less 1, and the head's.
type numbered struct{ head, n uint64 }

// cut is how much of a progress is written.
type cut struct {
	heads                      uint64
	markers, attempts, crashes int
}

// Append appends the text for p, which is committed for the partition of b, to
// dst. It never fails: what does not fit is left out.
//
// The text is ASCII while that fits, otherwise of letters that hold 15 bits. If
// that does not fit either, these are left out: attempts, the highest offsets
// first; the difference between markers and heads, likewise; the highest
// heads, and with them all that is known of offsets from the first of those
// on; crashes, the highest first. If nothing fits, nothing is appended.
//
// p must be valid: its segments ascend, its heads are within their segments,
// the first one is the committed offset, markers and attempts are heads. What
// contradicts that is left out, heads with all that follows. p is not changed
// and not kept.
func (e *Encoder) Append(dst []byte, p *Progress, b Binding, l Limit) ([]byte, Fit) {
	all := e.prepare(p, &b)
	c, ok := cut{}, false
	if p.Offset >= 0 {
		c, ok = e.fit(p, all, l.Bytes())
	}
	fit := Fit{Horizon: p.Offset}
	if ok {
		fit.Horizon, fit.Heads = e.horizon(c.heads), int64(c.heads)
	}
	fit.LeftOutAttempts = len(p.Attempts) - c.attempts
	fit.LeftOutCrashes = len(p.Crashes) - c.crashes
	fit.LeftOutMarkers = sort.Search(len(e.markers), func(i int) bool { return e.markers[i] >= c.heads }) - c.markers
	for i := range p.Segments {
		for _, r := range p.Segments[i].Heads {
			fit.LeftOutHeads = addSaturating(fit.LeftOutHeads, max(r.To-r.From, 0))
		}
	}
	fit.LeftOutHeads -= fit.Heads
	fit.Short = !ok || fit.Horizon < p.Horizon() || fit.LeftOutAttempts > 0 || fit.LeftOutMarkers > 0 || fit.LeftOutCrashes > 0
	if !ok {
		return dst, fit
	}
	n := len(e.data)
	if n <= asciiRoom(l.Units) {
		fit.Units = asciiUnits(n)
		return appendASCII(dst, e.data), fit
	}
	fit.Units, fit.Wide = wideUnits(n), true
	return appendWide(dst, e.data), fit
}

func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// prepare takes from p what can be written.
func (e *Encoder) prepare(p *Progress, b *Binding) cut {
	copy(e.about[:], b.TopicID[:])
	binary.BigEndian.PutUint32(e.about[len(b.TopicID):], uint32(b.Partition))
	e.tag = crc32.Checksum(e.about[:], castagnoli)

	e.from, e.end = p.Offset, p.Offset
	e.segments, e.ranges, e.before = e.segments[:0], e.ranges[:0], e.before[:0]
	e.markers, e.attempts, e.crashes = e.markers[:0], e.attempts[:0], e.crashes[:0]
	e.sizes = e.sizes[:0]
	for i := range p.Segments {
		s := &p.Segments[i]
		if !e.valid(s) {
			break
		}
		for _, r := range s.Heads {
			if n := len(e.ranges); n > 0 && e.ranges[n-1].To == r.From {
				e.ranges[n-1].To = r.To
			} else {
				e.ranges = append(e.ranges, r)
			}
		}
		e.segments = append(e.segments, Segment{End: s.End, Order: s.Order, Check: s.Check})
		e.end = s.End
	}
	heads := uint64(0)
	for _, r := range e.ranges {
		e.before = append(e.before, heads)
		heads += uint64(r.To - r.From)
	}
	e.before = append(e.before, heads)

	w := walk{ranges: e.ranges}
	last := int64(-1)
	for i := range e.segments {
		for _, m := range p.Segments[i].Markers {
			if m <= last {
				continue
			}
			if n, ok := w.number(m); ok {
				e.markers = append(e.markers, n)
				last = m
			}
		}
	}
	w, last = walk{ranges: e.ranges}, -1
	for _, a := range p.Attempts {
		if a.Offset <= last || a.N <= 0 {
			continue
		}
		if n, ok := w.number(a.Offset); ok {
			e.attempts = append(e.attempts, numbered{n, uint64(min(a.N, maxInt)) - 1})
			last = a.Offset
		}
	}
	last = -1
	for _, c := range p.Crashes {
		if c.Offset > last && c.N > 0 {
			e.crashes = append(e.crashes, Count{Offset: c.Offset, N: min(c.N, maxInt)})
			last = c.Offset
		}
	}
	return cut{heads, len(e.markers), len(e.attempts), len(e.crashes)}
}

// valid says whether a segment can follow those that were taken.
func (e *Encoder) valid(s *Segment) bool {
	if s.End <= e.end {
		return false
	}
	if len(e.segments) == 0 && (len(s.Heads) == 0 || s.Heads[0].From != e.from) {
		return false
	}
	at := e.end
	for _, r := range s.Heads {
		if r.From < at || r.To <= r.From || r.To > s.End {
			return false
		}
		at = r.To
	}
	return true
}

// horizon is where a text with so many heads ends.
func (e *Encoder) horizon(heads uint64) int64 {
	switch heads {
	case 0:
		return e.from
	case e.before[len(e.ranges)]:
		return e.end
	}
	i := e.rangeOf(heads)
	return e.ranges[i].From + int64(heads-e.before[i])
}

// rangeOf is the range of a head.
func (e *Encoder) rangeOf(head uint64) int {
	return sort.Search(len(e.ranges), func(i int) bool { return e.before[i+1] > head })
}

// fit leaves as much as there is room for in e.data, and says how much that
// is. It is false if there is none for the least that is said.
func (e *Encoder) fit(p *Progress, all cut, room int) (c cut, ok bool) {
	c = all
	if e.encodeHeads(c.heads, room) {
		if e.finish(p, c) <= room {
			return c, true
		}
		c.attempts = 0
		if e.finish(p, c) <= room {
			c.attempts = sort.Search(all.attempts, func(n int) bool {
				c.attempts = n + 1
				return e.finish(p, c) > room
			})
			return c, e.finish(p, c) <= room
		}
		c.markers = 0
		if e.finish(p, c) <= room {
			c.markers = sort.Search(all.markers, func(n int) bool {
				c.markers = n + 1
				return e.finish(p, c) > room
			})
			return c, e.finish(p, c) <= room
		}
	}
	c.attempts, c.markers = 0, 0
	if c.heads = e.fitHeads(p, c, room); c.heads > 0 {
		return c, true
	}
	for e.finish(p, c) > room {
		if c.crashes == 0 {
			return c, false
		}
		c.crashes--
	}
	return c, true
}

// fitHeads finds how many of the heads there is room for, nearly, and leaves
// them in e.data. All of them are too many. How much some of them take is
// estimated, and known when they are encoded, which is done a few times.
func (e *Encoder) fitHeads(p *Progress, c cut, room int) uint64 {
	last := uint64(0) // what e.data has
	least, most := uint64(0), c.heads
	leastSize, mostSize := e.estimate(p, cut{crashes: c.crashes}), e.estimate(p, c)
	budget := room
	for try := range 12 {
		if most-least <= 1 {
			break
		}
		inside := most - least - 1
		if try < 4 {
			// What was estimated and what it was tell what to aim at.
			c.heads = least + max(uint64(sort.Search(int(min(inside, math.MaxInt)), func(n int) bool {
				c.heads = least + uint64(n) + 1
				return e.estimate(p, c) > budget
			})), 1)
		} else {
			part := float64(room-leastSize) / float64(max(mostSize-leastSize, 1))
			c.heads = least + 1 + uint64(min(max(part, 0.05), 0.95)*float64(inside-1))
		}
		size := room + room/8 + 64
		if e.encodeHeads(c.heads, room) {
			size = e.finish(p, c)
		}
		last = c.heads
		budget += room - size
		if size > room {
			most, mostSize = c.heads, size
			continue
		}
		if least, leastSize = c.heads, size; room-size <= room/256 {
			break
		}
	}
	if last != least && least > 0 {
		c.heads = least
		e.encodeHeads(least, room)
		e.finish(p, c)
	}
	return least
}

// estimate is about how large the data is.
func (e *Encoder) estimate(p *Progress, c cut) int {
	e.header(p, c)
	if c.heads == 0 {
		return len(e.data)
	}
	window, ranges := e.extent(c.heads)
	size := int(min(steadyBits(window, c.heads, ranges)/8, math.MaxInt32))
	if i := int(ranges) - 1; i < len(e.sizes) {
		size = min(size, e.sizes[i])
	}
	return max(len(e.data)+size+1, padded(int(ranges)))
}

// padded is the least size of data with so many ranges, markers and attempts.
func padded(items int) int { return (items + itemsPerByte - 1) / itemsPerByte }

// steadyBits is what steady lists of runs and gaps take.
func steadyBits(window, heads, ranges uint64) float64 {
	return listBits(heads-ranges, ranges) + listBits(window-heads-(ranges-1), ranges)
}

// extent is that of some heads, the first of all.
func (e *Encoder) extent(heads uint64) (window, ranges uint64) {
	return uint64(e.horizon(heads) - e.from), uint64(e.rangeOf(heads-1)) + 1
}

// listBits is what a steady list takes.
func listBits(sum, count uint64) float64 {
	s, c := float64(sum), float64(count)
	return entropy(s+c, c)
}

// entropy is what one set of k out of n takes in bits, if all such sets are
// alike and their number k is an expectation.
func entropy(n, k float64) float64 {
	if k <= 0 || k >= n {
		return 0
	}
	return k*math.Log2(n/k) + (n-k)*math.Log1p(k/(n-k))*math.Log2E
}

// encodeHeads leaves some heads, the first of all, coded the smaller way. It
// is false if they take much more than there is room for.
func (e *Encoder) encodeHeads(heads uint64, room int) bool {
	if heads == 0 {
		e.state.begin(e.coded[:0])
		return true
	}
	window, ranges := e.extent(heads)
	steady := steadyBits(window, heads, ranges) / 8
	enough := room + room/8 + 64

	e.steady = false
	e.coded = e.encodeRanges(e.coded, window, heads, ranges, enough)
	learned := len(e.coded)
	if float64(learned) <= steady && learned <= enough {
		return true
	}
	if steady > float64(enough) {
		return false
	}
	state := e.state
	e.steady = true
	e.second = e.encodeRanges(e.second, window, heads, ranges, enough)
	if len(e.second) >= learned {
		e.steady, e.state = false, state
		return learned <= enough
	}
	e.coded, e.second = e.second, e.coded
	return len(e.coded) <= enough
}

// encodeRanges encodes into out until that is longer than enough.
func (e *Encoder) encodeRanges(out []byte, window, heads, ranges uint64, enough int) []byte {
	e.state.begin(out[:0])
	runs, gaps := &e.lists[0], &e.lists[1]
	runs.init(heads-ranges, ranges, e.steady)
	gaps.init(window-heads-(ranges-1), ranges, e.steady)
	for i, r := range e.ranges[:ranges-1] {
		if !e.steady {
			if i == len(e.sizes) {
				e.sizes = append(e.sizes, 0)
			}
			e.sizes[i] = len(e.state.out)
		}
		if len(e.state.out) > enough {
			break
		}
		runs.put(&e.state, uint64(r.To-r.From)-1)
		gaps.put(&e.state, uint64(e.ranges[i+1].From-r.To)-1)
	}
	return e.state.out
}

// finish assembles the data and says how long it is. The heads are coded.
func (e *Encoder) finish(p *Progress, c cut) int {
	e.header(p, c)
	if c.heads > 0 {
		e.data = append(e.data, e.coded...)
		s := e.state
		s.out = e.data
		e.encodeMarkers(&s, c)
		e.encodeAttempts(&s, c)
		e.data = s.end()
		for least := padded(e.rangeOf(c.heads-1) + 1 + c.markers + c.attempts); len(e.data) < least; {
			e.data = append(e.data, 0)
		}
	}
	binary.BigEndian.PutUint32(e.data[checksumAt:], checksum(e.data))
	return len(e.data)
}

func (e *Encoder) encodeMarkers(s *coder, c cut) {
	if c.markers == 0 {
		return
	}
	places := &e.lists[0]
	places.init(c.heads-uint64(c.markers), uint64(c.markers)+1, false)
	next := uint64(0)
	for _, m := range e.markers[:c.markers] {
		places.put(s, m-next)
		next = m + 1
	}
}

func (e *Encoder) encodeAttempts(s *coder, c cut) {
	if c.attempts == 0 {
		return
	}
	places, times := &e.lists[0], &e.lists[1]
	places.init(c.heads-uint64(c.attempts), uint64(c.attempts)+1, false)
	times.init(e.failures(c), uint64(c.attempts), false)
	next := uint64(0)
	for i, a := range e.attempts[:c.attempts] {
		places.put(s, a.head-next)
		next = a.head + 1
		if i < c.attempts-1 {
			times.put(s, a.n)
		}
	}
}

// failures is the sum of what is coded of attempts.
func (e *Encoder) failures(c cut) (sum uint64) {
	for _, a := range e.attempts[:c.attempts] {
		sum += a.n
	}
	return sum
}

// header leaves everything before the coded lists in e.data.
func (e *Encoder) header(p *Progress, c cut) {
	d := append(e.data[:0], version, 0, 0, 0, 0) // the checksum comes last
	flags := uint64(0)
	for _, f := range [...]struct {
		flag uint64
		is   bool
	}{
		{flagClean, p.Clean},
		{flagSegments, c.heads > 0},
		{flagSteady, c.heads > 0 && e.steady},
		{flagMarkers, c.markers > 0},
		{flagAttempts, c.attempts > 0},
		{flagStarts, p.Starts > 0},
		{flagReach, p.Reach > 0},
		{flagSuspect, p.Suspect >= 0},
		{flagCrashes, c.crashes > 0},
	} {
		if f.is {
			flags |= f.flag
		}
	}
	d = binary.AppendUvarint(d, flags)
	d = binary.BigEndian.AppendUint32(d, e.tag)
	d = binary.AppendUvarint(d, uint64(p.Offset))
	d = binary.AppendUvarint(d, uint64(max(p.Fence, 0)))
	d = binary.AppendUvarint(d, uint64(int64(max(p.Epoch, -1))+1))
	if p.Starts > 0 {
		d = binary.AppendUvarint(d, uint64(min(p.Starts, maxInt)))
	}
	if p.Reach > 0 {
		d = appendNear(d, p.Reach, p.Offset)
	}
	if p.Suspect >= 0 {
		d = appendNear(d, p.Suspect, p.Offset)
	}
	if c.crashes > 0 {
		d = binary.AppendUvarint(d, uint64(c.crashes)-1)
		last := int64(0)
		for i, x := range e.crashes[:c.crashes] {
			if i == 0 {
				d = appendNear(d, x.Offset, p.Offset)
			} else {
				d = binary.AppendUvarint(d, uint64(x.Offset-last)-1)
			}
			d = binary.AppendUvarint(d, uint64(x.N)-1)
			last = x.Offset
		}
	}
	if c.heads > 0 {
		d = e.appendSegments(d, c)
	}
	e.data = d
}

func (e *Encoder) appendSegments(d []byte, c cut) []byte {
	horizon, start := e.horizon(c.heads), e.from
	lastHead := e.ranges[e.rangeOf(c.heads-1)].To - 1
	for i := range e.segments {
		s := &e.segments[i]
		flags, check := byte(0), s.Check
		if s.End < horizon {
			flags |= kindMore
		}
		if s.End > horizon && lastHead < start {
			check = 0 // the head that it is of is left out
		}
		if check != 0 {
			flags |= kindCheck
		}
		d = appendOrder(d, s.Order, flags)
		end := min(s.End, horizon)
		d = binary.AppendUvarint(d, uint64(end-start)-1)
		if check != 0 {
			d = binary.BigEndian.AppendUint32(d, check)
		}
		if s.End >= horizon {
			break
		}
		start = end
	}
	_, ranges := e.extent(c.heads)
	d = binary.AppendUvarint(d, c.heads-1)
	d = binary.AppendUvarint(d, ranges-1)
	if c.markers > 0 {
		d = binary.AppendUvarint(d, uint64(c.markers)-1)
	}
	if c.attempts > 0 {
		d = binary.AppendUvarint(d, uint64(c.attempts)-1)
		d = binary.AppendUvarint(d, e.failures(c))
	}
	return d
}
