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
func (s *session) starts(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-s.made
	d := s.d
	var starts []engine.Start
	for topic, partitions := range offsets {
		var first int
		var known bool
		if d.cfg.StartLatest {
			var err error
			if first, known, err = d.firstPartitions(ctx, topic); err != nil {
				return nil, fmt.Errorf("learn the partitions of topic %q, of which new ones start at their beginning: %w", topic, err)
			}
		}
		for partition, offset := range partitions {
			tp := engine.TopicPartition{Topic: topic, Partition: partition}
			at := offset.EpochOffset()
			start := engine.Start{TopicPartition: tp, Offset: at.Offset, Epoch: at.Epoch, End: -1}
			if at.Offset >= 0 {
				if d.cfg.ResetLatest {
					begin, err := d.list(ctx, tp, listStart)
					if err != nil {
						return nil, fmt.Errorf("find the start of topic %q partition %d, where the committed offset must not be below: %w", topic, partition, err)
					}
					if at.Offset < begin {
						d.cfg.Log.Warn("the log was deleted past the committed offset; reading goes on where it starts",
							"group", d.cfg.Group, "topic", topic, "partition", partition, "committed", at.Offset, "offset", begin)
						partitions[partition] = kgo.NewOffset().At(begin)
						start.Offset, start.Epoch = begin, -1
					}
				}
				starts = append(starts, start)
				continue
			}
			start.Offset, start.Epoch = -1, -1
			if !d.cfg.StartLatest && d.cfg.StartSince.IsZero() {
				starts = append(starts, start)
				continue
			}
			if known && int(partition) >= first {
				partitions[partition] = kgo.NewOffset().AtStart()
				starts = append(starts, start)
				continue
			}
			begin := int64(-1)
			var err error
			if !d.cfg.StartLatest {
				begin, err = d.list(ctx, tp, d.cfg.StartSince.UnixMilli())
			}
			if begin < 0 && err == nil {
				begin, err = d.list(ctx, tp, listEnd)
			}
			if err != nil {
				return nil, fmt.Errorf("find the offset of topic %q partition %d where Config.StartAt begins: %w", topic, partition, err)
			}
			partitions[partition] = kgo.NewOffset().At(begin)
			start.Offset = begin
			starts = append(starts, start)
		}
	}
	s.begin(starts)
	return offsets, nil
}

// begin opens partitions whose offsets are known, before the client reads them.
func (s *session) begin(starts []engine.Start) {
	if len(starts) == 0 {
		return
	}
	d := s.d
	fence, _ := d.engine.Begin(starts)
	tps := make([]engine.TopicPartition, len(starts))
	for i := range starts {
		tps[i] = starts[i].TopicPartition
	}
	if f := d.cfg.Events.Assigned; f != nil {
		f(tps, fence)
	}
}

// firstPartitions is how many partitions the topic had when this driver first
// consumed it, and whether that was before now.
func (d *Driver) firstPartitions(ctx context.Context, topic string) (first int, before bool, err error) {
	md, err := d.metadata(ctx, []string{topic})
	if err != nil {
		return 0, false, err
	}
	n := 0
	for _, t := range md.Topics {
		if t.Topic != nil && *t.Topic == topic {
			n = len(t.Partitions)
		}
	}
	d.seen.mu.Lock()
	defer d.seen.mu.Unlock()
	first, before = d.seen.m[topic]
	if !before {
		d.seen.m[topic] = n
		return n, false, nil
	}
	return first, true, nil
}

// What ListOffsets takes in place of a time.
const (
	listEnd   = -1
	listStart = -2
)

// list is the offset of the first record of a partition at or after a time in
// milliseconds, −1 if there is none; or the log's start or end.
func (d *Driver) list(ctx context.Context, tp engine.TopicPartition, at int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	if d.cfg.ReadCommitted {
		req.IsolationLevel = 1
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = tp.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition = tp.Partition
	p.Timestamp = at
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, d.client.Load())
	if err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			return p.Offset, kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return 0, errors.New("the broker's answer does not name the partition")
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
