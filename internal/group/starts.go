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
// A partition without one starts where Config.StartAt says. Two exceptions
// keep StartAt: Latest from skipping records:
//
//   - A partition that was added to its topic after we began to consume the
//     topic starts at its beginning, since what is in it came after we began
//     (H-058).
//   - The others are pinned to the end as it is now, and that offset is
//     committed like any other: otherwise a restart before the first record
//     would begin at a later end.
func (s *session) starts(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	d := s.d
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
			if at.Offset >= 0 {
				d.engine.SetStart(tp, at.Offset, at.Epoch)
				d.committed.set(tp, at.Offset, time.Now())
				continue
			}
			if !d.cfg.StartLatest {
				continue
			}
			if known && int(partition) >= first {
				partitions[partition] = kgo.NewOffset().AtStart()
				continue
			}
			end, err := d.end(ctx, tp)
			if err != nil {
				return nil, fmt.Errorf("find the end of topic %q partition %d, where Config.StartAt begins: %w", topic, partition, err)
			}
			partitions[partition] = kgo.NewOffset().At(end)
			d.engine.SetStart(tp, end, -1)
		}
	}
	return offsets, nil
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

// end is the offset after the last record of a partition.
func (d *Driver) end(ctx context.Context, tp engine.TopicPartition) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	if d.cfg.ReadCommitted {
		req.IsolationLevel = 1
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = tp.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition = tp.Partition
	p.Timestamp = -1
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
