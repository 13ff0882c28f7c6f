package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// keyed are records of p0 with keys k0, k1 … k(keys−1) in turn.
func keyed(from, n int64, keys int64) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		o := from + int64(i)
		rs[i] = rec(p0, o, fmt.Sprintf("k%d", o%keys))
	}
	return rs
}

// begin opens p0 with what an earlier owner stored, and has the opening
// confirmed.
func (r *rig) begin(st *progress.Progress, offset, end int64) {
	r.t.Helper()
	r.Add(p0, 0, -1)
	r.open(st, offset, end)
	r.confirm()
}

func (r *rig) open(st *progress.Progress, offset, end int64) {
	r.t.Helper()
	if _, refused := r.Begin([]Start{{TopicPartition: p0, Offset: offset, Epoch: -1, End: end, Stored: st}}); len(refused) > 0 {
		r.t.Fatal(refused)
	}
}

// confirm plays the brokers: it stores what p0's snapshot says and answers.
func (r *rig) confirm() Snapshot {
	r.t.Helper()
	s, ok := r.Snapshot(p0)
	if !ok {
		r.t.Fatal("no snapshot of an open partition")
	}
	r.Confirmed(s.Position)
	r.wait()
	return s
}

// ordered makes rigs whose progress names orders.
func ordered(c *Config) {
	c.OrderName = "key"
	c.Check = func(r *kgo.Record) uint32 {
		l, _ := lane(r)
		return max(uint32(l), 1)
	}
	c.Former = func(name string) *Ordering {
		if name != "unordered" {
			return nil
		}
		return &Ordering{Name: name, Lane: func(*kgo.Record) (queue.Lane, error) { return queue.Alone, nil }, Check: func(*kgo.Record) uint32 { return 7 }}
	}
}

func heads(p progress.Progress) (hs []int64) {
	for _, s := range p.Segments {
		for _, r := range s.Heads {
			for o := r.From; o < r.To; o++ {
				hs = append(hs, o)
			}
		}
	}
	return hs
}

// H-028, H-115: what is finished beyond a stuck record is not handled again by
// the next owner, and what is not is, in order.
func TestFinishedWorkIsNotRepeated(t *testing.T) {
	for _, former := range []string{"key", "unordered"} {
		t.Run(former, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(c *Config) {
					ordered(c)
					if former == "unordered" {
						c.OrderName = "unordered"
						c.Lane = func(*kgo.Record) (queue.Lane, error) { return queue.Alone, nil }
						c.Check = func(*kgo.Record) uint32 { return 7 }
					}
				})
				r.begin(nil, 0, 40)
				r.block(3) // k3
				r.block(8)
				r.block(13)
				r.Offer(p0, keyed(0, 40, 5), 40)
				r.wait()
				s, _ := r.Snapshot(p0)
				want := []int64{3}
				if former == "unordered" {
					want = []int64{3, 8, 13}
				}
				if got := heads(s.Progress); !slices.Equal(got, want) || s.Offset != 3 || s.Progress.Horizon() != 40 {
					t.Fatalf("snapshot %+v, want heads %v at offset 3 up to 40", s, want)
				}

				next := newRig(t, ordered)
				next.begin(&s.Progress, s.Offset, 40)
				hold := next.block(3)
				next.Offer(p0, keyed(3, 47, 5), 50)
				next.wait()
				fresh := []int64{3, 40, 41, 42, 44, 45, 46, 47, 49}
				if former == "unordered" {
					// 8 and 13 are behind 3 by the order of today.
					if got := next.startedNow(); !slices.Equal(sorted(got), fresh) {
						t.Fatalf("started %v, want %v", got, fresh)
					}
				} else if got := sorted(next.startedNow()); !slices.Equal(got, fresh) {
					t.Fatalf("started %v, want %v", got, fresh)
				}
				mid, _ := next.Snapshot(p0)
				hold <- nil
				next.wait()
				rest := []int64{8, 13, 18, 23, 28, 33, 38, 43, 48}
				if former == "unordered" {
					rest = []int64{8, 13, 43, 48}
				}
				if got := next.startedNow()[len(fresh):]; !slices.Equal(got, rest) {
					t.Fatalf("then started %v, want %v", got, rest)
				}
				next.at(p0, 50)
				if n := next.Stats().Recalled; n != int64(37-1-len(rest)+2) {
					t.Errorf("%d records count as known to be finished", n)
				}

				// The third owner goes by what the second one said in between.
				third := newRig(t, ordered)
				third.begin(&mid.Progress, mid.Offset, 50)
				third.Offer(p0, keyed(3, 47, 5), 50)
				third.wait()
				if got := third.startedNow(); !slices.Equal(got, append([]int64{3}, rest...)) {
					t.Fatalf("the third owner started %v", got)
				}
				third.at(p0, 50)
				for _, r := range []*rig{r, next, third} {
					r.Close()
				}
			})
		})
	}
}

func sorted(xs []int64) []int64 {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return xs
}

// Nothing runs before the ownership is durable, and one that takes long holds
// only its own partition.
func TestNothingStartsBeforeTheOpeningIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		r.Add(p0, 0, -1)
		r.Add(p1, 1, 0)
		fence, _ := r.Begin([]Start{{TopicPartition: p0, Offset: 0, End: -1}})
		r.Offer(p0, keyed(0, 3, 3), 3)
		r.Offer(p1, []*kgo.Record{rec(p1, 100, "a")}, 101)
		r.pass(time.Hour)
		if got := r.startedNow(); !slices.Equal(got, []int64{100}) {
			t.Fatalf("started %v before the opening was confirmed", got)
		}
		select {
		case <-r.Urgent():
		default:
			t.Fatal("no commit was asked for")
		}
		at := r.Positions(p0)[0]
		if at.Fence != fence || at.Offset != 0 {
			t.Fatalf("the position is %+v, the fence %d", at, fence)
		}
		stale := at
		stale.Fence--
		r.Confirmed(stale)
		r.wait()
		if got := r.startedNow(); len(got) > 1 {
			t.Fatalf("started %v on another owner's confirmation", got)
		}
		r.Confirmed(at)
		r.wait()
		r.at(p0, 3)
		r.close()
	})
}

// A fence is higher than all before it, also when nothing is known of those.
func TestFenceNeverFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		last := int64(0)
		for _, st := range []*progress.Progress{nil, {Fence: 1, Suspect: -1}, {Fence: 1 << 50, Suspect: -1}, {Fence: 1<<50 + 1, Suspect: -1}} {
			r.Lose([]TopicPartition{p0})
			r.Add(p0, 0, -1)
			time.Sleep(time.Millisecond)
			f, _ := r.Begin([]Start{{TopicPartition: p0, Offset: 0, End: -1, Stored: st}})
			if f <= last || st != nil && f <= st.Fence {
				t.Fatalf("fence %d after %d, stored %+v", f, last, st)
			}
			last = f
		}
		r.close()
	})
}

// H-022: heads that compaction has removed cost repeats and skip nothing.
func TestMissingHeadRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var why error
		r := newRig(t, func(c *Config) {
			ordered(c)
			c.Events.Forgotten = func(_ TopicPartition, _, _ int64, err error) { why = err }
		})
		st := &progress.Progress{Offset: 3, Fence: 5, Clean: true, Suspect: -1, Epoch: -1, Segments: []progress.Segment{{
			End: 20, Order: "key", Heads: []progress.Range{{From: 3, To: 4}, {From: 6, To: 7}},
		}}}
		r.begin(st, 3, 20)
		rs := keyed(3, 17, 5)
		r.Offer(p0, slices.Delete(rs, 3, 4), 20) // 6 is gone
		r.wait()
		want := []int64{3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}
		if got := sorted(r.startedNow()); !slices.Equal(got, want) {
			t.Fatalf("started %v, want %v", got, want)
		}
		if why == nil || r.Stats().Forgotten != 1 {
			t.Fatalf("told of %v, counted %d", why, r.Stats().Forgotten)
		}
		r.at(p0, 20)
		r.close()
	})
}

// A key function that computes something else under its old name.
func TestChangedKeyFunctionRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		st := &progress.Progress{Offset: 3, Fence: 5, Clean: true, Suspect: -1, Epoch: -1, Segments: []progress.Segment{{
			End: 20, Order: "key", Check: 1, Heads: []progress.Range{{From: 3, To: 4}},
		}}}
		r.begin(st, 3, 20)
		r.Offer(p0, keyed(3, 17, 5), 20)
		r.wait()
		if n := len(r.startedNow()); n != 17 || r.Stats().Forgotten != 1 {
			t.Fatalf("%d records were handled, forgotten %d times", n, r.Stats().Forgotten)
		}
		r.close()
	})
}

func TestUnknownOrderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		r.Add(p0, 0, -1)
		st := &progress.Progress{Offset: 3, Fence: 5, Clean: true, Suspect: -1, Segments: []progress.Segment{{
			End: 20, Order: "key:customer", Heads: []progress.Range{{From: 3, To: 4}},
		}}}
		f, refused := r.Begin([]Start{{TopicPartition: p0, Offset: 3, End: 20, Stored: st}})
		if refused[p0] == nil || f <= 5 {
			t.Fatalf("refused %v, fence %d", refused, f)
		}
		r.confirm()
		r.Offer(p0, keyed(3, 17, 5), 20)
		r.wait()
		if n := len(r.startedNow()); n != 17 {
			t.Fatalf("%d records were handled", n)
		}
		r.close()
	})
}

// Failed attempts are counted on by the next owner.
func TestAttemptsSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		change := func(c *Config) {
			ordered(c)
			c.MaxDeliveries = 5
			c.Discard = true
		}
		r := newRig(t, change)
		r.begin(nil, 0, 3)
		fail := func(context.Context, *Delivery) error { return failFor(time.Second) }
		r.on(0, fail)
		r.Offer(p0, keyed(0, 3, 3), 3)
		r.wait()
		time.Sleep(2500 * time.Millisecond) // three attempts
		r.wait()
		s, _ := r.Snapshot(p0)
		if !slices.Equal(s.Progress.Attempts, []progress.Count{{Offset: 0, N: 3}}) {
			t.Fatalf("attempts %v after 3", s.Progress.Attempts)
		}
		var seen []int
		next := newRig(t, change)
		next.on(0, func(_ context.Context, d *Delivery) error {
			seen = append(seen, d.DeliveryCount)
			return failFor(time.Second)
		})
		next.begin(&s.Progress, s.Offset, 3)
		next.Offer(p0, keyed(0, 3, 3), 3)
		next.pass(10 * time.Second)
		if !slices.Equal(seen, []int{4, 5}) || next.Stats().Discarded != 1 {
			t.Fatalf("deliveries %v, %d discarded", seen, next.Stats().Discarded)
		}
		next.at(p0, 3)
		r.Close()
		next.close()
	})
}

// P-5: a partition whose progress could outgrow its room admits nothing more;
// others go on, and so does it when some of its lanes have ended.
func TestAdmissionWaitsForProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) {
			ordered(c)
			c.Concurrency, c.MaxInFlight = 10000, 10000
		})
		const room = 100
		r.SetCapacity(room)
		r.begin(nil, 0, 1500)
		r.Add(p1, 1, 0)
		answer := make(chan error)
		for o := range int64(1500) {
			r.on(o, func(context.Context, *Delivery) error { return r.until(answer) })
		}
		r.Offer(p0, keyless(p0, 0, 1500), 1500)
		r.wait()
		n := len(r.startedNow())
		if n == 0 || n > 8*room {
			t.Fatalf("%d records were started with room for %d bytes of progress", n, room)
		}
		var full bool
		for _, p := range r.Stats().Parts {
			full = full || p.TopicPartition == p0 && p.Full
		}
		if !full {
			t.Error("the partition is not said to be full")
		}
		r.Offer(p1, []*kgo.Record{rec(p1, 100000, "a")}, 100001)
		r.wait()
		r.at(p1, 100001)
		var enc progress.Encoder
		for range 1500 {
			answer <- nil
			r.wait()
			s, _ := r.Snapshot(p0)
			_, fit := enc.Append(nil, &s.Progress, progress.Binding{}, progress.Limit{Units: 4 * room / 3})
			if fit.Horizon != s.Progress.Horizon() {
				t.Fatalf("progress up to %d was cut at %d", s.Progress.Horizon(), fit.Horizon)
			}
		}
		r.at(p0, 1500)
		r.close()
	})
}

// H-075: the record that ends the process is found and dead-lettered; its
// neighbours are handled.
func TestPoisonIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, poison, maxCrashes = 50, 17, 3
		done := make(map[int64]int)
		var letters []int64
		var stored *progress.Progress
		var offset int64
		crashes := 0
		for start := 1; ; start++ {
			if start > maxCrashes+3 {
				t.Fatalf("not past the record after %d starts", start)
			}
			var mu sync.Mutex
			died := false
			dead := func() bool {
				mu.Lock()
				defer mu.Unlock()
				return died
			}
			r := newRig(t, func(c *Config) {
				ordered(c)
				c.MaxCrashes, c.Discard = maxCrashes, true
				c.Events.Discarded = func(d *Delivery, reason deadletter.Reason, err error) {
					var crash *CrashError
					if reason != deadletter.Crash || !errors.As(err, &crash) || crash.Crashes != maxCrashes {
						t.Errorf("offset %d was discarded: %s, %v", d.Offset, reason, err)
					}
					letters = append(letters, d.Offset)
				}
				c.Handle = func(_ context.Context, d *Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					if died || d.Offset == poison {
						died = true
						return errBad // the process is gone: nobody handles anything
					}
					done[d.Offset]++
					return nil
				}
			})
			r.Add(p0, 0, -1)
			r.open(stored, offset, n)
			r.Offer(p0, keyed(offset, n-offset, 7), n)
			for !dead() {
				s, _ := r.Snapshot(p0)
				stored, offset = &s.Progress, s.Offset
				r.Confirmed(s.Position)
				synctest.Wait()
				if s.Offset == n {
					break
				}
			}
			r.Close()
			if offset == n {
				break
			}
			crashes++
		}
		if crashes != maxCrashes+2 {
			t.Errorf("the process ended %d times, want %d", crashes, maxCrashes+2)
		}
		if !slices.Equal(letters, []int64{poison}) {
			t.Errorf("dead letters %v", letters)
		}
		for o := range int64(n) {
			if o != poison && done[o] == 0 {
				t.Errorf("offset %d was not handled", o)
			}
		}
	})
}

// A careful owner does not wait for ever for a record that hangs.
func TestCareHasPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 1, Reach: 10, Suspect: -1, Epoch: -1}
		r.Add(p0, 0, -1)
		r.open(st, 0, 10)
		hang := r.block(0)
		r.Offer(p0, keyed(0, 20, 20), 20)
		for range 30 {
			r.confirm()
		}
		if got := r.startedNow(); !slices.Equal(got, []int64{0}) {
			t.Fatalf("started %v beside a record that hangs", got)
		}
		time.Sleep(carePatience)
		for range 30 {
			r.confirm()
		}
		if n := len(r.startedNow()); n != 20 {
			t.Fatalf("%d records were started", n)
		}
		hang <- nil
		r.wait()
		r.at(p0, 20)
		r.close()
	})
}
