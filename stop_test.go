package fronta_test

// Stopping: in good order, in time, from wherever, and with nothing marked
// done that is not.

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/fake"
)

// H-110: the last stored offset has every record whose handler finished, with
// running handlers, without any, and with a long drain.
func TestStopLetsHandlersFinish(t *testing.T) {
	for name, work := range map[string]time.Duration{"none run": 0, "short": time.Second, "long": 29 * time.Second} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(numbered(10, 10)...)
				c := b.run(b.config(), func(ctx context.Context, _ *fronta.Record) error { return sleep(ctx, work) })
				b.until("all have begun", func() bool { s := c.Stats(); return s.Running == 10 || s.Accepted == 10 })
				begin := time.Now()
				c.stop()
				if took := time.Since(begin); took > work+time.Second {
					t.Errorf("the stop took %s", took)
				}
				b.wantCommitted(0, 10)
				if s := c.Stats(); s.Accepted != 10 || !s.Stopping || s.Unfinished != 0 || len(s.Partitions) != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// H-085, H-086: a handler that sleeps through DrainTimeout is cancelled with
// ErrStopping. Its record is unfinished, no attempt is counted, no dead letter
// written, and the next consumer has it.
func TestStopCancelsHandlers(t *testing.T) {
	for name, end := range map[string]func(context.Context) error{
		"returns the cause": func(ctx context.Context) error { return context.Cause(ctx) },
		"returns an error":  func(context.Context) error { return errDeclined },
		"rejects":           func(context.Context) error { return fronta.Reject(errDeclined) },
		"panics":            func(context.Context) error { panic("cancelled") },
		"snoozes":           func(context.Context) error { return fronta.Snooze(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", "1"), record("a", "2"), record("b", "3"))
				cfg := b.config()
				cfg.DeadLetter, cfg.MaxDeliveries, cfg.DrainTimeout = fronta.DeadLetterTopic(letters), 1, 5*time.Second
				var cancelled time.Duration
				begin := make(chan time.Time, 1)
				c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
					if r.Offset != 0 {
						return nil
					}
					<-ctx.Done()
					cancelled = time.Since(<-begin)
					if cause := context.Cause(ctx); cause != fronta.ErrStopping {
						t.Errorf("cause %v", cause)
					}
					return end(ctx)
				})
				b.until("the other is done", func() bool { return c.Stats().Accepted == 1 })
				begin <- time.Now()
				c.stop()
				if cancelled.Round(time.Millisecond) != 5*time.Second {
					t.Errorf("cancelled after %s, want 5 s", cancelled)
				}
				if at := b.committed(0); at > 0 {
					t.Errorf("committed %d", at)
				}
				if s := c.Stats(); s.Failed+s.Rejected+s.DeadLettered != 0 {
					t.Errorf("%+v", s)
				}
				if n := len(b.deadLetters()); n != 0 {
					t.Errorf("%d dead letters", n)
				}
				var again journal
				c = b.run(b.config(), func(_ context.Context, r *fronta.Record) error { again.add(r); return nil })
				b.until("all is done", func() bool { return b.committed(0) == 3 })
				c.stop()
				if i := slices.IndexFunc(again.all(), func(e entry) bool { return e.offset == 0 }); i < 0 || again.all()[i].delivery != 1 {
					t.Errorf("the next consumer ran %+v", again.all())
				}
			})
		})
	}
}

// A handler that comes to its end after it was cancelled, in time, is accepted.
func TestCancelledHandlerMayFinish(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		cfg := b.config()
		cfg.DrainTimeout = 4 * time.Second
		c := b.run(cfg, func(ctx context.Context, _ *fronta.Record) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			return nil
		})
		b.until("it runs", func() bool { return c.Stats().Running == 1 })
		c.stop()
		b.wantCommitted(0, 1)
	})
}

// H-085: a stop finds a record in back-off. It is not waited for, no attempt
// but the one that failed is charged, and the next consumer has it.
func TestStopDuringBackoff(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(time.Hour)
		c := b.run(cfg, func(context.Context, *fronta.Record) error { return errDeclined })
		b.until("it waits", func() bool { return c.Stats().Waiting == 1 })
		begin := time.Now()
		c.stop()
		if took := time.Since(begin); took > time.Second {
			b.t.Errorf("the stop took %s", took)
		}
		var again journal
		c = b.run(b.config(), func(_ context.Context, r *fronta.Record) error { again.add(r); return nil })
		again.wait(b.t, 1)
		c.stop()
		if e := again.all()[0]; e.delivery != 2 {
			b.t.Errorf("delivery %d, want 2", e.delivery)
		}
	})
}

// H-111, H-115: records queued and not started are not started by a stop, none
// of them is marked done, and the next consumer has them; what is finished in
// front does not come again.
func TestStopWithQueuedRecords(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(12, 12)...)
		cfg := b.config()
		cfg.Concurrency = 2
		var ran journal
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error { ran.add(r); return sleep(ctx, 10*time.Second) })
		ran.wait(b.t, 2)
		c.stop()
		if got := ran.offsets(); len(got) != 2 {
			b.t.Errorf("ran %v; a stop starts nothing", got)
		}
		b.wantCommitted(0, 2)
		var again journal
		c = b.run(b.config(), func(_ context.Context, r *fronta.Record) error { again.add(r); return nil })
		again.wait(b.t, 10)
		c.stop()
		got := again.offsets()
		slices.Sort(got)
		if !slices.Equal(got, []int64{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
			b.t.Errorf("the next consumer ran %v", got)
		}
	})
}

// H-151: closed in the instant in which the last record is settled.
func TestStopAtTheLastRecord(t *testing.T) {
	for name, stop := range map[string]func(*fronta.Consumer, context.CancelFunc){
		"context":         func(_ *fronta.Consumer, cancel context.CancelFunc) { cancel() },
		"Close":           func(c *fronta.Consumer, _ context.CancelFunc) { _ = c.Close() },
		"concurrent both": func(c *fronta.Consumer, cancel context.CancelFunc) { go cancel(); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				for i := range 20 {
					b.produce(record("a", strconv.Itoa(i)))
					c := b.consumer(b.config())
					ctx, cancel := context.WithCancel(context.Background())
					if err := c.Run(ctx, fronta.HandlerFunc(func(context.Context, *fronta.Record) error { stop(c, cancel); return nil })); err != nil {
						t.Error(err)
					}
					cancel()
					b.wantCommitted(0, int64(i+1))
				}
			})
		})
	}
}

// The consumer's ways to end.
func TestShutdown(t *testing.T) {
	slow := func(ctx context.Context, _ *fronta.Record) error { return sleep(ctx, 20*time.Second) }
	t.Run("waits for the drain", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "1"))
			c := b.run(b.config(), slow)
			b.until("it runs", func() bool { return c.Stats().Running == 1 })
			if err := c.Shutdown(b.t.Context()); err != nil {
				t.Error(err)
			}
			select {
			case <-c.Done():
			default:
				t.Error("Shutdown returned before the consumer had stopped")
			}
			b.wantCommitted(0, 1)
		})
	})
	t.Run("second context cuts it short", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "1"))
			c := b.run(b.config(), slow)
			b.until("it runs", func() bool { return c.Stats().Running == 1 })
			ctx, cancel := context.WithTimeout(b.t.Context(), 3*time.Second)
			defer cancel()
			begin := time.Now()
			if err := c.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v, want nil: the handler heeded its context", err)
			}
			if took := time.Since(begin).Round(100 * time.Millisecond); took != 3*time.Second {
				t.Errorf("took %s, want 3 s", took)
			}
			if at := b.committed(0); at > 0 {
				t.Errorf("committed %d", at)
			}
		})
	})
	t.Run("heedless handler", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "1"))
			release := make(chan struct{})
			c := b.run(b.config(), func(context.Context, *fronta.Record) error { <-release; return nil })
			b.until("it runs", func() bool { return c.Stats().Running == 1 })
			cause := errors.New("enough")
			ctx, cancel := context.WithTimeoutCause(b.t.Context(), time.Second, cause)
			defer cancel()
			begin := time.Now()
			err := c.Shutdown(ctx)
			if took := time.Since(begin); took > 7*time.Second {
				t.Errorf("took %s, want 1 s and 5 s more", took)
			}
			if err != nil && err != cause {
				t.Errorf("Shutdown: %v", err)
			}
			if err := c.wait(); err != nil {
				t.Errorf("Run: %v", err)
			}
			close(release)
			if at := b.committed(0); at > 0 {
				t.Errorf("committed %d", at)
			}
		})
	})
	t.Run("before Run", func(t *testing.T) {
		t.Parallel()
		c, err := fronta.NewConsumer(valid())
		must(t, err)
		must(t, c.Shutdown(t.Context()))
		if err := c.Run(t.Context(), fronta.HandlerFunc(accept)); err != fronta.ErrClosed {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "1"))
			c := b.run(b.config(), slow)
			b.until("it runs", func() bool { return c.Stats().Running == 1 })
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if i%2 == 0 {
						_ = c.Close()
						return
					}
					if err := c.Shutdown(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			c.stop()
		})
	})
}

func TestCloseWithoutRun(t *testing.T) {
	t.Parallel()
	c, err := fronta.NewConsumer(valid())
	must(t, err)
	select {
	case <-c.Done():
		t.Error("Done before Close")
	default:
	}
	if s := c.Stats(); s.Partitions != nil || s.Running != 0 {
		t.Errorf("Stats before Run: %+v", s)
	}
	c.Pause(fronta.TopicPartition{Topic: "orders"})
	c.PauseTopic("orders")
	for range 3 {
		must(t, c.Close())
	}
	<-c.Done()
	must(t, c.Shutdown(t.Context()))
	if err := c.Run(t.Context(), fronta.HandlerFunc(accept)); err != fronta.ErrClosed {
		t.Errorf("Run: %v, want ErrClosed", err)
	}
}

func TestRunTwice(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		c := b.run(b.config(), accept)
		b.until("it runs", func() bool { return len(c.Stats().Partitions) == 1 })
		if err := c.Run(b.t.Context(), fronta.HandlerFunc(accept)); err != fronta.ErrRunning {
			b.t.Errorf("second Run: %v, want ErrRunning", err)
		}
		c.stop()
		if err := c.Run(b.t.Context(), fronta.HandlerFunc(accept)); err != fronta.ErrClosed {
			b.t.Errorf("Run after the end: %v, want ErrClosed", err)
		}
		must(b.t, c.Close())
	})
}

// H-110: Run on a context that is already over.
func TestRunOnAnOverContext(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		ctx, cancel := context.WithCancel(b.t.Context())
		cancel()
		c := b.consumer(b.config())
		begin := time.Now()
		if err := c.Run(ctx, fronta.HandlerFunc(func(context.Context, *fronta.Record) error {
			b.t.Error("the handler was called")
			return nil
		})); err != nil {
			b.t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 6*time.Second {
			b.t.Errorf("took %s", took)
		}
	})
}

// H-109: a stop completes although a producer goes on.
func TestStopWhileRecordsCome(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		over := make(chan struct{})
		var producer sync.WaitGroup
		producer.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
				b.produce(record("k"+strconv.Itoa(i%50), "v"))
			}
		})
		var ran journal
		c := b.run(b.config(), func(ctx context.Context, r *fronta.Record) error { ran.add(r); return sleep(ctx, 20*time.Millisecond) })
		ran.wait(b.t, 500)
		begin := time.Now()
		c.stop()
		if took := time.Since(begin); took > time.Second {
			b.t.Errorf("the stop took %s", took)
		}
		n := ran.len()
		close(over)
		producer.Wait()
		time.Sleep(time.Second)
		if ran.len() != n {
			b.t.Error("a handler started after Run had returned")
		}
		b.wantCommitted(0, int64(n)) // every key's records are done up to here, nothing between
	})
}

// H-114: the coordinator takes requests and answers none; the stop keeps to its
// budget all the same.
func TestStopWithASilentCoordinator(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(5, 5)...)
		cfg := b.config()
		cfg.CommitInterval = time.Minute
		c := b.run(cfg, accept)
		b.until("all are done", func() bool { return c.Stats().Accepted == 5 })
		_, release := b.hold(kmsg.OffsetCommit)
		_, release2 := b.hold(kmsg.LeaveGroup)
		begin := time.Now()
		c.cancel()
		if err := c.wait(); err != nil {
			b.t.Errorf("Run: %v", err)
		}
		if took := time.Since(begin); took > 30*time.Second {
			b.t.Errorf("the stop took %s, want at most 10 s for the commit and 10 s for the leaving", took)
		}
		release()
		release2()
	})
}

// The group is left, so that the next member does not
// wait for a session to end.
func TestStopLeavesTheGroup(t *testing.T) {
	for name, protocol := range map[string]fronta.Protocol{"classic": fronta.ClassicProtocol, "consumer": fronta.ConsumerProtocol} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				cfg := b.config()
				cfg.Protocol = protocol
				c := b.run(cfg, accept)
				b.until("it runs", func() bool { return len(c.Stats().Partitions) == 1 })
				c.stop()
				b.produce(record("a", "1"))
				begin := time.Now()
				var ran journal
				c = b.run(cfg, func(_ context.Context, r *fronta.Record) error { ran.add(r); return nil })
				ran.wait(t, 1)
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("the next member waited %s", took)
				}
				c.stop()
			})
		})
	}
}

// H-116: many lives, each stopped at another moment; no goroutine is left (see
// TestMain), nothing is lost, and nothing that was committed comes again.
func TestStopAtAnyMoment(t *testing.T) {
	virtual(t, 8, func(b *bench) {
		const n = 400
		rs := numbered(n, 40)
		for i, r := range rs {
			r.Partition = int32(i % 40 % 8)
		}
		b.produce(rs...)
		watch := newLanes(b.t)
		cfg := b.config()
		cfg.Concurrency, cfg.CommitInterval = 4, 50*time.Millisecond
		var mu sync.Mutex
		done := make(map[string]bool)
		for life := range 60 {
			c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
				watch.mu.Lock()
				delete(watch.last, r.Topic+"/"+strconv.Itoa(int(r.Partition))+" "+string(r.Key)) // repeats are allowed between lives
				watch.mu.Unlock()
				return watch.run(string(r.Key), r, func() error {
					if err := sleep(ctx, time.Duration(r.Offset%5)*time.Millisecond); err != nil {
						return err
					}
					mu.Lock()
					done[r.String()] = true
					mu.Unlock()
					return nil
				})
			})
			time.Sleep(time.Duration(life*7%100) * time.Millisecond)
			c.stop()
		}
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			mu.Lock()
			done[r.String()] = true
			mu.Unlock()
			return nil
		})
		b.until("all is committed", func() bool {
			var sum int64
			for p := range int32(8) {
				sum += max(b.committed(p), 0)
			}
			return sum == n
		})
		c.stop()
		if len(done) != n {
			b.t.Errorf("%d of %d records were handled", len(done), n)
		}
	}, fake.Brokers(1))
}
