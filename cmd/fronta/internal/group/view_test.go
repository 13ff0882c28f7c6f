package group

import (
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/fronta-mq/fronta/progress"
)

// record is a record in a random history: its lane, and whether it is finished.
type record struct {
	lane     int
	finished bool
}

// history is a segment of records that finished as lanes do: each lane up to some record.
func history(random *rand.Rand, from, to int64, order string) (records []record, s progress.Segment) {
	lanes := 1 + random.IntN(6)
	if order == "partition" {
		lanes = 1
	}
	left := make([]int, lanes)
	for i := range left {
		left[i] = random.IntN(8)
	}
	reached := make(map[int]bool) // lanes whose head has come
	s = progress.Segment{End: to, Order: order}
	for offset := from; offset < to; offset++ {
		r := record{lane: random.IntN(lanes)}
		switch {
		case order == "unordered":
			r.finished = random.IntN(3) > 0
		case reached[r.lane]:
		case left[r.lane] > 0:
			left[r.lane]--
			r.finished = true
		}
		head := !r.finished && (order == "unordered" || !reached[r.lane])
		if r.finished && order != "unordered" && left[r.lane] == 0 && random.IntN(2) == 0 {
			// Behind this one the lane is not known: whatever comes of it counts as unfinished.
			s.Markers = append(s.Markers, offset)
			head = true
		}
		if head {
			reached[r.lane] = true
			if n := len(s.Heads); n > 0 && s.Heads[n-1].To == offset {
				s.Heads[n-1].To++
			} else {
				s.Heads = append(s.Heads, progress.Range{From: offset, To: offset + 1})
			}
		}
		records = append(records, r)
	}
	return records, s
}

// The figure never exceeds what a reader of the records would count, and is just that where it says so.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	exacts := make(map[string]int)
	for range 20_000 {
		p := progress.Progress{Offset: 100}
		at, want, order := int64(100), int64(0), ""
		for range random.IntN(3) {
			order = []string{"key", "unordered", "partition", "bucket:3"}[random.IntN(4)]
			records, s := history(random, at, at+int64(random.IntN(30)), order)
			p.Segments = append(p.Segments, s)
			for _, r := range records {
				if !r.finished {
					want++
				}
			}
			at = s.End
		}
		beyond := int64(random.IntN(5))
		want += beyond
		n, exact := Unfinished(&p, at+beyond)
		if n > want || (exact && n != want) {
			t.Fatalf("%d (exact %v), want %d: %+v", n, exact, want, p)
		}
		laned := slices.ContainsFunc(p.Segments, func(s progress.Segment) bool { return s.Order != "unordered" && s.Order != "partition" })
		if !laned && !exact {
			t.Fatalf("not exact: %+v", p)
		}
		if laned && exact {
			exacts["lanes"]++
		}
		if !exact {
			exacts["not"]++
		}
	}
	if exacts["lanes"] == 0 || exacts["not"] == 0 {
		t.Errorf("not every case came: %v", exacts)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "kgo-1", "řeřicha", "漢字", "a😀b", "\xff\xfe"} {
		if got, want := units(s), len(utf16.Encode([]rune(s))); got != want {
			t.Errorf("%q has %d units, not %d", s, want, got)
		}
	}
}
