package progress

// What tests outside of the package need.

// Wide is the wide form of binary data.
func Wide(b []byte) string { return string(appendWide(nil, b)) }

// ASCII is the ASCII form of binary data.
func ASCII(b []byte) string { return string(appendASCII(nil, b)) }

// Data are the bytes of a text of fronta's.
func Data(text string) []byte {
	b, err := data(text)
	if err != nil {
		panic(err)
	}
	return b
}

// Seal sets the checksum of binary data.
func Seal(b []byte) []byte {
	sum := checksum(b)
	b[1], b[2], b[3], b[4] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	return b
}

// DataBytes is the size of the binary form.
func DataBytes(text string) int { return len(Data(text)) }

// HeadBytes is how many of them the heads take, with their numbers.
func HeadBytes(text string) int {
	b := Data(text)
	r := reader{data: b[flagsAt:]}
	flags := r.uvarint("", 1<<32)
	r.bytes("", 4)
	p := Progress{Offset: int64(r.uvarint("", 1<<63))}
	r.uvarint("", 1<<63)
	r.uvarint("", 1<<32)
	if flags&flagStarts != 0 {
		r.uvarint("", 1<<32)
	}
	if flags&flagReach != 0 {
		r.near("", p.Offset)
	}
	if flags&flagSuspect != 0 {
		r.near("", p.Offset)
	}
	if flags&flagCrashes != 0 {
		r.crashes(p.Offset)
	}
	if flags&flagSegments == 0 {
		return 0
	}
	r.segments(&p)
	if r.err != nil {
		panic(r.err)
	}
	return len(r.data)
}
