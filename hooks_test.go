package fronta_test

// Hooks: each is told what its documentation says, and may call the consumer.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// recorder implements every hook and notes what it was told.
type recorder struct {
	mu   sync.Mutex
	told []telling
	also func(name string) // called outside the lock
}

type telling struct {
	name       string
	at         time.Time
	partitions []fronta.TopicPartition
	fence      int64
	record     *fronta.Record
	err        error
	reason     deadletter.Reason
	d          time.Duration
	offset     int64
}

func (h *recorder) tell(x telling) {
	x.at = time.Now()
	h.mu.Lock()
	h.told = append(h.told, x)
	also := h.also
	h.mu.Unlock()
	if also != nil {
		also(x.name)
	}
}

func (h *recorder) of(name string) (of []telling) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.told {
		if x.name == name {
			of = append(of, x)
		}
	}
	return of
}

func (h *recorder) count(name string) int { return len(h.of(name)) }

func (h *recorder) ages() (ages []time.Duration) {
	for _, x := range h.of("stuck") {
		ages = append(ages, x.d)
	}
	return ages
}

func (h *recorder) OnAssigned(tps []fronta.TopicPartition, fence int64) {
	h.tell(telling{name: "assigned", partitions: slices.Clone(tps), fence: fence})
}
func (h *recorder) OnRevoked(tps []fronta.TopicPartition) {
	h.tell(telling{name: "revoked", partitions: slices.Clone(tps)})
}
func (h *recorder) OnLost(tps []fronta.TopicPartition, err error) {
	h.tell(telling{name: "lost", partitions: slices.Clone(tps), err: err})
}
func (h *recorder) OnCommitted(tp fronta.TopicPartition, offset int64) {
	h.tell(telling{name: "committed", partitions: []fronta.TopicPartition{tp}, offset: offset})
}
func (h *recorder) OnCommitFailed(tp fronta.TopicPartition, offset int64, err error) {
	h.tell(telling{name: "commit failed", partitions: []fronta.TopicPartition{tp}, offset: offset, err: err})
}
func (h *recorder) OnRetry(r *fronta.Record, err error, delay time.Duration) {
	h.tell(telling{name: "retry", record: r, err: err, d: delay})
}
func (h *recorder) OnDeadLettered(r *fronta.Record, reason deadletter.Reason, err error) {
	h.tell(telling{name: "dead-lettered", record: r, reason: reason, err: err})
}
func (h *recorder) OnDeadLetterFailed(r *fronta.Record, err error, delay time.Duration) {
	h.tell(telling{name: "dead letter failed", record: r, err: err, d: delay})
}
func (h *recorder) OnDiscarded(r *fronta.Record, reason deadletter.Reason, err error) {
	h.tell(telling{name: "discarded", record: r, reason: reason, err: err})
}
func (h *recorder) OnStuck(r *fronta.Record, age time.Duration) {
	h.tell(telling{name: "stuck", record: r, d: age})
}
func (h *recorder) OnLate(r *fronta.Record) { h.tell(telling{name: "late", record: r}) }

// Every hook is told what happened, with the record or partition it happened to.
func TestHooks(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		b.produce(record("a", "fail once"), record("b", "poison"), record("c", "slow"))
		hook, second := new(recorder), new(recorder)
		cfg := b.config()
		cfg.Hooks = []any{hook, second}
		cfg.DeadLetter, cfg.Retry, cfg.StuckAfter = fronta.DeadLetterTopic(letters), fronta.ConstantBackoff(time.Second), 2*time.Second
		letterFault := b.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: letters, Err: kerr.InvalidRecord})
		commitFault := b.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownTopicOrPartition, Partitions: []int32{0}, Topic: orders})
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			switch string(r.Value) {
			case "fail once":
				if r.DeliveryCount == 1 {
					return errDeclined
				}
			case "slow":
				return sleep(ctx, 10*time.Second)
			}
			return rejectPoison(ctx, r)
		})
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		if letterFault.Hits() != 1 || commitFault.Hits() != 1 {
			b.t.Fatalf("faults hit %d and %d times", letterFault.Hits(), commitFault.Hits())
		}

		// A second member takes one of the partitions; then the first is thrown out.
		other := b.run(b.config(), func(context.Context, *fronta.Record) error { return nil })
		b.until("a partition is revoked", func() bool { return hook.count("revoked") > 0 })
		b.until("it has gone", func() bool { return len(other.Stats().Partitions) == 1 })
		other.stop()
		b.until("it is back", func() bool { return len(c.Stats().Partitions) == 2 })
		b.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: billing, TopLevel: true, Err: kerr.UnknownMemberID})
		b.until("the partitions are lost", func() bool { return hook.count("lost") > 0 })
		b.until("they are back", func() bool { return len(c.Stats().Partitions) == 2 })
		c.stop()

		if tps := hook.of("assigned")[0].partitions; len(tps) != 2 || tps[0] != (fronta.TopicPartition{Topic: orders, Partition: 0}) || tps[1].Partition != 1 || hook.of("assigned")[0].fence < 1 {
			b.t.Errorf("assigned: %+v", hook.of("assigned")[0])
		}
		if x := hook.of("retry"); len(x) != 1 || x[0].record.Offset != 0 || x[0].record.DeliveryCount != 1 || x[0].err != errDeclined || x[0].d != time.Second {
			b.t.Errorf("retry: %+v", x)
		}
		if x := hook.of("dead letter failed"); len(x) != 1 || x[0].record.Offset != 1 || !errors.Is(x[0].err, kerr.InvalidRecord) || x[0].d <= 0 {
			b.t.Errorf("dead letter failed: %+v", x)
		}
		if x := hook.of("dead-lettered"); len(x) != 1 || x[0].record.Offset != 1 || x[0].reason != deadletter.Rejected || !errors.Is(x[0].err, errDeclined) || x[0].record.Fence != hook.of("assigned")[0].fence || x[0].record.DeliveryCount != 1 {
			b.t.Errorf("dead-lettered: %+v %+v", x, x[0].record)
		}
		if x := hook.of("stuck"); len(x) != 1 || x[0].record.Offset != 2 || x[0].d < 2*time.Second || x[0].d > 4*time.Second {
			b.t.Errorf("stuck: %+v", x)
		}
		if x := hook.of("commit failed"); len(x) < 1 || x[0].partitions[0].Topic != orders || x[0].err == nil {
			b.t.Errorf("commit failed: %+v", x)
		}
		last := int64(-1)
		for _, x := range hook.of("committed") {
			if x.partitions[0].Partition != 0 {
				continue
			}
			if x.offset < last { // also across owners: nothing was repeated
				b.t.Errorf("committed %d after %d", x.offset, last)
			}
			last = x.offset
		}
		if last != 3 {
			b.t.Errorf("the last commit told is %d, want 3", last)
		}
		if x := hook.of("revoked"); len(x) < 1 || len(x[0].partitions) != 1 {
			b.t.Errorf("revoked: %+v", x)
		}
		if x := hook.of("lost"); len(x) != 1 || len(x[0].partitions) != 2 || x[0].err == nil {
			b.t.Errorf("lost: %+v", x)
		}
		for _, name := range []string{"assigned", "retry", "committed", "stuck", "revoked", "dead-lettered", "lost"} {
			if hook.count(name) != second.count(name) {
				b.t.Errorf("%s: one hook was told %d times, the other %d", name, hook.count(name), second.count(name))
			}
		}
	})
}

// A result that comes after its partition has gone changes nothing and is told.
func TestLateHook(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "slow"))
		hook := new(recorder)
		cfg := b.config()
		cfg.Hooks, cfg.DrainTimeout = []any{hook}, time.Second
		back := make(chan struct{})
		c := b.run(cfg, func(ctx context.Context, _ *fronta.Record) error {
			<-back // heedless of its context
			return nil
		})
		b.until("it runs", func() bool { return c.Stats().Running == 1 })
		c.stop()
		if x := hook.of("stuck"); len(x) != 1 || x[0].record.Offset != 0 {
			b.t.Errorf("the handler that runs on was reported as %+v", x) // H-089
		}
		b.wantCommitted(0, 0)
		close(back)
		b.until("the late result", func() bool { return hook.count("late") == 1 })
		if hook.of("late")[0].record.Offset != 0 || c.Stats().Late != 1 || c.Stats().Accepted != 0 {
			b.t.Errorf("late: %+v, %+v", hook.of("late"), c.Stats())
		}
		b.wantCommitted(0, 0)
	})
}

// H-087: a hook that panics is logged and takes nothing with it.
func TestHookPanics(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "fail once"), record("b", "poison"), record("a", "next"))
		var lines logged
		hook := &recorder{also: func(name string) { panic("hook for " + name) }}
		cfg := b.config()
		cfg.Hooks, cfg.Logger, cfg.DeadLetter = []any{hook}, lines.logger(), fronta.DeadLetterTopic(letters)
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			if string(r.Value) == "fail once" && r.DeliveryCount == 1 {
				return errDeclined
			}
			return rejectPoison(ctx, r)
		})
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		c.stop()
		for _, name := range []string{"assigned", "retry", "dead-lettered", "committed"} {
			if hook.count(name) == 0 || !strings.Contains(lines.String(), "hook for "+name) {
				b.t.Errorf("the panic of %s is not logged", name)
			}
		}
	})
}

// H-091: every method may be called from a handler and from each hook; it
// succeeds or is refused, and none deadlocks.
func TestMethodsFromHandlerAndHooks(t *testing.T) {
	all := func(b *bench, c *fronta.Consumer) {
		tp := fronta.TopicPartition{Topic: orders, Partition: 1}
		_ = c.Stats()
		c.Pause(tp)
		c.PauseTopic("elsewhere")
		c.ResumeTopic("elsewhere")
		c.Resume(tp)
		select {
		case <-c.Done():
		default:
		}
		if err := c.Run(context.Background(), fronta.HandlerFunc(accept)); err != fronta.ErrRunning && err != fronta.ErrClosed {
			b.t.Errorf("Run from inside: %v", err)
		}
	}
	t.Run("run", func(t *testing.T) {
		virtual(t, 2, func(b *bench) {
			b.produce(record("a", "fail once"), record("b", "poison"), record("c", "x"))
			var c *running
			made := make(chan struct{})
			hook := &recorder{also: func(string) {
				<-made
				all(b, c.Consumer)
				if d, err := c.Receive(context.Background()); d != nil || err != fronta.ErrRunning && err != fronta.ErrClosed {
					b.t.Errorf("Receive from inside: %v", err)
				}
			}}
			cfg := b.config()
			cfg.Hooks, cfg.DeadLetter = []any{hook}, fronta.DeadLetterTopic(letters)
			c = b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
				<-made
				all(b, c.Consumer)
				if string(r.Value) == "fail once" && r.DeliveryCount == 1 {
					return errDeclined
				}
				return rejectPoison(ctx, r)
			})
			close(made)
			b.until("all is done", func() bool { return b.committed(0) == 3 })
			c.stop()
		})
	})
	for name, from := range map[string]string{"handler": "", "assigned": "assigned", "retry": "retry", "committed": "committed", "dead-lettered": "dead-lettered"} {
		for how, end := range map[string]func(*fronta.Consumer) error{
			"Close":    func(c *fronta.Consumer) error { return c.Close() },
			"Shutdown": func(c *fronta.Consumer) error { return c.Shutdown(context.Background()) },
			"Shutdown, no time": func(c *fronta.Consumer) error {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_ = c.Shutdown(ctx)
				return nil
			},
		} {
			t.Run(how+" from "+name, func(t *testing.T) {
				virtual(t, 1, func(b *bench) {
					b.produce(record("a", "fail once"), record("b", "poison"), record("c", "x"))
					var c *running
					made := make(chan struct{})
					// No sync.Once: who waits for a mutex holds the bubble's clock.
					var stopped atomic.Bool
					stop := func() {
						<-made
						if stopped.Swap(true) {
							return
						}
						if err := end(c.Consumer); err != nil {
							t.Errorf("%s: %v", how, err)
						}
					}
					hook := &recorder{also: func(told string) {
						if told == from {
							stop()
						}
					}}
					cfg := b.config()
					cfg.Hooks, cfg.DeadLetter = []any{hook}, fronta.DeadLetterTopic(letters)
					c = b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
						if from == "" {
							stop()
						}
						if string(r.Value) == "fail once" && r.DeliveryCount == 1 {
							return errDeclined
						}
						return rejectPoison(ctx, r)
					})
					begin := time.Now()
					close(made)
					if err := c.wait(); err != nil {
						t.Errorf("Run: %v", err)
					}
					if took := time.Since(begin); took > time.Minute {
						t.Errorf("the stop took %s", took)
					}
				})
			})
		}
	}
	for _, from := range []string{"assigned", "retry", "committed", "dead-lettered"} {
		t.Run("Close of a pulling consumer from "+from, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", "fail once"), record("b", "poison"), record("c", "x"))
				var c *fronta.Consumer
				var stopped atomic.Bool
				hook := &recorder{also: func(told string) {
					all(b, c)
					if told == from && !stopped.Swap(true) {
						_ = c.Close()
					}
				}}
				cfg := b.config()
				cfg.Hooks, cfg.DeadLetter = []any{hook}, fronta.DeadLetterTopic(letters)
				c = b.consumer(cfg)
				begin := time.Now()
				for {
					d, err := c.Receive(b.t.Context())
					if err != nil {
						if err != fronta.ErrClosed {
							t.Errorf("Receive: %v", err)
						}
						break
					}
					if string(d.Value) == "fail once" && d.DeliveryCount == 1 {
						_ = d.Fail(errDeclined)
						continue
					}
					_ = d.Fail(rejectPoison(b.t.Context(), d.Record))
				}
				<-c.Done()
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("the stop took %s", took)
				}
			})
		})
	}
}

// H-091: a pause that is lifted lets a record fail, whose hook asks again.
func TestResumeWhoseHookCallsBack(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		var c *fronta.Consumer
		hook := &recorder{also: func(name string) {
			if name == "retry" {
				_ = c.Stats()
				c.Pause(fronta.TopicPartition{Topic: orders})
				c.Resume(fronta.TopicPartition{Topic: orders})
			}
		}}
		cfg := b.config()
		cfg.Hooks, cfg.Retry = []any{hook}, fronta.ConstantBackoff(time.Hour)
		cfg.Order = fronta.ByKeyFunc("broken", func(r *kgo.Record) []byte {
			if string(r.Value) == "poison" {
				panic("no key")
			}
			return r.Key
		})
		c = b.consumer(cfg)
		b.produce(record("a", "first"))
		d, err := c.Receive(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		c.PauseTopic(orders)
		b.produce(record("b", "poison"), record("c", "second"))
		got := make(chan error)
		go func() {
			d, err := c.Receive(b.t.Context())
			if err == nil {
				err = d.Accept()
			}
			got <- err
		}()
		time.Sleep(10 * time.Second)
		c.ResumeTopic(orders)
		if err := <-got; err != nil {
			b.t.Error(err)
		}
		if err := d.Accept(); err != nil {
			b.t.Error(err)
		}
		if hook.count("retry") != 1 {
			b.t.Errorf("%d retries", hook.count("retry"))
		}
		_ = c.Close()
	})
}
