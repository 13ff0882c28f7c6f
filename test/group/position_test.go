package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/fake"
	"github.com/fronta-mq/fronta/internal/checker"
)

// offsets are those that m has started of topic's partition, in the order of
// the first attempts.
func (m *member) offsets(partition int32) []int64 {
	var offsets []int64
	for _, s := range m.starts() {
		if s.partition == partition {
			offsets = append(offsets, s.offset)
		}
	}
	return offsets
}

// Where a partition begins of which nothing is committed, and that it begins
// there for good: a restart before the first record skips nothing.
func TestStartAt(t *testing.T) {
	for name, c := range map[string]struct {
		at    func(noon time.Time) fronta.Start
		first int64
	}{
		"earliest":          {func(time.Time) fronta.Start { return fronta.Earliest() }, 0},
		"latest":            {func(time.Time) fronta.Start { return fronta.Latest() }, 20},
		"since noon":        {func(noon time.Time) fronta.Start { return fronta.Since(noon) }, 10},
		"since the future":  {func(noon time.Time) fronta.Start { return fronta.Since(noon.Add(24 * time.Hour)) }, 20},
		"since the far end": {func(time.Time) fronta.Start { return fronta.Since(time.UnixMilli(0)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				w.produce(0, keys("a", 10)...)
				time.Sleep(time.Hour)
				noon := time.Now()
				w.produce(0, keys("b", 10)...)
				time.Sleep(time.Hour)
				cfg := fronta.Config{Protocol: protocol, StartAt: c.at(noon), Order: fronta.ByPartition()}
				w.check.Reset(part(0), c.first)
				m := w.join("a", cfg, accept)
				w.until("assigned", m.owns(1))
				time.Sleep(5 * time.Second)
				m.stop()
				w.produce(0, keys("c", 10)...)
				m = w.join("again", cfg, accept)
				w.until("stored", func() bool { return w.stored(0) == 30 })
				all := append(w.members[0].offsets(0), m.offsets(0)...)
				if all[0] != c.first || len(all) != int(30-c.first) || !slices.IsSorted(all) {
					t.Errorf("handled %v, want those from %d", all, c.first)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// The log is deleted beyond the position while everything stalls.
//
// H-054
func TestPositionFallsOutOfTheLog(t *testing.T) {
	for name, reset := range map[string]fronta.Reset{"earliest": fronta.ResetEarliest, "latest": fronta.ResetLatest, "none": fronta.ResetNone} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 2)
				cfg := fronta.Config{Protocol: protocol, OutOfRange: reset}
				first := w.join("first", cfg, accept)
				w.produce(0, keys("a", 10)...)
				w.until("stored", func() bool { return w.stored(0) == 10 })
				first.stop()
				w.produce(0, keys("b", 40)...)
				for offset := int64(10); offset < 30; offset++ {
					w.check.Discarded(part(0), offset, "retention")
				}
				if err := w.cluster().DeleteRecords(topic, 0, 30); err != nil {
					t.Fatal(err)
				}
				m := w.join("second", cfg, accept)
				if reset == fronta.ResetNone {
					<-m.done
					if !errors.Is(m.err, kerr.OffsetOutOfRange) || !strings.Contains(m.err.Error(), `topic "orders" partition 0`) || !strings.Contains(m.err.Error(), "Config.OutOfRange") {
						t.Errorf("Run: %v", m.err)
					}
					if n := len(m.starts()); n != 0 {
						t.Errorf("%d records were handled", n)
					}
					return
				}
				w.until("stored", func() bool { return w.stored(0) == 50 })
				got := m.offsets(0)
				slices.Sort(got)
				if len(got) != 20 || got[0] != 30 {
					t.Errorf("handled %v, want all that is retained, from 30", got)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// A topic consumed to 500 is deleted and made again by name, with the consumer
// running or stopped: all of the new records are handled, or the partition
// fails with a named error, and nothing of the old position is stored for it.
//
// H-056
func TestTopicIsMadeAgain(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%v", running), func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				cfg := fronta.Config{Protocol: protocol}
				m := w.join("a", cfg, accept)
				w.until("assigned", m.owns(1))
				w.produce(0, keys("a", 500)...)
				w.until("stored", func() bool { return w.stored(0) == 500 })
				if !running {
					m.stop()
				}
				w.check.Finish()
				if err := w.cluster().DeleteTopic(topic); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if err := w.cluster().CreateTopic(topic, 1, nil); err != nil {
					t.Fatal(err)
				}
				id := w.cluster().TopicInfo(topic).TopicID
				w.producer.Close()
				w.producer = w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
				old := w.check
				w.check = checker.New(promised) // another topic, another story
				w.produce(0, keys("b", 100)...)
				if !running {
					m = w.join("again", cfg, accept)
				}
				w.until("the new records are handled, or a named error", func() bool {
					return w.check.Report().Handled == 100 ||
						len(m.log.lines("UNKNOWN_TOPIC_ID")) > 0 || len(m.log.lines("UNKNOWN_TOPIC_OR_PARTITION")) > 0
				})
				w.until("handled", func() bool { return w.check.Report().Handled == 100 })
				w.until("stored", func() bool { return w.stored(0) == 100 })
				for _, c := range w.seen() {
					if c.topicID == id && c.offset > 100 {
						t.Errorf("offset %d was sent for the new topic", c.offset)
					}
				}
				m.cancel()
				<-m.done
				if r := old.Report(); r.OrderViolations+r.CommitViolations > 0 {
					t.Errorf("%s", r)
				}
			})
		})
	}
}

// A pattern matches ten topics, and one of them goes.
// Time is real: until the client has dropped the topic, it fetches without a
// pause, which would stop a bubble's clock.
//
// H-057
func TestOneTopicOfAPatternIsDeleted(t *testing.T) {
	liveUnderBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		var opts []fake.Option
		for i := range 10 {
			opts = append(opts, fake.Topic(fmt.Sprint("many-", i), 1))
		}
		w := newLiveWorld(t, 1, opts...)
		m := w.join("a", fronta.Config{Protocol: protocol, Topics: []string{"^many-[0-9]$"}, Regex: true, CommitInterval: 100 * time.Millisecond, Client: []kgo.Opt{
			kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(200 * time.Millisecond), kgo.ConsiderMissingTopicDeletedAfter(time.Second),
		}}, accept)
		w.until("assigned", m.owns(10))
		for i := range 10 {
			w.produceTo(fmt.Sprint("many-", i), 0, keys("a", 5)...)
		}
		w.until("handled", m.accepted(50))
		w.until("stored", func() bool { return m.Stats().Commits >= 10 })
		if err := w.cluster().DeleteTopic("many-3"); err != nil {
			t.Fatal(err)
		}
		before := len(m.log.lines("level=WARN")) + len(m.log.lines("level=ERROR"))
		w.until("its state is gone", m.owns(9))
		for i := range 10 {
			if i != 3 {
				w.produceTo(fmt.Sprint("many-", i), 0, keys("b", 5)...)
			}
		}
		w.until("handled", m.accepted(95))
		if n := len(m.log.lines("level=WARN")) + len(m.log.lines("level=ERROR")) - before; n > 15 {
			t.Errorf("%d warnings:\n%s", n, strings.Join(m.log.lines("level=WARN"), ""))
		}
		if s := m.Stats(); s.Bytes != 0 || s.Unfinished != 0 || s.Running != 0 {
			t.Errorf("left behind: %+v", s)
		}
		m.stop()
		w.verdict()
	})
}

// Partitions are added under load: they are read from their beginning, also
// when others start at their end, within the refresh of metadata.
//
// H-058, H-059
func TestPartitionsAreAddedToATopic(t *testing.T) {
	for name, at := range map[string]fronta.Start{"latest": fronta.Latest(), "earliest": fronta.Earliest()} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 3)
				for p := range int32(3) {
					w.produce(p, keys("old", 5)...)
					if name == "latest" {
						w.check.Reset(part(p), 5)
					}
				}
				m := w.join("a", fronta.Config{Protocol: protocol, StartAt: at}, accept)
				w.until("assigned", m.owns(3))
				time.Sleep(2 * time.Second)
				admin := kadm.NewClient(w.client())
				if _, err := admin.UpdatePartitions(context.Background(), 6, topic); err != nil {
					t.Fatal(err)
				}
				w.producer.ForceMetadataRefresh()
				time.Sleep(3 * time.Second)
				for p := range int32(6) {
					w.produce(p, keys("new", 20)...)
				}
				began := time.Now()
				w.until("assigned", m.owns(6))
				if d := time.Since(began); d > 65*time.Second {
					t.Errorf("the new partitions came after %s", d)
				}
				w.until("stored", func() bool { return w.stored(3) == 20 && w.stored(4) == 20 && w.stored(5) == 20 })
				if got := m.offsets(4); len(got) != 20 {
					t.Errorf("%d of 20 records of a new partition were handled", len(got))
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// The consumer starts before its topic exists.
//
// H-060
func TestTopicComesLater(t *testing.T) {
	for name, regex := range map[string]bool{"by name": false, "by pattern": true} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				m := w.join("a", fronta.Config{Protocol: protocol, Topics: []string{"later"}, Regex: regex}, accept)
				time.Sleep(90 * time.Second)
				if err := w.cluster().CreateTopic("later", 2, nil); err != nil {
					t.Fatal(err)
				}
				w.produceTo("later", 0, keys("a", 5)...)
				w.produceTo("later", 1, keys("a", 5)...)
				began := time.Now()
				w.until("handled", m.accepted(10))
				if d := time.Since(began); d > 70*time.Second {
					t.Errorf("records came after %s", d)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// Leaders change: commits carry the epoch of the record under the frontier, it
// never falls, and nothing is reset.
//
// H-055
func TestLeaderEpochsInCommits(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1, fake.Brokers(3))
		m := w.join("a", fronta.Config{Protocol: protocol, CommitInterval: 100 * time.Millisecond}, takes(50*time.Millisecond))
		w.until("assigned", m.owns(1))
		begins := map[int64]int32{} // first offset of each epoch
		for i := range 6 {
			info := w.cluster().PartitionInfo(topic, 0)
			begins[info.HighWatermark] = info.Epoch
			w.produce(0, keys(fmt.Sprint(i, "-"), 20)...)
			time.Sleep(300 * time.Millisecond)
			if err := w.cluster().MoveTopicPartition(topic, 0, (info.Leader+1)%3); err != nil {
				t.Fatal(err)
			}
		}
		w.until("stored", func() bool { return w.stored(0) == 120 })
		last := int32(-1)
		for _, c := range w.seen() {
			want := int32(-1)
			for first, epoch := range begins {
				if first < c.offset {
					want = max(want, epoch)
				}
			}
			if c.epoch < want || c.epoch < last {
				t.Errorf("offset %d is committed with epoch %d, want at least %d and what was before, %d", c.offset, c.epoch, want, last)
			}
			last = c.epoch
		}
		if last == 0 {
			t.Error("no leader has changed")
		}
		if n := m.Stats().Rewinds; n != 0 {
			t.Errorf("%d resets", n)
		}
		if r := w.check.Report(); r.Attempts != 120 {
			t.Errorf("%d attempts for 120 records", r.Attempts)
		}
		m.stop()
		w.verdict()
	})
}

// Transactions: markers are never handed to a handler, and leave no lag.
//
// H-014, H-015, H-016
func TestTransactions(t *testing.T) {
	for name, isolation := range map[string]fronta.Isolation{"read uncommitted": fronta.ReadUncommitted, "read committed": fronta.ReadCommitted} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				writer := w.client(kgo.TransactionalID("writer"), kgo.DefaultProduceTopic(topic))
				write := func(n int, end kgo.TransactionEndTry) {
					t.Helper()
					if err := writer.BeginTransaction(); err != nil {
						t.Fatal(err)
					}
					for i := range n {
						writer.Produce(t.Context(), &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, bool(end))}, nil)
					}
					if err := writer.Flush(t.Context()); err != nil {
						t.Fatal(err)
					}
					if err := writer.EndTransaction(t.Context(), end); err != nil {
						t.Fatal(err)
					}
				}
				cfg := fronta.Config{Protocol: protocol, Isolation: isolation}
				handled := func(_ context.Context, r *fronta.Record) error {
					if r.Attrs.IsControl() || len(r.Key) == 0 {
						t.Errorf("a marker was handled, at %d", r.Offset)
					}
					if isolation == fronta.ReadCommitted && string(r.Value) == "false" {
						t.Errorf("an aborted record was handled, at %d", r.Offset)
					}
					return nil
				}
				m := w.join("a", cfg, handled)
				w.until("assigned", m.owns(1))

				end, want := int64(0), int64(0)
				settled := func(what string) {
					t.Helper()
					w.until(what, m.accepted(want))
					began := time.Now()
					w.until(what+": no lag", func() bool { return w.stored(0) == end && m.Stats().Partitions[0].Lag() == 0 })
					if d := time.Since(began); d > 3*time.Second {
						t.Errorf("%s: the end was stored after %s", what, d)
					}
					if n := m.Stats().Accepted; n != want {
						t.Errorf("%s: %d records were handled, want %d", what, n, want)
					}
				}
				for range 100 { // H-014
					write(1, kgo.TryCommit)
				}
				end, want = 200, 100
				settled("a hundred of one record")
				write(100, kgo.TryCommit) // H-015
				end, want = end+101, want+100
				settled("one of a hundred records")
				write(1000, kgo.TryAbort) // H-016
				end += 1001
				if isolation == fronta.ReadUncommitted {
					want += 1000
				}
				settled("an aborted one")
				n := m.Stats().FetchErrors
				time.Sleep(time.Minute)
				if m.Stats().FetchErrors != n || len(w.seen()) > 200 {
					t.Errorf("not idle: %d commits", len(w.seen()))
				}
				m.stop()
				again := w.join("again", cfg, handled)
				w.until("assigned", again.owns(1))
				time.Sleep(5 * time.Second)
				if got := again.starts(); len(got) != 0 {
					t.Errorf("the restart handled %d records again", len(got))
				}
				again.stop()
			})
		})
	}
}

// Compaction leaves gaps and emptied batches: what is left is handled once, and
// there is no lag.
//
// H-010, H-012, H-013
func TestCompactedTopic(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		if err := w.cluster().CreateTopic("compacted", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		// 0–9 are superseded but for 7, 10–19 altogether, 20–29 stay, 30–39 but
		// for 35; the last batch is never compacted.
		batch := func(ks ...string) {
			records := make([]*kgo.Record, len(ks))
			for i, k := range ks {
				records[i] = &kgo.Record{Topic: "compacted", Key: []byte(k), Value: []byte(k)}
			}
			if err := w.producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		ten := keys("a", 10)
		first := slices.Clone(ten)
		first[7] = "kept"
		batch(first...)
		batch(ten...)
		batch(ten...)
		late := keys("b", 10)
		late[5] = "kept too"
		batch(late...)
		batch(slices.DeleteFunc(slices.Clone(late), func(k string) bool { return k == "kept too" })...)
		batch("last")
		w.cluster().Compact()
		m := w.join("a", fronta.Config{Protocol: protocol, Topics: []string{"compacted"}, MaxInFlight: 2, Concurrency: 2}, takes(10*time.Millisecond))
		end := w.cluster().PartitionInfo("compacted", 0).HighWatermark
		w.until("no lag", func() bool { return w.storedOf("compacted", 0).Offset == end })
		got := m.offsets(0)
		slices.Sort(got)
		if len(got) >= 50 || got[0] != 7 || !slices.Contains(got, 35) || got[len(got)-1] != end-1 {
			t.Errorf("handled %v of %d", got, end)
		}
		if len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("handled twice: %v", got)
		}
		m.stop()
		if r := w.check.Report(); r.CommitViolations+r.OrderViolations+r.RepeatViolations > 0 {
			t.Errorf("%s", r)
		}
	})
}
