package fronta_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/progress"
)

// stored is the pair that the group has stored for partition 0 of orders.
func (b *bench) stored() (offset int64, text string) {
	b.t.Helper()
	offsets, err := b.admin.FetchOffsets(b.t.Context(), billing)
	if err != nil {
		b.t.Fatal(err)
	}
	o, _ := offsets.Lookup(orders, 0)
	return o.At, o.Metadata
}

// told decodes what is stored. The binding is checked elsewhere: here it is
// enough what Inspect sees.
func (b *bench) told() progress.Info {
	b.t.Helper()
	offset, text := b.stored()
	info := progress.Inspect(text, offset)
	if info.Reason != "" {
		b.t.Fatalf("what is stored at offset %d can't be read: %s", offset, info.Reason)
	}
	return info
}

// stuckOn handles records but for those that stuck says are not to be, which
// wait until the consumer stops.
func stuckOn(j *journal, stuck func(*fronta.Record) bool) fronta.HandlerFunc {
	return func(ctx context.Context, r *fronta.Record) error {
		if stuck(r) {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		j.add(r)
		return nil
	}
}

// P-3, H-028, H-115: what was finished behind a stuck record stays finished,
// whatever the order of the owner that finished it and of the next one, and
// whatever form its progress was written in.
func TestFinishedStaysFinished(t *testing.T) {
	byFirst := fronta.ByKeyFunc("first", func(r *kgo.Record) []byte { return r.Key[:1] })
	list := []fronta.Order{fronta.ByKey(), fronta.ByBucket(3), fronta.ByPartition(), fronta.Unordered(), byFirst}
	forms := map[string]fronta.Progress{"fronta": fronta.FrontaProgress, "atleon": fronta.AtleonV1, "parallel consumer": fronta.ParallelConsumer}
	for form, write := range forms {
		for _, was := range list {
			for _, is := range list {
				t.Run(fmt.Sprintf("%s, %s to %s", form, was, is), func(t *testing.T) {
					virtual(t, 1, func(b *bench) {
						const n = 60
						b.produce(numbered(n, 7)...)
						cfg := b.config()
						cfg.Order, cfg.Progress, cfg.DrainTimeout, cfg.FormerOrders = was, write, time.Second, []fronta.Order{byFirst}
						var first, second journal
						c := b.run(cfg, stuckOn(&first, func(r *fronta.Record) bool { return r.Offset == 5 }))
						b.until("all that can be is handled", func() bool { s := c.Stats(); return s.Running == 1 && s.ReadAhead == 0 })
						c.stop()
						// The second owner goes before it has done all.
						cfg.Order = is
						c = b.run(cfg, stuckOn(&second, func(r *fronta.Record) bool { return r.Offset == 5 || r.Offset == 11 }))
						b.produce(numbered(n, 7)...)
						time.Sleep(3 * time.Second)
						c.stop()
						c = b.run(cfg, stuckOn(&second, func(*fronta.Record) bool { return false }))
						b.until("all is committed", func() bool { return b.committed(0) == 2*n })
						c.stop()
						seen := make(map[int64]int)
						for _, o := range append(first.offsets(), second.offsets()...) {
							seen[o]++
						}
						for o := range int64(2 * n) {
							if seen[o] != 1 {
								t.Errorf("offset %d was handled %d times", o, seen[o])
							}
						}
						last := make(map[string]int64)
						for _, e := range append(first.all(), second.all()...) {
							if lane := laneName(is, e.offset); lane != "" && laneName(was, e.offset) == lane {
								if last[lane] > e.offset {
									t.Errorf("lane %s: offset %d after %d", lane, e.offset, last[lane])
								}
								last[lane] = e.offset
							}
						}
					})
				})
			}
		}
	}
}

// laneName is the lane of a record of numbered(…, 7), "" if it has none that
// is the same in two orders.
func laneName(o fronta.Order, offset int64) string {
	switch o.String() {
	case "key":
		return fmt.Sprint(offset % 60 % 7)
	case "partition":
		return "all"
	}
	return ""
}

// H-146, P-5: with little room for progress and a great many records stuck at
// random, what does not fit waits in the log; nothing that was finished is
// forgotten, and nothing stands still for good.
func TestLittleRoomForProgress(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		const n = 20000
		for from := 0; from < n; from += 5000 {
			b.produce(numbered(5000, 5000)...)
		}
		cfg := b.config()
		cfg.Order, cfg.MetadataLimit, cfg.MaxInFlight, cfg.Concurrency = fronta.Unordered(), 200, 100000, 100000
		cfg.Retry = fronta.ConstantBackoff(10 * time.Second)
		cfg.DrainTimeout = time.Second
		var j journal
		var waited bool
		stuck := func(r *fronta.Record) bool {
			h := fnv.New32a()
			fmt.Fprint(h, r.Offset)
			return h.Sum32()%2 == 0 && r.DeliveryCount < 4
		}
		handle := func(_ context.Context, r *fronta.Record) error {
			if stuck(r) {
				return errDeclined
			}
			j.add(r)
			return nil
		}
		for b.committed(0) < n {
			c := b.run(cfg, handle)
			for range 40 {
				time.Sleep(time.Second)
				for _, p := range c.Stats().Partitions {
					waited = waited || p.WaitsForProgress
					if p.MetadataUnits > 200 {
						t.Errorf("%d units are stored", p.MetadataUnits)
					}
				}
			}
			if s := c.Stats(); s.ShortenedCommits != 0 {
				t.Errorf("%d commits left something out", s.ShortenedCommits)
			}
			c.stop()
		}
		if !waited {
			t.Error("no partition was said to wait")
		}
		offsets := j.offsets()
		slices.Sort(offsets)
		for i := range int64(n) {
			if offsets[i] != i {
				t.Fatalf("offset %d was not handled once: %d", i, offsets[i])
			}
		}
		if len(offsets) != n {
			t.Errorf("%d records were handled, want %d", len(offsets), n)
		}
	})
}

// Failed attempts are counted on after a restart, and lead to the dead letter.
func TestDeliveriesSurvive(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(3, 3)...)
		cfg := b.config()
		cfg.Retry = fronta.BackoffSteps{time.Millisecond, time.Millisecond, time.Hour}
		cfg.DeadLetter, cfg.MaxDeliveries = fronta.DeadLetterTopic(letters), 5
		var mu sync.Mutex
		var deliveries []int
		handle := func(_ context.Context, r *fronta.Record) error {
			if r.Offset != 1 {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			deliveries = append(deliveries, r.DeliveryCount)
			return errDeclined
		}
		c := b.run(cfg, handle)
		b.until("it waits", func() bool { return c.Stats().Failed == 3 })
		c.stop()
		if info := b.told(); !slices.Equal(info.Progress.Attempts, []progress.Count{{Offset: 1, N: 3}}) || !info.Progress.Clean {
			t.Errorf("stored: %s", info)
		}
		cfg.Retry = fronta.ConstantBackoff(time.Second)
		c = b.run(cfg, handle)
		b.until("it is a dead letter", func() bool { return c.Stats().DeadLettered == 1 })
		c.stop()
		if !slices.Equal(deliveries, []int{1, 2, 3, 4, 5}) {
			t.Errorf("deliveries %v", deliveries)
		}
		if l := b.deadLetters(); len(l) != 1 || l[0].Reason != deadletter.Deliveries || l[0].DeliveryCount != 5 {
			t.Errorf("dead letters %+v", l)
		}
	})
}

// A fence never falls, also when the group, with all that it stored, is deleted
// and made again.
func TestFenceOutlivesTheGroup(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		var last int64
		for i := range 6 {
			b.produce(record("a", "1"))
			var j journal
			c := b.run(b.config(), func(_ context.Context, r *fronta.Record) error { j.add(r); return nil })
			j.wait(b.t, 1)
			c.stop()
			if f := j.all()[0].fence; f <= last {
				t.Fatalf("fence %d after %d", f, last)
			} else {
				last = f
			}
			if i%2 == 1 {
				if _, err := b.admin.DeleteGroup(b.t.Context(), billing); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
	})
}
