package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ended is a context that is over: a revoke under it waits for nobody.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// The log goes back to 6 while 2 waits for its next attempt, 4 is running, and
// 5 and 7 are staged. What lies below 6 is in the log as before and still
// unfinished: the frontier must not go past it (P-1).
func TestRewindKeepsWhatLiesBelow(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var was, is int64
			r := newRig(t, func(c *Config) {
				c.Events.Rewound = func(_ TopicPartition, w, i int64) { was, is = w, i }
			})
			r.Add(p0, 7, 0)
			r.on(2, func(_ context.Context, d *Delivery) error {
				if d.DeliveryCount < 3 {
					return failFor(time.Minute)
				}
				return nil
			})
			answer := r.block(4)
			r.quick(quick)
			r.Offer(p0, []*kgo.Record{rec(p0, 2, "a"), rec(p0, 3, "b"), rec(p0, 4, "c"), rec(p0, 5, "c"), rec(p0, 7, "c")}, 8)
			r.pass(10 * time.Millisecond)
			r.pass(time.Minute)
			r.at(p0, 2)
			if n := r.count(2); n != 2 {
				t.Fatalf("offset 2 ran %d times", n)
			}

			r.Offer(p0, []*kgo.Record{rec(p0, 6, "a"), rec(p0, 9, "c")}, 10)
			if was != 8 || is != 6 {
				t.Errorf("told of a rewind from %d to %d", was, is)
			}
			r.wait()
			// The record failed twice: it runs again with its count.
			if n := r.count(2); n != 3 {
				t.Errorf("offset 2 ran %d times, want once more", n)
			}
			if n := r.count(4); n != 1 {
				t.Errorf("offset 4 runs %d times at once", n)
			}
			r.at(p0, 4)
			answer <- nil // counts for nobody; the lane opens
			r.on(4, nil)
			r.pass(time.Second)
			r.at(p0, 10)
			want := []int64{4, 4, 5, 9}
			got := slices.DeleteFunc(r.startedNow(), func(o int64) bool { return !slices.Contains(want, o) })
			if !slices.Equal(got, want) {
				t.Errorf("lane c ran as %v, want %v", got, want)
			}
			if n := r.count(7); n != 0 {
				t.Errorf("offset 7 is not in the log any more and ran")
			}
			r.close()
		})
	}
}

// The log goes back while its partition is being revoked: nothing of it may be
// opened again.
func TestRewindDuringRevoke(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Add(p0, 1, 0)
		answer := r.block(3)
		r.Offer(p0, keyless(p0, 0, 8), 8)
		r.wait()
		final := make(chan []Position, 1)
		go func() { final <- positions(r.Revoke(context.Background(), []TopicPartition{p0})) }()
		r.wait()
		r.Offer(p0, keyless(p0, 5, 3), 8)
		answer <- nil
		r.wait()
		if ps := <-final; len(ps) != 1 || ps[0].Offset != 8 {
			t.Errorf("final positions %+v", ps)
		}
		if tps := r.Owned(); len(tps) > 0 {
			t.Errorf("%v are open after the revoke", tps)
		}
		r.close()
	})
}

// A revoke without time for a drain finds a run under way. What ran is in the
// final position all the same (P-3).
func TestRevokeCountsWhatARunDid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Add(p0, 1, 0)
		answer := r.block(5)
		r.quick(true)
		r.Offer(p0, keyless(p0, 0, 8), 8)
		r.wait()
		ps := r.Revoke(ended(), []TopicPartition{p0})
		if len(ps) != 1 || ps[0].Offset != 5 {
			t.Errorf("final positions %+v, want offset 5", ps)
		}
		if n := r.Stats().Running; n != 0 {
			t.Errorf("%d records of ours are in work", n)
		}
		answer <- nil
		r.wait()
		r.close()
	})
}

// H-038, H-086, P-2: a handler outlives its partition's ownership. Its lane
// stays closed until it returns, other lanes go on; what it answers changes
// nothing.
func TestZombieKeepsItsLane(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		for name, leave := range map[string]func(*rig){
			"revoke": func(r *rig) { r.Revoke(ended(), []TopicPartition{p0}) },
			"lose":   func(r *rig) { r.Lose([]TopicPartition{p0}) },
			"add":    func(r *rig) {},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					late := 0
					r := newRig(t, func(c *Config) { c.Events.Late = func(*Delivery) { late++ } })
					r.Add(p0, 1, 0)
					answer := r.block(1)
					r.quick(quick)
					rs := []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "b"), rec(p0, 2, "b"), rec(p0, 3, "c"), rec(p0, 4, "b")}
					r.Offer(p0, rs, 5)
					r.pass(10 * time.Millisecond)
					leave(r)
					r.wait()
					r.Add(p0, 2, 1)
					r.quick(quick)
					r.Offer(p0, rs[1:], 5)
					r.wait()
					r.at(p0, 1)
					if n := r.count(1); n != 1 {
						t.Fatalf("offset 1 runs %d times at once", n)
					}
					if n := r.count(2); n != 0 {
						t.Fatal("offset 2 overtook offset 1")
					}
					if n := r.count(3); n != 2 {
						t.Errorf("offset 3, of another lane, ran %d times, want 2", n)
					}
					r.on(1, nil)
					answer <- nil
					r.wait()
					r.at(p0, 5)
					if n := r.count(1); n != 2 {
						t.Errorf("offset 1 ran %d times", n)
					}
					if late != 1 {
						t.Errorf("%d late results were reported", late)
					}
					r.close()
				})
			})
		}
	}
}

// A partition comes back twice while the first ownership's handler runs; the
// handler of the second one is a zombie as well.
func TestZombiesOfTwoOwnerships(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		rs := []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "b"), rec(p0, 2, "a"), rec(p0, 3, "b")}
		r.Add(p0, 1, 0)
		a := r.block(0)
		r.Offer(p0, rs[:1], 4)
		r.wait()
		r.Lose([]TopicPartition{p0})
		r.Add(p0, 2, 0)
		b := r.block(1)
		r.Offer(p0, rs, 4)
		r.wait()
		r.Lose([]TopicPartition{p0})
		r.Add(p0, 3, 0)
		r.Offer(p0, rs, 4)
		r.wait()
		if got := r.startedNow(); !slices.Equal(got, []int64{0, 1}) {
			t.Fatalf("started %v, want 0 and 1 once", got)
		}
		r.on(0, nil)
		r.on(1, nil)
		b <- nil
		r.wait()
		if got := r.startedNow(); !slices.Equal(got, []int64{0, 1, 1, 3}) {
			t.Fatalf("started %v once lane b is free", got)
		}
		a <- errBad
		r.wait()
		r.at(p0, 4)
		r.close()
	})
}

// Run must not end while a handler runs, whether its partition is ours or not.
func TestDrainWaitsForZombies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Add(p0, 1, 0)
		answer := r.block(0)
		r.Offer(p0, keyless(p0, 0, 1), 1)
		r.wait()
		r.Lose([]TopicPartition{p0})
		r.Halt()
		if err := r.Drain(within(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain with a handler running: %v", err)
		}
		answer <- nil
		if err := r.Drain(within(time.Minute)); err != nil {
			t.Errorf("Drain: %v", err)
		}
		r.close()
	})
}

// H-039: P0 is revoked with 5 s to drain while P1 is busy. What P0's handlers
// achieve by then is in the final position, what comes later is not, and P1
// carries on.
func TestRevokeDrains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		need time.Duration
		want int64
	}{{time.Second, 1}, {9 * time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.Add(p0, 1, 0)
			r.Add(p1, 1, 0)
			r.on(0, func(_ context.Context, d *Delivery) error {
				if d.Record.Partition == 0 {
					time.Sleep(c.need)
				}
				return nil
			})
			r.Offer(p0, []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "a")}, 2)
			r.Offer(p1, keyless(p1, 0, 3), 3)
			r.wait()
			ps := r.Revoke(within(5*time.Second), []TopicPartition{p0})
			if len(ps) != 1 || ps[0].Offset != c.want {
				t.Errorf("final positions %+v, want offset %d", ps, c.want)
			}
			r.at(p1, 3)
			r.Offer(p1, keyless(p1, 3, 3), 6)
			r.pass(10 * time.Second)
			r.at(p1, 6)
			if n := r.count(1); n != 1 { // P1's
				t.Errorf("offset 1 of the partition that left was started")
			}
			r.close()
		})
	}
}

// H-085: a revoke, a loss and a stop interrupt a record that is tried for
// ever, in its back-off and in a call that heeds its context.
func TestInterruptedRetry(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*rig) []Position{
		"revoke": func(r *rig) []Position { return positions(r.Revoke(within(time.Second), []TopicPartition{p0})) },
		"lose":   func(r *rig) []Position { r.Lose([]TopicPartition{p0}); return nil },
		"stop": func(r *rig) []Position {
			r.Halt()
			_ = r.Drain(within(time.Second))
			r.Cancel(ErrStopping)
			_ = r.Drain(within(time.Second))
			return r.Positions()
		},
	} {
		for _, calling := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					letters := &letterBox{}
					r := newRig(t, func(c *Config) { c.Letters, c.MaxDeliveries = letters, 2 })
					r.Add(p0, 1, 0)
					r.on(0, func(ctx context.Context, d *Delivery) error {
						if calling {
							<-ctx.Done()
							return ctx.Err()
						}
						return failFor(time.Hour)
					})
					r.Offer(p0, keyless(p0, 0, 1), 1)
					r.wait()
					failed := r.counters.Failed
					for _, p := range leave(r) {
						if p.Offset != 0 {
							t.Errorf("final position %d", p.Offset)
						}
					}
					r.pass(3 * time.Hour)
					if n := r.count(0); n != 1 {
						t.Errorf("it ran %d times", n)
					}
					if r.counters.Failed != failed || len(letters.offsets()) > 0 {
						t.Errorf("an attempt was charged: %+v", r.Stats().Counters)
					}
					r.close()
				})
			})
		}
	}
}

// H-101: the limit is one record a partition, and partitions leave with
// handlers running, letters in flight and retries waiting.
func TestPermitsComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		letters := &letterBox{hold: true}
		r := newRig(t, func(c *Config) { c.Letters, c.MaxInFlight, c.Concurrency = letters, 3, 3 })
		tps := []TopicPartition{p0, p1, p2}
		for round := range int64(50) {
			for i, tp := range tps {
				r.Add(tp, round, 0)
				r.Offer(tp, keyless(tp, 0, 3), 3)
				_ = i
			}
			r.on(0, func(ctx context.Context, d *Delivery) error {
				switch (int64(d.Record.Partition) + round) % 3 {
				case 0:
					<-ctx.Done()
					return ctx.Err()
				case 1:
					return reject()
				default:
					return failFor(time.Hour)
				}
			})
			r.wait()
			if n := r.Stats().Unfinished; n != 3 {
				t.Fatalf("round %d: %d records are unfinished, want 3", round, n)
			}
			if round%2 == 0 {
				r.Lose(tps)
			} else {
				r.Revoke(ended(), tps)
			}
			r.wait()
			letters.answer(nil)
			r.wait()
			if s := r.Stats(); s.Unfinished != 0 || s.Running != 0 || s.Bytes != 0 || s.Staged != 0 {
				t.Fatalf("round %d: left behind: %+v", round, s)
			}
		}
		r.close()
	})
}

// Gaps and transaction markers: the frontier steps over what will never be a
// record, up to what was read, and not before what lies below is finished.
func TestFrontierStepsOverMarkers(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.Add(p0, 1, 10)
			r.at(p0, 10)
			answer := r.block(14)
			r.quick(quick)
			r.Offer(p0, []*kgo.Record{marker(p0, 11), rec(p0, 12, ""), rec(p0, 14, ""), marker(p0, 15)}, 16)
			r.pass(10 * time.Millisecond)
			r.at(p0, 14)
			r.Offer(p0, []*kgo.Record{marker(p0, 16), marker(p0, 18)}, 19)
			r.wait()
			r.at(p0, 14)
			answer <- nil
			r.wait()
			r.at(p0, 19)
			r.Offer(p0, []*kgo.Record{marker(p0, 30)}, 31)
			r.wait()
			r.at(p0, 31)
			r.Pause(p0)
			r.Offer(p0, []*kgo.Record{rec(p0, 31, "a"), rec(p0, 32, "b")}, 40)
			r.Offer(p0, []*kgo.Record{marker(p0, 33), marker(p0, 34)}, 40)
			r.wait()
			r.at(p0, 31)
			r.Resume(p0)
			r.wait()
			r.at(p0, 35)
			r.close()
		})
	}
}

// Markers that come while a run is under way belong behind its records,
// however the run ends.
func TestMarkersBehindARun(t *testing.T) {
	t.Parallel()
	for _, last := range []error{nil, errBad} {
		for _, patrol := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.Add(p0, 1, 0)
				answer := make(chan error, 1)
				for _, o := range []int64{1, 3} {
					r.on(o, func(context.Context, *Delivery) error {
						if o == 3 {
							return last
						}
						return r.until(answer)
					})
				}
				r.quick(true)
				r.Offer(p0, keyless(p0, 0, 4), 10)
				r.wait()
				r.Offer(p0, []*kgo.Record{marker(p0, 4), marker(p0, 5)}, 10)
				r.wait()
				r.at(p0, 0)
				if patrol {
					r.pass(10 * time.Millisecond)
					r.at(p0, 1)
				}
				answer <- nil
				r.wait()
				if last == nil {
					r.at(p0, 6)
				} else {
					r.at(p0, 3)
				}
				r.close()
			})
		}
	}
}

// The epoch of a position is that of the record before it.
func TestPositionEpoch(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, nil)
			r.Add(p0, 9, -1)
			fence, _ := r.Begin([]Start{{TopicPartition: p0, Offset: 10, Epoch: 3, End: -1, Stored: &progress.Progress{Fence: 1 << 50, Suspect: -1}}})
			r.confirm()
			if p := r.Positions(p0)[0]; p.Epoch != 3 || p.Offset != 10 || p.Fence != fence || fence != 1<<50+1 {
				t.Errorf("at the start: %+v", p)
			}
			var rs []*kgo.Record
			for o := int64(10); o < 20; o++ {
				x := rec(p0, o, "")
				x.LeaderEpoch = 4
				if o >= 15 {
					x.LeaderEpoch = 6
				}
				rs = append(rs, x)
			}
			answers := map[int64]chan<- error{10: r.block(10), 15: r.block(15), 16: r.block(16)}
			r.quick(quick)
			r.Offer(p0, rs, 20)
			for _, want := range []struct {
				offset int64
				epoch  int32
			}{{10, 3}, {15, 4}, {16, 6}, {20, 6}} {
				r.pass(10 * time.Millisecond)
				if p := r.Positions(p0)[0]; p.Epoch != want.epoch || p.Offset != want.offset {
					t.Errorf("position %+v, want %+v", p, want)
				}
				if c := answers[want.offset]; c != nil {
					c <- nil
				}
			}
			r.close()
		})
	}
}

// Records read for an ownership that is over are dropped and counted.
func TestOfferToNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.Offer(p0, keyless(p0, 0, 3), 3)
		r.Add(p0, 1, 0)
		r.Lose([]TopicPartition{p0})
		r.Offer(p0, keyless(p0, 0, 3), 3)
		r.Halt()
		r.Add(p0, 2, 0)
		r.Offer(p0, keyless(p0, 0, 3), 3)
		r.wait()
		if n := r.Stats().Dropped; n != 9 || len(r.startedNow()) > 0 {
			t.Errorf("%d dropped, %v started", n, r.startedNow())
		}
		r.close()
	})
}

// Close in each state that a record can be in leaves nothing behind.
func TestCloseInEveryState(t *testing.T) {
	t.Parallel()
	for name, quick := range map[string]bool{"lanes": false, "runs": true} {
		for _, at := range []int64{0, 3, 7} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					letters := &letterBox{hold: true}
					r := newRig(t, func(c *Config) { c.Letters, c.Concurrency = letters, 2 })
					answer := r.block(at)
					r.on(4, func(context.Context, *Delivery) error { return reject() })
					r.on(5, func(context.Context, *Delivery) error { return failFor(time.Hour) })
					r.Add(p0, 1, 0)
					r.Add(p1, 1, -1)
					r.quick(quick)
					r.Offer(p0, keyless(p0, 0, 8), 8)
					r.wait()
					r.Close()
					if ps := r.Positions(); len(ps) > 0 {
						t.Errorf("positions after Close: %+v", ps)
					}
					letters.answer(nil)
					answer <- nil
					r.pass(2 * time.Hour)
					r.close()
				})
			})
		}
	}
}

// A worker holds four records and runs the first when their partition is lost.
func TestLoseWhatABatchHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Concurrency = 1 })
		r.Add(p0, 1, 0)
		r.on(0, func(context.Context, *Delivery) error { return snooze(time.Hour) })
		r.Offer(p0, keyless(p0, 0, 1), 5) // keeps a run away
		r.wait()
		answer := r.block(1)
		r.quick(true)
		r.Pause(p0)
		r.Offer(p0, keyless(p0, 1, 4), 5)
		r.Resume(p0)
		r.wait()
		r.Lose([]TopicPartition{p0})
		r.wait()
		if n := r.Stats().Running; n != 0 {
			t.Errorf("%d records of ours are in work", n)
		}
		answer <- nil
		r.wait()
		if n := len(r.startedNow()); n != 2 {
			t.Errorf("%d handlers were started, want 2", n)
		}
		r.close()
	})
}

// A revoke, a pause or a stop finds a run under way: no further record of it is
// begun.
func TestRunIsStopped(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*rig) int64{
		"revoke": func(r *rig) int64 { return r.Revoke(context.Background(), []TopicPartition{p0})[0].Offset },
		"pause": func(r *rig) int64 {
			r.Pause(p0)
			for r.Positions(p0)[0].Offset < 3 {
				time.Sleep(time.Millisecond)
			}
			return r.Positions(p0)[0].Offset
		},
		"halt": func(r *rig) int64 {
			r.Halt()
			_ = r.Drain(context.Background())
			return r.Positions(p0)[0].Offset
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.Add(p0, 1, 0)
				answer := r.block(2)
				r.quick(true)
				r.Offer(p0, keyless(p0, 0, 10), 10)
				r.wait()
				final := make(chan int64, 1)
				go func() { final <- stop(r) }()
				r.wait()
				answer <- nil
				r.pass(10 * time.Millisecond)
				if at := <-final; at != 3 {
					t.Errorf("final position %d, want 3", at)
				}
				if got := r.startedNow(); !slices.Equal(got, []int64{0, 1, 2}) {
					t.Errorf("started %v", got)
				}
				r.close()
			})
		})
	}
}
