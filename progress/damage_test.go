package progress_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/progress"
)

// valid says what is wrong with a progress that was decoded.
func valid(p *progress.Progress, offset int64, f progress.Format) error {
	if p.Offset != offset {
		return fmt.Errorf("it is about %d, not %d", p.Offset, offset)
	}
	if p.Epoch < -1 || p.Fence < 0 || p.Starts < 0 || p.Reach < 0 || p.Suspect < -1 {
		return fmt.Errorf("a number is negative: %+v", p)
	}
	at := offset
	var heads []progress.Range
	for i, s := range p.Segments {
		if s.End <= at {
			return fmt.Errorf("segment %d ends at %d, the one before at %d", i, s.End, at)
		}
		if s.Heads != nil && len(s.Heads) == 0 || s.Markers != nil && len(s.Markers) == 0 {
			return fmt.Errorf("segment %d has an empty list", i)
		}
		last := at - 1
		for _, r := range s.Heads {
			if r.From <= last || r.To <= r.From || r.To > s.End {
				return fmt.Errorf("segment %d, from %d to %d, has heads from %d to %d behind %d", i, at, s.End, r.From, r.To, last)
			}
			last = r.To
			heads = append(heads, r)
		}
		marked := int64(-1)
		for _, m := range s.Markers {
			if m <= marked || !has(s.Heads, m) {
				return fmt.Errorf("segment %d has a marker at %d behind %d, heads %v", i, m, marked, s.Heads)
			}
			marked = m
		}
		at = s.End
	}
	if f == progress.Fronta && len(p.Segments) > 0 && (len(p.Segments[0].Heads) == 0 || p.Segments[0].Heads[0].From != offset) {
		return fmt.Errorf("the first head is not the committed offset: %+v", p.Segments[0])
	}
	last := int64(-1)
	for _, a := range p.Attempts {
		if a.Offset <= last || a.N <= 0 || !has(heads, a.Offset) {
			return fmt.Errorf("attempts at %d behind %d: %d", a.Offset, last, a.N)
		}
		last = a.Offset
	}
	last = -1
	for _, c := range p.Crashes {
		if c.Offset <= last || c.N <= 0 {
			return fmt.Errorf("crashes at %d behind %d: %d", c.Offset, last, c.N)
		}
		last = c.Offset
	}
	return nil
}

func has(rs []progress.Range, offset int64) bool {
	i, found := slices.BinarySearchFunc(rs, offset, func(r progress.Range, o int64) int {
		switch {
		case r.To <= o:
			return -1
		case r.From > o:
			return 1
		}
		return 0
	})
	_ = i
	return found
}

// samples are texts of each kind, small enough to be changed everywhere.
func samples(t *testing.T) map[string]string {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	p := random(r, 400, 0.2, 4_821_337_905)
	p.Segments[0].Markers = []int64{p.Offset}
	p.Attempts = []progress.Count{{Offset: p.Offset, N: 2}}
	p.Crashes = []progress.Count{{Offset: p.Offset, N: 1}}
	p.Starts, p.Suspect, p.Reach = 2, p.Offset, p.Offset+5000
	texts := map[string]string{}
	var e progress.Encoder
	for name, p := range map[string]*progress.Progress{
		"full": p, "plain": {Offset: 4_821_337_905, Epoch: 37, Fence: 218_430_551_204, Suspect: -1},
		"stuck": set(4_821_337_905, 1, 1_000_000), "random": random(r, 1000, 0.1, 4_821_337_905),
	} {
		text, _ := e.Append(nil, p, about, progress.Limit{Units: plenty})
		texts[name] = string(text)
		texts[name+", wide"] = progress.Wide(progress.Data(string(text)))
	}
	atleon, _ := progress.AppendAtleonV1(nil, random(r, 200, 0.3, 4_821_337_905), 4096)
	texts["atleon"] = string(atleon)
	return texts
}

// H-023, H-024: a text that was changed in any way tells nothing, not even of
// the committed offset.
func TestDamage(t *testing.T) {
	t.Parallel()
	const offset = 4_821_337_905
	for name, text := range samples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := progress.Decode(text, offset, about); err != nil {
				t.Fatal(err)
			}
			damaged := func(what string, changed string) {
				t.Helper()
				if changed == text || changed == "" {
					return
				}
				p, f, err := progress.Decode(changed, offset, about)
				if err == nil {
					t.Fatalf("%s: %q is read as %v, %+v", what, changed, f, p)
				}
				if !reflect.DeepEqual(p, progress.Progress{Offset: offset, Epoch: -1, Suspect: -1}) {
					t.Fatalf("%s: refused, and yet there is %+v", what, p)
				}
			}
			for i := range len(text) {
				damaged("cut", text[:i])
				damaged("cut at the beginning", text[i:])
				damaged("a byte left out", text[:i]+text[i+1:])
				damaged("a byte twice", text[:i+1]+text[i:])
				for bit := range 8 {
					b := []byte(text)
					b[i] ^= 1 << bit
					damaged("a bit", string(b))
				}
			}
			letters := []rune(text)
			for i := range letters {
				for _, with := range []int{i + 1, i + 2, len(letters) - 1 - i} {
					if with < len(letters) {
						l := slices.Clone(letters)
						l[i], l[with] = l[with], l[i]
						damaged("two letters changed places", string(l))
					}
				}
				for _, other := range []rune{'A', '=', 'é', '\u3400', '\uac00', '\U0001F600', utf8Error} {
					l := slices.Clone(letters)
					l[i] = other
					damaged("another letter", string(l))
				}
			}
			for _, more := range []string{"A", "=", "\n", " ", "\u3400", text} {
				damaged("something appended", text+more)
				damaged("something in front", more+text)
			}
		})
	}
}

const utf8Error = '\uFFFD'

// Two bits of the data, and whole bytes: what a checksum is for.
func TestDamageOfData(t *testing.T) {
	t.Parallel()
	const offset = 4_821_337_905
	for name, text := range samples(t) {
		if strings.Contains(name, "wide") || name == "atleon" {
			continue
		}
		b := progress.Data(text)
		try := func(b []byte) {
			t.Helper()
			if p, _, err := progress.Decode(progress.ASCII(b), offset, about); err == nil {
				t.Fatalf("%s: %x is read as %+v", name, b, p)
			}
		}
		for i := range min(len(b)*8, 500) {
			for j := range i {
				c := slices.Clone(b)
				c[i/8] ^= 1 << (i % 8)
				c[j/8] ^= 1 << (j % 8)
				try(c)
			}
		}
	}
}

// H-030, H-031: a text is about one offset of one partition of one topic.
func TestBinding(t *testing.T) {
	t.Parallel()
	for name, text := range samples(t) {
		if name == "atleon" {
			continue
		}
		const offset = 4_821_337_905
		for _, other := range []int64{0, 40, offset - 1, offset + 1, offset + 100, offset + 10_000_000, math.MaxInt64} {
			p, _, err := progress.Decode(text, other, about)
			if r, ok := err.(*progress.Reason); !ok || r.Code != progress.OtherOffset || len(p.Segments) > 0 || p.Offset != other {
				t.Errorf("%s, next to %d: %+v, %v", name, other, p, err)
			}
			if i := progress.Inspect(text, other); i.Code != progress.OtherOffset || i.Format != progress.Fronta {
				t.Errorf("%s, next to %d: %+v", name, other, i)
			}
		}
		for range 3 {
			another := about
			another.TopicID[len(name)%16] ^= 0x10
			for _, b := range []progress.Binding{{}, {Partition: about.Partition}, {TopicID: about.TopicID}, {TopicID: about.TopicID, Partition: about.Partition + 1}, {TopicID: about.TopicID, Partition: -1}, another} {
				_, _, err := progress.Decode(text, offset, b)
				if r, ok := err.(*progress.Reason); !ok || r.Code != progress.OtherPartition {
					t.Errorf("%s, for %v: %v", name, b, err)
				}
			}
		}
		if i := progress.Inspect(text, offset); i.Reason != "" || i.Progress == nil {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// H-025: a reader refuses what a newer version wrote, and says so, also if it
// has never heard of anything that is in it.
func TestNewerVersion(t *testing.T) {
	t.Parallel()
	for version := 2; version < 256; version++ {
		for _, rest := range []int{0, 1, 20, 1000} {
			b := append([]byte{byte(version), 0, 0, 0, 0}, bytes.Repeat([]byte{0xA5}, rest)...)
			b = progress.Seal(b)
			for _, text := range []string{progress.ASCII(b), progress.Wide(b)} {
				refused(t, text, 100, progress.Newer)
				refused(t, text[:len(text)-1], 100, progress.Damaged)
			}
		}
	}
	refused(t, progress.ASCII(progress.Seal(make([]byte, 30))), 100, progress.Newer)
}

// What contradicts itself is refused even if its checksum is right: someone
// may have computed it.
func TestImpossible(t *testing.T) {
	t.Parallel()
	cat := func(b []byte, more ...byte) []byte { return append(b, more...) }
	// One segment in key order of 10 offsets.
	ten := func(flags uint64) []byte { return cat(header(segments|flags), 0, 9) }
	for name, b := range map[string][]byte{
		"a byte too many":                  cat(header(0), 0),
		"a flag that there is not":         header(1 << 10),
		"another flag that there is not":   header(1 << 31),
		"flags beyond 32 bits":             header(1 << 32),
		"a number that is long":            cat(header(0)[:len(header(0))-1], 0x80, 0),
		"markers without segments":         header(marked),
		"attempts without segments":        header(attempted),
		"steady without segments":          header(steady),
		"0 starts":                         cat(header(started), 0),
		"2^31 starts":                      uvarints(header(started), 1<<31),
		"a reach of 0":                     uvarints(header(reaching), 199),
		"a reach below 0":                  uvarints(header(reaching), 201),
		"a suspect below 0":                uvarints(header(suspicious), 201),
		"it ends within a reach":           cat(header(reaching), 0x80),
		"a crash below 0":                  uvarints(header(crashed), 0, 201, 0),
		"2^31 crashes of a record":         uvarints(header(crashed), 0, 0, 1<<31),
		"crashes beyond the last offset":   uvarints(header(crashed), 1, 2*(math.MaxInt64-100), 0, 0, 0),
		"more crashes than bytes":          uvarints(header(crashed), 50, 0, 0),
		"no segment":                       header(segments),
		"a segment with unknown bits":      uvarints(cat(header(segments), 1<<5), 9, 0, 0),
		"a segment with unknown bits, 2":   uvarints(cat(header(segments), 1<<7), 9, 0, 0),
		"a segment without an end":         cat(header(segments), 0),
		"a segment to beyond all offsets":  uvarints(cat(header(segments), 0), math.MaxInt64-100, 0, 0),
		"a segment more than there is":     uvarints(cat(header(segments), 1<<4, 9), 0, 0),
		"a segment behind all offsets":     uvarints(uvarints(cat(header(segments), 1<<4), math.MaxInt64-101, 0, 0), 0, 0),
		"a check of 0":                     uvarints(cat(header(segments), 1<<3, 9, 0, 0, 0, 0), 0, 0),
		"a name of 65 bytes":               uvarints(append(cat(header(segments), 4, 65), make([]byte, 66)...), 0, 0),
		"it ends within a name":            cat(header(segments), 4, 5, 'a', 'b'),
		"it ends within a cut name":        cat(header(segments), 5, 'a', 'b'),
		"2^31 buckets":                     uvarints(uvarints(cat(header(segments), 3), 1<<31), 9, 0, 0),
		"11 heads among 10 offsets":        uvarints(ten(0), 10, 0),
		"more ranges than heads":           uvarints(ten(0), 2, 3),
		"more ranges than gaps":            uvarints(ten(0), 7, 3),
		"more markers than heads":          uvarints(ten(marked), 2, 0, 3),
		"more attempts than heads":         uvarints(ten(attempted), 2, 0, 3, 3),
		"attempts beyond what there is":    uvarints(ten(attempted), 0, 0, 0, math.MaxInt32),
		"one run and something coded":      cat(uvarints(ten(0), 2, 0), 7),
		"two runs and too much coded":      cat(uvarints(ten(0), 2, 1), 7, 7, 7),
		"a million ranges and no code":     uvarints(uvarints(cat(header(segments), 0), 1<<22), 1<<20, 1<<20),
		"more ranges than there is code":   uvarints(uvarints(cat(header(segments), 0), 1<<22), 1200, 1200),
		"too many of them together":        uvarints(uvarints(cat(header(segments|marked), 0), 1<<40), 1<<39, 1500, 1500),
		"a marker and nothing to place it": uvarints(uvarints(cat(header(segments|marked), 0), 1<<40), 1<<39, 0, 300),
	} {
		t.Run(name, func(t *testing.T) {
			b = progress.Seal(b)
			for _, text := range []string{progress.ASCII(b), progress.Wide(b)} {
				p, f, err := progress.Decode(text, 100, about)
				if r, ok := err.(*progress.Reason); !ok || r.Code != progress.Impossible || f != progress.Fronta || len(p.Segments) > 0 {
					t.Errorf("%x: %+v, %v, %v", b, p, f, err)
				}
				for _, why := range []struct{ name, text string }{{"long", "shortest"}, {"together", "claims 1501 ranges, 1501 markers"}} {
					if strings.Contains(name, why.name) && !strings.Contains(err.Error(), why.text) {
						t.Errorf("%x: %v", b, err)
					}
				}
			}
		})
	}
}

// Data that someone made up and sealed is refused or says what can be.
func TestMadeUp(t *testing.T) {
	t.Parallel()
	var e progress.Encoder
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgress(t)
		text, fit := e.Append(nil, p, about, progress.Limit{Units: plenty})
		if fit.Units == 0 {
			t.Skip()
		}
		b := progress.Data(string(text))
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			i := rapid.IntRange(5, len(b)-1).Draw(t, "at")
			if i >= 6 && i < 10 {
				continue // the tag
			}
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				b[i] = byte(rapid.SampledFrom([]int{0, 1, 2, 0x7f, 0x80, 0xff}).Draw(t, "to"))
			case 1:
				b[i] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			default:
				b = slices.Insert(b, i, byte(rapid.IntRange(0, 255).Draw(t, "byte")))
			}
		}
		p2, f, err := progress.Decode(progress.ASCII(progress.Seal(b)), p.Offset, about)
		if err != nil {
			return
		}
		if err := valid(&p2, p.Offset, f); err != nil {
			t.Fatal(err)
		}
		again, fit := e.Append(nil, &p2, about, progress.Limit{Units: plenty})
		p3, _, err := progress.Decode(string(again), p.Offset, about)
		if fit.Horizon == p2.Horizon() && (err != nil || !reflect.DeepEqual(p2, p3)) {
			t.Fatalf("%+v became %+v, %v", p2, p3, err)
		}
	})
}

// H-023, H-032: texts of other programs tell nothing.
func TestForeignTexts(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for text, guess := range map[string]string{
		"kgo-2f1e7b8a-3c0d-4f5e-9a6b-7c8d9e0f1a2b":        "franz-go",
		"consumer-1-2f1e7b8a-3c0d-4f5e-9a6b-7c8d9e0f1a2b": "id",
		"2F1E7B8A-3C0D-4F5E-9A6B-7C8D9E0F1A2B":            "id",
		"AQAAAY8AAAAA":                                    "Kafka Streams",
		"AgAAAY8AAAAAAAAA":                                "Kafka Streams",
		`{"offset": 100, "by": "billing"}`:                "JSON",
		`["a"]`:                                           "JSON",
		`"a"`:                                             "JSON",
		"{offset}":                                        "plain text",
		"billing-service":                                 "plain text",
		"billing":                                         "plain text",
		"NO_METADATA":                                     "plain text",
		"überall":                                         "plain text",
		" ":                                               "plain text",
		"a\x00b":                                          "no text",
		string(noise):                                     "no text",
		base64.StdEncoding.EncodeToString(append([]byte{0x77}, noise...)): "base64",
		base64.StdEncoding.EncodeToString([]byte{0x77, 1, 2}) + "==":      "plain text",
		"\uFEFF": "plain text",
	} {
		refused(t, text, 100, progress.Foreign)
		i := progress.Inspect(text, 100)
		if !strings.Contains(i.Guess, guess) || !strings.Contains(i.Reason, i.Guess) {
			t.Errorf("%.40q: guessed %q, want %q", text, i.Guess, guess)
		}
		if p, f, err := progress.Decode(text, -1, about); err != nil || f != progress.None || p.Horizon() != -1 {
			t.Errorf("%.40q next to offset -1: %+v, %v, %v", text, p, f, err)
		}
	}
	for _, text := range []string{"~", "~~", "~kgo", "~A", "\u3400", "\u4e2d\u6587", "\uac00", "\u4e2dA"} {
		refused(t, text, 100, progress.Damaged)
	}
	p, f, err := progress.Decode("", 100, about)
	if err != nil || f != progress.None || !reflect.DeepEqual(p, progress.Progress{Offset: 100, Epoch: -1, Suspect: -1}) {
		t.Errorf("%+v, %v, %v", p, f, err)
	}
}

// What is not valid is left out, heads with all that follows, and Append does
// not fail.
func TestEncodeInvalid(t *testing.T) {
	t.Parallel()
	seg := func(end int64, heads ...progress.Range) progress.Segment {
		return progress.Segment{End: end, Order: "key", Heads: heads}
	}
	good := seg(110, progress.Range{From: 100, To: 101}, progress.Range{From: 105, To: 106})
	for name, c := range map[string]struct {
		p       progress.Progress
		horizon int64
	}{
		"no head at the offset":     {progress.Progress{Segments: []progress.Segment{seg(110, progress.Range{From: 101, To: 102})}}, 100},
		"no heads":                  {progress.Progress{Segments: []progress.Segment{seg(110)}}, 100},
		"it ends where it begins":   {progress.Progress{Segments: []progress.Segment{seg(100)}}, 100},
		"heads behind the end":      {progress.Progress{Segments: []progress.Segment{seg(110, progress.Range{From: 100, To: 111})}}, 100},
		"heads that overlap":        {progress.Progress{Segments: []progress.Segment{seg(110, progress.Range{From: 100, To: 103}, progress.Range{From: 102, To: 104})}}, 100},
		"an empty range":            {progress.Progress{Segments: []progress.Segment{seg(110, progress.Range{From: 100, To: 100})}}, 100},
		"a range backwards":         {progress.Progress{Segments: []progress.Segment{seg(110, progress.Range{From: 100, To: 90})}}, 100},
		"the second is wrong":       {progress.Progress{Segments: []progress.Segment{good, seg(120, progress.Range{From: 109, To: 112})}}, 110},
		"the second ends too early": {progress.Progress{Segments: []progress.Segment{good, seg(110), seg(130)}}, 110},
		"heads that touch":          {progress.Progress{Segments: []progress.Segment{seg(110, progress.Range{From: 100, To: 102}, progress.Range{From: 102, To: 104})}}, 110},
		"markers that are no heads": {progress.Progress{Segments: []progress.Segment{{End: 110, Order: "key", Heads: good.Heads, Markers: []int64{-5, 99, 100, 100, 102, 200}}}}, 110},
		"attempts of other records": {progress.Progress{Segments: []progress.Segment{good}, Attempts: []progress.Count{{Offset: -1, N: 1}, {Offset: 99, N: 1}, {Offset: 100, N: 0}, {Offset: 100, N: -4}, {Offset: 105, N: 2}, {Offset: 105, N: 3}, {Offset: 101, N: 3}, {Offset: 300, N: 3}}}, 110},
		"crashes in no order":       {progress.Progress{Segments: []progress.Segment{good}, Crashes: []progress.Count{{Offset: -1, N: 1}, {Offset: 100, N: 1}, {Offset: 100, N: 1}, {Offset: 90, N: 1}, {Offset: 120, N: 0}}}, 110},
		"negative numbers":          {progress.Progress{Segments: []progress.Segment{good}, Epoch: math.MinInt32, Fence: math.MinInt64, Starts: math.MinInt, Reach: math.MinInt64, Suspect: math.MinInt64}, 110},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.p
			p.Offset = 100
			text, fit := encode(t, &p, progress.Limit{Units: 4096})
			got, _, err := progress.Decode(text, 100, about)
			if err != nil || got.Horizon() != c.horizon || fit.Horizon != c.horizon {
				t.Fatalf("%+v, %v, %+v", got, err, fit)
			}
			if err := valid(&got, 100, progress.Fronta); err != nil {
				t.Fatal(err)
			}
			if n := headsOf(&got); fit.Heads != n || fit.LeftOutMarkers != 0 ||
				fit.LeftOutAttempts != len(p.Attempts)-len(got.Attempts) || fit.LeftOutCrashes != len(p.Crashes)-len(got.Crashes) {
				t.Errorf("%+v, decoded %+v", fit, got)
			}
			checkParallel(t, &got, 4096)
			progress.AppendAtleonV1(nil, &p, 4096)
			progress.AppendParallelConsumer(nil, &p, 4096)
		})
	}
	for _, p := range []*progress.Progress{{}, {Offset: -1}, {Offset: math.MinInt64}, {Offset: -5, Segments: []progress.Segment{seg(5, progress.Range{From: -5, To: 0})}}} {
		var e progress.Encoder
		text, fit := e.Append(nil, p, about, progress.Limit{Units: 4096})
		if (p.Offset < 0) != (len(text) == 0) || fit.Horizon != p.Offset {
			t.Errorf("%+v: %q, %+v", p, text, fit)
		}
		if text, fit := progress.AppendAtleonV1(nil, p, 4096); len(text) > 0 || fit.Horizon != p.Offset {
			t.Errorf("%+v: %q, %+v", p, text, fit)
		}
		if text, fit := progress.AppendParallelConsumer(nil, p, 4096); len(text) > 0 || fit.Horizon != p.Offset {
			t.Errorf("%+v: %q, %+v", p, text, fit)
		}
	}
}

// A name that is too long is kept as one that no other order has.
func TestOrderNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 65)
	seen := map[string]string{}
	for _, order := range []string{
		"", "key", "key:", "key:a", "key:" + long[:64], "key:" + long, "key:" + long + "b", "key:" + long + "c", long[:64], long, long + "b",
		"bucket:1", "bucket:01", "bucket:+1", "bucket:-1", "bucket:", "bucket:4294967296", "partition", "unordered", "unordered ", strings.Repeat("ä", 40), "key:" + strings.Repeat("ä", 33),
		strings.Repeat("a", 47) + "äääääääääääää", "key:\xff\x00",
	} {
		p := set(7, 1, 5)
		p.Segments[0].Order = order
		text, _ := encode(t, p, progress.Limit{Units: plenty})
		got, _, err := progress.Decode(text, 7, about)
		if err != nil {
			t.Fatal(err)
		}
		is := got.Segments[0].Order
		if is != progress.OrderName(order) || progress.OrderName(is) != is {
			t.Errorf("%q is decoded as %q, OrderName says %q, and of that %q", order, is, progress.OrderName(order), progress.OrderName(is))
		}
		if short := len(strings.TrimPrefix(order, "key:")) <= 64; short != (is == order) || !short && len(strings.TrimPrefix(is, "key:")) <= 64 {
			t.Errorf("%q is decoded as %q", order, is)
		}
		if other, ok := seen[is]; ok {
			t.Errorf("%q and %q are both decoded as %q", other, order, is)
		}
		seen[is] = order
		if again, _ := encode(t, &got, progress.Limit{Units: plenty}); again != text {
			t.Errorf("%q: encoded again it is another text", order)
		}
	}
}
