package progress

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math"
	"strconv"
	"strings"
)

// The binary form, version 1. docs/formats.md describes it byte by byte.
//
//	version, checksum, flags, tag of the partition, offset, fence, epoch
//	what the flags say
//	segments, numbers of heads, ranges, markers, attempts
//	the lists, range coded, to the end

const (
	version = 1

	// itemsPerByte is how many ranges, markers and attempts there may be for
	// each byte of the whole; shorter data ends with so many zeros. It bounds
	// what a reader allocates.
	itemsPerByte = 64

	checksumAt = 1 // after the version
	flagsAt    = checksumAt + 4
)

// The flags.
const (
	flagClean = 1 << iota
	flagSegments
	flagSteady // the lists are coded with the prior probabilities throughout
	flagMarkers
	flagAttempts
	flagStarts
	flagReach
	_ // the bit that says that a second byte follows
	flagSuspect
	flagCrashes

	flagsKnown = flagClean | flagSegments | flagSteady | flagMarkers | flagAttempts | flagStarts | flagReach | flagSuspect | flagCrashes
)

// The first byte of a segment.
const (
	kindMask  = 7
	kindCheck = 1 << 3 // a check follows
	kindMore  = 1 << 4 // another segment follows
	kindKnown = kindMask | kindCheck | kindMore
)

// The kinds of orders.
const (
	kindKey = iota
	kindPartition
	kindUnordered
	kindBucket   // and their number
	kindKeyNamed // and what follows "key:"
	kindKeyCut   // and what is kept of what follows "key:"
	kindOther    // and the order as it is
	kindOtherCut // and what is kept of it
)

const (
	maxName = 64 // bytes of a name that is kept whole
	cutName = 48 // what is kept of a longer one, before the hash
	cutHash = 8
	maxInt  = math.MaxInt32 // of numbers that are an int
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is that of all of the data but the checksum.
func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, b[:checksumAt]), castagnoli, b[flagsAt:])
}

// tag tells partitions apart. Two of one topic never have the same.
func (b *Binding) tag() uint32 {
	var p [4]byte
	binary.BigEndian.PutUint32(p[:], uint32(b.Partition))
	return crc32.Update(crc32.Update(0, castagnoli, b.TopicID[:]), castagnoli, p[:])
}

// OrderName is the name that [Decode] gives to a segment whose order was
// encoded as order: the same, unless it is longer than 64 bytes, or than 68
// with "key:" in front. Of a longer one 48 bytes and a hash are kept, in a form
// that no shorter name has.
func OrderName(order string) string {
	name, named := strings.CutPrefix(order, "key:")
	if len(name) <= maxName {
		return order
	}
	cut := appendCut(nil, name)
	name = cutNameOf(cut)
	if named {
		name = "key:" + name
	}
	return name
}

const (
	cutOpen  = "… (sha256 "
	cutClose = ")"
	cutLen   = cutName + len(cutOpen) + 2*cutHash + len(cutClose)
)

// cutNameOf is how a cut name is decoded. It has more than maxName bytes.
func cutNameOf(b []byte) string {
	return string(b[:cutName]) + cutOpen + hex.EncodeToString(b[cutName:]) + cutClose
}

// appendCut appends what is kept of a name that is too long. One that was cut
// before stays as it is.
func appendCut(dst []byte, name string) []byte {
	dst = append(dst, name[:cutName]...)
	if rest, ok := strings.CutPrefix(name[cutName:], cutOpen); ok && len(name) == cutLen {
		if digits, ok := strings.CutSuffix(rest, cutClose); ok && strings.ToLower(digits) == digits {
			if h, err := hex.DecodeString(digits); err == nil {
				return append(dst, h...)
			}
		}
	}
	h := sha256.Sum256([]byte(name))
	return append(dst, h[:cutHash]...)
}

func appendOrder(dst []byte, order string, flags byte) []byte {
	switch order {
	case "key":
		return append(dst, kindKey|flags)
	case "partition":
		return append(dst, kindPartition|flags)
	case "unordered":
		return append(dst, kindUnordered|flags)
	}
	if digits, ok := strings.CutPrefix(order, "bucket:"); ok {
		if n, err := strconv.ParseUint(digits, 10, 31); err == nil && (digits[0] != '0' || n == 0 && len(digits) == 1) && digits[0] != '+' {
			return binary.AppendUvarint(append(dst, kindBucket|flags), n)
		}
	}
	kind := byte(kindOther)
	name, named := strings.CutPrefix(order, "key:")
	if named {
		kind = kindKeyNamed
	}
	if len(name) > maxName {
		return appendCut(append(dst, kind+1|flags), name)
	}
	dst = append(dst, kind|flags, byte(len(name)))
	return append(dst, name...)
}

// reader reads numbers from data. After a failure all that it reads is zero.
type reader struct {
	data []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = refuse(Impossible, format, args...)
	}
	r.data = nil
}

// uvarint reads a number of at most limit in its shortest form.
func (r *reader) uvarint(what string, limit uint64) uint64 {
	v, n := binary.Uvarint(r.data)
	switch {
	case r.err != nil:
		return 0
	case n == 0:
		r.fail("it ends within %s", what)
		return 0
	case n < 0, v > limit:
		r.fail("%s is beyond %d", what, limit)
		return 0
	case n > 1 && r.data[n-1] == 0:
		r.fail("%s is not in its shortest form", what)
		return 0
	}
	r.data = r.data[n:]
	return v
}

var zeros [maxName]byte

func (r *reader) bytes(what string, n int) []byte {
	if r.err == nil && len(r.data) < n {
		r.fail("it ends within %s", what)
	}
	if r.err != nil {
		return zeros[:n]
	}
	b := r.data[:n]
	r.data = r.data[n:]
	return b
}

// near reads an offset that is told as a difference from another one.
func (r *reader) near(what string, from int64) int64 {
	v := r.uvarint(what, math.MaxUint64)
	o := from + (int64(v>>1) ^ -int64(v&1))
	if r.err == nil && o < 0 {
		r.fail("%s is negative", what)
	}
	return o
}

func appendNear(dst []byte, o, from int64) []byte {
	d := o - from
	return binary.AppendUvarint(dst, uint64(d)<<1^uint64(d>>63))
}

func (r *reader) order(kind byte) string {
	prefix := ""
	switch kind & kindMask {
	case kindKey:
		return "key"
	case kindPartition:
		return "partition"
	case kindUnordered:
		return "unordered"
	case kindBucket:
		return "bucket:" + strconv.FormatUint(r.uvarint("the number of buckets", maxInt), 10)
	case kindKeyNamed, kindKeyCut:
		prefix = "key:"
	}
	if kind&kindMask == kindKeyCut || kind&kindMask == kindOtherCut {
		return prefix + cutNameOf(r.bytes("an order's name", cutName+cutHash))
	}
	n := int(r.bytes("an order's name", 1)[0])
	if n > maxName {
		r.fail("the name of an order has %d bytes, more than %d", n, maxName)
		return ""
	}
	return prefix + string(r.bytes("an order's name", n))
}

func (r *reader) crashes(from int64) []Count {
	n := int(r.uvarint("the number of crashes", uint64(len(r.data)/2))) + 1
	if r.err != nil {
		return nil
	}
	list := make([]Count, 0, n)
	for i := range n {
		switch {
		case i == 0:
			from = r.near("a crash's offset", from)
		case from == math.MaxInt64:
			r.fail("a crash's offset is beyond %d", from)
		default:
			from += 1 + int64(r.uvarint("a crash's offset", uint64(math.MaxInt64-1-from)))
		}
		list = append(list, Count{Offset: from, N: 1 + int(r.uvarint("a number of crashes", maxInt-1))})
		if r.err != nil {
			return nil
		}
	}
	return list
}

// open checks what every version has: the version and the checksum.
func open(b []byte) error {
	if len(b) < flagsAt {
		return refuse(Damaged, "it is cut short: it has %d bytes", len(b))
	}
	if checksum(b) != binary.BigEndian.Uint32(b[checksumAt:]) {
		return refuse(Damaged, "its checksum is wrong: it was cut or changed")
	}
	if b[0] != version {
		return refuse(Newer, "it is of version %d of the format, and this program knows version %d: it was written by a newer one", b[0], version)
	}
	return nil
}

// parse reads the binary form. tag is compared unless it is nil.
func parse(b []byte, offset int64, tag *uint32) (p Progress, err error) {
	if err := open(b); err != nil {
		return p, err
	}
	r := reader{data: b[flagsAt:]}
	flags := r.uvarint("the flags", math.MaxUint32)
	is := binary.BigEndian.Uint32(r.bytes("the tag", 4))
	if r.err == nil && tag != nil && is != *tag {
		return p, refuse(OtherPartition, "it was made for another partition, or for a former topic of the same name")
	}
	p.Offset = int64(r.uvarint("the offset", math.MaxInt64))
	if r.err == nil && p.Offset != offset {
		return p, refuse(OtherOffset, "it was made for a commit of offset %d, not of %d: something else has changed the commit", p.Offset, offset)
	}
	p.Fence = int64(r.uvarint("the fence", math.MaxInt64))
	p.Epoch = int32(int64(r.uvarint("the leader epoch", 1<<31)) - 1)
	p.Clean = flags&flagClean != 0
	p.Suspect = -1
	if flags&^flagsKnown != 0 {
		r.fail("it has flags that version %d does not have: %#x", version, flags)
	}
	if flags&flagStarts != 0 {
		if p.Starts = int(r.uvarint("the number of starts", maxInt)); p.Starts == 0 {
			r.fail("its number of starts is 0")
		}
	}
	if flags&flagReach != 0 {
		if p.Reach = r.near("the reach", offset); p.Reach == 0 {
			r.fail("its reach is 0")
		}
	}
	if flags&flagSuspect != 0 {
		p.Suspect = r.near("the suspect", offset)
	}
	if flags&flagCrashes != 0 {
		p.Crashes = r.crashes(offset)
	}
	if flags&flagSegments != 0 {
		r.segments(&p)
		if r.err == nil {
			r.lists(&p, flags, len(b))
		}
	} else if flags&(flagMarkers|flagAttempts|flagSteady) != 0 {
		r.fail("it has flags that go together with segments, and no segments")
	}
	if r.err == nil && len(r.data) > 0 {
		r.fail("%d bytes are left at its end", len(r.data))
	}
	if r.err != nil {
		return Progress{}, r.err
	}
	return p, nil
}

func (r *reader) segments(p *Progress) {
	end := p.Offset
	for more := true; more && r.err == nil; {
		kind := r.bytes("a segment", 1)[0]
		more = kind&kindMore != 0
		if kind&^kindKnown != 0 {
			r.fail("a segment begins with %#x", kind)
		}
		s := Segment{Order: r.order(kind)}
		if end == math.MaxInt64 {
			r.fail("a segment ends beyond %d", int64(math.MaxInt64))
			return
		}
		end += 1 + int64(r.uvarint("a segment's length", uint64(math.MaxInt64-1-end)))
		s.End = end
		if kind&kindCheck != 0 {
			if s.Check = binary.BigEndian.Uint32(r.bytes("a check", 4)); s.Check == 0 {
				r.fail("a check is 0")
			}
		}
		p.Segments = append(p.Segments, s)
	}
}

// lists reads heads, markers and attempts. size is that of the whole data.
func (r *reader) lists(p *Progress, flags uint64, size int) {
	window := uint64(p.Horizon() - p.Offset)
	heads := 1 + r.uvarint("the number of heads", window-1)
	ranges := 1 + r.uvarint("the number of ranges", min(heads, window-heads+1)-1)
	var markers, attempts, failures uint64
	if flags&flagMarkers != 0 {
		markers = 1 + r.uvarint("the number of markers", heads-1)
	}
	if flags&flagAttempts != 0 {
		attempts = 1 + r.uvarint("the number of attempts", heads-1)
	}
	if r.err != nil {
		return
	}
	limit := uint64(size) * itemsPerByte
	if ranges > limit || markers > limit || attempts > limit || ranges+markers+attempts > limit {
		r.fail("it claims %d ranges, %d markers and %d attempts, too much for its %d bytes", ranges, markers, attempts, size)
		return
	}
	if attempts > 0 {
		failures = r.uvarint("the sum of attempts", attempts*(maxInt-1))
	}
	if r.err != nil {
		return
	}
	var d decoder
	coded := r.data
	d.begin(coded)
	all := make([]Range, 0, int(ranges)+len(p.Segments)-1)
	if all = d.ranges(all, p, window, heads, ranges, flags&flagSteady != 0); all == nil {
		r.fail("the runs of heads go beyond the horizon")
		return
	}
	split(p, all)
	if markers > 0 && !d.markers(p, all, heads, markers) {
		r.fail("the markers go beyond the heads")
		return
	}
	if attempts > 0 && !d.attempts(p, all, heads, attempts, failures) {
		r.fail("the attempts go beyond the heads")
		return
	}
	// Padded data is as long as it must be, and ends with zeros.
	if size == padded(int(ranges+markers+attempts)) {
		for len(coded) > 0 && len(coded) > d.bare() && coded[len(coded)-1] == 0 {
			coded = coded[:len(coded)-1]
		}
		d.in = coded
	}
	if !d.done() {
		r.fail("the coded part has %d bytes, which is not what its numbers need", len(r.data))
		return
	}
	r.data = nil
}
