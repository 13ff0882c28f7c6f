package queue

import "math/bits"

// frontier is the set of unfinished offsets, made for three questions: which
// is the lowest, add one above all others, take any out. It is a bitmap in
// chunks of 512 offsets; chunks without a bit are given back, so one stuck
// offset with a million finished ones behind it costs one chunk and not a
// million bits, and offsets far apart cost one chunk each.
//
// What must stay true: chunks stand in the order of their offsets, each has at
// least one bit, and a chunk's index is stable while it has one.
type frontier struct {
	chunks     []chunk
	head, tail int32
	free       int32
}

const (
	chunkWords = 8
	chunkBits  = chunkWords * 64
)

type chunk struct {
	base       int64 // a multiple of chunkBits
	prev, next int32
	count      int32
	words      [chunkWords]uint64
}

func (f *frontier) init() {
	*f = frontier{head: none, tail: none, free: none}
}

// add sets the bit of offset, which lies above all others, and answers with
// the chunk that holds it and its place there.
func (f *frontier) add(offset int64) (c int32, bit uint16) {
	base := offset &^ (chunkBits - 1)
	c = f.tail
	if c == none || f.chunks[c].base != base {
		c = f.grow(base)
	}
	ch := &f.chunks[c]
	bit = uint16(offset - base)
	ch.words[bit/64] |= 1 << (bit % 64)
	ch.count++
	return c, bit
}

func (f *frontier) grow(base int64) int32 {
	c := f.free
	if c == none {
		c = int32(len(f.chunks))
		f.chunks = append(f.chunks, chunk{})
	} else {
		f.free = f.chunks[c].next
	}
	f.chunks[c] = chunk{base: base, prev: f.tail, next: none}
	if f.tail == none {
		f.head = c
	} else {
		f.chunks[f.tail].next = c
	}
	f.tail = c
	return c
}

// offset is the one of that bit in chunk c.
func (f *frontier) offset(c int32, bit uint16) int64 { return f.chunks[c].base + int64(bit) }

// remove clears a bit that is set in chunk c.
func (f *frontier) remove(c int32, bit uint16) {
	ch := &f.chunks[c]
	ch.words[bit/64] &^= 1 << (bit % 64)
	if ch.count--; ch.count > 0 {
		return
	}
	if ch.prev == none {
		f.head = ch.next
	} else {
		f.chunks[ch.prev].next = ch.next
	}
	if ch.next == none {
		f.tail = ch.prev
	} else {
		f.chunks[ch.next].prev = ch.prev
	}
	ch.next = f.free
	f.free = c
}

// first is the lowest offset in the set.
func (f *frontier) first() (int64, bool) {
	if f.head == none {
		return 0, false
	}
	ch := &f.chunks[f.head]
	for i, w := range ch.words {
		if w != 0 {
			return ch.base + int64(i*64+bits.TrailingZeros64(w)), true
		}
	}
	panic("queue: a chunk of the frontier has no bit")
}
