package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/progress"
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
	units   int // of the text
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

func (c *committed) set(at engine.Position, units int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.m[at.TopicPartition] = stored{at.Offset, at.Version, units, now}
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

// commits commits until ctx ends: on a timer whatever has changed, and at once
// when the engine asks for it.
//
// When commits fail, the timer's come at growing distances, up to slowest or the
// interval (H-005). What the engine asks for is worth a quick second
// try, also then: a rebalance is over in a moment. Its tries have a growing
// distance of their own, so that whoever asks during an outage asks for nothing
// more.
func (s *session) commits(ctx context.Context) {
	d := s.d
	longest := max(slowest, d.cfg.CommitInterval)
	wait, soon := d.cfg.CommitInterval, hurryFirst
	tick := time.NewTimer(wait)
	defer tick.Stop()
	hurry := time.NewTimer(0)
	hurry.Stop()
	defer hurry.Stop()
	hold := false // hurry runs, and is what is waited for
	for {
		urgent := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-d.engine.Urgent():
			if hold {
				continue
			}
			urgent = true
		case <-hurry.C:
			urgent, hold = true, false
		}
		failed, all := s.commitDue(ctx)
		if !urgent {
			d.engine.Housekeep()
		}
		if !failed {
			hurry.Stop()
			hold, soon = false, hurryFirst
		} else if urgent {
			hold = true
			hurry.Reset(soon)
			soon = min(2*soon, longest)
		}
		switch {
		case !all && (!urgent || wait != d.cfg.CommitInterval):
			wait = d.cfg.CommitInterval
			tick.Reset(wait)
		case all && !urgent:
			wait = min(2*wait, longest)
			tick.Reset(wait)
		}
	}
}

// hurryFirst is after what time a commit that the engine has asked for, and
// that failed, is tried again.
const hurryFirst = 20 * time.Millisecond

// slowest is how far apart the tries of what keeps failing become.
const slowest = 10 * time.Second

// commitDue commits what is due and says whether any of it failed, and whether
// all of it did because of the group: then nobody else's will do better. What is
// refused to one partition does not keep the others from being committed.
func (s *session) commitDue(ctx context.Context) (failed, all bool) {
	now := time.Now()
	todo := slices.DeleteFunc(s.due(), func(p *parcel) bool {
		r, ok := s.refusals[p.TopicPartition]
		return ok && now.Before(r.until)
	})
	if len(todo) == 0 {
		return false, false
	}
	// Not ctx: a commit that was begun is waited for, so that its outcome is
	// known when the last one is made.
	once, cancel := context.WithTimeout(context.Background(), s.d.cfg.CommitTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(s.d.cfg.CommitTimeout/4, cancel) })()
	again := s.commitOnce(once, todo)
	for _, p := range todo {
		if p.err == nil {
			delete(s.refusals, p.TopicPartition)
		}
	}
	now = time.Now()
	for _, p := range again {
		if !aboutPartition(p.err) {
			all = true
			continue
		}
		if s.refusals == nil {
			s.refusals = make(map[engine.TopicPartition]refusal)
		}
		wait := max(hurryFirst, min(2*s.refusals[p.TopicPartition].wait, slowest))
		s.refusals[p.TopicPartition] = refusal{now.Add(wait), wait}
	}
	return len(again) > 0, all
}

// aboutPartition says whether a commit's error lies with the one partition.
func aboutPartition(err error) bool {
	for _, e := range []error{
		kerr.TopicAuthorizationFailed, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID,
		kerr.OffsetMetadataTooLarge, kerr.InvalidCommitOffsetSize,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// refusal is what a partition's commit came to, and until when it is not worth
// another try.
type refusal struct {
	until time.Time
	wait  time.Duration
}

// due are the partitions whose positions are worth a commit now.
func (s *session) due() []*parcel {
	now := time.Now()
	var todo []*parcel
	for _, p := range s.d.engine.Positions() {
		if s.d.due(p, now) {
			todo = append(todo, &parcel{Snapshot: engine.Snapshot{Position: p}, carries: whatIs})
		}
	}
	return todo
}

// commitLast commits what is due of all partitions before the group is left,
// trying again while ctx allows.
func (s *session) commitLast(ctx context.Context) { s.commitAll(ctx, s.due()) }

// commitFinal commits the last snapshots of partitions that leave.
func (s *session) commitFinal(ctx context.Context, final []engine.Snapshot) {
	todo := make([]*parcel, len(final))
	for i := range final {
		todo[i] = &parcel{Snapshot: final[i], carries: itself}
	}
	s.commitAll(ctx, todo)
}

// parcel is one partition's part of a commit, and what became of it.
type parcel struct {
	engine.Snapshot
	carries carries

	text string
	fit  progress.Fit
	sent bool
	gone bool // the partition is not ours any more, and it was not sent
	err  error

	stored bool // once at least
}

// carries says what a parcel has in it when the request is built for the wire.
// At that point the client holds the group's generation, so asking the engine
// and committing are one step (H-033).
type carries uint8

const (
	// whatIs: whatever the engine says then, offset and progress of one state
	// (H-142). A partition that has gone meanwhile is left out, one that has
	// moved on is sent as it is (H-003).
	whatIs carries = iota
	// sameAsBefore: the snapshot, if the partition is still ours.
	sameAsBefore
	// itself: the snapshot, of a partition that the engine has closed while it
	// was ours: nobody else can move it before the rebalance callback in which
	// this happens has returned.
	itself
)

// take makes sure that p may be sent, and has in it what it is to carry.
func (p *parcel) take(e *engine.Engine) bool {
	switch p.carries {
	case whatIs:
		s, ok := e.Snapshot(p.TopicPartition)
		if ok {
			p.Snapshot = s
		}
		p.gone = !ok
	case sameAsBefore:
		now := e.Positions(p.TopicPartition)
		p.gone = len(now) == 0 || now[0].Fence != p.Fence
	case itself:
	}
	return !p.gone
}

// commitAll commits parcels, trying again until all are confirmed, ctx ends or
// the membership is void.
func (s *session) commitAll(ctx context.Context, todo []*parcel) {
	for wait := 50 * time.Millisecond; len(todo) > 0; wait = min(2*wait, time.Second) {
		todo = s.commitOnce(ctx, todo)
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

// commitOnce commits parcels once and answers with those worth another try.
func (s *session) commitOnce(ctx context.Context, todo []*parcel) (again []*parcel) {
	limit, _ := s.d.room.get()
	s.send(ctx, todo, limit)
	var large []*parcel
	for _, p := range todo {
		switch {
		case p.err == nil:
		case tooLarge(p.err):
			large = append(large, p)
		default:
			again = append(again, p)
		}
	}
	if len(large) > 0 {
		again = append(again, s.shorten(ctx, limit, large)...)
	}
	for _, p := range again {
		s.commitFailed(p)
		if p.carries == sameAsBefore {
			p.carries = whatIs
		}
	}
	return again
}

// shorten commits parcels that the brokers have refused for the length of their
// texts, with shorter ones, and finds out how long a text may be. It answers
// with those that were not stored all the same.
func (s *session) shorten(ctx context.Context, limit progress.Limit, large []*parcel) (again []*parcel) {
	d := s.d
	told := askLimit(ctx, s.client, d.cfg.Group)
	_, taken := d.room.get()
	for _, p := range large {
		if p.carries == whatIs {
			// The same state in all trials, so that they can be compared.
			p.carries = sameAsBefore
		}
	}
	look := newSearch(limit, taken, told, d.texts.wide(), trialsOf(large))
	todo, more := large, true
	for more && len(todo) > 0 {
		s.send(ctx, todo, look.try)
		more = look.next(trialsOf(todo))
		var rest []*parcel
		for _, p := range todo {
			switch {
			case p.gone, p.err == nil && !p.fit.Short:
			case p.err == nil, tooLarge(p.err):
				rest = append(rest, p)
			case !p.stored:
				again = append(again, p)
			}
		}
		todo = rest
	}
	for _, p := range todo {
		if !p.stored {
			again = append(again, p)
		}
	}
	if !more && !look.hopeless {
		d.learned(look.try, told)
	}
	return again
}

// trialsOf is what there is to learn from parcels that were sent.
func trialsOf(parcels []*parcel) (results []trial) {
	for _, p := range parcels {
		refused := p.err != nil && tooLarge(p.err)
		if p.sent && (refused || p.err == nil && (p.fit.Units > 0 || p.fit.Short)) {
			results = append(results, trial{p.fit.Units, p.fit.Wide, refused})
		}
	}
	return results
}

// learned goes by a limit that was found out.
func (d *Driver) learned(limit progress.Limit, told int) {
	before, _ := d.room.get()
	d.room.set(limit)
	capacity := capacityOf(limit, d.texts.format)
	d.engine.SetCapacity(capacity)
	if limit == before {
		return
	}
	consequence := "records of a partition wait while the progress of those before them could come to more"
	if capacity == 0 {
		consequence = "there is no room for progress: what is finished behind an unfinished record will be handled again after a restart"
	}
	d.cfg.Log.Warn("the brokers take less commit metadata than Config.MetadataLimit", "group", d.cfg.Group,
		"configured", d.most, "limit", limit.Units, "ascii_only", limit.ASCII, "offset.metadata.max.bytes", told, "consequence", consequence)
}

// send commits parcels, in as few requests as their size allows.
func (s *session) send(ctx context.Context, parcels []*parcel, limit progress.Limit) {
	for _, p := range parcels {
		p.sent, p.gone, p.err = false, false, nil
	}
	for len(parcels) > 0 {
		parcels = s.sendSome(ctx, parcels, limit)
	}
}

const (
	// firstBatch is how many bytes a commit may have at first. Brokers store it
	// as one batch of records, for which they have a limit (message.max.bytes,
	// 1 MiB if nobody has set it).
	firstBatch = 512 << 10

	// parcelOverhead is what a parcel takes besides names and text.
	parcelOverhead = 128
)

// sendSome sends one request and answers with what is left for the next one.
func (s *session) sendSome(ctx context.Context, parcels []*parcel, limit progress.Limit) (rest []*parcel) {
	d := s.d
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	byPartition := make(map[engine.TopicPartition]*parcel, len(parcels))
	for _, p := range parcels {
		t := offsets[p.Topic]
		if t == nil {
			t = make(map[int32]kgo.EpochOffset)
			offsets[p.Topic] = t
		}
		t[p.Partition] = kgo.EpochOffset{Epoch: p.Epoch, Offset: p.Offset}
		byPartition[p.TopicPartition] = p
	}
	most, size, count := d.batch.Load(), int64(0), 0
	var told []engine.Position
	ids := make(map[[16]byte]string, 1)
	build := func(req *kmsg.OffsetCommitRequest) error {
		topics := req.Topics[:0]
		for _, t := range req.Topics {
			ids[t.TopicID] = t.Topic
			partitions := t.Partitions[:0]
			for _, rp := range t.Partitions {
				p := byPartition[engine.TopicPartition{Topic: t.Topic, Partition: rp.Partition}]
				if size >= most {
					p.sent = false
					rest = append(rest, p)
					continue
				}
				if !p.take(d.engine) {
					continue
				}
				p.text, p.fit = d.texts.of(&p.Snapshot, s.ids.binding(p.TopicPartition), limit)
				// Without a text the client would put its member id here (H-029).
				rp.Offset, rp.LeaderEpoch, rp.Metadata = p.Offset, p.Epoch, &p.text
				p.sent = true
				size += int64(len(p.text) + len(t.Topic) + parcelOverhead)
				count++
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
	s.client.CommitOffsetsSync(kgo.PreCommitFnContext(ctx, build), offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if errors.Is(err, errNothingLeft) {
				return
			}
			if err != nil {
				if count > 0 {
					d.committed.doubt()
				}
				rest = nil
				for _, p := range parcels {
					if !p.gone {
						p.err = err
					}
				}
				return
			}
			now := time.Now()
			for _, p := range parcels {
				if p.sent {
					p.err = errNotNamed // until the answer is seen to do so
				}
			}
			for _, t := range resp.Topics {
				for _, rp := range t.Partitions {
					topic := t.Topic
					if topic == "" {
						// The client puts the names to the ids only while the
						// group session lasts in which it asked.
						topic = ids[t.TopicID]
					}
					p := byPartition[engine.TopicPartition{Topic: topic, Partition: rp.Partition}]
					if p == nil {
						continue
					}
					switch p.err = kerr.ErrorForCode(rp.ErrorCode); {
					case p.err == nil:
						if p.sent {
							d.confirmed(p, now)
							told = append(told, p.Position)
						}
					case errors.Is(p.err, kerr.OffsetMetadataTooLarge):
						d.counts.oversize.Add(1)
					case errors.Is(p.err, kerr.InvalidCommitOffsetSize) && count > 1:
						// All of it together is too large, not the one text.
						if d.batch.CompareAndSwap(most, min(most, size/2)) {
							d.cfg.Log.Info("the brokers refuse commits of this size; they are split", "group", d.cfg.Group, "partitions", count, "bytes", size)
						}
						p.err = nil
						rest = append(rest, p)
					}
				}
			}
		})
	// Not in the client's callback: another commit would wait for a hook that
	// waits for the consumer to stop, and with it for that commit.
	if f := d.cfg.Events.Committed; f != nil {
		for _, at := range told {
			f(at)
		}
	}
	return rest
}

var errNothingLeft = errors.New("no partition of the commit is owned any more")

// confirmed notes that the brokers have stored what p carried.
func (d *Driver) confirmed(p *parcel, now time.Time) {
	p.stored = true
	d.room.took(p.fit.Units)
	d.committed.set(p.Position, p.fit.Units, now)
	d.engine.Confirmed(p.Position)
	d.counts.commits.Add(1)
	if p.fit.Short {
		d.counts.shortened.Add(1)
		d.counts.leftOut.Add(p.fit.LeftOutHeads)
	}
}

// commitFailed draws the consequences of one partition's failed commit.
func (s *session) commitFailed(p *parcel) {
	d, at, err := s.d, p.Position, p.err
	if !p.sent {
		at = engine.Position{TopicPartition: p.TopicPartition, Offset: -1, Epoch: -1}
	}
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
	if errors.Is(err, context.Canceled) || !s.worthALine("commit", p.TopicPartition, err) {
		return
	}
	d.cfg.Log.Warn("commit failed; it will be tried again", "group", d.cfg.Group,
		"topic", at.Topic, "partition", at.Partition, "offset", at.Offset, "epoch", at.Epoch, "metadata_length", p.fit.Units, "err", err)
}

// commitHook hears of commits that got no answer, also of those that the
// client then tries again by itself and that succeed.
type commitHook struct{ c *committed }

func (h commitHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.OffsetCommit) && e2e.Err() != nil {
		h.c.doubt()
	}
}
