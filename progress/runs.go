package progress

import "math/bits"

// Everything that is coded is a list of whole numbers whose count and sum are
// known before: the lengths of runs of heads, those of the gaps between them,
// the gaps between markers, and so on. The last number is what the others
// leave of the sum.
//
// A number n is coded as its length in bits, one bit "longer?" after the
// other, then its bits below the leading one from the highest on. How likely
// each of these bits is follows from the distribution that has the count and
// the sum and nothing else: the geometric one, in which a number is at least n
// with probability r^n, r = sum/(sum+count). There
//
//	n > 0                         with probability r
//	n >= 2^c, if n >= 2^(c-1)     r^(2^(c-1))
//	bit i of n is set             r^(2^i) / (1 + r^(2^i)), whatever the bits above it are
//
// So any list of count numbers takes what a list of independent ones would
// take on average, which is what [Bound] rests on.

// maxLength is of the longest number, in bits.
const maxLength = 63

// probLeast is the least probability that a bit is coded with.
const probLeast = 1 << 4

// prior are the probabilities that follow from count and sum.
type prior struct {
	stop [maxLength + 1]uint32 // that a number that has at least so many bits has no more
	zero [maxLength]uint32     // that a bit is 0
}

// init needs a count above 0.
func (p *prior) init(sum, count uint64) {
	x := ratio(sum, count) // r^(2^i)
	top := bits.Len64(sum)
	p.stop[0] = probability(^x)
	for i := range top {
		p.stop[i+1] = probability(^x)
		p.zero[i] = uint32((probOne << 32) / (1<<32 + x>>32))
		x, _ = bits.Mul64(x, x)
	}
}

// probability rounds a fraction of 2^64.
func probability(x uint64) uint32 {
	return min(max(uint32(x>>(64-probBits)), probLeast), probOne-probLeast)
}

// list is a list under way, for the encoder and the decoder.
type list struct {
	prior
	left  uint64 // of the sum
	count uint64
}

func (l *list) init(sum, count uint64) {
	l.left, l.count = sum, count
	if count > 0 {
		l.prior.init(sum, count)
	}
}

// put encodes the next number, at most l.left.
func (l *list) put(e *encoder, n uint64) {
	most := bits.Len64(l.left)
	l.left -= n
	c := bits.Len64(n)
	for i := range c {
		e.bit(true, l.stop[i])
	}
	if c < most {
		e.bit(false, l.stop[c])
	}
	for i := c - 2; i >= 0; i-- {
		e.bit(n>>i&1 != 0, l.zero[i])
	}
}

// get decodes the next number. It is not ok if it is above l.left.
func (l *list) get(d *decoder) (n uint64, ok bool) {
	most := bits.Len64(l.left)
	c := 0
	for c < most && d.bit(l.stop[c]) {
		c++
	}
	if c > 0 {
		n = 1
		for i := c - 2; i >= 0; i-- {
			n <<= 1
			if d.bit(l.zero[i]) {
				n |= 1
			}
		}
	}
	if n > l.left {
		return 0, false
	}
	l.left -= n
	return n, true
}
