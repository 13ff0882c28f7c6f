package progress

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unicode"
)

func TestLetters(t *testing.T) {
	t.Parallel()
	seen := make(map[rune]bool)
	for v := range uint32(wideValues + tailValues) {
		r := letter(v)
		if back, ok := value(r); !ok || back != v {
			t.Fatalf("%d is %U, which is %d, %v", v, r, back, ok)
		}
		if seen[r] || r > 0xFFFF || r < 0x800 || unicode.Is(unicode.Cs, r) || unicode.IsControl(r) || unicode.Is(unicode.M, r) || len(string(r)) != wideUTF8 {
			t.Fatalf("%d is %U, which won't do", v, r)
		}
		if s := string(appendLetter(nil, v)); s != string(r) {
			t.Fatalf("%d is written as %q, not %q", v, s, string(r))
		}
		seen[r] = true
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if _, ok := value(r); ok != seen[r] {
			t.Fatalf("%U: %v", r, ok)
		}
	}
}

// Every number of bytes has a text of its own, and no other text says the same.
func TestForms(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 200 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		for _, text := range []string{string(appendWide(nil, b)), string(appendASCII(nil, b))} {
			if text == "" {
				continue
			}
			got, err := data(text)
			if err != nil || !bytes.Equal(got, b) {
				t.Fatalf("%d bytes: %x became %x, %v", n, b, got, err)
			}
			if own, wide := isOwn(text); !own || wide != (text[0] != asciiMark) {
				t.Fatalf("%q is taken for own: %v, wide: %v", text, own, wide)
			}
			units := utf16Units(text)
			rest := []rune(text)
			last := rest[len(rest)-1]
			if text[0] == asciiMark {
				if asciiUnits(n) != units || asciiRoom(units) != n || asciiRoom(units-1) >= n {
					t.Fatalf("%d bytes: %d units, room for %d", n, units, asciiRoom(units))
				}
				continue
			}
			if wideUnits(n) != units || wideRoom(units) < n || wideRoom(units-1) >= n {
				t.Fatalf("%d bytes: %d units, room for %d", n, units, wideRoom(units))
			}
			// No other last letter makes the same bytes.
			for v := range uint32(wideValues + tailValues) {
				rest[len(rest)-1] = letter(v)
				if n > 4 && v < wideValues-300 {
					continue // enough of them
				}
				if other, err := data(string(rest)); err == nil && bytes.Equal(other, b) && letter(v) != last {
					t.Fatalf("%q and %q say the same", text, string(rest))
				}
			}
		}
	}
	for _, text := range []string{
		"\u3400\uac00", "\u3400\ua000", "\u3400a", "\u3400\u4dc0", // not of the alphabet
		string(letter(wideValues)),                                         // seven bits of no byte
		string(letter(0)) + string(letter(wideValues+1)),                   // a bit too much
		string(letter(0)) + string(letter(wideValues)) + string(letter(0)), // goes on
		string(letter(1)),                                                      // the last bits are not zero
		string(letter(0)) + "\xff", "~\n", "~A", "~AA==", "~AB", "~A A", "~A+", // not base64
	} {
		if b, err := data(text); err == nil && (len(text) != 3 || text != "\u3400") {
			t.Errorf("%q is %x", text, b)
		}
	}
}
