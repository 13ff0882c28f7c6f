package progress_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fronta-mq/fronta/progress"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	p := set(1000, 1, 9, 2, 88)
	p.Segments[0].Order, p.Segments[0].Check = "key:customer", 0xabc
	p.Segments[0].Markers = []int64{1010}
	p.Segments = append(p.Segments,
		progress.Segment{End: 1200, Order: "unordered", Heads: []progress.Range{{From: 1150, To: 1160}}, Markers: []int64{1152}},
		progress.Segment{End: 1300, Order: "key"})
	p.Attempts = []progress.Count{{Offset: 1000, N: 3}}
	p.Epoch, p.Fence, p.Starts, p.Reach, p.Suspect = 7, 99, 2, 2300, 1000
	p.Crashes = []progress.Count{{Offset: 1000, N: 2}}
	for _, l := range []progress.Limit{{Units: 4096}, {Units: 60}} {
		text, fit := encode(t, p, l)
		i := progress.Inspect(text, 1000)
		want := progress.Info{
			Format: progress.Fronta, Variant: "version 1", Units: fit.Units, Bytes: len(text), Wide: fit.Wide,
			Offset: 1000, Horizon: 1300, Attempts: 1, Unfinished: 99 + 9,
			Segments: []progress.Stretch{
				{End: 1100, Order: "key:customer", Heads: 3, Markers: 1},
				{End: 1200, Order: "unordered", Heads: 10, Markers: 1},
				{End: 1300, Order: "key"},
			},
			Progress: p,
		}
		if d := cmp.Diff(want, i); d != "" {
			t.Errorf("(-want +is) %s", d)
		}
		form := "ASCII"
		if fit.Wide {
			form = "wide"
		}
		got := strings.ReplaceAll(i.String(), form, "FORM")
		if got = got[strings.IndexByte(got, '\n')+1:]; got != `offset 1000, horizon 1300: 300 offsets, at most 108 unfinished
up to 1100, order key:customer: 3 heads, 1 of them to mark a lane, check 00000abc
up to 1200, order unordered: 10 heads, 1 of them to mark a lane
up to 1300, order key: 0 heads
leader epoch 7, fence 99, not given up in good order, 2 unclean starts before
failed attempts of 1 head
started below 2300
suspect: 1000
crashes at 1000: 2
` {
			t.Errorf("%s", got)
		}
	}
	if text, fit := encode(t, p, progress.Limit{Units: 60}); !fit.Wide || !strings.HasPrefix(progress.Inspect(text, 1000).String(), "fronta, version 1: 27 units (wide, 81 bytes)\n") {
		t.Errorf("%+v, %s", fit, progress.Inspect(text, 1000))
	}
	if s := progress.Inspect("bgABAAk=", 5).String(); s != "parallel-consumer, RunLength: 8 units (8 bytes)\noffset 5, horizon 15: 10 offsets, at most 1 unfinished\nup to 15, order unordered: 1 head\n" {
		t.Errorf("%s", s)
	}
	if s := progress.Inspect("", 5).String(); s != "none: 0 units (0 bytes)\noffset 5, horizon 5: 0 offsets, at most 0 unfinished\n" {
		t.Errorf("%s", s)
	}
	if s := progress.Inspect("kgo-\u4e2d\U0001F600\xff", 5); s.Units != 8 || s.Bytes != 12 || s.String() != "unknown: 8 units (12 bytes)\nrefused, foreign: it is no progress in a format that is known here, but a member's id, which the client franz-go stores if it is not told otherwise\n" {
		t.Errorf("%+v, %s", s, s)
	}
	if s := progress.Inspect("AQICAulV0Ao", 6); s.Format != progress.AtleonV1 || s.Code != progress.Damaged || s.Variant != "version 1" || s.Guess != "" {
		t.Errorf("%+v", s)
	}
}

func TestInspectJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":         `{"format":"none","units":0,"bytes":0,"offset":5,"horizon":5,"unfinished_most":0}`,
		"bgABAAk=": `{"format":"parallel-consumer","variant":"RunLength","units":8,"bytes":8,"offset":5,"horizon":15,"segments":[{"end":15,"order":"unordered","heads":1,"markers":0}],"unfinished_most":1,"progress":{"offset":5,"segments":[{"end":15,"order":"unordered","heads":[{"from":5,"to":6}]}],"epoch":-1,"clean":false,"suspect":-1}}`,
		"orders":   `{"format":"unknown","units":6,"bytes":6,"code":"foreign","reason":"it is no progress in a format that is known here, but plain text","guess":"plain text","offset":5,"horizon":5,"unfinished_most":0}`,
	} {
		got, err := json.Marshal(progress.Inspect(text, 5))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
		var back progress.Info
		if err := json.Unmarshal(got, &back); err != nil {
			t.Errorf("%q: %v", text, err)
		} else if d := cmp.Diff(progress.Inspect(text, 5), back); d != "" {
			t.Errorf("%q: %s", text, d)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for f := progress.None; f <= progress.Unknown; f++ {
		b, err := f.MarshalText()
		var back progress.Format
		if err != nil || string(b) != f.String() || back.UnmarshalText(b) != nil || back != f {
			t.Errorf("%v: %s, %v, %v", f, b, err, back)
		}
	}
	none := progress.Format(99)
	if _, err := none.MarshalText(); err == nil || none.String() != "Format(99)" || none.UnmarshalText([]byte("x")) == nil {
		t.Errorf("%v is known", none)
	}
	for c := progress.Foreign; c <= progress.Unsupported; c++ {
		b, err := c.MarshalText()
		var back progress.Code
		if err != nil || string(b) != c.String() || back.UnmarshalText(b) != nil || back != c {
			t.Errorf("%v: %s, %v, %v", c, b, err, back)
		}
	}
	for _, none := range []progress.Code{0, 99} {
		if _, err := none.MarshalText(); err == nil || none.UnmarshalText([]byte(none.String())) == nil {
			t.Errorf("%v is known", none)
		}
	}
}

func TestHorizon(t *testing.T) {
	t.Parallel()
	if p := (progress.Progress{Offset: math.MaxInt64}); p.Horizon() != math.MaxInt64 {
		t.Errorf("%d", p.Horizon())
	}
	if p := set(5, 1, 4); p.Horizon() != 10 {
		t.Errorf("%d", p.Horizon())
	}
}
