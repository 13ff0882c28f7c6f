package progress

import "math"

// HeaderBytes is at most what the binary form has besides what [Bound] covers,
// with one segment whose order's name has up to 24 bytes, and without crashes.
const HeaderBytes = 120

// Bound is at most how many bytes of the binary form heads take, for any set of
// at most so many heads among window offsets. It never falls when either
// rises.
func Bound(window, heads int64) int {
	if window <= 0 || heads <= 0 {
		return 0
	}
	w, h := float64(window)+1, float64(heads)
	bits := w
	if h < w/2 {
		bits = entropy(w, h)
	}
	return int(min(bits/8*1.001+float64(h)/512, math.MaxInt32/2)) + 24
}
