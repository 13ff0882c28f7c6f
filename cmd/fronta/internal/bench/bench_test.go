package bench

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env has an embedded broker. progress is called with every progress.
func env(t *testing.T, progress func(string)) *Env {
	t.Helper()
	c, err := cluster.Embedded(&cli.Env{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Env{
		Cluster: c, Log: slog.New(slog.DiscardHandler),
		Progress: func(lines ...string) { progress(strings.Join(lines, ", ")) },
	}
}

// scenarios are all that need a broker, small.
var scenarios = map[string]func(context.Context, *Env) error{
	"noop": func(ctx context.Context, e *Env) error {
		r, err := RunNoop(ctx, e, NoopOptions{Records: 2000, Keys: 10, Partitions: 3, Runs: 2})
		if err == nil && (r.Ratio <= 0 || r.Ratio1 <= 0 || r.RatioMin > r.RatioMax || r.Met != (r.Ratio >= NoopGoal)) {
			err = errors.New("figures make no sense")
		}
		return err
	},
	"sleep": func(ctx context.Context, e *Env) error {
		r, err := RunSleep(ctx, e, SleepOptions{Runs: 2, Scale: 500})
		if err == nil && (len(r.Rows) != 5 || slices.ContainsFunc(r.Rows, func(r SleepRow) bool { return r.Ratio < 1 })) {
			err = errors.New("no schedule is better than the ideal one")
		}
		return err
	},
	"inflight": func(ctx context.Context, e *Env) error {
		r, err := RunInflight(ctx, e, 1000)
		if err == nil && r.StackPerRecord < 2048 {
			err = errors.New("a goroutine's stack takes 2 KiB at least")
		}
		return err
	},
	"keys": func(ctx context.Context, e *Env) error {
		r, err := RunKeys(ctx, e, 1000)
		if err == nil && (r.HeapStart == 0 || r.HeapEnd == 0 || r.Measured != 100) {
			err = errors.New("figures make no sense")
		}
		return err
	},
}

// One after another: memory is the process's.
func TestScenarios(t *testing.T) {
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), env(t, func(string) {})); err != nil {
				t.Error(err)
			}
		})
	}
}

// goleak sees whether anything is left.
func TestAnInterruptEndsAScenario(t *testing.T) {
	t.Parallel()
	for name, run := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := 1; ; at++ {
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				err := run(ctx, env(t, func(string) {
					if n++; n == at {
						cancel()
					}
				}))
				cancel()
				if n < at {
					return // all its steps were interrupted
				}
				if at == 1 && err == nil {
					t.Error("no error, although it was interrupted at once")
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("interrupted at step %d: %v", at, err)
				}
				if at == 8 {
					return
				}
			}
		})
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		starts, ends []time.Duration
		keys         int
		took, ideal  time.Duration
	}{
		"one lane, no gap": {[]time.Duration{5 * ms, 7 * ms}, []time.Duration{7 * ms, 10 * ms}, 1, 5 * ms, 5 * ms},
		"one lane, a gap":  {[]time.Duration{0, 7 * ms}, []time.Duration{2 * ms, 10 * ms}, 1, 10 * ms, 5 * ms},
		"the longer lane":  {[]time.Duration{0, 0, 2 * ms, 4 * ms}, []time.Duration{2 * ms, 4 * ms, 3 * ms, 8 * ms}, 2, 8 * ms, 8 * ms},
	} {
		if took, ideal := schedule(c.starts, c.ends, c.keys); took != c.took || ideal != c.ideal {
			t.Errorf("%s: %s, ideal %s; want %s, %s", name, took, ideal, c.took, c.ideal)
		}
	}
	// More lanes than may run at once: all the work over those.
	n := 3 * SleepConcurrency
	starts, ends := make([]time.Duration, n), make([]time.Duration, n)
	for i := range ends {
		starts[i] = time.Duration(i%3) * 2 * ms
		ends[i] = starts[i] + 2*ms
	}
	if took, ideal := schedule(starts, ends, n); took != 6*ms || ideal != 6*ms {
		t.Errorf("%s, ideal %s", took, ideal)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	p := pairs{bare: []float64{100, 200, 150}, fronta: []float64{90, 100, 120}}
	bare, fronta, ratio, least, most := p.figures()
	if bare != 150 || fronta != 100 || ratio != 100.0/150 || least != 0.5 || most != 0.9 {
		t.Error(bare, fronta, ratio, least, most)
	}
	for want, values := range map[float64][]float64{1: {1}, 1.5: {2, 1}, 2: {9, 1, 2}, 3: {4, 1, 2, 9}} {
		if got := median(values); got != want {
			t.Errorf("median of %v is %v", values, got)
		}
	}
}

// Settling in the core goes through: every record that is taken is finished, and as many stay unfinished.
func TestSettle(t *testing.T) {
	t.Parallel()
	s, err := RunSettle(t.Context(), &Env{Progress: func(...string) {}}, SettleOptions{Many: 3000, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []float64{s.NsAt1K, s.NsAt1M, s.Distinct1K, s.Distinct1M, s.Drained1K, s.Drained1M} {
		if ns <= 0 {
			t.Errorf("a settle takes %f ns", ns)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunSettle(ctx, &Env{Progress: func(...string) {}}, SettleOptions{Many: 3000, Rounds: 2}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	o := ProgressOptions{Seeds: 2, Rounds: 3}
	r, err := RunProgress(t.Context(), &Env{Progress: func(...string) {}}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 || len(r.Keyed) != 2 || r.KeyedUnits <= 0 || r.KeyedUnitsMet != (r.KeyedUnits < ProgressKeyedGoal) {
		t.Errorf("%+v", r)
	}
	met := r.KeyedUnitsMet
	for i, row := range r.Rows {
		met = met && row.EntropyRatioMet && row.WindowMet && row.MillisMet
		if row.EntropyRatio < 0.99 { // the sets are random: nothing makes them smaller
			t.Errorf("%+v: below the entropy", row)
		}
		if row.EncodeMillis <= 0 || row.DecodeMillis <= 0 || (i > 0 && row.Window >= r.Rows[i-1].Window) {
			t.Errorf("figures make no sense: %+v", row)
		}
	}
	for _, row := range r.Keyed {
		if row.Units <= r.KeyedUnits || row.Units > ProgressUnits {
			t.Errorf("figures make no sense: %+v", row)
		}
	}
	if r.Met != met {
		t.Errorf("met %v: %+v", r.Met, r)
	}
	for at := 1; ; at++ {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err := RunProgress(ctx, &Env{Progress: func(...string) {
			if n++; n == at {
				cancel()
			}
		}}, o)
		cancel()
		if n < at {
			return // all its steps were interrupted
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at step %d: %v", at, err)
		}
		if at == 1 && err == nil {
			t.Error("no error, although it was interrupted at once")
		}
		if at == 4 {
			return
		}
	}
}

// A set is the same however far it has been asked for before, and begins with a head.
func TestHeadSets(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.01, 0.5} {
		grown, fresh := newHeadSet(share, 3), newHeadSet(share, 3)
		for _, n := range []int{7, 1, 5000, 300} {
			grown.progress(n)
		}
		a, b := grown.progress(2000), fresh.progress(2000)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%v: sets of the same seed differ", share)
		}
		heads, last := 0, int64(0)
		for i, r := range a.Segments[0].Heads {
			if r.From >= r.To || r.To > a.Horizon() || (i == 0 && r.From != a.Offset) || (i > 0 && r.From <= last) {
				t.Fatalf("%v: range %d of %v", share, i, a.Segments[0].Heads)
			}
			heads, last = heads+int(r.To-r.From), r.To
		}
		if want := share * 2000; float64(heads) < want/2 || float64(heads) > 2*want {
			t.Errorf("%v: %d heads", share, heads)
		}
	}
	p := stuckKeys(100, 1)
	heads := 0
	for _, r := range p.Segments[0].Heads {
		heads += int(r.To - r.From)
	}
	if heads != 100 || p.Offset != p.Segments[0].Heads[0].From || p.Horizon() != firstOffset+keyedRecords {
		t.Errorf("%d heads from %d to %d", heads, p.Offset, p.Horizon())
	}
}

func TestRecordsHaveTheirSize(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 9_999, 123_456_789} {
		if r := record(n, n); len(r.Key)+len(r.Value) != RecordBytes {
			t.Errorf("record %d has %d + %d bytes", n, len(r.Key), len(r.Value))
		}
	}
}
