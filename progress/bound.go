package progress

import "math"

// HeaderBytes is at most what the binary form has besides what [Bound] covers,
// with one segment whose order's name has up to 24 bytes (behind "key:"), and
// without markers, attempts and crashes.
const HeaderBytes = 5 + // version, checksum
	2 + // flags
	4 + // tag
	9 + // offset
	9 + // fence
	5 + // epoch
	5 + // starts
	10 + // reach
	10 + // suspect
	1 + 1 + 24 + 9 + 4 // kind, name, length and check of the segment

// Bound is at most how many bytes of the binary form heads take, for any set
// of at most so many heads among at most window offsets, in however many
// segments. It never falls when either rises.
//
// It is about what a random set takes, since a random set is the worst there
// is: whatever else a set is like, the encoder does not take more for it.
// Markers and attempts are not covered. An encoder that has no room for them
// leaves them out before it leaves out heads.
func Bound(window, heads int64) int {
	if window <= 0 || heads <= 0 {
		return 0
	}
	heads = min(heads, window)
	// Two lists, of runs of heads and of gaps, take at most what a set with
	// as many heads as n times its probability p takes on average, n*H(p), and
	// one offset more than there are. Its maximum is 1 bit an offset.
	n, k := float64(window)+1, float64(heads)
	if n > 1<<44 {
		// Where a float64 does not tell one window from the next.
		n = math.Exp2(math.Ceil(math.Log2(n)))
	}
	bits := n
	if k < 0.499*n {
		bits = entropy(n, k)
	}
	// Probabilities are rounded: a tiny one by a part of itself.
	bits += min(n/(1<<22), 2*k+1)
	bytes := int64(min(bits/8, math.MaxInt32))
	// The end of the code, and the numbers of heads and of ranges.
	return int(min(bytes+2+2*int64(uvarintLen(uint64(heads))), math.MaxInt32))
}
