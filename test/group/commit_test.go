package group_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/fronta-mq/fronta/fake"
)

// Once a second by default, and then everything there is.
func TestCommitsOncePerSecond(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		m := w.join("a", fronta.Config{Protocol: protocol}, accept)
		w.until("assigned", m.owns(2))
		for i := range 100 {
			w.produce(int32(i%2), fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		requests := make(map[time.Time]bool)
		for _, c := range w.seen() {
			requests[c.at] = true
		}
		if n := len(requests); n < 9 || n > 12 {
			t.Errorf("%d commits in ten seconds", n)
		}
		time.Sleep(time.Second)
		if w.stored(0) != 50 || w.stored(1) != 50 {
			t.Errorf("stored: %d and %d, want 50 and 50", w.stored(0), w.stored(1))
		}
		// Nothing changes, so nothing is committed.
		n := len(w.seen())
		time.Sleep(10 * time.Second)
		if more := len(w.seen()) - n; more != 0 {
			t.Errorf("%d commits while idle", more)
		}
		m.stop()
		w.verdict()
	})
}

// inFlight counts the commits that a client has sent and not got an answer to.
type inFlight struct {
	mu        sync.Mutex
	now, most int
}

func (f *inFlight) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	f.count(key, 1)
}

func (f *inFlight) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	f.count(key, -1)
}

func (f *inFlight) count(key int16, n int) {
	if key != int16(kmsg.OffsetCommit) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += n
	f.most = max(f.most, f.now)
}

// H-001
func TestOneCommitAtATime(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		w.cluster().ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster().KeepControl()
			w.cluster().SleepControl(func() { time.Sleep(5*time.Millisecond + rand.N(45*time.Millisecond)) })
			return nil, nil, false
		})
		flight := new(inFlight)
		m := w.join("a", fronta.Config{
			Protocol: protocol, CommitInterval: time.Millisecond,
			Client: []kgo.Opt{kgo.WithHooks(flight)},
		}, accept)
		for i := range 300 {
			w.produce(0, fmt.Sprint(i))
			time.Sleep(5 * time.Millisecond)
		}
		w.until("all stored", func() bool { return w.stored(0) == 300 })
		commits := w.seen()
		if len(commits) < 20 {
			t.Errorf("%d commits in a second and a half", len(commits))
		}
		for i := 1; i < len(commits); i++ {
			if commits[i].offset < commits[i-1].offset {
				t.Errorf("commit %d: offset %d after %d", i, commits[i].offset, commits[i-1].offset)
			}
		}
		m.stop()
		if flight.most != 1 {
			t.Errorf("%d commits were under way at once", flight.most)
		}
		w.verdict()
	})
}

// A commit without an answer is applied after a later one was confirmed: the
// position is committed again although it has not changed.
//
// H-002
func TestLostAnswerThatIsAppliedLate(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		m := w.join("a", fronta.Config{Protocol: protocol, DrainTimeout: time.Second}, stuck)
		w.until("assigned", m.owns(1))

		var sent atomic.Pointer[kmsg.OffsetCommitRequest]
		w.cluster().ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			req := r.(*kmsg.OffsetCommitRequest)
			if req.Topics[0].Partitions[0].Offset != 100 {
				return nil, nil, false
			}
			sent.Store(req)
			return nil, errors.New("the connection is cut"), true
		})
		// Whatever the client tries again of its own has to fail too.
		cut := w.cluster().Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Err: kerr.UnknownServerError,
			When: func(r kmsg.Request) bool {
				return r.(*kmsg.OffsetCommitRequest).Topics[0].Partitions[0].Offset == 100
			},
		})
		w.produce(0, keys("a", 100)...)
		w.until("commit of 100", func() bool { return sent.Load() != nil })
		w.produce(0, keys("b", 40)...)
		w.produce(0, "stuck", "c", "d")
		w.until("commit of 140", func() bool { told := w.told(0); return told.Offset == 140 && told.Horizon() == 143 })
		cut.Remove()

		late, lost := kmsg.NewPtrOffsetCommitRequest(), sent.Load()
		late.Group, late.MemberID, late.Generation = lost.Group, lost.MemberID, lost.Generation
		late.Topics = lost.Topics
		late.Topics[0].Topic = topic
		resp, err := late.RequestWith(t.Context(), w.client())
		if err != nil {
			t.Fatal(err)
		}
		if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil || w.stored(0) != 100 {
			t.Fatalf("the late commit was not applied: %v, stored %d", err, w.stored(0))
		}
		began := time.Now()
		w.until("the newest is stored again", func() bool { told := w.told(0); return told.Offset == 140 && told.Horizon() == 143 })
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the older offset stood for %s", d)
		}
		m.stop()
		last := w.join("last", fronta.Config{Protocol: protocol}, accept)
		w.until("all", func() bool { return w.stored(0) == 143 })
		last.stop()
		w.verdict()
	})
}

// A refused commit is followed by one of what is newest then; a coordinator
// that is not one is looked up, and asked at growing distances.
//
// H-003, H-005
func TestRefusedCommits(t *testing.T) {
	for name, refuse := range map[string]*kerr.Error{
		"unknown error":      kerr.UnknownServerError,
		"not coordinator":    kerr.NotCoordinator,
		"loading":            kerr.CoordinatorLoadInProgress,
		"rebalance":          kerr.RebalanceInProgress, // H-045
		"denied":             kerr.GroupAuthorizationFailed,
		"network exception":  kerr.NetworkException,
		"invalid session id": kerr.InvalidFetchSessionEpoch, // nothing that belongs here
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				m := w.join("a", fronta.Config{Protocol: protocol}, accept)
				w.until("assigned", m.owns(1))
				fault := w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Err: refuse})
				w.produce(0, keys("a", 100)...)
				began := time.Now()
				w.until("a refusal", func() bool { return fault.Hits() > 0 })
				w.produce(0, keys("b", 40)...)
				time.Sleep(10*time.Second - time.Since(began))
				if n := fault.Hits(); n < 2 || n > 30 {
					t.Errorf("%d commits in ten seconds of refusals", n)
				}
				if m.Stats().Commits != 0 || m.Stats().Partitions[0].Committed > 0 {
					t.Errorf("confirmed: %d commits, offset %d", m.Stats().Commits, m.Stats().Partitions[0].Committed)
				}
				fault.Remove()
				began = time.Now()
				w.until("all stored", func() bool { return w.stored(0) == 140 })
				if d := time.Since(began); d > 11*time.Second {
					t.Errorf("the commit came %s after the refusals", d)
				}
				if _, _, lost := m.counts(); lost != 0 {
					t.Errorf("%d partitions were lost for a refused commit", lost)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// Each partition's own result decides.
//
// H-026, H-135, H-141
func TestRefusalOfOnePartition(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 3)
		m := w.join("a", fronta.Config{Protocol: protocol}, accept)
		for p := range int32(3) {
			w.produce(p, "first")
		}
		w.until("begun", func() bool { return w.stored(0) == 1 && w.stored(1) == 1 && w.stored(2) == 1 })
		before := m.Stats()
		fault := w.cluster().Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetCommit}, Partitions: []int32{1}, Count: -1, Err: kerr.TopicAuthorizationFailed,
		})
		for p := range int32(3) {
			w.produce(p, keys("secret", 5)...)
		}
		w.until("refusals", func() bool { return fault.Hits() >= 3 })
		if w.stored(0) != 6 || w.stored(1) != 1 || w.stored(2) != 6 {
			t.Errorf("stored: %d, %d, %d, want 6, 1, 6", w.stored(0), w.stored(1), w.stored(2))
		}
		s := m.Stats()
		if s.Commits != before.Commits+2 || s.CommitErrors < 2 || int(s.CommitErrors) > fault.Hits() {
			t.Errorf("counted %d confirmed, %d refused", s.Commits, s.CommitErrors)
		}
		for i, want := range []int64{6, 1, 6} {
			if got := s.Partitions[i].Committed; got != want {
				t.Errorf("partition %d counts as committed to %d, want %d", i, got, want)
			}
		}
		for _, r := range m.refusals() {
			if r.Partition != 1 || r.Topic != topic || r.offset != 6 || !errors.Is(r.err, kerr.TopicAuthorizationFailed) {
				t.Errorf("the hook was told %+v", r)
			}
		}
		// What the others have to say does not wait for this one.
		w.produce(0, keys("more", 5)...)
		began := time.Now()
		w.until("stored", func() bool { return w.stored(0) == 11 })
		if d := time.Since(began); d > 1100*time.Millisecond {
			t.Errorf("another partition's commit came after %s", d)
		}
		lines := m.log.lines("commit failed")
		if len(lines) != 1 {
			t.Errorf("%d lines were logged of one condition", len(lines))
		}
		var text string
		for _, c := range w.seen() {
			if c.partition == 1 {
				text = *c.metadata
			}
		}
		for _, line := range lines {
			for _, part := range []string{"topic=" + topic, "partition=1", "offset=6", "epoch=", fmt.Sprintf("metadata_length=%d ", len(text)), "TOPIC_AUTHORIZATION_FAILED"} {
				if !strings.Contains(line, part) {
					t.Errorf("%q lacks %q", line, part)
				}
			}
			if strings.Contains(line, "secret") || strings.Contains(line, text) {
				t.Errorf("%q has the record's data, or the metadata", line)
			}
		}
		fault.Remove()
		w.until("stored after all", func() bool { return w.stored(1) == 6 })
		m.stop()
		w.verdict()
	})
}

// H-135
func TestAllCommitsRefused(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Err: kerr.UnknownServerError})
		m := w.join("a", fronta.Config{Protocol: protocol}, accept)
		w.until("assigned", m.owns(2))
		w.produce(0, "a", "b")
		w.produce(1, "c")
		time.Sleep(30 * time.Second)
		before := m.Stats()
		took := m.stop()
		after := m.Stats()
		if after.Commits != 0 || before.CommitErrors < 4 || after.CommitErrors <= before.CommitErrors {
			t.Errorf("counted %d confirmed, %d refused and %d at the end", after.Commits, before.CommitErrors, after.CommitErrors)
		}
		if took > 16*time.Second {
			t.Errorf("the stop took %s", took)
		}
		for _, p := range []int32{0, 1} {
			if !slices.ContainsFunc(m.refusals(), func(r refusal) bool { return r.Partition == p }) {
				t.Errorf("no hook was told of partition %d", p)
			}
		}
		w.check.Stopped("a")
	})
}

// H-029: the metadata is ours by whatever way a commit leaves; verdict looks at
// every one that the broker got.
func TestEveryRouteOfCommits(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 4)
		cfg := fronta.Config{Protocol: protocol, StartAt: fronta.Latest()}
		a := w.join("a", cfg, accept)
		w.until("assigned", a.owns(4))
		for p := range int32(4) {
			w.produce(p, keys("a", 10)...)
		}
		w.until("timer", func() bool { return w.stored(3) == 10 })
		for p := range int32(4) {
			w.produce(p, keys("b", 10)...)
		}
		b := w.join("b", cfg, accept) // revoke
		w.until("shared", b.owns(2))
		for p := range int32(4) {
			w.produce(p, keys("c", 10)...)
		}
		w.until("all handled", func() bool { return a.Stats().Accepted+b.Stats().Accepted == 120 })
		a.stop()
		b.stop()
		for p := range int32(4) {
			if w.stored(p) != 30 {
				t.Errorf("partition %d: %d stored", p, w.stored(p))
			}
		}
		if len(w.seen()) < 12 {
			t.Errorf("only %d commits seen", len(w.seen()))
		}
		w.verdict()
	})
}

// An offset that does not change is committed again before the broker can
// forget it.
//
// H-008
func TestUnchangedOffsetsAreRefreshed(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		m := w.join("a", fronta.Config{Protocol: protocol}, accept)
		w.until("assigned", m.owns(2))
		w.produce(1, keys("a", 3)...)
		w.until("stored", func() bool { return w.stored(1) == 3 })
		for range 36 { // three minutes
			w.produce(0, "busy")
			time.Sleep(5 * time.Second)
			if age := time.Since(w.storedOf(topic, 1).At); age > 32*time.Second {
				t.Fatalf("the silent partition's offset was stored %s ago", age)
			}
		}
		n := 0
		for _, c := range w.seen() {
			if c.partition == 1 {
				n++
			}
		}
		if n > 10 {
			t.Errorf("%d commits of the silent partition in three minutes", n)
		}
		m.stop()
		w.verdict()
	})
}

// leaves counts the attempts to leave the group, as far as the client's
// connection: a mute broker's has no room for more than one request.
type leaves struct{ n atomic.Int64 }

func (l *leaves) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.LeaveGroup) {
		l.n.Add(1)
	}
}

// H-114, H-009: the coordinator takes requests and answers none of them.
func TestStopWithMuteCoordinator(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		left := new(leaves)
		m := w.join("a", fronta.Config{Protocol: protocol, Client: []kgo.Opt{kgo.WithHooks(left)}}, accept)
		w.until("assigned", m.owns(1))
		w.produce(0, keys("a", 10)...)
		w.until("stored", func() bool { return w.stored(0) == 10 })
		swallowed := w.mute(kmsg.OffsetCommit, kmsg.LeaveGroup, kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat, kmsg.JoinGroup)
		w.produce(0, keys("b", 10)...)
		w.until("handled", m.accepted(20))
		w.until("a commit is under way", func() bool { return swallowed(kmsg.OffsetCommit) > 0 })
		if took := m.stop(); took > 20*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if got := m.confirmed[fronta.TopicPartition{Topic: topic}]; got != 10 {
			t.Errorf("the hook was told that %d is stored", got)
		}
		w.until("an attempt to leave the group", func() bool {
			return left.n.Load() > 0 || swallowed(kmsg.ConsumerGroupHeartbeat) > 0
		})
		w.verdict()
	})
}

// The last commit at a stop is tried again while there is time.
func TestLastCommitIsTriedAgain(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		m := w.join("a", fronta.Config{Protocol: protocol, CommitInterval: time.Hour}, accept)
		w.until("assigned", m.owns(1))
		w.produce(0, keys("a", 10)...)
		w.until("handled", m.accepted(10))
		w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: 3, Err: kerr.UnknownServerError})
		m.stop()
		if w.stored(0) != 10 {
			t.Errorf("stored: %d", w.stored(0))
		}
		w.verdict()
	})
}

// Joins take long, so that a commit falls into one: the commit loop survives,
// and what is still owned is committed once the group has settled.
//
// H-045
func TestCommitsWhileAJoinIsPending(t *testing.T) {
	t.Parallel()
	w := newLiveWorld(t, 2)
	cfg := fronta.Config{CommitInterval: 20 * time.Millisecond}
	a := w.join("a", cfg, accept)
	w.produce(0, "a")
	w.produce(1, "b")
	w.until("begun", a.accepted(2))
	syncing, once := make(chan struct{}), sync.Once{}
	produced := make(chan struct{})
	w.cluster().ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(syncing) })
		w.cluster().SleepControl(func() { <-produced })
		return nil, nil, false
	})
	b := w.join("b", cfg, accept)
	<-syncing
	for range 20 {
		w.produce(0, "a")
		w.produce(1, "b")
	}
	w.until("handled", a.accepted(42))
	refusals := len(a.refusals())
	time.AfterFunc(200*time.Millisecond, func() { close(produced) })
	w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
	w.until("stored", func() bool { return w.stored(0) == 21 && w.stored(1) == 21 })
	if n := len(a.refusals()) - refusals; n > 5 {
		t.Errorf("%d refusals", n)
	}
	a.stop()
	b.stop()
	w.verdict()
}

// H-006: the group's coordinator moves while ten commits a second are made.
func TestCoordinatorMoves(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 3, fake.Brokers(3))
		m := w.join("a", fronta.Config{Protocol: protocol, CommitInterval: 100 * time.Millisecond}, accept)
		w.until("assigned", m.owns(3))
		stored := []int64{-1, -1, -1}
		for i := range 200 {
			for p := range int32(3) {
				w.produce(p, fmt.Sprint(i))
			}
			if i%40 == 20 {
				w.cluster().RehashCoordinators()
			}
			time.Sleep(50 * time.Millisecond)
			for p := range int32(3) {
				if s := w.stored(p); s < stored[p] {
					t.Errorf("partition %d: stored offset fell from %d to %d", p, stored[p], s)
				} else {
					stored[p] = s
				}
			}
		}
		w.until("all stored", func() bool { return w.stored(0) == 200 && w.stored(1) == 200 && w.stored(2) == 200 })
		m.stop()
		w.verdict()
	})
}

// H-017: the offsets cannot be read for a minute since a transaction may
// change them.
func TestUnstableOffsets(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		w.produce(0, keys("a", 10)...)
		first := w.join("first", fronta.Config{Protocol: protocol}, accept)
		w.until("handled", first.accepted(10))
		first.stop()
		w.produce(0, keys("b", 10)...)

		fault := w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Count: -1, Err: kerr.UnstableOffsetCommit})
		second := w.join("second", fronta.Config{Protocol: protocol}, accept)
		time.Sleep(time.Minute)
		if second.Stats().Accepted != 0 || fault.Hits() == 0 {
			t.Errorf("%d records handled, %d fetches refused", second.Stats().Accepted, fault.Hits())
		}
		third := w.join("third", fronta.Config{Protocol: protocol}, accept)
		time.Sleep(20 * time.Second)
		if took := third.stop(); took > 6*time.Second {
			t.Errorf("a stop during the wait took %s", took)
		}
		fault.Remove()
		w.until("handled", second.accepted(10))
		if got := second.starts()[0].offset; got != 10 {
			t.Errorf("began at %d", got)
		}
		second.stop()
		w.verdict()
	})
}
