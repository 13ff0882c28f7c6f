package group_test

import (
	"context"
	"errors"
	"fmt"
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
)

var errFailed = errors.New("the handler failed")

// heartbeat is the request by which a member lives.
func heartbeat(p fronta.Protocol) kmsg.Key {
	if p == fronta.ConsumerProtocol {
		return kmsg.ConsumerGroupHeartbeat
	}
	return kmsg.Heartbeat
}

// A commit is told that the membership is void: no handler starts any more
// under it, those that run are cancelled, and the member joins again at once.
//
// H-007, H-037
func TestCommitFindsMembershipVoid(t *testing.T) {
	for name, voided := range map[string]*kerr.Error{
		"UNKNOWN_MEMBER_ID": kerr.UnknownMemberID, "ILLEGAL_GENERATION": kerr.IllegalGeneration, "FENCED_MEMBER_EPOCH": kerr.FencedMemberEpoch,
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 2)
				var causes []error
				var mu sync.Mutex
				m := w.join("a", fronta.Config{Protocol: protocol, Concurrency: 4}, func(ctx context.Context, _ *fronta.Record) error {
					select {
					case <-time.After(70 * time.Millisecond):
						return nil
					case <-ctx.Done():
						mu.Lock()
						defer mu.Unlock()
						causes = append(causes, context.Cause(ctx))
						return ctx.Err()
					}
				})
				w.until("assigned", m.owns(2))
				w.produce(0, keys("a", 100)...)
				w.produce(1, keys("b", 100)...)
				w.until("a commit", func() bool { return w.stored(0) > 0 })
				storedBefore := w.stored(0)
				w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: voided})
				w.until("the refusal", func() bool { return len(m.refusals()) > 0 })
				refused := m.refusals()[0].at
				w.until("lost", func() bool { _, _, lost := m.counts(); return lost == 2 })
				w.until("joined again", func() bool { assigned, _, _ := m.counts(); return assigned == 4 })
				if d := time.Since(refused); d > time.Second {
					t.Errorf("joining again took %s", d)
				}
				w.until("handled", func() bool { return w.stored(0) == 100 && w.stored(1) == 100 })
				old := m.starts()[0].fence
				for _, s := range m.starts() {
					if s.fence == old && s.at.After(refused) {
						t.Errorf("offset %d started %s after the refusal under the old membership", s.offset, s.at.Sub(refused))
					}
					if s.fence > old && s.partition == 0 && s.offset < storedBefore {
						t.Errorf("offset %d is handled again although %d was stored", s.offset, storedBefore)
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if len(causes) != 4 {
					t.Errorf("%d handlers were cancelled, want 4", len(causes))
				}
				for _, cause := range causes {
					if !errors.Is(cause, fronta.ErrLost) {
						t.Errorf("a handler was cancelled with cause %v", cause)
					}
				}
				if !errors.Is(m.lossErr, voided) {
					t.Errorf("lost because of %v", m.lossErr)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// The broker has thrown the member out and heartbeats say so.
//
// H-037
func TestHeartbeatFindsMembershipVoid(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		m := w.join("a", fronta.Config{Protocol: protocol, Concurrency: 4, CommitInterval: time.Hour}, func(ctx context.Context, _ *fronta.Record) error {
			select {
			case <-time.After(300 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		w.until("assigned", m.owns(2))
		w.produce(0, keys("a", 30)...)
		w.produce(1, keys("b", 30)...)
		w.until("some handled", m.accepted(5))
		w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{heartbeat(protocol)}, Err: kerr.UnknownMemberID})
		w.until("joined again", func() bool { assigned, _, lost := m.counts(); return lost == 2 && assigned == 4 })
		// Both ownerships of both partitions begin with a commit.
		for i, c := range w.seen() {
			if i >= 4 || c.offset != 0 {
				t.Errorf("a commit of offset %d for what was lost", c.offset)
			}
		}
		w.until("handled", func() bool { return w.check.Report().Handled == 60 && m.Stats().Unfinished == 0 })
		if s := m.Stats(); s.Running != 0 || s.ReadAhead != 0 || s.Bytes != 0 {
			t.Errorf("left behind: %+v", s)
		}
		m.stop()
		w.verdict()
	})
}

// The broker takes a member for dead that believes itself alive, its
// heartbeats are answered by somebody else; another one takes over. A normal
// rebalance is under way just then.
//
// H-046, H-033
func TestSessionExpiresUnnoticed(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		held := make(chan struct{})
		cfg := fronta.Config{Protocol: protocol, Client: []kgo.Opt{kgo.SessionTimeout(10 * time.Second), kgo.RebalanceTimeout(10 * time.Second)}}
		if protocol == fronta.ConsumerProtocol {
			w.cluster().SetGroupConfigs(group, map[string]string{"consumer.session.timeout.ms": "10000"})
		}
		a := w.join("a", cfg, func(_ context.Context, r *fronta.Record) error {
			if string(r.Key) == "held" {
				<-held
			}
			return nil
		})
		w.until("assigned", a.owns(2))
		w.produce(0, keys("a", 10)...)
		w.until("stored", func() bool { return w.stored(0) == 10 })
		w.produce(0, "held")
		w.until("held", func() bool { return a.Stats().Running == 1 })
		id := w.cluster().GroupInfo(group).Members[0].MemberID

		// From here on the broker hears nothing of a.
		var epoch atomic.Int32
		epoch.Store(w.cluster().GroupInfo(group).Epoch)
		hold := w.always(heartbeat(protocol), func(req kmsg.Request) kmsg.Response {
			switch req := req.(type) {
			case *kmsg.HeartbeatRequest:
				if req.MemberID == id {
					return req.ResponseKind()
				}
			case *kmsg.ConsumerGroupHeartbeatRequest:
				if req.MemberID == id && req.MemberEpoch > 0 {
					resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
					resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &id, req.MemberEpoch, 1000
					return resp
				}
			}
			return nil
		})
		b := w.join("b", fronta.Config{Protocol: protocol, Client: cfg.Client}, accept)
		w.until("b owns all", b.owns(2))
		hold()
		w.produce(0, keys("b", 40)...)
		w.until("stored by b", func() bool { return w.stored(0) == 51 })
		close(held)
		w.until("a has noticed", func() bool { _, _, lost := a.counts(); return lost == 2 })
		time.Sleep(10 * time.Second)
		for p := range int32(2) {
			if s := w.stored(p); p == 0 && s < 51 {
				t.Errorf("stored offset fell to %d", s)
			}
		}
		w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
		a.stop()
		b.stop()
		w.verdict()
	})
}

// Two processes with one instance id: one of them has to go, and says why.
func TestInstanceIDUsedTwice(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		cfg := fronta.Config{Protocol: protocol, Client: []kgo.Opt{kgo.InstanceID("same")}}
		a := w.join("a", cfg, accept)
		w.until("assigned", a.owns(2))
		w.produce(0, keys("a", 5)...)
		w.until("stored", func() bool { return w.stored(0) == 5 })
		b := w.join("b", cfg, accept)
		// The classic protocol lets the new one in, the newer one keeps the old.
		gone, stays, want := a, b, kerr.FencedInstanceID
		if protocol == fronta.ConsumerProtocol {
			gone, stays, want = b, a, kerr.UnreleasedInstanceID
		}
		<-gone.done
		if !errors.Is(gone.err, want) || !strings.Contains(gone.err.Error(), "InstanceID") {
			t.Errorf("Run: %v, want %v", gone.err, want)
		}
		w.check.Stopped(gone.name)
		w.until("the other has all", stays.owns(2))
		w.produce(0, keys("b", 5)...)
		w.until("stored", func() bool { return w.stored(0) == 10 })
		stays.stop()
		w.verdict()
	})
}

// The same, noticed by a commit.
func TestCommitIsFenced(t *testing.T) {
	virtually(t, func(t *testing.T) {
		w := newWorld(t, 1)
		m := w.join("a", fronta.Config{Client: []kgo.Opt{kgo.InstanceID("same")}}, accept)
		w.until("assigned", m.owns(1))
		w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Err: kerr.FencedInstanceID})
		w.produce(0, "a")
		<-m.done
		if !errors.Is(m.err, kerr.FencedInstanceID) || !strings.Contains(m.err.Error(), "instance id") {
			t.Errorf("Run: %v", m.err)
		}
	})
}

// A static member that restarts gets its partitions back, and the others do
// not notice.
func TestStaticMemberRestarts(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 4)
		cfg := func(id string) fronta.Config {
			return fronta.Config{Protocol: protocol, Client: []kgo.Opt{kgo.InstanceID(id)}}
		}
		a := w.join("a", cfg("one"), accept)
		w.until("assigned", a.owns(4))
		b := w.join("b", cfg("two"), accept)
		w.until("shared", func() bool { return a.owns(2)() && b.owns(2)() })
		for p := range int32(4) {
			w.produce(p, keys("a", 10)...)
		}
		w.until("handled", func() bool { return a.Stats().Accepted+b.Stats().Accepted == 40 })
		had := b.owned()
		assigned, revoked, _ := a.counts()
		epoch := w.cluster().GroupInfo(group).Epoch
		b.stop()
		for p := range int32(4) {
			w.produce(p, keys("b", 10)...)
		}
		time.Sleep(5 * time.Second)
		again := w.join("again", cfg("two"), accept)
		w.until("restarted", again.owns(2))
		w.until("handled", func() bool { return again.Stats().Accepted == 20 })
		if !slices.Equal(again.owned(), had) {
			t.Errorf("has %v, had %v", again.owned(), had)
		}
		if as, rev, lost := a.counts(); as != assigned || rev != revoked || lost != 0 {
			t.Errorf("the other member: %d assigned, %d revoked, %d lost; was %d, %d", as, rev, lost, assigned, revoked)
		}
		// kfake makes a rebalance of a classic member's return, in which nothing
		// moves; Apache Kafka does without.
		if now := w.cluster().GroupInfo(group).Epoch; now != epoch && protocol == fronta.ConsumerProtocol {
			t.Errorf("the group has rebalanced: %d, was %d", now, epoch)
		}
		again.stop()
		a.stop()
		w.verdict()
	})
}

// A rebalance that only adds partitions neither cancels handlers of the others
// nor waits for them.
//
// H-048
func TestPartitionsAreAdded(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		release := make(chan struct{})
		block := func(ctx context.Context, _ *fronta.Record) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				t.Errorf("a handler was cancelled: %v", context.Cause(ctx))
				return ctx.Err()
			}
		}
		b := w.join("b", fronta.Config{Protocol: protocol}, accept)
		w.until("assigned", b.owns(2))
		a := w.join("a", fronta.Config{Protocol: protocol}, block)
		w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
		w.produce(a.owned()[0], keys("a", 10)...)
		w.until("running", func() bool { return a.Stats().Running == 10 })
		b.stop()
		began := time.Now()
		w.until("all", a.owns(2))
		if d := time.Since(began); d > 15*time.Second {
			t.Errorf("the partition came after %s", d)
		}
		if n := a.Stats().Running; n != 10 {
			t.Errorf("%d handlers run", n)
		}
		_, revoked, lost := a.counts()
		if revoked+lost != 0 {
			t.Errorf("%d partitions revoked, %d lost", revoked, lost)
		}
		close(release)
		w.until("handled", a.accepted(10))
		a.stop()
		w.verdict()
	})
}

// A partition is revoked while its handler runs: what it achieves in time is
// committed, and the other partition is read and handled all the while.
//
// H-039, H-047, H-066, H-100
func TestRevokedPartitionDrains(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		release := make(chan struct{})
		cfg := fronta.Config{Protocol: protocol, DrainTimeout: 20 * time.Second, CommitInterval: time.Hour}
		a := w.join("a", cfg, func(ctx context.Context, r *fronta.Record) error {
			if string(r.Key) == "slow" {
				select {
				case <-release:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
		w.until("assigned", a.owns(2))
		w.produce(0, "slow", "slow", "quick")
		w.produce(1, "slow", "slow", "quick")
		w.until("running", func() bool { return a.Stats().Running == 2 && a.Stats().Accepted == 2 })
		b := w.join("b", cfg, accept)
		leaving := int32(-1)
		w.until("leaving", func() bool {
			for _, p := range a.Stats().Partitions {
				if p.Leaving {
					leaving = p.Partition
				}
			}
			return leaving >= 0
		})
		began := time.Now()
		for i := range 50 {
			w.produce(1-leaving, fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		if n := a.Stats().Accepted; n != 52 {
			t.Errorf("%d records were handled while the other partition left, want 52", n)
		}
		if n := len(b.starts()); n != 0 {
			t.Errorf("b has started %d records of a partition that has not left", n)
		}
		if time.Since(began) > 15*time.Second {
			t.Fatal("the test was too slow")
		}
		close(release)
		w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
		if got := w.stored(leaving); got != 1 {
			t.Errorf("%d is stored of what left, want 1", got)
		}
		// What a finished behind the slow record is not handled again.
		w.until("handled", func() bool { s := b.Stats(); return s.Accepted == 1 && s.Recalled == 1 && a.Stats().Unfinished == 0 })
		first := b.starts()[0]
		if first.offset != 1 {
			t.Errorf("b began at offset %d: what ended in time was not committed", first.offset)
		}
		a.stop()
		b.stop()
		if w.stored(leaving) != 3 || w.stored(1-leaving) != 53 {
			t.Errorf("stored: %d and %d", w.stored(leaving), w.stored(1-leaving))
		}
		w.verdict()
	})
}

// The handler does not end in time: it is cancelled, its result changes
// nothing, and the group goes on.
//
// H-039, H-033, H-044, H-066
func TestRevokedPartitionMissesItsDeadline(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		release := make(chan struct{})
		var cancelled atomic.Int64 // when
		cfg := fronta.Config{Protocol: protocol, DrainTimeout: 5 * time.Second, CommitInterval: time.Hour}
		a := w.join("a", cfg, func(ctx context.Context, r *fronta.Record) error {
			if r.Offset == 0 {
				select {
				case <-release: // it stays
					return nil
				case <-ctx.Done():
				}
				if !errors.Is(context.Cause(ctx), fronta.ErrLost) {
					t.Errorf("cancelled because of %v", context.Cause(ctx))
				}
				cancelled.Store(time.Now().UnixNano())
				<-release // it pays no heed
			}
			return nil
		})
		w.until("assigned", a.owns(2))
		w.produce(0, "slow", "slow")
		w.produce(1, "slow", "slow")
		w.until("running", func() bool { return a.Stats().Running == 2 })
		began := time.Now()
		b := w.join("b", cfg, accept)
		w.until("b has one", func() bool { return b.owns(1)() && a.owns(1)() })
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("the rebalance took %s", d)
		}
		taken := b.owned()[0]
		w.until("b handles it", b.accepted(2))
		if s := b.starts()[0]; s.offset != 0 || s.at.UnixNano() < cancelled.Load() {
			t.Errorf("b started offset %d %s before a's handler was cancelled", s.offset, time.Duration(cancelled.Load()-s.at.UnixNano()))
		}
		w.produce(taken, keys("b", 8)...)
		w.until("b handles more", b.accepted(10))
		close(release) // a answers at last
		w.until("late", func() bool { return a.Stats().Late == 1 })
		_, _, lost := a.counts()
		if lost != 0 {
			t.Errorf("%d partitions were lost: the group did not keep the member", lost)
		}
		if a.Stats().Late != 1 || a.late != 1 {
			t.Errorf("late: %d counted, %d told", a.Stats().Late, a.late)
		}
		a.stop()
		if got := w.stored(taken); got > 0 {
			t.Errorf("a has stored %d of what it gave back unfinished", got)
		}
		b.stop()
		r := w.check.Finish()
		// b's two records overlap with a handler of a's that outlived its
		// cancellation. The checker is strict about what was given back.
		if r.Lost+r.CommitViolations+r.CommitRegressions+r.RepeatViolations > 0 || r.OrderViolations > 2 {
			t.Errorf("%s", r)
		}
	})
}

// A revoke falls into the time in which a commit has no answer.
//
// H-047
func TestRevokeWhileACommitHangs(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		cfg := fronta.Config{Protocol: protocol}
		a := w.join("a", cfg, accept)
		w.until("assigned", a.owns(2))
		hangs := make(chan struct{})
		var once sync.Once
		w.cluster().ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			once.Do(func() { close(hangs) })
			return nil, nil, true
		})
		w.produce(0, "a")
		w.produce(1, "b")
		<-hangs
		began := time.Now()
		b := w.join("b", cfg, accept)
		w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
		if d := time.Since(began); d > 40*time.Second {
			t.Errorf("the rebalance took %s", d)
		}
		w.until("stored", func() bool { return w.stored(0) == 1 && w.stored(1) == 1 })
		if _, _, lost := a.counts(); lost != 0 {
			t.Errorf("%d partitions were lost", lost)
		}
		a.stop()
		b.stop()
		w.verdict()
	})
}

// A partition is lost and comes back while its handler still runs: the lane
// stays closed until it has returned, and what it returns changes nothing.
//
// H-038, P-2
func TestPartitionComesBackToARunningHandler(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		release := make(chan struct{})
		var calls atomic.Int32
		m := w.join("a", fronta.Config{Protocol: protocol, Concurrency: 8}, func(_ context.Context, r *fronta.Record) error {
			if string(r.Key) != "k" {
				return nil
			}
			switch calls.Add(1) {
			case 1:
				<-release
				return nil
			case 2:
				return errFailed
			default:
				return nil
			}
		})
		w.until("assigned", m.owns(1))
		w.produce(0, "k", "k", "other")
		w.until("the first attempt", func() bool { return calls.Load() == 1 })
		w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{heartbeat(protocol)}, Err: kerr.UnknownMemberID})
		w.until("back", func() bool { assigned, _, lost := m.counts(); return assigned == 2 && lost == 1 })
		w.produce(0, keys("x", 20)...)
		// Everything else of the partition is handled, also what another lane
		// has behind it.
		w.until("others", func() bool { s := m.Stats(); return s.Accepted+s.Recalled >= 22 })
		time.Sleep(10 * time.Second)
		if n := calls.Load(); n != 1 {
			t.Fatalf("the lane was opened: %d calls", n)
		}
		close(release)
		w.until("all", func() bool { return w.stored(0) == 23 })
		var attempts []string
		for _, s := range m.starts() {
			if s.key == "k" {
				attempts = append(attempts, fmt.Sprintf("%d/%d", s.offset, s.delivery))
			}
		}
		if got := strings.Join(attempts, " "); got != "0/1 0/1 0/2 1/1" {
			t.Errorf("attempts (offset/delivery): %s", got)
		}
		if s := m.Stats(); s.Running != 0 || s.Unfinished != 0 || s.Late != 1 {
			t.Errorf("running %d, unfinished %d, late %d", s.Running, s.Unfinished, s.Late)
		}
		m.stop()
		w.verdict()
	})
}

// A record that keeps failing moves with its partition: the old owner tries it
// no more. A wait of a minute holds up no rebalance, and a partition that comes
// back is consumed.
//
// H-044, H-097
func TestWaitingRecordsMove(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		cfg := fronta.Config{Protocol: protocol, Retry: fronta.ConstantBackoff(time.Minute), CommitInterval: time.Hour}
		var mend atomic.Bool
		failing := func(_ context.Context, r *fronta.Record) error {
			if string(r.Key) == "bad" && !mend.Load() {
				return errFailed
			}
			return nil
		}
		a := w.join("a", cfg, failing)
		w.until("assigned", a.owns(2))
		w.produce(0, "bad", "good")
		w.produce(1, "bad", "good")
		w.until("waiting", func() bool { return a.Stats().Waiting == 2 })
		for round := range 2 {
			began := time.Now()
			b := w.join(fmt.Sprint("b", round), cfg, failing)
			w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("round %d: the rebalance took %s", round, d)
			}
			moved := b.owned()[0]
			n := len(a.starts())
			time.Sleep(130 * time.Second)
			for _, s := range a.starts()[n:] {
				if s.partition == moved {
					t.Errorf("round %d: a tried partition %d again after it had gone", round, moved)
				}
			}
			if len(b.starts()) < 3 {
				t.Errorf("round %d: b tried %d times in two minutes", round, len(b.starts()))
			}
			b.stop()
			w.until("back", a.owns(2))
			w.produce(moved, "good")
			w.until("consumed", func() bool {
				return slices.ContainsFunc(a.starts(), func(s start) bool { return s.partition == moved && s.offset == int64(2) })
			})
		}
		mend.Store(true)
		w.until("all handled", func() bool { return a.Stats().Unfinished == 0 })
		a.stop()
		w.verdict()
	})
}

// Back-pressure holds a partition when it is lost; it comes back and is read.
// What the old ownership held is no load any more, and the limits hold.
//
// H-092, H-035, H-096
func TestHeldPartitionIsLostAndReturns(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		release := make(chan struct{})
		m := w.join("a", fronta.Config{
			Protocol: protocol, MaxBufferedBytes: 400_000, MaxInFlight: 200, Concurrency: 100, DrainTimeout: time.Second,
		}, func(ctx context.Context, _ *fronta.Record) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		w.until("assigned", m.owns(2))
		for i := range 40 {
			w.produce(0, keys(fmt.Sprint(i, "-"), 50)...)
		}
		full := func() bool { s := m.Stats(); return s.Running == 100 && s.Bytes >= 200_000 }
		w.until("full", full)
		for round := range 3 {
			w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{heartbeat(protocol)}, Err: kerr.UnknownMemberID})
			w.until("lost and back", func() bool { assigned, _, lost := m.counts(); return lost == 2*(round+1) && assigned == 2*(round+2) })
			began := time.Now()
			w.until("full again", full)
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("reading began after %s", d)
			}
			time.Sleep(3 * time.Second)
			if s := m.Stats(); s.Running > 100 || s.Unfinished > 200 || s.Bytes > 600_000 {
				t.Errorf("round %d: %d running, %d unfinished, %d bytes", round, s.Running, s.Unfinished, s.Bytes)
			}
		}
		close(release)
		w.until("all", func() bool { return w.stored(0) == 2000 })
		m.stop()
		w.verdict()
	})
}

// An eager balancer takes everything away and gives it back: what was buffered
// is handled once and in order.
//
// H-041
func TestEagerRebalance(t *testing.T) {
	virtually(t, func(t *testing.T) {
		w := newWorld(t, 1)
		cfg := fronta.Config{Order: fronta.ByPartition(), Client: []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}}
		a := w.join("a", cfg, takes(100*time.Millisecond))
		w.until("assigned", a.owns(1))
		w.produce(0, keys("a", 100)...)
		w.until("begun", a.accepted(10))
		b := w.join("b", cfg, takes(100*time.Millisecond))
		w.until("all", func() bool { return w.stored(0) == 100 })
		r := w.check.Report()
		if r.Attempts != 100 {
			t.Errorf("%d attempts for 100 records", r.Attempts)
		}
		if assigned, _, _ := a.counts(); assigned+len(b.starts()) < 2 {
			t.Error("nothing was taken away")
		}
		a.stop()
		b.stop()

		w.verdict()
	})
}

// Handlers block for three session timeouts: the member stays in the group.
//
// H-100, H-050
func TestSlowHandlersKeepTheMembership(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		m := w.join("a", fronta.Config{Protocol: protocol}, func(_ context.Context, r *fronta.Record) error {
			if r.Partition == 0 {
				time.Sleep(135 * time.Second)
			}
			return nil
		})
		w.until("assigned", m.owns(2))
		w.produce(0, keys("a", 200)...)
		time.Sleep(60 * time.Second)
		for i := range 60 {
			w.produce(1, fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		if got := w.stored(1); got < 58 {
			t.Errorf("partition 1 came to %d of 60", got)
		}
		w.until("all", func() bool { return w.stored(0) == 200 })
		if assigned, revoked, lost := m.counts(); assigned != 2 || revoked+lost != 0 {
			t.Errorf("%d assigned, %d revoked, %d lost", assigned, revoked, lost)
		}
		m.stop()
		w.verdict()
	})
}
