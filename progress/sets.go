package progress

import (
	"encoding/base64"
	"math"
	"strings"
)

// What the formats of other libraries have in common: base64 of a set of
// finished offsets, in which each record counts by itself.

// spans is a set of finished offsets that is read in ascending order. It
// collects the unfinished ones between them.
type spans struct {
	at    int64 // everything below it is known
	most  int   // of heads
	count int
	heads []Range // unless they are only counted
	err   error
}

// collect calls read twice, to count the ranges and to collect them, so that
// no more is allocated than is needed. A text of so many bytes may tell of as
// many ranges as one of fronta's format.
func collect(text string, offset int64, read func(s *spans)) (Progress, error) {
	s := spans{at: offset, most: itemsPerByte * len(text)}
	counted := s
	if read(&counted); counted.err != nil {
		return Progress{}, counted.err
	}
	p := Progress{Offset: offset, Epoch: -1, Suspect: -1}
	if counted.at == offset {
		return p, nil
	}
	if counted.count > 0 {
		s.heads = make([]Range, 0, counted.count)
		read(&s)
	}
	p.Segments = []Segment{{End: counted.at, Order: "unordered", Heads: s.heads}}
	return p, nil
}

// unfinished takes n offsets, and says whether that was possible. It is not
// called twice without finished offsets in between.
func (s *spans) unfinished(n int64) bool {
	from := s.at
	if !s.finished(n) {
		return false
	}
	if n == 0 {
		return true
	}
	if s.count == s.most {
		s.err = refuse(Impossible, "it tells of more than %d ranges of unfinished records, too many for its length", s.most)
		return false
	}
	s.count++
	if s.heads != nil {
		s.heads = append(s.heads, Range{From: from, To: s.at})
	}
	return true
}

// finished takes n offsets.
func (s *spans) finished(n int64) bool {
	if n < 0 || n > math.MaxInt64-s.at {
		s.err = refuse(Impossible, "what it tells reaches beyond the highest offset there can be")
		return false
	}
	s.at += n
	return true
}

// fromBase64 decodes the standard alphabet, with the right padding or, unless
// padded is set, with none.
func fromBase64(text string, padded bool) ([]byte, bool) {
	if strings.ContainsAny(text, "\r\n") { // the decoder skips them
		return nil, false
	}
	e := base64.StdEncoding
	if !padded && !strings.HasSuffix(text, "=") {
		e = base64.RawStdEncoding
	}
	b, err := e.Strict().DecodeString(text)
	if err != nil {
		return nil, false
	}
	return b, true
}

// runs calls f with the finished and the unfinished offsets of p from the
// committed one on, in turns and in ascending order, until f is false. Markers
// are finished. It says where it came to: to the horizon, or to where p is not
// valid any more.
func (p *Progress) runs(f func(done bool, n int64) bool) (end int64) {
	at, from, doing := p.Offset, p.Offset, false // [from, at) is all finished or all not, and not given yet
	to := func(done bool, offset int64) bool {
		if done != doing && offset > at {
			if at > from && !f(doing, at-from) {
				return false
			}
			from, doing = at, done
		}
		at = offset
		return true
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		if s.End <= at {
			break
		}
		markers := s.Markers
		for _, r := range s.Heads {
			if r.From < at || r.To <= r.From || r.To > s.End {
				return finish(f, doing, from, at)
			}
			if !to(true, r.From) {
				return from
			}
			for ; len(markers) > 0 && markers[0] < r.To; markers = markers[1:] {
				if m := markers[0]; m >= at && (!to(false, m) || !to(true, m+1)) {
					return from
				}
			}
			if !to(false, r.To) {
				return from
			}
		}
		if !to(true, s.End) {
			return from
		}
	}
	return finish(f, doing, from, at)
}

func finish(f func(bool, int64) bool, done bool, from, at int64) int64 {
	if at > from && !f(done, at-from) {
		return from
	}
	return at
}

// leaveOut completes a Fit of a format that has nothing but a set: told is
// where the first offset lies of which it does not say that it is finished
// although it is, or p's horizon.
func (p *Progress) leaveOut(fit *Fit, told int64) {
	fit.Horizon = told
	for i := range p.Segments {
		for _, r := range p.Segments[i].Heads {
			fit.Heads = addSaturating(fit.Heads, max(min(r.To, told)-r.From, 0))
			fit.LeftOutHeads = addSaturating(fit.LeftOutHeads, max(r.To-max(r.From, told), 0))
		}
		for _, m := range p.Segments[i].Markers {
			if m < told {
				fit.Heads--
			} else {
				fit.LeftOutHeads--
			}
		}
	}
	fit.Short = told < p.Horizon()
}
