package queue

// waitHeap orders the waiting records by the time they are due, and by offset
// where the times are equal. Each record knows its place, so that a wait can
// be ended early.
type waitHeap []wait

type wait struct {
	due  Time
	slot Slot
}

func (h waitHeap) less(records []record, i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return records[h[i].slot].offset < records[h[j].slot].offset
}

func (h waitHeap) swap(records []record, i, j int) {
	h[i], h[j] = h[j], h[i]
	records[h[i].slot].wait = int32(i)
	records[h[j].slot].wait = int32(j)
}

func (h *waitHeap) push(records []record, due Time, s Slot) {
	*h = append(*h, wait{due, s})
	records[s].wait = int32(len(*h) - 1)
	h.up(records, len(*h)-1)
}

// pop takes out the record that is due first.
func (h *waitHeap) pop(records []record) Slot {
	s := (*h)[0].slot
	last := len(*h) - 1
	h.swap(records, 0, last)
	*h = (*h)[:last]
	h.down(records, 0)
	records[s].wait = none
	return s
}

func (h waitHeap) up(records []record, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(records, i, parent) {
			return
		}
		h.swap(records, i, parent)
		i = parent
	}
}

func (h waitHeap) down(records []record, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h.less(records, right, child) {
			child = right
		}
		if !h.less(records, child, i) {
			return
		}
		h.swap(records, i, child)
		i = child
	}
}
