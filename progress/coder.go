package progress

import "math/bits"

// A binary range coder: probabilities of 24 bits, an interval of 48 to 56.
//
// The encoder narrows the interval [low, low+size) bit by bit and writes its
// leading byte as soon as it is settled but for a carry, which goes into the
// bytes that are written already. In the end it writes as few bytes as name a
// number in the interval. The decoder takes bytes beyond the end for zeros.

const (
	probBits = 24
	probOne  = 1 << probBits

	sizeBits = 56
	sizeTop  = 1 << sizeBits
	sizeLow  = 1 << (sizeBits - 8)
	lowMask  = sizeTop - 1

	// lookahead is how many bytes the decoder begins with.
	lookahead = sizeBits / 8
)

// coder appends to out from start on; nothing before is touched.
type coder struct {
	low, size uint64
	out       []byte
}

func (e *coder) begin(out []byte) {
	e.low, e.size, e.out = 0, sizeTop, out
}

// bit encodes one bit. zero is the probability of 0, above 0 and below
// probOne.
func (e *coder) bit(b bool, zero uint32) {
	bound := e.size >> probBits * uint64(zero)
	if b {
		e.low += bound
		e.size -= bound
	} else {
		e.size = bound
	}
	if e.size < sizeLow {
		e.shift()
	}
}

func (e *coder) shift() {
	if e.low > lowMask {
		e.carry()
	}
	for e.size < sizeLow {
		e.out = append(e.out, byte(e.low>>(sizeBits-8)))
		e.low = e.low << 8 & lowMask
		e.size <<= 8
	}
}

// carry adds one to the number that is written. It never goes beyond the first
// byte, since low stays below 1 as a fraction of all.
func (e *coder) carry() {
	e.low &= lowMask
	for i := len(e.out) - 1; ; i-- {
		e.out[i]++
		if e.out[i] != 0 {
			return
		}
	}
}

// end returns out with what was encoded.
func (e *coder) end() []byte {
	if e.low > lowMask {
		e.carry()
	}
	for n := 0; ; n += 8 {
		rest := uint64(lowMask) >> n
		v := (e.low + rest) &^ rest
		if v-e.low >= e.size {
			continue
		}
		if e.low = v; e.low > lowMask {
			e.carry()
		}
		for ; n > 0; n -= 8 {
			e.out = append(e.out, byte(e.low>>(sizeBits-8)))
			e.low = e.low << 8 & lowMask
		}
		return e.out
	}
}

// decoder reads what coder wrote.
type decoder struct {
	code, size uint64
	in         []byte
	at         int // of the next byte
}

func (d *decoder) begin(in []byte) {
	*d = decoder{size: sizeTop, in: in}
	for range lookahead {
		d.code = d.code<<8 | d.next()
	}
}

func (d *decoder) next() (b uint64) {
	if d.at < len(d.in) {
		b = uint64(d.in[d.at])
	}
	d.at++
	return b
}

func (d *decoder) bit(zero uint32) bool {
	bound := d.size >> probBits * uint64(zero)
	b := d.code >= bound
	if b {
		d.code -= bound
		d.size -= bound
	} else {
		d.size = bound
	}
	for d.size < sizeLow {
		d.code = d.code<<8 | d.next()
		d.size <<= 8
	}
	return b
}

// bare is how many bytes the encoder had written before it came to its end,
// which added at most one.
func (d *decoder) bare() int { return d.at - lookahead }

// done says whether the input ends as the encoder would have ended it.
func (d *decoder) done() bool {
	switch len(d.in) - d.bare() {
	case 0:
		return true
	case 1:
		// That byte is the lowest that names a number in the interval
		// [low, low+size), and none without it does.
		v := uint64(d.in[len(d.in)-1]) << (sizeBits - 8)
		return d.code < sizeLow && v > d.code && v-d.code+d.size <= sizeTop
	default:
		return false
	}
}

// ratio is a/(a+b) as a fraction of 2^64, for 0 < b and a+b < 2^64.
func ratio(a, b uint64) uint64 {
	q, _ := bits.Div64(a, 0, a+b)
	return q
}
