package queue

import (
	"fmt"
	"math/bits"
)

// checker verifies everything that must stay true inside a Partition. It keeps
// its memory between checks, so that a check may follow every single step.
type checker struct {
	seen   []bool  // slots in the ready ring
	before []Slot  // the record that names this slot as the next of its lane
	chunks []int32 // in the order of the list
}

func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, 2*n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (c *checker) check(p *Partition) error {
	for _, part := range []func(*Partition) error{c.slots, c.frontier, c.ready, c.waits, c.lanes, c.past} {
		if err := part(p); err != nil {
			return err
		}
	}
	return nil
}

// slots: each slot is either unfinished or on the free list, once.
func (c *checker) slots(p *Partition) error {
	if len(p.details) != len(p.records) {
		return fmt.Errorf("%d records and %d details", len(p.records), len(p.details))
	}
	free := 0
	for s := p.free; s != none; s = p.records[s].next {
		if st := p.records[s].state; st != Free {
			return fmt.Errorf("slot %d is on the free list and %v", s, st)
		}
		if free++; free > len(p.records) {
			return fmt.Errorf("the free list goes round in a circle")
		}
	}
	var in [len(stateNames)]int
	for s := range p.records {
		in[p.records[s].state]++
	}
	switch {
	case free != in[Free]:
		return fmt.Errorf("%d slots are free, the free list has %d", in[Free], free)
	case p.count != len(p.records)-free:
		return fmt.Errorf("count is %d of %d slots with %d free", p.count, len(p.records), free)
	case p.running != in[Running]:
		return fmt.Errorf("running is %d, there are %d", p.running, in[Running])
	case p.ready.len() != in[Ready]:
		return fmt.Errorf("the ready ring has %d, there are %d", p.ready.len(), in[Ready])
	case len(p.waits) != in[Waiting]:
		return fmt.Errorf("the wait heap has %d, there are %d", len(p.waits), in[Waiting])
	}
	return nil
}

// frontier: the chunks are a list in the order of offsets without an empty
// one, and the bits in them are the unfinished records'.
func (c *checker) frontier(p *Partition) error {
	f := &p.frontier
	c.chunks = sized(c.chunks, 0)
	set := 0
	prev := int32(none)
	for i := f.head; i != none; i = f.chunks[i].next {
		ch := &f.chunks[i]
		n := 0
		for _, w := range ch.words {
			n += bits.OnesCount64(w)
		}
		switch {
		case ch.prev != prev:
			return fmt.Errorf("chunk %d comes after %d and says %d", i, prev, ch.prev)
		case ch.base&(chunkBits-1) != 0:
			return fmt.Errorf("chunk %d starts at %d", i, ch.base)
		case prev != none && f.chunks[prev].base >= ch.base:
			return fmt.Errorf("chunk at %d comes after the one at %d", ch.base, f.chunks[prev].base)
		case n == 0 || n != int(ch.count):
			return fmt.Errorf("chunk %d counts %d bits and has %d", i, ch.count, n)
		case len(c.chunks) == len(f.chunks):
			return fmt.Errorf("the list of chunks goes round in a circle")
		}
		c.chunks = append(c.chunks, i)
		set += n
		prev = i
	}
	if f.tail != prev {
		return fmt.Errorf("the last chunk is %d, tail says %d", prev, f.tail)
	}
	free := 0
	for i := f.free; i != none; i = f.chunks[i].next {
		if free++; free > len(f.chunks) {
			return fmt.Errorf("the list of free chunks goes round in a circle")
		}
	}
	if free+len(c.chunks) != len(f.chunks) {
		return fmt.Errorf("of %d chunks %d are used and %d free", len(f.chunks), len(c.chunks), free)
	}
	marked := 0
	if p.past != nil {
		marked = p.past.marked
	}
	if set != p.count+marked {
		return fmt.Errorf("%d bits for %d unfinished records and %d markers", set, p.count, marked)
	}
	for s := range p.records {
		r := &p.records[s]
		if r.state == Free {
			continue
		}
		ch := &f.chunks[r.chunk]
		if r.bit >= chunkBits || ch.count == 0 || ch.words[r.bit/64]>>(r.bit%64)&1 == 0 {
			return fmt.Errorf("bit %d of chunk %d is not set for slot %d", r.bit, r.chunk, s)
		}
		if o := p.Offset(Slot(s)); o >= p.horizon {
			return fmt.Errorf("offset %d is not below the horizon %d", o, p.horizon)
		}
	}
	return nil
}

// ready: the ring holds the ready records, each once.
func (c *checker) ready(p *Partition) error {
	c.seen = sized(c.seen, len(p.records))
	for i := range p.ready.n {
		s := p.ready.slots[(p.ready.first+i)&p.ready.mask()]
		if st := p.records[s].state; st != Ready || c.seen[s] {
			return fmt.Errorf("slot %d is in the ready ring, %v, twice: %v", s, st, c.seen[s])
		}
		c.seen[s] = true
	}
	return nil
}

// waits: no record is due before the one above it, and each knows its place.
func (c *checker) waits(p *Partition) error {
	for i, w := range p.waits {
		if st := p.records[w.slot].state; st != Waiting {
			return fmt.Errorf("slot %d is in the wait heap and %v", w.slot, st)
		}
		if at := p.details[w.slot].wait; int(at) != i {
			return fmt.Errorf("slot %d is at %d in the wait heap and says %d", w.slot, i, at)
		}
		if i > 0 && p.waits.less(p, i, (i-1)/2) {
			return fmt.Errorf("slot %d at %d in the wait heap is due before its parent", w.slot, i)
		}
	}
	return nil
}

// lanes: every entry is found from its home; every lane is a chain in the order
// of offsets, of which all but the first are queued, and its entry knows the last.
func (c *checker) lanes(p *Partition) error {
	t := &p.lanes
	mask := len(t.entries) - 1
	if n := len(t.entries); n&mask != 0 || n < minLanes || 1<<(32-t.shift) != n {
		return fmt.Errorf("%d lane entries, shift %d", n, t.shift)
	}
	entries := 0
	for i, e := range t.entries {
		if e.tag == 0 {
			if e != (laneEntry{}) {
				return fmt.Errorf("empty lane entry %d says %v", i, e)
			}
			continue
		}
		entries++
		for at := t.home(e.tag); at != i; at = (at + 1) & mask {
			if t.entries[at].tag == 0 {
				return fmt.Errorf("lane entry %d, at home at %d, is cut off by the hole at %d", i, t.home(e.tag), at)
			}
		}
		if r := &p.records[e.tail]; r.state == Free || r.next != none || r.tag != e.tag || e.tag != tagOf(p.details[e.tail].lane) {
			return fmt.Errorf("lane entry %d (tag %x) ends at slot %d: %v, next %d, tag %x", i, e.tag, e.tail, r.state, r.next, r.tag)
		}
	}
	if entries != t.count || entries*2 > len(t.entries) {
		return fmt.Errorf("%d lane entries of %d, count says %d", entries, len(t.entries), t.count)
	}

	c.before = sized(c.before, len(p.records))
	for s := range c.before {
		c.before[s] = none
	}
	for s := range p.records {
		r := &p.records[s]
		switch {
		case r.state == Free || r.next == none:
			continue
		case r.tag == 0:
			return fmt.Errorf("slot %d is alone and followed by %d", s, r.next)
		case c.before[r.next] != none:
			return fmt.Errorf("slot %d follows both %d and %d", r.next, s, c.before[r.next])
		case p.details[s].lane != p.details[r.next].lane || p.Offset(Slot(s)) >= p.Offset(r.next):
			return fmt.Errorf("slot %d is followed by %d", s, r.next)
		}
		c.before[r.next] = Slot(s)
	}
	heads, alone := 0, 0
	for s := range p.records {
		r := &p.records[s]
		if r.state == Free {
			continue
		}
		first, behind := c.before[s] == none, r.flags&behindFormer != 0
		switch {
		case (r.state == Queued) != (!first || behind):
			return fmt.Errorf("slot %d is %v, first of its lane: %v, behind in its former lane: %v", s, r.state, first, behind)
		case r.flags&former != 0 && first == (r.flags&behindLane != 0) || r.flags&former == 0 && r.flags&(behindLane|behindFormer) != 0:
			return fmt.Errorf("slot %d has flags %b, first of its lane: %v", s, r.flags, first)
		case first && r.tag != 0:
			heads++
		}
		if r.tag == 0 {
			alone++
		}
		if r.tag != 0 && r.next == none {
			i := t.home(r.tag)
			for t.entries[i].tag != 0 && (t.entries[i].tag != r.tag || t.entries[i].tail != Slot(s)) {
				i = (i + 1) & mask
			}
			if t.entries[i].tag == 0 {
				return fmt.Errorf("slot %d is the last of its lane and not found", s)
			}
		}
	}
	// As many chains as entries, and each chain's end has an entry: no lane
	// has two.
	if heads != entries {
		return fmt.Errorf("%d lanes have %d entries", heads, entries)
	}
	if alone != p.count-p.keyed {
		return fmt.Errorf("%d records are alone, %d are counted", alone, p.count-p.keyed)
	}
	return nil
}

// past: stretches ascend without holes and count what is unfinished in them,
// lanes of former orders are chains in the order of offsets, and each learned
// lane has an unfinished record in memory or is marked.
func (c *checker) past(p *Partition) error {
	t := p.past
	if t == nil {
		for s := range p.records {
			if f := p.records[s].flags; f&former != 0 {
				return fmt.Errorf("slot %d has flags %b without a past", s, f)
			}
		}
		return nil
	}
	if t.at > len(t.stretches) || len(t.stretches) == 0 {
		return fmt.Errorf("stretch %d of %d is being read", t.at, len(t.stretches))
	}
	tails := 0
	for i := range t.stretches {
		s := &t.stretches[i]
		switch {
		case s.End <= s.start || i > 0 && s.start != t.stretches[i-1].End:
			return fmt.Errorf("stretch %d is from %d to %d", i, s.start, s.End)
		case i < t.at && s.End > p.horizon || i == t.at && (p.horizon < s.start || p.horizon >= s.End):
			return fmt.Errorf("stretch %d is from %d to %d at %d, stretch %d is being read", i, s.start, s.End, p.horizon, t.at)
		case !s.Former && len(s.tails) > 0:
			return fmt.Errorf("stretch %d has lanes of a former order", i)
		}
		tails += len(s.tails)
		for l, slot := range s.tails {
			if link := t.links[slot]; link.lane != l || link.next != none {
				return fmt.Errorf("lane %x of stretch %d ends at slot %d: %+v", l, i, slot, link)
			}
		}
	}
	if last := &t.stretches[len(t.stretches)-1]; t.at == len(t.stretches) && last.unfinished == 0 {
		return fmt.Errorf("all is read and the last stretch is %+v", *last)
	}
	if t.next < p.horizon {
		return fmt.Errorf("the next head is at %d, reading at %d", t.next, p.horizon)
	}

	unfinished := make([]int, len(t.stretches)+1)
	heads := map[Slot]bool{}
	for slot := range t.links {
		heads[slot] = true
	}
	inMemory := map[Lane]bool{}
	for s := range p.records {
		r := &p.records[s]
		if r.state == Free {
			continue
		}
		i := t.find(p.Offset(Slot(s)))
		unfinished[i]++
		link, linked := t.links[Slot(s)]
		switch {
		case r.flags&former != 0 != (i < len(t.stretches) && t.stretches[i].Former):
			return fmt.Errorf("slot %d in stretch %d has flags %b", s, i, r.flags)
		case r.flags&former == 0 && linked:
			return fmt.Errorf("slot %d has a lane of a former order", s)
		case linked && link.next != none:
			delete(heads, link.next)
			n := t.links[link.next]
			if n.lane != link.lane || p.Offset(link.next) <= p.Offset(Slot(s)) || t.find(p.Offset(link.next)) != i || p.records[link.next].flags&behindFormer == 0 {
				return fmt.Errorf("slot %d is followed by %d: %+v, %+v", s, link.next, link, n)
			}
		}
		if i == t.at {
			lane := link.lane
			if r.flags&former == 0 && r.tag != 0 {
				lane = p.details[s].lane
			}
			inMemory[lane] = true
		}
	}
	for slot := range heads {
		if f := p.records[slot].flags; f&behindFormer != 0 {
			return fmt.Errorf("slot %d is the first of its former lane and has flags %b", slot, f)
		}
	}
	if len(heads) != tails {
		return fmt.Errorf("%d lanes of former orders, %d entries", len(heads), tails)
	}
	for i := range t.stretches {
		if unfinished[i] != t.stretches[i].unfinished {
			return fmt.Errorf("%d unfinished in stretch %d, counted are %d", unfinished[i], i, t.stretches[i].unfinished)
		}
	}
	marked := 0
	for l, i := range t.learned {
		known := &t.lanes[i]
		if known.marked == inMemory[l] || l == Alone {
			return fmt.Errorf("learned lane %x is marked: %v, in memory: %v", l, known.marked, inMemory[l])
		}
		if !known.marked {
			continue
		}
		marked++
		if ch := &p.frontier.chunks[known.chunk]; ch.words[known.bit/64]>>(known.bit%64)&1 == 0 {
			return fmt.Errorf("the marker of lane %x is not set", l)
		}
	}
	if marked != t.marked || len(t.learned) != len(t.lanes) || t.at == len(t.stretches) && len(t.lanes) > 0 {
		return fmt.Errorf("%d lanes are marked, counted are %d; %d are learned, %d listed", marked, t.marked, len(t.learned), len(t.lanes))
	}
	delete(inMemory, Alone)
	for l := range inMemory {
		if _, ok := t.learned[l]; !ok && t.at < len(t.stretches) {
			return fmt.Errorf("lane %x is in memory and not learned", l)
		}
	}
	return nil
}
