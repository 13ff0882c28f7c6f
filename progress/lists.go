package progress

// The lists of a progress: how its heads, markers and attempts are numbers
// whose count and sum are known, see runs.go.
//
// Heads are taken over all segments as runs that alternate with gaps, the first
// run at the committed offset. Runs that touch where two segments meet are one.
//
//	runs    as many as ranges; each less 1
//	gaps    as many as ranges, the last one up to the horizon; each but the last less 1
//
// They take turns: run, gap, run, gap, ... The last run and the last gap are
// what is left. Markers and attempts are among the heads, which are numbered.
//
//	markers   one number more than markers: the heads before the first marker, between the first and the second, ..., after the last
//	attempts  likewise, each followed by how often it failed, less 1

// walk goes through ranges of heads by the heads' numbers.
type walk struct {
	ranges []Range
	before uint64 // heads in the ranges that were left behind
}

// at is the offset of a head. Numbers never go down.
func (w *walk) at(number uint64) int64 {
	for {
		r := w.ranges[0]
		if n := uint64(r.To - r.From); number-w.before >= n {
			w.before += n
			w.ranges = w.ranges[1:]
			continue
		}
		return r.From + int64(number-w.before)
	}
}

// number is the number of the head at an offset. Offsets never go down.
func (w *walk) number(offset int64) (uint64, bool) {
	for len(w.ranges) > 0 {
		r := w.ranges[0]
		if offset < r.To {
			return w.before + uint64(offset-r.From), offset >= r.From
		}
		w.before += uint64(r.To - r.From)
		w.ranges = w.ranges[1:]
	}
	return 0, false
}

// ranges decodes the heads, cut where segments end. It is nil if they are not
// within the horizon.
func (d *decoder) ranges(all []Range, p *Progress, window, heads, ranges uint64, steady bool) []Range {
	var runs, gaps list
	runs.init(heads-ranges, ranges, steady)
	gaps.init(window-heads-(ranges-1), ranges, steady)
	segment, at := 0, p.Offset
	add := func(n int64) {
		for to := at + n; at < to; {
			for at >= p.Segments[segment].End {
				segment++
			}
			r := Range{From: at, To: min(to, p.Segments[segment].End)}
			all = append(all, r)
			at = r.To
		}
	}
	for range ranges - 1 {
		run, ok := runs.get(d)
		if !ok {
			return nil
		}
		gap, ok := gaps.get(d)
		if !ok {
			return nil
		}
		add(int64(run) + 1)
		at += int64(gap) + 1
	}
	add(int64(runs.left) + 1)
	return all
}

// split gives each segment its part of all heads.
func split(p *Progress, all []Range) {
	for i := range p.Segments {
		s := &p.Segments[i]
		n := 0
		for n < len(all) && all[n].From < s.End {
			n++
		}
		if n > 0 {
			s.Heads = all[:n:n]
		}
		all = all[n:]
	}
}

func (d *decoder) markers(p *Progress, all []Range, heads, markers uint64) bool {
	var l list
	l.init(heads-markers, markers+1, false)
	offsets := make([]int64, 0, markers)
	w := walk{ranges: all}
	number := uint64(0)
	for range markers {
		n, ok := l.get(d)
		if !ok {
			return false
		}
		number += n
		offsets = append(offsets, w.at(number))
		number++
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		n := 0
		for n < len(offsets) && offsets[n] < s.End {
			n++
		}
		if n > 0 {
			s.Markers = offsets[:n:n]
		}
		offsets = offsets[n:]
	}
	return true
}

func (d *decoder) attempts(p *Progress, all []Range, heads, attempts, failures uint64) bool {
	var places, times list
	places.init(heads-attempts, attempts+1, false)
	times.init(failures, attempts, false)
	p.Attempts = make([]Count, 0, attempts)
	w := walk{ranges: all}
	number := uint64(0)
	for i := range attempts {
		n, ok := places.get(d)
		if !ok {
			return false
		}
		t := times.left
		if i < attempts-1 {
			if t, ok = times.get(d); !ok {
				return false
			}
		}
		if t >= maxInt {
			return false
		}
		number += n
		p.Attempts = append(p.Attempts, Count{Offset: w.at(number), N: int(t) + 1})
		number++
	}
	return true
}
