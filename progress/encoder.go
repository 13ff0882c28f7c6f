package progress

import (
	"encoding/binary"
	"math"
	"sort"
)

// Limit is how long a text may be.
type Limit struct {
	// Units is how many UTF-16 units the text may have, what Apache Kafka's
	// offset.metadata.max.bytes counts. 0 or less: not even one.
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

	// What had to be left out, in the order in which it is. Records between
	// Horizon and the progress's own horizon will run again, whether they are
	// heads or finished; so will those of LeftOutMarkers, which the text has
	// as heads.
	LeftOutAttempts int   `json:"left_out_attempts,omitempty"`
	LeftOutMarkers  int   `json:"left_out_markers,omitempty"`
	LeftOutHeads    int64 `json:"left_out_heads,omitempty"`
	LeftOutCrashes  int   `json:"left_out_crashes,omitempty"`
}

// Encoder writes progress in fronta's format. The zero Encoder is ready. It
// keeps what memory it needed for the next time, and serves one goroutine at a
// time.
type Encoder struct {
	from     int64
	segments []Segment // those that are written, Heads and Markers unset
	ranges   []Range   // of heads; those of two segments that touch are one
	before   []uint64  // heads before each of ranges, and all of them at the end
	markers  []uint64  // as numbers of heads
	attempts []numbered
	crashes  []Count

	coded []byte  // the heads
	state encoder // after them
	data  []byte
	kept  []Segment
}

type numbered struct {
	number uint64
	n      uint64
}

// cut is how much of a progress is written.
type cut struct {
	heads             uint64
	markers, attempts int
	crashes           int
}

// Append appends the text for p, committed for the partition of b, to dst. It
// never fails: what does not fit is left out.
//
// The text is ASCII while that fits, otherwise of letters that hold 15 bits. If
// that does not fit either, these are left out: attempts, the highest offsets
// first; the difference between markers and heads, likewise; the highest
// heads, and with them all that is said of offsets from the first such head on;
// the highest crashes. If nothing fits, nothing is appended.
//
// p is a valid progress: its segments ascend, its heads are within their
// segments, the first is the committed offset, markers and attempts are heads.
// What contradicts that is left out as if it did not fit. p is not kept.
func (e *Encoder) Append(dst []byte, p *Progress, b Binding, l Limit) ([]byte, Fit) {
	all := e.prepare(p)
	fit := Fit{Horizon: p.Offset}
	c, ok := all, false
	if p.Offset >= 0 {
		c, ok = e.fit(p, &b, all, l.Bytes())
	}
	if !ok {
		c = cut{}
	}
	fit.LeftOutAttempts = len(p.Attempts) - c.attempts
	fit.LeftOutCrashes = len(p.Crashes) - c.crashes
	heads, markers := int64(0), 0
	for i := range p.Segments {
		markers += len(p.Segments[i].Markers)
		for _, r := range p.Segments[i].Heads {
			heads = addSaturating(heads, max(r.To-r.From, 0))
		}
	}
	fit.LeftOutHeads = heads - int64(c.heads)
	for _, m := range e.markers {
		if m >= c.heads {
			markers--
		}
	}
	fit.LeftOutMarkers = max(markers-c.markers, 0)
	if !ok {
		return dst, fit
	}
	fit.Heads = int64(c.heads)
	fit.Horizon = e.horizon(c.heads)
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
func (e *Encoder) prepare(p *Progress) cut {
	e.from = p.Offset
	e.segments, e.ranges, e.before = e.segments[:0], e.ranges[:0], e.before[:0]
	e.markers, e.attempts, e.crashes = e.markers[:0], e.attempts[:0], e.crashes[:0]
	start, heads := p.Offset, uint64(0)
	for i := range p.Segments {
		s := &p.Segments[i]
		n := len(e.ranges)
		if s.End <= start || !e.addHeads(s, start, p.Offset, &heads) {
			e.ranges = e.ranges[:n]
			break
		}
		e.segments = append(e.segments, Segment{End: s.End, Order: s.Order, Check: s.Check})
		start = s.End
	}
	heads = 0
	for _, r := range e.ranges {
		e.before = append(e.before, heads)
		heads += uint64(r.To - r.From)
	}
	e.before = append(e.before, heads)
	if heads == 0 {
		e.segments = e.segments[:0]
	}

	w := walk{ranges: e.ranges}
	last := int64(-1)
	for i := range e.segments {
		for _, m := range p.Segments[i].Markers {
			if m > last {
				if n, ok := w.number(m); ok {
					e.markers = append(e.markers, n)
					last = m
				}
			}
		}
	}
	w, last = walk{ranges: e.ranges}, -1
	for _, a := range p.Attempts {
		if a.Offset > last && a.N > 0 {
			if n, ok := w.number(a.Offset); ok {
				e.attempts = append(e.attempts, numbered{n, uint64(min(a.N, maxInt)) - 1})
				last = a.Offset
			}
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

// addHeads adds the heads of a segment that begins at start. It is false if
// they are not valid.
func (e *Encoder) addHeads(s *Segment, start, offset int64, heads *uint64) bool {
	at := start
	for i, r := range s.Heads {
		if r.From < at || r.To <= r.From || r.To > s.End {
			return false
		}
		if len(e.ranges) == 0 && i == 0 && r.From != offset {
			return false
		}
		if n := len(e.ranges); n > 0 && e.ranges[n-1].To == r.From {
			e.ranges[n-1].To = r.To
		} else {
			e.ranges = append(e.ranges, r)
		}
		at = r.To
	}
	return true
}

// horizon is where a text with so many heads ends.
func (e *Encoder) horizon(heads uint64) int64 {
	if heads == 0 {
		return e.from
	}
	if heads == e.before[len(e.ranges)] {
		return e.segments[len(e.segments)-1].End
	}
	i := e.rangeOf(heads)
	return e.ranges[i].From + int64(heads-e.before[i])
}

// rangeOf is the range of the head with a number.
func (e *Encoder) rangeOf(number uint64) int {
	return sort.Search(len(e.ranges), func(i int) bool { return e.before[i+1] > number })
}

// fit leaves as much as has room in e.data, and says what that is. It is false
// if not even the header has.
func (e *Encoder) fit(p *Progress, b *Binding, c cut, room int) (cut, bool) {
	e.encodeHeads(c.heads)
	if e.finish(p, b, c) <= room {
		return c, true
	}
	if c.attempts > 0 {
		all := c.attempts
		c.attempts = 0
		if e.finish(p, b, c) <= room {
			c.attempts = sort.Search(all, func(n int) bool {
				c.attempts = n + 1
				return e.finish(p, b, c) > room
			})
			e.finish(p, b, c)
			return c, true
		}
	}
	if c.markers > 0 {
		all := c.markers
		c.markers = 0
		if e.finish(p, b, c) <= room {
			c.markers = sort.Search(all, func(n int) bool {
				c.markers = n + 1
				return e.finish(p, b, c) > room
			})
			e.finish(p, b, c)
			return c, true
		}
	}
	if all := c.heads; all > 1 {
		budget := room
		for range 8 {
			n := sort.Search(int(min(all-1, math.MaxInt)), func(n int) bool { return e.estimate(p, b, uint64(n)+1) > budget })
			if c.heads = uint64(n); n == 0 {
				break
			}
			e.encodeHeads(c.heads)
			size := e.finish(p, b, c)
			if size <= room {
				return c, true
			}
			budget -= size - room
		}
	}
	c.heads = 0
	for ; c.crashes > 0; c.crashes-- {
		if e.finish(p, b, c) <= room {
			return c, true
		}
	}
	return c, e.finish(p, b, c) <= room
}

// estimate is about the size of the data with so many heads and no markers or
// attempts.
func (e *Encoder) estimate(p *Progress, b *Binding, heads uint64) int {
	ranges := uint64(e.rangeOf(heads-1)) + 1
	window := uint64(e.horizon(heads) - e.from)
	bits := listBits(heads-ranges, ranges) + listBits(window-heads-(ranges-1), ranges)
	e.header(p, b, cut{heads: heads, crashes: len(e.crashes)})
	return len(e.data) + int(bits/8) + 1
}

// listBits is about what a list takes.
func listBits(sum, count uint64) float64 {
	s, c := float64(sum), float64(count)
	return entropy(s+c, c)
}

// entropy is that of n with k of them chosen, in bits.
func entropy(n, k float64) float64 {
	if k <= 0 || k >= n {
		return 0
	}
	return k*math.Log2(n/k) + (n-k)*math.Log2(n/(n-k))
}

// encodeHeads leaves the coded heads in e.coded and e.state.
func (e *Encoder) encodeHeads(heads uint64) {
	e.state.begin(e.coded[:0])
	if heads > 0 {
		ranges := uint64(e.rangeOf(heads-1)) + 1
		window := uint64(e.horizon(heads) - e.from)
		var runs, gaps list
		runs.init(heads-ranges, ranges)
		gaps.init(window-heads-(ranges-1), ranges)
		for i, r := range e.ranges[:ranges-1] {
			runs.put(&e.state, uint64(r.To-r.From)-1)
			gaps.put(&e.state, uint64(e.ranges[i+1].From-r.To)-1)
		}
	}
	e.coded = e.state.out
}

// finish assembles the data and says how long it is. The heads are coded.
func (e *Encoder) finish(p *Progress, b *Binding, c cut) int {
	for c.markers > 0 && e.markers[c.markers-1] >= c.heads {
		c.markers--
	}
	for c.attempts > 0 && e.attempts[c.attempts-1].number >= c.heads {
		c.attempts--
	}
	e.header(p, b, c)
	if c.heads > 0 {
		e.data = append(e.data, e.coded...)
		s := e.state
		s.out = e.data
		e.encodeMarkers(&s, c)
		e.encodeAttempts(&s, c)
		e.data = s.end()
		items := e.rangeOf(c.heads-1) + 1 + c.markers + c.attempts
		for len(e.data) < (items+itemsPerByte-1)/itemsPerByte {
			e.data = append(e.data, 0)
		}
	}
	binary.BigEndian.PutUint32(e.data[checksumAt:], checksum(e.data))
	return len(e.data)
}

func (e *Encoder) encodeMarkers(s *encoder, c cut) {
	if c.markers == 0 {
		return
	}
	var l list
	l.init(c.heads-uint64(c.markers), uint64(c.markers)+1)
	next := uint64(0)
	for _, m := range e.markers[:c.markers] {
		l.put(s, m-next)
		next = m + 1
	}
}

func (e *Encoder) encodeAttempts(s *encoder, c cut) {
	if c.attempts == 0 {
		return
	}
	var places, times list
	places.init(c.heads-uint64(c.attempts), uint64(c.attempts)+1)
	times.init(e.failures(c), uint64(c.attempts))
	next := uint64(0)
	for i, a := range e.attempts[:c.attempts] {
		places.put(s, a.number-next)
		next = a.number + 1
		if i < c.attempts-1 {
			times.put(s, a.n)
		}
	}
}

func (e *Encoder) failures(c cut) (sum uint64) {
	for _, a := range e.attempts[:c.attempts] {
		sum += a.n
	}
	return sum
}

// header leaves everything before the coded lists in e.data.
func (e *Encoder) header(p *Progress, b *Binding, c cut) {
	d := append(e.data[:0], version, 0, 0, 0, 0)
	flags := uint64(0)
	set := func(flag uint64, is bool) {
		if is {
			flags |= flag
		}
	}
	set(flagClean, p.Clean)
	set(flagSegments, c.heads > 0)
	set(flagSteady, c.heads > 0)
	set(flagMarkers, c.markers > 0)
	set(flagAttempts, c.attempts > 0)
	set(flagStarts, p.Starts > 0)
	set(flagReach, p.Reach > 0)
	set(flagSuspect, p.Suspect >= 0)
	set(flagCrashes, c.crashes > 0)
	d = binary.AppendUvarint(d, flags)
	d = binary.BigEndian.AppendUint32(d, b.tag())
	d = binary.AppendUvarint(d, uint64(p.Offset))
	d = binary.AppendUvarint(d, uint64(max(p.Fence, 0)))
	d = binary.AppendUvarint(d, uint64(max(p.Epoch, -1)+1))
	if flags&flagStarts != 0 {
		d = binary.AppendUvarint(d, uint64(min(p.Starts, maxInt)))
	}
	if flags&flagReach != 0 {
		d = appendNear(d, p.Reach, p.Offset)
	}
	if flags&flagSuspect != 0 {
		d = appendNear(d, p.Suspect, p.Offset)
	}
	if c.crashes > 0 {
		d = binary.AppendUvarint(d, uint64(c.crashes))
		last := p.Offset
		for i, x := range e.crashes[:c.crashes] {
			if i == 0 {
				d = appendNear(d, x.Offset, last)
			} else {
				d = binary.AppendUvarint(d, uint64(x.Offset-last-1))
			}
			d = binary.AppendUvarint(d, uint64(x.N-1))
			last = x.Offset
		}
	}
	if c.heads > 0 {
		d = e.appendSegments(d, c)
	}
	e.data = d
}

func (e *Encoder) appendSegments(d []byte, c cut) []byte {
	horizon := e.horizon(c.heads)
	start := e.from
	for i := range e.segments {
		s := &e.segments[i]
		more, check := s.End < horizon, s.Check
		flags := byte(0)
		if more {
			flags |= kindMore
		}
		if check != 0 {
			flags |= kindCheck
		}
		d = appendOrder(d, s.Order, flags)
		end := min(s.End, horizon)
		d = binary.AppendUvarint(d, uint64(end-start-1))
		if check != 0 {
			d = binary.BigEndian.AppendUint32(d, check)
		}
		start = end
		if !more {
			break
		}
	}
	ranges := uint64(e.rangeOf(c.heads-1)) + 1
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
