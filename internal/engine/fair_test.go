package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// H-061, H-062: records without a key run side by side and never fail for it;
// equal keys share a lane, whatever memory holds them; the empty key is a key.
func TestKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 1<<20)
		keys := [][]byte{nil, {}, {0}, []byte("a"), []byte("aa")[:1], {0xff, 0xfe}, []byte(long + "1"), []byte(long + "2")}
		const n = 2000
		var mu sync.Mutex
		busy := make(map[string]int64)
		var alone, mostAlone int
		r := newRig(t, func(c *Config) {
			c.Concurrency = 64
			c.Handle = func(_ context.Context, d *Delivery) error {
				key := string(d.Key)
				mu.Lock()
				if d.Key == nil {
					alone++
					mostAlone = max(mostAlone, alone)
				} else if last, ok := busy[key]; ok && (last < 0 || last > d.Offset) {
					t.Errorf("key %.10q: offset %d after %d", key, d.Offset, last)
				} else {
					busy[key] = -1
				}
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if d.Key == nil {
					alone--
				} else {
					busy[key] = d.Offset
				}
				return nil
			}
		})
		r.Add(p0, 1, 0)
		var rs []*kgo.Record
		for o := range int64(n) {
			x := rec(p0, o, "")
			x.Key = keys[o%int64(len(keys))]
			rs = append(rs, x)
		}
		r.Offer(p0, rs, n)
		r.pass(time.Hour)
		r.at(p0, n)
		if mostAlone < 32 {
			t.Errorf("at most %d records without a key ran at once", mostAlone)
		}
		if len(busy) != 6 {
			t.Errorf("%d lanes with a key, want 6", len(busy))
		}
		r.close()
	})
}

// H-063: quick handlers while pauses flip at any instant: offsets within a key
// rise, whatever was cut.
func TestOrderUnderFlippingPauses(t *testing.T) {
	t.Parallel()
	n := int64(400_000)
	if testing.Short() {
		n = 20_000
	}
	var last [128]atomic.Int64
	cfg := config()
	cfg.Concurrency = 8
	cfg.Handle = func(_ context.Context, d *Delivery) error {
		if was := last[d.Key[0]].Swap(d.Offset); was >= d.Offset {
			t.Errorf("offset %d after %d", d.Offset, was)
		}
		return nil
	}
	e := New(cfg)
	defer e.Close()
	e.Add(p0, 1, 0)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		flip := time.NewTicker(100 * time.Microsecond)
		defer flip.Stop()
		for {
			select {
			case <-flip.C:
				e.Pause(p0)
				e.Resume(p0)
			case <-stop:
				return
			}
		}
	})
	for i := range last {
		last[i].Store(-1)
	}
	for o := int64(0); o < n; o += 100 {
		rs := make([]*kgo.Record, 100)
		for i := range rs {
			rs[i] = rec(p0, o+int64(i), string(rune('0'+i%50)))
		}
		e.Offer(p0, rs, n)
		for e.Stats().Staged > 20_000 {
			<-e.Room() // signalled by every Pause
		}
	}
	for e.Positions(p0)[0].Offset < n {
		select {
		case <-e.Room():
		case <-time.After(20 * time.Second):
			t.Fatalf("stands at %+v", e.Stats())
		}
	}
	close(stop)
	wg.Wait()
}

// H-064: a lane is of one topic and partition.
func TestLaneIsOfItsPartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		tps := []TopicPartition{{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}
		answer := make(chan error)
		r.on(0, func(_ context.Context, d *Delivery) error {
			if d.Topic == "a" && d.Record.Partition == 1 {
				return r.until(answer)
			}
			return nil
		})
		for _, tp := range tps {
			r.Add(tp, 1, 0)
			r.Offer(tp, []*kgo.Record{rec(tp, 0, "k"), rec(tp, 1, "k")}, 2)
		}
		r.wait()
		for _, tp := range tps {
			want := int64(2)
			if tp == tps[1] {
				want = 0
			}
			r.at(tp, want)
		}
		answer <- nil
		r.wait()
		r.at(tps[1], 2)
		r.close()
	})
}

// H-065: one key makes up 90 % of traffic at 50 ms a record, 1,000 keys share
// the rest. They wait a small multiple of the handler's time, and no slot is
// idle while their work is ready.
func TestHotLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const work = 50 * time.Millisecond
		var mu sync.Mutex
		var waits []time.Duration
		offered := make(map[int64]time.Time)
		r := newRig(t, func(c *Config) {
			c.Concurrency, c.MaxInFlight = 8, 50_000
			c.Handle = func(_ context.Context, d *Delivery) error {
				if len(d.Key) > 3 {
					mu.Lock()
					waits = append(waits, time.Since(offered[d.Offset]))
					mu.Unlock()
				}
				time.Sleep(work)
				return nil
			}
		})
		r.Add(p0, 1, 0)
		o := int64(0)
		for range 200 {
			var rs []*kgo.Record
			mu.Lock()
			for range 50 {
				key := "hot"
				if o%10 == 9 {
					key = fmt.Sprint("key ", o/10%1000)
				}
				rs = append(rs, rec(p0, o, key))
				offered[o] = time.Now()
				o++
			}
			mu.Unlock()
			r.Offer(p0, rs, o)
			r.pass(work)
		}
		r.pass(time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(waits)
		if len(waits) != 1000 {
			t.Errorf("%d of 1,000 records of other keys ran", len(waits))
		}
		if p99 := waits[len(waits)*99/100]; p99 > 3*work {
			t.Errorf("at p99 they waited %v", p99)
		}
		r.Lose([]TopicPartition{p0})
	})
}

// A partition with a huge backlog leaves others their turn: each new record of
// another one starts within a few of its records, in lanes and in runs.
func TestBacklogLeavesOthersTheirTurn(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var handled atomic.Int64
			var worst atomic.Int64
			var offeredAt atomic.Int64
			r := newRig(t, func(c *Config) {
				c.Concurrency = 1
				c.Handle = func(_ context.Context, d *Delivery) error {
					if d.Record.Partition == 1 {
						wait := handled.Load() - offeredAt.Load()
						worst.Store(max(worst.Load(), wait))
					}
					if n := handled.Add(1); n%50 == 0 {
						time.Sleep(time.Microsecond)
					}
					return nil
				}
			})
			r.Add(p0, 1, 0)
			r.Add(p1, 1, 0)
			r.quick(quick)
			r.Offer(p0, keyless(p0, 0, 50_000), 50_000)
			for o := range int64(50) {
				offeredAt.Store(handled.Load())
				r.Offer(p1, keyless(p1, o, 1), o+1)
				time.Sleep(10 * time.Microsecond)
			}
			r.pass(time.Second)
			r.at(p0, 50_000)
			r.at(p1, 50)
			if n := worst.Load(); n > 2*batchTasks {
				t.Errorf("a record waited for %d of the other partition's", n)
			}
			r.close()
		})
	}
}

// H-100, H-096: P0's handlers all block and use up P0's share of the limits.
// P1 flows; P0 is held only while P1 needs reading. The same bound holds after
// P0 went and came back.
func TestBlockedPartitionLeavesOthersFlowing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		size := int64(sizeOf(rec(p0, 0, "")))
		r := newRig(t, func(c *Config) { c.Concurrency, c.MaxInFlight, c.MaxBytes = 8, 40, 100*size })
		stuck := make(chan error)
		for o := range int64(200) {
			r.on(o, func(ctx context.Context, d *Delivery) error {
				if d.Record.Partition == 0 {
					select {
					case err := <-stuck:
						return err
					case <-r.over:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				return nil
			})
		}
		one := func(tp TopicPartition, n int64) (rs []*kgo.Record) {
			for o := range n {
				rs = append(rs, rec(tp, o, "one lane"))
			}
			return rs
		}
		for round := range int64(3) {
			r.Add(p0, round, 0)
			r.Add(p1, round, 0)
			r.Offer(p0, one(p0, 60), 200)
			r.wait()
			if s := r.Stats(); s.Unfinished != 20 || s.Running != 1 {
				t.Fatalf("round %d: %d unfinished, %d running, want P0's share, 20", round, s.Unfinished, s.Running)
			}
			got := r.Reading(func() {})
			if got.Max == 0 || !slices.Equal(got.Hold, []TopicPartition{p0}) {
				t.Errorf("round %d: P1 needs reading and P0 is full: %+v", round, got)
			}
			r.Read()
			for o := int64(0); o < 100; o += 10 {
				r.Offer(p1, keyless(p1, o, 10), 200)
				r.wait()
				r.at(p1, o+10)
			}
			// P1 has its share too and cannot work on it: nobody needs
			// reading, so what the client has fetched ahead is kept.
			r.Pause(p1)
			if got := r.Reading(func() {}); got.Max != 0 || !slices.Equal(got.Hold, []TopicPartition{p1}) || !slices.Equal(got.Free, []TopicPartition(nil)) {
				t.Errorf("round %d: nobody needs reading: %+v", round, got)
			}
			r.Resume(p1)
			r.at(p0, 0)
			r.Reading(func() {}) // P1 needs reading: P0 is held
			r.Revoke(ended(), []TopicPartition{p0, p1})
			r.wait()
		}
		r.close()
	})
}

// All are full: nobody is read, and nobody is held for that.
func TestAllFullHoldsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		size := int64(sizeOf(rec(p0, 0, "")))
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.MaxBytes = 2, 100*size })
		answer := make(chan error)
		r.on(0, func(context.Context, *Delivery) error { return r.until(answer) })
		for _, tp := range []TopicPartition{p0, p1} {
			r.Add(tp, 1, 0)
			r.Offer(tp, keyless(tp, 0, 60), 60)
		}
		r.wait()
		if got := r.Reading(func() {}); got.Max != 0 || len(got.Hold) > 0 {
			t.Errorf("%+v", got)
		}
		close(answer)
		r.wait()
		if got := r.Reading(func() {}); got.Max == 0 || len(got.Hold) > 0 {
			t.Errorf("when all is handled: %+v", got)
		}
		r.close()
	})
}

// MaxInFlight is one record, and one partition has enough to use it up for
// ever: another one has its turn all the same.
func TestCrowdedPartitionHasItsTurn(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.MaxInFlight, c.Concurrency = 1, 1 })
			for o := range int64(1000) {
				r.on(o, func(context.Context, *Delivery) error {
					if !quick {
						time.Sleep(time.Millisecond)
					}
					return nil
				})
			}
			answer := r.block(0)
			r.Add(p0, 1, 0)
			r.Add(p1, 1, 5000)
			r.quick(quick)
			r.Offer(p0, keyless(p0, 0, 1000), 1000)
			r.wait()
			r.Offer(p1, keyless(p1, 5000, 1), 5001)
			r.wait()
			answer <- nil
			r.pass(time.Minute)
			if i := slices.Index(r.startedNow(), 5000); i < 0 || i > 5 && !quick || i > 2*batchTasks {
				t.Errorf("quick %v: it ran after %d of the others", quick, i)
			}
			r.close()
		})
	}
}

// A partition that was held is read again once it is down to three quarters of
// its share, and the driver is told.
func TestHeldIsFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		size := int64(sizeOf(rec(p0, 0, "")))
		r := newRig(t, func(c *Config) { c.MaxBytes = 200 * size })
		r.Add(p0, 1, 0)
		r.Add(p1, 1, 0)
		answer := make(chan error)
		for o := range int64(100) {
			r.on(o, func(context.Context, *Delivery) error { return r.until(answer) })
		}
		var rs []*kgo.Record
		for o := range int64(100) {
			rs = append(rs, rec(p0, o, "k"))
		}
		r.Offer(p0, rs, 100)
		r.wait()
		if got := r.Reading(func() {}); !slices.Equal(got.Hold, []TopicPartition{p0}) {
			t.Fatalf("%+v", got)
		}
		drainRoom(r)
		interrupted := 0
		for n := 0; ; n++ {
			if got := r.Reading(func() { interrupted++ }); len(got.Free) > 0 {
				if n < 25 || n > 27 {
					t.Errorf("freed after %d of 100 records", n)
				}
				if interrupted == 0 || len(r.Room()) == 0 {
					t.Error("the driver was not told")
				}
				break
			}
			if n > 50 {
				t.Fatal("it is not read again")
			}
			answer <- nil
			r.wait()
		}
		close(answer)
		r.wait()
		r.close()
	})
}

// H-108: records come faster than they are handled. What is held stays at its
// bound, reading slows, and the rest stays in the log.
func TestReadingFollowsHandling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		size := int64(sizeOf(rec(p0, 0, "")))
		r := newRig(t, func(c *Config) {
			c.Concurrency, c.MaxInFlight, c.MaxBytes = 10, 50, 500*size
			c.Handle = func(context.Context, *Delivery) error { time.Sleep(10 * time.Millisecond); return nil }
		})
		r.Add(p0, 1, 0)
		read, began := int64(0), time.Now()
		for time.Since(began) < time.Minute {
			got := r.Reading(func() {})
			if got.Max == 0 {
				select {
				case <-r.Room():
				case <-time.After(time.Second):
					t.Fatal("reading stands still")
				}
				continue
			}
			n := int64(min(got.Max, 500))
			r.Offer(p0, keyless(p0, read, n), 1<<40)
			read += n
			r.Read()
			if s := r.Stats(); s.Bytes > 1100*size || s.Unfinished > 50 || s.Running > 10 {
				t.Fatalf("held: %d bytes, %d unfinished, %d running", s.Bytes, s.Unfinished, s.Running)
			}
			synctest.Wait()
		}
		// 10 at once, 10 ms each, for a minute.
		if n := r.Stats().Accepted; n < 59_000 {
			t.Errorf("%d records were handled, 60,000 were possible", n)
		}
		r.Halt()
		r.pass(time.Second)
		r.close()
	})
}

// H-093: the limit is 1,000; records are settled in any order, and 100,000
// come. The settled ones that wait for the frontier take no place.
func TestSettledRecordsTakeNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := int64(100_000)
		if testing.Short() {
			n = 10_000
		}
		r := newRig(t, nil)
		answer := r.block(0)
		r.Add(p0, 1, 0)
		r.Add(p1, 1, 0)
		for o := int64(0); o < n; o += 1000 {
			if o == 5000 {
				r.Revoke(ended(), []TopicPartition{p1})
			}
			r.Offer(p0, keyless(p0, o, 1000), n)
			r.pass(10 * time.Millisecond)
		}
		if s := r.Stats(); s.Accepted != n-1 || s.Unfinished != 1 {
			t.Errorf("%d accepted behind a head that is stuck, %d unfinished", s.Accepted, s.Unfinished)
		}
		r.at(p0, 0)
		answer <- nil
		r.wait()
		r.at(p0, n)
		r.close()
	})
}
