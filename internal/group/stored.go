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

// What the commit before this ownership says is found finished is skipped, so
// it has to be true of the log that is read. Three things are looked at:
//
//   - The text is about this offset of this partition of this very topic. It
//     says so itself (package progress).
//   - The log reaches as far as the text does (H-142).
//   - The log was not cut off and written anew in between: the leader epoch of
//     the last record that the text knows is still in the log, and does not end
//     below the text's horizon.
//
// Whatever is wrong is told once, and then nothing counts as finished: a record
// may run twice, but none is lost. A text that can't be looked at yet, because a
// broker does not answer, is neither believed nor dropped: its partition is not
// read until it can be, which holds up no other.

// start is where the reading of a partition begins, on the way to be known.
type start struct {
	engine.Start
	units   int  // of the text that Stored comes from
	sameLog bool // the log was not cut off below Stored's horizon
}

// fetched is called by the client with what the group has committed, just
// before starts, from the same goroutine. Only here are the texts: the client
// does not pass them on (H-028).
func (s *session) fetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	texts := make(map[string]map[int32]string)
	for _, g := range resp.Groups {
		for _, t := range g.Topics {
			name := t.Topic
			if name == "" {
				name = string(t.TopicID[:])
			}
			for _, p := range t.Partitions {
				s.ids.set(engine.TopicPartition{Topic: t.Topic, Partition: p.Partition}, t.TopicID)
				if p.Offset < 0 || p.Metadata == nil || *p.Metadata == "" { // H-032
					continue
				}
				if texts[name] == nil {
					texts[name] = make(map[int32]string)
				}
				texts[name][p.Partition] = *p.Metadata
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = texts
	return nil
}

// decode takes from the stored text what it says, as far as the text itself goes.
func (s *session) decode(st *start) {
	b := s.ids.binding(st.TopicPartition)
	s.mu.Lock()
	text, ok := s.texts[st.Topic][st.Partition]
	if !ok {
		text = s.texts[string(b.TopicID[:])][st.Partition]
	}
	s.mu.Unlock()
	if text == "" {
		return
	}
	st.units = unitsOf(text)
	p, _, err := progress.Decode(text, st.Offset, b)
	if err != nil {
		s.refuse(st, err)
		return
	}
	if !p.Clean && p.Fence != 0 && p.Fence == s.d.fences.get(st.TopicPartition) {
		// The owner before this one was this very process. It has lost the
		// partition, but it has not ended, so that was no crash.
		p.Suspect = -1
		if p.Starts--; p.Starts < 0 {
			p.Starts, p.Clean = 0, true
		}
	}
	st.Stored = &p
}

// fences are those that the driver has given to its ownerships last.
type fences struct {
	mu sync.Mutex
	m  map[engine.TopicPartition]int64
}

func (f *fences) get(tp engine.TopicPartition) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m[tp]
}

func (f *fences) set(starts []*start, fence int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.m == nil {
		f.m = make(map[engine.TopicPartition]int64)
	}
	for _, st := range starts {
		f.m[st.TopicPartition] = fence
	}
}

// refuse tells that a stored text is not to be believed. What it says of fences
// is kept if it could be read: they must rise whatever else is wrong.
func (s *session) refuse(st *start, reason error) {
	s.d.counts.refused.Add(1)
	s.d.cfg.Log.Warn("stored progress is not used: what was finished beyond the committed offset is handled again", "group", s.d.cfg.Group,
		"topic", st.Topic, "partition", st.Partition, "offset", st.Offset, "metadata_length", st.units, "reason", reason)
	st.keepFence()
}

// keepFence forgets all that is stored but the fence.
func (st *start) keepFence() {
	if st.Stored != nil {
		st.Stored = &progress.Progress{Offset: st.Offset, Fence: st.Stored.Fence, Clean: true, Epoch: -1, Suspect: -1}
	}
}

// told is how many offsets the stored progress tells of.
func (st *start) told() int64 {
	if st.Stored == nil {
		return 0
	}
	return st.Stored.Horizon() - st.Stored.Offset
}

// verify compares what is stored with the logs. It answers with the starts for
// which that could not be done, and why.
func (s *session) verify(ctx context.Context, starts []*start) (open []*start, why map[engine.TopicPartition]error) {
	ends, epochs := make(map[engine.TopicPartition]int64), make(map[engine.TopicPartition]int32)
	for _, st := range starts {
		p := st.Stored
		if p == nil || st.told() == 0 && (p.Clean || p.Fence == 0 || p.Reach <= p.Offset) {
			continue
		}
		if st.End < 0 {
			ends[st.TopicPartition] = listEnd
		}
		if st.told() > 0 && p.Epoch >= 0 && !st.sameLog {
			epochs[st.TopicPartition] = p.Epoch
		}
	}
	if len(ends)+len(epochs) == 0 {
		return nil, nil
	}
	// Whichever isolation is read by: an open transaction does not make a log
	// shorter.
	var at map[engine.TopicPartition]int64
	var atFailed map[engine.TopicPartition]error
	var epochAt map[engine.TopicPartition]epochEnd
	var epochFailed map[engine.TopicPartition]error
	var both sync.WaitGroup
	if len(ends) > 0 {
		both.Go(func() { at, atFailed = listOffsets(ctx, s.client, ends, readUncommitted) })
	}
	if len(epochs) > 0 {
		both.Go(func() { epochAt, epochFailed = epochEnds(ctx, s.client, epochs) })
	}
	both.Wait()
	tells := sync.OnceValue(func() bool { return tellsEpochs(ctx, s.client) })
	why = make(map[engine.TopicPartition]error)
	for _, st := range starts {
		tp := st.TopicPartition
		if end, ok := at[tp]; ok {
			st.End = end
		}
		if st.told() == 0 {
			continue // the end is good to know, and no more
		}
		err := atFailed[tp]
		epochErr := epochFailed[tp]
		if epochErr != nil && noEpochs(epochErr, tells) {
			epochErr, st.sameLog = nil, true
		}
		if err == nil {
			err = epochErr
		}
		horizon := st.Stored.Horizon()
		e, asked := epochAt[tp]
		switch {
		case st.End >= 0 && horizon > st.End:
			s.refuse(st, fmt.Errorf("it reaches up to offset %d, but the log ends at %d", horizon, st.End))
		case asked && (e.epoch < st.Stored.Epoch || e.offset < horizon):
			s.refuse(st, fmt.Errorf("it reaches up to offset %d in leader epoch %d, but in the log epoch %d ends at offset %d: the log was cut off", horizon, st.Stored.Epoch, e.epoch, e.offset))
		case err == nil:
			st.sameLog = true
		case passing(err):
			st.sameLog = st.sameLog || asked
			open = append(open, st)
			why[tp] = err
		default:
			s.refuse(st, fmt.Errorf("it could not be compared with the log: %w", err))
		}
	}
	return open, why
}

// noEpochs says whether brokers that have answered with err will never say where
// an epoch ends, at least not to us: before Kafka 2.3 that was for brokers only.
// Then the log's end is all that there is to go by.
func noEpochs(err error, tells func() bool) bool {
	var k *kerr.Error
	if errors.As(err, &k) {
		return k == kerr.UnsupportedVersion || k == kerr.ClusterAuthorizationFailed
	}
	return !tells()
}

// late are partitions whose progress could not be verified yet. They are
// assigned and the client has their offsets, but it is kept from reading them.
type late struct {
	// telling is held while partitions are begun and the user is told. Whoever
	// takes partitions away waits for it, so that nobody hears of the end first.
	telling sync.Mutex

	mu sync.Mutex
	of map[engine.TopicPartition]*postponed
}

// postponed are partitions that were postponed together.
type postponed struct {
	ctx    context.Context // ends when none of them is late any more
	cancel context.CancelFunc
	left   int
}

// drop forgets partitions that are ours no longer, or anew.
func (l *late) drop(tps []engine.TopicPartition) {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, tp := range tps {
		l.forgetLocked(tp)
	}
}

// end forgets all. It does not wait for what the user is told just now.
func (l *late) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tp := range l.of {
		l.forgetLocked(tp)
	}
}

func (l *late) forgetLocked(tp engine.TopicPartition) {
	if p := l.of[tp]; p != nil {
		delete(l.of, tp)
		if p.left--; p.left == 0 {
			p.cancel()
		}
	}
}

// without are those of tps that may be read.
func (l *late) without(tps []engine.TopicPartition) []engine.TopicPartition {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.of) == 0 {
		return tps
	}
	return slices.DeleteFunc(slices.Clone(tps), func(tp engine.TopicPartition) bool { return l.of[tp] != nil })
}

// postpone begins partitions when their progress could be verified.
func (s *session) postpone(starts []*start, why map[engine.TopicPartition]error) {
	if len(starts) == 0 {
		return
	}
	l, p := &s.late, &postponed{left: len(starts)}
	p.ctx, p.cancel = context.WithCancel(s.life)
	tps := make([]engine.TopicPartition, len(starts))
	l.mu.Lock()
	for i, st := range starts {
		tps[i] = st.TopicPartition
		l.forgetLocked(tps[i])
		if l.of == nil {
			l.of = make(map[engine.TopicPartition]*postponed)
		}
		l.of[tps[i]] = p
	}
	s.client.PauseFetchPartitions(byTopic(tps))
	l.mu.Unlock()
	// Run waits for it as it does for the client.
	s.d.closing.Go(func() {
		defer p.cancel()
		for wait := 100 * time.Millisecond; len(starts) > 0; wait = min(2*wait, 5*time.Second) {
			for _, st := range starts {
				if err := why[st.TopicPartition]; s.worthALine("verify", st.TopicPartition, err) {
					s.d.cfg.Log.Warn("stored progress can't be compared with the log yet; the partition is read as soon as it can", "group", s.d.cfg.Group,
						"topic", st.Topic, "partition", st.Partition, "offset", st.Offset, "err", err)
				}
			}
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(wait):
			}
			var open []*start
			open, why = s.verify(p.ctx, starts)
			if p.ctx.Err() != nil {
				return
			}
			s.beginLate(p, slices.DeleteFunc(starts, func(st *start) bool { return slices.Contains(open, st) }))
			starts = open
		}
	})
}

// beginLate begins those of starts that are still late since p.
func (s *session) beginLate(p *postponed, starts []*start) {
	l := &s.late
	l.telling.Lock()
	defer l.telling.Unlock()
	l.mu.Lock()
	starts = slices.DeleteFunc(starts, func(st *start) bool { return l.of[st.TopicPartition] != p })
	if len(starts) == 0 {
		l.mu.Unlock()
		return
	}
	tps := make([]engine.TopicPartition, len(starts))
	for i, st := range starts {
		tps[i] = st.TopicPartition
		l.forgetLocked(tps[i])
	}
	// Under the lock: whoever forgets partitions may do with them what it likes
	// from then on, as to open them under another ownership.
	fence := s.open(starts)
	l.mu.Unlock()
	s.tell(starts, fence)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.client.ResumeFetchPartitions(byTopic(slices.DeleteFunc(tps, func(tp engine.TopicPartition) bool { return l.of[tp] != nil })))
}

// begin opens partitions whose starts are known, before the client reads them.
func (s *session) begin(starts []*start) {
	if len(starts) > 0 {
		s.tell(starts, s.open(starts))
	}
}

func (s *session) open(starts []*start) (fence int64) {
	begin := make([]engine.Start, len(starts))
	for i, st := range starts {
		begin[i] = st.Start
	}
	fence, refused := s.d.engine.Begin(begin)
	s.d.fences.set(starts, fence)
	var told, of int64
	for _, st := range starts {
		if err := refused[st.TopicPartition]; err != nil {
			s.refuse(st, err)
		}
		if n := st.told(); n > 0 {
			told += n
			of++
		}
	}
	if told > 0 {
		s.d.cfg.Log.Info("progress is taken over", "group", s.d.cfg.Group, "partitions", of, "offsets", told)
	}
	return fence
}

// tell tells the user of partitions that were opened.
func (s *session) tell(starts []*start, fence int64) {
	f := s.d.cfg.Events.Assigned
	if f == nil {
		return
	}
	tps := make([]engine.TopicPartition, len(starts))
	for i, st := range starts {
		tps[i] = st.TopicPartition
	}
	sortNames(tps)
	f(tps, fence)
}
