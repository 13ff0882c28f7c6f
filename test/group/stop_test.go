package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/fake"
)

// A stop falls into a join that is not answered, or is before any assignment.
//
// H-112
func TestStopDuringJoin(t *testing.T) {
	for name, mute := range map[string]kmsg.Key{
		"first join": kmsg.JoinGroup, "sync": kmsg.SyncGroup, "coordinator": kmsg.FindCoordinator, "offsets": kmsg.OffsetFetch,
		"heartbeat": kmsg.ConsumerGroupHeartbeat, "metadata": kmsg.Metadata,
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				w.produce(0, "a")
				left := new(leaves)
				swallowed := w.mute(mute)
				m := w.join("a", fronta.Config{Protocol: protocol, Client: []kgo.Opt{kgo.WithHooks(left)}}, accept)
				time.Sleep(3 * time.Second)
				if took := m.stop(); took > 12*time.Second {
					t.Errorf("the stop took %s", took)
				}
				if n := swallowed(mute); n > 0 && mute == kmsg.SyncGroup && left.n.Load() == 0 {
					t.Error("no LeaveGroup went out")
				}
			})
		})
	}
}

// The join is answered only when the member has an id already: it leaves.
//
// H-112
func TestStopDuringSecondJoin(t *testing.T) {
	virtually(t, func(t *testing.T) {
		w := newWorld(t, 1)
		left := new(leaves)
		joins := 0
		w.cluster().ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster().KeepControl()
			joins++
			return nil, nil, req.(*kmsg.JoinGroupRequest).MemberID != ""
		})
		m := w.join("a", fronta.Config{Client: []kgo.Opt{kgo.WithHooks(left)}}, accept)
		time.Sleep(3 * time.Second)
		if took := m.stop(); took > 6*time.Second {
			t.Errorf("the stop took %s", took)
		}
		if joins < 2 || left.n.Load() == 0 {
			t.Errorf("%d joins, %d attempts to leave", joins, left.n.Load())
		}
	})
}

// onAssigned is a hook that blocks.
type blockAssigned struct{ in, out chan struct{} }

func (b blockAssigned) OnAssigned([]fronta.TopicPartition, int64) {
	close(b.in)
	<-b.out
}

// A stop falls into a rebalance callback: the assignment's, held up by a hook,
// or the revocation's, held up by a handler.
//
// H-112, H-113
func TestStopInsideRebalanceCallback(t *testing.T) {
	t.Run("assigned", func(t *testing.T) {
		underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
			w := newWorld(t, 1)
			hook := blockAssigned{make(chan struct{}), make(chan struct{})}
			m := w.join("a", fronta.Config{Protocol: protocol, Hooks: []any{hook}}, accept)
			<-hook.in
			time.AfterFunc(30*time.Second, func() { close(hook.out) })
			if took := m.stop(); took > 26*time.Second {
				t.Errorf("the stop took %s", took)
			}
			<-hook.out
			time.Sleep(10 * time.Second) // the client is gone then, too
		})
	})
	t.Run("revoked", func(t *testing.T) {
		liveUnderBoth(t, func(t *testing.T, protocol fronta.Protocol) {
			w := newLiveWorld(t, 2)
			cfg := fronta.Config{Protocol: protocol, DrainTimeout: time.Second, CommitInterval: time.Hour, Client: []kgo.Opt{kgo.HeartbeatInterval(50 * time.Millisecond)}}
			var cancelled atomic.Int32
			a := w.join("a", cfg, func(ctx context.Context, _ *fronta.Record) error {
				<-ctx.Done()
				cancelled.Add(1)
				return ctx.Err()
			})
			w.until("assigned", a.owns(2))
			w.produce(0, "a")
			w.produce(1, "b")
			w.until("running", func() bool { return a.Stats().Running == 2 })
			b := w.join("b", cfg, accept)
			w.until("leaving", func() bool {
				for _, p := range a.Stats().Partitions {
					if p.Leaving {
						return true
					}
				}
				return false
			})
			if took := a.stop(); took > 10*time.Second || cancelled.Load() != 2 {
				t.Errorf("the stop took %s, %d handlers were cancelled", took, cancelled.Load())
			}
			w.until("b has all", b.owns(2))
			w.until("b handles all", b.accepted(2))
			b.stop()
			w.verdict()
		})
	})
}

// 1, 2 and 4 are done, 3 is not, and the consumer is stopped: the next start
// delivers 3 and nothing below it. (What is finished behind it is repeated, as
// long as only offsets are committed.)
//
// H-115
func TestRestartBehindAnUnfinishedRecord(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 1)
		a := w.join("a", fronta.Config{Protocol: protocol, DrainTimeout: time.Second}, func(_ context.Context, r *fronta.Record) error {
			if string(r.Key) == "c" {
				return errFailed
			}
			return nil
		})
		w.produce(0, "a", "b", "c", "d")
		w.until("three are done", a.accepted(3))
		a.stop()
		b := w.join("b", fronta.Config{Protocol: protocol}, accept)
		w.until("stored", func() bool { return w.stored(0) == 4 })
		if got := b.offsets(0); got[0] != 2 {
			t.Errorf("the restart handled %v", got)
		}
		b.stop()
		w.verdict()
	})
}

// seed is FRONTA_SEED, to play one run again, or a random one.
func seed(t *testing.T) uint64 {
	if s := os.Getenv("FRONTA_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("FRONTA_SEED: %v", err)
		}
		return n
	}
	return rand.Uint64()
}

// Rounds of start, random work and stop at a random moment, 256 partitions:
// none hangs, and none leaves a goroutine, which would keep the bubble from
// ending.
//
// H-116
func TestStartAndStopAtRandom(t *testing.T) {
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seed(t)
			rounds := 0
			// Real time: the clock outside of the bubble.
			for deadline := time.Now().Add(roundsFor); time.Now().Before(deadline); rounds++ {
				one := s + uint64(rounds)
				if !t.Run(fmt.Sprint(one), func(t *testing.T) {
					virtuallyNow(t, func(t *testing.T) { startAndStop(t, protocol, one) })
				}) {
					t.Fatalf("round %d: play it again with FRONTA_SEED=%d", rounds, one)
				}
			}
			t.Logf("%d rounds", rounds)
		})
	}
}

const roundsFor = 4 * time.Second

func startAndStop(t *testing.T, protocol fronta.Protocol, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	const partitions = 256
	w := newWorld(t, partitions)
	for range random.IntN(20) {
		w.produce(random.Int32N(partitions), keys("a", 1+random.IntN(5))...)
	}
	for i := range 4 {
		var inner rand.PCG
		inner.Seed(seed, uint64(i))
		work := rand.New(&inner)
		long := time.Duration(work.Int64N(int64(time.Second)))
		m := w.join(fmt.Sprint(i), fronta.Config{Protocol: protocol, Concurrency: 1 + random.IntN(50), DrainTimeout: time.Second}, func(ctx context.Context, r *fronta.Record) error {
			switch r.Offset % 3 {
			case 0:
				return nil
			case 1:
				select {
				case <-time.After(long):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			default:
				return errFailed
			}
		})
		// Mostly within the start, where most happens.
		time.Sleep(time.Duration(random.ExpFloat64() * float64(30*time.Millisecond)))
		if random.IntN(3) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second))))
		}
		for range random.IntN(10) {
			w.produce(random.Int32N(partitions), keys("b", 1+random.IntN(5))...)
		}
		m.stop()
	}
	if r := w.check.Report(); !r.OK() {
		t.Errorf("%s", r)
	}
}

// A consumer that is asked for what the broker cannot do ends at once, and
// says what is missing.
//
// H-137
func TestBrokerWithoutTheNewerProtocol(t *testing.T) {
	virtually(t, func(t *testing.T) {
		w := newWorld(t, 1, fake.ClusterOptions(kfake.MaxVersions(kversion.V3_6_0())))
		began := time.Now()
		m := w.join("a", fronta.Config{Protocol: fronta.ConsumerProtocol}, accept)
		<-m.done
		if m.err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("Run after %s: %v", time.Since(began), m.err)
		}
	})
}

// The broker is restarted, from its data directory, while two members work.
func TestBrokerRestarts(t *testing.T) {
	liveUnderBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		dir := t.TempDir()
		w := newLiveWorld(t, 4, fake.DataDir(dir), fake.Addr("127.0.0.1:0"))
		addr := w.b.Addrs()[0]
		cfg := fronta.Config{Protocol: protocol, CommitInterval: 50 * time.Millisecond, Retry: fronta.ConstantBackoff(10 * time.Millisecond)}
		work := func(_ context.Context, r *fronta.Record) error {
			time.Sleep(time.Millisecond)
			if r.Offset%17 == 0 && r.DeliveryCount == 1 {
				return errors.New("once")
			}
			return nil
		}
		a, b := w.join("a", cfg, work), w.join("b", cfg, work)
		w.until("shared", func() bool { return a.owns(2)() && b.owns(2)() })
		for restart := range 3 {
			for p := range int32(4) {
				w.produce(p, keys(fmt.Sprint("k", restart%2), 200)...)
			}
			w.until("under way", func() bool { return w.check.Report().Handled > int64(800*restart+100) })
			w.b.Close()
			w.start(fake.Addr(addr), fake.DataDir(dir), fake.Topic(topic, 4))
		}
		w.until("all handled", func() bool { return w.check.Report().Handled == 2400 })
		w.until("all stored", func() bool {
			for p := range int32(4) {
				if w.stored(p) != 600 {
					return false
				}
			}
			return true
		})
		a.stop()
		b.stop()
		w.verdict()
	})
}
