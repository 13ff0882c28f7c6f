package progress_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/progress"
)

// ends are the first and the last offset of a range, as the vectors have it.
type ends [2]int64

func ranges(list []ends) (rs []progress.Range) {
	for _, e := range list {
		rs = append(rs, progress.Range{From: e[0], To: e[1] + 1})
	}
	return rs
}

// without are the offsets of [from, to) that are in none of the ranges.
func without(from, to int64, rs []progress.Range) (left []progress.Range) {
	for _, r := range rs {
		if r.From >= to {
			break
		}
		if r.From > from {
			left = append(left, progress.Range{From: from, To: r.From})
		}
		from = max(from, r.To)
	}
	if from < to {
		left = append(left, progress.Range{From: from, To: to})
	}
	return left
}

// finished are the offsets that a progress in order "unordered" says to be
// finished.
func finished(p *progress.Progress) (rs []progress.Range) {
	from := p.Offset
	for _, s := range p.Segments {
		heads := s.Heads
		if len(s.Markers) > 0 {
			var markers []progress.Range
			for _, m := range s.Markers {
				markers = append(markers, progress.Range{From: m, To: m + 1})
			}
			heads = nil
			for _, h := range s.Heads {
				heads = append(heads, without(h.From, h.To, markers)...)
			}
		}
		for _, r := range without(from, s.End, heads) {
			if n := len(rs); n > 0 && rs[n-1].To == r.From {
				rs[n-1].To = r.To
			} else {
				rs = append(rs, r)
			}
		}
		from = s.End
	}
	return rs
}

// exact is a progress of a set of finished offsets.
func exact(offset, end int64, finished []progress.Range) *progress.Progress {
	p := &progress.Progress{Offset: offset, Epoch: -1, Suspect: -1}
	if end > offset {
		p.Segments = []progress.Segment{{End: end, Order: "unordered", Heads: without(offset, end, finished)}}
	}
	return p
}

func end(rs []progress.Range) int64 {
	if len(rs) == 0 {
		return 0
	}
	return rs[len(rs)-1].To
}

func load(t testing.TB, file string, into any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mustDecode(t *testing.T, text string, offset int64, want progress.Format) progress.Progress {
	t.Helper()
	p, f, err := progress.Decode(text, offset, progress.Binding{})
	if err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	if f != want {
		t.Fatalf("decode %q: format %v, want %v", text, f, want)
	}
	return p
}

// refused checks that nothing is told, with a reason of the class, if there is
// one, that is one line without the text.
func refused(t *testing.T, text string, offset int64, code progress.Code) {
	t.Helper()
	p, f, err := progress.Decode(text, offset, progress.Binding{})
	var reason *progress.Reason
	if !errors.As(err, &reason) {
		t.Fatalf("decode %q: %+v, %v, want a reason", text, p, err)
	}
	if code != 0 && reason.Code != code {
		t.Errorf("decode %q: %v (%v), want %v", text, err, reason.Code, code)
	}
	if p.Horizon() != offset || len(p.Segments) > 0 || p.Suspect != -1 || p.Fence != 0 {
		t.Errorf("decode %q: it is refused, and yet there is %+v", text, p)
	}
	if strings.ContainsAny(err.Error(), "\r\n") || len(text) > 12 && strings.Contains(err.Error(), text) {
		t.Errorf("decode %q: the reason is not fit for a log: %q", text, err)
	}
	if i := progress.Inspect(text, offset); i.Format != f || i.Code != reason.Code || i.Reason != err.Error() || i.Progress != nil || i.Horizon != offset {
		// Without the partition it may well be read.
		if reason.Code != progress.OtherPartition {
			t.Errorf("inspect %q: %+v, want %v", text, i, err)
		}
	}
}

func TestAtleonVectors(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Name      string
		Offset    int64 `json:"commit_offset"`
		Units     int   `json:"max_chars"`
		Completed []ends
		Metadata  string
		Truncated bool
		Decoded   *[]ends
	}
	load(t, "atleon-v1.json", &cases)
	if len(cases) < 29 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			all := ranges(c.Completed)
			told := all
			if c.Decoded != nil {
				told = ranges(*c.Decoded)
			}
			format := progress.AtleonV1
			if c.Metadata == "" {
				format = progress.None
			}
			p := mustDecode(t, c.Metadata, c.Offset, format)
			if d := cmp.Diff(told, finished(&p)); d != "" {
				t.Fatalf("decoded (-vector +is): %s", d)
			}

			// What is written has the same bytes, unless something has to be
			// left out: then there is no less in it.
			text, fit := progress.AppendAtleonV1([]byte("x"), exact(c.Offset, max(end(all), c.Offset), all), c.Units)
			if text = text[1:]; !c.Truncated && string(text) != c.Metadata {
				t.Errorf("wrote %q, want %q", text, c.Metadata)
			}
			if fit.Units != len(text) || fit.Units > c.Units {
				t.Errorf("%+v for a text of %d units, limit %d", fit, len(text), c.Units)
			}
			if len(text) > 0 {
				format = progress.AtleonV1
			}
			p = mustDecode(t, string(text), c.Offset, format)
			if got := finished(&p); !reflect.DeepEqual(got, all) && (!c.Truncated || end(got) < end(told) || !reflect.DeepEqual(got, cutAt(all, end(got)))) {
				t.Errorf("decoded what was written (-want +is): %s", cmp.Diff(told, got))
			}
			if whole := fit.Horizon >= end(all); whole == c.Truncated || whole == fit.Short {
				t.Errorf("%+v, truncated %v", fit, c.Truncated)
			}
		})
	}
}

func cutAt(rs []progress.Range, at int64) (cut []progress.Range) {
	for _, r := range rs {
		if r.From < at {
			cut = append(cut, progress.Range{From: r.From, To: min(r.To, at)})
		}
	}
	return cut
}

func TestAtleonGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base int64
		done []ends
		text string
	}{
		{-1, []ends{{0, 0}}, "AQEB8rK0ng"},
		{4, []ends{{6, 6}, {8, 8}}, "AQICAulV0Ao"},
		{0, []ends{{1, 2}}, "AQIBAa7xdLM"},
		{-1, []ends{{0, 6}}, "AQcAAQfBwaFF"},
		{-1, []ends{{0, 1}, {5, 7}, {10, 10}}, "AQYBAQQBAQMsIZRF"},
		{1000000, []ends{{1000001, 1000001}, {2500000, 2500002}, {9999999999, 9999999999}}, "AQUB38ZbAQHd/JafJZGn41k"},
		{42, []ends{{43, 5042}}, "AYgnAAGIJ8+C3nM"},
	} {
		p := mustDecode(t, c.text, c.base+1, progress.AtleonV1)
		if d := cmp.Diff(ranges(c.done), finished(&p)); d != "" {
			t.Errorf("%s: %s", c.text, d)
		}
		if text, _ := progress.AppendAtleonV1(nil, &p, 4096); string(text) != c.text {
			t.Errorf("wrote %s, want %s", text, c.text)
		}
		if padded := c.text + strings.Repeat("=", (4-len(c.text)%4)%4); padded != c.text {
			mustDecode(t, padded, c.base+1, progress.AtleonV1)
			refused(t, padded+"=", c.base+1, 0)
		}
	}
}

// atleon is a text with the right checksum.
func atleon(offset int64, body ...byte) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset-1))
	b = append(b, body...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawStdEncoding.EncodeToString(b[8:])
}

// H-023, H-031: what a bad text claims is not believed.
func TestAtleonRefuses(t *testing.T) {
	t.Parallel()
	huge := binary.AppendUvarint(nil, math.MaxInt64)
	maxed := binary.AppendUvarint(nil, math.MaxUint64)
	cat := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	good := atleon(100, 1, 2, 2, 2)
	mustDecode(t, good, 100, progress.AtleonV1)
	for name, c := range map[string]struct {
		text string
		code progress.Code
	}{
		"cut":                      {good[:len(good)-1], 0},
		"nothing":                  {"AQ", progress.Damaged},
		"another version":          {atleon(100, 2, 2, 2, 2), 0},
		"a difference of 0":        {atleon(100, 1, 4, 0, 0, 4), progress.Impossible},
		"a repetition of 0":        {atleon(100, 1, 4, 0, 1, 0), progress.Impossible},
		"fewer than claimed":       {atleon(100, 1, 3, 1, 1), progress.Impossible},
		"more than claimed":        {atleon(100, 1, 1, 1, 1), progress.Impossible},
		"a run beyond the claim":   {atleon(100, 1, 4, 0, 1, 5), progress.Impossible},
		"it ends within a number":  {atleon(100, 1, 1, 0x80), progress.Impossible},
		"it ends within a run":     {atleon(100, 1, 3, 0, 1), progress.Impossible},
		"2^63-1 in a run":          {atleon(100, cat([]byte{1}, huge, []byte{0, 1}, huge)...), progress.Impossible},
		"2^63-1 in stride 2":       {atleon(100, cat([]byte{1}, huge, []byte{0, 2}, huge)...), progress.Impossible},
		"a difference of 2^63-1":   {atleon(100, cat([]byte{1, 1}, huge)...), progress.Impossible},
		"a difference of 2^64-1":   {atleon(100, cat([]byte{1, 1}, maxed)...), progress.Impossible},
		"a count of 2^64-1":        {atleon(100, cat([]byte{1}, maxed, []byte{1})...), progress.Impossible},
		"a billion with gaps":      {atleon(100, 1, 0x80, 0x94, 0xeb, 0xdc, 3, 0, 2, 0x80, 0x94, 0xeb, 0xdc, 3), progress.Impossible},
		"a number beyond 10 bytes": {atleon(100, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1), progress.Impossible},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.text, 100, c.code) })
	}
	// The committed offset was changed: the text is not about it any more.
	for _, offset := range []int64{0, 50, 99, 101, 110, 200, math.MaxInt64} {
		refused(t, good, offset, progress.Damaged)
	}
	// A run that is one range may be long.
	p := mustDecode(t, atleon(100, 1, 0x80, 0x94, 0xeb, 0xdc, 3, 0, 1, 0x80, 0x94, 0xeb, 0xdc, 3), 100, progress.AtleonV1)
	if p.Horizon() != 1_000_000_100 || len(p.Segments[0].Heads) != 0 {
		t.Errorf("%+v", p)
	}
}

func TestParallelConsumerVectors(t *testing.T) {
	t.Parallel()
	var cases []struct {
		Name       string
		Offset     int64 `json:"commit_offset"`
		Highest    int64 `json:"highest_succeeded"`
		Incomplete []ends
		Codec      string
		Metadata   string
		Decoded    *[]ends `json:"decoded_incomplete"`
	}
	load(t, "parallel-consumer.json", &cases)
	codecs := make(map[string]int)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			want := ranges(c.Incomplete)
			if c.Decoded != nil {
				want = ranges(*c.Decoded)
			}
			codecs[c.Codec]++
			format := progress.ParallelConsumer
			if c.Metadata == "" {
				format = progress.None
				if len(want) > 0 {
					t.Skip("it was not stored")
				}
			}
			p := mustDecode(t, c.Metadata, c.Offset, format)
			if i := progress.Inspect(c.Metadata, c.Offset); i.Variant != c.Codec {
				t.Errorf("%+v, want %s", i, c.Codec)
			}
			if format == progress.None {
				return
			}
			if p.Horizon() != c.Highest+1 || !reflect.DeepEqual(p.Segments[0].Heads, want) {
				t.Fatalf("horizon %d, want %d; heads %s", p.Horizon(), c.Highest+1, cmp.Diff(want, p.Segments[0].Heads))
			}
			for _, units := range []int{1 << 20, 4096, 3072, 100, 40, 8} {
				checkParallel(t, &p, units)
			}
			text, fit := progress.AppendParallelConsumer(nil, &p, 4096)
			if len(text) > len(c.Metadata) && !strings.HasSuffix(c.Codec, "Compressed") || fit.Horizon != p.Horizon() && len(c.Metadata) < 3000 && !strings.HasSuffix(c.Codec, "Compressed") {
				t.Errorf("%d units where %d were enough, %+v", len(text), len(c.Metadata), fit)
			}
		})
	}
	if len(codecs) < 9 {
		t.Errorf("not all encodings: %v", codecs)
	}
}

// checkParallel writes p and reads it again: it tells of all that is finished
// below the horizon that it says it has, and of nothing else.
func checkParallel(t interface {
	Helper()
	Fatalf(string, ...any)
}, p *progress.Progress, units int) {
	t.Helper()
	text, fit := progress.AppendParallelConsumer([]byte("x"), p, units)
	text = text[1:]
	if fit.Units != len(text) || fit.Units > max(units, 0) {
		t.Fatalf("%+v for %d units, limit %d", fit, len(text), units)
	}
	got, _, err := progress.Decode(string(text), p.Offset, progress.Binding{})
	if err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	if len(text) > 0 || fit.LeftOutHeads > 0 {
		if d := cmp.Diff(cutAt(finished(p), fit.Horizon), finished(&got)); d != "" {
			t.Fatalf("%+v, limit %d: %s", fit, units, d)
		}
	}
	heads := int64(0)
	for _, s := range p.Segments {
		for _, r := range s.Heads {
			heads += r.To - r.From
		}
		heads -= int64(len(s.Markers))
	}
	if fit.Heads+fit.LeftOutHeads != heads {
		t.Fatalf("%+v of %d heads", fit, heads)
	}
	if fit.Short != (fit.Horizon < p.Horizon()) {
		t.Fatalf("%+v, the horizon is %d", fit, p.Horizon())
	}
	if next, ok := nextFinished(p, fit.Horizon); len(text) > 0 && fit.Horizon < p.Horizon() && (!ok || next != fit.Horizon) {
		t.Fatalf("%+v: it could as well be %d", fit, next)
	}
}

// nextFinished is the first finished offset from at on.
func nextFinished(p *progress.Progress, at int64) (int64, bool) {
	for _, r := range finished(p) {
		if r.To > at {
			return max(r.From, at), true
		}
	}
	return 0, false
}

func TestParallelConsumerGolden(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base       int64
		text       string
		horizon    int64
		unfinished []ends
	}{
		{1, "ZQAAAAEAAw0+", 200000, []ends{{1, 1}}},
		{1, "ZQAAAAEAAW0p", 93483, []ends{{1, 1}}},
		{1, "ZQAAAAEAAXE1AAAAAQAAAEI=", 94586, []ends{{1, 1}, {94519, 94519}}},
		{1, "ZQAAAAEAAW7RAAAAAQAAAAQAAAABAAAAQw==", 93980, []ends{{1, 1}, {93907, 93907}, {93912, 93912}}},
		{0, "bgAA", 0, nil},
		{100, "bgAA", 100, nil},
	} {
		p := mustDecode(t, c.text, c.base, progress.ParallelConsumer)
		if p.Horizon() != c.horizon {
			t.Errorf("%s: horizon %d, want %d", c.text, p.Horizon(), c.horizon)
		}
		if c.unfinished != nil && !reflect.DeepEqual(p.Segments[0].Heads, ranges(c.unfinished)) {
			t.Errorf("%s: %v, want %v", c.text, p.Segments[0].Heads, c.unfinished)
		}
	}
	for set, texts := range map[string][4]string{
		"":                               {"bAAAAA==", "bwAAAAAA", "bgAA", "ZQAAAAA="},
		"o":                              {"bAABAAA=", "bwAAAAEAAA==", "bgAB", "ZQAAAAE="},
		"x":                              {"bAABAQA=", "bwAAAAEBAA==", "bgAAAAE=", "ZQAAAAAAAAAB"},
		"oxooxx":                         {"bAAGMgA=", "bwAAAAYyAA==", "bgABAAEAAgAC", "ZQAAAAEAAAABAAAAAgAAAAI="},
		"ooxxoxox":                       {"bAAIrAA=", "bwAAAAisAA==", "bgACAAIAAQABAAEAAQ==", "ZQAAAAIAAAACAAAAAQAAAAEAAAABAAAAAQ=="},
		"oxxxoxoooxo":                    {"bAALLgIA", "bwAAAAsuAgA=", "bgABAAMAAQABAAMAAQAB", "ZQAAAAEAAAADAAAAAQAAAAEAAAADAAAAAQAAAAE="},
		"xxxxxxoooooxoxoxoooooxxxxooooo": {"bAAeP6jgAQA=", "bwAAAB4/qOABAA==", "bgAAAAYABQABAAEAAQABAAEABQAEAAU=", "ZQAAAAAAAAAGAAAABQAAAAEAAAABAAAAAQAAAAEAAAABAAAABQAAAAQAAAAF"},
		"ooooooooooooooxxxxxxxxxxxxxxxx": {"bAAeAMD/PwA=", "bwAAAB4AwP8/AA==", "bgAOABA=", "ZQAAAA4AAAAQ"},
	} {
		const base = 1000
		want := []progress.Range(nil)
		for i, x := range set {
			if o := base + int64(i); x == 'o' {
				want = append(want, progress.Range{From: o, To: o + 1})
			}
		}
		want = without(base, base+int64(len(set)), without(base, base+int64(len(set)), want)) // joined
		for _, text := range texts {
			p := mustDecode(t, text, base, progress.ParallelConsumer)
			if p.Horizon() != base+int64(len(set)) || len(set) > 0 && !reflect.DeepEqual(p.Segments[0].Heads, want) {
				t.Errorf("%s: %+v, want %s", text, p, set)
			}
			checkParallel(t, &p, 4096)
		}
	}
}

func TestParallelConsumerFurtherCases(t *testing.T) {
	t.Parallel()
	set := func(from, to int64, unfinished ...int64) *progress.Progress {
		p := &progress.Progress{Offset: from, Epoch: -1, Suspect: -1, Segments: []progress.Segment{{End: to, Order: "unordered"}}}
		for _, o := range unfinished {
			p.Segments[0].Heads = append(p.Segments[0].Heads, progress.Range{From: o, To: o + 1})
		}
		p.Segments[0].Heads = without(from, to, without(from, to, p.Segments[0].Heads))
		return p
	}
	for _, p := range []*progress.Progress{
		set(0, 11, 0, 4, 6, 7, 8, 10), set(0, 11, 0, 6, 10), set(0, 201, 0, 2, 3),
		set(123, 10_123, 123, 2345, 8765), set(123, 100_123, 123, 2345, 8765), set(123, 1_000_123, 123, 2345, 8765),
		set(0, 32767, 0), set(0, 32768, 0), set(0, 32769, 0), set(0, 40000, 0, 32768), set(0, 1<<31+1, 0), set(0, 1<<33, 0, 1<<32), // H-021
		set(1<<62, 1<<62+100, 1<<62, 1<<62+5), set(math.MaxInt64-100, math.MaxInt64, math.MaxInt64-100, math.MaxInt64-3),
	} {
		for _, units := range []int{-1, 0, 3, 4, 7, 8, 12, 16, 24, 40, 4096, 1 << 30} {
			checkParallel(t, p, units)
		}
	}
	if text, fit := progress.AppendParallelConsumer(nil, set(0, 201, 0, 2, 3), 16); fit.Horizon != 201 {
		t.Errorf("%q, %+v: three of 201 take less than 10 bytes", text, fit)
	}
	if text, fit := progress.AppendParallelConsumer(nil, set(0, 1<<31+5, 0), 4096); fit.Horizon != math.MaxInt32+1 {
		t.Errorf("%q, %+v: it has no longer runs", text, fit)
	}
}

// parallel is a text of a magic and a body.
func parallel(magic byte, body ...byte) string {
	return base64.StdEncoding.EncodeToString(append([]byte{magic}, body...))
}

func packed(t *testing.T, body []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(body, nil)
}

// streamed is a frame that does not say how long its content is.
func streamed(t *testing.T, body []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = w.Close()
	}
	var h zstd.Header
	if err == nil {
		err = h.Decode(b.Bytes())
	}
	if err != nil || h.HasFCS {
		t.Fatal(err, h)
	}
	return b.Bytes()
}

func TestParallelConsumerRefuses(t *testing.T) {
	t.Parallel()
	zero := make([]byte, 1<<24)
	claim := func(size int, length uint32, body []byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, length)[4-size:]
		return append(b, body...)
	}
	claimed := packed(t, []byte{0, 1, 0, 1})
	for name, c := range map[string]struct {
		text string
		code progress.Code
	}{
		"magic l alone":             {parallel('l'), 0},
		"magic o alone":             {parallel('o'), 0},
		"magic n alone":             {parallel('n'), 0},
		"magic e alone":             {parallel('e'), 0},
		"magic a alone":             {parallel('a'), 0},
		"magic s alone":             {parallel('s'), 0},
		"magic J alone":             {parallel('J'), 0},
		"magic p alone":             {parallel('p'), 0},
		"half a length":             {parallel('l', 0), progress.Damaged},
		"half a length, 2":          {parallel('o', 0, 0, 0), progress.Damaged},
		"bits 7FFF and no body":     {parallel('l', 0x7f, 0xff), progress.Damaged},
		"bits FFFF":                 {parallel('l', 0xff, 0xff, 0), progress.Impossible},
		"bits 7FFFFFFF":             {parallel('o', 0x7f, 0xff, 0xff, 0xff), progress.Damaged},
		"bits 7FFFFFFF, a few":      {parallel('o', 0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4, 0), progress.Damaged},
		"bits FFFFFFFF":             {parallel('o', 0xff, 0xff, 0xff, 0xff), progress.Impossible},
		"a byte too few":            {parallel('l', 0, 9, 1), progress.Damaged},
		"a byte too many":           {parallel('l', 0, 8, 1, 0, 0), progress.Damaged},
		"bits behind the end":       {parallel('l', 0, 3, 0x0a, 0), progress.Damaged},
		"bits in the spare byte":    {parallel('l', 0, 8, 0x0a, 1), progress.Damaged},
		"runs FFFFFFFF":             {parallel('e', 0xff, 0xff, 0xff, 0xff), progress.Impossible},
		"runs of 3 bytes":           {parallel('n', 0, 1, 0), progress.Damaged},
		"runs of 5 bytes":           {parallel('e', 0, 0, 0, 1, 0), progress.Damaged},
		"a run of -1":               {parallel('n', 0, 1, 0xff, 0xff), progress.Impossible},
		"an empty run":              {parallel('n', 0, 1, 0, 0, 0, 1), progress.Impossible},
		"no zstd frame":             {parallel('a', 1, 2, 3, 4, 5, 6, 7, 8), progress.Damaged},
		"half a zstd frame":         {parallel('J', claimed[:len(claimed)-2]...), progress.Damaged},
		"unpacks to 16 MiB":         {parallel('s', packed(t, claim(4, 8*(1<<24-1), zero))...), progress.Impossible},
		"unpacks to 16 MiB unsaid":  {parallel('s', streamed(t, claim(4, 8*(1<<24-1), zero))...), progress.Impossible},
		"unpacks to alternate runs": {parallel('s', packed(t, claim(4, 8<<16, append([]byte(strings.Repeat("U", 1<<16)), 0)))...), progress.Impossible},
		"a window of 16 MiB":        {parallel('J', 0x28, 0xb5, 0x2f, 0xfd, 0x00, 14<<3, 0x21, 0, 0, 0, 1, 0, 1), progress.Damaged},
		"unpacked length 7FFFFFFF":  {parallel('s', packed(t, claim(4, math.MaxInt32, []byte{1, 0}))...), progress.Damaged},
		"unpacked runs negative":    {parallel('p', packed(t, []byte{0xff, 0xff, 0xff, 0xff})...), progress.Impossible},
		"bytes":                     {parallel('L', 1, 0, 1), progress.Unsupported},
		"packed bytes":              {parallel(0xEE, 1, 0, 1), progress.Unsupported},
		"Kafka Streams 1":           {parallel(1, 0, 0, 1, 0x8f, 0, 0, 0, 0), progress.Foreign},
		"Kafka Streams 2":           {parallel(2, 0, 0, 1, 0x8f, 0, 0, 0, 0, 1, 2), progress.Foreign},
		"a fork's":                  {parallel('d', 0, 1, 0, 1), progress.Foreign},
		"a fork's, 2":               {parallel('D', 0, 1, 0, 1), progress.Foreign},
		"without padding":           {"bgABAAk", progress.Foreign},
		"with a line break":         {"bgAB\nAAk=", progress.Foreign},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.text, 1000, c.code) })
	}
	refused(t, "bgABAAk=", math.MaxInt64-5, progress.Impossible)
	refused(t, parallel('e', 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff), math.MaxInt64-1<<31-5, progress.Impossible)
	// A gigabyte that is claimed and not there.
	frame := packed(t, zero[:1<<20])
	mustDecode(t, parallel('J', 0x28, 0xb5, 0x2f, 0xfd, 0x00, 13<<3, 0x21, 0, 0, 0, 1, 0, 1), 5, progress.ParallelConsumer) // 8 MiB
	mustDecode(t, parallel('s', streamed(t, claim(4, 8*(1<<15), zero[:1<<15+1]))...), 5, progress.ParallelConsumer)
	mustDecode(t, parallel('s', packed(t, claim(4, 8*(1<<15), zero[:1<<15+1]))...), 5, progress.ParallelConsumer)
	if len(frame) > 200 {
		t.Errorf("%d bytes", len(frame))
	}
}

// H-022: what is unfinished comes back as it was, through each of the formats
// and from one to the next, whatever the set.
func TestExactSets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawExact(t)
		var e progress.Encoder
		for range 3 {
			switch rapid.IntRange(0, 2).Draw(t, "format") {
			case 0:
				units := rapid.SampledFrom([]int{1 << 20, 1 << 20, 100, 30, 10}).Draw(t, "units")
				text, fit := progress.AppendAtleonV1(nil, p, units)
				q, f, err := progress.Decode(string(text), p.Offset, progress.Binding{})
				if err != nil || f != progress.AtleonV1 && len(text) > 0 {
					t.Fatalf("%q: %v, %v", text, f, err)
				}
				if d := cmp.Diff(cutAt(finished(p), fit.Horizon), finished(&q)); d != "" || fit.Units > units || fit.Units != len(text) {
					t.Fatalf("%+v: %s", fit, d)
				}
				if units == 1<<20 && fit.Short || fit.Short != (fit.Horizon < p.Horizon()) {
					t.Fatalf("%+v", fit)
				}
				if next, ok := nextFinished(p, fit.Horizon); fit.Short && (!ok || next != fit.Horizon) {
					t.Fatalf("%+v: it could as well be %d", fit, next)
				}
			case 1:
				checkParallel(t, p, rapid.SampledFrom([]int{1 << 20, 4096, 100, 30, 10}).Draw(t, "units"))
			default:
				text, fit := e.Append(nil, p, progress.Binding{}, progress.Limit{Units: 1 << 20})
				q, _, err := progress.Decode(string(text), p.Offset, progress.Binding{})
				if err != nil || fit.Horizon != p.Horizon() {
					t.Fatalf("%+v: %v", fit, err)
				}
				if d := cmp.Diff(finished(p), finished(&q)); d != "" {
					t.Fatal(d)
				}
			}
		}
	})
}

// drawExact is a set with an unfinished record at the committed offset.
func drawExact(t *rapid.T) *progress.Progress {
	p := &progress.Progress{Offset: rapid.SampledFrom([]int64{0, 1, 1000, 1 << 31, 1 << 62}).Draw(t, "offset"), Epoch: -1, Suspect: -1}
	s := progress.Segment{Order: "unordered"}
	at := p.Offset
	lengths := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, 100), rapid.Int64Range(1, 70000), rapid.SampledFrom([]int64{32767, 32768, 65536, 1<<31 - 1, 1 << 31, 1<<31 + 1}))
	for range rapid.IntRange(1, 60).Draw(t, "runs") {
		to := at + lengths.Draw(t, "run")
		s.Heads = append(s.Heads, progress.Range{From: at, To: to})
		if rapid.IntRange(0, 5).Draw(t, "marker") == 0 {
			s.Markers = append(s.Markers, at+(to-at)/2)
		}
		at = to + lengths.Draw(t, "gap")
	}
	s.End = at
	p.Segments = []progress.Segment{s}
	return p
}
