package engine

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// H-104: 10,000 rounds of assign and revoke, with a commit each.
func TestOwnershipsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("heap measurements")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Handle = func(context.Context, *Delivery) error { return nil } })
		round := func(i int64) {
			r.Add(p0, i, 0)
			r.Offer(p0, keyless(p0, 0, 20), 20)
			synctest.Wait()
			if ps := r.Revoke(context.Background(), []TopicPartition{p0}); ps[0].Offset != 20 {
				t.Fatalf("round %d: %+v", i, ps)
			}
		}
		for i := range int64(1000) {
			round(i)
		}
		before := heap()
		for i := range int64(10_000) {
			round(i)
		}
		if after := heap(); after > before+1<<19 {
			t.Errorf("the heap grew from %d to %d", before, after)
		}
		r.close()
	})
}

// H-106: keys that occur once leave nothing behind, nor do a few large ones;
// workers that were many for a moment end.
func TestKeysLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("heap measurements")
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) {
			c.Concurrency = 1000
			c.Handle = func(_ context.Context, d *Delivery) error {
				if d.Offset%1000 < 3 {
					time.Sleep(time.Millisecond)
				}
				return nil
			}
		})
		r.Add(p0, 1, 0)
		r.wait()
		before := heap()
		o := int64(0)
		for range 500 {
			rs := make([]*kgo.Record, 1000)
			for i := range rs {
				rs[i] = rec(p0, o, "")
				rs[i].Key = binary.BigEndian.AppendUint64(make([]byte, 56), uint64(o))
				o++
			}
			r.Offer(p0, rs, o)
			r.pass(10 * time.Millisecond)
		}
		for range 5 {
			x := rec(p0, o, "")
			x.Key = make([]byte, 1<<20)
			o++
			r.Offer(p0, []*kgo.Record{x}, o)
			r.pass(10 * time.Millisecond)
		}
		r.at(p0, o)
		r.Housekeep()
		r.Housekeep()
		if after := heap(); after > before+4<<20 { // a worker that waits may still refer to the last large record
			t.Errorf("the heap grew from %d to %d", before, after)
		}
		if n, keep := r.Stats().Workers, r.workers.keepIdle(); n > keep {
			t.Errorf("%d workers are left, at most %d should be", n, keep)
		}
		r.close()
	})
}

// settleAll is the time that one record takes to be settled in random order
// with n outstanding, in pulled deliveries.
func settleAll(t testing.TB, n int) time.Duration {
	cfg := config()
	cfg.Concurrency, cfg.MaxInFlight, cfg.MaxBytes = n, n, 1<<40
	e := New(cfg)
	defer e.Close()
	e.Add(p0, 1, 0)
	e.Offer(p0, keyless(p0, 0, int64(n)), int64(n))
	out := make([]Pulled, n)
	for i := range out {
		p, err := e.Receive(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		out[i] = p
	}
	rand.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	began := time.Now()
	for _, p := range out {
		if err := e.Settle(p, Outcome{}); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	if at := e.Positions(p0)[0].Offset; at != int64(n) {
		t.Fatalf("position %d", at)
	}
	return took / time.Duration(n)
}

// H-103: settling costs the same with 1,000 and with 100,000 outstanding. The
// bound is wide, since memory that the caches don't hold costs more, most of
// all on a busy machine: this is to find a scan, which would cost a thousand
// times more.
func TestSettleCostIsFlat(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	few, many := time.Hour, time.Hour
	for range 5 {
		few, many = min(few, settleAll(t, 1000)), min(many, settleAll(t, 100_000))
	}
	t.Logf("%v a record with 1,000 outstanding, %v with 100,000", few, many)
	if many > 50*few {
		t.Errorf("%v a record with 1,000 outstanding, %v with 100,000", few, many)
	}
}

// H-145: many lanes are stuck; the cost of one more record does not grow with
// their number.
func TestStuckLanesCostNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
	cost := func(lanes int) time.Duration {
		cfg := config()
		cfg.Concurrency, cfg.MaxInFlight, cfg.MaxBytes = 4, 1<<30, 1<<40
		cfg.Handle = func(_ context.Context, d *Delivery) error {
			if d.Timestamp.IsZero() {
				return failFor(time.Hour)
			}
			return nil
		}
		e := New(cfg)
		defer e.Close()
		e.Add(p0, 1, 0)
		o := int64(0)
		offer := func(n int, stuck bool) {
			rs := make([]*kgo.Record, n)
			for i := range rs {
				rs[i] = rec(p0, o, "")
				rs[i].Key = binary.BigEndian.AppendUint64(nil, uint64(o))
				if !stuck {
					rs[i].Timestamp = time.Unix(1, 0)
				}
				o++
			}
			e.Offer(p0, rs, o)
		}
		until := func(done func(Counters) bool) {
			for {
				e.mu.Lock()
				c := e.counters
				e.mu.Unlock()
				if done(c) {
					return
				}
				time.Sleep(100 * time.Microsecond)
			}
		}
		offer(lanes, true)
		until(func(c Counters) bool { return c.Retried == int64(lanes) })
		began := time.Now()
		const n = 50_000
		offer(n, false)
		until(func(c Counters) bool { return c.Accepted == n })
		return time.Since(began) / n
	}
	few, many := time.Hour, time.Hour
	for range 3 {
		few, many = min(few, cost(100)), min(many, cost(100_000))
	}
	t.Logf("%v a record beside 100 stuck lanes, %v beside 100,000", few, many)
	if many > 50*few {
		t.Errorf("%v a record beside 100 stuck lanes, %v beside 100,000", few, many)
	}
}
