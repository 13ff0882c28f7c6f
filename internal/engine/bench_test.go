package engine

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// benchRecords are n records over that many keys, none if 0.
func benchRecords(tp TopicPartition, n, keys int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = rec(tp, int64(i), "")
		if keys > 0 && i > 0 { // the first one may be made to get stuck
			rs[i].Key = binary.BigEndian.AppendUint64(nil, uint64(i%keys))
		}
	}
	return rs
}

// bench offers b.N records, 1,000 at a time, and waits until the handlers are
// through with them. ns/op is the time from Offer to settled, allocs/op what a
// record costs besides the client's own.
func bench(b *testing.B, parts, keys int, change func(*Config)) {
	var left atomic.Int64
	done := make(chan struct{})
	cfg := config()
	cfg.Concurrency, cfg.MaxInFlight = 256, 10_000
	cfg.Handle = func(context.Context, *Delivery) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	}
	if change != nil {
		change(&cfg)
	}
	e := New(cfg)
	defer e.Close()
	n := b.N/parts + 1
	records := make([][]*kgo.Record, parts)
	for p := range parts {
		tp := TopicPartition{"bench", int32(p)}
		records[p] = benchRecords(tp, n, keys)
		e.Add(tp, 1, 0)
	}
	left.Store(int64(n * parts))
	b.ReportAllocs()
	b.ResetTimer()
	for o := 0; o < n; o += 1000 {
		for p := range parts {
			e.Offer(TopicPartition{"bench", int32(p)}, records[p][o:min(o+1000, n)], int64(n))
		}
	}
	<-done
	b.StopTimer()
}

// Handlers that do nothing: runs, once the engine has seen that.
func BenchmarkRuns(b *testing.B) {
	for _, c := range []struct {
		name        string
		parts, keys int
	}{{"1 partition", 1, 10_000}, {"12 partitions", 12, 10_000}} {
		b.Run(c.name, func(b *testing.B) { bench(b, c.parts, c.keys, nil) })
	}
}

// The same by way of lanes: one record that is stuck keeps runs away.
func BenchmarkLanes(b *testing.B) {
	for _, c := range []struct {
		name string
		keys int
	}{{"10,000 keys", 10_000}, {"no keys", 0}, {"10 keys", 10}} {
		b.Run(c.name, func(b *testing.B) {
			bench(b, 1, c.keys, func(cfg *Config) {
				count := cfg.Handle
				cfg.Backoff = func(*Delivery, error) time.Duration { return time.Hour }
				cfg.Handle = func(ctx context.Context, d *Delivery) error {
					err := count(ctx, d)
					if d.Offset == 0 {
						return errBad
					}
					return err
				}
			})
		})
	}
}

// Every record fails once and is tried again at once.
func BenchmarkFailing(b *testing.B) {
	bench(b, 1, 0, func(cfg *Config) {
		count := cfg.Handle
		cfg.Backoff = func(*Delivery, error) time.Duration { return 0 }
		cfg.Handle = func(ctx context.Context, d *Delivery) error {
			if d.DeliveryCount == 1 {
				return errBad
			}
			return count(ctx, d)
		}
	})
}

// One in a hundred fails once.
func BenchmarkSometimesFailing(b *testing.B) {
	bench(b, 1, 10_000, func(cfg *Config) {
		count := cfg.Handle
		cfg.Backoff = func(*Delivery, error) time.Duration { return 0 }
		cfg.Handle = func(ctx context.Context, d *Delivery) error {
			if d.DeliveryCount == 1 && d.Offset%100 == 0 {
				return errBad
			}
			return count(ctx, d)
		}
	})
}

// Pulled one by one.
func BenchmarkPull(b *testing.B) {
	cfg := config()
	cfg.Handle, cfg.Concurrency = nil, 256
	e := New(cfg)
	defer e.Close()
	rs := benchRecords(p0, b.N, 10_000)
	e.Add(p0, 1, 0)
	b.ReportAllocs()
	b.ResetTimer()
	e.Offer(p0, rs, int64(b.N))
	for range b.N {
		p, err := e.Receive(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Settle(p, Outcome{}); err != nil {
			b.Fatal(err)
		}
	}
}
