package progress

import "math/bits"

// Everything that is coded is a list of whole numbers whose count and sum are
// known before: the lengths of runs of heads, those of the gaps between them,
// the gaps between markers, and so on. The last number is what the others
// leave of the sum.
//
// A number n is coded as its length in bits, one bit "longer?" after the
// other, then its bits below the leading one from the highest on. How likely
// each of these bits is follows at first from the distribution that has the
// count and the sum and nothing else, the geometric one, in which a number is
// at least n with probability r^n, r = sum/(sum+count). There
//
//	n > 0                         with probability r
//	n >= 2^c, if n >= 2^(c-1)     r^(2^(c-1))
//	bit i of n is 1               r^(2^i) / (1 + r^(2^i)), whatever the bits above it are
//
// A steady list keeps to that. So any list of count numbers takes what a list
// of independent ones takes on average, which is what [Bound] rests on.
//
// Any other list learns: each probability goes towards what is coded with it,
// in large steps at first and by a 61st in the end. So heads that come in
// bursts, in a pattern, or thicken towards the horizon take less.

const (
	// maxLength is of the longest number, in bits.
	maxLength = 63

	// leastSteady and leastLearned are the least probabilities that a bit is
	// coded with.
	leastSteady  = 1 << 4
	leastLearned = 1 << 10

	// A probability begins as if seen firstSeen times, and learns as if seen
	// at most lastSeen times.
	firstSeen = 4
	lastSeen  = 60
)

// steps are by how much a probability learns, as fractions of 2^16.
var steps = func() (s [lastSeen + 1]uint32) {
	for n := range s {
		s[n] = 1 << 17 / uint32(2*n+3)
	}
	return s
}()

// chance is the probability of a 0, and how often it was seen.
type chance struct{ zero, seen uint32 }

func (c *chance) learn(one bool) {
	z := c.zero
	if one {
		z -= uint32(uint64(z) * uint64(steps[c.seen]) >> 16)
		z = max(z, leastLearned)
	} else {
		z += uint32(uint64(probOne-z) * uint64(steps[c.seen]) >> 16)
		z = min(z, probOne-leastLearned)
	}
	c.zero = z
	if c.seen < lastSeen {
		c.seen++
	}
}

// list is a list under way, for the encoder and the decoder.
type list struct {
	left   uint64 // of the sum
	steady bool

	longer [maxLength + 1]chance    // than so many bits
	lead   [maxLength + 1][4]chance // of numbers that long, the bit after the leading one at 1, the next at 2 or 3, by what the first is
	bit    [maxLength]chance        // i of n, where it is none of those
}

// init begins a list of count numbers, at least one.
func (l *list) init(sum, count uint64, steady bool) {
	l.left, l.steady = sum, steady
	x := ratio(sum, count) // r^(2^i)
	l.longer[0] = prior(uint32(^x>>(64-probBits)), steady)
	for i := range bits.Len64(sum) {
		l.longer[i+1] = prior(uint32(^x>>(64-probBits)), steady)
		b := prior(uint32((probOne<<32)/(1<<32+x>>32)), steady)
		l.bit[i] = b
		if i+2 <= maxLength {
			l.lead[i+2][1] = b
		}
		if i+3 <= maxLength {
			l.lead[i+3][2], l.lead[i+3][3] = b, b
		}
		x, _ = bits.Mul64(x, x)
	}
}

func prior(zero uint32, steady bool) chance {
	least := uint32(leastSteady)
	if !steady {
		least = leastLearned
	}
	return chance{zero: min(max(zero, least), probOne-least), seen: firstSeen}
}

// put encodes the next number, at most l.left.
func (l *list) put(e *coder, n uint64) {
	most := bits.Len64(l.left)
	l.left -= n
	length := bits.Len64(n)
	if l.steady {
		for i := range length {
			e.bit(true, l.longer[i].zero)
		}
		if length < most {
			e.bit(false, l.longer[length].zero)
		}
		for i := length - 2; i >= 0; i-- {
			e.bit(n>>i&1 != 0, l.bit[i].zero)
		}
		return
	}
	for i := range length {
		c := &l.longer[i]
		e.bit(true, c.zero)
		c.learn(true)
	}
	if length < most {
		c := &l.longer[length]
		e.bit(false, c.zero)
		c.learn(false)
	}
	node := 1
	for i := length - 2; i >= 0; i-- {
		one := n>>i&1 != 0
		c := &l.bit[i]
		if node < 4 {
			c = &l.lead[length][node]
			node <<= 1
			if one {
				node++
			}
		}
		e.bit(one, c.zero)
		c.learn(one)
	}
}

// get decodes the next number. It is not ok if it is above l.left.
func (l *list) get(d *decoder) (n uint64, ok bool) {
	most := bits.Len64(l.left)
	length := 0
	if l.steady {
		for length < most && d.bit(l.longer[length].zero) {
			length++
		}
		if length > 0 {
			n = 1
			for i := length - 2; i >= 0; i-- {
				n <<= 1
				if d.bit(l.bit[i].zero) {
					n++
				}
			}
		}
	} else {
		for length < most {
			c := &l.longer[length]
			one := d.bit(c.zero)
			c.learn(one)
			if !one {
				break
			}
			length++
		}
		if length > 0 {
			n = 1
			node := 1
			for i := length - 2; i >= 0; i-- {
				c := &l.bit[i]
				if node < 4 {
					c = &l.lead[length][node]
				}
				one := d.bit(c.zero)
				c.learn(one)
				n <<= 1
				node <<= 1
				if one {
					n++
					node++
				}
			}
		}
	}
	if n > l.left {
		return 0, false
	}
	l.left -= n
	return n, true
}
