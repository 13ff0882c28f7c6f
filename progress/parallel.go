package progress

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Parallel Consumer's offset maps: base64 with padding of a byte that names
// the encoding, and a body that tells of the offsets from the committed one
// on, which are finished and which not. Numbers are big endian and signed.
//
//	bits   how many offsets (2 bytes in version 1, 4 in version 2); a bit for each, the lowest of a byte first, 1 is finished; a byte of zeros
//	runs   how many are unfinished, how many then are finished, and so on (2 or 4 bytes each)
//
// Either may be one zstd frame. There is no checksum, and nothing says what
// offset or partition it is about, so the body is held to exactly what a
// writer writes.

// magic names an encoding.
type magic byte

const (
	magicBytes       magic = 'L'
	magicBytesPacked magic = 0xEE
	magicBits        magic = 'l'
	magicBitsPacked  magic = 'a'
	magicRuns        magic = 'n'
	magicRunsPacked  magic = 'J'
	magicBits2       magic = 'o'
	magicBits2Packed magic = 's'
	magicRuns2       magic = 'e'
	magicRuns2Packed magic = 'p'
)

// parallelEncoding is what a magic says of the body.
type parallelEncoding struct {
	name   string // as Parallel Consumer has it
	bits   bool
	size   int // of a number, 0: there is nothing to read
	packed bool
}

func (m magic) encoding() (e parallelEncoding, ok bool) {
	switch m {
	case magicBytes:
		return parallelEncoding{name: "ByteArray"}, true
	case magicBytesPacked:
		return parallelEncoding{name: "ByteArrayCompressed"}, true
	case magicBits:
		return parallelEncoding{"BitSet", true, 2, false}, true
	case magicBitsPacked:
		return parallelEncoding{"BitSetCompressed", true, 2, true}, true
	case magicRuns:
		return parallelEncoding{"RunLength", false, 2, false}, true
	case magicRunsPacked:
		return parallelEncoding{"RunLengthCompressed", false, 2, true}, true
	case magicBits2:
		return parallelEncoding{"BitSetV2", true, 4, false}, true
	case magicBits2Packed:
		return parallelEncoding{"BitSetV2Compressed", true, 4, true}, true
	case magicRuns2:
		return parallelEncoding{"RunLengthV2", false, 4, false}, true
	case magicRuns2Packed:
		return parallelEncoding{"RunLengthV2Compressed", false, 4, true}, true
	default:
		return parallelEncoding{}, false
	}
}

func decodeParallel(text string, b []byte, e parallelEncoding, offset int64) (Progress, error) {
	body := b[1:]
	if e.size == 0 {
		return Progress{}, refuse(Unsupported, "its encoding is %s, which Parallel Consumer itself does not read", e.name)
	}
	if e.packed {
		var err error
		if body, err = unpack(body, unpackedPerByte*len(text)+unpackedLeast); err != nil {
			return Progress{}, err
		}
	}
	return collect(text, offset, func(s *spans) {
		if e.bits {
			s.bits(body, e)
		} else {
			s.runs(body, e)
		}
	})
}

func (e *parallelEncoding) number(b []byte) int64 {
	if e.size == 2 {
		return int64(int16(binary.BigEndian.Uint16(b)))
	}
	return int64(int32(binary.BigEndian.Uint32(b)))
}

func (s *spans) runs(body []byte, e parallelEncoding) {
	if len(body) == 0 || len(body)%e.size != 0 {
		s.err = refuse(Damaged, "its %s has %d bytes, no whole number of runs", e.name, len(body))
		return
	}
	last := len(body)/e.size - 1
	for i := 0; len(body) > 0; i++ {
		n := e.number(body)
		body = body[e.size:]
		switch {
		case n < 0:
			s.err = refuse(Impossible, "run %d of its %s is negative", i, e.name)
		case n == 0 && i > 0 && i < last:
			s.err = refuse(Impossible, "run %d of its %s is empty", i, e.name)
		case i%2 == 0:
			s.unfinished(n)
		default:
			s.finished(n)
		}
		if s.err != nil {
			return
		}
	}
}

func (s *spans) bits(body []byte, e parallelEncoding) {
	if len(body) < e.size {
		s.err = refuse(Damaged, "its %s has %d bytes, less than its length takes", e.name, len(body))
		return
	}
	length := e.number(body)
	body = body[e.size:]
	if length < 0 {
		s.err = refuse(Impossible, "the length of its %s is negative", e.name)
		return
	}
	if whole := (length + 7) / 8; int64(len(body)) < whole || int64(len(body)) > whole+1 {
		s.err = refuse(Damaged, "its %s claims %d offsets and has %d bytes for them", e.name, length, len(body))
		return
	}
	bit := func(i int64) bool { return body[i/8]>>(i%8)&1 != 0 }
	for i := length; i < int64(len(body))*8; i++ {
		if bit(i) {
			s.err = refuse(Damaged, "its %s has bits behind its last offset", e.name)
			return
		}
	}
	for at := int64(0); at < length; {
		from, done := at, bit(at)
		same := byte(0)
		if done {
			same = 0xFF
		}
		for at++; at < length && bit(at) == done; at++ {
			for at%8 == 0 && at+8 <= length && body[at/8] == same {
				at += 8
			}
			if at == length || bit(at) != done {
				break
			}
		}
		if done {
			s.finished(at - from)
		} else {
			s.unfinished(at - from)
		}
		if s.err != nil {
			return
		}
	}
}

const (
	// What a compressed body may have when it is unpacked.
	unpackedPerByte = 512 // of the text
	unpackedLeast   = 64 << 10

	// maxWindow is how far back a frame may refer. Parallel Consumer's frames
	// ask for 2 MiB, however short they are.
	maxWindow = 8 << 20
)

// unpackers are decompressors. Each holds a window, which is too much to
// allocate for every text.
var unpackers = sync.Pool{New: func() any {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeBuffersBelow(0))
	if err != nil {
		return err
	}
	return z
}}

// unpack decompresses into at most limit bytes. It takes as much memory as
// comes out, not what the frame claims.
func unpack(packed []byte, limit int) ([]byte, error) {
	var h zstd.Header
	if h.Decode(packed) == nil && h.HasFCS && h.FrameContentSize > uint64(limit) {
		return nil, refuse(Impossible, "its compressed body has %d bytes, too much for its length", h.FrameContentSize)
	}
	z, ok := unpackers.Get().(*zstd.Decoder)
	if !ok {
		return nil, refuse(Unsupported, "its compression can't be read")
	}
	defer unpackers.Put(z)
	err := z.Reset(bytes.NewReader(packed))
	var b []byte
	for n := 0; err == nil; {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(max(4*cap(b), 4096), limit+1)), b...)
		}
		n, err = z.Read(b[len(b):cap(b)])
		if b = b[:len(b)+n]; len(b) > limit {
			return nil, refuse(Impossible, "its compressed body has more than %d bytes, too much for its length", limit)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, refuse(Damaged, "its compressed body can't be unpacked: %v", err)
	}
	return b, nil
}

// AppendParallelConsumer appends to dst the text with which Parallel Consumer
// would store p, of at most maxUnits letters, in one of the encodings without
// compression. If it does not fit, it tells of the records next to the
// committed offset; if none are unfinished, it is empty.
//
// The heads of p must be all its unfinished records, as under the order
// "unordered": the format knows no lanes. Attempts, fence, epoch and the rest
// of p have no place in it.
func AppendParallelConsumer(dst []byte, p *Progress, maxUnits int) ([]byte, Fit) {
	room := base64.StdEncoding.DecodedLen(max(min(maxUnits, maxUTF8), 0)/4*4) - 1
	var fit Fit
	if p.Offset < 0 || room < 2 {
		p.leaveOut(&fit, p.Offset)
		return dst, fit
	}
	w := parallelWriter{room: room}
	end := w.take(p)
	b, told := w.write()
	if told += p.Offset; w.all && told == w.sum+p.Offset {
		told = end
	}
	p.leaveOut(&fit, told)
	if b == nil {
		return dst, fit
	}
	before := len(dst)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	fit.Units = len(dst) - before
	return dst, fit
}

// parallelWriter has the runs that there may be room for.
type parallelWriter struct {
	room int     // for the body
	list []int64 // unfinished, finished, unfinished, ...; it ends with finished ones
	sum  int64
	all  bool // those that are finished are in list
	any  bool // something is unfinished
}

// take says up to where it looked.
func (w *parallelWriter) take(p *Progress) int64 {
	gap := int64(0)
	w.all = true
	return p.runs(func(done bool, n int64) bool {
		if !done {
			gap, w.any = n, true
			return true
		}
		if len(w.list) > w.room/2 && w.sum > int64(w.room)*8 {
			w.all = false
			return false
		}
		w.list = append(w.list, gap, n)
		w.sum += gap + n
		gap = 0
		return true
	})
}

// write chooses the encoding that reaches furthest, and the shortest of those.
// told is how many offsets from the first on are told right.
func (w *parallelWriter) write() (b []byte, told int64) {
	if !w.any {
		return nil, w.sum
	}
	best, length, size := magicRuns, int64(-1), 0
	for _, m := range [...]magic{magicRuns, magicBits, magicRuns2, magicBits2} {
		n, s := w.measure(m)
		if n > length || n == length && s < size {
			best, length, size = m, n, s
		}
	}
	b = w.body(best, length, size)
	// What is unfinished behind them is told right too: it is read as new.
	at := int64(0)
	for i, n := range w.list {
		if i%2 == 1 && at+n > length {
			return b, max(at, length)
		}
		at += n
	}
	return b, at
}

// measure says how many offsets an encoding has room for, up to the last one
// that is finished, and in how many bytes.
func (w *parallelWriter) measure(m magic) (length int64, size int) {
	e, _ := m.encoding()
	most := int64(math.MaxInt16)
	if e.size == 4 {
		most = math.MaxInt32
	}
	if e.bits {
		most = min(most, int64(w.room-e.size-1)*8)
	}
	at := int64(0)
	for i, n := range w.list {
		if e.bits {
			if at >= most {
				break
			}
			if i%2 == 1 {
				length = min(at+n, most)
			}
		} else {
			if n > most && i%2 == 0 || (i+1+(i+1)%2)*e.size > w.room {
				break
			}
			if n = min(n, most); i%2 == 1 {
				length, size = at+n, (i+1)*e.size
			}
			if n < w.list[i] {
				break
			}
		}
		at += n
	}
	if e.bits {
		size = e.size + int(length+7)/8 + 1
	}
	return length, max(size, e.size)
}

func (w *parallelWriter) body(m magic, length int64, size int) []byte {
	e, _ := m.encoding()
	b := make([]byte, 1+size)
	b[0] = byte(m)
	put := func(at int, n int64) {
		if e.size == 2 {
			binary.BigEndian.PutUint16(b[at:], uint16(n))
		} else {
			binary.BigEndian.PutUint32(b[at:], uint32(n))
		}
	}
	if !e.bits {
		for i, at := 0, 1; at < len(b) && i < len(w.list); i, at = i+1, at+e.size {
			n := min(w.list[i], length)
			put(at, n)
			length -= n
		}
		return b
	}
	put(1, length)
	at := int64(0)
	for i, n := range w.list {
		if i%2 == 1 {
			for j := at; j < min(at+n, length); j++ {
				b[1+int64(e.size)+j/8] |= 1 << (j % 8)
			}
		}
		if at += n; at >= length {
			break
		}
	}
	return b
}
