package fronta_test

// Bounds (P-5): each limit is kept to, reaching one slows reading down and
// loses nothing, and pausing does what it says.

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
)

// gauge counts what is at once and remembers the most.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) enter() func() {
	n := g.now.Add(1)
	for {
		most := g.most.Load()
		if n <= most || g.most.CompareAndSwap(most, n) {
			return func() { g.now.Add(-1) }
		}
	}
}

// spread is n records over as many keys and all partitions.
func spread(n, partitions int) []*kgo.Record {
	rs := numbered(n, n)
	for i, r := range rs {
		r.Partition = int32(i % partitions)
	}
	return rs
}

// H-096: Concurrency is never exceeded, with quick handlers, slow ones and both,
// and it is used up.
func TestConcurrencyIsKept(t *testing.T) {
	for _, limit := range []int{1, 2, 7, 64} {
		for name, work := range map[string]func(ctx context.Context, r *fronta.Record) error{
			"slow":  func(ctx context.Context, _ *fronta.Record) error { return sleep(ctx, 10*time.Millisecond) },
			"quick": func(context.Context, *fronta.Record) error { return nil },
			"mixed": func(ctx context.Context, r *fronta.Record) error {
				if r.Offset%50 == 0 {
					return sleep(ctx, 50*time.Millisecond)
				}
				return nil
			},
			"failing": func(_ context.Context, r *fronta.Record) error {
				if r.DeliveryCount < 3 {
					return errDeclined
				}
				return nil
			},
		} {
			t.Run(name+" "+strconv.Itoa(limit), func(t *testing.T) {
				virtual(t, 3, func(b *bench) {
					const n = 3000
					b.produce(spread(n, 3)...)
					var g gauge
					cfg := b.config()
					cfg.Concurrency, cfg.Retry = limit, fronta.ConstantBackoff(5*time.Millisecond)
					c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
						defer g.enter()()
						return work(ctx, r)
					})
					b.until("all are done", func() bool {
						if s := c.Stats(); s.Running > limit || s.Workers > limit {
							t.Errorf("%d run on %d workers, the limit is %d", s.Running, s.Workers, limit)
						}
						return c.Stats().Accepted == n
					})
					c.stop()
					if most := g.most.Load(); most > int64(limit) || name == "slow" && most < int64(limit) {
						t.Errorf("%d ran at once, the limit is %d", most, limit)
					}
				})
			})
		}
	}
}

// H-011: MaxInFlight counts records, over all partitions; it is never exceeded
// and nothing is lost. Limits of 1 work.
func TestMaxInFlight(t *testing.T) {
	for _, tt := range []struct{ limit, partitions int }{{1, 1}, {1, 4}, {3, 2}, {50, 4}, {1000, 1}} {
		t.Run(strconv.Itoa(tt.limit)+" over "+strconv.Itoa(tt.partitions), func(t *testing.T) {
			virtual(t, tt.partitions, func(b *bench) {
				const n = 600
				b.produce(spread(n, tt.partitions)...)
				cfg := b.config()
				cfg.MaxInFlight, cfg.Retry = tt.limit, fronta.ConstantBackoff(20*time.Millisecond)
				most := 0
				c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
					if r.Offset%10 == 0 && r.DeliveryCount == 1 {
						return errDeclined
					}
					return sleep(ctx, time.Millisecond)
				})
				b.until("all are done", func() bool {
					s := c.Stats()
					most = max(most, s.Unfinished)
					return s.Accepted == n
				})
				c.stop()
				// A partition that holds nothing may always take one record.
				if most > max(tt.limit, 1) {
					t.Errorf("%d records were in work, the limit is %d", most, tt.limit)
				}
			})
		})
	}
}

// H-011: offsets are not dense; the limit is on records.
func TestMaxInFlightOverGaps(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		// Compaction leaves only the last record of a key.
		for i := range 500 {
			b.produce(record("a", strconv.Itoa(i)))
		}
		b.produce(record("b", ""))
		for i := range 500 {
			b.produce(record("a", strconv.Itoa(i)))
		}
		b.produce(record("c", ""), record("d", ""))
		if err := b.compact(); err != nil {
			b.t.Fatal(err)
		}
		cfg := b.config()
		cfg.MaxInFlight = 2
		c := b.run(cfg, accept)
		b.until("all are done", func() bool { return b.committed(0) == 1003 })
		c.stop()
		if s := c.Stats(); s.Accepted >= 1003 || s.Accepted < 4 {
			b.t.Errorf("%d records were left by the compaction", s.Accepted)
		}
	})
}

func (b *bench) compact() error {
	v := "compact"
	ratio := "0.0"
	lag := "0"
	segment := "100"
	return b.alter(map[string]*string{"cleanup.policy": &v, "min.cleanable.dirty.ratio": &ratio, "min.compaction.lag.ms": &lag, "segment.bytes": &segment})
}

func (b *bench) alter(configs map[string]*string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType = kmsg.ConfigResourceTypeTopic
	res.ResourceName = orders
	for name, value := range configs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, value
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	if _, err := req.RequestWith(b.t.Context(), b.client); err != nil {
		return err
	}
	b.broker.Cluster().Compact()
	return nil
}

// H-101: limits of 1 everywhere; a blocked record of one partition does not end
// the progress of another.
func TestLimitsOfOne(t *testing.T) {
	virtual(t, 4, func(b *bench) {
		b.produce(spread(200, 4)...)
		cfg := b.config()
		cfg.Concurrency, cfg.MaxInFlight, cfg.MaxBufferedBytes = 1, 1, 1
		cfg.Retry = fronta.ConstantBackoff(time.Second)
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			if r.Offset == 10 && r.DeliveryCount == 1 {
				return errDeclined
			}
			return nil
		})
		b.until("all are done", func() bool { return c.Stats().Accepted == 200 })
		c.stop()
		for p := range int32(4) {
			b.wantCommitted(p, 50)
		}
	})
}

// H-107, P-5: MaxBufferedBytes with large records: what is held stays under the
// limit and what one fetch brings, and all are handled.
func TestMaxBufferedBytes(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		const n, size, limit = 60, 1_000_000, 5 << 20
		for i := range n {
			value := make([]byte, size)
			for j := range value {
				value[j] = byte(rand.Int()) // what compresses well is fetched by more than its size
			}
			b.produce(&kgo.Record{Topic: orders, Partition: int32(i % 2), Key: key(strconv.Itoa(i)), Value: value})
		}
		cfg := b.config()
		cfg.MaxBufferedBytes = limit
		var most int64
		c := b.run(cfg, func(ctx context.Context, _ *fronta.Record) error { return sleep(ctx, 100*time.Millisecond) })
		b.until("all are done", func() bool {
			s := c.Stats()
			most = max(most, s.Bytes)
			return s.Accepted == n
		})
		c.stop()
		if most > 2*limit+size {
			b.t.Errorf("%d bytes were held, the limit is %d and a fetch of as much", most, limit)
		}
		if most < limit/2 {
			b.t.Errorf("only %d bytes were held of %d", most, limit)
		}
		if s := c.Stats(); s.Bytes != 0 {
			b.t.Errorf("%d bytes are held at the end", s.Bytes)
		}
	})
}

// H-099, H-100, H-108, P-4: a partition whose records don't get done is read no
// further than its share, and the other one goes on; heartbeats go on too.
func TestBlockedPartitionIsHeldAlone(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		b.produce(spread(20_000, 2)...)
		cfg := b.config()
		cfg.MaxBufferedBytes, cfg.Concurrency, cfg.MaxInFlight = 400_000, 2000, 2000
		gate := make(chan struct{})
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			if r.Partition == 0 {
				select {
				case <-gate:
				case <-ctx.Done():
				}
			}
			return context.Cause(ctx)
		})
		b.until("the other partition is done", func() bool { return b.committed(1) == 10_000 })
		time.Sleep(3 * time.Minute) // three sessions
		s := c.Stats()
		if p := s.Partitions[0]; p.ReadTo > 3000 || p.Frontier != 0 || p.Bytes > 400_000 {
			b.t.Errorf("partition 0: %+v", p)
		}
		more := make([]*kgo.Record, 100)
		for i := range more {
			more[i] = record("more"+strconv.Itoa(i), "")
			more[i].Partition = 1
		}
		b.produce(more...)
		b.until("what came later", func() bool { return b.committed(1) == 10_100 })
		if f := c.Stats().Partitions[0].Fence; f != s.Partitions[0].Fence || len(c.Stats().Partitions) != 2 {
			b.t.Error("there was a rebalance")
		}
		close(gate)
		b.until("all is done", func() bool { return b.committed(0) == 10_000 })
		c.stop()
	})
}

// H-098, H-102: pauses by topic and by partition are independent, what runs goes
// on, and a pause outlives a rebalance.
func TestPause(t *testing.T) {
	p := func(n int32) fronta.TopicPartition { return fronta.TopicPartition{Topic: orders, Partition: n} }
	type steps []func(*running)
	pause := func(n int32) func(*running) { return func(c *running) { c.Pause(p(n)) } }
	resume := func(n int32) func(*running) { return func(c *running) { c.Resume(p(n)) } }
	pauseTopic := func(c *running) { c.PauseTopic(orders) }
	resumeTopic := func(c *running) { c.ResumeTopic(orders) }
	for name, tt := range map[string]struct {
		steps steps
		want  []int32 // paused
	}{
		"one":                           {steps{pause(1)}, []int32{1}},
		"one, resumed":                  {steps{pause(1), resume(1)}, nil},
		"one twice, resumed once":       {steps{pause(1), pause(1), resume(1)}, nil},
		"topic":                         {steps{pauseTopic}, []int32{0, 1}},
		"topic, resumed":                {steps{pauseTopic, resumeTopic}, nil},
		"one and topic, topic resumed":  {steps{pause(1), pauseTopic, resumeTopic}, []int32{1}},
		"topic and one, topic resumed":  {steps{pauseTopic, pause(1), resumeTopic}, []int32{1}},
		"one and topic, one resumed":    {steps{pause(1), pauseTopic, resume(1)}, []int32{0, 1}},
		"one and topic, both resumed":   {steps{pause(1), pauseTopic, resume(1), resumeTopic}, nil},
		"resumed without a pause":       {steps{resume(0), resumeTopic}, nil},
		"partition that does not exist": {steps{pause(77)}, nil},
		"another topic":                 {steps{func(c *running) { c.PauseTopic("else") }}, nil},
		"two, one resumed":              {steps{func(c *running) { c.Pause(p(0), p(1)); c.Resume(p(0)) }}, []int32{1}},
		"none named":                    {steps{func(c *running) { c.Pause(); c.Resume() }}, nil},
	} {
		for _, when := range []string{"before Run", "while running", "and a rebalance"} {
			t.Run(name+", "+when, func(t *testing.T) {
				virtual(t, 2, func(b *bench) {
					cfg := b.config()
					var ran journal
					handler := fronta.HandlerFunc(func(_ context.Context, r *fronta.Record) error { ran.add(r); return nil })
					c := &running{Consumer: b.consumer(cfg), t: b.t, ended: make(chan struct{})}
					act := func() {
						for _, step := range tt.steps {
							step(c)
						}
					}
					if when == "before Run" {
						act()
					}
					ctx, cancel := context.WithCancel(context.Background())
					c.cancel = cancel
					go func() { defer close(c.ended); c.err = c.Run(ctx, handler) }()
					b.until("it has its partitions", func() bool { return len(c.Stats().Partitions) == 2 })
					if when != "before Run" {
						act()
					}
					if when == "and a rebalance" {
						// The membership is void: a new one begins with new partitions.
						fence := c.Stats().Partitions[0].Fence
						b.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: billing, TopLevel: true, Err: errUnknownMember})
						b.until("the rebalance", func() bool {
							ps := c.Stats().Partitions
							return len(ps) == 2 && ps[0].Fence > fence && ps[1].Fence > fence
						})
					}
					b.produce(spread(20, 2)...)
					time.Sleep(time.Minute)
					var paused []int32
					for _, ps := range c.Stats().Partitions {
						if ps.Paused {
							paused = append(paused, ps.Partition)
						}
					}
					if !slices.Equal(paused, tt.want) {
						t.Errorf("paused: %v, want %v", paused, tt.want)
					}
					for _, e := range ran.all() {
						if slices.Contains(tt.want, e.partition) {
							t.Errorf("a record of the paused partition %d ran", e.partition)
							break
						}
					}
					if n := ran.len(); n != 20-10*len(tt.want) {
						t.Errorf("%d records ran", n)
					}
					c.Resume(p(0), p(1))
					c.ResumeTopic(orders)
					ran.wait(t, 20)
					c.stop()
				})
			})
		}
	}
}

// A pause lets what runs go on, and its results count; a retry that comes due
// waits for the end of the pause.
func TestPauseLetsRunningFinish(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "slow"), record("b", "fail once"), record("a", "next"))
		var ran journal
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(10 * time.Second)
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			ran.add(r)
			switch {
			case string(r.Value) == "slow":
				return sleep(ctx, 5*time.Second)
			case string(r.Value) == "fail once" && r.DeliveryCount == 1:
				return errDeclined
			}
			return nil
		})
		ran.wait(b.t, 2)
		c.PauseTopic(orders)
		time.Sleep(time.Minute)
		if s := c.Stats(); s.Accepted != 1 || s.Unfinished != 2 || s.Abandoned != 0 {
			b.t.Errorf("%+v", s)
		}
		b.wantCommitted(0, 1)
		if n := ran.len(); n != 2 {
			b.t.Errorf("%d handlers were called", n)
		}
		c.ResumeTopic(orders)
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		c.stop()
	})
}

// H-105, H-107: what was handled leaves nothing in the counts, whatever the
// limits it met.
func TestNothingIsLeftInTheCounts(t *testing.T) {
	virtual(t, 3, func(b *bench) {
		const n = 2000
		b.produce(spread(n, 3)...)
		cfg := b.config()
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry, cfg.MaxInFlight = fronta.DeadLetterTopic(letters), 2, fronta.ConstantBackoff(time.Millisecond), 100
		cfg.DeadLetter = cfg.DeadLetter.WithBudget(fronta.DeadLetterBudget{Burst: -1})
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			switch r.Offset % 5 {
			case 0:
				return errDeclined
			case 1:
				return fronta.Reject(errDeclined)
			case 2:
				if r.DeliveryCount == 1 {
					return fronta.RetryAfter(time.Millisecond, errDeclined)
				}
			case 3:
				if strings.HasSuffix(string(r.Value), "3") && r.DeliveryCount == 1 {
					panic("three")
				}
			}
			return nil
		})
		b.until("all are done", func() bool { s := c.Stats(); return s.Accepted+s.DeadLettered == n })
		s := c.Stats()
		if s.Running != 0 || s.Unfinished != 0 || s.Waiting != 0 || s.ReadAhead != 0 || s.Bytes != 0 {
			b.t.Errorf("%+v", s)
		}
		c.stop()
		var sum int64
		for p := range int32(3) {
			sum += b.committed(p)
		}
		if sum != n {
			b.t.Errorf("committed %d of %d", sum, n)
		}
	})
}
