package progress_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/progress"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/fronta-v1.json anew")

// about is the partition of most tests.
var about = progress.Binding{
	TopicID:   [16]byte{0x5e, 0x1d, 0x9a, 0x07, 0xc3, 0x44, 0x4b, 0xe2, 0x8f, 0x60, 0x12, 0xd8, 0x77, 0xa1, 0x3c, 0xf9},
	Partition: 11,
}

const plenty = 1 << 20

func encode(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *progress.Progress, l progress.Limit) (string, progress.Fit) {
	t.Helper()
	var e progress.Encoder
	text, fit := e.Append([]byte("before"), p, about, l)
	if !bytes.HasPrefix(text, []byte("before")) {
		t.Fatalf("Append changed what was there: %q", text)
	}
	checkText(t, string(text[6:]), fit, l)
	return string(text[6:]), fit
}

// checkText checks that a text has the form that it may have.
func checkText(t interface {
	Helper()
	Fatalf(string, ...any)
}, text string, fit progress.Fit, l progress.Limit) {
	t.Helper()
	if !utf8.ValidString(text) || len(text) > 32767 {
		t.Fatalf("a text of %d bytes, valid UTF-8: %v", len(text), utf8.ValidString(text))
	}
	if units := len(utf16.Encode([]rune(text))); units != fit.Units || units > max(l.Units, 0) {
		t.Fatalf("%d units, %+v, limit %+v", units, fit, l)
	}
	if wide := len(text) != fit.Units; wide != fit.Wide || wide && l.ASCII {
		t.Fatalf("%+v, limit %+v, text %q", fit, l, text)
	}
}

func set(offset int64, lengths ...int64) *progress.Progress {
	p := &progress.Progress{Offset: offset, Epoch: -1, Suspect: -1}
	s := progress.Segment{Order: "key"}
	at := offset
	for i, n := range lengths {
		if i%2 == 0 {
			s.Heads = append(s.Heads, progress.Range{From: at, To: at + n})
		}
		at += n
	}
	s.End = at
	if at > offset {
		p.Segments = []progress.Segment{s}
	}
	return p
}

// goldens are progress with texts that stay readable for ever (H-025). Their
// texts are in testdata; -rewrite adds those that are not there yet.
func goldens() map[string]*progress.Progress {
	long := strings.Repeat("customer.", 12)
	cases := map[string]*progress.Progress{
		"nothing known":                  {Epoch: -1, Suspect: -1},
		"nothing unfinished":             {Offset: 4_821_337_905, Epoch: 37, Fence: 218_430_551_204, Clean: true, Suspect: -1},
		"the highest numbers":            {Offset: math.MaxInt64, Epoch: math.MaxInt32, Fence: math.MaxInt64, Starts: math.MaxInt32, Reach: math.MaxInt64, Suspect: math.MaxInt64, Crashes: []progress.Count{{Offset: math.MaxInt64, N: math.MaxInt32}}},
		"one stuck key":                  set(4_821_337_905, 1, 1_000_000),
		"everything unfinished":          set(100, 5000),
		"every second":                   {},
		"a few":                          set(0, 1, 5, 2, 1, 1, 100, 3, 40000, 1),
		"many, at random":                {},
		"in bursts":                      {},
		"care":                           set(700, 3, 10, 1, 1),
		"attempts":                       set(50, 1, 9, 1, 30, 4, 6),
		"markers":                        set(50, 1, 9, 1, 30, 4, 6),
		"orders":                         {Offset: 10, Epoch: 3, Suspect: -1},
		"a former order":                 set(20, 2, 8),
		"a window of 2^62":               set(0, 1, 1<<61, 2, 1<<61-3),
		"a segment without heads":        set(5, 1, 4),
		"runs on where two segments met": set(5, 5),
	}
	every := cases["every second"]
	*every = *set(1<<40, slices.Repeat([]int64{1}, 400)...)
	r := rand.New(rand.NewPCG(1, 2))
	*cases["many, at random"] = *random(r, 3000, 0.2, 77)
	var bursts []int64
	for range 30 {
		for range 5 + r.IntN(20) {
			bursts = append(bursts, 1+r.Int64N(2), 1+r.Int64N(3))
		}
		bursts = append(bursts, 1, 500+r.Int64N(3000))
	}
	*cases["in bursts"] = *set(12345, bursts...)
	c := cases["care"]
	c.Starts, c.Reach, c.Suspect, c.Fence = 2, 1715, 713, 99
	c.Crashes = []progress.Count{{Offset: 700, N: 1}, {Offset: 713, N: 300}}
	cases["attempts"].Attempts = []progress.Count{{Offset: 50, N: 1}, {Offset: 60, N: 7}, {Offset: 94, N: math.MaxInt32}}
	cases["markers"].Segments[0].Markers = []int64{50, 92}
	for i, order := range []string{"key", "key:customer", "key:", "bucket:64", "partition", "unordered", "bucket:007", "bucket:", "", "something else", "key:" + long[:64], "key:" + long[:65], long[:64], long} {
		from := int64(10 + 10*i)
		cases["orders"].Segments = append(cases["orders"].Segments, progress.Segment{End: from + 10, Order: progress.OrderName(order), Check: uint32(i), Heads: []progress.Range{{From: from, To: from + 1}, {From: from + 5, To: from + 7}}})
	}
	former := cases["a former order"]
	former.Segments = append(former.Segments, progress.Segment{End: 90, Order: "bucket:8", Check: 1 << 31, Heads: []progress.Range{{From: 40, To: 41}, {From: 88, To: 90}}, Markers: []int64{40}})
	none := cases["a segment without heads"]
	none.Segments = append(none.Segments, progress.Segment{End: 20, Order: "unordered"}, progress.Segment{End: 21, Order: "key", Heads: []progress.Range{{From: 20, To: 21}}})
	met := cases["runs on where two segments met"]
	met.Segments = append(met.Segments, progress.Segment{End: 20, Order: "unordered", Heads: []progress.Range{{From: 10, To: 12}}})
	return cases
}

// random is a set of which each offset is a head with the same probability.
func random(r *rand.Rand, window int, share float64, offset int64) *progress.Progress {
	p := &progress.Progress{Offset: offset, Epoch: 37, Fence: 218_430_551_204, Suspect: -1}
	s := progress.Segment{End: offset + int64(window), Order: "key", Check: 0x8badf00d}
	for i := range int64(window) {
		if i > 0 && r.Float64() >= share {
			continue
		}
		if n := len(s.Heads); n > 0 && s.Heads[n-1].To == offset+i {
			s.Heads[n-1].To++
		} else {
			s.Heads = append(s.Heads, progress.Range{From: offset + i, To: offset + i + 1})
		}
	}
	p.Segments = []progress.Segment{s}
	return p
}

type golden struct {
	Description string             `json:"description"`
	TopicID     string             `json:"topic_id"`
	Partition   int32              `json:"partition"`
	Text        string             `json:"text"`
	Wide        string             `json:"wide"`
	Hex         string             `json:"hex"`
	Progress    *progress.Progress `json:"progress"`
}

// H-025
func TestGolden(t *testing.T) {
	t.Parallel()
	var known []golden
	if _, err := os.Stat("testdata/fronta-v1.json"); err == nil {
		load(t, "fronta-v1.json", &known)
	}
	cases := goldens()
	for _, g := range known {
		id, err := hex.DecodeString(g.TopicID)
		if err != nil || len(id) != 16 {
			t.Fatalf("%s: topic id %q", g.Description, g.TopicID)
		}
		b := progress.Binding{TopicID: [16]byte(id), Partition: g.Partition}
		for _, text := range []string{g.Text, g.Wide} {
			p, f, err := progress.Decode(text, g.Progress.Offset, b)
			if err != nil || f != progress.Fronta {
				t.Errorf("%s: %v, %v", g.Description, f, err)
			} else if d := cmp.Diff(g.Progress, &p); d != "" {
				t.Errorf("%s: (-is +decoded) %s", g.Description, d)
			}
		}
		var e progress.Encoder
		if text, _ := e.Append(nil, g.Progress, b, progress.Limit{Units: plenty}); string(text) != g.Text {
			t.Errorf("%s: encoded as %q, was %q", g.Description, text, g.Text)
		}
		raw, err := base64.RawURLEncoding.DecodeString(g.Text[1:])
		if err != nil || hex.EncodeToString(raw) != g.Hex {
			t.Errorf("%s: hex is %x, want %s", g.Description, raw, g.Hex)
		}
		if c := cases[g.Description]; c != nil && !reflect.DeepEqual(c, g.Progress) {
			t.Errorf("%s: (-test +testdata) %s", g.Description, cmp.Diff(c, g.Progress))
		}
		delete(cases, g.Description)
	}
	if len(cases) == 0 {
		return
	}
	if !*rewrite {
		t.Fatalf("%d cases are not in testdata, such as %q", len(cases), anyKey(cases))
	}
	for _, name := range sorted(cases) {
		p := cases[name]
		text, _ := encode(t, p, progress.Limit{Units: plenty})
		raw, err := base64.RawURLEncoding.DecodeString(text[1:])
		if err != nil {
			t.Fatal(err)
		}
		known = append(known, golden{
			Description: name, TopicID: hex.EncodeToString(about.TopicID[:]), Partition: about.Partition,
			Text: text, Wide: progress.Wide(raw), Hex: hex.EncodeToString(raw), Progress: p,
		})
	}
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, g := range known {
		line, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
		if i < len(known)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	if err := os.WriteFile("testdata/fronta-v1.json", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sorted[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func anyKey[V any](m map[string]V) string { return sorted(m)[0] }

// drawProgress draws a valid progress.
func drawProgress(t *rapid.T) *progress.Progress {
	number := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, math.MaxInt64), rapid.SampledFrom([]int64{32767, 32768, 65536, 1<<31 + 1, 1 << 62}))
	count := rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(1, math.MaxInt32))
	p := &progress.Progress{
		Offset:  number.Draw(t, "offset"),
		Epoch:   int32(rapid.OneOf(rapid.IntRange(-1, 5), rapid.IntRange(-1, math.MaxInt32)).Draw(t, "epoch")),
		Fence:   number.Draw(t, "fence"),
		Clean:   rapid.Bool().Draw(t, "clean"),
		Suspect: -1,
	}
	if rapid.Bool().Draw(t, "is there a reach") {
		p.Reach = max(number.Draw(t, "reach"), 1)
	}
	if rapid.Bool().Draw(t, "is there a suspect") {
		p.Suspect = number.Draw(t, "suspect")
	}
	if rapid.Bool().Draw(t, "are there starts") {
		p.Starts = count.Draw(t, "starts")
	}
	if rapid.Bool().Draw(t, "are there crashes") {
		p.Crashes = drawCounts(t, number.Draw(t, "first crash"), rapid.IntRange(1, 5).Draw(t, "crashes"), count)
	}
	orders := rapid.OneOf(rapid.SampledFrom([]string{"key", "partition", "unordered", "bucket:8", "bucket:0", "bucket:2147483647", "bucket:2147483648", "bucket:08", "key:x"}), rapid.StringMatching(`(key:)?[a-z]{0,90}`), rapid.String())
	at := p.Offset
	for i := range rapid.IntRange(0, 4).Draw(t, "segments") {
		if at == math.MaxInt64 {
			break
		}
		s := progress.Segment{Order: progress.OrderName(orders.Draw(t, "order")), Check: rapid.Uint32().Draw(t, "check")}
		if i > 0 && rapid.Bool().Draw(t, "a gap first") {
			at = drawAbove(t, at, number)
		}
		most := rapid.SampledFrom([]int{1, 3, 40}).Draw(t, "most")
		for range rapid.IntRange(min(1-i, 0), most).Draw(t, "ranges") {
			if at == math.MaxInt64 {
				break
			}
			to := drawAbove(t, at, number)
			s.Heads = append(s.Heads, progress.Range{From: at, To: to})
			for m := at; m < to && rapid.IntRange(0, 3).Draw(t, "marker") == 0; m++ {
				s.Markers = append(s.Markers, m)
			}
			if rapid.IntRange(0, 3).Draw(t, "attempts") == 0 {
				p.Attempts = append(p.Attempts, progress.Count{Offset: to - 1, N: count.Draw(t, "n")})
			}
			at = to
			if at == math.MaxInt64 {
				break
			}
			at = drawAbove(t, at, number)
		}
		if len(s.Heads) == 0 && i == 0 {
			break
		}
		if n := len(s.Heads); n > 0 && rapid.Bool().Draw(t, "up to the last head") {
			at = s.Heads[n-1].To
		} else if at < math.MaxInt64 && (n == 0 || at == s.Heads[n-1].To) {
			at++
		}
		s.End = at
		p.Segments = append(p.Segments, s)
	}
	return p
}

func drawAbove(t *rapid.T, at int64, number *rapid.Generator[int64]) int64 {
	n := max(number.Draw(t, "length"), 1)
	if rapid.Bool().Draw(t, "short") {
		n = n%5 + 1
	}
	return at + min(n, math.MaxInt64-at)
}

func drawCounts(t *rapid.T, at int64, n int, count *rapid.Generator[int]) (list []progress.Count) {
	for range n {
		list = append(list, progress.Count{Offset: at, N: count.Draw(t, "n")})
		if at == math.MaxInt64 {
			break
		}
		at += 1 + min(rapid.Int64Range(0, 1000).Draw(t, "distance"), math.MaxInt64-at-1)
	}
	return list
}

// H-021: what is decoded is what was encoded, whatever the numbers, and it is
// encoded alike again.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		was := clone(t, p)
		text, fit := e.Append(nil, p, about, progress.Limit{Units: plenty, ASCII: rapid.Bool().Draw(t, "ascii")})
		checkText(t, string(text), fit, progress.Limit{Units: plenty})
		if !reflect.DeepEqual(p, was) {
			t.Fatalf("it was changed: %s", cmp.Diff(was, p))
		}
		if fit.Short || fit.Horizon != p.Horizon() || fit.LeftOutAttempts+fit.LeftOutCrashes+fit.LeftOutMarkers != 0 || fit.LeftOutHeads != 0 {
			t.Fatalf("%+v", fit)
		}
		got, f, err := progress.Decode(string(text), p.Offset, about)
		if err != nil || f != progress.Fronta {
			t.Fatalf("%v, %v", f, err)
		}
		if d := cmp.Diff(p, &got); d != "" {
			t.Fatalf("(-was +is) %s", d)
		}
		if again, _ := e.Append(nil, &got, about, progress.Limit{Units: plenty}); string(again) != string(text) {
			t.Fatalf("encoded again it is %q, was %q", again, text)
		}
	})
}

func clone(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *progress.Progress) *progress.Progress {
	t.Helper()
	q := *p
	q.Segments = slices.Clone(p.Segments)
	for i := range q.Segments {
		q.Segments[i].Heads = slices.Clone(q.Segments[i].Heads)
		q.Segments[i].Markers = slices.Clone(q.Segments[i].Markers)
	}
	q.Attempts, q.Crashes = slices.Clone(p.Attempts), slices.Clone(p.Crashes)
	return &q
}

// cutProgress is what p tells below horizon, with some of its attempts,
// markers and crashes.
func cutProgress(p *progress.Progress, fit progress.Fit) *progress.Progress {
	q := *p
	q.Segments, q.Attempts, q.Crashes = nil, nil, nil
	markers := 0
	for _, s := range p.Segments {
		start := q.Horizon()
		if start >= fit.Horizon {
			break
		}
		c := progress.Segment{End: min(s.End, fit.Horizon), Order: s.Order, Check: s.Check, Heads: cutAt(s.Heads, fit.Horizon)}
		if c.Heads == nil && c.End < s.End {
			c.Check = 0
		}
		for _, m := range s.Markers {
			if m < fit.Horizon {
				markers++
				c.Markers = append(c.Markers, m)
			}
		}
		q.Segments = append(q.Segments, c)
	}
	for i := len(q.Segments) - 1; fit.LeftOutMarkers > 0; i-- {
		s := &q.Segments[i]
		n := min(fit.LeftOutMarkers, len(s.Markers))
		fit.LeftOutMarkers -= n
		if s.Markers = s.Markers[:len(s.Markers)-n]; len(s.Markers) == 0 {
			s.Markers = nil
		}
	}
	q.Attempts = append(q.Attempts, p.Attempts[:len(p.Attempts)-fit.LeftOutAttempts]...)
	q.Crashes = append(q.Crashes, p.Crashes[:len(p.Crashes)-fit.LeftOutCrashes]...)
	return &q
}

// H-019, H-020: whatever the limit, there is a text that fits, it tells of the
// part next to the committed offset, and Fit says what it tells.
func TestLimits(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		whole, _ := e.Append(nil, p, about, progress.Limit{Units: plenty})
		l := progress.Limit{Units: rapid.IntRange(-1, len(whole)+1).Draw(t, "units"), ASCII: rapid.Bool().Draw(t, "ascii")}
		text, fit := e.Append(nil, p, about, l)
		checkLimited(t, p, string(text), fit, l)
		if l.Units >= len(whole) && string(text) != string(whole) {
			t.Fatalf("%+v where %d units fit", fit, len(whole))
		}
	})
}

func checkLimited(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *progress.Progress, text string, fit progress.Fit, l progress.Limit) {
	t.Helper()
	checkText(t, text, fit, l)
	whole := fit.Horizon == p.Horizon() && fit.LeftOutAttempts+fit.LeftOutCrashes+fit.LeftOutMarkers == 0 && text != ""
	if whole == fit.Short {
		t.Fatalf("%+v, the horizon is %d", fit, p.Horizon())
	}
	if text == "" {
		if fit.Horizon != p.Offset || fit.Heads != 0 || fit.LeftOutAttempts != len(p.Attempts) || fit.LeftOutCrashes != len(p.Crashes) {
			t.Fatalf("%+v for no text", fit)
		}
		return
	}
	got, _, err := progress.Decode(text, p.Offset, about)
	if err != nil {
		t.Fatalf("limit %+v, %+v: %v", l, fit, err)
	}
	if got.Horizon() != fit.Horizon {
		t.Fatalf("the horizon is %d, %+v", got.Horizon(), fit)
	}
	want := cutProgress(p, fit)
	if d := cmp.Diff(want, &got); d != "" {
		t.Fatalf("limit %+v, %+v: (-cut +decoded) %s", l, fit, d)
	}
	heads, left := int64(0), int64(0)
	for _, s := range p.Segments {
		for _, r := range s.Heads {
			heads += max(min(r.To, fit.Horizon)-r.From, 0)
			left += max(r.To-max(r.From, fit.Horizon), 0)
		}
	}
	if fit.Heads != heads || fit.LeftOutHeads != left {
		t.Fatalf("%+v, of %d and %d heads", fit, heads, left)
	}
	if fit.LeftOutHeads > 0 && (len(got.Attempts) > 0 || markers(&got) > 0) || fit.LeftOutMarkers > 0 && len(got.Attempts) > 0 || fit.LeftOutCrashes > 0 && fit.Heads > 0 {
		t.Fatalf("%+v: the wrong things were left out", fit)
	}
}

func markers(p *progress.Progress) (n int) {
	for _, s := range p.Segments {
		n += len(s.Markers)
	}
	return n
}

// A segment that is cut before its first head has no check: that is of the
// head which is left out.
func TestCheckOfCutSegment(t *testing.T) {
	t.Parallel()
	p := set(100, 1, 9)
	p.Segments[0].Check = 1
	r := rand.New(rand.NewPCG(1, 2))
	second := random(r, 5000, 0.5, 150).Segments[0]
	second.Check = 2
	p.Segments = append(p.Segments, second)
	var e progress.Encoder
	seen := make(map[int]bool)
	for units := range 200 {
		l := progress.Limit{Units: units, ASCII: true}
		text, fit := e.Append(nil, p, about, l)
		checkLimited(t, p, string(text), fit, l)
		got, _, err := progress.Decode(string(text), 100, about)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range got.Segments {
			if (s.Check != 0) != (s.Heads != nil) {
				t.Errorf("limit %+v: %+v", l, s)
			}
			if len(s.Heads) == 0 {
				seen[i] = true
			}
		}
	}
	// Room for the first head and not for a second one there is at no limit of
	// this set unless the second segment's numbers are small enough.
	p.Segments[1] = progress.Segment{End: 1 << 40, Order: "key", Check: 2, Heads: []progress.Range{{From: 1 << 39, To: 1<<39 + 1}, {From: 1<<39 + 5000, To: 1<<39 + 5001}, {From: 1<<39 + 12345678, To: 1<<39 + 12345679}}}
	for units := range 200 {
		l := progress.Limit{Units: units, ASCII: true}
		text, fit := e.Append(nil, p, about, l)
		checkLimited(t, p, string(text), fit, l)
		got, _, _ := progress.Decode(string(text), 100, about)
		for i, s := range got.Segments {
			if len(s.Heads) == 0 {
				seen[i] = true
			}
		}
	}
	if !seen[1] {
		t.Error("no limit cuts the second segment before its first head")
	}
}

// H-019: the prefix that is kept is nearly as large as it can be, in every
// kind of set.
func TestLargestPrefix(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	var e progress.Encoder
	window := 30_000
	if testing.Short() {
		window = 5_000
	}
	for name, p := range kinds(r, window) {
		for _, units := range []int{40, 64, 100, 512, 1000, 4096} {
			for _, ascii := range []bool{false, true} {
				l := progress.Limit{Units: units, ASCII: ascii}
				text, fit := e.Append(nil, p, about, l)
				checkLimited(t, p, string(text), fit, l)
				if fit.Horizon == p.Horizon() {
					continue
				}
				// Almost all of the room is used, or one head more is too much.
				bits := 15
				if !fit.Wide {
					bits = 6
				}
				used := fit.Units * bits / 8
				if room := l.Bytes(); used < room-room/64-4 {
					more := *p
					more.Segments = []progress.Segment{p.Segments[0]}
					more.Segments[0].Heads = nil
					heads := fit.Heads + 1 + fit.Heads/200
					for _, h := range p.Segments[0].Heads {
						if n := h.To - h.From; n < heads {
							more.Segments[0].Heads = append(more.Segments[0].Heads, h)
							heads -= n
						} else {
							more.Segments[0].Heads = append(more.Segments[0].Heads, progress.Range{From: h.From, To: h.From + heads})
							break
						}
					}
					more.Segments[0].End = end(more.Segments[0].Heads)
					if _, bigger := e.Append(nil, &more, about, l); bigger.LeftOutHeads == 0 {
						t.Errorf("%s, %+v: %d of %d bytes are used: %+v; but %+v", name, l, used, room, fit, bigger)
					}
				}
			}
		}
	}
}

// kinds are sets of every kind.
func kinds(r *rand.Rand, window int) map[string]*progress.Progress {
	sets := make(map[string]*progress.Progress)
	for _, share := range []float64{0, 0.0001, 0.001, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1} {
		sets[fmt.Sprintf("random, %v", share)] = random(r, window, share, 1<<32)
	}
	add := func(name string, is func(i int) bool) {
		sets[name] = setOf(1<<32, window, is)
	}
	for _, period := range []int{2, 3, 10, 1000} {
		add(fmt.Sprintf("one in %d", period), func(i int) bool { return i%period == 0 })
		add(fmt.Sprintf("all but one in %d", period), func(i int) bool { return i%period != 1 })
	}
	add("two periods", func(i int) bool { return i%8 == 0 || i%8 == 3 })
	add("thicker towards the end", func(i int) bool { return r.Float64() < math.Exp(float64(i-window)/float64(window)*20) })
	add("thicker towards the beginning", func(i int) bool { return r.Float64() < math.Exp(-float64(i)/float64(window)*20) })
	add("one half dense, one sparse", func(i int) bool { return r.Float64() < 0.4 && i > window/2 || r.Float64() < 0.002 })
	add("bursts", func(i int) bool { return i%977 < 60 && r.Float64() < 0.5 })
	add("blocks", func(i int) bool { return i%1013 < 300 })
	add("one far away", func(i int) bool { return i == window-1 })
	add("lengths of powers of two", func(i int) bool { return i&(i-1) == 0 })
	// What surprises a coder that learns: what was rare comes next.
	for _, long := range []int{4, 64, 1000} {
		at, n := 0, 1
		next := make(map[int]bool)
		for i := 0; at < window; i++ {
			next[at] = true
			if n = 1; i/60%2 == 0 {
				n = long
			}
			at += n + 1
		}
		add(fmt.Sprintf("sixty of 1, sixty of %d", long), func(i int) bool { return next[i] })
	}
	return sets
}

func setOf(offset int64, window int, is func(i int) bool) *progress.Progress {
	var lengths []int64
	for i := range window {
		head := i == 0 || is(i)
		switch {
		case head == (len(lengths)%2 == 1):
			lengths[len(lengths)-1]++
		default:
			lengths = append(lengths, 1)
		}
	}
	return set(offset, lengths...)
}
