package queue

// ring is a double-ended queue of slots that grows and is never scanned.
type ring struct {
	slots []Slot // a power of two long
	first uint32
	n     uint32
}

func (r *ring) len() int { return int(r.n) }

func (r *ring) mask() uint32 { return uint32(len(r.slots) - 1) }

func (r *ring) pushBack(s Slot) {
	r.makeRoom()
	r.slots[(r.first+r.n)&r.mask()] = s
	r.n++
}

func (r *ring) pushFront(s Slot) {
	r.makeRoom()
	r.first--
	r.slots[r.first&r.mask()] = s
	r.n++
}

func (r *ring) popFront() (Slot, bool) {
	if r.n == 0 {
		return none, false
	}
	s := r.slots[r.first&r.mask()]
	r.first++
	r.n--
	return s, true
}

func (r *ring) makeRoom() {
	if int(r.n) < len(r.slots) {
		return
	}
	bigger := make([]Slot, max(16, 2*len(r.slots)))
	for i := range r.n {
		bigger[i] = r.slots[(r.first+i)&r.mask()]
	}
	r.slots, r.first = bigger, 0
}
