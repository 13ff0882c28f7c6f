package progress

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Atleon's format, "acknowledged ahead of commit", version 1: base64 without
// padding of
//
//	1 byte     the version
//	uvarint    how many offsets are finished
//	           their differences, the first from the offset before the committed one:
//	             once or twice   uvarint, uvarint uvarint
//	             more often      0, uvarint, uvarint how often
//	4 bytes    CRC-32 of the offset before the committed one, in 8 bytes, and of everything above
//
// An empty set is an empty text. So the text says nothing of unfinished
// records behind the last finished one, which are read as new.

const (
	atleonVersion = 1
	atleonSum     = 4
	atleonLeast   = 1 + 1 + 1 + atleonSum
)

func atleonChecksum(offset int64, body []byte) uint32 {
	var base [8]byte
	binary.BigEndian.PutUint64(base[:], uint64(offset-1))
	return crc32.Update(crc32.ChecksumIEEE(base[:]), crc32.IEEETable, body)
}

func decodeAtleon(text string, b []byte, offset int64) (Progress, error) {
	if len(b) < atleonLeast {
		return Progress{}, refuse(Damaged, "it is cut short: it has %d bytes", len(b))
	}
	body := b[:len(b)-atleonSum]
	if atleonChecksum(offset, body) != binary.BigEndian.Uint32(b[len(body):]) {
		return Progress{}, refuse(Damaged, "its checksum is wrong: it was cut or changed, or it is about another offset than %d", offset)
	}
	return collect(text, offset, func(s *spans) { s.deltas(body[1:]) })
}

func (s *spans) deltas(body []byte) {
	r := reader{data: body}
	count := r.uvarint("the number of offsets", math.MaxInt64)
	for told := uint64(0); r.err == nil && s.err == nil && told < count; {
		delta, times := r.uvarint("a difference", math.MaxInt64), uint64(1)
		if r.err == nil && delta == 0 {
			delta, times = r.uvarint("a difference", math.MaxInt64), r.uvarint("a repetition", math.MaxInt64)
			if r.err == nil && (delta == 0 || times == 0) {
				r.fail("a difference or its repetition is 0")
			}
		}
		if r.err == nil && times > count-told {
			r.fail("it has more offsets than the %d that it claims", count)
		}
		if r.err != nil {
			break
		}
		told += times
		if delta == 1 {
			s.finished(int64(times))
			continue
		}
		for range times {
			if !s.unfinished(int64(delta)-1) || !s.finished(1) {
				break
			}
		}
	}
	if r.err == nil && s.err == nil && len(r.data) > 0 {
		r.fail("%d bytes are left at its end", len(r.data))
	}
	if s.err == nil {
		s.err = r.err
	}
}

// AppendAtleonV1 appends to dst the text with which Atleon would store p, of
// at most maxUnits letters. If it does not fit, it tells of the finished
// records next to the committed offset; if none are finished or none fit, it
// is empty.
//
// The heads of p must be all its unfinished records, as under the order
// "unordered": the format knows no lanes. Attempts, fence, epoch and the rest
// of p have no place in it.
func AppendAtleonV1(dst []byte, p *Progress, maxUnits int) ([]byte, Fit) {
	room := base64.RawStdEncoding.DecodedLen(max(min(maxUnits, maxUTF8), 0))
	w := atleonWriter{room: room - 1 - atleonSum, told: p.Offset}
	told := p.Offset
	if p.Offset >= 0 {
		told = w.write(p)
	}
	var fit Fit
	p.leaveOut(&fit, told)
	if w.count == 0 {
		return dst, fit
	}
	b := binary.AppendUvarint([]byte{atleonVersion}, w.count)
	b = append(b, w.deltas...)
	b = binary.BigEndian.AppendUint32(b, atleonChecksum(p.Offset, b))
	before := len(dst)
	dst = base64.RawStdEncoding.AppendEncode(dst, b)
	fit.Units = len(dst) - before
	return dst, fit
}

// atleonWriter collects differences.
type atleonWriter struct {
	room   int // for the count and the differences
	deltas []byte
	count  uint64
	told   int64 // behind the last one that was written
	full   bool

	// The repetition that is not written yet.
	delta, times uint64
}

// write says up to where everything is told.
func (w *atleonWriter) write(p *Progress) int64 {
	gap := uint64(0)
	end := p.runs(func(done bool, n int64) bool {
		if !done {
			gap = uint64(n)
			return true
		}
		if !w.add(gap+1, 1) || !w.add(1, uint64(n)-1) {
			return false
		}
		gap = 0
		return true
	})
	if !w.flush() {
		return w.told
	}
	return end
}

// add is false when there is no room any more.
func (w *atleonWriter) add(delta, times uint64) bool {
	if times == 0 {
		return true
	}
	if delta != w.delta && !w.flush() {
		return false
	}
	w.delta = delta
	w.times += times
	return true
}

func (w *atleonWriter) flush() bool {
	if w.times == 0 || w.full {
		return !w.full
	}
	before := len(w.deltas)
	switch w.times {
	case 1:
		w.deltas = binary.AppendUvarint(w.deltas, w.delta)
	case 2:
		w.deltas = binary.AppendUvarint(binary.AppendUvarint(w.deltas, w.delta), w.delta)
	default:
		w.deltas = binary.AppendUvarint(binary.AppendUvarint(append(w.deltas, 0), w.delta), w.times)
	}
	if len(w.deltas)+uvarintLen(w.count+w.times) > w.room {
		w.deltas, w.full = w.deltas[:before], true
		// The unfinished records before the first offset that is left out
		// are told of as little as it is, which makes no difference.
		w.told += int64(w.delta) - 1
		return false
	}
	w.count += w.times
	w.told += int64(w.delta * w.times)
	w.times = 0
	return true
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
