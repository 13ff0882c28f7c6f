package queue

import (
	"fmt"
	"math"

	"github.com/fronta-mq/fronta/progress"
)

// What histories do with former owners.

// segments are such as former owners tell, and such as none would: the core
// has to make the same of them as its twin.
func (h *history) segments(pick choose, start int64) []Segment {
	segments := make([]Segment, 1+pick(4))
	for i := range segments {
		s := &segments[i]
		s.Former, s.Unordered = pick(2) == 0, pick(4) == 0
		width := []int64{1, 2, 8, 20, 60, 600, 1 << 40}[pick(7)]
		s.End = start + width
		// Ranges of heads, the first one often at the very start.
		at := start
		for n := pick(12); n > 0 && at < s.End; n-- {
			if at > start || pick(3) > 0 {
				at += int64(pick(5))
			}
			r := progress.Range{From: at, To: at + 1 + int64(pick(3)*pick(3))}
			if pick(20) == 0 {
				r.To += width / 2
			}
			if r.To > s.End {
				break
			}
			s.Heads = append(s.Heads, r)
			at = r.To + 1
		}
		for _, r := range s.Heads {
			for o := r.From; o < min(r.To, r.From+5); o++ {
				if pick(4) == 0 {
					s.Markers = append(s.Markers, o)
				}
			}
		}
		if len(s.Heads) > 0 {
			switch first := s.Heads[0].From; pick(8) {
			case 0:
			case 1:
				s.Check = 1 // of no lane
			default:
				s.Check = checkOf(h.laneAt(i, first))
			}
		}
		start = s.End
	}
	// An order of its own has no lanes. The owner's is the same in all
	// segments.
	for i := range segments {
		if s := &segments[i]; s.Unordered {
			s.Former = true
		}
	}
	return segments
}

// laneAt is the lane of the record at an offset by the order of a segment, or
// by the owner's, −1.
func (h *history) laneAt(segment int, offset int64) Lane {
	x := (uint64(offset) + h.salt + uint64(segment+1)<<48) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return h.lanes[(x>>32)%uint64(len(h.lanes))]
}

func checkOf(l Lane) uint32 {
	return uint32(l>>32) ^ uint32(l) | 2
}

// read reads the next record and does with it what an owner does.
func (h *history) read(pick choose) error {
	offset := h.twin.horizon
	if pick(4) == 0 {
		offset += h.steps[pick(len(h.steps))] - 1
	}
	// Seldom is a head missing.
	if next, ok := h.twin.nextStored(h.twin.horizon); ok && next < offset && pick(10) > 0 {
		offset = next
	}
	if s := h.twin.reading(); s != nil && pick(12) == 0 {
		offset = max(offset, s.End-1)
		if next, ok := h.twin.nextStored(h.twin.horizon); ok && pick(6) > 0 {
			offset = min(offset, next)
		}
	}
	return h.readAt(pick, offset)
}

func (h *history) readAt(pick choose, offset int64) error {
	if offset == math.MaxInt64 {
		return nil
	}
	index, former, ok := h.p.SegmentAt(offset)
	if !h.p.Resuming() {
		ok = false
	}
	lane := h.laneAt(-1, offset)
	own := lane
	if ok && former {
		own = h.laneAt(index, offset)
	}
	for range 1 + pick(8)/7 {
		resuming := h.p.Resuming()
		got, want := h.p.Recall(offset, own, checkOf(own)), h.twin.recollect(offset, own, checkOf(own))
		h.log("recall %d lane %x: %v", offset, own, got)
		if got != want {
			return fmt.Errorf("Recall of offset %d is %v, the twin says %v", offset, got, want)
		}
		if err := h.check(); err != nil {
			return fmt.Errorf("after Recall: %w", err)
		}
		if got == Finished {
			return nil
		}
		if got != Unfinished || !resuming {
			former = false
		}
	}
	if pick(20) == 0 {
		return nil // it comes again, or never
	}
	if !h.p.Resuming() || !ok || !former {
		return h.admitAt(offset, lane)
	}
	if pick(30) == 0 {
		own = h.lanes[pick(len(h.lanes))]
	}
	s, ok := h.p.AdmitFormer(offset, lane, own)
	return h.admitted(fmt.Sprintf("admit former %x", own), h.twin.admitFormer(offset, lane, own), offset, lane, s, ok)
}

func (h *history) compareSnapshots(choose) error {
	for _, exact := range []bool{false, true} {
		if err := h.twin.compareSnapshot(h.p, &h.snapshot, exact); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) segmentAt(pick choose) error {
	offset := h.twin.horizon + int64(pick(100)-50)
	index, former, ok := h.p.SegmentAt(offset)
	i, f, o := h.twin.segmentAt(offset)
	if i != index || f != former || o != ok {
		return fmt.Errorf("SegmentAt(%d) is %d, %v, %v, the twin says %d, %v, %v", offset, index, former, ok, i, f, o)
	}
	return nil
}

func (h *history) setAttempts(pick choose) error {
	if len(h.twin.unfinished) == 0 {
		return nil
	}
	r, n := h.twin.unfinished[pick(len(h.twin.unfinished))], pick(4)
	h.log("attempts of slot %d: %d", r.slot, n)
	h.p.SetAttempts(r.slot, n)
	r.attempts = n
	return nil
}

func (h *history) distrust(choose) error {
	h.log("forget")
	h.p.Forget()
	h.twin.loseTrust()
	return nil
}
