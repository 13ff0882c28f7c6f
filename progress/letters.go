package progress

import (
	"encoding/base64"
	"unicode/utf8"
)

// A text is bytes in one of two forms.
//
// The ASCII form is a tilde and base64 with the alphabet for URLs, without
// padding: 6 bits a letter. No other format of this package begins with a
// tilde, which is in no base64 alphabet.
//
// The wide form has 15 bits a letter. Brokers limit metadata by UTF-16 units,
// and a letter of Unicode's basic plane is one unit. Letters are taken from
// blocks that no normalization changes, that have no surrogates, no controls
// and no combining marks. The text's last letter may be one of 128 that stand
// for 7 bits, so that the number of bytes is exact:
//
//	bits left for the last letter   letter
//	1 to 7                          one of the 128
//	8 to 14                         one of the 32,768, the bits that are missing are zero

const (
	asciiMark = '~'

	hanFrom, hanTo       = 0x4E00, 0x9FFF // after the first block in the order of values
	extFrom, extTo       = 0x3400, 0x4DB5 // the first block
	hangulFrom, hangulTo = 0xAC00, 0xC0C9 // the third one, as far as it is used

	extCount = extTo - extFrom + 1
	hanCount = hanTo - hanFrom + 1

	wideBits   = 15
	wideValues = 1 << wideBits
	tailBits   = 7
	tailValues = 1 << tailBits

	wideUTF8 = 3 // bytes of each of the letters
)

// maxUTF8 is what a string of Kafka's protocol may have, in bytes.
const maxUTF8 = 32767

// letter is the one that stands for a value. From wideValues on they are those
// of 7 bits.
func letter(v uint32) rune {
	switch {
	case v < extCount:
		return rune(extFrom + v)
	case v < extCount+hanCount:
		return rune(hanFrom + v - extCount)
	default:
		return rune(hangulFrom + v - extCount - hanCount)
	}
}

// value is the reverse of letter.
func value(r rune) (v uint32, ok bool) {
	switch {
	case extFrom <= r && r <= extTo:
		return uint32(r - extFrom), true
	case hanFrom <= r && r <= hanTo:
		return uint32(r-hanFrom) + extCount, true
	case hangulFrom <= r && r <= hangulTo:
		return uint32(r-hangulFrom) + extCount + hanCount, true
	default:
		return 0, false
	}
}

// asciiUnits is how many letters the ASCII form of n bytes has.
func asciiUnits(n int) int { return 1 + base64.RawURLEncoding.EncodedLen(n) }

// wideUnits is how many letters the wide form of n bytes has.
func wideUnits(n int) int { return (8*n + wideBits - 1) / wideBits }

// asciiRoom is how many bytes fit so many letters of the ASCII form, below 0
// if not even none do.
func asciiRoom(units int) int {
	units = min(units, maxUTF8)
	if units < 1 {
		return -1
	}
	return base64.RawURLEncoding.DecodedLen(units - 1)
}

// wideRoom is the same for the wide form.
func wideRoom(units int) int {
	units = min(units, maxUTF8/wideUTF8)
	if units < 1 {
		return -1
	}
	return units * wideBits / 8
}

func appendASCII(dst, data []byte) []byte {
	dst = append(dst, asciiMark)
	return base64.RawURLEncoding.AppendEncode(dst, data)
}

func appendWide(dst, data []byte) []byte {
	var acc uint32
	n := 0
	for _, b := range data {
		acc = acc<<8 | uint32(b)
		if n += 8; n >= wideBits {
			n -= wideBits
			dst = appendLetter(dst, acc>>n)
			acc &= 1<<n - 1
		}
	}
	switch {
	case n == 0:
	case n <= tailBits:
		dst = appendLetter(dst, wideValues+acc<<(tailBits-n))
	default:
		dst = appendLetter(dst, acc<<(wideBits-n))
	}
	return dst
}

// appendLetter is utf8.AppendRune for letters that have three bytes.
func appendLetter(dst []byte, v uint32) []byte {
	r := letter(v)
	return append(dst, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// isOwn says whether a text begins as fronta's do.
func isOwn(text string) (own, wide bool) {
	if text == "" {
		return false, false
	}
	if text[0] == asciiMark {
		return true, false
	}
	r, _ := utf8.DecodeRuneInString(text)
	_, wide = value(r)
	return wide, wide
}

// data are the bytes that a text of fronta's stands for.
func data(text string) ([]byte, error) {
	if _, wide := isOwn(text); wide {
		return wideData(text)
	}
	text = text[1:]
	for i := range len(text) {
		if text[i] == '\n' || text[i] == '\r' { // the decoder skips them
			return nil, refuse(Damaged, "byte %d of the text is a line break", i+1)
		}
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, refuse(Damaged, "the text is not base64: %v", err)
	}
	return b, nil
}

func wideData(text string) ([]byte, error) {
	b := make([]byte, 0, len(text)/wideUTF8*wideBits/8+1)
	var acc uint32
	n := 0
	for i, r := range text {
		v, ok := value(r)
		switch {
		case !ok:
			return nil, refuse(Damaged, "byte %d of the text belongs to no letter that it may have", i)
		case v < wideValues:
			acc, n = acc<<wideBits|v, n+wideBits
		case i+wideUTF8 < len(text):
			return nil, refuse(Damaged, "the text goes on after the letter that ends it, at byte %d", i)
		case n == 0:
			return nil, refuse(Damaged, "the text ends with a letter that it has no need of")
		default:
			acc, n = acc<<tailBits|(v-wideValues), n+tailBits
		}
		for n >= 8 {
			n -= 8
			b = append(b, byte(acc>>n))
			acc &= 1<<n - 1
		}
	}
	if acc != 0 {
		return nil, refuse(Damaged, "the text does not end with zero bits")
	}
	return b, nil
}

// utf16Units is the length of a text as Java's String.length() has it. A byte
// that is no UTF-8 counts as one.
func utf16Units(text string) (n int) {
	for _, r := range text {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
