package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Questions about the logs of partitions. Each goes out as one request for each
// broker that leads some of the partitions, and a broker that does not answer
// leaves only its own partitions without an answer.

// What listOffsets takes in place of a time.
const (
	listEnd   = -1
	listStart = -2
)

// Isolation levels of requests.
const (
	readUncommitted int8 = 0
	readCommitted   int8 = 1
)

// isolation is that of what the consumer reads.
func (d *Driver) isolation() int8 {
	if d.cfg.ReadCommitted {
		return readCommitted
	}
	return readUncommitted
}

var errNotNamed = errors.New("the broker's answer does not name the partition")

// listOffsets asks for the offset of the first record of each partition at or
// after a time in milliseconds, −1 if there is none; or for the log's start or
// end. Partitions are in one of the answers or the other.
func listOffsets(ctx context.Context, client *kgo.Client, at map[engine.TopicPartition]int64, isolation int8) (offsets map[engine.TopicPartition]int64, failed map[engine.TopicPartition]error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	topics := make(map[string]int)
	for tp, when := range at {
		i, ok := topics[tp.Topic]
		if !ok {
			i = len(req.Topics)
			topics[tp.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = tp.Partition, when
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	offsets, failed = make(map[engine.TopicPartition]int64), make(map[engine.TopicPartition]error)
	for tp := range at {
		failed[tp] = errNotNamed
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.ListOffsetsRequest).Topics {
				for _, p := range t.Partitions {
					failed[engine.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = shard.Err
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				tp := engine.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					failed[tp] = err
					continue
				}
				offsets[tp] = p.Offset
				delete(failed, tp)
			}
		}
	}
	return offsets, failed
}

// list is listOffsets until all partitions have an answer: nothing of the
// assignment can be read before. An error that waiting does not mend, and the
// end of ctx, end it.
func (s *session) list(ctx context.Context, at map[engine.TopicPartition]int64, why string) (map[engine.TopicPartition]int64, error) {
	all := make(map[engine.TopicPartition]int64, len(at))
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		offsets, failed := listOffsets(ctx, s.client, at, s.d.isolation())
		for tp, o := range offsets {
			all[tp] = o
		}
		rest := make(map[engine.TopicPartition]int64)
		for tp, err := range failed {
			if err = fmt.Errorf("topic %q partition %d: %s: %w", tp.Topic, tp.Partition, why, err); !passing(err) {
				return nil, err
			}
			rest[tp] = at[tp]
			if ctx.Err() == nil && s.worthALine("list", tp, err) {
				s.d.cfg.Log.Warn("the partition, and those assigned with it, can't be read yet", "group", s.d.cfg.Group,
					"topic", tp.Topic, "partition", tp.Partition, "err", err)
			}
		}
		if len(rest) == 0 {
			return all, nil
		}
		at = rest
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// passing says whether it is worth asking again after err. A denial may be a
// credential that is being renewed (H-140).
func passing(err error) bool {
	var k *kerr.Error
	if !errors.As(err, &k) {
		return !errors.Is(err, errNotNamed)
	}
	return k.Retriable || k == kerr.TopicAuthorizationFailed || k == kerr.ClusterAuthorizationFailed || k == kerr.SaslAuthenticationFailed
}

// epochEnd is where the records of a leader epoch end, or those of the highest
// one below it if the log does not have it.
type epochEnd struct {
	epoch  int32
	offset int64
}

// epochEnds asks where leader epochs end.
func epochEnds(ctx context.Context, client *kgo.Client, epochs map[engine.TopicPartition]int32) (ends map[engine.TopicPartition]epochEnd, failed map[engine.TopicPartition]error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topics := make(map[string]int)
	for tp, epoch := range epochs {
		i, ok := topics[tp.Topic]
		if !ok {
			i = len(req.Topics)
			topics[tp.Topic] = i
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.LeaderEpoch = tp.Partition, epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	ends, failed = make(map[engine.TopicPartition]epochEnd), make(map[engine.TopicPartition]error)
	for tp := range epochs {
		failed[tp] = errNotNamed
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
				for _, p := range t.Partitions {
					failed[engine.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = shard.Err
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, p := range t.Partitions {
				tp := engine.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					failed[tp] = err
					continue
				}
				ends[tp] = epochEnd{p.LeaderEpoch, p.EndOffset}
				delete(failed, tp)
			}
		}
	}
	return ends, failed
}

// tellsEpochs says whether the brokers answer epochEnds at all.
func tellsEpochs(ctx context.Context, client *kgo.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "fronta", "1"
	resp, err := req.RequestWith(ctx, client)
	if err != nil || resp.ErrorCode != 0 {
		return true
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == int16(kmsg.OffsetForLeaderEpoch) {
			return true
		}
	}
	return false
}
