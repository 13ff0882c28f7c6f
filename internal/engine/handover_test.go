package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// drv plays the driver faithfully: it commits only what is due by offset and
// version, as internal/group does.
type drv struct {
	r    *rig
	last map[TopicPartition]Position
	said map[TopicPartition]Snapshot
}

func (d *drv) round() (n int) {
	for _, p := range d.r.Positions() {
		l, ok := d.last[p.TopicPartition]
		if ok && l.Offset == p.Offset && l.Version == p.Version {
			continue
		}
		s, ok := d.r.Snapshot(p.TopicPartition)
		if !ok {
			continue
		}
		d.last[p.TopicPartition] = s.Position
		d.said[p.TopicPartition] = s
		d.r.Confirmed(s.Position)
		synctest.Wait()
		n++
	}
	return n
}

func (d *drv) rounds(n int) {
	for range n {
		d.round()
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func newDrv(r *rig) *drv {
	return &drv{r, map[TopicPartition]Position{}, map[TopicPartition]Snapshot{}}
}

// A gap of more than reachAhead behind the committed offset.
func TestReachCrossesGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		st := &progress.Progress{Offset: 0, Fence: 5, Suspect: -1, Epoch: -1}
		r.Add(p0, 0, -1)
		r.open(st, 0, 6000)
		d := newDrv(r)
		d.rounds(2)
		r.Offer(p0, keyed(5000, 3, 3), 5003)
		synctest.Wait()
		d.rounds(100)
		if got := r.startedNow(); len(got) != 3 {
			t.Fatalf("started %v", got)
		}
	})
}

// A gap while a head is stuck.
func TestReachCrossesGapBehindStuckRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		st := &progress.Progress{Offset: 0, Fence: 5, Suspect: -1, Epoch: -1}
		r.Add(p0, 0, -1)
		r.open(st, 0, 6000)
		d := newDrv(r)
		d.rounds(2)
		r.block(0)
		r.Offer(p0, keyed(0, 10, 10), 10)
		synctest.Wait()
		d.rounds(5)
		r.Offer(p0, keyed(1501, 5, 10), 5003)
		synctest.Wait()
		d.rounds(100)
		if got := r.startedNow(); len(got) != 15 {
			t.Fatalf("started %v", got)
		}
	})
}

// A careful partition crowded out by MaxInFlight.
func TestCarefulPartitionIsCrowdedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3; c.MaxInFlight = 2 })
		r.Add(p1, 1, 1000)
		a, b := r.block(1000), r.block(1001)
		r.Offer(p1, []*kgo.Record{rec(p1, 1000, "a"), rec(p1, 1001, "b")}, 1002)
		synctest.Wait()
		// p1's share is everything while it is alone
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 1, Reach: 10, Suspect: -1, Epoch: -1}
		r.Add(p0, 0, -1)
		r.open(st, 0, 10)
		d := newDrv(r)
		d.rounds(2)
		r.Offer(p0, keyed(0, 3, 3), 3)
		synctest.Wait()
		d.rounds(3)
		if got := r.startedNow(); len(got) != 2 {
			t.Fatalf("started %v", got)
		}
		a <- nil
		b <- nil
		synctest.Wait()
		d.rounds(100)
		if got := r.startedNow(); len(got) != 5 {
			t.Fatalf("started %v", got)
		}
	})
}

// Epochs of records that are skipped.
func TestEpochOfSkippedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		st := &progress.Progress{Offset: 3, Fence: 5, Clean: true, Suspect: -1, Epoch: 7, Segments: []progress.Segment{{
			End: 20, Order: "key", Heads: []progress.Range{{From: 3, To: 4}}}}}
		r.Add(p0, 0, -1)
		r.Begin([]Start{{TopicPartition: p0, Offset: 3, Epoch: 5, End: 20, Stored: st}})
		r.confirm()
		r.block(3)
		rs := keyed(3, 17, 17)
		for _, x := range rs {
			x.LeaderEpoch = 5
			if x.Offset > 3 {
				x.LeaderEpoch = 7
			}
		}
		r.Offer(p0, rs, 20)
		r.wait()
		s, _ := r.Snapshot(p0)
		if s.Progress.Horizon() != 20 || s.Progress.Epoch != 7 {
			t.Fatalf("horizon %d, epoch %d", s.Progress.Horizon(), s.Progress.Epoch)
		}
	})
}

// Version falls back on a rewind: a suspect's mark is never committed.
func TestRewindWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 1, Reach: 10, Suspect: -1, Epoch: -1}
		r.Add(p0, 0, -1)
		r.open(st, 0, 10)
		d := newDrv(r)
		r.Offer(p0, keyed(0, 6, 6), 6)
		s, _ := r.Snapshot(p0) // the opening is on its way
		r.Offer(p0, keyed(3, 3, 6), 6)
		d.last[p0] = s.Position
		r.Confirmed(s.Position)
		synctest.Wait()
		d.rounds(100)
		if got := r.startedNow(); len(got) != 6 {
			t.Fatalf("started %v", got)
		}
	})
}

// Not careful: a failed attempt after a rewind.
func TestRewindIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		r.Add(p0, 0, -1)
		r.open(nil, 0, 10)
		d := newDrv(r)
		d.rounds(1)
		r.on(0, func(context.Context, *Delivery) error { return failFor(time.Hour) })
		r.Offer(p0, keyed(0, 2, 1), 2)
		r.Offer(p0, keyed(1, 1, 1), 2)
		synctest.Wait()
		d.rounds(3)
		n := 0
		s := d.said[p0]
		for _, a := range s.Progress.Attempts {
			n += a.N
		}
		if n != 1 {
			t.Fatalf("a failed attempt is never committed: %+v, %v", s, r.Positions())
		}
	})
}

// Markers alone, and no room for one head more: nothing will ever end.
func TestMarkersAloneTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) {
			ordered(c)
			c.Bound = func(window, heads int64) int { return int(heads) }
		})
		r.SetCapacity(2)
		st := &progress.Progress{Offset: 0, Fence: 5, Clean: true, Suspect: -1, Epoch: -1, Segments: []progress.Segment{{
			End: 20, Order: "key", Heads: []progress.Range{{From: 0, To: 2}}}}}
		r.begin(st, 0, 40)
		d := newDrv(r)
		r.Offer(p0, keyed(0, 18, 20), 18) // 18 and 19 are gone by compaction
		r.wait()
		r.Offer(p0, keyed(25, 5, 20), 30)
		synctest.Wait()
		d.rounds(100)
		if got := r.startedNow(); len(got) != 7 {
			t.Fatalf("started %v", got)
		}
	})
}

// Attempts through two rewinds.
func TestAttemptsOutliveRewinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		r.begin(nil, 0, 10)
		r.on(0, func(context.Context, *Delivery) error { return failFor(time.Second) })
		r.Offer(p0, keyed(0, 6, 1), 6)
		r.pass(2500 * time.Millisecond) // 3 attempts
		r.Pause(p0)
		r.Offer(p0, keyed(4, 2, 1), 6)
		r.Offer(p0, keyed(4, 2, 1), 6)
		seen := 0
		r.on(0, func(_ context.Context, d *Delivery) error { seen = d.DeliveryCount; return nil })
		r.Resume(p0)
		r.pass(10 * time.Second)
		if seen != 4 {
			t.Fatalf("delivery %d, want 4", seen)
		}
	})
}

// A careful partition whose suspect is blocked by a zombie holds the others.
func TestBlockedSuspectHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		r.Add(p0, 0, 0)
		r.block(0)
		r.Offer(p0, keyed(0, 1, 1), 1)
		r.wait()
		r.Lose([]TopicPartition{p0})
		r.Add(p0, 0, -1)
		r.Add(p1, 0, -1)
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 1, Reach: 10, Suspect: -1, Epoch: -1}
		st1 := &progress.Progress{Offset: 100, Fence: 5, Starts: 1, Reach: 110, Suspect: -1, Epoch: -1}
		r.Begin([]Start{{TopicPartition: p0, Offset: 0, Epoch: -1, End: 10, Stored: st}, {TopicPartition: p1, Offset: 100, Epoch: -1, End: 110, Stored: st1}})
		d := newDrv(r)
		d.rounds(2)
		r.Offer(p0, keyed(0, 1, 1), 10)
		synctest.Wait()
		d.rounds(2)
		r.Offer(p1, []*kgo.Record{rec(p1, 100, "a"), rec(p1, 101, "b")}, 110)
		synctest.Wait()
		d.rounds(100)
		if got := r.startedNow(); len(got) != 3 {
			t.Fatalf("started %v", got)
		}
	})
}

// Two careful partitions, one's commits are refused.
func TestRefusedMarkHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		r.Add(p0, 0, -1)
		r.Add(p1, 0, -1)
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 1, Reach: 10, Suspect: -1, Epoch: -1}
		st1 := &progress.Progress{Offset: 100, Fence: 5, Starts: 1, Reach: 110, Suspect: -1, Epoch: -1}
		r.Begin([]Start{{TopicPartition: p0, Offset: 0, Epoch: -1, End: 10, Stored: st}, {TopicPartition: p1, Offset: 100, Epoch: -1, End: 110, Stored: st1}})
		d := newDrv(r)
		d.rounds(2)
		r.Offer(p0, keyed(0, 2, 2), 10)
		synctest.Wait()
		r.Offer(p1, []*kgo.Record{rec(p1, 100, "a"), rec(p1, 101, "b")}, 110)
		synctest.Wait()
		for range 100 {
			if s, ok := r.Snapshot(p1); ok {
				r.Confirmed(s.Position)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		got := r.startedNow()
		slices.Sort(got)
		if len(got) != 2 {
			t.Fatalf("started %v", got)
		}
	})
}

// A careful partition stays so through a rewind.
func TestCareOutlivesRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes = 3 })
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 1, Reach: 10, Suspect: -1, Epoch: -1}
		r.Add(p0, 0, -1)
		r.open(st, 0, 10)
		for o := range int64(6) {
			r.block(o)
		}
		r.Offer(p0, keyed(0, 6, 6), 6)
		r.Offer(p0, keyed(3, 3, 6), 6)
		for range 20 {
			r.confirm()
		}
		if got := r.startedNow(); len(got) != 1 {
			t.Fatalf("started %v at once", got)
		}
	})
}

// Pull mode: careful, crash letters, gate.
func TestReceiveCarefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { ordered(c); c.MaxCrashes, c.Discard = 3, true; c.Handle = nil })
		st := &progress.Progress{Offset: 0, Fence: 5, Starts: 3, Reach: 10, Suspect: 2, Epoch: -1, Crashes: []progress.Count{{Offset: 2, N: 2}}}
		r.Add(p0, 0, -1)
		r.open(st, 0, 10)
		d := newDrv(r)
		var got []int64
		go func() {
			for {
				p, err := r.Receive(context.Background())
				if err != nil {
					return
				}
				got = append(got, p.Delivery().Offset)
				_ = r.Settle(p, Outcome{Verb: Accept})
			}
		}()
		r.Offer(p0, keyed(0, 20, 20), 20)
		synctest.Wait()
		d.rounds(60)
		if len(got) != 19 || r.Stats().Discarded != 1 {
			t.Fatalf("got %v, discarded %d", got, r.Stats().Discarded)
		}
		r.at(p0, 20)
		r.close()
	})
}

// A rewind while the attempts that a former owner counted are not read yet.
func TestStoredAttemptsOutliveRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, ordered)
		st := &progress.Progress{Offset: 0, Fence: 5, Clean: true, Suspect: -1, Epoch: -1, Attempts: []progress.Count{{Offset: 1, N: 4}}, Segments: []progress.Segment{{
			End: 3, Order: "key", Heads: []progress.Range{{From: 0, To: 2}}}}}
		seen := 0
		r.on(1, func(_ context.Context, d *Delivery) error { seen = d.DeliveryCount; return nil })
		r.Add(p0, 0, -1)
		r.open(st, 0, 10)
		r.Offer(p0, keyed(0, 6, 6), 6)
		r.Offer(p0, keyed(5, 1, 6), 6)
		r.confirm()
		time.Sleep(time.Second)
		synctest.Wait()
		if seen != 5 {
			t.Fatalf("delivery %d", seen)
		}
	})
}

// Markers that nothing needs any more must not keep records out while another
// head is stuck.
func TestMarkersBesideStuckRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) {
			ordered(c)
			c.Bound = func(window, heads int64) int { return int(heads) }
		})
		r.SetCapacity(3)
		st := &progress.Progress{Offset: 0, Fence: 5, Clean: true, Suspect: -1, Epoch: -1, Segments: []progress.Segment{{
			End: 20, Order: "key", Heads: []progress.Range{{From: 0, To: 3}}}}}
		r.begin(st, 0, 40)
		r.block(0)
		r.Offer(p0, keyed(0, 18, 20), 18)
		r.wait()
		r.Offer(p0, keyed(25, 2, 20), 30)
		r.wait()
		if got := r.startedNow(); len(got) != 5 {
			t.Fatalf("started %v", got)
		}
	})
}
