package bench

// progress: how much a commit's metadata can say, against what information theory allows, and what that costs. Without a
// broker: the codec alone, with progress as consumers have it.

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/progress"
)

// ProgressOptions say how much is measured.
type ProgressOptions struct {
	Seeds  int // random sets of each kind; the median counts
	Rounds int // encodings and decodings that are timed; the median counts
}

const (
	// ProgressUnits is the metadata's limit: Apache Kafka's default.
	ProgressUnits = 4096
	// ProgressSet is the number of offsets of the random sets whose size is compared with the entropy.
	ProgressSet = 60_000
	// ProgressMillisGoal is below what encoding and decoding a full text should stay.
	ProgressMillisGoal = 3
	// ProgressKeyedGoal is below what the units for one stuck key should stay.
	ProgressKeyedGoal = 100
)

// progressGoals are the rows.
var progressGoals = []struct {
	heads  float64
	ratio  float64
	window int
}{
	{0.01, 1.06, 500_000},
	{0.10, 1.03, 120_000},
	{0.50, 1.03, 58_000},
}

// ProgressResult is the result.
type ProgressResult struct {
	Scenario string `json:"scenario"`
	Machine
	Seeds  int           `json:"seeds"`
	Rounds int           `json:"rounds"`
	Rows   []ProgressRow `json:"rows"`

	// KeyedUnits is the length of the text when one key is stuck and a million records behind its first one are read.
	KeyedUnits     int  `json:"keyed_units"`
	KeyedUnitsGoal int  `json:"keyed_units_goal"` // below it
	KeyedUnitsMet  bool `json:"keyed_units_met"`

	Keyed []KeyedRow `json:"keyed"` // without goals
	Met   bool       `json:"met"`   // all goals
}

// ProgressRow is about sets of offsets of which each is a head with the same probability, independently of the others: what
// nothing but the heads' number helps to make smaller.
type ProgressRow struct {
	Heads float64 `json:"heads"` // the probability

	// EntropyRatio is the size of what the text holds, header and all, over the entropy of a set of ProgressSet offsets with
	// the number of heads it happens to have.
	EntropyRatio     float64 `json:"entropy_ratio"`
	EntropyRatioGoal float64 `json:"entropy_ratio_goal"` // at most
	EntropyRatioMet  bool    `json:"entropy_ratio_met"`

	// Window is the largest number of offsets of such a set whose text has at most ProgressUnits units with nothing left out.
	Window     int  `json:"window"`
	WindowGoal int  `json:"window_goal"` // at least
	WindowMet  bool `json:"window_met"`

	// Of the text of that window.
	EncodeMillis float64 `json:"encode_ms"`
	DecodeMillis float64 `json:"decode_ms"`
	MillisGoal   float64 `json:"ms_goal"` // below it
	MillisMet    bool    `json:"ms_met"`
}

// KeyedRow is about a million records of ten thousand keys in random order, of which a share is stuck at a random one of its
// records each.
type KeyedRow struct {
	Keys    int  `json:"keys"`
	Records int  `json:"records"`
	Stuck   int  `json:"stuck"` // keys
	Units   int  `json:"units"`
	Whole   bool `json:"whole"` // nothing had to be left out
}

// WriteText implements out.Value.
func (r *ProgressResult) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Progress of a partition in a commit's metadata of at most %s units, medians of %d random sets\n", out.Count(ProgressUnits), r.Seeds)
	r.writeText(w)
	rows := [][]string{{"heads", "size / entropy", "goal", "", "window", "goal", "", "encode ms", "decode ms", "goal", ""}}
	for _, row := range r.Rows {
		rows = append(rows, []string{
			fmt.Sprintf("%.0f %%", 100*row.Heads),
			fmt.Sprintf("%.3f", row.EntropyRatio), fmt.Sprintf("<= %.2f", row.EntropyRatioGoal), verdict(row.EntropyRatioMet),
			out.Count(row.Window), ">= " + out.Count(row.WindowGoal), verdict(row.WindowMet),
			fmt.Sprintf("%.2f", row.EncodeMillis), fmt.Sprintf("%.2f", row.DecodeMillis), fmt.Sprintf("< %.0f", row.MillisGoal), verdict(row.MillisMet),
		})
	}
	table(w, rows...)
	fmt.Fprintf(w, "one stuck key, a million records behind it: %s units; goal: below %d: %s\n", out.Count(r.KeyedUnits), r.KeyedUnitsGoal, verdict(r.KeyedUnitsMet))
	for _, k := range r.Keyed {
		whole := ""
		if !k.Whole {
			whole = ", not whole"
		}
		fmt.Fprintf(w, "%s of %s keys stuck, %s records: %s units%s\n", out.Count(k.Stuck), out.Count(k.Keys), out.Count(k.Records), out.Count(k.Units), whole)
	}
}

// RunProgress measures.
func RunProgress(ctx context.Context, e *Env, o ProgressOptions) (*ProgressResult, error) {
	r := &ProgressResult{
		Scenario: "progress", Machine: e.machine(), Seeds: o.Seeds, Rounds: o.Rounds,
		KeyedUnitsGoal: ProgressKeyedGoal, Met: true,
	}
	c := &codec{}
	for _, goal := range progressGoals {
		row := ProgressRow{Heads: goal.heads, EntropyRatioGoal: goal.ratio, WindowGoal: goal.window, MillisGoal: ProgressMillisGoal}
		var ratios, windows, encode, decode []float64
		for seed := range o.Seeds {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			e.Progress(fmt.Sprintf("%.0f %% heads: set %d of %d", 100*goal.heads, seed+1, o.Seeds))
			set := newHeadSet(goal.heads, uint64(seed))
			ratio, err := c.entropyRatio(set)
			if err != nil {
				return nil, err
			}
			window := c.window(set)
			ratios, windows = append(ratios, ratio), append(windows, float64(window))
			en, de, err := c.times(ctx, set.progress(window), o.Rounds)
			if err != nil {
				return nil, err
			}
			encode, decode = append(encode, en), append(decode, de)
		}
		row.EntropyRatio, row.Window = median(ratios), int(median(windows))
		row.EncodeMillis, row.DecodeMillis = median(encode), median(decode)
		row.EntropyRatioMet = row.EntropyRatio <= row.EntropyRatioGoal
		row.WindowMet = row.Window >= row.WindowGoal
		row.MillisMet = max(row.EncodeMillis, row.DecodeMillis) < row.MillisGoal
		r.Met = r.Met && row.EntropyRatioMet && row.WindowMet && row.MillisMet
		r.Rows = append(r.Rows, row)
	}
	e.Progress("one stuck key")
	fit, err := c.encode(oneStuckKey(), ProgressUnits)
	if err != nil {
		return nil, err
	}
	r.KeyedUnits = fit.Units
	r.KeyedUnitsMet = r.KeyedUnits < r.KeyedUnitsGoal
	r.Met = r.Met && r.KeyedUnitsMet
	for _, share := range []int{100, 10} {
		row := KeyedRow{Keys: keyedKeys, Records: keyedRecords, Stuck: keyedKeys / share, Whole: true}
		var units []float64
		for seed := range o.Seeds {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			e.Progress(fmt.Sprintf("%s of %s keys stuck: set %d of %d", out.Count(row.Stuck), out.Count(row.Keys), seed+1, o.Seeds))
			p := stuckKeys(row.Stuck, uint64(seed))
			fit, err := c.encode(p, ProgressUnits)
			if err != nil {
				return nil, err
			}
			row.Whole = row.Whole && fit.Horizon == p.Horizon()
			units = append(units, float64(fit.Units))
		}
		row.Units = int(median(units))
		r.Keyed = append(r.Keyed, row)
	}
	return r, nil
}

const (
	keyedKeys    = 10_000
	keyedRecords = 1_000_000
	// firstOffset is the committed one: a partition that has seen a few records.
	firstOffset = 4_821_337_905
)

// codec encodes and decodes for one partition.
type codec struct {
	encoder progress.Encoder
	text    []byte
}

var binding = progress.Binding{
	TopicID:   [16]byte{0x5e, 0x1d, 0x9a, 0x07, 0xc3, 0x44, 0x4b, 0xe2, 0x8f, 0x60, 0x12, 0xd8, 0x77, 0xa1, 0x3c, 0xf9},
	Partition: 11,
}

// encode leaves the text in c.text. It is read again: a text that says something else has no size worth telling.
func (c *codec) encode(p *progress.Progress, units int) (progress.Fit, error) {
	var fit progress.Fit
	c.text, fit = c.encoder.Append(c.text[:0], p, binding, progress.Limit{Units: units})
	back, _, err := progress.Decode(string(c.text), p.Offset, binding)
	if err != nil {
		return fit, fmt.Errorf("read a text that was just written, %d units: %w", fit.Units, err)
	}
	if fit.Horizon == p.Horizon() && !reflect.DeepEqual(back.Segments, p.Segments) {
		return fit, fmt.Errorf("a text of %d units does not say what was written", fit.Units)
	}
	return fit, nil
}

// entropyRatio is the size of the set's first ProgressSet offsets over their entropy.
func (c *codec) entropyRatio(set *headSet) (float64, error) {
	p := set.progress(ProgressSet)
	const unlimited = 1 << 20 // ends at what a Kafka string can have, which is more than these sets need
	fit, err := c.encode(p, unlimited)
	if err != nil {
		return 0, err
	}
	if fit.Horizon != p.Horizon() {
		return 0, fmt.Errorf("a set of %d offsets does not fit any metadata", ProgressSet)
	}
	size := base64.RawURLEncoding.DecodedLen(fit.Units - 1) // behind the tilde
	if fit.Wide {
		size = fit.Units * 15 / 8
	}
	heads := 0.0
	for _, r := range p.Segments[0].Heads {
		heads += float64(r.To - r.From)
	}
	share := heads / ProgressSet
	entropy := -ProgressSet * (share*math.Log2(share) + (1-share)*math.Log2(1-share))
	return float64(8*size) / entropy, nil
}

// window is the largest number of the set's first offsets that fit whole.
func (c *codec) window(set *headSet) int {
	fits := func(n int) bool {
		p := set.progress(n)
		var fit progress.Fit
		c.text, fit = c.encoder.Append(c.text[:0], p, binding, progress.Limit{Units: ProgressUnits})
		return fit.Horizon == p.Horizon()
	}
	least, most := 1, 1024 // fits, does not fit
	for fits(most) {
		least, most = most, 2*most
	}
	for most-least > 1 {
		if n := least + (most-least)/2; fits(n) {
			least = n
		} else {
			most = n
		}
	}
	return least
}

// times are the medians of many encodings and decodings, in milliseconds.
func (c *codec) times(ctx context.Context, p *progress.Progress, rounds int) (encode, decode float64, err error) {
	if _, err := c.encode(p, ProgressUnits); err != nil { // scratch is as large as it gets
		return 0, 0, err
	}
	rest()
	var encodes, decodes []float64
	for range rounds {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		begin := time.Now()
		c.text, _ = c.encoder.Append(c.text[:0], p, binding, progress.Limit{Units: ProgressUnits})
		encodes = append(encodes, time.Since(begin).Seconds()*1000)
		text := string(c.text)
		begin = time.Now()
		_, _, err := progress.Decode(text, p.Offset, binding)
		decodes = append(decodes, time.Since(begin).Seconds()*1000)
		if err != nil {
			return 0, 0, err
		}
	}
	return median(encodes), median(decodes), nil
}

// headSet is a random set that grows as far as it is asked for: the first n offsets are the same whatever n is.
type headSet struct {
	share  float64
	random *rand.Rand
	known  int64 // offsets that are drawn
	heads  []progress.Range
}

func newHeadSet(share float64, seed uint64) *headSet {
	s := &headSet{share: share, random: rand.New(rand.NewPCG(seed, math.Float64bits(share)))}
	s.head(0) // the committed offset is unfinished
	return s
}

func (s *headSet) head(at int64) {
	s.known = at + 1
	if n := len(s.heads); n > 0 && s.heads[n-1].To == at {
		s.heads[n-1].To++
		return
	}
	s.heads = append(s.heads, progress.Range{From: at, To: at + 1})
}

// progress is that of the first n offsets, in a memory of its own.
func (s *headSet) progress(n int) *progress.Progress {
	for s.known < int64(n) {
		if s.random.Float64() < s.share {
			s.head(s.known)
		} else {
			s.known++
		}
	}
	heads := make([]progress.Range, 0, len(s.heads))
	for _, r := range s.heads {
		if r.From >= int64(n) {
			break
		}
		heads = append(heads, progress.Range{From: firstOffset + r.From, To: firstOffset + min(r.To, int64(n))})
	}
	return keyed(heads, firstOffset+int64(n))
}

// keyed is a progress in key order as a consumer has it in the middle of its work.
func keyed(heads []progress.Range, end int64) *progress.Progress {
	return &progress.Progress{
		Offset:   heads[0].From,
		Segments: []progress.Segment{{End: end, Order: "key", Check: 0x8badf00d, Heads: heads}},
		Epoch:    37,
		Fence:    218_430_551_204, // milliseconds since 2020, towards the end of 2026
		Suspect:  -1,
	}
}

// oneStuckKey has failed a few times, and a million records of all keys behind it are read and finished, except its own.
func oneStuckKey() *progress.Progress {
	p := keyed([]progress.Range{{From: firstOffset, To: firstOffset + 1}}, firstOffset+1+1_000_000)
	p.Attempts = []progress.Count{{Offset: firstOffset, N: 9}}
	return p
}

// stuckKeys has as many of the keys stuck at a random record.
func stuckKeys(stuck int, seed uint64) *progress.Progress {
	random := rand.New(rand.NewPCG(seed, uint64(stuck)))
	offsets := make([][]int64, keyedKeys)
	for at := range int64(keyedRecords) {
		k := random.IntN(keyedKeys)
		offsets[k] = append(offsets[k], at)
	}
	isHead := make(map[int64]bool)
	for _, k := range random.Perm(keyedKeys)[:stuck] {
		if n := len(offsets[k]); n > 0 {
			isHead[offsets[k][random.IntN(n)]] = true
		}
	}
	set := &headSet{}
	for at := range int64(keyedRecords) {
		if isHead[at] {
			set.head(at)
		}
	}
	set.known = keyedRecords
	return set.progress(keyedRecords)
}
