package queue

// waitHeap orders the waiting records by the time they are due, and by offset
// where the times are equal. Each record knows its place, so that it can be
// asked when it is due.
type waitHeap []wait

type wait struct {
	due  Time
	slot Slot
}

func (h waitHeap) less(p *Partition, i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return p.Offset(h[i].slot) < p.Offset(h[j].slot)
}

func (h waitHeap) swap(p *Partition, i, j int) {
	h[i], h[j] = h[j], h[i]
	p.details[h[i].slot].wait = int32(i)
	p.details[h[j].slot].wait = int32(j)
}

func (h *waitHeap) push(p *Partition, due Time, s Slot) {
	*h = append(*h, wait{due, s})
	p.details[s].wait = int32(len(*h) - 1)
	h.up(p, len(*h)-1)
}

// pop takes out the record that is due first.
func (h *waitHeap) pop(p *Partition) Slot {
	s := (*h)[0].slot
	last := len(*h) - 1
	h.swap(p, 0, last)
	*h = (*h)[:last]
	h.down(p, 0)
	return s
}

func (h waitHeap) up(p *Partition, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(p, i, parent) {
			return
		}
		h.swap(p, i, parent)
		i = parent
	}
}

func (h waitHeap) down(p *Partition, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h.less(p, right, child) {
			child = right
		}
		if !h.less(p, child, i) {
			return
		}
		h.swap(p, i, child)
		i = child
	}
}
