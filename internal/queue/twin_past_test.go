package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fronta-mq/fronta/progress"
)

// The part of the twin that knows from former owners.

// twinSegment is a segment of a former owner.
type twinSegment struct {
	Segment
	index int
	start int64
}

// twinLane is a lane that was learned in the segment that is being read.
type twinLane struct {
	lane   Lane
	newest int64 // the newest finished record, −1 if none is
	check  uint32
}

type twinRecall struct {
	offset int64
	lane   Lane
	check  uint32
}

func (w *twin) resume(start int64, segments []Segment) {
	w.horizon = start
	for i, s := range segments {
		w.told = append(w.told, twinSegment{s, i, start})
		start = s.End
	}
}

// reading is the segment that is being read, or nil.
func (w *twin) reading() *twinSegment {
	for i := range w.told {
		if w.told[i].End > w.horizon {
			return &w.told[i]
		}
	}
	return nil
}

// segment is the place of the segment that offset lies in, len(told) for what
// lies above them all.
func (w *twin) segment(offset int64) int {
	for i := range w.told {
		if offset < w.told[i].End {
			return i
		}
	}
	return len(w.told)
}

func (w *twin) lane(l Lane) *twinLane {
	for _, known := range w.learned {
		if known.lane == l {
			return known
		}
	}
	return nil
}

// known is the offset up to which something is known.
func (w *twin) known() int64 {
	if w.reading() == nil {
		return w.horizon
	}
	return w.told[len(w.told)-1].End
}

// stored are the heads in a segment that were not come to.
func (w *twin) stored(s *twinSegment) (heads []progress.Range, markers []int64) {
	for _, r := range s.Heads {
		if r.From = max(r.From, w.horizon); r.From < r.To {
			heads = append(heads, r)
		}
	}
	for _, m := range s.Markers {
		if m >= w.horizon {
			markers = append(markers, m)
		}
	}
	return heads, markers
}

// nextStored is the first stored head from an offset on.
func (w *twin) nextStored(from int64) (int64, bool) {
	for i := range w.told {
		for _, r := range w.told[i].Heads {
			if r.To > from {
				return max(r.From, from), true
			}
		}
	}
	return 0, false
}

// markers are the finished records that stand for learned lanes of which
// nothing is unfinished in memory.
func (w *twin) markers() []int64 {
	var marks []int64
	for _, l := range w.learned {
		if !w.inMemory(l.lane) {
			marks = append(marks, l.newest)
		}
	}
	return marks
}

// inMemory says whether a record of a lane of the segment that is being read
// is unfinished.
func (w *twin) inMemory(l Lane) bool {
	s := w.reading()
	return slices.ContainsFunc(w.unfinished, func(r *twinRecord) bool { return r.offset >= s.start && r.own() == l })
}

// reach says that nothing more is delivered below offset. It answers whether
// no head was missing.
func (w *twin) reach(offset int64) bool {
	for s := w.reading(); s != nil; s = w.reading() {
		end := min(s.End, offset)
		if o, ok := w.nextStored(w.horizon); ok && o < end && !s.Unordered {
			w.missed = append(w.missed, o)
			w.forget(end)
			w.horizon = max(w.horizon, offset)
			w.prune()
			return false
		}
		w.horizon = max(w.horizon, end)
		if w.horizon < s.End {
			break
		}
		w.learned, w.recall = nil, nil
	}
	w.horizon = max(w.horizon, offset)
	w.prune()
	return true
}

// forget drops what is told of records from an offset on.
func (w *twin) forget(from int64) {
	s := w.reading()
	s.End = from
	w.told = slices.DeleteFunc(w.told, func(s twinSegment) bool { return s.start >= from || s.End <= s.start })
	w.learned, w.recall = nil, nil
	w.horizon = max(w.horizon, from)
	w.prune()
}

// prune drops the segments that need not be told apart from what follows.
func (w *twin) prune() {
	if w.reading() != nil {
		return
	}
	// The last one goes on in what follows if it has the owner's order.
	if n := len(w.told); n > 0 && !w.over && !w.told[n-1].Former {
		w.told = w.told[:n-1]
	}
	w.over = true
	for n := len(w.told); n > 0 && w.unfinishedIn(w.told[n-1].start, w.told[n-1].End) == 0; n = len(w.told) {
		w.told = w.told[:n-1]
	}
}

func (w *twin) unfinishedIn(from, to int64) int {
	n := 0
	for _, r := range w.unfinished {
		if r.offset >= from && r.offset < to {
			n++
		}
	}
	return n
}

func (w *twin) recollect(offset int64, l Lane, check uint32) Recollection {
	if len(w.told) == 0 {
		return Unfinished
	}
	if offset < w.horizon {
		return Finished
	}
	if !w.reach(offset) {
		return Missed
	}
	s := w.reading()
	if s == nil {
		return Unfinished
	}
	if s.Unordered {
		l = Alone
	}
	next, ok := w.nextStored(offset)
	head := ok && next == offset
	if head && offset == s.Heads[0].From && s.Check != 0 && s.Check != check {
		w.forget(offset)
		return Mismatch
	}
	known := w.lane(l)
	switch {
	case head && slices.Contains(s.Markers, offset):
		if l != Alone && known == nil {
			w.learned = append(w.learned, &twinLane{lane: l, newest: offset, check: check})
		} else if l != Alone && !w.inMemory(l) {
			known.newest = offset
		}
		w.reach1(offset)
		return Finished
	case head || known != nil:
		w.recall = &twinRecall{offset, l, check}
		return Unfinished
	default:
		w.reach1(offset)
		return Finished
	}
}

// reach1 steps over the record at the horizon.
func (w *twin) reach1(offset int64) {
	w.horizon = offset + 1
	if s := w.reading(); s == nil || s.start == w.horizon {
		w.learned, w.recall = nil, nil
	}
	w.prune()
}

func (w *twin) loseTrust() {
	s := w.reading()
	if s == nil {
		return
	}
	known := w.frontier()
	index := s.index
	w.forget(w.horizon)
	if known > w.horizon {
		w.told, w.over = []twinSegment{{Segment{End: known, Unordered: true}, index, w.horizon}}, false
	}
}

// segmentAt is what SegmentAt answers.
func (w *twin) segmentAt(offset int64) (int, bool, bool) {
	for i := range w.told {
		s := &w.told[i]
		if offset >= s.start && offset < s.End && (s.End > w.horizon || w.unfinishedIn(s.start, s.End) > 0) {
			return s.index, s.Former, true
		}
	}
	return none, false, false
}

// twinTold is a segment of a snapshot, and an offset at which it is known
// whose slot or check the first head's is.
type twinTold struct {
	index   int
	end     int64
	heads   []progress.Range
	markers []int64
	first   First
}

// isHead says whether nothing of r's lane is unfinished before it in its
// segment.
func (w *twin) isHead(r *twinRecord) bool {
	if r.own() == Alone {
		return true
	}
	for _, before := range w.unfinished {
		if before.offset < r.offset && before.own() == r.own() && w.segment(before.offset) == w.segment(r.offset) {
			return false
		}
	}
	return true
}

// tell lists the segments of a snapshot and the heads with attempts.
func (w *twin) tell() ([]twinTold, []progress.Count) {
	offset := w.frontier()
	var all []twinTold
	var attempts []progress.Count
	from := offset
	add := func(index int, end int64, s *twinSegment) {
		t := twinTold{index: index, end: end, first: First{Offset: none, Slot: none}}
		var heads []int64
		for _, r := range w.unfinished {
			if r.offset >= from && r.offset < end && w.isHead(r) {
				heads = append(heads, r.offset)
				if r.attempts > 0 {
					attempts = append(attempts, progress.Count{Offset: r.offset, N: r.attempts})
				}
				if t.first.Offset == none {
					t.first = First{Offset: r.offset, Slot: r.slot}
				}
			}
		}
		if s != nil && s == w.reading() {
			for _, l := range w.learned {
				if !w.inMemory(l.lane) {
					heads = append(heads, l.newest)
					t.markers = append(t.markers, l.newest)
					if t.first.Offset == none || l.newest < t.first.Offset {
						t.first = First{Offset: l.newest, Slot: none, Check: l.check, HasCheck: l.check != 0}
					}
				}
			}
		}
		slices.Sort(heads)
		slices.Sort(t.markers)
		for _, o := range heads {
			t.heads = append(t.heads, progress.Range{From: o, To: o + 1})
		}
		if s != nil && s.End > w.horizon {
			heads, markers := w.stored(s)
			t.heads = append(t.heads, heads...)
			t.markers = append(t.markers, markers...)
			if t.first.Offset == none && len(heads) > 0 {
				t.first = First{Offset: heads[0].From, Slot: none}
				if heads[0].From == s.Heads[0].From {
					t.first.Check, t.first.HasCheck = s.Check, s.Check != 0
				}
			}
		}
		t.heads = joined(t.heads)
		all = append(all, t)
		from = end
	}
	for i := range w.told {
		s := &w.told[i]
		if s.End > offset && (s.End > w.horizon || w.unfinishedIn(s.start, s.End) > 0) {
			add(s.index, s.End, s)
		}
	}
	if w.horizon > from {
		add(none, w.horizon, nil)
	}
	slices.SortFunc(attempts, func(a, b progress.Count) int { return cmp.Compare(a.Offset, b.Offset) })
	return all, attempts
}

// tellExact lists the unfinished offsets and says where the knowledge of them
// ends.
func (w *twin) tellExact() (heads []progress.Range, end int64, attempts []progress.Count) {
	for _, r := range w.unfinished {
		heads = append(heads, progress.Range{From: r.offset, To: r.offset + 1})
		if r.attempts > 0 {
			attempts = append(attempts, progress.Count{Offset: r.offset, N: r.attempts})
		}
	}
	if o := w.frontier(); slices.Contains(w.markers(), o) {
		heads = slices.Insert(heads, 0, progress.Range{From: o, To: o + 1})
	}
	end = w.horizon
	for i := range w.told {
		s := &w.told[i]
		if s.End <= w.horizon {
			continue
		}
		stored, _ := w.stored(s)
		if !s.Unordered && (len(stored) > 0 || s == w.reading() && len(w.learned) > 0) {
			break
		}
		heads = append(heads, stored...)
		end = s.End
	}
	return joined(heads), end, attempts
}

// joined are ranges in which those that touch are one.
func joined(ranges []progress.Range) []progress.Range {
	var out []progress.Range
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].To == r.From {
			out[n-1].To = r.To
			continue
		}
		out = append(out, r)
	}
	return out
}

// compareSnapshot says in what snapshots of p and the twin differ.
func (w *twin) compareSnapshot(p *Partition, s *Snapshot, exact bool) error {
	p.Snapshot(s, exact)
	firsts := make([]First, len(s.Segments))
	for i := range s.Segments {
		firsts[i] = s.Segments[i].First
	}
	s.Fill()
	want, attempts := w.tell()
	heads := int64(0)
	for _, t := range want {
		for _, r := range t.heads {
			heads += r.To - r.From
		}
	}
	if got := p.Heads(); got != heads {
		return fmt.Errorf("Heads is %d, the twin says %d", got, heads)
	}
	if exact {
		ranges, end, counts := w.tellExact()
		attempts, want = counts, nil
		if end > w.frontier() {
			want = []twinTold{{index: none, end: end, heads: ranges}}
		} else {
			attempts = nil
		}
	}
	if s.Offset != w.frontier() || len(s.Segments) != len(want) {
		return fmt.Errorf("the snapshot (exact %v) is at %d: %+v, the twin's at %d: %+v", exact, s.Offset, s.Segments, w.frontier(), want)
	}
	if exact {
		heads = 0
		for _, t := range s.Segments {
			for _, r := range t.Heads {
				heads += r.To - r.From
			}
		}
		if n := p.ExactHeads(); n < heads {
			return fmt.Errorf("ExactHeads is %d, there are %d", n, heads)
		}
	}
	horizon := s.Offset
	for i, t := range want {
		got := &s.Segments[i]
		if got.Index != t.index || got.End != t.end || !slices.Equal(got.Heads, t.heads) || !slices.Equal(got.Markers, t.markers) ||
			got.First != firsts[i] || !exact && got.First != t.first {
			return fmt.Errorf("segment %d of the snapshot (exact %v) at %d is %+v, the twin says %+v", i, exact, s.Offset, *got, t)
		}
		horizon = t.end
	}
	if s.Horizon != horizon {
		return fmt.Errorf("the snapshot ends at %d, the twin's at %d", s.Horizon, horizon)
	}
	if !slices.Equal(s.Attempts, attempts) {
		return fmt.Errorf("the snapshot (exact %v) tells of attempts %v, the twin's %v", exact, s.Attempts, attempts)
	}
	return nil
}
