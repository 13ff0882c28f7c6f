package bench

// inflight: what a record costs while its handler waits: the record, its place in the queue, its goroutine and stack. The
// broker is a process of its own, so that this process's memory is the consumer's.

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

// InflightGoal is how many bytes a record may take.
const InflightGoal = 8192

// Inflight is the result.
type Inflight struct {
	Scenario string `json:"scenario"`
	Machine
	Records        int     `json:"records"` // whose handlers wait at the same time
	Bytes          int     `json:"record_bytes"`
	BytesPerRecord float64 `json:"bytes_per_record"` // heap and stacks
	HeapPerRecord  float64 `json:"heap_per_record"`
	StackPerRecord float64 `json:"stack_per_record"`
	Goal           float64 `json:"goal"`
	Met            bool    `json:"met"`
}

// WriteText implements out.Value.
func (r *Inflight) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s handlers wait at once, each with a record of %d B\n", out.Count(r.Records), r.Bytes)
	r.writeText(w)
	table(w,
		[]string{"bytes/record", "of it heap", "of it stacks"},
		[]string{out.Count(int(r.BytesPerRecord)), out.Count(int(r.HeapPerRecord)), out.Count(int(r.StackPerRecord))},
	)
	fmt.Fprintf(w, "goal: at most %s: %s\n", out.Count(int(r.Goal)), verdict(r.Met))
}

// memory is what the process uses when garbage is collected: pages with live objects, and stacks.
func memory() (heap, stacks float64) {
	rest()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse), float64(m.StackInuse)
}

// RunInflight measures with this many records.
func RunInflight(ctx context.Context, e *Env, records int) (r *Inflight, err error) {
	topic, err := e.fill(ctx, "inflight", 4, records, func(i int) int { return i })
	if err != nil {
		return nil, err
	}
	heap, stacks := memory()
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	var waiting atomic.Int64
	c, err := e.consume(ctx, topic, fronta.Config{
		Concurrency:      records,
		MaxInFlight:      4 * records, // a partition has a quarter of it at most, and keys fall unevenly
		MaxBufferedBytes: 4 << 30,
	}, func(context.Context, *fronta.Record) error {
		waiting.Add(1)
		<-release
		return nil
	})
	if err != nil {
		return nil, err
	}
	r = &Inflight{Scenario: "inflight", Machine: e.machine(), Records: records, Bytes: RecordBytes, Goal: InflightGoal}
	_, err = c.until(ctx, func() bool {
		e.Progress(fmt.Sprintf("%s of %s handlers wait", out.Count(waiting.Load()), out.Count(records)))
		return int(waiting.Load()) == records
	})
	if err == nil {
		heapNow, stacksNow := memory()
		r.HeapPerRecord = (heapNow - heap) / float64(records)
		r.StackPerRecord = (stacksNow - stacks) / float64(records)
		r.BytesPerRecord = r.HeapPerRecord + r.StackPerRecord
		r.Met = r.BytesPerRecord <= r.Goal
		free()
		_, err = c.accepted(ctx, records)
	}
	free()
	if stopped := c.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		err = c.exactly(records)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}
