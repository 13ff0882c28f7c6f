package fronta_test

// Dead letters: what they say, when they are written, and what waits for them
// (P-1, P-6).

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/fake"
)

// H-080, H-081: key, value, headers and timestamp arrive as they were, and the
// headers say where the record came from and why it was given up.
func TestDeadLetterContent(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		at := time.UnixMilli(1_600_000_000_123)
		headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "b"}, {Key: "", Value: []byte{0, 255}}}
		b.produce(
			&kgo.Record{Topic: orders, Partition: 1, Key: key("k"), Value: []byte("v"), Headers: headers, Timestamp: at},
			&kgo.Record{Topic: orders, Partition: 1, Key: nil, Value: nil, Timestamp: time.UnixMilli(0)},
			&kgo.Record{Topic: orders, Partition: 1, Key: []byte{}, Value: []byte{}, Timestamp: at},
		)
		cfg := b.config()
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry = fronta.DeadLetterTopic(letters), 2, fronta.ConstantBackoff(10*time.Second)
		begin := time.Now()
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			if r.Offset == 0 {
				return fmt.Errorf("attempt %d: %w", r.DeliveryCount, errDeclined)
			}
			return fronta.Reject(errDeclined)
		})
		b.until("all is done", func() bool { return b.committed(1) == 3 })
		c.stop()
		dead := b.deadLetters()
		if len(dead) != 3 {
			b.t.Fatalf("%d dead letters, want 3", len(dead))
		}
		slices.SortFunc(dead, func(a, b deadLetter) int { return int(a.Origin.Offset - b.Origin.Offset) })
		for i, d := range dead {
			want := deadletter.Origin{Topic: orders, Partition: 1, Offset: int64(i), Group: billing, Timestamp: at.UTC()}
			if i == 1 {
				want.Timestamp = time.UnixMilli(0).UTC()
			}
			got := d.Origin
			got.LeaderEpoch = 0
			if diff := cmp.Diff(want, got); diff != "" {
				b.t.Errorf("letter %d: %s", i, diff)
			}
			if !d.record.Timestamp.Equal(want.Timestamp) {
				b.t.Errorf("letter %d has the timestamp %s, want %s", i, d.record.Timestamp, want.Timestamp)
			}
			if d.Group != billing {
				b.t.Errorf("letter %d: group %q", i, d.Group)
			}
		}
		d := dead[0]
		if string(d.Key) != "k" || string(d.Value) != "v" || d.Reason != deadletter.Deliveries || d.DeliveryCount != 2 || d.Error != "attempt 2: card declined" {
			b.t.Errorf("letter 0: %+v", d.Letter)
		}
		if diff := cmp.Diff(headers, d.Headers); diff != "" {
			b.t.Errorf("headers: %s", diff)
		}
		if gap := d.LastFailure.Sub(d.FirstFailure).Round(time.Second); gap != 10*time.Second || d.FirstFailure.Before(begin) {
			b.t.Errorf("failures at %s and %s", d.FirstFailure, d.LastFailure)
		}
		if d := dead[1]; d.Key != nil || d.Value != nil || d.Reason != deadletter.Rejected || d.DeliveryCount != 1 || d.Error != "card declined" {
			b.t.Errorf("letter 1: %+v", d.Letter)
		}
		if d := dead[2]; d.Key == nil || d.Value == nil || len(d.Key)+len(d.Value) != 0 {
			b.t.Errorf("letter 2: key %#v, value %#v; want empty, not nil", d.Key, d.Value)
		}
	})
}

// Dead letters go to the partition that the producer's partitioner has for the
// key, so that those of one key stay in order.
func TestDeadLettersAreePartitionedByKey(t *testing.T) {
	virtual(t, 4, func(b *bench) {
		if err := b.broker.Cluster().CreateTopic("dlq8", 8, nil); err != nil {
			b.t.Fatal(err)
		}
		const n = 200
		rs := numbered(n, 20)
		for i, r := range rs {
			r.Partition = int32(i % 4)
		}
		b.produce(rs...)
		cfg := b.config()
		cfg.DeadLetter = fronta.DeadLetterTopic("dlq8")
		c := b.run(cfg, func(context.Context, *fronta.Record) error { return fronta.Reject(errDeclined) })
		b.until("all letters", func() bool { return c.Stats().DeadLettered == n })
		c.stop()

		reader := b.newClient(kgo.ConsumeTopics("dlq8"))
		where := make(map[string]int32)
		last := make(map[string]int64)
		used := make(map[int32]bool)
		partitioner := kgo.StickyKeyPartitioner(nil).ForTopic("dlq8") // Kafka's own, for keys
		for got := 0; got < n; {
			fetches := reader.PollFetches(b.t.Context())
			fetches.EachRecord(func(r *kgo.Record) {
				got++
				k := string(r.Key)
				used[r.Partition] = true
				if p, ok := where[k]; ok && p != r.Partition {
					b.t.Errorf("key %s is in partitions %d and %d", k, p, r.Partition)
				}
				where[k] = r.Partition
				if want := partitioner.Partition(r, 8); int(r.Partition) != want {
					b.t.Errorf("key %s is in partition %d, the producer's is %d", k, r.Partition, want)
				}
				l, err := deadletter.Parse(r)
				if err != nil {
					b.t.Fatal(err)
				}
				lane := fmt.Sprint(k, l.Origin.Partition)
				if before, ok := last[lane]; ok && before >= l.Origin.Offset {
					b.t.Errorf("lane %s: letter of %d after that of %d", lane, l.Origin.Offset, before)
				}
				last[lane] = l.Origin.Offset
			})
		}
		if len(used) < 4 {
			b.t.Errorf("%d partitions used", len(used))
		}
	})
}

// P-1: the letter is acknowledged before the record's offset may be committed.
func TestCommitWaitsForTheDeadLetter(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "1"), record("a", "poison"), record("a", "2"), record("b", "3"))
		held, release := b.hold(kmsg.Produce)
		cfg := b.config()
		cfg.DeadLetter = fronta.DeadLetterTopic(letters)
		var calls journal
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			calls.add(r)
			return rejectPoison(ctx, r)
		})
		<-held
		time.Sleep(8 * time.Second) // eight commits
		b.wantCommitted(0, 1)
		if s := c.Stats(); s.DeadLettered != 0 || s.Unfinished != 2 || s.Partitions[0].Blocked[0].State != "parked" || s.Partitions[0].Blocked[0].Behind != 1 {
			b.t.Errorf("%+v", s)
		}
		if slices.Contains(calls.offsets(), 2) || !slices.Contains(calls.offsets(), 3) {
			b.t.Errorf("ran %v; want the other lane's, not this one's", calls.offsets())
		}
		release()
		b.until("all is done", func() bool { return b.committed(0) == 4 })
		c.stop()
		if n := len(b.deadLetters()); n != 1 {
			b.t.Errorf("%d dead letters, want 1", n)
		}
	})
}

// H-077, H-078: the write fails for a minute. The lane waits, others flow,
// every failure is told, and the frontier catches up without a restart.
func TestDeadLetterWriteFailsForAWhile(t *testing.T) {
	for _, kind := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.NotLeaderForPartition,
		kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, kerr.UnknownServerError, kerr.InvalidRecord, kerr.KafkaStorageError,
	} {
		t.Run(kind.Message, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", "poison"), record("a", "next"), record("b", "other"), record("c", "poison"))
				f := b.fail(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: letters, Err: kind})
				cfg := b.config()
				hook := new(recorder)
				var lines logged
				cfg.DeadLetter, cfg.Hooks, cfg.Logger = fronta.DeadLetterTopic(letters), []any{hook}, lines.logger()
				var calls journal
				c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error { calls.add(r); return rejectPoison(ctx, r) })
				calls.wait(t, 3)
				time.Sleep(time.Minute)
				b.wantCommitted(0, 0)
				if calls.len() != 3 || c.Stats().Accepted != 1 {
					t.Errorf("%d calls, %d accepted; want 3 and 1", calls.len(), c.Stats().Accepted)
				}
				f.Remove()
				b.until("the next record", func() bool { return calls.len() == 4 })
				b.until("all is done", func() bool { return b.committed(0) == 4 })
				c.stop()
				// One of each, or more where the broker kept what it said it had not.
				origins := make(map[int64]int)
				for _, d := range b.deadLetters() {
					origins[d.Origin.Offset]++
				}
				if origins[0] < 1 || origins[3] < 1 || len(origins) != 2 {
					t.Errorf("dead letters by offset: %v", origins)
				}
				failed := hook.of("dead letter failed")
				for i := 1; i < len(failed); i++ {
					if failed[i].d > 30*time.Second {
						t.Errorf("the next try is %s away", failed[i].d)
					}
				}
				if s := c.Stats(); s.DeadLetterErrors != int64(len(failed)) || s.DeadLettered != 2 {
					t.Errorf("%d errors counted, %d told; %d letters", s.DeadLetterErrors, len(failed), s.DeadLettered)
				}
				if len(failed) > 0 && !strings.Contains(lines.String(), "dead letter could not be written") {
					t.Error("no line says so") // P-7
				}
			})
		})
	}
}

// H-077: the dead-letter topic is deleted under a running consumer and comes back.
func TestDeadLetterTopicGoesAndReturns(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("z", "poison"))
		cfg := b.config()
		hook := new(recorder)
		cfg.DeadLetter, cfg.Hooks = fronta.DeadLetterTopic(letters), []any{hook}
		c := b.run(cfg, rejectPoison)
		b.until("the first letter", func() bool { return c.Stats().DeadLettered == 1 })
		if _, err := b.admin.DeleteTopics(b.t.Context(), letters); err != nil {
			b.t.Fatal(err)
		}
		b.produce(record("a", "poison"), record("a", "next"), record("b", "other"))
		b.until("a failure", func() bool { return hook.count("dead letter failed") > 0 })
		b.until("the other", func() bool { return c.Stats().Accepted == 1 })
		b.wantCommitted(0, 1)
		if err := b.broker.Cluster().CreateTopic(letters, 2, nil); err != nil {
			b.t.Fatal(err)
		}
		b.until("all is done", func() bool { return b.committed(0) == 4 })
		c.stop()
		if n := len(b.deadLetters()); n != 1 {
			b.t.Errorf("%d dead letters in the new topic, want 1", n)
		}
	})
}

// H-077: a full producer buffer is a failed write like any other.
func TestDeadLettersWithASmallProducerBuffer(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(300, 300)...)
		cfg := b.config()
		cfg.Client = append(cfg.Client, kgo.MaxBufferedRecords(1))
		cfg.DeadLetter = fronta.DeadLetterTopic(letters)
		c := b.run(cfg, func(context.Context, *fronta.Record) error { return fronta.Reject(errDeclined) })
		b.until("all is done", func() bool { return b.committed(0) == 300 })
		c.stop()
		if n := len(b.deadLetters()); n != 300 {
			b.t.Errorf("%d dead letters, want 300", n)
		}
	})
}

// H-084: a stop comes while ten writes have no answer. Those that are confirmed
// in time are done; otherwise the records stay for the next consumer.
func TestStopDuringDeadLetterWrites(t *testing.T) {
	for name, confirmed := range map[string]bool{"confirmed in time": true, "never confirmed": false} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(numbered(10, 10)...)
				held, release := b.hold(kmsg.Produce)
				cfg := b.config()
				cfg.DeadLetter, cfg.DrainTimeout = fronta.DeadLetterTopic(letters), 10*time.Second
				c := b.run(cfg, func(context.Context, *fronta.Record) error { return fronta.Reject(errDeclined) })
				<-held
				b.until("ten writes", func() bool { return c.Stats().Rejected == 10 })
				c.cancel()
				if confirmed {
					time.Sleep(5 * time.Second)
					release()
				}
				if err := c.wait(); err != nil {
					t.Error(err)
				}
				s := c.Stats()
				if confirmed {
					b.wantCommitted(0, 10)
					if n := len(b.deadLetters()); n != 10 || s.DeadLettered != 10 {
						t.Errorf("%d dead letters, %d counted", n, s.DeadLettered)
					}
					return
				}
				if got := b.committed(0); got > 0 || s.DeadLettered != 0 {
					t.Errorf("committed %d with %d letters confirmed", got, s.DeadLettered)
				}
				release()
				c = b.run(cfg, func(context.Context, *fronta.Record) error { return fronta.Reject(errDeclined) })
				b.until("all is done", func() bool { return b.committed(0) == 10 })
				c.stop()
			})
		})
	}
}

// MESSAGE_TOO_LARGE: a record near the limit grows by its headers and does not
// fit into an ordinary batch any more, but the topic takes it.
func TestDeadLetterOfALargeRecord(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		value := make([]byte, 1_000_000)
		for i := range value {
			value[i] = byte(rand.Int()) // does not compress
		}
		sizes := []int{1_000_000, 999_900, 999_000, 990_000}
		for i, n := range sizes {
			b.produce(&kgo.Record{Topic: orders, Key: key(strconv.Itoa(i)), Value: value[:n]})
		}
		big := make([]byte, 3<<20)
		b.produce(&kgo.Record{Topic: orders, Key: key("big"), Value: big})
		cfg := b.config()
		cfg.DeadLetter = fronta.DeadLetterTopic(letters)
		c := b.run(cfg, func(context.Context, *fronta.Record) error { return fronta.Reject(errDeclined) })
		b.until("all is done", func() bool { return b.committed(0) == int64(len(sizes)+1) })
		c.stop()
		found := 0
		for _, d := range b.deadLetters() {
			if string(d.Key) == "big" {
				if !bytes.Equal(d.Value, big) {
					b.t.Error("the big value changed")
				}
				continue
			}
			i, _ := strconv.Atoi(string(d.Key))
			if !bytes.Equal(d.Value, value[:sizes[i]]) {
				b.t.Errorf("value %d changed", i)
			}
			found++
		}
		if found != len(sizes) {
			b.t.Errorf("%d dead letters, want %d", found, len(sizes))
		}
	}, fake.Configs(map[string]string{"message.max.bytes": "8000000"}))
}

// A record that the topic does not take, whatever the client does, blocks its
// lane alone and is told; a larger limit mends it.
func TestDeadLetterTooLargeForTheTopic(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "poison"), record("a", "next"), record("b", "other"))
		f := b.fail(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: letters, Err: kerr.MessageTooLarge})
		hook := new(recorder)
		cfg := b.config()
		cfg.DeadLetter, cfg.Hooks = fronta.DeadLetterTopic(letters), []any{hook}
		c := b.run(cfg, rejectPoison)
		b.until("two failures", func() bool { return hook.count("dead letter failed") >= 2 })
		if err := hook.of("dead letter failed")[0].err; !errors.Is(err, kerr.MessageTooLarge) {
			b.t.Errorf("told %v", err)
		}
		if at := b.committed(0); at > 0 {
			b.t.Errorf("committed %d", at)
		}
		if s := c.Stats(); s.Accepted != 1 {
			b.t.Errorf("accepted %d, want the other lane's", s.Accepted)
		}
		f.Remove()
		b.until("all is done", func() bool { return b.committed(0) == 3 })
		c.stop()
	})
}

// P-6: every call fails for ten minutes. No more than the budget's records are
// dead-lettered, and all others are handled once the outage is over.
func TestOutageIsNotPoison(t *testing.T) {
	for name, tt := range map[string]struct {
		budget *fronta.DeadLetterBudget
		most   int
	}{
		"default budget": {nil, 100},
		"small budget":   {&fronta.DeadLetterBudget{Burst: 7, PerAccept: 0.5}, 7},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, 2, func(b *bench) {
				const n = 500
				rs := numbered(n, 250)
				for i, r := range rs {
					r.Partition = int32(i % 2)
				}
				b.produce(rs...)
				var lines logged
				cfg := b.config()
				cfg.DeadLetter, cfg.MaxDeliveries, cfg.Retry, cfg.Logger = fronta.DeadLetterTopic(letters), 3, fronta.ExponentialBackoff{Max: 30 * time.Second}, lines.logger()
				if tt.budget != nil {
					cfg.DeadLetter = cfg.DeadLetter.WithBudget(*tt.budget)
				}
				watch := newLanes(b.t)
				over := time.Now().Add(10 * time.Minute)
				var handled journal
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
					return watch.run(string(r.Key), r, func() error {
						if time.Now().Before(over) {
							return errDeclined
						}
						handled.add(r)
						return nil
					})
				})
				time.Sleep(time.Until(over))
				s := c.Stats()
				if s.DeadLettered != int64(tt.most) {
					t.Errorf("%d records dead-lettered in the outage, want the budget's %d", s.DeadLettered, tt.most)
				}
				if s.Withheld == 0 || strings.Count(lines.String(), "many records fail at once") == 0 {
					t.Error("nothing says that records were withheld") // P-7
				}
				b.until("all is done", func() bool { return b.committed(0)+b.committed(1) == n })
				c.stop()
				dead := len(b.deadLetters())
				if dead != tt.most || handled.len() != n-dead {
					t.Errorf("%d dead letters, %d handled; want %d and %d", dead, handled.len(), tt.most, n-tt.most)
				}
			})
		})
	}
}

// The budget comes back with what is accepted, and Reject does not use it.
func TestBudgetComesBack(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		var rs []*kgo.Record
		for i := range 5 {
			rs = append(rs, record("bad"+strconv.Itoa(i), "bad"), record("rejected"+strconv.Itoa(i), "poison"))
		}
		b.produce(rs...)
		cfg := b.config()
		cfg.DeadLetter = fronta.DeadLetterTopic(letters).WithBudget(fronta.DeadLetterBudget{Burst: 2, PerAccept: 0.5})
		cfg.MaxDeliveries, cfg.Retry = 2, fronta.ConstantBackoff(time.Second)
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			if string(r.Value) == "bad" {
				return errDeclined
			}
			return rejectPoison(ctx, r)
		})
		time.Sleep(time.Minute)
		if s := c.Stats(); s.DeadLettered != 5+2 {
			b.t.Errorf("%d dead-lettered, want the 5 rejected and 2 of the others", s.DeadLettered)
		}
		b.produce(record("good", "1"), record("good", "2"))
		time.Sleep(time.Minute)
		if s := c.Stats(); s.DeadLettered != 5+3 {
			b.t.Errorf("%d dead-lettered after two were accepted, want one more", s.DeadLettered)
		}
		b.produce(numbered(4, 4)...)
		b.until("all is done", func() bool { return b.committed(0) == 16 })
		c.stop()
	})
}

// H-082: the handler's deadline is not the write's, and a letter's error text
// is the last attempt's.
func TestDeadLetterAfterTimeout(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "slow"))
		cfg := b.config()
		cfg.DeadLetter, cfg.MaxDeliveries, cfg.HandlerTimeout = fronta.DeadLetterTopic(letters), 1, 50*time.Millisecond
		c := b.run(cfg, func(ctx context.Context, _ *fronta.Record) error { return sleep(ctx, time.Hour) })
		b.until("it is done", func() bool { return b.committed(0) == 1 })
		c.stop()
		dead := b.deadLetters()
		if len(dead) != 1 || dead[0].Reason != deadletter.Timeout || !strings.Contains(dead[0].Error, "HandlerTimeout") {
			b.t.Errorf("%+v", dead)
		}
	})
}

// H-079: a dead letter that is put back and fails again keeps its first origin.
func TestDeadLetterOfADeadLetter(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(record("a", "poison"))
		cfg := b.config()
		cfg.DeadLetter = fronta.DeadLetterTopic(letters)
		c := b.run(cfg, rejectPoison)
		b.until("the letter", func() bool { return c.Stats().DeadLettered == 1 })
		back := deadletter.Restore(b.deadLetters()[0].record)
		if back.Topic != orders {
			b.t.Fatalf("restored to %q", back.Topic)
		}
		b.produce(back)
		b.until("the second letter", func() bool { return c.Stats().DeadLettered == 2 })
		c.stop()
		second := b.deadLetters()[1]
		if second.Origin.Offset != 0 || second.Hops != 1 || second.DeliveryCount != 1 {
			b.t.Errorf("%+v", second.Letter)
		}
	})
}
