package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/twmb/franz-go/pkg/kgo"
)

func newPull(t *testing.T, change func(*Config)) *rig {
	return newRig(t, func(c *Config) {
		c.Handle = nil
		if change != nil {
			change(c)
		}
	})
}

func (r *rig) receive() Pulled {
	r.t.Helper()
	p, err := r.Receive(within(time.Second))
	if err != nil {
		r.t.Fatalf("Receive: %v", err)
	}
	return p
}

// none demands that nothing is to be had.
func (r *rig) none() {
	r.t.Helper()
	if p, err := r.Receive(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatalf("Receive: %v, %v", p, err)
	}
	r.wait()
}

func (r *rig) settle(p Pulled, out Outcome, want error) {
	r.t.Helper()
	if err := r.Settle(p, out); !errors.Is(err, want) {
		r.t.Errorf("settling offset %d with %+v: %v, want %v", p.Delivery().Offset, out, err, want)
	}
	r.wait()
}

// H-094: out of records 0–9, 3 is released and 5 and 8 are accepted.
func TestReleaseComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newPull(t, nil)
		r.Add(p0, 1, 0)
		r.Offer(p0, keyless(p0, 0, 10), 10)
		out := make(map[int64]Pulled)
		for range 10 {
			p := r.receive()
			out[p.At().Offset] = p
		}
		r.settle(out[3], Outcome{Verb: Snooze}, nil)
		r.settle(out[5], Outcome{}, nil)
		r.settle(out[8], Outcome{}, nil)
		r.pass(time.Second)
		again := r.receive()
		if again.At().Offset != 3 || again.Delivery().DeliveryCount != 1 {
			t.Fatalf("delivered again: %+v", again.Delivery())
		}
		r.at(p0, 0)
		r.settle(again, Outcome{}, nil)
		r.settle(out[3], Outcome{}, ErrSettled)
		for _, o := range []int64{9, 7, 6, 4, 2, 1, 0} {
			r.settle(out[o], Outcome{}, nil)
		}
		r.at(p0, 10)
		if s := r.Stats(); s.Out != 0 || s.Running != 0 || s.Bytes != 0 || s.Accepted != 10 {
			t.Errorf("%+v", s)
		}
		r.close()
	})
}

// H-088: two verbs on one delivery. The first counts, the second is refused
// and changes nothing; after a revoke each is refused.
func TestTwoVerbs(t *testing.T) {
	t.Parallel()
	verbs := map[string]func(*rig, Pulled) error{
		"accept":  func(r *rig, p Pulled) error { return r.Settle(p, Outcome{}) },
		"release": func(r *rig, p Pulled) error { return r.Settle(p, Outcome{Verb: Snooze, Delay: time.Hour}) },
		"fail":    func(r *rig, p Pulled) error { return r.Settle(p, Outcome{Verb: Fail, Err: errBad}) },
		"reject":  func(r *rig, p Pulled) error { return r.Settle(p, Outcome{Verb: Reject, Err: errBad}) },
		"renew":   func(r *rig, p Pulled) error { return r.Renew(p) },
		"drop":    func(r *rig, p Pulled) error { r.Dropped(p); return nil },
	}
	for first, do := range verbs {
		for second, then := range verbs {
			t.Run(first+" "+second, func(t *testing.T) {
				t.Parallel()
				for _, how := range []string{"in turn", "at once", "revoked", "revoked between"} {
					synctest.Test(t, func(t *testing.T) {
						r := newPull(t, func(c *Config) {
							c.HandlerTimeout, c.Letters = time.Minute, &letterBox{hold: true}
							// A policy looks at the failures so far.
							c.Backoff = func(d *Delivery, _ error) time.Duration {
								if d.Failure != nil && d.Failure.Err == nil {
									return 0
								}
								return time.Duration(d.DeliveryCount) * time.Minute
							}
						})
						r.Add(p0, 1, 0)
						r.Offer(p0, keyless(p0, 0, 1), 1)
						p := r.receive()
						var e1, e2 error
						revoke := func() { r.Revoke(ended(), []TopicPartition{p0}) }
						switch how {
						case "revoked":
							revoke()
							e1, e2 = do(r, p), then(r, p)
							if first != "drop" && e1 != ErrLost || second != "drop" && e2 != ErrLost {
								t.Errorf("%v after a revoke: %v and %v", []string{first, second}, e1, e2)
							}
						case "revoked between":
							e1 = do(r, p)
							revoke()
							e2 = then(r, p)
							if e1 != nil || second != "drop" && e2 != ErrLost {
								t.Errorf("%v around a revoke: %v and %v", []string{first, second}, e1, e2)
							}
						case "in turn":
							e1, e2 = do(r, p), then(r, p)
							want := ErrSettled
							if first == "renew" || second == "drop" {
								want = nil
							}
							if e1 != nil || e2 != want {
								t.Errorf("%v in turn: %v and %v", []string{first, second}, e1, e2)
							}
						case "at once":
							var wg sync.WaitGroup
							wg.Go(func() { e1 = do(r, p) })
							wg.Go(func() { e2 = then(r, p) })
							wg.Wait()
							if first != "renew" && second != "renew" && first != "drop" && second != "drop" && (e1 == nil) == (e2 == nil) {
								t.Errorf("%v at once: %v and %v", []string{first, second}, e1, e2)
							}
						}
						r.wait()
						if s := r.Stats(); s.Accepted+s.Failed+s.Snoozed+s.Rejected > 1 {
							t.Errorf("%s: %v counted twice: %+v", how, []string{first, second}, s.Counters)
						}
						if first == "renew" && second == "renew" {
							_ = r.Settle(p, Outcome{})
						}
						if s := r.Stats(); s.Out != 0 && how != "at once" && (first != "renew" || second != "renew") {
							t.Errorf("%s %v: %d out", how, []string{first, second}, s.Out)
						}
						_ = r.Settle(p, Outcome{})
						r.wait()
						r.close()
					})
				}
			})
		}
	}
}

// H-089: deliveries that nobody settles are reported; HandlerTimeout releases
// them, Renew moves that on, and a dropped one is released at once.
func TestPulledDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var stuck []string
		r := newPull(t, func(c *Config) {
			c.HandlerTimeout, c.StuckAfter = time.Hour, 10*time.Minute
			c.Backoff = func(*Delivery, error) time.Duration { return 0 }
			c.Events.Stuck = func(d *Delivery, age time.Duration, released bool) {
				mu.Lock()
				defer mu.Unlock()
				stuck = append(stuck, fmt.Sprintf("%d %v %v", d.Offset, age >= 10*time.Minute, released))
			}
		})
		r.Add(p0, 1, 0)
		r.Offer(p0, []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "a"), rec(p0, 2, "b")}, 3)
		p := r.receive()
		b := r.receive()
		r.settle(b, Outcome{}, nil)
		r.none()
		r.pass(59 * time.Minute)
		if err := r.Renew(p); err != nil {
			t.Errorf("Renew: %v", err)
		}
		r.pass(59 * time.Minute)
		if err := r.Renew(p); err != nil {
			t.Errorf("Renew: %v", err)
		}
		r.expire(p.t) // the timer had fired before Renew took the lock
		if err := r.Renew(p); err != nil {
			t.Errorf("Renew in the instant of the deadline, and again: %v", err)
		}
		r.pass(61 * time.Minute)
		r.settle(p, Outcome{}, ErrSettled)
		if err := r.Renew(p); err != ErrSettled {
			t.Errorf("Renew after the deadline: %v", err)
		}
		again := r.receive()
		if again.At().Offset != 0 || again.Delivery().DeliveryCount != 2 || !errors.Is(again.Delivery().Failure.Err, ErrHandlerTimeout) {
			t.Errorf("after the deadline: %+v", again.Delivery())
		}
		r.Dropped(again)
		r.wait()
		again = r.receive()
		if again.At().Offset != 0 || again.Delivery().DeliveryCount != 3 || !errors.Is(again.Delivery().Failure.Err, ErrDropped) {
			t.Errorf("after the drop: %+v", again.Delivery())
		}
		r.settle(again, Outcome{}, nil)
		r.settle(r.receive(), Outcome{}, nil)
		r.at(p0, 3)
		mu.Lock()
		if len(stuck) < 3 || stuck[0] != "0 true false" || stuck[len(stuck)-2] != "0 true true" || stuck[len(stuck)-1] != "0 false true" {
			t.Errorf("reported %q", stuck)
		}
		mu.Unlock()
		if s := r.Stats(); s.Expired != 2 || s.Out != 0 {
			t.Errorf("%+v", s.Counters)
		}
		r.close()
	})
}

// A delivery that is out when its partition is lost keeps its lane closed until
// it is settled, its deadline passes or it is dropped, and is reported.
func TestPulledZombie(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig, Pulled){
		"settled": func(r *rig, p Pulled) { r.settle(p, Outcome{}, ErrLost) },
		"dropped": func(r *rig, p Pulled) { r.Dropped(p) },
		"expired": func(r *rig, p Pulled) { r.pass(2 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var stuck atomic.Int32
				r := newPull(t, func(c *Config) {
					c.HandlerTimeout, c.StuckAfter = time.Hour, 10*time.Minute
					c.Events.Stuck = func(*Delivery, time.Duration, bool) { stuck.Add(1) }
				})
				rs := []*kgo.Record{rec(p0, 0, "a"), rec(p0, 1, "a"), rec(p0, 2, "b")}
				r.Add(p0, 1, 0)
				r.Offer(p0, rs, 3)
				p := r.receive()
				r.Lose([]TopicPartition{p0})
				r.Add(p0, 2, 0)
				r.Offer(p0, rs, 3)
				if got := r.receive(); got.At().Offset != 2 {
					t.Fatalf("offset %d was handed out", got.At().Offset)
				} else {
					r.settle(got, Outcome{}, nil)
				}
				r.none()
				r.pass(20 * time.Minute)
				if n := stuck.Load(); n != 1 {
					t.Errorf("reported %d times", n)
				}
				end(r, p)
				r.wait()
				if n := r.Stats().Out; n != 0 {
					t.Errorf("%d deliveries are out", n)
				}
				r.settle(p, Outcome{}, ErrLost)
				for want := range int64(2) {
					got := r.receive()
					if got.At().Offset != want {
						t.Errorf("got offset %d, want %d", got.At().Offset, want)
					}
					r.settle(got, Outcome{}, nil)
				}
				r.at(p0, 3)
				r.close()
			})
		})
	}
}

// Receive: who waits longest is served first, Concurrency bounds what is out,
// and the engine's end and the caller's context end the wait.
func TestReceiveWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newPull(t, func(c *Config) { c.Concurrency = 2 })
		r.Add(p0, 1, 0)
		got := make(chan int64, 10)
		errs := make(chan error, 10)
		var held sync.Map
		for i := range 3 {
			go func() {
				p, err := r.Receive(context.Background())
				if err != nil {
					errs <- err
					return
				}
				held.Store(p.At().Offset, p)
				got <- p.At().Offset*10 + int64(i)
			}()
			r.wait()
		}
		r.Offer(p0, keyless(p0, 0, 5), 5)
		r.wait()
		if a, b := <-got, <-got; a+b != 0+11 || len(got) > 0 {
			t.Errorf("handed out %d and %d", a, b)
		}
		p, _ := held.Load(int64(0))
		r.settle(p.(Pulled), Outcome{}, nil)
		if a := <-got; a != 22 {
			t.Errorf("handed out %d", a)
		}
		go func() { _, err := r.Receive(context.Background()); errs <- err }()
		r.wait()
		gone, cancel := context.WithCancelCause(context.Background())
		cancel(errBad)
		if _, err := r.Receive(gone); err != errBad {
			t.Errorf("Receive under a context that is over: %v", err)
		}
		r.none()
		r.Halt()
		if err := <-errs; err != ErrStopping {
			t.Errorf("Receive while the engine stops: %v", err)
		}
		if _, err := r.Receive(context.Background()); err != ErrStopping {
			t.Errorf("Receive of a stopped engine: %v", err)
		}
		if err := r.Drain(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain with deliveries out: %v", err)
		}
		for _, o := range []int64{1, 2} {
			p, _ := held.Load(o)
			r.settle(p.(Pulled), Outcome{}, nil)
		}
		if err := r.Drain(within(time.Second)); err != nil {
			t.Errorf("Drain: %v", err)
		}
		r.at(p0, 3)
		r.Fail(errBad)
		if _, err := r.Receive(context.Background()); err != errBad {
			t.Errorf("Receive of a failed engine: %v", err)
		}
		r.close()
	})
}

// A record whose key function failed is handed out to nobody.
func TestPulledKeyFunctionFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newPull(t, func(c *Config) {
			c.Discard, c.MaxDeliveries, c.LaneInside = true, 2, false
			c.Lane = func(x *kgo.Record) (queue.Lane, error) {
				if x.Offset == 0 {
					return queue.Alone, errBad
				}
				return lane(x)
			}
		})
		r.Add(p0, 1, 0)
		r.Offer(p0, keyless(p0, 0, 2), 2)
		p := r.receive()
		if p.At().Offset != 1 {
			t.Errorf("offset %d was handed out", p.At().Offset)
		}
		r.settle(p, Outcome{}, nil)
		go func() {
			time.Sleep(time.Hour)
			r.Halt()
		}()
		if _, err := r.Receive(context.Background()); err != ErrStopping {
			t.Errorf("Receive: %v", err)
		}
		r.at(p0, 2)
		r.close()
	})
}

// Many callers receive and settle in every way while partitions come and go
// and deadlines pass: nothing is handed out twice at once, all of it ends.
func TestPullStress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, callers = 3000, 20
		r := newPull(t, func(c *Config) {
			c.Concurrency, c.HandlerTimeout, c.StuckAfter = 12, time.Minute, 30*time.Second
			c.Letters = &letterBox{fail: func(l Letter) error {
				if l.Record.Offset%2 == 0 && l.Deliveries%2 == 1 {
					return nil
				}
				return nil
			}}
		})
		var rs []*kgo.Record
		for o := range int64(n) {
			rs = append(rs, rec(p0, o, fmt.Sprint(o%97)))
		}
		var out sync.Map
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for x := uint64(i); ; x++ {
					p, err := r.Receive(context.Background())
					if err != nil {
						return
					}
					key := string(p.Delivery().Key)
					if other, loaded := out.LoadOrStore(key, p); loaded {
						t.Errorf("lane %s is out twice: offsets %d and %d", key, other.(Pulled).At().Offset, p.At().Offset)
					}
					verb := mix(x, uint64(p.At().Offset)) % 16
					time.Sleep(time.Duration(verb) * time.Second)
					if verb == 2 {
						_ = r.Renew(p)
						time.Sleep(50 * time.Second)
					}
					out.Delete(key)
					switch {
					case verb == 3 && p.Delivery().DeliveryCount < 3:
						_ = r.Settle(p, Outcome{Verb: Fail, Err: errBad, Delay: time.Second, Timed: true})
					case verb == 4:
						_ = r.Settle(p, Outcome{Verb: Snooze, Delay: time.Second})
					case verb == 5:
						_ = r.Settle(p, Outcome{Verb: Reject, Err: errBad})
					case verb == 6 && p.Delivery().DeliveryCount < 3:
						time.Sleep(2 * time.Minute) // its deadline passes
					case verb == 7 && p.Delivery().DeliveryCount < 3:
						r.Dropped(p)
					case verb == 8:
						go func() { _ = r.Settle(p, Outcome{Verb: Fail, Err: errBad}) }()
						_ = r.Settle(p, Outcome{Verb: Fail, Err: errBad})
					default:
						_ = r.Settle(p, Outcome{})
					}
				}
			})
		}
		at := int64(0)
		for round := int64(0); at < n; round++ {
			r.Add(p0, round, at)
			read := at
			for range 20 {
				k := min(read+200, n)
				r.Offer(p0, rs[read:k], n)
				read = k
				r.pass(20 * time.Second)
			}
			ps := r.Revoke(within(10*time.Second), []TopicPartition{p0})
			if ps[0].Offset < at {
				t.Errorf("position %d after %d", ps[0].Offset, at)
			}
			at = ps[0].Offset
			r.wait()
		}
		r.Halt()
		wg.Wait()
		r.close()
	})
}
