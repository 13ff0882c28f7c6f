package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// committed is what the brokers have confirmed, partition by partition.
type committed struct {
	mu sync.Mutex
	m  map[engine.TopicPartition]stored

	// A commit without an answer may still be applied, and later than one
	// that was sent after it and confirmed:
	//
	//	commit 1: offset 100, sent, no answer in time
	//	commit 2: offset 140, sent over a new connection, confirmed
	//	broker:   takes commit 1 from the old connection; 100 is stored
	//
	// Until then every position is committed again at every tick (H-002).
	doubtUntil time.Time
}

type stored struct {
	offset  int64
	version uint64
	at      time.Time
}

func (c *committed) init() { c.m = make(map[engine.TopicPartition]stored) }

func (c *committed) get(tp engine.TopicPartition) (stored, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.m[tp]
	return s, ok
}

func (c *committed) forget(tp engine.TopicPartition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, tp)
}

func (c *committed) set(at engine.Position, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[at.TopicPartition] = stored{at.Offset, at.Version, now}
}

// doubt is told that a commit may have been sent and has no answer.
func (c *committed) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.doubtUntil = time.Now().Add(doubtFor)
}

func (c *committed) doubtful(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.doubtUntil)
}

// doubtFor is how long a commit without an answer may still be on its way.
const doubtFor = 30 * time.Second

// Committed is the offset that the brokers have confirmed for a partition, −1
// if none yet under this ownership.
func (d *Driver) Committed(tp engine.TopicPartition) int64 {
	if s, ok := d.committed.get(tp); ok {
		return s.offset
	}
	return -1
}

// due says whether a position is worth a commit now.
func (d *Driver) due(p engine.Position, now time.Time) bool {
	s, ok := d.committed.get(p.TopicPartition)
	return !ok || s.offset != p.Offset || s.version != p.Version || d.committed.doubtful(now) ||
		d.cfg.CommitRefresh > 0 && now.Sub(s.at) >= d.cfg.CommitRefresh // H-008
}

// commits commits on a timer until ctx ends. A commit that fails is followed
// by others at growing distances, up to ten intervals or 10 s (H-005).
func (s *session) commits(ctx context.Context) {
	d := s.d
	wait := d.cfg.CommitInterval
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.engine.Urgent():
		}
		now := time.Now()
		var todo []engine.Position
		for _, p := range d.engine.Positions() {
			if d.due(p, now) {
				todo = append(todo, p)
			}
		}
		ok := true
		if len(todo) > 0 {
			// Not ctx: a commit that was begun is waited for, so that its
			// outcome is known when the last one is made.
			once, cancel := context.WithTimeout(context.Background(), d.cfg.CommitTimeout)
			stop := context.AfterFunc(ctx, func() { time.AfterFunc(d.cfg.CommitTimeout/4, cancel) })
			ok = len(s.commitOnce(once, todo, live)) == 0
			stop()
			cancel()
		}
		d.engine.Housekeep()
		if ok {
			wait = d.cfg.CommitInterval
		} else {
			wait = min(2*wait, max(10*time.Second, d.cfg.CommitInterval))
		}
		timer.Reset(wait)
	}
}

// commitLast commits what is due of all partitions before the group is left,
// trying again while ctx allows.
func (s *session) commitLast(ctx context.Context) {
	now := time.Now()
	var todo []engine.Position
	for _, p := range s.d.engine.Positions() {
		if s.d.due(p, now) {
			todo = append(todo, p)
		}
	}
	s.commitAll(ctx, todo, live)
}

// offsetsOf says which offsets a commit carries.
type offsetsOf bool

const (
	// live: whatever the engine says when the request is built for the wire. A
	// partition that has gone meanwhile is left out, one that has moved on is
	// sent as it is. At that point the client holds the group's generation, so
	// the check and the commit are one step (H-033).
	live offsetsOf = false
	// closed: those given, of partitions that the engine has closed while they
	// are ours: nobody else can move them before the rebalance callback in
	// which this happens has returned.
	closed offsetsOf = true
)

// commitAll commits positions, trying again until all are confirmed, ctx ends
// or the membership is void.
func (s *session) commitAll(ctx context.Context, todo []engine.Position, offsets offsetsOf) {
	for wait := 50 * time.Millisecond; len(todo) > 0; wait = min(2*wait, time.Second) {
		todo = s.commitOnce(ctx, todo, offsets)
		if len(todo) == 0 {
			return
		}
		select {
		case <-s.void:
			return
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// commitOnce sends one commit and answers with the positions worth another
// try.
func (s *session) commitOnce(ctx context.Context, todo []engine.Position, which offsetsOf) (again []engine.Position) {
	d := s.d
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	for _, p := range todo {
		t := offsets[p.Topic]
		if t == nil {
			t = make(map[int32]kgo.EpochOffset)
			offsets[p.Topic] = t
		}
		t[p.Partition] = kgo.EpochOffset{Epoch: p.Epoch, Offset: p.Offset}
	}
	sent := make(map[engine.TopicPartition]engine.Position, len(todo))
	ids := make(map[[16]byte]string, 1)
	build := func(req *kmsg.OffsetCommitRequest) error {
		topics := req.Topics[:0]
		for _, t := range req.Topics {
			ids[t.TopicID] = t.Topic
			partitions := t.Partitions[:0]
			for _, rp := range t.Partitions {
				tp := engine.TopicPartition{Topic: t.Topic, Partition: rp.Partition}
				at := engine.Position{TopicPartition: tp, Offset: rp.Offset, Epoch: rp.LeaderEpoch}
				if which == live {
					now := d.engine.Positions(tp)
					if len(now) == 0 {
						continue
					}
					at = now[0]
				}
				rp.Offset, rp.LeaderEpoch = at.Offset, at.Epoch
				// The client would put its member id here (H-029).
				rp.Metadata = kmsg.StringPtr("")
				sent[tp] = at
				partitions = append(partitions, rp)
			}
			if t.Partitions = partitions; len(partitions) > 0 {
				topics = append(topics, t)
			}
		}
		req.Topics = topics
		if len(topics) == 0 {
			return errNothingLeft
		}
		return nil
	}
	failed := func(tp engine.TopicPartition, err error) {
		at, ok := sent[tp]
		if !ok {
			at = engine.Position{TopicPartition: tp, Offset: -1, Epoch: -1}
		}
		s.commitFailed(at, err)
		again = append(again, at)
	}
	s.client.CommitOffsetsSync(kgo.PreCommitFnContext(ctx, build), offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if errors.Is(err, errNothingLeft) {
				return
			}
			if err != nil {
				if len(sent) > 0 {
					d.committed.doubt()
				}
				for _, p := range todo {
					failed(p.TopicPartition, err)
				}
				return
			}
			now := time.Now()
			for _, t := range resp.Topics {
				for _, rp := range t.Partitions {
					topic := t.Topic
					if topic == "" {
						// The client puts the names to the ids only while the
						// group session lasts in which it asked.
						topic = ids[t.TopicID]
					}
					tp := engine.TopicPartition{Topic: topic, Partition: rp.Partition}
					if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
						failed(tp, err)
						continue
					}
					at, ok := sent[tp]
					if !ok {
						continue
					}
					d.committed.set(at, now)
					d.engine.Confirmed(at)
					d.counts.commits.Add(1)
					if f := d.cfg.Events.Committed; f != nil {
						f(at)
					}
				}
			}
		})
	return again
}

var errNothingLeft = errors.New("no partition of the commit is owned any more")

// commitFailed draws the consequences of one partition's failed commit.
func (s *session) commitFailed(at engine.Position, err error) {
	d := s.d
	d.counts.commitErrors.Add(1)
	if f := d.cfg.Events.CommitFailed; f != nil {
		f(at, err)
	}
	switch {
	case errors.Is(err, kerr.FencedInstanceID):
		d.engine.Fail(fmt.Errorf("fronta: group %q: another process has joined with the same kgo.InstanceID and replaced this one (FENCED_INSTANCE_ID): give each process an instance id of its own: %w", d.cfg.Group, err))
		return
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration), errors.Is(err, kerr.FencedMemberEpoch):
		// We are not a member any more, or not of this generation: others may
		// own the partitions. No handler may start from here on.
		s.lose(d.engine.Owned(), err)
		s.setVoid()
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	d.cfg.Log.Warn("commit failed; it will be tried again", "group", d.cfg.Group,
		"topic", at.Topic, "partition", at.Partition, "offset", at.Offset, "epoch", at.Epoch, "metadata_length", 0, "err", err)
}

// commitHook hears of commits that got no answer, also of those that the
// client then tries again by itself and that succeed.
type commitHook struct{ c *committed }

func (h commitHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.OffsetCommit) && e2e.Err() != nil {
		h.c.doubt()
	}
}
