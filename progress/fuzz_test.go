package progress_test

import (
	"encoding/base64"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/progress"
)

// What must hold for any text: Decode does not panic, answers with a valid
// progress or a reason, and what it read can be written and read again.
func checkAny(t *testing.T, text string, offset int64) {
	t.Helper()
	p, f, err := progress.Decode(text, offset, about)
	if err != nil {
		if _, ok := err.(*progress.Reason); !ok || !reflect.DeepEqual(p, progress.Progress{Offset: offset, Epoch: -1, Suspect: -1}) {
			t.Fatalf("%q: %+v with %v", text, p, err)
		}
		i := progress.Inspect(text, offset)
		if _ = i.String(); i.Format != f || i.Progress == nil && i.Reason == "" {
			t.Fatalf("%q: %v, but %+v", text, err, i)
		}
		return
	}
	if offset < 0 {
		if f != progress.None {
			t.Fatalf("%q next to %d: %v", text, offset, f)
		}
		return
	}
	if err := valid(&p, offset, f); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	i := progress.Inspect(text, offset)
	if _ = i.String(); i.Reason != "" || i.Format != f || text != "" && !reflect.DeepEqual(*i.Progress, p) || i.Horizon != p.Horizon() || i.Unfinished < 0 || i.Unfinished > p.Horizon()-p.Offset {
		t.Fatalf("%q: %+v, but %+v", text, p, i)
	}
	switch f {
	case progress.Fronta:
		var e progress.Encoder
		again, fit := e.Append(nil, &p, about, progress.Limit{Units: plenty})
		if fit.Horizon != p.Horizon() {
			return // it was not written the way the encoder does, and does not fit so
		}
		if q, _, err := progress.Decode(string(again), offset, about); err != nil || !reflect.DeepEqual(p, q) {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	case progress.AtleonV1:
		again, fit := progress.AppendAtleonV1(nil, &p, plenty)
		q, _, err := progress.Decode(string(again), offset, about)
		if err != nil || !reflect.DeepEqual(cutAt(finished(&p), fit.Horizon), finished(&q)) {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
	case progress.ParallelConsumer:
		checkParallel(t, &p, plenty)
		checkParallel(t, &p, 100)
	}
}

func FuzzDecode(f *testing.F) {
	var own []golden
	load(f, "fronta-v1.json", &own)
	for _, g := range own {
		f.Add(g.Text, g.Progress.Offset)
		f.Add(g.Wide, g.Progress.Offset)
	}
	var others []struct {
		Offset   int64 `json:"commit_offset"`
		Metadata string
	}
	for _, file := range []string{"atleon-v1.json", "parallel-consumer.json"} {
		load(f, file, &others)
		for _, c := range others {
			f.Add(c.Metadata, c.Offset)
		}
	}
	f.Add("kgo-2f1e7b8a-3c0d-4f5e-9a6b-7c8d9e0f1a2b", int64(100))
	f.Add("AQAAAY8AAAAA", int64(100))
	f.Add(`{"a":[1,2]}`, int64(0))
	f.Fuzz(checkAny)
}

// FuzzFronta gives the decoder data with the right checksum, which is what it
// would take a fuzzer long to find.
func FuzzFronta(f *testing.F) {
	var own []golden
	load(f, "fronta-v1.json", &own)
	for _, g := range own {
		f.Add(progress.Data(g.Text)[1:], g.Progress.Offset)
	}
	f.Fuzz(func(t *testing.T, b []byte, offset int64) {
		if len(b) < 9 || len(b) > 5000 {
			return
		}
		b = progress.Seal(append([]byte{1}, b...))
		// The tag too, if the flags have one byte.
		copy(b[6:], header(0)[6:10])
		checkAny(t, progress.ASCII(b), offset)
		if text := progress.Wide(b); string(progress.Data(text)) != string(b) {
			t.Fatalf("%q is %x, not %x", text, progress.Data(text), b)
		}
	})
}

func FuzzAtleon(f *testing.F) {
	var cases []struct {
		Offset   int64 `json:"commit_offset"`
		Metadata string
	}
	load(f, "atleon-v1.json", &cases)
	for _, c := range cases {
		if b, err := base64.RawStdEncoding.DecodeString(c.Metadata); err == nil && len(b) > 5 && len(b) < 1000 {
			f.Add(b[1:len(b)-4], c.Offset)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, offset int64) {
		if len(b) < 5000 {
			checkAny(t, atleon(offset, append([]byte{1}, b...)...), offset)
		}
	})
}

func FuzzParallelConsumer(f *testing.F) {
	var cases []struct {
		Offset   int64 `json:"commit_offset"`
		Metadata string
	}
	load(f, "parallel-consumer.json", &cases)
	for _, c := range cases {
		if b, err := base64.StdEncoding.DecodeString(c.Metadata); err == nil && len(b) > 0 && len(b) < 1000 {
			f.Add(b[0], b[1:], c.Offset)
		}
	}
	f.Fuzz(func(t *testing.T, magic byte, b []byte, offset int64) {
		if len(b) < 5000 {
			checkAny(t, parallel(magic, b...), offset)
		}
	})
}

// FuzzRoundTrip writes and reads drawn progress under drawn limits.
func FuzzRoundTrip(f *testing.F) {
	var e progress.Encoder
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) {
		p := drawProgress(t)
		l := progress.Limit{Units: rapid.OneOf(rapid.IntRange(0, 300), rapid.Just(plenty)).Draw(t, "units"), ASCII: rapid.Bool().Draw(t, "ascii")}
		text, fit := e.Append(nil, p, about, l)
		checkLimited(t, p, string(text), fit, l)
		if is, most := p.Horizon()-p.Offset, headsOf(p); l.Units == plenty && len(text) > 0 && fit.LeftOutHeads == 0 && markers(p)+len(p.Attempts) == 0 && progress.HeadBytes(string(text)) > progress.Bound(is, most) {
			t.Fatalf("%d bytes, bound %d", progress.HeadBytes(string(text)), progress.Bound(is, most))
		}
	}))
}
