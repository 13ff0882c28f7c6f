package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Work that is ready and that nobody comes for: each test here is a sequence
// of events after which somebody has to be woken.

// A run of a single record has to be broken like any other when its handler
// takes long: the partition's other records are nobody's meanwhile (P-4).
func TestRunOfOneRecordThatTakesLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Add(p0, 1, 0)
		r.quick(true)
		answer := r.block(0)
		r.Offer(p0, keyless(p0, 0, 1), 1)
		r.wait()
		r.Offer(p0, keyless(p0, 1, 3), 4)
		r.pass(10 * time.Millisecond)
		for o := int64(1); o < 4; o++ {
			if r.count(o) != 1 {
				t.Errorf("offset %d ran %d times beside a handler that blocks", o, r.count(o))
			}
		}
		r.at(p0, 0)
		answer <- nil
		r.wait()
		r.at(p0, 4)
		r.close()
	})
}

// Records are kept back for a run while all that is unfinished is running:
//
//	worker 1: its handler takes a record
//	worker 2: comes, keeps the rest back, since worker 1 returns soon
//	worker 1: returns with a failure; the record waits for a minute
//
// The rest must not wait with it, however the attempt has ended.
func TestKeptBackForARunThatDoesNotCome(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{
		"failed": errBad, "snoozed": snooze(time.Hour), "rejected": reject(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				letters := &letterBox{hold: true}
				r := newRig(t, func(c *Config) { c.Letters = letters })
				r.Add(p0, 1, 0)
				answer := r.block(0)
				r.Offer(p0, keyless(p0, 0, 1), 1)
				r.wait()
				r.quick(true)
				r.Offer(p0, keyless(p0, 1, 5), 6)
				r.wait()
				answer <- end
				r.wait()
				if got := len(r.startedNow()); got != 6 {
					t.Errorf("%d of 6 records were started while the first one waits", got)
				}
				r.close()
			})
		})
	}
}

// MaxInFlight is used up by one partition when another one gets records. As
// soon as there is room again, both have their turn.
func TestRoomUnderMaxInFlightWakesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.Concurrency = 4, 4 })
		r.Add(p0, 1, 0)
		gate := make(chan error)
		for o := range int64(8) {
			r.on(o, func(_ context.Context, d *Delivery) error {
				if d.Record.Partition == 0 {
					return r.until(gate)
				}
				return nil
			})
		}
		r.Offer(p0, keyless(p0, 0, 8), 8)
		r.wait()
		r.Add(p1, 1, 0)
		r.Offer(p1, keyless(p1, 0, 3), 3)
		r.wait()
		r.at(p1, 0)
		gate <- nil
		r.wait()
		r.at(p1, 3)
		close(gate)
		r.wait()
		r.at(p0, 8)
		r.close()
	})
}

// A partition that leaves makes the shares of the others larger.
func TestLargerShareWakes(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*rig){
		"revoked": func(r *rig) { r.Revoke(context.Background(), []TopicPartition{p1}) },
		"lost":    func(r *rig) { r.Lose([]TopicPartition{p1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *Config) { c.MaxInFlight = 4 })
				r.Add(p0, 1, 0)
				r.Add(p1, 1, 0)
				r.on(0, func(context.Context, *Delivery) error { return failFor(time.Hour) })
				r.on(1, func(context.Context, *Delivery) error { return failFor(time.Hour) })
				r.Offer(p0, keyless(p0, 0, 4), 4)
				r.wait()
				if n := len(r.startedNow()); n != 2 {
					t.Fatalf("%d records were started, want the partition's share, 2", n)
				}
				leave(r)
				r.wait()
				if n := len(r.startedNow()); n != 4 {
					t.Errorf("%d records were started once the partition is alone, want 4", n)
				}
				r.close()
			})
		})
	}
}

// Fewer places than partitions: each gets its turn when a place is free.
func TestMaxInFlightBelowPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.Concurrency = 2, 2 })
		const parts, each = 7, 20
		for i := range int32(parts) {
			tp := TopicPartition{"orders", i}
			r.Add(tp, 1, 0)
			r.Offer(tp, keyless(tp, 0, each), each)
		}
		for _, quick := range []bool{true, false} {
			r.quick(quick)
			r.wait()
		}
		for i := range int32(parts) {
			r.at(TopicPartition{"orders", i}, each)
		}
		r.close()
	})
}

// The patrol finds a worker that has its records and has not begun any:
//
//	worker:  takes 8 records, is descheduled
//	patrol:  finds nothing that runs
//	worker:  begins the first one, which blocks
//
// The patrol has to come again, or the other seven wait behind it for ever.
func TestPatrolComesAgainForWorkerThatHasNotBegun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newRig(t, nil).Engine
		e.mu.Lock()
		w := &worker{e: e, wake: make(chan struct{}, 1)}
		w.size.Store(8)
		w.batch = make([]*task, 8)
		e.workers.all[w] = struct{}{}
		e.workers.armed = false
		e.mu.Unlock()
		e.workers.walk()
		e.mu.Lock()
		armed := e.workers.armed
		delete(e.workers.all, w)
		e.mu.Unlock()
		if !armed {
			t.Error("the patrol does not come again")
		}
	})
}

// Handlers that wait for hours cost the patrol nothing once it has seen them.
func TestPatrolRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Concurrency = 4 })
		for i := range int64(50) {
			r.on(i, func(context.Context, *Delivery) error { time.Sleep(10 * time.Hour); return nil })
		}
		r.Add(p0, 1, 0)
		r.quick(true)
		r.Offer(p0, keyless(p0, 0, 50), 50)
		r.pass(time.Second)
		if n := len(r.startedNow()); n != 4 {
			t.Errorf("%d handlers run, want Concurrency, 4", n)
		}
		r.Engine.mu.Lock()
		armed := r.workers.armed
		r.Engine.mu.Unlock()
		if armed {
			t.Error("the patrol walks although every worker is known to take long")
		}
		r.pass(200 * time.Hour)
		r.at(p0, 50)
		r.close()
	})
}

// The driver waits for room. A run makes room in the moment in which it is
// cut, and its last record may never end.
func TestCutRunMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		size := int64(sizeOf(rec(p0, 0, "")))
		r := newRig(t, func(c *Config) { c.MaxBytes = n * size })
		r.Add(p0, 1, 0)
		r.on(n-1, func(context.Context, *Delivery) error { return failFor(1000 * time.Hour) })
		r.quick(true)
		r.Pause(p0)
		r.Offer(p0, keyless(p0, 0, n), n)
		r.Resume(p0)
		// Before the worker has come: all of it is staged or in the run.
		if got := r.Reading(func() {}); got.Max != 0 {
			t.Skip("the run was over before the driver asked")
		}
		drainRoom(r)
		r.wait()
		select {
		case <-r.Room():
		default:
			t.Error("nobody tells the driver that there is room")
		}
		r.at(p0, n-1)
		r.close()
	})
}

// Admission makes room for records that are counted by number, too.
func TestAdmissionMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 1 << 16
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.MaxBytes = n/2-1, 1<<40 })
		// readAhead is 1<<16: half of it and a bit is staged.
		r.Add(p0, 1, 0)
		r.Pause(p0)
		rs := keyless(p0, 0, n/2+10)
		for i := range rs {
			r.plan[int64(i)] = func(context.Context, *Delivery) error { return failFor(1000 * time.Hour) }
		}
		r.Offer(p0, rs, int64(len(rs)))
		r.Resume(p0)
		if got := r.Reading(func() {}); got.Max != 0 {
			t.Skip("records were admitted before the driver asked")
		}
		drainRoom(r)
		r.wait()
		select {
		case <-r.Room():
		default:
			t.Error("nobody tells the driver that there is room")
		}
		r.close()
	})
}

func drainRoom(r *rig) {
	select {
	case <-r.Room():
	default:
	}
}

// A pause in which a batch, a run and a retry come to their end, then Resume:
// everything goes on.
func TestResumeWakes(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.Add(p0, 1, 0)
			r.quick(quick)
			answer := r.block(3)
			r.on(5, func(_ context.Context, d *Delivery) error {
				if d.DeliveryCount == 1 {
					return failFor(time.Second)
				}
				return nil
			})
			r.Offer(p0, keyless(p0, 0, 4), 10)
			r.wait()
			r.Pause(p0)
			r.Offer(p0, keyless(p0, 4, 6), 10)
			r.wait()
			answer <- nil
			r.wait()
			r.at(p0, 4)
			r.Resume(p0)
			r.wait()
			r.Pause(p0)
			r.pass(time.Minute)
			r.at(p0, 5)
			r.Resume(p0)
			r.wait()
			r.at(p0, 10)
			r.close()
		})
	}
}

// When quick handlers become slow ones, and again quick, and slow, no record
// stays behind.
func TestQuantumChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Concurrency = 8 })
		const n = 4000
		var rs []*kgo.Record
		for o := range int64(n) {
			key := ""
			if o%3 == 0 {
				key = string(rune('a' + o%7))
			}
			rs = append(rs, rec(p0, o, key))
			if o/500%2 == 1 {
				r.plan[o] = func(context.Context, *Delivery) error { time.Sleep(3 * time.Millisecond); return nil }
			}
		}
		r.Add(p0, 1, 0)
		for len(rs) > 0 {
			k := min(333, len(rs))
			r.Offer(p0, rs[:k], n)
			rs = rs[k:]
			r.check(false)
			r.pass(20 * time.Millisecond)
		}
		r.pass(time.Minute)
		r.at(p0, n)
		r.close()
	})
}

// A partition that was full is opened anew: the places of its old ownership are
// free for the others, although its handlers still run.
func TestAddOverOpenMakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight = 4 })
		r.Add(p0, 1, 0)
		answer := make(chan error)
		for o := range int64(4) {
			r.on(o, func(_ context.Context, d *Delivery) error {
				if d.Record.Partition == 0 {
					return r.until(answer)
				}
				return nil
			})
		}
		r.Offer(p0, keyless(p0, 0, 4), 4)
		r.wait()
		r.Add(p1, 1, 0)
		r.Add(p2, 1, 0)
		r.Offer(p1, keyless(p1, 0, 1), 1)
		r.Offer(p2, keyless(p2, 0, 1), 1)
		r.wait()
		r.at(p1, 0)
		r.Add(p0, 2, 0)
		r.wait()
		r.at(p1, 1)
		r.at(p2, 1)
		close(answer)
		r.wait()
		r.close()
	})
}
