package progress

import (
	"fmt"
	"strings"
)

// Info is what [Inspect] finds out about a text.
type Info struct {
	Format  Format `json:"format"`
	Variant string `json:"variant,omitempty"` // "version 1", or how Parallel Consumer names the encoding
	Units   int    `json:"units"`             // the length in UTF-16, which brokers limit
	Bytes   int    `json:"bytes"`             // the length in UTF-8
	Wide    bool   `json:"wide,omitempty"`    // fronta's form with 15 bits a letter

	// Why the text can't be read, or must not be believed. Then the rest is
	// empty, and nothing is known of the offsets from the committed one on.
	Code   Code   `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	Guess  string `json:"guess,omitempty"` // what a text of no known format seems to be

	Offset   int64     `json:"offset"`
	Horizon  int64     `json:"horizon"`            // the first offset of which nothing is told
	Segments []Stretch `json:"segments,omitempty"` // Progress has them in full
	Attempts int       `json:"attempts,omitempty"` // of how many heads failed attempts are told

	// Unfinished is how many of the offsets below Horizon are unfinished at
	// most. Where each record counts by itself it is so many. Otherwise it
	// counts all offsets behind the first head of a segment: which of them
	// belong to the heads' lanes only the records tell.
	Unfinished int64 `json:"unfinished_most"`

	Progress *Progress `json:"progress,omitempty"` // nil without a text, and if it can't be read
}

// Stretch is a segment in short.
type Stretch struct {
	End     int64  `json:"end"`
	Order   string `json:"order"`
	Heads   int64  `json:"heads"`   // markers among them
	Markers int64  `json:"markers"` // finished records that stand for their lanes
}

// Inspect tells about the metadata of a commit of offset. Whether the text is
// about the right partition is left open: [Decode] finds that out.
func Inspect(text string, offset int64) Info {
	p, format, err := decode(text, offset, nil)
	i := Info{Format: format, Units: utf16Units(text), Bytes: len(text), Offset: offset, Horizon: p.Horizon()}
	switch format {
	case Fronta:
		_, i.Wide = isOwn(text)
		if b, err := data(text); err == nil && open(b) == nil {
			i.Variant = fmt.Sprint("version ", b[0])
		}
	case AtleonV1:
		i.Variant = fmt.Sprint("version ", atleonVersion)
	case ParallelConsumer:
		if b, ok := fromBase64(text, true); ok && len(b) > 0 {
			e, _ := magic(b[0]).encoding()
			i.Variant = e.name
		}
	case Unknown:
		b, _ := fromBase64(text, false)
		i.Guess = guess(text, b)
	}
	if err != nil {
		i.Code, i.Reason = codeOf(err), err.Error()
		return i
	}
	if text == "" {
		return i
	}
	i.Progress = &p
	i.Attempts = len(p.Attempts)
	for n := range p.Segments {
		s := &p.Segments[n]
		t := Stretch{End: s.End, Order: s.Order, Markers: int64(len(s.Markers))}
		for _, r := range s.Heads {
			t.Heads += r.To - r.From
		}
		i.Segments = append(i.Segments, t)
		switch {
		case s.Order == "unordered":
			i.Unfinished += t.Heads - t.Markers
		case t.Heads > 0:
			i.Unfinished += s.End - s.Heads[0].From - t.Markers
		}
	}
	return i
}

// String is a few lines for people. It has no list of heads.
func (i Info) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	form := ""
	if i.Format == Fronta {
		form = "ASCII, "
		if i.Wide {
			form = "wide, "
		}
	}
	variant := i.Variant
	if variant != "" {
		variant = ", " + variant
	}
	line("%s%s: %s (%s%s)", i.Format, variant, counted(int64(i.Units), "unit"), form, counted(int64(i.Bytes), "byte"))
	if i.Reason != "" {
		line("refused, %s: %s", i.Code, i.Reason)
		return b.String()
	}
	line("offset %d, horizon %d: %s, at most %d unfinished", i.Offset, i.Horizon, counted(i.Horizon-i.Offset, "offset"), i.Unfinished)
	p := i.Progress
	if p == nil {
		return b.String()
	}
	for n, s := range i.Segments {
		check := ""
		if c := p.Segments[n].Check; c != 0 {
			check = fmt.Sprintf(", check %08x", c)
		}
		markers := ""
		if s.Markers > 0 {
			markers = fmt.Sprintf(", %d of them to mark a lane", s.Markers)
		}
		line("up to %d, order %s: %s%s%s", s.End, s.Order, counted(s.Heads, "head"), markers, check)
	}
	if i.Format == Fronta {
		clean := "not given up in good order"
		if p.Clean {
			clean = "given up in good order"
		}
		line("leader epoch %d, fence %d, %s, %s before", p.Epoch, p.Fence, clean, counted(int64(p.Starts), "unclean start"))
	}
	if i.Attempts > 0 {
		line("failed attempts of %s", counted(int64(i.Attempts), "head"))
	}
	if p.Reach > 0 {
		line("started below %d", p.Reach)
	}
	if p.Suspect >= 0 {
		line("suspect: %d", p.Suspect)
	}
	for _, c := range p.Crashes {
		line("crashes at %d: %d", c.Offset, c.N)
	}
	return b.String()
}

func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
