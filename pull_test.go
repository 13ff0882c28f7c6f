package fronta_test

// The pull API: Receive and the verbs of Delivery keep the promises of Run.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/fake"
)

func (b *bench) receive(c *fronta.Consumer) *fronta.Delivery {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Minute)
	defer cancel()
	d, err := c.Receive(ctx)
	if err != nil {
		b.t.Fatalf("Receive: %v", err)
	}
	return d
}

// nothing checks that no delivery comes for a while.
func (b *bench) nothing(c *fronta.Consumer, d time.Duration) {
	b.t.Helper()
	cause := errors.New("nothing came")
	ctx, cancel := context.WithTimeoutCause(b.t.Context(), d, cause)
	defer cancel()
	if d, err := c.Receive(ctx); err != cause {
		b.t.Fatalf("Receive: %v, %v; want the cause of the context", d, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Every verb does to the record what the handler's outcome of that name does.
func TestVerbs(t *testing.T) {
	type step struct {
		verb     func(*fronta.Delivery) error
		delivery int           // the count of the delivery that the verb is used on
		after    time.Duration // since the verb before
	}
	accept := func(d *fronta.Delivery) error { return d.Accept() }
	for name, tt := range map[string]struct {
		steps []step
		dead  deadletter.Reason
	}{
		"accept":              {[]step{{accept, 1, 0}}, ""},
		"release":             {[]step{{func(d *fronta.Delivery) error { return d.Release(7 * time.Second) }, 1, 0}, {accept, 1, 7 * time.Second}}, ""},
		"release at once":     {[]step{{func(d *fronta.Delivery) error { return d.Release(0) }, 1, 0}, {accept, 1, 0}}, ""},
		"release in the past": {[]step{{func(d *fronta.Delivery) error { return d.Release(-time.Hour) }, 1, 0}, {accept, 1, 0}}, ""},
		"fail":                {[]step{{func(d *fronta.Delivery) error { return d.Fail(errDeclined) }, 1, 0}, {accept, 2, 5 * time.Second}}, ""},
		"fail for the last time": {[]step{
			{func(d *fronta.Delivery) error { return d.Fail(errDeclined) }, 1, 0},
			{func(d *fronta.Delivery) error { return d.Fail(errDeclined) }, 2, 5 * time.Second},
		}, deadletter.Deliveries},
		"fail with nil": {[]step{{func(d *fronta.Delivery) error { return d.Fail(nil) }, 1, 0}}, ""},
		"fail with retry after": {[]step{{func(d *fronta.Delivery) error {
			return d.Fail(fmt.Errorf("w: %w", fronta.RetryAfter(9*time.Second, errDeclined)))
		}, 1, 0}, {accept, 2, 9 * time.Second}}, ""},
		"fail with snooze":      {[]step{{func(d *fronta.Delivery) error { return d.Fail(fronta.Snooze(9 * time.Second)) }, 1, 0}, {accept, 1, 9 * time.Second}}, ""},
		"fail with reject":      {[]step{{func(d *fronta.Delivery) error { return d.Fail(fronta.Reject(errDeclined)) }, 1, 0}}, deadletter.Rejected},
		"reject":                {[]step{{func(d *fronta.Delivery) error { return d.Reject(errDeclined) }, 1, 0}}, deadletter.Rejected},
		"reject without reason": {[]step{{func(d *fronta.Delivery) error { return d.Reject(nil) }, 1, 0}}, deadletter.Rejected},
		"renew":                 {[]step{{func(d *fronta.Delivery) error { return errors.Join(d.Renew(), d.Renew(), d.Accept()) }, 1, 0}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", "1"), record("a", "2"))
				cfg := b.config()
				cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry = fronta.DeadLetterTopic(letters), 2, fronta.ConstantBackoff(5*time.Second)
				c := b.consumer(cfg)
				var last time.Time
				for i, s := range tt.steps {
					d := b.receive(c)
					if d.Offset != 0 || d.DeliveryCount != s.delivery {
						t.Fatalf("step %d: got offset %d, delivery %d; want 0 and %d", i, d.Offset, d.DeliveryCount, s.delivery)
					}
					if gap := time.Since(last); i > 0 && gap.Round(100*time.Millisecond) != s.after {
						t.Errorf("step %d: after %s, want %s", i, gap, s.after)
					}
					must(t, s.verb(d))
					last = time.Now()
				}
				d := b.receive(c)
				if d.Offset != 1 {
					t.Errorf("then came offset %d, want 1", d.Offset)
				}
				must(t, d.Accept())
				must(t, c.Close())
				b.wantCommitted(0, 2)
				dead := b.deadLetters()
				if want := tt.dead; want == "" && len(dead) > 0 || want != "" && (len(dead) != 1 || dead[0].Reason != want) {
					t.Errorf("dead letters %+v, want %q", dead, want)
				}
			})
		})
	}
}

// H-088: the first final verb counts, any after it answers ErrSettled and
// changes nothing, in both orders and at once.
func TestSettlingTwice(t *testing.T) {
	verbs := map[string]func(*fronta.Delivery) error{
		"accept":  (*fronta.Delivery).Accept,
		"release": func(d *fronta.Delivery) error { return d.Release(time.Hour) },
		"fail":    func(d *fronta.Delivery) error { return d.Fail(errDeclined) },
		"reject":  func(d *fronta.Delivery) error { return d.Reject(errDeclined) },
	}
	for first := range verbs {
		t.Run(first, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", "1"))
				cfg := b.config()
				cfg.DeadLetter, cfg.HandlerTimeout, cfg.Retry = fronta.DeadLetterTopic(letters), time.Minute, fronta.ConstantBackoff(time.Hour)
				c := b.consumer(cfg)
				d := b.receive(c)
				must(t, verbs[first](d))
				for second, verb := range verbs {
					err := verb(d)
					if !errors.Is(err, fronta.ErrSettled) || !slices.Contains([]string{"fronta: settle orders/0@0: " + fronta.ErrSettled.Error()}, err.Error()) {
						t.Errorf("%s after %s: %v", second, first, err)
					}
				}
				if err := d.Renew(); !errors.Is(err, fronta.ErrSettled) {
					t.Errorf("renew after %s: %v", first, err)
				}
				time.Sleep(10 * time.Second)
				s := c.Stats()
				got := map[string]int64{"accept": s.Accepted, "release": s.Snoozed, "fail": s.Failed, "reject": s.Rejected}
				want := map[string]int64{"accept": 0, "release": 0, "fail": 0, "reject": 0, first: 1}
				want[first] = 1
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
	t.Run("at once", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			const n = 200
			b.produce(numbered(n, n)...)
			cfg := b.config()
			cfg.DeadLetter, cfg.HandlerTimeout, cfg.Retry = fronta.DeadLetterTopic(letters), time.Minute, fronta.ConstantBackoff(time.Hour)
			c := b.consumer(cfg)
			for range n {
				d := b.receive(c)
				results := make(chan error, len(verbs))
				start := make(chan struct{})
				for _, verb := range verbs {
					go func() { <-start; results <- verb(d) }()
				}
				go func() { <-start; _ = d.Renew() }()
				close(start)
				won := 0
				for range verbs {
					if err := <-results; err == nil {
						won++
					} else if !errors.Is(err, fronta.ErrSettled) {
						t.Errorf("verb: %v", err)
					}
				}
				if won != 1 {
					t.Fatalf("%d verbs won", won)
				}
			}
			b.until("dead letters are written", func() bool { s := c.Stats(); return s.Running == 0 })
			if s := c.Stats(); s.Accepted+s.Snoozed+s.Failed+s.Rejected != n || s.Accepted+s.DeadLettered+int64(s.Unfinished) != n {
				t.Errorf("%+v", s)
			}
		})
	})
}

// H-088: after the partition was lost every verb answers ErrLost, and the
// record comes again.
func TestSettlingAfterLoss(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		cfg := b.config()
		cfg.DrainTimeout, cfg.HandlerTimeout = time.Second, time.Hour
		c := b.consumer(cfg)
		d := b.receive(c)
		begin := time.Now()
		must(b.t, c.Close())
		if took := time.Since(begin); took > 10*time.Second {
			b.t.Errorf("Close took %s", took)
		}
		for name, err := range map[string]error{"accept": d.Accept(), "release": d.Release(0), "fail": d.Fail(errDeclined), "reject": d.Reject(errDeclined), "renew": d.Renew()} {
			if !errors.Is(err, fronta.ErrLost) {
				b.t.Errorf("%s: %v, want ErrLost", name, err)
			}
		}
		if at := b.committed(0); at > 0 {
			b.t.Errorf("committed %d", at)
		}
		c = b.consumer(b.config())
		d = b.receive(c)
		if d.Offset != 0 || d.DeliveryCount != 1 {
			b.t.Errorf("the next consumer got %s, delivery %d", d.Record, d.DeliveryCount)
		}
		must(b.t, d.Accept())
		must(b.t, c.Close())
		b.wantCommitted(0, 1)
	})
}

// A delivery past its deadline is released as a failed attempt, reported, and
// too late for its verb; Renew moves the deadline.
func TestDeliveryDeadline(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("a", "2"))
		hook := new(recorder)
		cfg := b.config()
		cfg.HandlerTimeout, cfg.Retry, cfg.Hooks = 10*time.Second, fronta.ConstantBackoff(5*time.Second), []any{hook}
		c := b.consumer(cfg)
		first := b.receive(c)
		begin := time.Now()
		for range 5 { // renewed for 40 s
			time.Sleep(8 * time.Second)
			must(b.t, first.Renew())
		}
		second := b.receive(c)
		if d := time.Since(begin).Round(100 * time.Millisecond); d != 55*time.Second {
			b.t.Errorf("delivered again after %s, want 40 s of renewals, 10 s and 5 s", d)
		}
		if second.Offset != 0 || second.DeliveryCount != 2 || !errors.Is(second.Failure.Err, fronta.ErrHandlerTimeout) {
			b.t.Errorf("second delivery: %s, %d, %+v", second.Record, second.DeliveryCount, second.Failure)
		}
		if err := first.Accept(); !errors.Is(err, fronta.ErrSettled) {
			b.t.Errorf("accept after the deadline: %v", err)
		}
		if x := hook.of("stuck"); len(x) != 1 || x[0].record.Offset != 0 || x[0].d != 10*time.Second {
			b.t.Errorf("stuck: %+v", x)
		}
		must(b.t, second.Accept())
		must(b.t, b.receive(c).Accept())
		if s := c.Stats(); s.Expired != 1 || s.Failed != 1 || s.Accepted != 2 {
			b.t.Errorf("%+v", s)
		}
		must(b.t, c.Close())
		runtime.KeepAlive(first)
	})
}

// Without HandlerTimeout a delivery is out for as long as it takes; it blocks
// its lane alone, and is reported after StuckAfter.
func TestUnsettledDeliveryBlocksItsLaneAlone(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(20, 2)...)
		hook := new(recorder)
		cfg := b.config()
		cfg.Hooks, cfg.StuckAfter = []any{hook}, time.Minute
		c := b.consumer(cfg)
		held := b.receive(c)
		for i := 1; i < 20; i += 2 {
			d := b.receive(c)
			if d.Offset != int64(i) {
				b.t.Fatalf("got offset %d, want %d", d.Offset, i)
			}
			must(b.t, d.Accept())
		}
		b.nothing(c, 10*time.Minute)
		if x := hook.of("stuck"); len(x) != 1 || x[0].record.Offset != 0 {
			b.t.Errorf("stuck: %+v", x)
		}
		if s := c.Stats(); s.Stuck != 1 || s.Running != 1 {
			b.t.Errorf("%+v", s)
		}
		must(b.t, held.Renew()) // no deadline: nothing
		must(b.t, held.Accept())
		for i := 2; i < 20; i += 2 {
			d := b.receive(c)
			if d.Offset != int64(i) {
				b.t.Fatalf("got offset %d, want %d", d.Offset, i)
			}
			must(b.t, d.Accept())
		}
		must(b.t, c.Close())
		b.wantCommitted(0, 20)
	})
}

// H-069: the next record of a lane is handed out only after the one before it
// was settled, by whichever goroutine.
func TestPullKeepsLaneOrder(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		const n = 600
		rs := numbered(n, 15)
		for i, r := range rs {
			r.Partition = int32(i % 2)
		}
		b.produce(rs...)
		cfg := b.config()
		cfg.Concurrency = 8
		c := b.consumer(cfg)
		watch := newLanes(b.t)
		var wg sync.WaitGroup
		for range 20 { // more callers than deliveries at once
			wg.Go(func() {
				for {
					d, err := c.Receive(context.Background())
					if err != nil {
						if err != fronta.ErrClosed {
							b.t.Errorf("Receive: %v", err)
						}
						return
					}
					wg.Go(func() {
						_ = watch.run(string(d.Key), d.Record, func() error {
							time.Sleep(time.Duration(d.Offset%7) * time.Millisecond)
							return nil
						})
						if err := d.Accept(); err != nil {
							b.t.Errorf("accept: %v", err)
						}
					})
				}
			})
		}
		b.until("all are done", func() bool { return c.Stats().Accepted == n })
		must(b.t, c.Close())
		wg.Wait()
		if watch.atOnce() > 8 {
			b.t.Errorf("%d deliveries were out at once, want at most 8", watch.atOnce())
		}
		if watch.atOnce() < 8 {
			b.t.Errorf("only %d deliveries were out at once", watch.atOnce())
		}
	})
}

// At most Concurrency deliveries are out; the next comes when one is settled.
func TestPullConcurrency(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(10, 10)...)
		cfg := b.config()
		cfg.Concurrency = 3
		c := b.consumer(cfg)
		var out []*fronta.Delivery
		for range 3 {
			out = append(out, b.receive(c))
		}
		b.nothing(c, time.Minute)
		must(b.t, out[1].Release(time.Hour)) // any verb frees the place
		out = append(out, b.receive(c))
		b.nothing(c, time.Minute)
		for _, i := range []int{0, 2, 3} {
			must(b.t, out[i].Accept())
		}
		for range 3 {
			out = append(out, b.receive(c))
		}
		b.nothing(c, time.Minute)
		for _, d := range out[4:] {
			must(b.t, d.Accept())
		}
	})
}

// H-090: Close ends waiting Receives with ErrClosed, never with a nil delivery
// and no error.
func TestCloseEndsReceives(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		c := b.consumer(b.config())
		errs := make(chan error, 50)
		for range 50 {
			go func() {
				for {
					d, err := c.Receive(context.Background())
					if err != nil {
						if d != nil {
							b.t.Error("a delivery and an error")
						}
						errs <- err
						return
					}
					if d == nil || d.Record == nil || d.Record.Record == nil {
						b.t.Error("nil and no error")
						errs <- nil
						return
					}
					_ = d.Accept()
				}
			}()
		}
		b.produce(numbered(100, 100)...)
		b.until("some are done", func() bool { return c.Stats().Accepted == 100 })
		must(b.t, c.Close())
		for range 50 {
			if err := <-errs; err != fronta.ErrClosed {
				b.t.Errorf("Receive: %v, want ErrClosed", err)
			}
		}
		if _, err := c.Receive(b.t.Context()); err != fronta.ErrClosed {
			b.t.Errorf("Receive after Close: %v", err)
		}
		must(b.t, c.Close())
		b.wantCommitted(0, 100)
	})
}

func TestReceiveOnAnOverContext(t *testing.T) {
	t.Parallel()
	c, err := fronta.NewConsumer(valid())
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if d, err := c.Receive(ctx); d != nil || err != cause {
		t.Errorf("Receive: %v, %v", d, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if d, err := c.Receive(t.Context()); d != nil || err != fronta.ErrClosed {
		t.Errorf("Receive: %v, %v; want ErrClosed", d, err)
	}
}

// Stop by a delivery ends the consumer: Receive and Close say why.
func TestPullStop(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("b", "2"))
		c := b.consumer(b.config())
		must(b.t, b.receive(c).Fail(fronta.Stop(errDeclined)))
		_, err := c.Receive(b.t.Context())
		var stop *fronta.StopError
		if !errors.As(err, &stop) || !errors.Is(err, errDeclined) || stop.At.Offset != 0 {
			b.t.Errorf("Receive: %v", err)
		}
		if err := c.Shutdown(b.t.Context()); !errors.Is(err, errDeclined) {
			b.t.Errorf("Shutdown: %v", err)
		}
		if at := b.committed(0); at > 0 {
			b.t.Errorf("committed %d", at)
		}
	})
}

// Run and Receive are not mixed.
func TestRunAndReceiveDoNotMix(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		c := b.run(b.config(), accept)
		b.until("it runs", func() bool { return len(c.Stats().Partitions) == 1 })
		if d, err := c.Receive(b.t.Context()); d != nil || err != fronta.ErrRunning {
			b.t.Errorf("Receive while Run: %v, %v", d, err)
		}
		c.stop()
		b.produce(record("a", "1"))
		p := b.consumer(b.config())
		must(b.t, b.receive(p).Accept())
		if err := p.Run(b.t.Context(), fronta.HandlerFunc(accept)); err != fronta.ErrRunning {
			b.t.Errorf("Run while pulling: %v", err)
		}
		must(b.t, p.Close())
	})
}

// Deliveries that are out when the consumer closes have DrainTimeout to be
// settled, and count.
func TestCloseWaitsForDeliveries(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("a", "2"))
		c := b.consumer(b.config())
		d := b.receive(c)
		go func() {
			time.Sleep(20 * time.Second)
			if err := d.Accept(); err != nil {
				b.t.Errorf("accept while closing: %v", err)
			}
		}()
		begin := time.Now()
		must(b.t, c.Close())
		if took := time.Since(begin); took < 20*time.Second || took > 29*time.Second {
			b.t.Errorf("Close took %s, want 20 s", took)
		}
		b.wantCommitted(0, 1)
	})
}

// H-089: a delivery that nobody can settle any more is reported and released.
func TestDroppedDelivery(t *testing.T) {
	t.Parallel()
	b := newBench(t, fake.Topic(orders, 1), fake.Topic(letters, 1))
	b.produce(record("a", "1"), record("b", "2"))
	stuck := make(chan struct{}, 1)
	hook := &recorder{also: func(name string) {
		if name == "stuck" {
			stuck <- struct{}{}
		}
	}}
	cfg := b.config()
	cfg.Hooks, cfg.Retry, cfg.Concurrency = []any{hook}, fronta.ConstantBackoff(time.Millisecond), 1
	c := b.consumer(cfg)
	_ = b.receive(c)
	collected := false
	for range 1000 {
		runtime.GC()
		select {
		case <-stuck:
			collected = true
		case <-time.After(10 * time.Millisecond):
			continue
		}
		break
	}
	if !collected {
		t.Fatal("the dropped delivery was not reported")
	}
	x := hook.of("stuck")[0]
	if x.record.Offset != 0 || x.record.Topic != orders {
		t.Errorf("reported %s", x.record)
	}
	seen := make(map[int64]int)
	for range 2 { // the place among the deliveries that are out is free again
		d := b.receive(c)
		seen[d.Offset] = d.DeliveryCount
		must(t, d.Accept())
	}
	if seen[0] != 2 || seen[1] != 1 {
		t.Errorf("delivery counts %v, want 2 for the dropped one", seen)
	}
	if s := c.Stats(); s.Expired != 1 {
		t.Errorf("%+v", s)
	}
	must(t, c.Close())
}
