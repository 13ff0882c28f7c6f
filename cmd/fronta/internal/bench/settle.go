package bench

// settle: what one settle costs when many records are unfinished, in the core alone: no broker, no goroutine, no handler.

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/internal/queue"
)

// SettleOptions say how much is measured.
type SettleOptions struct {
	Many   int // unfinished records, beside the few
	Rounds int // of each; the median counts
}

const (
	// SettleFew is the number of unfinished records to compare with, and how many run at once.
	SettleFew = 1_000
	// SettleGoal is how many times more a settle may cost with many.
	SettleGoal = 1.5
)

// Settle is the result. Times are nanoseconds for a settle of one of the records that run, picked at random, and for the
// taking and admitting of another one, so that there are always as many: what a consumer does for each record.
type Settle struct {
	Scenario string `json:"scenario"`
	Machine
	Many   int     `json:"many"` // 1,000,000 unless told otherwise: the "1m" of the fields
	Rounds int     `json:"rounds"`
	NsAt1K float64 `json:"ns_at_1k"` // 10,000 keys by turns
	NsAt1M float64 `json:"ns_at_1m"`
	Ratio  float64 `json:"ratio"`
	// Distinct: every record has a key of its own, so with many records there are as many lanes, and what is touched for
	// each record is in no cache of the processor.
	Distinct1K    float64 `json:"distinct_ns_at_1k"`
	Distinct1M    float64 `json:"distinct_ns_at_1m"`
	DistinctRatio float64 `json:"distinct_ratio"`
	// Drained: all records run, distinct keys, and are settled in random order over all of them; the settle alone.
	Drained1K    float64 `json:"drained_ns_at_1k"`
	Drained1M    float64 `json:"drained_ns_at_1m"`
	DrainedRatio float64 `json:"drained_ratio"`
	Goal         float64 `json:"goal"` // for ratio
	Met          bool    `json:"met"`
}

// WriteText implements out.Value.
func (s *Settle) WriteText(w io.Writer) {
	fmt.Fprintf(w, "One settle in the core, medians of %d rounds\n", s.Rounds)
	s.writeText(w)
	row := func(name string, few, many, ratio float64) []string {
		return []string{name, fmt.Sprintf("%.1f", few), fmt.Sprintf("%.1f", many), fmt.Sprintf("%.2f", ratio)}
	}
	table(w,
		[]string{"", fmt.Sprintf("ns at %s", out.Count(SettleFew)), fmt.Sprintf("ns at %s", out.Count(s.Many)), "ratio"},
		row("settle, take, admit; 10,000 keys", s.NsAt1K, s.NsAt1M, s.Ratio),
		row("the same; distinct keys", s.Distinct1K, s.Distinct1M, s.DistinctRatio),
		row("settle alone; distinct keys, random over all", s.Drained1K, s.Drained1M, s.DrainedRatio),
	)
	fmt.Fprintf(w, "goal: ratio at most %.2f with 10,000 keys: %s\n", s.Goal, verdict(s.Met))
}

// RunSettle measures.
func RunSettle(ctx context.Context, e *Env, o SettleOptions) (*Settle, error) {
	s := &Settle{Scenario: "settle", Machine: e.machine(), Many: o.Many, Rounds: o.Rounds, Goal: SettleGoal}
	distinct := func(offset int64) queue.Lane { return lane(offset) }
	keyed := func(offset int64) queue.Lane { return lane(offset % 10_000) }
	for _, m := range []struct {
		name  string
		of    func(n int) float64
		a, b  *float64
		ratio *float64
	}{
		{"10,000 keys", func(n int) float64 { return consumeCore(n, o.Many, keyed) }, &s.NsAt1K, &s.NsAt1M, &s.Ratio},
		{"distinct keys", func(n int) float64 { return consumeCore(n, o.Many, distinct) }, &s.Distinct1K, &s.Distinct1M, &s.DistinctRatio},
		{"random over all", func(n int) float64 { return drainCore(n, o.Many, distinct) }, &s.Drained1K, &s.Drained1M, &s.DrainedRatio},
	} {
		var few, many []float64
		for round := range o.Rounds {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			e.Progress(fmt.Sprintf("%s: round %d of %d", m.name, round+1, o.Rounds))
			rest()
			few = append(few, m.of(SettleFew))
			rest()
			many = append(many, m.of(o.Many))
		}
		*m.a, *m.b = median(few), median(many)
		*m.ratio = *m.b / *m.a
	}
	s.Met = s.Ratio <= s.Goal
	return s, nil
}

// lane spreads key numbers over 64 bits, as a hash does.
func lane(key int64) queue.Lane {
	x := uint64(key) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return max(1, queue.Lane(x^x>>31))
}

// consumeCore keeps n records unfinished while turns records go through, SettleFew running at once.
func consumeCore(n, turns int, laneOf func(int64) queue.Lane) (ns float64) {
	p := queue.New(0)
	for range n {
		p.Admit(p.Horizon(), laneOf(p.Horizon()))
	}
	running := make([]queue.Slot, 0, SettleFew)
	take := func() {
		for len(running) < SettleFew {
			s, ok := p.Take()
			if !ok {
				return // the others are behind one that runs
			}
			running = append(running, s)
		}
	}
	take()
	random := rand.New(rand.NewPCG(8, 9))
	picks := make([]uint32, 1<<16)
	for i := range picks {
		picks[i] = random.Uint32()
	}
	turn := func(i int) {
		last := len(running) - 1
		pick := uint64(picks[i%len(picks)]) * uint64(len(running)) >> 32
		s := running[pick]
		running[pick] = running[last]
		running = running[:last]
		p.Finish(s)
		p.Admit(p.Horizon(), laneOf(p.Horizon()))
		take()
	}
	for i := range 2 * n { // until slots are as mixed as they will ever be
		turn(i)
	}
	begin := time.Now()
	for i := range turns {
		turn(i)
	}
	return float64(time.Since(begin)) / float64(turns)
}

// drainCore takes n records at a time and settles them in random order, until at least this many are settled.
func drainCore(n, settles int, laneOf func(int64) queue.Lane) (ns float64) {
	p := queue.New(0)
	random := rand.New(rand.NewPCG(8, 9))
	running := make([]queue.Slot, 0, n)
	var took time.Duration
	settled := 0
	for ; settled < settles; settled += n {
		for range n {
			p.Admit(p.Horizon(), laneOf(p.Horizon()))
			s, _ := p.Take()
			running = append(running, s)
		}
		random.Shuffle(n, func(i, j int) { running[i], running[j] = running[j], running[i] })
		begin := time.Now()
		for _, s := range running {
			p.Finish(s)
		}
		took += time.Since(begin)
		running = running[:0]
	}
	return float64(took) / float64(settled)
}
