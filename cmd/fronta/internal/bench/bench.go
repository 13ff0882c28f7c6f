// Package bench has the benchmarks of fronta, one scenario a file.
//
// What must stay true: a figure is measured, never assumed; both sides of a ratio are measured in the same process, with the same client options,
// by turns; whatever a scenario claims to have handled was counted by the consumer. Goals are printed beside the figures
// and change nothing else.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
)

// RecordBytes is the size of every benchmark's records, key and value together.
const RecordBytes = 100

// Env is what scenarios work with.
type Env struct {
	Cluster  *cluster.Cluster      // nil for scenarios without one
	Progress func(lines ...string) // how far it is
	Log      *slog.Logger          // for the consumers under test
	Profile  string                // a file for a CPU profile of fronta's last run; empty: none
}

// Machine is where the figures come from; part of every result.
type Machine struct {
	Cluster string `json:"cluster,omitempty"`
	Go      string `json:"go"`
	CPUs    int    `json:"cpus"` // that the process may use at once
}

func (e *Env) machine() Machine {
	m := Machine{Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0)}
	if e.Cluster != nil {
		m.Cluster = e.Cluster.String()
	}
	return m
}

func (m Machine) writeText(w io.Writer) {
	if m.Cluster != "" {
		fmt.Fprintf(w, "cluster: %s; ", m.Cluster)
	}
	fmt.Fprintf(w, "%s, %d CPUs\n", m.Go, m.CPUs)
}

// profile starts the CPU profile, if one is wanted; the answer ends it.
func (e *Env) profile() (end func() error, err error) {
	if e.Profile == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(e.Profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// table writes rows of cells in columns.
func table(w io.Writer, rows ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(t, "%s\t", cell)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
}

// verdict is how a goal is printed.
func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}

// values are bytes to cut values from, which no compression makes smaller.
var values = func() []byte {
	random := rand.New(rand.NewPCG(4, 5))
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}()

// record is the record of number i with key number k.
func record(i, k int) *kgo.Record {
	key := strconv.AppendInt(make([]byte, 0, 16), int64(k), 10)
	at := i * 31 % (len(values) - RecordBytes)
	return &kgo.Record{Key: key, Value: values[at : at+RecordBytes-len(key)]}
}

// producer makes a client that writes to one topic: by key, without compression, in large batches.
func (e *Env) producer(topic string) (*kgo.Client, error) {
	return kgo.NewClient(append(e.Cluster.Opts(),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(50_000),
	)...)
}

// produce writes the records from number begin to end, whose keys key tells, and waits until they are written.
func produce(ctx context.Context, client *kgo.Client, begin, end int, key func(i int) int, progress func(i int)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			cancel(err)
		}
	}
	for i := begin; i < end; i++ {
		if i%4096 == 0 {
			if ctx.Err() != nil {
				break
			}
			progress(i)
		}
		client.Produce(ctx, record(i, key(i)), promise)
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("produce: %w", context.Cause(ctx))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("produce: %w", context.Cause(ctx))
	}
	return nil
}

// fill makes a topic with records.
func (e *Env) fill(ctx context.Context, purpose string, partitions, records int, key func(i int) int) (topic string, err error) {
	if topic, err = e.Cluster.CreateTopic(ctx, "bench-"+purpose, partitions); err != nil {
		return "", err
	}
	client, err := e.producer(topic)
	if err != nil {
		return "", err
	}
	defer client.Close()
	return topic, produce(ctx, client, 0, records, key, func(i int) {
		e.Progress(fmt.Sprintf("producing %s of %s records", out.Count(i), out.Count(records)))
	})
}

// consumption is a consumer at work.
type consumption struct {
	consumer *fronta.Consumer
	cancel   context.CancelFunc
	done     chan struct{}
	err      error // once done
}

// consume runs a consumer of topic, in a group that nobody has used. What cfg leaves open is fronta's default.
func (e *Env) consume(ctx context.Context, topic string, cfg fronta.Config, handler fronta.HandlerFunc) (*consumption, error) {
	cfg.Client = append(e.Cluster.Opts(), cfg.Client...)
	cfg.Group = e.Cluster.Group("bench")
	cfg.Topics = []string{topic}
	cfg.Logger = e.Log
	consumer, err := fronta.NewConsumer(cfg)
	if err != nil {
		return nil, err
	}
	// Not below ctx: an interrupted benchmark still stops in good order, in stop.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &consumption{consumer: consumer, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = consumer.Run(run, handler)
	}()
	return c, nil
}

// pollEvery is how exactly the end of a consumption is known.
const pollEvery = time.Millisecond

// accepted waits until n records have been accepted and answers when that was seen.
func (c *consumption) accepted(ctx context.Context, n int) (time.Time, error) {
	return c.until(ctx, func() bool { return c.consumer.Stats().Accepted >= int64(n) })
}

// until waits until the condition holds.
func (c *consumption) until(ctx context.Context, holds func() bool) (time.Time, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-c.done:
			return time.Time{}, fmt.Errorf("the consumer stopped early: %w", errors.Join(c.err, ctx.Err()))
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		}
	}
	return time.Now(), nil
}

// stop stops the consumer in good order.
func (c *consumption) stop() error {
	c.cancel()
	<-c.done
	return c.err
}

// exactly checks that the consumer has accepted n records and not one more.
func (c *consumption) exactly(n int) error {
	if got := c.consumer.Stats().Accepted; got != int64(n) {
		return fmt.Errorf("%d records were accepted instead of %d", got, n)
	}
	return nil
}

// median of at least one value; values is not changed.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// rest lets what the last run has left behind be collected, so that the next one does not pay for it.
func rest() {
	runtime.GC()
	runtime.GC() // what was in pools is free after the second
}
