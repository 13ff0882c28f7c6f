package progress_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/progress"
)

func headsOf(p *progress.Progress) (n int64) {
	for _, s := range p.Segments {
		for _, r := range s.Heads {
			n += r.To - r.From
		}
	}
	return n
}

// size is how many bytes the heads of p take, which is what Bound is about.
func size(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *progress.Encoder, p *progress.Progress,
) int {
	t.Helper()
	text, fit := e.Append(nil, p, about, progress.Limit{Units: plenty})
	if fit.Horizon != p.Horizon() {
		// It takes more than any text can have: there is nothing to learn of
		// its size but that.
		return -1
	}
	return progress.HeadBytes(string(text))
}

// The bound holds for whatever set of heads there may be, in however many
// segments.
func TestBound(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	r := rand.New(rand.NewPCG(5, 6))
	for _, window := range []int{1, 2, 3, 5, 8, 13, 30, 100, 300, 1000, 5000, 60_000} {
		for name, p := range kinds(r, window) {
			heads := headsOf(p)
			is, most := size(t, &e, p), progress.Bound(int64(window), heads)
			if is > most {
				t.Errorf("%s, %d heads among %d: %d bytes, bound %d", name, heads, window, is, most)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		p.Attempts = nil
		for i := range p.Segments {
			p.Segments[i].Markers = nil
		}
		heads, window := int64(0), p.Horizon()-p.Offset
		for _, s := range p.Segments {
			for _, r := range s.Heads {
				heads += r.To - r.From
			}
		}
		if is, most := size(t, &e, p), progress.Bound(window, heads); is > most {
			t.Fatalf("%d heads among %d: %d bytes, bound %d", heads, window, is, most)
		}
	})
}

// Sets whose runs and gaps come from distributions that are drawn, which
// switch, and take turns, to find what is worst for both ways of coding.
func TestBoundOfWorstSets(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	worst := 0.0
	rapid.Check(t, func(t *rapid.T) {
		type part struct {
			Run, Gap int64
			Spread   int // 0: always the same, 1: uniform, 2: geometric, 3: powers of two
			Times    int
		}
		length := rapid.OneOf(rapid.Int64Range(1, 4), rapid.Int64Range(1, 200), rapid.Int64Range(1, 1<<20), rapid.Int64Range(1, 1<<44))
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) part {
			return part{length.Draw(t, "run"), length.Draw(t, "gap"), rapid.IntRange(0, 3).Draw(t, "spread"), rapid.IntRange(1, 200).Draw(t, "times")}
		}), 1, 4).Draw(t, "parts")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		spread := func(n int64, how int) int64 {
			switch how {
			case 1:
				return 1 + r.Int64N(2*n)
			case 2:
				return 1 + int64(r.ExpFloat64()*float64(n))
			case 3:
				return 1 << (1 + r.IntN(1+int(math.Log2(float64(n)))))
			}
			return n
		}
		var lengths []int64
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for _, p := range parts {
				for range p.Times {
					lengths = append(lengths, spread(p.Run, p.Spread), spread(p.Gap, p.Spread))
				}
			}
		}
		p := set(rapid.SampledFrom([]int64{0, 1 << 40}).Draw(t, "offset"), lengths...)
		heads, window := headsOf(p), p.Horizon()-p.Offset
		is, most := size(t, &e, p), progress.Bound(window, heads)
		if is > most {
			t.Fatalf("%d heads among %d: %d bytes, bound %d", heads, window, is, most)
		}
		if is > 200 {
			worst = max(worst, float64(is)/float64(most))
		}
		// Fewer heads in a smaller window take no more than is said of more.
		h, w := rapid.Int64Range(heads, math.MaxInt64).Draw(t, "more heads"), rapid.Int64Range(window, math.MaxInt64).Draw(t, "larger window")
		if more := progress.Bound(w, h); more < most {
			t.Fatalf("Bound(%d, %d) is %d, Bound(%d, %d) is %d", window, heads, most, w, h, more)
		}
	})
	t.Logf("the largest share of the bound that was taken: %.3f", worst)
}

// All sets of a small window.
func TestBoundOfSmallWindows(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	const window = 14
	for bits := 1; bits < 1<<window; bits += 2 {
		p := setOf(0, window, func(i int) bool { return bits>>i&1 == 1 })
		if is, most := size(t, &e, p), progress.Bound(window, headsOf(p)); is > most {
			t.Fatalf("%b: %d bytes, bound %d", bits, is, most)
		}
	}
}

func TestBoundIsMonotone(t *testing.T) {
	t.Parallel()
	for w := int64(0); w < 300; w++ {
		for h := int64(0); h < 300; h++ {
			is := progress.Bound(w, h)
			if progress.Bound(w+1, h) < is || progress.Bound(w, h+1) < is || w > 0 && h > 0 && is <= 0 {
				t.Fatalf("Bound(%d, %d) is %d, with one more offset %d, with one more head %d", w, h, is, progress.Bound(w+1, h), progress.Bound(w, h+1))
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64Range(0, 1<<20), rapid.Int64Range(0, math.MaxInt64-1), rapid.Map(rapid.IntRange(0, 62), func(n int) int64 { return 1 << n }))
		w, h := number.Draw(t, "window"), number.Draw(t, "heads")
		is := progress.Bound(w, h)
		for _, step := range []int64{1, 2, w / 1000, w, h / 1000, h} {
			if step > math.MaxInt64-w || step > math.MaxInt64-h {
				continue
			}
			if more := progress.Bound(w+step, h); more < is {
				t.Fatalf("Bound(%d, %d) is %d, Bound(%d, %d) is %d", w, h, is, w+step, h, more)
			}
			if more := progress.Bound(w, h+step); more < is {
				t.Fatalf("Bound(%d, %d) is %d, Bound(%d, %d) is %d", w, h, is, w, h+step, more)
			}
		}
	})
	for _, none := range [][2]int64{{0, 0}, {0, 5}, {5, 0}, {-1, 5}, {5, -1}, {math.MinInt64, math.MinInt64}} {
		if n := progress.Bound(none[0], none[1]); n != 0 {
			t.Errorf("Bound(%d, %d) is %d", none[0], none[1], n)
		}
	}
}

// The bound is tight: a random set takes nearly all of it.
func TestBoundIsTight(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	r := rand.New(rand.NewPCG(7, 8))
	for _, share := range []float64{0.001, 0.01, 0.1, 0.3, 0.5} {
		p := random(r, 60_000, share, 0)
		is, most := size(t, &e, p), progress.Bound(60_000, headsOf(p))
		if float64(most) > 1.005*float64(is)+8 {
			t.Errorf("%v: %d bytes, bound %d", share, is, most)
		}
		t.Logf("share %v: %d bytes, bound %d", share, is, most)
	}
}

func TestHeaderBytes(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		p.Attempts, p.Crashes = nil, nil
		if len(p.Segments) > 1 {
			p.Segments = p.Segments[:1]
		}
		for i := range p.Segments {
			p.Segments[i].Markers = nil
			p.Segments[i].Order = rapid.SampledFrom([]string{"key", "unordered", "bucket:1073741824", "key:" + strings.Repeat("x", 24)}).Draw(t, "order")
		}
		text, fit := e.Append(nil, p, about, progress.Limit{Units: plenty})
		if fit.Horizon != p.Horizon() {
			t.Skip("too large for any text")
		}
		all := progress.DataBytes(string(text))
		if n := all - progress.HeadBytes(string(text)); n > progress.HeaderBytes {
			t.Fatalf("a header of %d bytes, %+v", n, p)
		}
		if most := progress.HeaderBytes + progress.Bound(p.Horizon()-p.Offset, headsOf(p)); all > most {
			t.Fatalf("%d bytes, at most %d were to be expected", all, most)
		}
	})
	p := &progress.Progress{
		Offset: math.MaxInt64 - 1, Epoch: math.MaxInt32, Fence: math.MaxInt64, Starts: math.MaxInt32, Reach: 1, Suspect: 0,
		Segments: []progress.Segment{{End: math.MaxInt64, Order: "key:" + strings.Repeat("x", 24), Check: 1, Heads: []progress.Range{{From: math.MaxInt64 - 1, To: math.MaxInt64}}}},
	}
	text, _ := e.Append(nil, p, about, progress.Limit{Units: plenty})
	if n := progress.DataBytes(string(text)); n > progress.HeaderBytes+progress.Bound(1, 1) {
		t.Errorf("%d bytes", n)
	}
}

func entropy(n, k float64) float64 {
	return -n * (k/n*math.Log2(k/n) + (n-k)/n*math.Log2((n-k)/n)) / 8
}

// The figures that docs/formats.md states.
func TestSizes(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	for _, c := range []struct {
		share, ratio float64
		window       int
	}{{0.01, 1.06, 500_000}, {0.1, 1.03, 120_000}, {0.5, 1.03, 58_000}} {
		sum, smallest := 0.0, math.MaxInt
		for seed := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, 9))
			p := random(r, 60_000, c.share, 4_821_337_905)
			text, fit := e.Append(nil, p, about, progress.Limit{Units: plenty})
			sum += float64(progress.DataBytes(string(text))) / entropy(60_000, float64(fit.Heads))

			p = random(r, 2*c.window, c.share, 4_821_337_905)
			_, fit = e.Append(nil, p, about, progress.Limit{Units: 4096})
			smallest = min(smallest, int(fit.Horizon-p.Offset))
		}
		t.Logf("%v: %.4f times the entropy, %d offsets in 4096 units", c.share, sum/5, smallest)
		if sum/5 > c.ratio || smallest < c.window {
			t.Errorf("%v: %.4f times the entropy, %d offsets in 4096 units", c.share, sum/5, smallest)
		}
	}
	for _, c := range []struct {
		p    *progress.Progress
		most int
	}{
		{&progress.Progress{Offset: 4_821_337_905, Epoch: 37, Fence: 218_430_551_204, Suspect: -1}, 32},
		{&progress.Progress{
			Offset: 4_821_337_905, Epoch: 37, Fence: 218_430_551_204, Suspect: -1, Starts: 3, Reach: 4_822_337_907,
			Segments: []progress.Segment{{End: 4_822_337_906, Order: "key:customer", Check: 1, Heads: []progress.Range{{From: 4_821_337_905, To: 4_821_337_906}}}},
			Attempts: []progress.Count{{Offset: 4_821_337_905, N: 9}},
			Crashes:  []progress.Count{{Offset: 4_821_337_905, N: 1}},
		}, 99},
	} {
		_, fit := e.Append(nil, c.p, about, progress.Limit{Units: 4096})
		t.Logf("%d units for %+v", fit.Units, c.p)
		if fit.Units > c.most {
			t.Errorf("%d units for %+v", fit.Units, c.p)
		}
	}
}

// Sets that are no worse than random, and some that are much better.
func TestSizesOfPatterns(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	for name, most := range map[string]float64{
		"one in 10": 0.05, "two periods": 0.55, "thicker towards the end": 0.75, "bursts": 0.75,
		"one half dense, one sparse": 0.95, "blocks": 0.05, "lengths of powers of two": 1,
	} {
		p := kinds(rand.New(rand.NewPCG(1, 1)), 60_000)[name]
		is, all := float64(size(t, &e, p)), entropy(60_000, float64(headsOf(p)))
		t.Logf("%s: %.0f bytes, a random set with so many heads %.0f", name, is, all)
		if is > most*all+4 {
			t.Errorf("%s: %.0f bytes, a random set with so many heads %.0f", name, is, all)
		}
	}
}

func TestLimitBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		l    progress.Limit
		want int
	}{
		{progress.Limit{Units: 4096}, 7680},
		{progress.Limit{Units: 4096, ASCII: true}, 3071},
		{progress.Limit{}, 0},
		{progress.Limit{Units: -1}, 0},
		{progress.Limit{Units: math.MinInt}, 0},
		{progress.Limit{Units: 1}, 1},
		{progress.Limit{Units: 1, ASCII: true}, 0},
		{progress.Limit{Units: 10922}, 20478},
		{progress.Limit{Units: 32767}, 24574},
		{progress.Limit{Units: math.MaxInt}, 24574},
		{progress.Limit{Units: math.MaxInt, ASCII: true}, 24574},
	} {
		if n := c.l.Bytes(); n != c.want {
			t.Errorf("%+v: %d bytes, want %d", c.l, n, c.want)
		}
	}
	// So many bytes do fit, in one form or the other. H-027: and no more than
	// that, whatever the broker would take.
	var e progress.Encoder
	p := random(rand.New(rand.NewPCG(1, 1)), 300_000, 0.5, 0)
	for _, units := range []int{100, 4096, 10922, 12000, 27305, 32767, 1 << 20} {
		for _, ascii := range []bool{false, true} {
			l := progress.Limit{Units: units, ASCII: ascii}
			text, fit := e.Append(nil, p, about, l)
			checkText(t, string(text), fit, l)
			if n := progress.DataBytes(string(text)); n > l.Bytes() || n < l.Bytes()-l.Bytes()/100-4 {
				t.Errorf("%+v: %d bytes of %d", l, n, l.Bytes())
			}
		}
	}
}

func ExampleBound() {
	// A partition has 500 lanes with unfinished records among the 1,000,000
	// offsets from its first unfinished one on. Whichever offsets these are:
	fmt.Println(progress.Bound(1_000_000, 500) <= progress.Limit{Units: 4096}.Bytes()-progress.HeaderBytes)
	// Output: true
}

// Data has no more than 64 ranges for each of its bytes: it is filled up.
func TestPadding(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	for _, ranges := range []int{1000, 1600, 2000, 10_000, 100_000} {
		p := set(0, slices.Repeat([]int64{1}, 2*ranges)...)
		text, fit := e.Append(nil, p, about, progress.Limit{Units: plenty})
		b := progress.Data(string(text))
		if least := (ranges + 63) / 64; fit.Short || len(b) < least || ranges >= 2000 && len(b) != least {
			t.Errorf("%d ranges in %d bytes, %+v", ranges, len(b), fit)
		}
		if _, _, err := progress.Decode(string(text), 0, about); err != nil {
			t.Error(err)
		}
		if ranges < 2000 {
			continue
		}
		for _, wrong := range [][]byte{b[:len(b)-1], append(slices.Clone(b), 0), append(slices.Clone(b[:len(b)-1]), 1)} {
			_, _, err := progress.Decode(progress.ASCII(progress.Seal(slices.Clone(wrong))), 0, about)
			if r, ok := err.(*progress.Reason); !ok || r.Code != progress.Impossible {
				t.Errorf("%d ranges in %d bytes: %v", ranges, len(wrong), err)
			}
		}
	}
}
