package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionCounts remembers how many partitions each topic had when it was
// first seen.
type partitionCounts struct {
	mu sync.Mutex
	m  map[string]int
}

func (c *partitionCounts) init() { c.m = make(map[string]int) }

// starts is called by the client with the committed offsets of partitions that
// it is about to read.
//
// A partition without one starts where Config.StartAt says. Where that is a
// matter of when it is asked (the end, or a time), it is asked here and once:
// the offset is committed like any other, since otherwise a restart before the
// first record would begin at a later end and skip what came between. A
// partition that was added to its topic after we began to consume the topic
// starts at its beginning under StartAt: Latest, since what is in it came after
// we began (H-058).
//
// A committed offset below the log's start is what retention leaves of a
// consumer that was away for long. The client would apply Config.OutOfRange to
// it, and under ResetLatest skip all that is retained, so it is moved up to the
// log's start here (H-054).
//
// An error would end the membership of all partitions, those in work too. So
// questions are asked until they are answered or the client ends ctx, which it
// does when the group rebalances. Meanwhile the member's heartbeats go on.
func (s *session) starts(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-s.made
	first, err := s.topics(ctx, offsets)
	if err != nil {
		return nil, err
	}
	var begin, resume []*start
	lookup := make(map[engine.TopicPartition]int64)
	for topic, partitions := range offsets {
		for partition, offset := range partitions {
			at := offset.EpochOffset()
			st := &start{Start: engine.Start{TopicPartition: engine.TopicPartition{Topic: topic, Partition: partition}, Offset: at.Offset, Epoch: at.Epoch, End: -1}}
			if at.Offset >= 0 {
				s.decode(st)
				resume = append(resume, st)
				continue
			}
			st.Offset, st.Epoch = -1, -1
			begin = append(begin, st)
			switch n, known := first[topic]; {
			case known && int(partition) >= n:
				partitions[partition] = kgo.NewOffset().AtStart()
			case s.d.cfg.StartLatest:
				lookup[st.TopicPartition] = listEnd
			case !s.d.cfg.StartSince.IsZero():
				lookup[st.TopicPartition] = s.d.cfg.StartSince.UnixMilli()
			}
		}
	}
	if err := s.startAt(ctx, begin, lookup, offsets); err != nil {
		return nil, err
	}
	if err := s.moveUp(ctx, resume, offsets); err != nil {
		return nil, err
	}
	open, why := s.verify(ctx, resume)
	if err := ctx.Err(); err != nil {
		return nil, err // the client will ask again
	}
	s.postpone(slices.Clone(open), why)
	s.begin(append(begin, slices.DeleteFunc(resume, func(st *start) bool { return slices.Contains(open, st) })...))
	return offsets, nil
}

// startAt finds where partitions start of which nothing is committed.
func (s *session) startAt(ctx context.Context, begin []*start, lookup map[engine.TopicPartition]int64, offsets map[string]map[int32]kgo.Offset) error {
	if len(lookup) == 0 {
		return nil
	}
	const why = "find the offset where Config.StartAt begins"
	at, err := s.list(ctx, lookup, why)
	if err != nil {
		return err
	}
	// No record is as late as StartSince.
	none := make(map[engine.TopicPartition]int64)
	for tp, o := range at {
		if o < 0 {
			none[tp] = listEnd
		}
	}
	if len(none) > 0 {
		ends, err := s.list(ctx, none, why)
		if err != nil {
			return err
		}
		maps.Copy(at, ends)
	}
	for _, st := range begin {
		if o, ok := at[st.TopicPartition]; ok {
			st.Offset = o
			offsets[st.Topic][st.Partition] = kgo.NewOffset().At(o)
		}
	}
	return nil
}

// moveUp moves committed offsets that lie below their log's start, under
// ResetLatest.
func (s *session) moveUp(ctx context.Context, resume []*start, offsets map[string]map[int32]kgo.Offset) error {
	if !s.d.cfg.ResetLatest || len(resume) == 0 {
		return nil
	}
	lookup := make(map[engine.TopicPartition]int64, len(resume))
	for _, st := range resume {
		lookup[st.TopicPartition] = listStart
	}
	begins, err := s.list(ctx, lookup, "find the log's start, which the committed offset must not be below")
	if err != nil {
		return err
	}
	for _, st := range resume {
		begin := begins[st.TopicPartition]
		if st.Offset >= begin {
			continue
		}
		s.d.cfg.Log.Warn("the log was deleted past the committed offset; reading goes on where it starts",
			"group", s.d.cfg.Group, "topic", st.Topic, "partition", st.Partition, "committed", st.Offset, "offset", begin)
		offsets[st.Topic][st.Partition] = kgo.NewOffset().At(begin)
		st.Offset, st.Epoch = begin, -1
		st.keepFence() // what is told is told of another offset
	}
	return nil
}

// topics finds out what has to be known of topics whose partitions are about to
// be read: their ids, and under StartAt: Latest how many partitions they had
// when this driver first consumed them, of those that it did not see for the
// first time now.
func (s *session) topics(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (first map[string]int, err error) {
	d := s.d
	var ask []string
	for topic, partitions := range offsets {
		unknown := d.cfg.StartLatest
		for partition := range partitions {
			unknown = unknown || !s.ids.has(engine.TopicPartition{Topic: topic, Partition: partition})
		}
		if unknown {
			ask = append(ask, topic)
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	var md *kmsg.MetadataResponse
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if md, err = d.metadata(ctx, ask); err == nil {
			break
		}
		if !passing(err) {
			return nil, fmt.Errorf("learn about topics %q: %w", ask, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	first = make(map[string]int)
	for _, t := range md.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		for partition := range offsets[*t.Topic] {
			if tp := (engine.TopicPartition{Topic: *t.Topic, Partition: partition}); !s.ids.has(tp) {
				s.ids.set(tp, t.TopicID)
			}
		}
		if !d.cfg.StartLatest {
			continue
		}
		if n, ok := d.seen.m[*t.Topic]; ok {
			first[*t.Topic] = n
		} else {
			d.seen.m[*t.Topic] = len(t.Partitions)
		}
	}
	return first, nil
}

func (d *Driver) metadata(ctx context.Context, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	return req.RequestWith(ctx, d.client.Load())
}

// check finds out, before anything is joined, whether a broker answers and
// whether what the configuration names is there.
func (d *Driver) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	var topics []string
	if !d.cfg.Regex {
		topics = append(topics, d.cfg.Topics...)
	}
	if d.cfg.DeadLetterTopic != "" {
		topics = append(topics, d.cfg.DeadLetterTopic)
	}
	var md *kmsg.MetadataResponse
	var last error
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		attempt, done := context.WithTimeout(ctx, max(d.cfg.StartTimeout/3, time.Second))
		var err error
		md, err = d.metadata(attempt, topics)
		done()
		if err == nil {
			break
		}
		if errors.Is(err, kerr.SaslAuthenticationFailed) || errors.Is(err, kerr.UnsupportedSaslMechanism) || errors.Is(err, kerr.IllegalSaslState) {
			return fmt.Errorf("fronta: connect to Kafka: authentication failed; check the kgo.SASL option in Config.Client: %w", err)
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		if ctx.Err() != nil {
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("fronta: connect to Kafka: no broker of kgo.SeedBrokers answered within Config.StartTimeout (%s): %w", d.cfg.StartTimeout, last)
		}
	}
	for _, t := range md.Topics {
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		if *t.Topic == d.cfg.DeadLetterTopic {
			switch {
			case errors.Is(err, kerr.UnknownTopicOrPartition):
				return fmt.Errorf("fronta: Config.DeadLetter: topic %q does not exist; create it (dead letters keep their key, so the partitions of the source are a good number): %w", *t.Topic, err)
			case errors.Is(err, kerr.TopicAuthorizationFailed):
				return fmt.Errorf("fronta: Config.DeadLetter: the broker denies access to topic %q: grant WRITE and DESCRIBE on Topic %q: %w", *t.Topic, *t.Topic, err)
			case errors.Is(err, kerr.InvalidTopicException):
				return fmt.Errorf("fronta: Config.DeadLetter: %q is no topic name: %w", *t.Topic, err)
			}
			continue
		}
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return fmt.Errorf("fronta: Config.Topics: the broker denies access to topic %q: grant READ and DESCRIBE on Topic %q: %w", *t.Topic, *t.Topic, err)
		case errors.Is(err, kerr.InvalidTopicException):
			return fmt.Errorf("fronta: Config.Topics: %q is no topic name: %w", *t.Topic, err)
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			d.cfg.Log.Warn("topic does not exist yet; it is consumed as soon as it does", "topic", *t.Topic)
		default:
			d.seen.mu.Lock()
			d.seen.m[*t.Topic] = len(t.Partitions)
			d.seen.mu.Unlock()
		}
	}
	return nil
}
