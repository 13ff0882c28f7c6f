package out

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table writes rows in columns, the first row being the headings. A column of numbers is aligned to the right, any other to
// the left. Cells may have anything in them: they are cleaned.
func Table(w io.Writer, rows ...[]string) {
	var widths []int
	var words []bool // whether a column has anything but numbers below its heading
	for i, row := range rows {
		for j, cell := range row {
			if j == len(widths) {
				widths, words = append(widths, 0), append(words, false)
			}
			widths[j] = max(widths[j], utf8.RuneCountInString(cell))
			words[j] = words[j] || (i > 0 && !numeric(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for j, cell := range row {
			pad := strings.Repeat(" ", widths[j]-utf8.RuneCountInString(cell))
			if j > 0 {
				b.WriteString("  ")
			}
			if words[j] {
				b.WriteString(Clean(cell) + pad)
			} else {
				b.WriteString(pad + Clean(cell))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// numeric tells a number, as it is written for people, or the dash that stands for none.
func numeric(cell string) bool {
	digits := strings.TrimLeft(cell, "-<>=~ ")
	return cell == "-" || (digits != "" && strings.Trim(digits, "0123456789,.") == "")
}

// Clean replaces control characters, which would do something to a terminal, and what is no text at all.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
