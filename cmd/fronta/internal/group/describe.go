// Package group looks at a consumer group from outside: what it has committed, what its progress says, and whether a
// consumer would trust it.
//
// What must stay true: it asks and changes nothing; what a consumer would check before it skips a record is checked alike
// here; a metadata text itself is never shown, since it may be anybody's, only what it says and why it is refused.
package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta/progress"
)

// AssumedLimit is how many UTF-16 units a commit's metadata may have where the broker does not tell: Apache Kafka's default.
const AssumedLimit = 4096

// limitConfig is the broker's configuration for it.
const limitConfig = "offset.metadata.max.bytes"

// Describe looks at a group. With a topic it looks at that topic's partitions alone.
//
// What it can't learn of a partition is in the partition's Error, and in the last result of [Description.Incomplete]; a group
// that is no consumer group, or is not there, or must not be looked at, is an error.
func Describe(ctx context.Context, client *kgo.Client, group, topic string) (*Description, error) {
	l := &look{
		client: client, admin: kadm.NewClient(client),
		Description: &Description{Group: group, Members: []Member{}, Partitions: []Partition{}},
		partitions:  make(map[place]*Partition),
	}
	known, err := l.members(ctx)
	if err != nil {
		return nil, err
	}
	// Commits are read before the logs' ends: a horizon beyond an end is then no matter of timing.
	committed, err := l.commits(ctx)
	if err != nil {
		return nil, err
	}
	if !known && !committed {
		return nil, l.unknown(ctx)
	}
	if topic != "" {
		maps.DeleteFunc(l.partitions, func(p place, _ *Partition) bool { return p.topic != topic })
	}
	if err := l.logs(ctx, topic); err != nil {
		return nil, err
	}
	if topic != "" && len(l.partitions) == 0 {
		return nil, fmt.Errorf("group %q has no commit and no member for topic %q: without --topic all its partitions are listed", group, topic)
	}
	l.epochs(ctx)
	l.limit(ctx)
	for _, p := range l.partitions {
		p.judge()
		l.Partitions = append(l.Partitions, *p)
	}
	slices.SortFunc(l.Partitions, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	l.sum()
	return l.Description, nil
}

type place struct {
	topic     string
	partition int32
}

// look is one look at a group.
type look struct {
	*Description
	client     *kgo.Client
	admin      *kadm.Client
	partitions map[place]*Partition
	offers     func(key kmsg.Key, version int16) bool // whether the coordinator knows a request in that version or a later one
}

func (l *look) partition(topic string, partition int32) *Partition {
	at := place{topic, partition}
	p := l.partitions[at]
	if p == nil {
		p = &Partition{Topic: topic, Partition: partition}
		l.partitions[at] = p
	}
	return p
}

// members finds out what the group is and who is in it. The answer is false if the coordinator knows no such group, which
// does not exclude that it has commits.
func (l *look) members(ctx context.Context) (known bool, err error) {
	found := l.admin.FindGroupCoordinators(ctx, l.Group)
	if err := found.Error(); err != nil {
		return false, l.failed("find its coordinator", err)
	}
	l.Coordinator = found[l.Group].NodeID
	if err := l.learnOffers(ctx); err != nil {
		return false, l.failed(fmt.Sprintf("ask broker %d what it can be asked", l.Coordinator), err)
	}
	if l.offers(kmsg.ConsumerGroupDescribe, 0) {
		if known, err := l.newMembers(ctx); known || err != nil {
			return known, err
		}
	}
	answers, err := l.admin.DescribeGroups(ctx, l.Group)
	g := answers[l.Group]
	if err := cmp.Or(err, g.Err); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return false, l.failed("describe it", err)
	} else if err != nil || g.State == "Dead" {
		return false, nil
	}
	if g.ProtocolType != "" && g.ProtocolType != "consumer" {
		return false, fmt.Errorf("group %q is not a consumer group: its members are of type %q", l.Group, g.ProtocolType)
	}
	l.Type, l.State, l.Protocol = "classic", g.State, g.Protocol
	for _, m := range g.Members {
		assigned := make(kadm.TopicsSet)
		if a, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range a.Topics {
				assigned.Add(t.Topic, t.Partitions...)
			}
		}
		l.addMember(Member{ID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, Host: m.ClientHost, Epoch: -1}, assigned)
	}
	return true, nil
}

// newMembers does for a group of the newer protocol (KIP-848) what members does. The answer is false if it is none.
func (l *look) newMembers(ctx context.Context) (known bool, err error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{l.Group}
	answer, err := req.RequestWith(ctx, l.client)
	if err == nil && len(answer.Groups) != 1 {
		err = fmt.Errorf("broker %d answers about %d groups, not about this one", l.Coordinator, len(answer.Groups))
	}
	if err == nil {
		err = kerr.ErrorForCode(answer.Groups[0].ErrorCode)
	}
	switch {
	case err == nil:
	case errors.Is(err, kerr.GroupIDNotFound), errors.Is(err, kerr.UnsupportedVersion):
		// A group of the classic protocol, or the broker has the newer one turned off.
		return false, nil
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		// The broker keeps the whole description back for one topic that must not be seen.
		l.Type, l.MembersUnknown = "consumer", denied(err, "DESCRIBE", "each Topic that its members have").Error()
		return true, nil
	default:
		return false, l.failed("describe it", err)
	}
	g := answer.Groups[0]
	l.Type, l.State, l.Protocol, l.Epoch = "consumer", g.State, g.AssignorName, g.Epoch
	names, err := l.names(ctx, g)
	if err != nil {
		return false, l.failed("look up its members' topics", err)
	}
	for _, m := range g.Members {
		assigned := make(kadm.TopicsSet)
		for _, t := range m.Assignment.TopicPartitions {
			assigned.Add(names[t.TopicID], t.Partitions...)
		}
		l.addMember(Member{ID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, Host: m.ClientHost, Epoch: m.MemberEpoch}, assigned)
	}
	return true, nil
}

// names are those of the topics that members have. Not every broker tells them beside the ids.
func (l *look) names(ctx context.Context, g kmsg.ConsumerGroupDescribeResponseGroup) (map[[16]byte]string, error) {
	names := make(map[[16]byte]string)
	req := kmsg.NewPtrMetadataRequest()
	for _, m := range g.Members {
		for _, t := range m.Assignment.TopicPartitions {
			if _, ok := names[t.TopicID]; ok {
				continue
			}
			if names[t.TopicID] = t.Topic; t.Topic == "" {
				names[t.TopicID] = kadm.TopicID(t.TopicID).String() // should nobody know it
				topic := kmsg.NewMetadataRequestTopic()
				topic.TopicID = t.TopicID
				req.Topics = append(req.Topics, topic)
			}
		}
	}
	if len(req.Topics) == 0 {
		return names, nil
	}
	answer, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return nil, err
	}
	for _, t := range answer.Topics {
		if t.Topic != nil && *t.Topic != "" {
			names[t.TopicID] = *t.Topic
		}
	}
	return names, nil
}

// learnOffers asks the coordinator, not the client: that one answers with an error that looks like no other when the broker
// does not know a request.
func (l *look) learnOffers(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "fronta", "unknown" // brokers refuse empty ones
	answer, err := req.RequestWith(ctx, l.client.Broker(int(l.Coordinator)))
	if err != nil {
		return err
	}
	latest := make(map[kmsg.Key]int16)
	for _, k := range answer.ApiKeys {
		latest[kmsg.Key(k.ApiKey)] = k.MaxVersion
	}
	l.offers = func(k kmsg.Key, version int16) bool {
		v, ok := latest[k]
		return ok && v >= version
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

func (l *look) addMember(m Member, assigned kadm.TopicsSet) {
	m.Partitions = []Assigned{}
	for _, topic := range slices.Sorted(maps.Keys(assigned)) {
		partitions := slices.Sorted(maps.Keys(assigned[topic]))
		m.Partitions = append(m.Partitions, Assigned{topic, partitions})
		for _, p := range partitions {
			l.partition(topic, p).Member = m.ID
		}
	}
	l.Members = append(l.Members, m)
}

// commits reads what is committed, with its metadata, and answers whether that is anything.
func (l *look) commits(ctx context.Context) (any bool, err error) {
	answers, err := l.admin.FetchOffsets(ctx, l.Group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return false, nil
	}
	if err != nil {
		return false, l.failed("read its commits", err)
	}
	for _, o := range answers.Sorted() {
		switch {
		case o.Err != nil:
			l.partition(o.Topic, o.Partition).failed("read its commit", o.Err)
		case o.At >= 0:
			p := l.partition(o.Topic, o.Partition)
			p.Committed = &o.At
			p.metadata, p.Units = o.Metadata, units(o.Metadata)
		}
	}
	return len(answers) > 0, nil
}

// unknown tells what a group is that is neither a consumer group nor has commits.
func (l *look) unknown(ctx context.Context) error {
	if l.offers(kmsg.ShareGroupDescribe, 0) {
		answers, err := l.admin.DescribeShareGroups(ctx, l.Group)
		if err == nil && answers[l.Group].Err == nil {
			return fmt.Errorf("group %q is a share group, not a consumer group: the brokers keep its progress, there are no commits to describe", l.Group)
		}
	}
	if l.offers(kmsg.StreamsGroupDescribe, 0) {
		req := kmsg.NewPtrStreamsGroupDescribeRequest()
		req.Groups = []string{l.Group}
		answer, err := req.RequestWith(ctx, l.client.Broker(int(l.Coordinator)))
		if err == nil && len(answer.Groups) == 1 && answer.Groups[0].ErrorCode == 0 {
			return fmt.Errorf("group %q is a Kafka Streams group, not a consumer group", l.Group)
		}
	}
	return fmt.Errorf("group %q is unknown to the cluster: it has no members and no commits, or its commits have expired", l.Group)
}

// logs asks for the topics' ids and where their logs begin and end.
func (l *look) logs(ctx context.Context, only string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = []kmsg.MetadataRequestTopic{}
	topics := map[string]bool{}
	for at := range l.partitions {
		topics[at.topic] = true
	}
	if only != "" {
		topics[only] = true
	}
	if len(topics) == 0 {
		return nil
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	answer, err := req.RequestWith(ctx, l.client)
	if err != nil {
		return l.failed("look up its topics", err)
	}
	there := make(map[place]bool)
	for _, t := range answer.Topics {
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		if *t.Topic == only && err != nil {
			return onTopic(only, "look it up", err)
		}
		for _, p := range t.Partitions {
			there[place{*t.Topic, p.Partition}] = true
		}
		for at, p := range l.partitions {
			switch {
			case at.topic != *t.Topic:
			case errors.Is(err, kerr.UnknownTopicOrPartition), err == nil && !there[at]:
				p.Gone = true
			case err != nil:
				p.failed("look up its topic", err)
			default:
				p.topicID = t.TopicID
			}
		}
	}
	l.list(ctx, -2, func(p *Partition) **int64 { return &p.LogStart })
	l.list(ctx, -1, func(p *Partition) **int64 { return &p.End })
	return nil
}

// list asks for an offset of each log: its start (-2) or its end (-1), with what is not committed of transactions, since that
// is what a consumer compares a horizon with.
func (l *look) list(ctx context.Context, which int64, into func(*Partition) **int64) {
	req := kmsg.NewPtrListOffsetsRequest()
	asked := l.ask(func(p *Partition) bool { return !p.Gone && p.Error == "" })
	for topic, partitions := range asked {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, p := range partitions {
			tp := kmsg.NewListOffsetsRequestTopicPartition()
			tp.Partition, tp.Timestamp = p.Partition, which
			t.Partitions = append(t.Partitions, tp)
		}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return
	}
	const what = "ask where its log begins and ends"
	for _, shard := range l.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.ListOffsetsRequest).Topics {
				for _, p := range t.Partitions {
					l.partition(t.Topic, p.Partition).failed(what, shard.Err)
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, a := range t.Partitions {
				p := l.partition(t.Topic, a.Partition)
				if err := kerr.ErrorForCode(a.ErrorCode); err != nil {
					p.failed(what, err)
					continue
				}
				*into(p) = &a.Offset
			}
		}
	}
}

// epochs reads the metadata and asks how far the leader epochs go in which it was written.
func (l *look) epochs(ctx context.Context) {
	for _, p := range l.partitions {
		p.decode()
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	if !l.offers(kmsg.OffsetForLeaderEpoch, 3) {
		return // until Kafka 2.3 it was for brokers: a consumer goes by the log's end alone
	}
	for topic, partitions := range l.ask(func(p *Partition) bool { return p.told != nil && p.told.Epoch >= 0 && p.tells() && p.End != nil }) {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		for _, p := range partitions {
			tp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			tp.Partition, tp.LeaderEpoch = p.Partition, p.told.Epoch
			t.Partitions = append(t.Partitions, tp)
		}
		req.Topics = append(req.Topics, t)
	}
	if len(req.Topics) == 0 {
		return
	}
	const what = "ask how far the leader epoch of its progress goes"
	for _, shard := range l.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			for _, t := range shard.Req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
				for _, p := range t.Partitions {
					l.partition(t.Topic, p.Partition).failed(what, shard.Err)
				}
			}
			continue
		}
		for _, t := range shard.Resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, a := range t.Partitions {
				p := l.partition(t.Topic, a.Partition)
				if err := kerr.ErrorForCode(a.ErrorCode); errors.Is(err, kerr.ClusterAuthorizationFailed) {
					continue // it tells other brokers alone: as above
				} else if err != nil {
					p.failed(what, err)
					continue
				}
				p.epoch, p.epochEnd = a.LeaderEpoch, &a.EndOffset
			}
		}
	}
}

// ask gathers partitions by topic.
func (l *look) ask(which func(*Partition) bool) map[string][]*Partition {
	asked := make(map[string][]*Partition)
	for at, p := range l.partitions {
		if which(p) {
			asked[at.topic] = append(asked[at.topic], p)
		}
	}
	return asked
}

// limit asks the coordinator how long metadata may be.
func (l *look) limit(ctx context.Context) {
	units, err := l.askLimit(ctx)
	if err != nil {
		l.MetadataLimit = Limit{Units: AssumedLimit, Assumed: err.Error()}
		return
	}
	l.MetadataLimit = Limit{Units: units}
}

func (l *look) askLimit(ctx context.Context) (int, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeBroker
	resource.ResourceName = strconv.Itoa(int(l.Coordinator))
	resource.ConfigNames = []string{limitConfig}
	req.Resources = append(req.Resources, resource)
	answer, err := req.RequestWith(ctx, l.client.Broker(int(l.Coordinator)))
	if err != nil {
		return 0, fmt.Errorf("ask broker %d for its %s: %w", l.Coordinator, limitConfig, err)
	}
	for _, r := range answer.Resources {
		err := kerr.ErrorForCode(r.ErrorCode)
		if errors.Is(err, kerr.ClusterAuthorizationFailed) {
			return 0, denied(err, "DESCRIBE_CONFIGS", "the Cluster")
		}
		if err != nil {
			return 0, fmt.Errorf("ask broker %d for its %s: %w", l.Coordinator, limitConfig, err)
		}
		for _, c := range r.Configs {
			if c.Name != limitConfig || c.Value == nil {
				continue
			}
			if n, err := strconv.Atoi(*c.Value); err == nil && n >= 0 {
				return n, nil
			}
		}
	}
	return 0, fmt.Errorf("broker %d does not tell its %s", l.Coordinator, limitConfig)
}

// failed is an error of a step that the whole look needs.
func (l *look) failed(step string, err error) error {
	if parts := new(kadm.ShardErrors); errors.As(err, &parts) && len(parts.Errs) > 0 {
		err = parts.Errs[0].Err // a group has one coordinator, and so its request one part
	}
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		return fmt.Errorf("group %q: %s: %w", l.Group, step, denied(err, "DESCRIBE", fmt.Sprintf("Group %q", l.Group)))
	}
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("group %q: %s: %w", l.Group, step, denied(err, "DESCRIBE", "each Topic that it has commits of"))
	}
	return fmt.Errorf("group %q: %s: %w", l.Group, step, err)
}

func (p *Partition) failed(step string, err error) {
	if p.Error == "" { // what comes later follows from it
		p.Error = onTopic(p.Topic, step, err).Error()
	}
}

func onTopic(topic, step string, err error) error {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return fmt.Errorf("topic %q: %s: %w", topic, step, denied(err, "DESCRIBE", fmt.Sprintf("Topic %q", topic)))
	}
	return fmt.Errorf("topic %q: %s: %w", topic, step, err)
}

// denied names the ACL that is missing.
func denied(err error, operation, resource string) error {
	return fmt.Errorf("the broker denies it: grant %s on %s: %w", operation, resource, err)
}

// decode reads the metadata of a commit.
func (p *Partition) decode() {
	if p.Committed == nil || p.Gone || p.Error != "" {
		return
	}
	told, format, err := progress.Decode(p.metadata, *p.Committed, progress.Binding{TopicID: p.topicID, Partition: p.Partition})
	p.Format = format
	if err != nil {
		p.Reason = err.Error()
		return
	}
	if format != progress.None {
		p.told = &told
	}
}
