package bench

// noop: what fronta adds to the reading of records, when the handler does nothing. The bare side is the shortest loop a
// program can write with the client alone, and at its best: it keeps no order, retries nothing and commits nothing.

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

// NoopOptions say how much is measured.
type NoopOptions struct {
	Records    int
	Keys       int
	Partitions int
	Runs       int // pairs of runs, after one that warms up
}

// NoopGoal is the least ratio wanted.
const NoopGoal = 0.8

// Noop is the result. Rates are medians of the runs, in records a second, from the first record seen to the last one
// accepted; ratios are of these.
type Noop struct {
	Scenario string `json:"scenario"`
	Machine
	Records    int     `json:"records"`
	Bytes      int     `json:"record_bytes"`
	Keys       int     `json:"keys"`
	Partitions int     `json:"partitions"`
	Runs       int     `json:"runs"`
	BareRPS    float64 `json:"bare_rps"`
	FrontaRPS  float64 `json:"fronta_rps"`
	Ratio      float64 `json:"ratio"`
	RatioMin   float64 `json:"ratio_min"` // of a pair of neighbouring runs
	RatioMax   float64 `json:"ratio_max"`
	BareRPS1   float64 `json:"bare_rps_1p"` // the same records in one partition
	FrontaRPS1 float64 `json:"fronta_rps_1p"`
	Ratio1     float64 `json:"ratio_1p"`
	RatioMin1  float64 `json:"ratio_min_1p"`
	RatioMax1  float64 `json:"ratio_max_1p"`
	Goal       float64 `json:"goal"` // for ratio
	Met        bool    `json:"met"`
}

// WriteText implements out.Value.
func (n *Noop) WriteText(w io.Writer) {
	fmt.Fprintf(w, "No-op handler, %s records of %d B, %s keys, medians of %d runs by turns with a bare poll loop\n",
		out.Count(n.Records), n.Bytes, out.Count(n.Keys), n.Runs)
	n.writeText(w)
	row := func(partitions int, bare, fronta, ratio, least, most float64) []string {
		return []string{
			fmt.Sprint(partitions), out.Count(int(bare)), out.Count(int(fronta)), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("%.2f–%.2f", least, most),
		}
	}
	table(w,
		[]string{"partitions", "bare records/s", "fronta records/s", "ratio", "of pairs"},
		row(n.Partitions, n.BareRPS, n.FrontaRPS, n.Ratio, n.RatioMin, n.RatioMax),
		row(1, n.BareRPS1, n.FrontaRPS1, n.Ratio1, n.RatioMin1, n.RatioMax1),
	)
	fmt.Fprintf(w, "goal: ratio at least %.2f on %d partitions: %s\n", n.Goal, n.Partitions, verdict(n.Met))
}

// RunNoop measures.
func RunNoop(ctx context.Context, e *Env, o NoopOptions) (*Noop, error) {
	n := &Noop{
		Scenario: "noop", Machine: e.machine(), Records: o.Records, Bytes: RecordBytes, Keys: o.Keys,
		Partitions: o.Partitions, Runs: o.Runs, Goal: NoopGoal,
	}
	one, err := e.noop(ctx, o, 1)
	if err != nil {
		return nil, err
	}
	n.BareRPS1, n.FrontaRPS1, n.Ratio1, n.RatioMin1, n.RatioMax1 = one.figures()
	many := one
	if o.Partitions != 1 {
		if many, err = e.noop(ctx, o, o.Partitions); err != nil {
			return nil, err
		}
	}
	n.BareRPS, n.FrontaRPS, n.Ratio, n.RatioMin, n.RatioMax = many.figures()
	n.Met = n.Ratio >= n.Goal
	return n, nil
}

// pairs are the rates of runs by turns.
type pairs struct{ bare, fronta []float64 }

func (p pairs) figures() (bare, fronta, ratio, least, most float64) {
	ratios := make([]float64, len(p.bare))
	for i := range ratios {
		ratios[i] = p.fronta[i] / p.bare[i]
	}
	bare, fronta = median(p.bare), median(p.fronta)
	return bare, fronta, fronta / bare, slices.Min(ratios), slices.Max(ratios)
}

func (e *Env) noop(ctx context.Context, o NoopOptions, partitions int) (p pairs, err error) {
	topic, err := e.fill(ctx, fmt.Sprintf("noop-%dp", partitions), partitions, o.Records, func(i int) int { return i % o.Keys })
	if err != nil {
		return p, err
	}
	for i := -1; i < o.Runs; i++ {
		e.Progress(fmt.Sprintf("%d partition(s): run %d of %d", partitions, max(i, 0)+1, o.Runs))
		bare := func() (rps float64, err error) { rest(); return e.noopBare(ctx, topic, o.Records) }
		with := func() (rps float64, err error) { rest(); return e.noopFronta(ctx, topic, o.Records, i == o.Runs-1) }
		first, second := bare, with
		if i%2 == 1 {
			first, second = with, bare // neither is always the one that comes second
		}
		a, err := first()
		if err != nil {
			return p, err
		}
		b, err := second()
		if err != nil {
			return p, err
		}
		if i%2 == 1 {
			a, b = b, a
		}
		if i >= 0 {
			p.bare, p.fronta = append(p.bare, a), append(p.fronta, b)
		}
	}
	return p, e.Cluster.DeleteTopic(ctx, topic)
}

// reading are the client options of both sides: those that fronta sets by itself.
func reading() []kgo.Opt {
	return []kgo.Opt{
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.FetchMaxBytes(32 << 20),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(),
	}
}

func (e *Env) noopBare(ctx context.Context, topic string, records int) (rps float64, err error) {
	client, err := kgo.NewClient(append(append(e.Cluster.Opts(), reading()...),
		kgo.ConsumerGroup(e.Cluster.Group("bench")), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
	)...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	var (
		seen  int
		first time.Time
	)
	for seen < records {
		fetches := client.PollFetches(ctx)
		if first.IsZero() {
			first = time.Now()
		}
		if err := fetches.Err(); err != nil {
			return 0, fmt.Errorf("bare poll loop: %w", err)
		}
		fetches.EachRecord(func(*kgo.Record) { seen++ })
	}
	return rate(records, time.Since(first)), nil
}

func (e *Env) noopFronta(ctx context.Context, topic string, records int, profiled bool) (rps float64, err error) {
	if profiled {
		end, err := e.profile()
		if err != nil {
			return 0, err
		}
		defer func() {
			if failed := end(); err == nil {
				err = failed
			}
		}()
	}
	begin := time.Now()
	var first atomic.Int64 // since begin
	c, err := e.consume(ctx, topic, fronta.Config{}, func(context.Context, *fronta.Record) error {
		if first.Load() == 0 {
			first.CompareAndSwap(0, int64(time.Since(begin)))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	last, err := c.accepted(ctx, records)
	if stopped := c.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		err = c.exactly(records)
	}
	if err != nil {
		return 0, fmt.Errorf("fronta: %w", err)
	}
	return rate(records, last.Sub(begin)-time.Duration(first.Load())), nil
}

func rate(records int, took time.Duration) float64 {
	return float64(records) / max(took, time.Nanosecond).Seconds()
}
