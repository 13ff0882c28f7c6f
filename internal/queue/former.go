package queue

// While a stretch whose order is not the owner's own has unfinished records,
// those obey both orders: each is in a lane of the owner's order, like any
// record, and in one of the stretch's order. So the first unfinished record of
// each of the latter still tells what is unfinished in the stretch, as it did
// for the owner before. Without that, records could be finished in an order
// that no set of heads describes.
//
// Records above the stretch know only the owner's order.

// link is a record's place in its lane of a former order.
type link struct {
	next Slot
	lane Lane
}

// AdmitFormer is Admit for a record of a segment in a former order: it waits
// for the records before it in lane and in formerLane, its lane of the former
// order.
func (p *Partition) AdmitFormer(offset int64, lane, formerLane Lane) (s Slot, ok bool) {
	if p.past == nil {
		return p.Admit(offset, lane)
	}
	return p.admitAfter(offset, lane, formerLane, true)
}

// admitAfter is Admit for a partition with a past.
func (p *Partition) admitAfter(offset int64, lane, formerLane Lane, both bool) (Slot, bool) {
	if offset < p.horizon {
		return none, false
	}
	p.pass(offset)
	if p.Resuming() && !p.expected(offset, lane, formerLane, both) {
		// Not as Recall had it. Nothing can be learned from such a record.
		p.forget(offset)
	}
	t := p.past
	if t == nil {
		return p.Admit(offset, lane)
	}
	before, floor := Slot(none), t.floor()
	if lane != Alone {
		before = p.lanes.last(p.details, lane, tagOf(lane))
	}
	p.past = nil
	s, _ := p.Admit(offset, lane)
	p.past = t

	st := t.reading()
	own := Alone
	if st != nil {
		st.unfinished++
		own = p.recalled()
	}
	// Records of the lane before this one may lie in a stretch that is told
	// of by itself: then this is a head too.
	switch {
	case st != nil && st.Former:
		p.chain(st, own, s, before)
	case before == none:
		t.pairs++
	case p.Offset(before) < floor:
		p.records[s].flags |= first
		t.pairs++
	}
	p.pass(offset + 1)
	return s, true
}

// expected says whether a record is admitted the way Recall found it, to the
// stretch that is being read.
func (p *Partition) expected(offset int64, lane, formerLane Lane, both bool) bool {
	t, s := p.past, p.past.reading()
	if both {
		lane = formerLane
		if s.Unordered {
			lane = Alone
		}
	}
	return t.pending.offset == offset && t.pending.lane == lane && s.Former == both
}

// floor is where the stretch starts to which the next record is admitted.
func (t *past) floor() int64 {
	switch s := t.reading(); {
	case s != nil:
		return s.start
	case t.at == 0:
		return 0
	default:
		return t.stretches[t.at-1].End
	}
}

// recalled is called when the pending record was admitted: its lane is
// learned, and needs no marker.
func (p *Partition) recalled() (lane Lane) {
	t := p.past
	q := t.pending
	t.pending.offset = none
	if q.head {
		t.passHead()
	}
	if q.lane == Alone {
		return Alone
	}
	if i, known := t.learned[q.lane]; known {
		p.unmark(&t.lanes[i])
	} else {
		t.learn(q.lane, q.check)
	}
	return q.lane
}

// chain puts the record in slot s, admitted behind before in its lane, into
// lane of the stretch's order too.
func (p *Partition) chain(st *stretch, lane Lane, s, before Slot) {
	t, r := p.past, &p.records[s]
	r.flags |= former
	if before != none {
		r.flags |= behindLane
	}
	if lane == Alone {
		t.pairs++
		return
	}
	t.links[s] = link{next: none, lane: lane}
	last, ok := st.tails[lane]
	if st.tails == nil {
		st.tails = map[Lane]Slot{}
	}
	st.tails[lane] = s
	if !ok {
		t.pairs++
		return
	}
	l := t.links[last]
	l.next = s
	t.links[last] = l
	r.flags |= behindFormer
	if r.state == Ready {
		r.state = Queued
		p.ready.popBack()
	}
}

// unblock takes from a record one of the reasons why it is queued.
func (p *Partition) unblock(s Slot, reason flags) {
	r := &p.records[s]
	r.flags &^= reason
	if r.flags&(behindLane|behindFormer) == 0 {
		r.state = Ready
		p.ready.pushBack(s)
	}
}

// finishAfter is the rest of Finish for a partition with a past.
func (p *Partition) finishAfter(s Slot) {
	t, r := p.past, &p.records[s]
	i := t.find(p.Offset(s))
	lane, last := Alone, true // of its stretch's order, and the only one of it there
	if r.tag != 0 {
		p.keyed--
		lane = p.details[s].lane
		if next := r.next; next != none {
			last = p.records[next].flags&(former|first) != 0
			p.unblock(next, behindLane)
		} else {
			p.lanes.remove(r.tag, s)
		}
	}
	if r.flags&former != 0 {
		l, ok := t.links[s]
		lane, last = l.lane, true
		if ok {
			delete(t.links, s)
			if l.next != none {
				last = false
				p.unblock(l.next, behindFormer)
			} else {
				delete(t.stretches[i].tails, lane)
			}
		}
	}
	if last {
		t.pairs--
	}
	if last && lane != Alone && i == t.at && i < len(t.stretches) {
		// More of the lane may be to be read in the stretch.
		t.mark(&t.lanes[t.learned[lane]], r.chunk, r.bit)
	} else {
		p.frontier.remove(r.chunk, r.bit)
	}
	p.release(s)
	if i < len(t.stretches) {
		t.stretches[i].unfinished--
		p.settle()
	}
}
