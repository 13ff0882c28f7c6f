package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
)

// 500 rebalances under work. Some handlers outlive the revocation, some panic:
// nothing is left in the gauges, and all places are free again.
//
// H-036
func TestFiveHundredRebalances(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 4)
		const places = 20
		var quiet atomic.Bool
		block := make(chan struct{})
		m := w.join("a", fronta.Config{
			// No commits by the timer: one that waits for a join would stop the
			// clock.
			Protocol: protocol, Order: fronta.Unordered(), Concurrency: places, CommitInterval: 1000 * time.Hour,
			DrainTimeout: 300 * time.Millisecond, Retry: fronta.ConstantBackoff(10 * time.Millisecond),
		}, func(_ context.Context, r *fronta.Record) error {
			if quiet.Load() {
				<-block
				return nil
			}
			time.Sleep(rand.N(6 * time.Second))
			if rand.IntN(5) == 0 {
				panic("as it happens")
			}
			return nil
		})
		w.until("assigned", m.owns(4))
		rebalances := 0
		for range 250 {
			for p := range int32(4) {
				w.produce(p, keys("a", 3)...)
			}
			opts := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.Balancers(kgo.CooperativeStickyBalancer())}
			if protocol == fronta.ConsumerProtocol {
				opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
			}
			other, err := kgo.NewClient(append(w.b.Opts(), opts...)...)
			if err != nil {
				t.Fatal(err)
			}
			w.until("shared", m.owns(2))
			other.Close()
			w.until("not shared", m.owns(4))
			rebalances += 2
		}
		if _, revoked, _ := m.counts(); revoked < 2*250 {
			t.Errorf("%d partitions were revoked in %d rebalances", revoked, rebalances)
		}
		w.until("idle", func() bool { s := m.Stats(); return s.Unfinished == 0 && s.ReadAhead == 0 })
		s := m.Stats()
		if s.Late == 0 || s.Failed == 0 {
			t.Errorf("%d late results, %d failed attempts: the test tests nothing", s.Late, s.Failed)
		}
		w.until("gauges at zero", func() bool { s := m.Stats(); return s.Running == 0 && s.Bytes == 0 && s.Waiting == 0 })
		quiet.Store(true)
		w.produce(0, keys("b", 3*places)...)
		w.until("all places are taken", func() bool { return m.Stats().Running == places })
		time.Sleep(10 * time.Second)
		if n := m.Stats().Running; n != places {
			t.Errorf("%d handlers run, want %d", n, places)
		}
		close(block)
		w.until("done", func() bool { return m.Stats().Unfinished == 0 })
		m.stop()
		for p := range int32(4) {
			if end := w.cluster().PartitionInfo(topic, p).HighWatermark; w.stored(p) != end {
				t.Errorf("partition %d: %d of %d stored", p, w.stored(p), end)
			}
		}
	})
}

// 300 partitions, and a member that joins and leaves again and again: no lane
// is worked on twice at a time, nothing is lost, repeats are bounded.
//
// H-042
func TestManyPartitionsMove(t *testing.T) {
	liveUnderBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		const partitions = 300
		w := newLiveWorld(t, partitions)
		cfg := fronta.Config{Protocol: protocol, CommitInterval: 50 * time.Millisecond, Client: []kgo.Opt{kgo.HeartbeatInterval(50 * time.Millisecond)}}
		work := func(context.Context, *fronta.Record) error {
			time.Sleep(rand.N(2 * time.Millisecond))
			return nil
		}
		a := w.join("a", cfg, work)
		w.until("assigned", a.owns(partitions))
		produced := int64(0)
		for round := range 4 {
			for p := range int32(partitions) {
				w.produce(p, "k", "k", "l")
				produced += 3
			}
			b := w.join(fmt.Sprint("b", round), cfg, work)
			w.until("shared", func() bool { return len(b.owned()) == partitions/2 && len(a.owned()) == partitions/2 })
			b.stop()
			w.until("not shared", a.owns(partitions))
		}
		w.until("handled", func() bool { return w.check.Report().Handled == produced && a.Stats().Unfinished == 0 })
		a.stop()
		// Every partition moved at most twice a round, and repeats nothing that
		// lies below a commit; what lies above is at most what ran.
		if r := w.verdict(); r.Repeated > produced/4 {
			t.Errorf("%d repeats of %d records", r.Repeated, produced)
		}
	})
}

// Members join, leave and are thrown out at random while handlers run, fail
// and outlive their partitions, and commits are refused at random; the checker
// judges. FRONTA_SEED plays one script again.
//
// P-1, P-2, P-3 (as far as plain offsets go), H-033, H-034, H-045
func TestRandomInterleavings(t *testing.T) {
	for name, protocol := range protocols {
		for i := range 4 {
			t.Run(fmt.Sprint(name, "-", i), func(t *testing.T) {
				t.Parallel()
				s := seed(t) + uint64(i)
				t.Logf("FRONTA_SEED=%d", s)
				interleave(t, protocol, s)
			})
		}
	}
}

func interleave(t *testing.T, protocol fronta.Protocol, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	const partitions = 6
	w := newLiveWorld(t, partitions)
	orders := []fronta.Order{fronta.ByKey(), fronta.ByPartition(), fronta.ByKeyFunc("key", func(r *kgo.Record) []byte { return r.Key })}
	order := orders[random.IntN(len(orders))]
	lanes := 1 + random.IntN(20)
	if order.String() == "partition" {
		lanes = 1 // the checker goes by the key
	}
	long := 1 + random.IntN(15)
	work := func(ctx context.Context, r *fronta.Record) error {
		// By the record, so that a script is the same each time.
		h := rand.New(rand.NewPCG(seed+uint64(r.Partition), uint64(r.Offset)<<8|uint64(r.DeliveryCount)))
		select {
		case <-time.After(time.Duration(h.IntN(long*1000)) * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if rand.IntN(25) == 0 { // not h: a snooze does not count
			return fronta.Snooze(time.Duration(h.IntN(10)) * time.Millisecond)
		}
		switch h.IntN(25) {
		case 0:
			return errFailed
		case 2:
			panic("as it happens")
		default:
			return nil
		}
	}
	cfg := fronta.Config{
		Protocol: protocol, Order: order, Concurrency: 1 + random.IntN(40), MaxInFlight: 10 + random.IntN(200),
		CommitInterval: time.Duration(1+random.IntN(50)) * time.Millisecond,
		Retry:          fronta.ConstantBackoff(time.Duration(random.IntN(10)) * time.Millisecond),
		Client:         []kgo.Opt{kgo.HeartbeatInterval(30 * time.Millisecond)},
	}
	produced := int64(0)
	var calm atomic.Bool
	var faults []*kfake.FaultHandle
	fault := func(key kmsg.Key, err *kerr.Error) {
		faults = append(faults, w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err}))
	}
	var running []*member
	names := 0
	for range 40 {
		switch dice := random.IntN(10); {
		case dice < 3:
			n := 1 + random.IntN(20)
			ks := make([]string, n)
			for i := range ks {
				ks[i] = fmt.Sprint(random.IntN(lanes))
			}
			w.produce(random.Int32N(partitions), ks...)
			produced += int64(n)
		case dice < 5 && len(running) < 4:
			names++
			running = append(running, w.join(fmt.Sprint("m", names), cfg, work))
		case dice < 6 && len(running) > 0:
			i := random.IntN(len(running))
			running[i].stop()
			running = append(running[:i], running[i+1:]...)
		case dice < 7:
			errs := []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.NotCoordinator, kerr.UnknownServerError}
			fault(kmsg.OffsetCommit, errs[random.IntN(len(errs))])
		case dice < 8:
			// A KIP-848 member that takes a refusal for a loss which the broker
			// knows nothing of stays in the group until its session ends, or
			// has commits of its old epoch accepted (kfake asks only for the
			// epoch in which a partition was last assigned, KIP-1251).
			if protocol == fronta.ClassicProtocol {
				fault(heartbeat(protocol), kerr.UnknownMemberID)
			}
		case dice < 9:
			w.cluster().ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
				if calm.Load() {
					w.cluster().DropControl()
					return nil, nil, false
				}
				return nil, errors.New("the connection is cut"), true
			})
		default:
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		}
	}
	calm.Store(true)
	for _, f := range faults {
		f.Remove()
	}
	last := w.join("last", cfg, work)
	for _, m := range running {
		m.stop()
	}
	w.until("last has all", last.owns(partitions))
	// Handled by somebody is not enough: what is not committed comes to last.
	w.until("all handled and stored", func() bool {
		for p := range int32(partitions) {
			if end := w.cluster().PartitionInfo(topic, p).HighWatermark; end > 0 && w.stored(p) != end {
				return false
			}
		}
		return w.check.Report().Handled == produced
	})
	last.stop()
	for _, m := range w.members {
		for _, r := range m.refusals() {
			if r.Topic != topic {
				t.Errorf("%s was told of a refusal for topic %q", m.name, r.Topic)
			}
		}
	}
	w.verdict()
}
