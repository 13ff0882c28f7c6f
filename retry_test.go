package fronta_test

// Retries: when a record comes again, what waits with it and what does not.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// H-074, P-2: the first record of a lane needs three tries. The lane completes
// in the order of offsets, and other keys do not wait.
func TestOrderUnderRetries(t *testing.T) {
	for name, protocol := range map[string]fronta.Protocol{"classic": fronta.ClassicProtocol, "consumer": fronta.ConsumerProtocol} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("k", "0"), record("k", "1"), record("x", "a"), record("k", "2"), record("y", "b"), record("k", "3"), record("k", "4"))
				cfg := b.config()
				cfg.Protocol, cfg.Retry = protocol, fronta.ConstantBackoff(time.Second)
				watch := newLanes(b.t)
				var k, others journal
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
					return watch.run(string(r.Key), r, func() error {
						if string(r.Key) != "k" {
							others.add(r)
							return nil
						}
						k.add(r)
						if r.Offset == 0 && r.DeliveryCount < 3 {
							return errDeclined
						}
						return nil
					})
				})
				others.wait(b.t, 2)
				k.wait(b.t, 7)
				b.until("the commit", func() bool { return b.committed(0) == 7 })
				c.stop()
				if d := cmp.Diff([]int64{0, 0, 0, 1, 3, 5, 6}, k.offsets()); d != "" {
					t.Errorf("lane k: %s", d)
				}
				begin := k.all()[0].at
				if d := k.all()[2].at.Sub(begin).Round(10 * time.Millisecond); d != 2*time.Second {
					t.Errorf("the third try came after %s, want 2 s", d)
				}
				for _, e := range others.all() {
					if e.at.Sub(begin) > time.Second {
						t.Errorf("%s waited for another key", e.key)
					}
				}
			})
		})
	}
}

// H-074: a record that is dead-lettered frees its lane only then.
func TestLaneWaitsForTheDeadLetter(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("k", "0"), record("k", "1"), record("x", "a"))
		cfg := b.config()
		cfg.Retry, cfg.DeadLetter, cfg.MaxDeliveries = fronta.ConstantBackoff(time.Second), fronta.DeadLetterTopic(letters), 3
		hook := new(recorder)
		cfg.Hooks = []any{hook}
		var calls journal
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			calls.add(r)
			if r.Offset == 0 {
				return errDeclined
			}
			return nil
		})
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		c.stop()
		// H-076: exactly three calls, and nothing brings the record back.
		if d := cmp.Diff([]int64{0, 2, 0, 0, 1}, calls.offsets()); d != "" {
			b.t.Error(d)
		}
		if at := hook.of("dead-lettered")[0].at; calls.all()[4].at.Before(at.Add(-time.Millisecond)) {
			b.t.Error("the next record ran before the dead letter was acknowledged")
		}
	})
}

// H-076: the handler is called exactly MaxDeliveries times, and then never again,
// also by the group's next consumer.
func TestExactDeliveries(t *testing.T) {
	for _, most := range []int{1, 2, 3} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(numbered(20, 20)...)
				cfg := b.config()
				cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry = fronta.DeadLetterTopic(letters), most, fronta.ConstantBackoff(time.Second)
				var calls journal
				handler := func(_ context.Context, r *fronta.Record) error { calls.add(r); return errDeclined }
				c := b.run(cfg, handler)
				b.until("all is done", func() bool { return b.committed(0) == 20 })
				time.Sleep(10 * time.Minute)
				c.stop()
				c = b.run(cfg, handler)
				time.Sleep(time.Minute)
				c.stop()
				if n := calls.len(); n != 20*most {
					t.Errorf("%d calls, want %d", n, 20*most)
				}
				dead := b.deadLetters()
				if len(dead) != 20 {
					t.Errorf("%d dead letters, want 20", len(dead))
				}
				for _, d := range dead {
					if d.DeliveryCount != most || d.Reason != deadletter.Deliveries {
						t.Errorf("dead letter of offset %d: %d deliveries, %q", d.Origin.Offset, d.DeliveryCount, d.Reason)
					}
				}
			})
		})
	}
}

// MaxDeliveries without end.
func TestUnlimitedDeliveries(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		cfg := b.config()
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry = fronta.DeadLetterTopic(letters), fronta.Unlimited, fronta.ConstantBackoff(time.Second)
		var calls journal
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error { calls.add(r); return errDeclined })
		calls.wait(b.t, 500)
		c.stop()
		if n := len(b.deadLetters()); n != 0 {
			b.t.Errorf("%d dead letters", n)
		}
		if n := calls.all()[499].delivery; n != 500 {
			b.t.Errorf("the 500th call has the delivery count %d", n)
		}
	})
}

// H-071: retries of three keys come when they are due, whatever the order in
// which they began to wait.
func TestRetriesComeWhenDue(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		delays := map[string]time.Duration{"nine": 9 * time.Second, "one": time.Second, "five": 5 * time.Second}
		b.produce(record("nine", ""), record("one", ""), record("five", ""), record("nine", "next"))
		var again journal
		var begin time.Time
		c := b.run(b.config(), func(_ context.Context, r *fronta.Record) error {
			if string(r.Value) == "" && r.DeliveryCount == 1 {
				if begin.IsZero() {
					begin = time.Now()
				}
				return fronta.RetryAfter(delays[string(r.Key)], errDeclined)
			}
			again.add(r)
			return nil
		})
		again.wait(b.t, 4)
		c.stop()
		if d := cmp.Diff([]int64{1, 2, 0, 3}, again.offsets()); d != "" {
			b.t.Error(d)
		}
		for i, want := range []time.Duration{1, 5, 9, 9} {
			if d := again.all()[i].at.Sub(begin); d.Round(50*time.Millisecond) != want*time.Second {
				b.t.Errorf("call %d came after %s, want %d s", i, d, want)
			}
		}
	})
}

// H-073: the gaps are those of the policy, within the stated jitter, and no
// gap exceeds the cap.
func TestRetryPolicies(t *testing.T) {
	s := time.Second
	for name, tt := range map[string]struct {
		policy fronta.RetryPolicy
		want   []time.Duration
		jitter float64
	}{
		"steps":          {fronta.BackoffSteps{s, 10 * s, 60 * s}, []time.Duration{s, 10 * s, 60 * s, 60 * s, 60 * s}, 0},
		"one step":       {fronta.BackoffSteps{2 * s}, []time.Duration{2 * s, 2 * s}, 0},
		"no delay":       {fronta.ConstantBackoff(0), []time.Duration{0, 0, 0}, 0},
		"constant":       {fronta.ConstantBackoff(7 * s), []time.Duration{7 * s, 7 * s, 7 * s}, 0},
		"exponential":    {fronta.ExponentialBackoff{}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s, 300 * s}, 0.2},
		"without jitter": {fronta.ExponentialBackoff{Initial: s, Factor: 3, Max: 20 * s, Jitter: -1}, []time.Duration{s, 3 * s, 9 * s, 20 * s, 20 * s}, 0},
		"all jitter":     {fronta.ExponentialBackoff{Initial: 4 * s, Factor: 1, Jitter: 1}, []time.Duration{4 * s, 4 * s, 4 * s, 4 * s}, 1},
		"function": {fronta.RetryFunc(func(r *fronta.Record, err error) time.Duration {
			return time.Duration(len(err.Error())*r.DeliveryCount) * s
		}), []time.Duration{13 * s, 26 * s}, 0},
		"below zero":       {fronta.RetryFunc(func(*fronta.Record, error) time.Duration { return -time.Hour }), []time.Duration{0, 0}, 0},
		"policy panics":    {fronta.RetryFunc(func(*fronta.Record, error) time.Duration { panic("no idea") }), []time.Duration{s, s}, 0},
		"initial over max": {fronta.ExponentialBackoff{Initial: 10 * time.Minute, Jitter: -1}, []time.Duration{10 * time.Minute, 10 * time.Minute}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", ""))
				cfg := b.config()
				cfg.Retry = tt.policy
				var calls journal
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
					calls.add(r)
					if r.DeliveryCount > len(tt.want) {
						return nil
					}
					return errDeclined
				})
				b.until("it is done", func() bool { return c.Stats().Accepted == 1 })
				c.stop()
				got := calls.all()
				for i, want := range tt.want {
					gap := got[i+1].at.Sub(got[i].at)
					least := time.Duration(float64(want) * (1 - tt.jitter))
					if gap < least || gap > want+10*time.Millisecond {
						t.Errorf("gap %d is %s, want %s to %s", i+1, gap, least, want)
					}
				}
			})
		})
	}
}

// Jitter parts records that failed together.
func TestJitterParts(t *testing.T) {
	t.Parallel()
	seen := make(map[time.Duration]bool)
	r := &fronta.Record{Record: &kgo.Record{}, DeliveryCount: 3}
	for range 100 {
		d := fronta.ExponentialBackoff{}.Delay(r, errDeclined)
		if d > 4*time.Second || d < 3200*time.Millisecond {
			t.Errorf("delay %s", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different delays of 100", len(seen))
	}
	// A count that is out of all proportion is no overflow.
	for _, n := range []int{-1, 0, 64, 1 << 40} {
		r.DeliveryCount = n
		if d := (fronta.ExponentialBackoff{}).Delay(r, nil); d <= 0 || d > 5*time.Minute {
			t.Errorf("delay after %d deliveries: %s", n, d)
		}
		if d := (fronta.BackoffSteps{1, 2}).Delay(r, nil); d < 1 || d > 2 {
			t.Errorf("step after %d deliveries: %s", n, d)
		}
	}
}

// P-5: a retry that waits holds neither a place in Concurrency nor a goroutine,
// however many wait.
func TestWaitingRetriesHoldNothing(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		const n = 10_000
		b.produce(numbered(n, n)...)
		b.produce(record("other", "other"))
		cfg := b.config()
		cfg.Concurrency, cfg.MaxInFlight, cfg.Retry = 1, n+100, fronta.ConstantBackoff(10*time.Hour)
		cfg.MaxBufferedBytes = 1 << 30
		var others journal
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			if string(r.Value) != "other" {
				return errDeclined
			}
			others.add(r)
			return nil
		})
		others.wait(b.t, 1)
		s := c.Stats()
		if s.Waiting != n || s.Running != 0 || s.Workers > 1 || s.Unfinished != n {
			b.t.Errorf("waiting %d, running %d, workers %d, unfinished %d", s.Waiting, s.Running, s.Workers, s.Unfinished)
		}
		for i := range 10 {
			b.produce(record("more"+strconv.Itoa(i), "other"))
		}
		begin := time.Now()
		others.wait(b.t, 11)
		if d := time.Since(begin); d > 2*time.Second {
			b.t.Errorf("others waited %s", d)
		}
		c.stop()
		b.wantCommitted(0, 0)
	})
}

// H-105: a key that fails for ever leaves nothing behind in Stats.
func TestManyFailuresOfOneKey(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", ""), record("a", "next"))
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(0)
		var n int
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			if r.Offset == 0 {
				if n++; n < 20_000 {
					return fmt.Errorf("failure %d", n)
				}
			}
			return nil
		})
		b.until("all is done", func() bool { return b.committed(0) == 2 })
		if s := c.Stats(); s.Failed != 19_999 || s.Retried != 19_999 || s.Unfinished != 0 || s.Bytes != 0 || len(s.Partitions[0].Blocked) != 0 {
			b.t.Errorf("%+v", s)
		}
		c.stop()
	})
}

// A record of a lane that waits long is not overtaken by what comes in later
// fetches.
func TestLaneWaitsAcrossFetches(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "0"))
		var calls journal
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(time.Minute)
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			calls.add(r)
			if r.Offset == 0 && r.DeliveryCount < 3 {
				return errDeclined
			}
			return nil
		})
		for i := range 10 {
			time.Sleep(5 * time.Second)
			b.produce(record("a", strconv.Itoa(i)), record("b", ""))
		}
		b.until("all is done", func() bool { return b.committed(0) == 21 })
		c.stop()
		var a []int64
		for _, e := range calls.all() {
			if string(e.key) == "a" {
				a = append(a, e.offset)
			}
		}
		if !slices.IsSorted(a) || len(a) != 13 {
			b.t.Errorf("lane a ran as %v", a)
		}
	})
}
