package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A worker has taken records a, b, c, d and its handler for c takes an hour. d
// is taken back, and a and b are finished: neither the frontier nor their lanes
// wait for c (P-4).
func TestBatchWithOneSlowRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxDeliveries, c.Discard = 1, true })
		r.Add(p0, 1, 0)
		// One record that is unfinished keeps the partition from a run.
		r.on(0, func(context.Context, *Delivery) error { return snooze(100 * time.Hour) })
		r.Offer(p0, keyless(p0, 0, 1), 1)
		r.wait()
		answer := r.block(4)
		r.on(2, func(context.Context, *Delivery) error { return failFor(time.Second) })
		r.Pause(p0)
		r.quick(true)
		r.Offer(p0, []*kgo.Record{
			rec(p0, 1, "a"), rec(p0, 2, "b"), rec(p0, 3, "x"), rec(p0, 4, "c"), rec(p0, 5, "d"),
			rec(p0, 6, "a"), rec(p0, 7, "b"), rec(p0, 8, "c"), rec(p0, 9, "d"),
		}, 10)
		r.Resume(p0)
		r.pass(10 * time.Millisecond)
		if n := r.Stats().Running; n != 1 {
			t.Errorf("%d handlers run, want 1", n)
		}
		got := slices.Clone(r.startedNow())
		slices.Sort(got)
		if want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 9}; !slices.Equal(got, want) {
			t.Errorf("started %v beside a slow record, want %v", got, want)
		}
		answer <- nil
		r.on(0, nil)
		r.pass(200 * time.Hour)
		r.at(p0, 10)
		if s := r.Stats(); s.Accepted+s.Discarded != 10 || s.Discarded != 1 {
			t.Errorf("counters %+v", s.Counters)
		}
		r.close()
	})
}

type faultyError struct{ inner *faultyError }

func (e *faultyError) Error() string { return "faulty" }
func (e *faultyError) Unwrap() error { return e.inner.inner } // e is nil: dereferences it

// noMap is a map that nobody made.
var noMap map[string]int

// H-087: whatever ends a handler that is no return is one failed attempt with
// a stack trace: its slot is free, the record runs again in order, other lanes
// go on. The same goes for the retry policy and for errors with faulty methods.
func TestHandlerDoesNotReturn(t *testing.T) {
	t.Parallel()
	ends := map[string]func() error{
		"panic":      func() error { panic("no") },
		"panic nil":  func() error { panic(nil) },
		"panic err":  func() error { panic(errBad) },
		"nil map":    func() error { noMap["a"] = 1; return nil },
		"Goexit":     func() error { runtime.Goexit(); return nil },
		"typed nil":  func() error { var e *faultyError; return e },
		"policy":     func() error { return errors.New("policy panics") },
		"policy end": func() error { return errors.New("policy ends") },
	}
	for name, end := range ends {
		for _, quick := range []bool{false, true} {
			for _, timeout := range []time.Duration{0, time.Minute} {
				for _, first := range []int64{0, 3, 7} {
					t.Run(fmt.Sprintf("%s/quick=%v/timeout=%v/%d", name, quick, timeout, first), func(t *testing.T) {
						t.Parallel()
						testHandlerDoesNotReturn(t, end, quick, timeout, first)
					})
				}
			}
		}
	}
}

func testHandlerDoesNotReturn(t *testing.T, end func() error, quick bool, timeout time.Duration, at int64) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Int32
		r := newRig(t, func(c *Config) {
			c.HandlerTimeout, c.Concurrency = timeout, 2
			c.Backoff = func(_ *Delivery, err error) time.Duration {
				switch err.Error() {
				case "policy panics":
					panic("no policy")
				case "policy ends":
					runtime.Goexit()
				}
				return time.Second
			}
			c.Events.Retry = func(_ *Delivery, err error, _ time.Duration) {
				var p *PanicError
				if !errors.As(err, &p) && err.Error()[:6] != "policy" || p != nil && len(p.Stack) == 0 {
					t.Errorf("failed with %v", err)
				}
				failed.Add(1)
			}
		})
		r.on(at, func(_ context.Context, d *Delivery) error {
			if d.DeliveryCount <= 3 {
				return end()
			}
			return nil
		})
		r.Add(p0, 1, 0)
		r.quick(quick)
		var rs []*kgo.Record
		for o := range int64(8) {
			rs = append(rs, rec(p0, o, string(rune('a'+o%2))))
		}
		r.Offer(p0, rs, 8)
		r.wait()
		r.at(p0, at)
		if n := r.count(at ^ 1); n != 1 {
			t.Errorf("the other lane's offset %d ran %d times", at^1, n)
		}
		r.pass(10 * time.Second)
		r.at(p0, 8)
		if n := r.count(at); n != 4 {
			t.Errorf("it ran %d times, want 4", n)
		}
		if n := failed.Load(); n != 3 {
			t.Errorf("%d failed attempts", n)
		}
		var own []int64
		for _, o := range r.startedNow() {
			if o%2 == at%2 && !slices.Contains(own, o) {
				own = append(own, o)
			}
		}
		if !slices.IsSorted(own) {
			t.Errorf("the lane ran as %v", own)
		}
		r.close()
	})
}

// A hook that ends its goroutine takes nothing with it that is not done.
func TestHookEndsWorker(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) {
				c.Concurrency = 2
				c.Events.Retry = func(*Delivery, error, time.Duration) { runtime.Goexit() }
			})
			for _, o := range []int64{3, 9} {
				r.on(o, func(_ context.Context, d *Delivery) error {
					if d.DeliveryCount < 3 {
						return failFor(time.Second)
					}
					return nil
				})
			}
			r.Add(p0, 1, 0)
			r.quick(quick)
			r.Offer(p0, keyless(p0, 0, 10), 10)
			r.pass(time.Minute)
			r.at(p0, 10)
			for o := range int64(10) {
				if n := r.count(o); n != 1 && n != 3 {
					t.Errorf("offset %d ran %d times", o, n)
				}
			}
			r.close()
		})
	}
}

// H-095: a record may end as accepted, dead-lettered or discarded, by its
// handler or since its deliveries are exhausted: the frontier moves and the
// number of unfinished records falls by one for each.
func TestEveryEndFinishes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		letters bool
		end     error
		max     int
		reason  deadletter.Reason
	}{
		{"accepted", false, nil, 0, ""},
		{"rejected", true, reject(), 0, deadletter.Rejected},
		{"exhausted", true, errBad, 3, deadletter.Deliveries},
		{"rejected, discarded", false, reject(), 0, deadletter.Rejected},
		{"exhausted, discarded", false, errBad, 3, deadletter.Deliveries},
	} {
		for _, quick := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					box := &letterBox{hold: true}
					var mu sync.Mutex
					var reasons []deadletter.Reason
					ended := func(why deadletter.Reason) {
						mu.Lock()
						defer mu.Unlock()
						reasons = append(reasons, why)
					}
					r := newRig(t, func(cfg *Config) {
						cfg.MaxDeliveries = c.max
						if cfg.Discard = !c.letters; c.letters {
							cfg.Letters = box
						}
						cfg.Events.Discarded = func(_ *Delivery, why deadletter.Reason, _ error) { ended(why) }
						cfg.Events.DeadLettered = func(l Letter) {
							ended(l.Reason)
							if l.Deliveries != max(c.max, 1) || l.Failure.Err == nil || l.Fence != 5 {
								t.Errorf("letter %+v", l)
							}
						}
					})
					for o := range int64(4) {
						r.on(o, func(context.Context, *Delivery) error { return c.end })
					}
					r.Add(p0, 5, 0)
					r.quick(quick)
					r.Offer(p0, []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "b"), rec(p0, 2, "a"), rec(p0, 3, "b")}, 4)
					for range 10 {
						r.pass(2 * time.Minute)
						if c.letters {
							// Not finished before the letter is acknowledged, and
							// the lane waits (P-1).
							before := r.Stats()
							n := box.answer(nil)
							r.wait()
							if after := r.Stats(); before.Unfinished+before.Staged-after.Unfinished-after.Staged != n {
								t.Errorf("%d letters written; before %+v, after %+v", n, before, after)
							}
						}
					}
					r.at(p0, 4)
					s := r.Stats()
					if s.Unfinished != 0 || s.Bytes != 0 || s.Running != 0 {
						t.Errorf("left: %+v", s)
					}
					want := 4
					if c.end == nil {
						want = 0
					}
					if len(reasons) != want || want > 0 && reasons[0] != c.reason {
						t.Errorf("reasons %v, want %d times %q", reasons, want, c.reason)
					}
					r.close()
				})
			})
		}
	}
}

// A letter that cannot be written is tried again, and nothing passes it.
func TestLetterThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		box := &letterBox{}
		tries := 0
		box.fail = func(Letter) error {
			if tries++; tries < 12 {
				return errLetter
			}
			return nil
		}
		r := newRig(t, func(c *Config) { c.Letters = box })
		r.on(0, func(context.Context, *Delivery) error { return reject() })
		r.Add(p0, 1, 0)
		began := time.Now()
		r.Offer(p0, []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "a"), rec(p0, 2, "b")}, 3)
		r.wait()
		if s := r.Stats(); s.Running != 0 || s.LetterErrors != 1 || r.count(2) != 1 || r.count(1) != 0 {
			t.Errorf("while a letter waits: %+v, started %v", s.Counters, r.startedNow())
		}
		r.pass(20 * time.Second)
		r.at(p0, 0)
		if n := r.count(0); n != 1 {
			t.Errorf("the handler ran %d times for one letter", n)
		}
		r.pass(5 * time.Minute)
		r.at(p0, 3)
		if s := r.Stats(); s.LetterErrors != 11 || s.DeadLettered != 1 {
			t.Errorf("after %v: %+v", time.Since(began), s.Counters)
		}
		r.close()
	})
}

// P-6: without budget an exhausted record stays in retry; accepted records
// refill it.
func TestBudgetWithholds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		box := &letterBox{}
		r := newRig(t, func(c *Config) {
			c.Letters, c.MaxDeliveries = box, 2
			c.Budget = Budget{Burst: 2, PerAccept: 0.1}
		})
		var outage atomic.Bool
		outage.Store(true)
		for o := range int64(100) {
			r.on(o, func(context.Context, *Delivery) error {
				if outage.Load() || o == 7 {
					return failFor(time.Second)
				}
				return nil
			})
		}
		r.Add(p0, 1, 0)
		r.Offer(p0, keyless(p0, 0, 100), 100)
		r.pass(time.Minute)
		if n := len(box.offsets()); n != 2 {
			t.Errorf("%d dead letters in an outage, budget 2", n)
		}
		outage.Store(false)
		r.pass(5 * time.Second)
		r.at(p0, 100)
		if s := r.Stats(); s.DeadLettered != 3 && !slices.Contains(box.offsets(), 7) || s.Withheld == 0 {
			t.Errorf("%+v, letters %v", s.Counters, box.offsets())
		}
		r.close()
	})
}

// A record whose key function failed is an attempt that failed, with the
// handler not called, in batches, runs and pulled ones alike.
func TestKeyFunctionFails(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			box := &letterBox{}
			r := newRig(t, func(c *Config) {
				c.Letters, c.MaxDeliveries, c.LaneInside = box, 3, false
				c.Lane = func(x *kgo.Record) (queue.Lane, error) {
					if x.Offset == 2 {
						return queue.Alone, errBad
					}
					return lane(x)
				}
			})
			r.Add(p0, 1, 0)
			r.quick(quick)
			r.Offer(p0, keyless(p0, 0, 5), 5)
			r.wait()
			r.at(p0, 2)
			r.pass(5 * time.Minute)
			r.at(p0, 5)
			if r.count(2) > 0 || !slices.Equal(box.offsets(), []int64{2}) || r.Stats().Failed != 3 {
				t.Errorf("handled %d times, letters %v, %+v", r.count(2), box.offsets(), r.Stats().Counters)
			}
			r.close()
		})
	}
}

// Three delays and an hour: what waits costs no time, and runs when it is due.
func TestRetryTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at [4]atomic.Int64
		r := newRig(t, nil)
		delays := []time.Duration{30 * time.Second, time.Second, 5 * time.Minute, 8 * time.Hour}
		for o, d := range delays {
			r.on(int64(o), func(_ context.Context, x *Delivery) error {
				if x.DeliveryCount == 1 {
					return failFor(d)
				}
				at[o].Store(int64(time.Since(began)))
				return nil
			})
		}
		r.Add(p0, 1, 0)
		r.Offer(p0, keyless(p0, 0, 4), 4)
		r.pass(24 * time.Hour)
		for o, d := range delays {
			if at := time.Duration(at[o].Load()); at < d || at > d+2*time.Millisecond {
				t.Errorf("due after %v, ran after %v", d, at)
			}
		}
		r.at(p0, 4)
		r.close()
	})
}

// H-070: 200 records fail 3,600 times each with varying delays, and a revoke
// falls in between. H-105: attempts leave nothing behind.
func TestRetriesByTheThousand(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("720,000 attempts")
	}
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		r := newRig(t, func(c *Config) {
			c.Concurrency = 2
			c.Handle = func(_ context.Context, d *Delivery) error {
				n := calls.Add(1)
				return failFor(time.Duration(n*7919%1000) * time.Millisecond)
			}
		})
		r.Add(p0, 1, 0)
		r.Add(p1, 1, 0)
		r.Offer(p0, keyless(p0, 0, 100), 100)
		r.Offer(p1, keyless(p1, 0, 100), 100)
		for round := 0; calls.Load() < 360_000; round++ {
			r.pass(time.Minute)
			if n := r.Stats().Waiting; n > 200 {
				t.Fatalf("%d records wait", n)
			}
		}
		ps := r.Revoke(within(time.Second), []TopicPartition{p0})
		if len(ps) != 1 || ps[0].Offset != 0 {
			t.Fatalf("final positions %+v", ps)
		}
		r.wait()
		before := heap()
		for calls.Load() < 720_000 {
			r.pass(time.Minute)
			if n := r.Stats().Waiting; n > 100 {
				t.Fatalf("%d records wait after the revoke", n)
			}
		}
		if after := heap(); after > before+1<<20 {
			t.Errorf("the heap grew from %d to %d in 360,000 attempts", before, after)
		}
		r.close()
	})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// HandlerTimeout cancels the context; the lane stays closed until the handler
// returns.
func TestHandlerTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		var stuck []int64
		box := &letterBox{}
		r := newRig(t, func(c *Config) {
			c.HandlerTimeout, c.StuckAfter, c.MaxDeliveries, c.Letters = time.Minute, 2*time.Minute, 1, box
			c.Events.Stuck = func(d *Delivery, _ time.Duration, released bool) {
				if released {
					t.Error("a running handler's record was released")
				}
				stuck = append(stuck, d.Offset)
			}
		})
		r.on(0, func(ctx context.Context, _ *Delivery) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(time.Hour)
			return ctx.Err()
		})
		r.Add(p0, 1, 0)
		r.Offer(p0, []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "a")}, 2)
		r.pass(59 * time.Minute)
		if cause != ErrHandlerTimeout || r.count(1) > 0 || !slices.Equal(stuck, []int64{0}) {
			t.Errorf("cause %v, started %v, stuck %v", cause, r.startedNow(), stuck)
		}
		if n := r.Stats().Stuck; n != 1 {
			t.Errorf("%d are stuck now", n)
		}
		r.pass(time.Hour)
		r.at(p0, 2)
		if box.written[0].Reason != deadletter.Timeout || r.Stats().Stuck != 0 {
			t.Errorf("letter %+v, %+v", box.written[0], r.Stats().Counters)
		}
		r.close()
	})
}

// A handler that asks for a stop: its record stays, nothing starts any more.
func TestStopOutcome(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Concurrency = 1 })
			r.on(2, func(context.Context, *Delivery) error { return &verdict{Outcome{Verb: Stop, Err: errBad}} })
			r.Add(p0, 1, 0)
			r.quick(quick)
			r.Offer(p0, keyless(p0, 0, 6), 6)
			r.wait()
			<-r.Fatal()
			var stop *StopError
			if err := r.Failure(); !errors.As(err, &stop) || stop.At.Offset != 2 || !errors.Is(err, errBad) {
				t.Errorf("failure %v", err)
			}
			if err := r.Drain(context.Background()); err != nil {
				t.Error(err)
			}
			r.at(p0, 2)
			if n := len(r.startedNow()); n != 3 {
				t.Errorf("%d handlers were started, want 3", n)
			}
			r.close()
		})
	}
}

// A reject with nowhere to go is a failed attempt, and said aloud.
func TestHomelessReject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var homeless atomic.Int32
		r := newRig(t, func(c *Config) { c.Events.Homeless = func(*Delivery, error) { homeless.Add(1) } })
		r.on(0, func(_ context.Context, d *Delivery) error {
			if d.DeliveryCount < 3 {
				return reject()
			}
			return nil
		})
		r.Add(p0, 1, 0)
		r.Offer(p0, keyless(p0, 0, 1), 1)
		r.pass(time.Hour)
		r.at(p0, 1)
		if n := homeless.Load(); n != 2 {
			t.Errorf("told %d times", n)
		}
		r.close()
	})
}
