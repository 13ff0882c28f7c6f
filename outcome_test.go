package fronta_test

// Outcomes: what each way to end an attempt does to the record, its lane and
// its count.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// Outcomes are found through wrapping, as errors.As finds them, and the text
// of what was wrapped around them is kept.
func TestOutcomesThroughWrapping(t *testing.T) {
	wraps := map[string]func(error) error{
		"bare":           func(err error) error { return err },
		"fmt.Errorf":     func(err error) error { return fmt.Errorf("charge 7: %w", err) },
		"twice":          func(err error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", err)) },
		"errors.Join":    func(err error) error { return errors.Join(errors.New("first"), err) },
		"several %w":     func(err error) error { return fmt.Errorf("%w and %w", errors.New("first"), err) },
		"middleware":     nil, // see below
		"join in errorf": func(err error) error { return fmt.Errorf("c: %w", errors.Join(err, errors.New("last"))) },
	}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("reject", "r"), record("retry", "a"), record("snooze", "s"))
				cfg := b.config()
				cfg.DeadLetter = fronta.DeadLetterTopic(letters)
				if wrap == nil {
					wrap = func(err error) error { return err }
					cfg.Middleware = []fronta.Middleware{func(h fronta.Handler) fronta.Handler {
						return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
							if err := h.Handle(ctx, r); err != nil {
								return fmt.Errorf("handling %s: %w", r, err)
							}
							return nil
						})
					}}
				}
				calls := map[string]*journal{"reject": {}, "retry": {}, "snooze": {}}
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
					j := calls[string(r.Key)]
					j.add(r)
					switch {
					case string(r.Key) == "reject":
						return wrap(fronta.Reject(errDeclined))
					case j.len() > 1:
						return nil
					case string(r.Key) == "retry":
						return wrap(fronta.RetryAfter(17*time.Second, errDeclined))
					default:
						return wrap(fronta.Snooze(23 * time.Second))
					}
				})
				b.until("all is done", func() bool { return b.committed(0) == 3 })
				c.stop()
				for k, want := range map[string]struct{ n, delivery, seconds int }{"reject": {1, 1, 0}, "retry": {2, 2, 17}, "snooze": {2, 1, 23}} {
					got := calls[k].all()
					if len(got) != want.n || got[len(got)-1].delivery != want.delivery {
						t.Errorf("%s: called %d times, delivery count %d; want %d and %d", k, len(got), got[len(got)-1].delivery, want.n, want.delivery)
					}
					if d := got[len(got)-1].at.Sub(got[0].at).Round(100 * time.Millisecond); d != time.Duration(want.seconds)*time.Second {
						t.Errorf("%s: again after %s, want %d s", k, d, want.seconds)
					}
				}
				dead := b.deadLetters()
				if len(dead) != 1 || dead[0].Reason != deadletter.Rejected || !strings.Contains(dead[0].Error, errDeclined.Error()) {
					t.Fatalf("dead letters: %+v", dead)
				}
				if name == "bare" && dead[0].Error != errDeclined.Error() {
					t.Errorf("error text %q, want %q alone", dead[0].Error, errDeclined)
				}
				if name == "fmt.Errorf" && !strings.HasPrefix(dead[0].Error, "charge 7: ") {
					t.Errorf("error text %q does not have what was wrapped around", dead[0].Error)
				}
				if s := c.Stats(); s.Snoozed != 1 || s.Failed != 1 || s.Rejected != 1 || s.Accepted != 2 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestOutcomeErrorsAsErrors(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"rejected: card declined":         fronta.Reject(errDeclined),
		"retry after 1s: card declined":   fronta.RetryAfter(time.Second, errDeclined),
		"stop: card declined":             fronta.Stop(errDeclined),
		"snoozed for 1s":                  fronta.Snooze(time.Second),
		"snoozed for 0s":                  fronta.Snooze(-time.Second),
		"rejected: no reason given":       fronta.Reject(nil),
		"retry after 0s: no reason given": fronta.RetryAfter(-1, nil),
		"stop: no reason given":           fronta.Stop(nil),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if strings.Contains(want, "declined") && !errors.Is(err, errDeclined) {
			t.Errorf("%v does not unwrap to its reason", err)
		}
	}
}

// A snooze is no failure: the count stays, whatever the number of snoozes, and
// the lane waits.
func TestSnoozeCountsNothing(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("a", "2"), record("b", "3"))
		var first, second, other journal
		cfg := b.config()
		cfg.DeadLetter, cfg.MaxDeliveries = fronta.DeadLetterTopic(letters), 2
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			switch r.Offset {
			case 0:
				first.add(r)
				if first.len() <= 20 {
					return fronta.Snooze(10 * time.Second)
				}
			case 1:
				second.add(r)
			default:
				other.add(r)
			}
			return nil
		})
		other.wait(b.t, 1)
		second.wait(b.t, 1)
		c.stop()
		for i, e := range first.all() {
			if e.delivery != 1 {
				b.t.Errorf("snooze %d: delivery count %d, want 1", i, e.delivery)
			}
		}
		if got := first.len(); got != 21 {
			b.t.Errorf("%d calls, want 21", got)
		}
		if second.all()[0].at.Before(first.all()[20].at) {
			b.t.Error("the lane did not wait")
		}
		if n := len(b.deadLetters()); n != 0 {
			b.t.Errorf("%d dead letters", n)
		}
		if other.all()[0].at.Sub(first.all()[0].at) > time.Second {
			b.t.Error("another lane waited")
		}
	})
}

// Stop ends the consumer in good order. Run names the record; the record stays
// and the next consumer has it, with what was accepted behind it done.
func TestStopOutcome(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("b", "stop"), record("b", "2"), record("c", "3"))
		var calls journal
		err := b.run(b.config(), func(_ context.Context, r *fronta.Record) error {
			calls.add(r)
			if string(r.Value) == "stop" {
				return fmt.Errorf("wrapped: %w", fronta.Stop(errDeclined))
			}
			return nil
		}).wait()
		var stop *fronta.StopError
		if !errors.As(err, &stop) || !errors.Is(err, errDeclined) {
			b.t.Fatalf("Run: %v", err)
		}
		if stop.At.Topic != orders || stop.At.Partition != 0 || stop.At.Offset != 1 {
			b.t.Errorf("StopError names %v", stop.At)
		}
		if slices.Contains(calls.offsets(), 2) {
			b.t.Error("the next record of the lane ran")
		}
		b.wantCommitted(0, 1)

		var again journal
		c := b.run(b.config(), func(_ context.Context, r *fronta.Record) error { again.add(r); return nil })
		b.until("the rest", func() bool { return b.committed(0) == 4 })
		c.stop()
		if got := again.all()[0]; got.offset != 1 || got.delivery != 1 {
			b.t.Errorf("the next consumer began with offset %d, delivery %d; want 1 and 1", got.offset, got.delivery)
		}
	})
}

// H-087: every way to end a handler's goroutine or frame early is one failed
// attempt with a stack; the slot is free again, the lane keeps its order, other
// keys go on.
func TestPanics(t *testing.T) {
	var nilMap map[string]int
	for name, tt := range map[string]struct {
		panic func()
		says  string
		is    error
	}{
		"string":  {func() { panic("boom") }, "boom", nil},
		"error":   {func() { panic(errDeclined) }, errDeclined.Error(), errDeclined},
		"nil":     {func() { panic(nil) }, "nil", nil}, //nolint:govet // that is the case
		"nil map": {func() { nilMap["a"] = 1 }, "nil map", nil},
		"goexit":  {runtime.Goexit, "Goexit", nil},
		"nil dereference": {func() {
			var r *fronta.Record
			_ = r.DeliveryCount
		}, "nil pointer", nil},
	} {
		for _, timeout := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, timeout %s", name, timeout), func(t *testing.T) {
				virtual(t, 1, func(b *bench) {
					b.produce(record("a", "poison"), record("a", "next"), record("b", "other"), record("c", "poison, for ever"))
					hook := new(recorder)
					cfg := b.config()
					// Concurrency 1: a slot that is not given back is the end.
					cfg.Concurrency, cfg.HandlerTimeout, cfg.Hooks = 1, timeout, []any{hook}
					cfg.DeadLetter, cfg.MaxDeliveries = fronta.DeadLetterTopic(letters), 3
					var calls journal
					c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
						calls.add(r)
						if string(r.Value) == "poison" && r.DeliveryCount < 3 || string(r.Key) == "c" {
							tt.panic()
						}
						return nil
					})
					b.until("all is done", func() bool { return b.committed(0) == 4 })
					c.stop()
					var a []entry
					for _, e := range calls.all() {
						if string(e.key) == "a" {
							a = append(a, e)
						}
					}
					if len(a) != 4 || a[2].delivery != 3 || a[3].offset != 1 {
						t.Errorf("lane a: %+v", a)
					}
					for _, r := range hook.of("retry") {
						var p *fronta.PanicError
						if !errors.As(r.err, &p) || !strings.Contains(p.Error(), tt.says) || !strings.Contains(string(p.Stack), "outcome_test.go") {
							t.Errorf("attempt failed with %v, want a panic that says %q, with its stack", r.err, tt.says)
						}
						if tt.is != nil && !errors.Is(r.err, tt.is) {
							t.Errorf("%v does not unwrap to the value", r.err)
						}
					}
					if n := hook.count("retry"); n != 4 {
						t.Errorf("%d retries, want 4", n)
					}
					dead := b.deadLetters()
					if len(dead) != 1 || dead[0].Reason != deadletter.Panic || !strings.Contains(dead[0].Error, tt.says) {
						t.Errorf("dead letters: %+v", dead)
					}
				})
			})
		}
	}
}

// A handler past HandlerTimeout has its context cancelled. Its lane stays closed
// until it returns, the report comes once, and the dead letter says why.
func TestHandlerTimeout(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "slow"), record("a", "next"), record("b", "other"))
		hook := new(recorder)
		cfg := b.config()
		cfg.HandlerTimeout, cfg.StuckAfter = 10*time.Second, 15*time.Second
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry, cfg.Hooks = fronta.DeadLetterTopic(letters), 2, fronta.ConstantBackoff(time.Second), []any{hook}
		var slow, next journal
		var mu sync.Mutex
		var ends []time.Time
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			switch string(r.Value) {
			case "slow":
				slow.add(r)
				begin := time.Now()
				<-ctx.Done()
				if d := time.Since(begin); d != 10*time.Second {
					b.t.Errorf("cancelled after %s, want 10 s", d)
				}
				if cause := context.Cause(ctx); cause != fronta.ErrHandlerTimeout {
					b.t.Errorf("cause %v, want ErrHandlerTimeout", cause)
				}
				if ctx.Err() != context.DeadlineExceeded {
					b.t.Errorf("Err() is %v", ctx.Err())
				}
				time.Sleep(30 * time.Second) // heedless
				mu.Lock()
				ends = append(ends, time.Now())
				mu.Unlock()
				return ctx.Err()
			default:
				next.add(r)
				return nil
			}
		})
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		c.stop()
		if n := slow.len(); n != 2 {
			b.t.Fatalf("%d attempts, want 2", n)
		}
		if again := slow.all()[1].at; again.Sub(ends[0]) < time.Second {
			b.t.Error("the second attempt began while the first handler ran")
		}
		if got := next.all(); got[0].offset != 2 || got[1].at.Before(ends[1]) {
			b.t.Errorf("the others ran as %+v", got)
		}
		// H-089: once for each of the two handlers, with the record.
		stuck := hook.of("stuck")
		if len(stuck) != 2 || stuck[0].record.Offset != 0 || stuck[0].d < 15*time.Second || stuck[0].d > 23*time.Second {
			b.t.Errorf("stuck reports: %+v", stuck)
		}
		dead := b.deadLetters()
		if len(dead) != 1 || dead[0].Reason != deadletter.Timeout || dead[0].DeliveryCount != 2 {
			b.t.Errorf("dead letters: %+v", dead)
		}
		if s := c.Stats(); s.Failed != 2 || s.Stuck != 0 {
			b.t.Errorf("%+v", s)
		}
	})
}

// A handler that comes to its end after the timeout all the same is accepted.
func TestHandlerTimeoutButDone(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "slow"))
		cfg := b.config()
		cfg.HandlerTimeout = time.Second
		c := b.run(cfg, func(context.Context, *fronta.Record) error { time.Sleep(5 * time.Second); return nil })
		b.until("it is done", func() bool { return b.committed(0) == 1 })
		c.stop()
		if s := c.Stats(); s.Accepted != 1 || s.Failed != 0 {
			b.t.Errorf("accepted %d, failed %d", s.Accepted, s.Failed)
		}
	})
}

// Middleware: the first is the outermost; it sees and changes outcomes.
func TestMiddlewareOrder(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		var mu sync.Mutex
		var steps []string
		step := func(s string) { mu.Lock(); steps = append(steps, s); mu.Unlock() }
		around := func(name string) fronta.Middleware {
			return func(h fronta.Handler) fronta.Handler {
				return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
					step(name + " in")
					err := h.Handle(ctx, r)
					step(name + " out")
					return err
				})
			}
		}
		cfg := b.config()
		cfg.Middleware = []fronta.Middleware{around("first"), around("second"), func(h fronta.Handler) fronta.Handler {
			return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
				if err := h.Handle(ctx, r); errors.Is(err, errDeclined) {
					return nil // not worth another attempt
				}
				return errors.New("the inner outcome was not seen")
			})
		}}
		c := b.run(cfg, func(context.Context, *fronta.Record) error { step("handler"); return errDeclined })
		b.until("it is done", func() bool { return c.Stats().Accepted == 1 })
		c.stop()
		if d := cmp.Diff([]string{"first in", "second in", "handler", "second out", "first out"}, steps); d != "" {
			b.t.Error(d)
		}
	})
}

// What a record knows of its way: the failures of this owner, and a new Record
// for each attempt.
func TestRecordKnowsItsFailures(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"))
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(time.Minute)
		var seen []*fronta.Record
		done := make(chan struct{})
		begin := time.Now()
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			seen = append(seen, r) // one lane: one at a time
			if len(seen) == 3 {
				close(done)
				return nil
			}
			return fmt.Errorf("failure %d", len(seen))
		})
		<-done
		c.stop()
		if seen[0] == seen[1] || seen[0].Failure == seen[1].Failure {
			b.t.Error("attempts share a Record")
		}
		for i, r := range seen {
			if r.DeliveryCount != i+1 {
				b.t.Errorf("attempt %d has the delivery count %d", i+1, r.DeliveryCount)
			}
		}
		last := seen[2].Failure
		if last == nil || last.Err.Error() != "failure 2" || last.Last.Sub(last.First).Round(time.Second) != time.Minute || last.First.Sub(begin) > 10*time.Second {
			b.t.Errorf("the third attempt knows %+v", last)
		}
		if s := seen[0].String(); s != "orders/0@0" {
			b.t.Errorf("String() = %q", s)
		}
	})
}

// The fence rises with every owner, also within one process's life.
func TestFenceRises(t *testing.T) {
	for name, protocol := range map[string]fronta.Protocol{"classic": fronta.ClassicProtocol, "consumer": fronta.ConsumerProtocol} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				last := int64(-1)
				for i := range 4 {
					b.produce(record("a", "v"))
					var calls journal
					cfg := b.config()
					cfg.Protocol = protocol
					c := b.run(cfg, func(_ context.Context, r *fronta.Record) error { calls.add(r); return nil })
					b.until("it is done", func() bool { return b.committed(0) == int64(i+1) })
					if f := c.Stats().Partitions[0].Fence; f != calls.all()[0].fence {
						t.Errorf("Stats says fence %d, the record %d", f, calls.all()[0].fence)
					}
					c.stop()
					if f := calls.all()[0].fence; f <= last {
						t.Errorf("owner %d has the fence %d after %d", i, f, last)
					} else {
						last = f
					}
				}
			})
		})
	}
}

// Without a DeadLetter nothing is dropped: a rejected record is tried again,
// and one line says so.
func TestRejectWithoutDeadLetter(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "poison"), record("b", "other"))
		var lines logged
		cfg := b.config()
		cfg.Logger = lines.logger()
		c := b.run(cfg, rejectPoison)
		b.until("some attempts", func() bool { return c.Stats().Rejected >= 5 })
		if s := c.Stats(); s.Unfinished != 1 || s.Accepted != 1 || s.DeadLettered != 0 || s.Discarded != 0 {
			b.t.Errorf("%+v", s)
		}
		c.stop()
		b.wantCommitted(0, 0)
		if n := strings.Count(lines.String(), "Config.DeadLetter is not set"); n != 1 {
			b.t.Errorf("%d lines, want 1 within a minute:\n%s", n, lines.String())
		}
	})
}

func TestDiscard(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "poison"), record("a", "next"), record("b", "exhausted"), &kgo.Record{Topic: orders, Value: []byte("poison")})
		hook := new(recorder)
		var lines logged
		cfg := b.config()
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.Hooks, cfg.Logger = fronta.Discard(), 2, []any{hook}, lines.logger()
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			if string(r.Value) == "exhausted" {
				return errDeclined
			}
			return rejectPoison(ctx, r)
		})
		b.until("all is done", func() bool { return b.committed(0) == 4 })
		c.stop()
		reasons := make(map[int64]deadletter.Reason)
		for _, x := range hook.of("discarded") {
			reasons[x.record.Offset] = x.reason
		}
		if d := cmp.Diff(map[int64]deadletter.Reason{0: deadletter.Rejected, 2: deadletter.Deliveries, 3: deadletter.Rejected}, reasons); d != "" {
			b.t.Error(d)
		}
		if n := strings.Count(lines.String(), "record discarded"); n != 3 { // P-7
			b.t.Errorf("%d lines, want 3", n)
		}
		if s := c.Stats(); s.Discarded != 3 || s.Accepted != 1 {
			b.t.Errorf("%+v", s)
		}
	})
}
