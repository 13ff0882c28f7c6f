package bench

// keys: what is left of a key when its record is done. Ten million keys, one record each; the heap is measured at rest,
// when the first tenth is done and when all are. The broker is a process of its own, since it keeps the records.

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

// KeysGoal is how many bytes of heap a key may leave behind. A consumer that keeps nothing of a key leaves none; the
// heap's usual ups and downs are far below one byte for each of millions of keys.
const KeysGoal = 1.0

// Keys is the result.
type Keys struct {
	Scenario string `json:"scenario"`
	Machine
	Keys            int     `json:"keys"`
	Bytes           int     `json:"record_bytes"`
	Measured        int     `json:"keys_at_start"` // how many were done when the start was measured
	HeapStart       uint64  `json:"heap_start"`    // bytes of live objects
	HeapEnd         uint64  `json:"heap_end"`
	BytesPerKey     float64 `json:"bytes_per_key"` // what each key between has left
	GoroutinesStart int     `json:"goroutines_start"`
	GoroutinesEnd   int     `json:"goroutines_end"`
	Seconds         float64 `json:"seconds"` // producing included
	Goal            float64 `json:"goal"`    // for bytes_per_key
	Met             bool    `json:"met"`
}

// WriteText implements out.Value.
func (r *Keys) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s distinct keys, one record of %d B each, produced and consumed in %.0f s\n", out.Count(r.Keys), r.Bytes, r.Seconds)
	r.writeText(w)
	table(w,
		[]string{"keys done", "heap", "goroutines"},
		[]string{out.Count(r.Measured), out.Count(r.HeapStart), out.Count(r.GoroutinesStart)},
		[]string{out.Count(r.Keys), out.Count(r.HeapEnd), out.Count(r.GoroutinesEnd)},
	)
	fmt.Fprintf(w, "%.3f bytes a key; goal: below %g (flat): %s\n", r.BytesPerKey, r.Goal, verdict(r.Met))
}

// RunKeys measures with this many keys.
func RunKeys(ctx context.Context, e *Env, keys int) (r *Keys, err error) {
	topic, err := e.Cluster.CreateTopic(ctx, "bench-keys", 4)
	if err != nil {
		return nil, err
	}
	client, err := e.producer(topic)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	begin := time.Now()
	c, err := e.consume(ctx, topic, fronta.Config{}, func(context.Context, *fronta.Record) error { return nil })
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopped := c.stop(); err == nil {
			err = stopped
		}
	}()
	r = &Keys{Scenario: "keys", Machine: e.machine(), Keys: keys, Bytes: RecordBytes, Measured: max(keys/10, 1), Goal: KeysGoal}
	step := func(from, to int) (heap uint64, goroutines int, err error) {
		err = produce(ctx, client, from, to, func(i int) int { return i }, func(i int) {
			e.Progress(fmt.Sprintf("produced %s of %s keys", out.Count(i), out.Count(keys)), "handled "+out.Count(c.consumer.Stats().Accepted))
		})
		if err != nil {
			return 0, 0, err
		}
		if _, err = c.accepted(ctx, to); err != nil {
			return 0, 0, err
		}
		rest()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine(), nil
	}
	if r.HeapStart, r.GoroutinesStart, err = step(0, r.Measured); err != nil {
		return nil, err
	}
	if r.HeapEnd, r.GoroutinesEnd, err = step(r.Measured, keys); err != nil {
		return nil, err
	}
	r.Seconds = time.Since(begin).Seconds()
	r.BytesPerKey = (float64(r.HeapEnd) - float64(r.HeapStart)) / float64(max(keys-r.Measured, 1))
	r.Met = r.BytesPerKey < r.Goal
	return r, c.exactly(keys)
}
