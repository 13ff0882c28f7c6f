package progress

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// What was coded comes back, in as few bytes as it can, and no other bytes say
// the same: the reader tells where the code ends.
func TestCoder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	carries, ends := 0, [2]int{}
	for round := range 4000 {
		bits := make([]bool, r.IntN(40))
		zeros := make([]uint32, len(bits))
		for i := range bits {
			switch zeros[i] = 1 + r.Uint32N(probOne-1); r.IntN(4) {
			case 0:
				zeros[i] = 1 // the least
			case 1:
				zeros[i] = probOne - 1
			}
			bits[i] = r.Uint32N(probOne) >= zeros[i]
			if r.IntN(8) == 0 {
				bits[i] = !bits[i] // what is unlikely
			}
		}
		var c coder
		c.begin([]byte{0xFF})
		for i := range bits {
			c.bit(bits[i], zeros[i])
			if c.low > lowMask {
				carries++
			}
		}
		before := len(c.out)
		out := c.end()
		if out[0] != 0xFF {
			t.Fatal("a carry went into what was there before")
		}
		ends[len(out)-before]++
		read := func(in []byte) (same, done bool) {
			var d decoder
			d.begin(in)
			same = true
			for i := range bits {
				same = d.bit(zeros[i]) == bits[i] && same
			}
			return same, d.done()
		}
		code := out[1:]
		if same, done := read(code); !same || !done {
			t.Fatalf("round %d: %x is read right: %v, to the end: %v", round, code, same, done)
		}
		for other := range 256 {
			longer := append(append([]byte(nil), code...), byte(other))
			if same, done := read(longer); same && done {
				t.Fatalf("round %d: %x and %x are read alike", round, code, longer)
			}
			if n := len(code); n > 0 && byte(other) != code[n-1] {
				changed := append(append([]byte(nil), code[:n-1]...), byte(other))
				if same, done := read(changed); same && done {
					t.Fatalf("round %d: %x and %x are read alike", round, code, changed)
				}
			}
		}
		// The same without a carry, and with more behind it.
		less := append([]byte(nil), code...)
		for i := len(less) - 1; i >= 0; i-- {
			if less[i]--; less[i] != 0xFF {
				break
			}
		}
		for other := range 256 {
			longer := append(append([]byte(nil), less...), byte(other))
			if same, done := read(longer); same && done {
				t.Fatalf("round %d: %x and %x are read alike", round, code, longer)
			}
		}
		if n := len(code); n > 0 {
			if same, done := read(code[:n-1]); same && done {
				t.Fatalf("round %d: %x and %x are read alike", round, code, code[:n-1])
			}
		}
	}
	if carries == 0 || ends[0] == 0 || ends[1] == 0 {
		t.Errorf("%d carries, %v ends: not all was tried", carries, ends)
	}
}

// Lists of any numbers come back, learning or not.
func TestLists(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		numbers := make([]uint64, 1+r.IntN(50))
		sum := uint64(0)
		for i := range numbers {
			numbers[i] = r.Uint64() >> (7 + r.IntN(57))
			sum += numbers[i]
		}
		for _, steady := range []bool{false, true} {
			var l list
			var c coder
			l.init(sum, uint64(len(numbers)), steady)
			c.begin(nil)
			last := len(numbers) - 1
			for _, n := range numbers[:last] {
				l.put(&c, n)
			}
			if l.left != numbers[last] {
				t.Fatalf("%v: %d are left", numbers, l.left)
			}
			out := c.end()
			var d decoder
			d.begin(out)
			l.init(sum, uint64(len(numbers)), steady)
			for i, n := range numbers[:last] {
				if got, ok := l.get(&d); !ok || got != n {
					t.Fatalf("number %d of %v is %d, %v", i, numbers, got, ok)
				}
			}
			if l.left != numbers[last] || !d.done() {
				t.Fatalf("%v: %d are left, to the end: %v", numbers, l.left, d.done())
			}
		}
	}
}

// A record has no more than 2^31-1 attempts, though the sum of two would do.
func TestTooManyAttempts(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{maxInt - 1, maxInt, maxInt + 5} {
		p := Progress{
			Offset: 5, Epoch: -1, Suspect: -1, Segments: []Segment{{End: 9, Heads: []Range{{5, 9}}}},
			Attempts: []Count{{5, 1}, {6, 1}, {7, 1}},
		}
		var e Encoder
		all := e.prepare(&p, &Binding{})
		e.attempts[1].n = n
		e.encodeHeads(all.heads, 1000)
		e.finish(&p, all)
		_, _, err := Decode(string(appendASCII(nil, e.data)), 5, Binding{})
		if (err == nil) != (n < maxInt) {
			t.Errorf("%d attempts: %v", n+1, err)
		}
	}
}

// Two partitions of a topic never have the same tag.
func TestTags(t *testing.T) {
	t.Parallel()
	seen := make(map[uint32]int32)
	for p := range int32(200_000) {
		tag := (&Binding{TopicID: [16]byte{3, 1, 4}, Partition: p}).tag()
		if other, ok := seen[tag]; ok {
			t.Fatalf("partitions %d and %d have the same tag", other, p)
		}
		seen[tag] = p
	}
	var about [20]byte
	binary.BigEndian.PutUint32(about[16:], 7)
	var e Encoder
	if e.prepare(&Progress{}, &Binding{Partition: 7}); e.about != about || e.tag != (&Binding{Partition: 7}).tag() {
		t.Errorf("%x, %x", e.about, e.tag)
	}
}
