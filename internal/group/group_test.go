package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta/fake"
	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/internal/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var p0 = engine.TopicPartition{Topic: "orders", Partition: 0}

// byKey is a lane per first byte of the key.
func byKey(r *kgo.Record) (queue.Lane, error) {
	if len(r.Key) == 0 {
		return queue.Alone, nil
	}
	return queue.Lane(r.Key[0]), nil
}

func outcome(err error) engine.Outcome {
	return engine.Outcome{Verb: engine.Fail, Err: err}
}

func newEngine(t *testing.T, handle func(context.Context, *engine.Delivery) error) *engine.Engine {
	e := engine.New(engine.Config{
		Handle: handle, Lane: byKey, LaneInside: true, Concurrency: 16, MaxInFlight: 1000, MaxBytes: 1 << 20,
		Backoff: func(*engine.Delivery, error) time.Duration { return 0 },
		Outcome: outcome, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(e.Close)
	return e
}

// begin opens p0 at an offset, and its gate.
func begin(e *engine.Engine, offset int64) {
	e.Begin([]engine.Start{{TopicPartition: p0, Offset: offset, Epoch: -1, End: -1}})
	for _, at := range e.Positions(p0) {
		e.Confirmed(at)
	}
}

func records(from, to int64) []*kgo.Record {
	var rs []*kgo.Record
	for o := from; o < to; o++ {
		rs = append(rs, &kgo.Record{Topic: p0.Topic, Partition: p0.Partition, Offset: o, Key: []byte{byte('a' + o%5)}})
	}
	return rs
}

// A record is queued, or runs, or is done, when the partition is revoked at a
// random moment: the final position is never above a record that has not been
// accepted, and the next owner, which starts there, handles the rest, each
// record at least once.
//
// H-034, H-004
func TestRevokeAtAnyMoment(t *testing.T) {
	rounds := 10_000
	if testing.Short() {
		rounds = 500
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		for round := range rounds {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			revokeAt(t, random, fmt.Sprintf("seed %d round %d", seed, round))
			if t.Failed() {
				return
			}
		}
	})
}

func revokeAt(t *testing.T, random *rand.Rand, name string) {
	const n = 20
	var mu sync.Mutex
	accepted := make(map[int64]bool)
	takes := make([]time.Duration, n)
	for i := range takes {
		takes[i] = time.Duration(random.IntN(8)) * time.Millisecond
	}
	fails := random.Int64N(n)
	e := engine.New(engine.Config{
		Handle: func(ctx context.Context, d *engine.Delivery) error {
			select {
			case <-time.After(takes[d.Offset]):
			case <-ctx.Done():
				return ctx.Err()
			}
			if d.Offset == fails && d.DeliveryCount < 3 {
				return errors.New("failed")
			}
			mu.Lock()
			defer mu.Unlock()
			accepted[d.Offset] = true
			return nil
		},
		Lane: byKey, LaneInside: true, Concurrency: 1 + random.IntN(8), MaxInFlight: 1 + random.IntN(30), MaxBytes: 1 << 20,
		Backoff: func(*engine.Delivery, error) time.Duration { return time.Millisecond },
		Outcome: outcome, Log: slog.New(slog.DiscardHandler),
	})
	defer func() {
		e.Close()
		synctest.Wait()
	}()
	check := func(at engine.Position, what string) {
		mu.Lock()
		defer mu.Unlock()
		for o := range at.Offset {
			if !accepted[o] {
				t.Errorf("%s: %s is %d, but offset %d is unfinished", name, what, at.Offset, o)
			}
		}
	}
	start := int64(0)
	for owner := range int64(3) {
		e.Add(p0, owner, start)
		read := start
		for range 1 + random.IntN(4) {
			to := min(read+1+random.Int64N(n), n)
			if to > read {
				e.Offer(p0, records(read, to), n)
				read = to
			}
			time.Sleep(time.Duration(random.IntN(6)) * time.Millisecond)
			for _, at := range e.Positions() {
				check(at, "a position")
			}
		}
		drain, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(10))*time.Millisecond)
		for _, at := range e.Revoke(drain, []engine.TopicPartition{p0}) {
			if at.Offset < start {
				t.Errorf("%s: the position fell from %d to %d", name, start, at.Offset)
			}
			check(at.Position, "the final position")
			start = at.Offset
		}
		cancel()
		if got := e.Positions(p0); len(got) != 0 {
			t.Errorf("%s: a position after the revocation: %v", name, got)
		}
	}
	e.Add(p0, 3, start)
	if start < n {
		e.Offer(p0, records(start, n), n)
	}
	time.Sleep(time.Second)
	if at := e.Positions(p0)[0]; at.Offset != n {
		t.Errorf("%s: the last owner came to %d of %d", name, at.Offset, n)
	}
	if s := e.Stats(); s.Running != 0 || s.Unfinished != 0 || s.Bytes != 0 {
		t.Errorf("%s: left behind: %+v", name, s)
	}
}

// The assign callback comes with nothing, twice, while records are in work:
// none is dropped.
//
// H-040
func TestAssignedNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := newEngine(t, func(context.Context, *engine.Delivery) error {
			<-release
			return nil
		})
		s, client := newSession(t, e)
		s.assigned(t.Context(), client, map[string][]int32{p0.Topic: {0}})
		begin(e, 0)
		e.Offer(p0, records(0, 20), 20)
		synctest.Wait()
		before := e.Stats()
		s.assigned(t.Context(), client, nil)
		s.assigned(t.Context(), client, map[string][]int32{})
		s.revoked(t.Context(), client, nil)
		s.lost(t.Context(), client, nil)
		if after := e.Stats(); after.Unfinished+after.Staged != before.Unfinished+before.Staged || after.Running != before.Running {
			t.Errorf("was %d in work, %d read; is %d, %d", before.Unfinished, before.Staged, after.Unfinished, after.Staged)
		}
		close(release)
		synctest.Wait()
		if got := e.Stats().Accepted; got != 20 {
			t.Errorf("%d of 20 were handled", got)
		}
	})
}

// A client joins from its first moment on, so it may call back before join has
// noted it:
//
//	join:   kgo.NewClient starts the client, is descheduled
//	client: joins, is assigned P0, asks starts where to begin
//	join:   goes on, notes the client
func TestCallbacksWaitForTheirClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(engine.Config{Lane: func(*kgo.Record) (queue.Lane, error) { return queue.Alone, nil }, Concurrency: 1, MaxInFlight: 1, MaxBytes: 1})
		defer e.Close()
		s, client := newSession(t, e)
		s.d.cfg.StartLatest = true
		s.made, s.client = make(chan struct{}), nil
		s.d.client.Store(nil)
		e.Add(p0, 1, -1)
		end := make(chan error, 1)
		go func() {
			_, err := s.starts(t.Context(), map[string]map[int32]kgo.Offset{p0.Topic: {0: kgo.NewOffset().AtEnd()}})
			end <- err
		}()
		synctest.Wait()
		s.client = client
		s.d.client.Store(client)
		close(s.made)
		if err := <-end; err != nil {
			t.Error(err)
		}
		if at := e.Positions(p0); len(at) != 1 || at[0].Offset != 0 {
			t.Errorf("P0 begins at %+v", at)
		}
	})
}

// newSession is a session of a driver that polls nothing, with a client that
// has a broker to talk to.
func newSession(t *testing.T, e *engine.Engine) (*session, *kgo.Client) {
	t.Helper()
	b, err := fake.Start(fake.Virtual(), fake.Topic(p0.Topic, 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	client, err := kgo.NewClient(append(b.Opts(), kgo.ConsumerGroup("billing"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	d := New(Config{
		Group: "billing", Log: slog.New(slog.DiscardHandler),
		RevokeTimeout: time.Second, CommitTimeout: time.Second, CommitRefresh: 30 * time.Second,
	})
	d.Attach(e)
	d.client.Store(client)
	made := make(chan struct{})
	close(made)
	return &session{d: d, client: client, life: t.Context(), made: made, void: make(chan struct{}), stopping: make(chan struct{})}, client
}

// What is worth a commit.
//
// H-002, H-008
func TestDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := New(Config{CommitRefresh: 30 * time.Second})
		due := func(offset int64) bool {
			return d.due(engine.Position{TopicPartition: p0, Offset: offset}, time.Now())
		}
		if d.Committed(p0) != -1 || !due(0) {
			t.Error("nothing is committed yet, so it is due")
		}
		d.committed.set(engine.Position{TopicPartition: p0, Offset: 10}, 0, time.Now())
		if due(10) || !due(11) || d.Committed(p0) != 10 {
			t.Error("only what has changed is due")
		}
		time.Sleep(29 * time.Second)
		if due(10) {
			t.Error("an unchanged offset is due too early")
		}
		time.Sleep(time.Second)
		if !due(10) {
			t.Error("an unchanged offset is not refreshed")
		}
		d.committed.set(engine.Position{TopicPartition: p0, Offset: 10}, 0, time.Now())
		commitHook{&d.committed}.OnBrokerE2E(kgo.BrokerMetadata{}, 9, kgo.BrokerE2E{ReadErr: errors.New("cut")})
		commitHook{&d.committed}.OnBrokerE2E(kgo.BrokerMetadata{}, 8, kgo.BrokerE2E{})
		if due(10) {
			t.Error("doubt came from another request, or without an error")
		}
		commitHook{&d.committed}.OnBrokerE2E(kgo.BrokerMetadata{}, 8, kgo.BrokerE2E{ReadErr: errors.New("cut")})
		if !due(10) {
			t.Error("no doubt after a lost answer")
		}
		d.committed.set(engine.Position{TopicPartition: p0, Offset: 10}, 0, time.Now())
		if !due(10) {
			t.Error("a confirmed commit ends the doubt, although an older one may still be applied")
		}
		time.Sleep(doubtFor)
		d.committed.set(engine.Position{TopicPartition: p0, Offset: 10}, 0, time.Now())
		if due(10) {
			t.Error("the doubt does not end")
		}
		d.committed.forget(p0)
		if d.Committed(p0) != -1 {
			t.Error("what an earlier ownership has committed is reported as this one's")
		}
	})
}

// Errors that no retry can mend, and what they tell the user.
func TestFatalGroupErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err           error
		before, after string // joined; "": not fatal
	}{
		{kerr.FencedInstanceID, "kgo.InstanceID", "kgo.InstanceID"},
		{kerr.UnreleasedInstanceID, "kgo.InstanceID", "kgo.InstanceID"},
		{kerr.InconsistentGroupProtocol, "another protocol", "another protocol"},
		{kerr.InvalidGroupID, "Config.Group", "Config.Group"},
		{kerr.InvalidSessionTimeout, "kgo.SessionTimeout", "kgo.SessionTimeout"},
		{kerr.GroupAuthorizationFailed, `READ on Group "billing"`, ""}, // H-140
		{kerr.UnknownMemberID, "", ""},
		{kerr.IllegalGeneration, "", ""},
		{kerr.RebalanceInProgress, "", ""},
		{kerr.CoordinatorNotAvailable, "", ""},
		{context.DeadlineExceeded, "", ""},
	} {
		for _, joined := range []bool{false, true} {
			want := c.before
			if joined {
				want = c.after
			}
			got := fatalGroupError(Config{Group: "billing"}, fmt.Errorf("wrapped: %w", c.err), joined)
			switch {
			case want == "" && got != nil:
				t.Errorf("%v is fatal (joined %v): %v", c.err, joined, got)
			case want != "" && (got == nil || !errors.Is(got, c.err) || !strings.Contains(got.Error(), want) || !strings.Contains(got.Error(), `"billing"`)):
				t.Errorf("%v (joined %v): %v, want %q in it", c.err, joined, got, want)
			}
		}
	}
}
