package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// counters count what the membership went through.
type counters struct {
	commits, commitErrors, fetchErrors, oversize, shortened, leftOut, refused atomic.Int64
}

// Counts are the driver's counters.
type Counts struct {
	Commits      int64 // partitions' positions that the brokers confirmed
	CommitErrors int64 // partitions' positions that they did not
	FetchErrors  int64

	RefusedProgress int64 // texts at the start of an ownership that could not be read or must not be believed
	Oversize        int64 // partitions' commits that the brokers refused for the length of their text
	Shortened       int64 // confirmed commits whose text had no room for all that there was to say
	LeftOutHeads    int64 // what was left out of those, in lane heads
}

// Counts answers with the counters as they stand.
func (d *Driver) Counts() Counts {
	c := &d.counts
	return Counts{
		Commits: c.commits.Load(), CommitErrors: c.commitErrors.Load(), FetchErrors: c.fetchErrors.Load(),
		RefusedProgress: c.refused.Load(), Oversize: c.oversize.Load(), Shortened: c.shortened.Load(), LeftOutHeads: c.leftOut.Load(),
	}
}

// fatalGroupError answers with the error that ends the consumer if err can't
// be mended by joining again, and with nil otherwise. A group that was joined
// before is not given up for a denial: that may be a credential that is being
// renewed (H-140).
func fatalGroupError(cfg Config, err error, joined bool) error {
	var what string
	switch {
	case errors.Is(err, kerr.FencedInstanceID), errors.Is(err, kerr.UnreleasedInstanceID):
		what = "another process uses the same kgo.InstanceID and has replaced this one: give each process an instance id of its own"
	case errors.Is(err, kerr.InconsistentGroupProtocol):
		what = "the group has members of another protocol or without a common balancer: a group changes from one to the other only when it is empty or through balancers that both sides have"
	case errors.Is(err, kerr.InvalidGroupID):
		what = "the broker refuses the group's name: see Config.Group"
	case errors.Is(err, kerr.InvalidSessionTimeout):
		what = "the broker refuses kgo.SessionTimeout: it must lie between its group.min.session.timeout.ms and group.max.session.timeout.ms"
	case errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.UnsupportedAssignor):
		what = "the broker does not support this group protocol: leave Config.Protocol at its default (classic) or use a newer broker"
	case joined:
		return nil
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		what = fmt.Sprintf("the broker denies access to the group: grant READ on Group %q", cfg.Group)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		what = fmt.Sprintf("the broker denies access to a topic: grant READ and DESCRIBE on %q", cfg.Topics)
	case errors.Is(err, kerr.GroupMaxSizeReached):
		what = "the group has as many members as the broker's group.max.size allows"
	default:
		return nil
	}
	return fmt.Errorf("fronta: join group %q: %s: %w", cfg.Group, what, err)
}

// fetchFailed draws the consequences of an error that a poll returned, and says
// whether it was one of the brokers'.
func (s *session) fetchFailed(tp engine.TopicPartition, err error) bool {
	d := s.d
	var loss *kgo.ErrDataLoss
	var group *kgo.ErrGroupSession
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
		return false // the poll was broken, by us
	case errors.As(err, &group):
		return false // manageHook has heard of it
	case errors.As(err, &loss):
		d.cfg.Log.Error("the log was truncated: records that were read are gone, reading goes on elsewhere",
			"topic", tp.Topic, "partition", tp.Partition, "read_to", loss.ConsumedTo, "resumed_at", loss.ResetTo)
	case errors.Is(err, kerr.OffsetOutOfRange):
		d.engine.Fail(fmt.Errorf("fronta: topic %q partition %d: the offset to read is not in the log any more, and Config.OutOfRange is ResetNone: set the group's offset, or choose where to go on: %w", tp.Topic, tp.Partition, err))
	case errors.Is(err, kerr.UnknownTopicID):
		s.suspect(tp.Topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		if s.starting(tp.Topic) {
			d.engine.Fail(fmt.Errorf("fronta: read topic %q: denied: grant READ on Topic %q: %w", tp.Topic, tp.Topic, err))
		}
	}
	d.counts.fetchErrors.Add(1)
	if s.worthALine("fetch", tp, err) {
		d.cfg.Log.Warn("fetch failed", "topic", tp.Topic, "partition", tp.Partition, "err", err)
	}
	if f := d.cfg.Events.FetchFailed; f != nil {
		f(tp, err)
	}
	return true
}

// starting says whether a denial to read the topic is one from the start: the
// first membership is not older than StartTimeout, and nothing was read from
// the topic. A later one may be a credential that is being renewed (H-140).
func (s *session) starting(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first && !s.read[topic] && (s.joinedAt.IsZero() || time.Since(s.joinedAt) < s.d.cfg.StartTimeout)
}

// worthALine says whether an error of a partition, met when something was
// tried, has not been logged within the last minute: a condition that lasts is
// met again at every try.
func (s *session) worthALine(tried string, tp engine.TopicPartition, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	key := condition{tp, tried}
	last, ok := s.logged[key]
	if ok && last.text == err.Error() && now.Sub(last.at) < time.Minute {
		return false
	}
	if s.logged == nil {
		s.logged = make(map[condition]logged)
	}
	s.logged[key] = logged{err.Error(), now}
	return true
}

type condition struct {
	engine.TopicPartition
	tried string
}

type logged struct {
	text string
	at   time.Time
}
