package bench

// sleep: how close fronta comes to the ideal schedule of handlers that wait. The ideal is computed from the times that the
// handlers took, as measured, so a machine whose timers are late is not held against fronta: what is, is a handler that
// could have run and did not.

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

// SleepOptions say how much is measured.
type SleepOptions struct {
	Runs  int // of each row; the one with the median ratio is told
	Scale int // rows have so many times fewer records; 1: as many as the scenario says
}

const (
	// SleepConcurrency is how many handlers may run at once.
	SleepConcurrency = 1000
	// SleepMost is how long a handler sleeps at most; the least is nothing.
	SleepMost = 5 * time.Millisecond

	sleepGoalFew  = 1.10 // up to 100 keys
	sleepGoalMany = 1.25
)

// sleepRows are keys and records.
var sleepRows = []struct{ keys, records int }{
	{1, 10_000}, {10, 10_000}, {100, 10_000}, {1_000, 100_000}, {10_000, 100_000},
}

// Sleep is the result.
type Sleep struct {
	Scenario string `json:"scenario"`
	Machine
	Concurrency int        `json:"concurrency"`
	MaxSleepMS  float64    `json:"max_sleep_ms"`
	Runs        int        `json:"runs"`
	Rows        []SleepRow `json:"rows"`
	Met         bool       `json:"met"` // by every row
}

// SleepRow is a number of keys. Every key has the same number of records, in turns.
type SleepRow struct {
	Keys    int     `json:"keys"`
	Records int     `json:"records"`
	Seconds float64 `json:"seconds"` // from the first handler's start to the last one's end
	// IdealSeconds is the longest lane's handler times together, or all handler times over Concurrency if that is more.
	IdealSeconds float64 `json:"ideal_seconds"`
	Ratio        float64 `json:"ratio"`
	RatioMin     float64 `json:"ratio_min"` // of the runs
	RatioMax     float64 `json:"ratio_max"`
	Goal         float64 `json:"goal"`
	Met          bool    `json:"met"`
}

// WriteText implements out.Value.
func (s *Sleep) WriteText(w io.Writer) {
	fmt.Fprintf(w, "Handlers that sleep 0–%g ms, one partition, at most %s at once, the median of %d runs\n", s.MaxSleepMS, out.Count(s.Concurrency), s.Runs)
	s.writeText(w)
	rows := [][]string{{"keys", "records", "seconds", "ideal", "ratio", "of runs", "goal", ""}}
	for _, r := range s.Rows {
		rows = append(rows, []string{
			out.Count(r.Keys), out.Count(r.Records), fmt.Sprintf("%.3f", r.Seconds), fmt.Sprintf("%.3f", r.IdealSeconds),
			fmt.Sprintf("%.3f", r.Ratio), fmt.Sprintf("%.2f–%.2f", r.RatioMin, r.RatioMax), fmt.Sprintf("%.2f", r.Goal), verdict(r.Met),
		})
	}
	table(w, rows...)
}

// RunSleep measures.
func RunSleep(ctx context.Context, e *Env, o SleepOptions) (*Sleep, error) {
	s := &Sleep{
		Scenario: "sleep", Machine: e.machine(), Concurrency: SleepConcurrency,
		MaxSleepMS: float64(SleepMost) / float64(time.Millisecond), Runs: o.Runs, Met: true,
	}
	for i, row := range sleepRows {
		records := max(row.records/o.Scale, 1)
		topic, err := e.fill(ctx, fmt.Sprintf("sleep-%d", row.keys), 1, records, func(i int) int { return i % row.keys })
		if err != nil {
			return nil, err
		}
		var runs []SleepRow
		for run := range o.Runs {
			e.Progress(fmt.Sprintf("%d keys: run %d of %d", row.keys, run+1, o.Runs))
			rest()
			r, err := e.sleep(ctx, topic, row.keys, records, i == len(sleepRows)-1 && run == o.Runs-1)
			if err != nil {
				return nil, err
			}
			runs = append(runs, r)
		}
		slices.SortFunc(runs, func(a, b SleepRow) int {
			if a.Ratio < b.Ratio {
				return -1
			}
			return 1
		})
		r := runs[len(runs)/2]
		r.RatioMin, r.RatioMax = runs[0].Ratio, runs[len(runs)-1].Ratio
		r.Goal = sleepGoalFew
		if r.Keys > 100 {
			r.Goal = sleepGoalMany
		}
		r.Met = r.Ratio <= r.Goal
		s.Met = s.Met && r.Met
		s.Rows = append(s.Rows, r)
		if err := e.Cluster.DeleteTopic(ctx, topic); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (e *Env) sleep(ctx context.Context, topic string, keys, records int, profiled bool) (row SleepRow, err error) {
	if profiled {
		end, err := e.profile()
		if err != nil {
			return row, err
		}
		defer func() {
			if failed := end(); err == nil {
				err = failed
			}
		}()
	}
	// The topic has one partition, so an offset is a record's number, and its key follows from that.
	begin := time.Now()
	starts, ends := make([]time.Duration, records), make([]time.Duration, records)
	sleeps := make([]time.Duration, records)
	random := rand.New(rand.NewPCG(6, 7))
	for i := range sleeps {
		sleeps[i] = time.Duration(random.Int64N(int64(SleepMost) + 1))
	}
	var handled atomic.Int64
	c, err := e.consume(ctx, topic, fronta.Config{
		Concurrency:      SleepConcurrency,
		MaxInFlight:      max(records, SleepConcurrency),
		MaxBufferedBytes: 1 << 30,
	}, func(_ context.Context, r *fronta.Record) error {
		starts[r.Offset] = time.Since(begin)
		time.Sleep(sleeps[r.Offset])
		handled.Add(1)
		ends[r.Offset] = time.Since(begin)
		return nil
	})
	if err != nil {
		return row, err
	}
	_, err = c.accepted(ctx, records)
	if stopped := c.stop(); err == nil {
		err = stopped
	}
	if err == nil && int(handled.Load()) != records {
		err = fmt.Errorf("%d handlers ran for %d records", handled.Load(), records)
	}
	if err != nil {
		return row, err
	}
	took, ideal := schedule(starts, ends, keys)
	return SleepRow{
		Keys: keys, Records: records,
		Seconds: took.Seconds(), IdealSeconds: ideal.Seconds(), Ratio: float64(took) / float64(ideal),
	}, nil
}

// schedule compares how long handlers took together, from the first start to the last end, with how long they would have
// taken if none had waited without need. Record i is in lane i%keys.
func schedule(starts, ends []time.Duration, keys int) (took, ideal time.Duration) {
	lanes := make([]time.Duration, keys)
	var total time.Duration
	for i := range starts {
		lanes[i%keys] += ends[i] - starts[i]
		total += ends[i] - starts[i]
	}
	return slices.Max(ends) - slices.Min(starts), max(slices.Max(lanes), total/SleepConcurrency)
}
