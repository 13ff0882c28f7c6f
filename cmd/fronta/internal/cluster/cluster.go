// Package cluster gives the demo and the benchmarks a Kafka cluster to work on: an embedded broker in this process, one in
// a process of its own, or a real cluster.
//
// What must stay true: every topic and group gets a name that nobody else has, and on a cluster that outlives the command
// all of them are deleted at the end, also after an interrupt.
package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/fake"
)

const (
	// answerTimeout is how long a cluster has for its first answer.
	answerTimeout = 10 * time.Second
	// settleTimeout is how long a new topic has to be known everywhere, and a group to be without members.
	settleTimeout = 15 * time.Second
	settleEvery   = 50 * time.Millisecond
)

// Cluster is a Kafka cluster for one run of a command. Its methods may be called from many goroutines.
type Cluster struct {
	name  string
	addrs []string
	id    string // part of every topic's and group's name
	admin *kadm.Client
	end   func() error // ends the broker; nil: it is not ours

	mu     sync.Mutex
	topics []string
	groups []string
}

// Embedded starts a broker in this process.
func Embedded(env *cli.Env) (*Cluster, error) {
	b, err := fake.Start(fake.Logger(env.Log))
	if err != nil {
		return nil, err
	}
	return open("embedded", b.Addrs(), func() error { b.Close(); return nil })
}

// Separate starts a broker in a process of its own, which ends with this one, however this one ends.
func Separate(ctx context.Context, env *cli.Env) (*Cluster, error) {
	p, err := startProcess(ctx, env.Stderr)
	if err != nil {
		return nil, fmt.Errorf("start a broker in a process of its own: %w", err)
	}
	return open("embedded, in a process of its own", []string{p.address}, p.end)
}

// Connect uses the cluster at these addresses. It fails when none answers within ten seconds.
func Connect(ctx context.Context, addrs []string) (*Cluster, error) {
	name := strings.Join(addrs, ",")
	c, err := open(name, addrs, nil)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := c.admin.BrokerMetadata(limited); err != nil {
		c.admin.Close()
		if ctx.Err() == nil && limited.Err() != nil {
			return nil, fmt.Errorf("no broker at %s answered within %s: %w", name, answerTimeout, err)
		}
		return nil, fmt.Errorf("brokers at %s: %w", name, err)
	}
	return c, nil
}

func open(name string, addrs []string, end func() error) (*Cluster, error) {
	c := &Cluster{name: name, addrs: addrs, id: strings.ToLower(rand.Text()[:10]), end: end}
	client, err := kgo.NewClient(c.Opts()...)
	if err != nil {
		if end != nil {
			err = errors.Join(err, end())
		}
		return nil, err
	}
	c.admin = kadm.NewClient(client)
	return c, nil
}

// String says which cluster it is: "embedded", "embedded, in a process of its own", or the addresses.
func (c *Cluster) String() string { return c.name }

// Opts are the options a client needs to get there. Each call returns a slice of its own.
func (c *Cluster) Opts() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(c.addrs...), kgo.ClientID("fronta")}
}

// Admin is a client for questions about topics and groups. It is closed with the cluster.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// CreateTopic makes a topic whose name begins with "fronta-" and purpose, and returns when it can be used.
func (c *Cluster) CreateTopic(ctx context.Context, purpose string, partitions int) (string, error) {
	topic := c.unique(purpose)
	c.mu.Lock()
	c.topics = append(c.topics, topic)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if _, err := c.admin.CreateTopic(ctx, int32(partitions), -1, nil, topic); err != nil {
		return "", fmt.Errorf("create topic %s: %w", topic, err)
	}
	for {
		details, err := c.admin.ListTopics(ctx, topic)
		if err == nil && details[topic].Err == nil && len(details[topic].Partitions.Numbers()) == partitions && led(details[topic]) {
			return topic, nil
		}
		if !pause(ctx) {
			return "", fmt.Errorf("topic %s is not ready %s after it was made: %w", topic, settleTimeout, errors.Join(err, details[topic].Err, ctx.Err()))
		}
	}
}

func led(t kadm.TopicDetail) bool {
	for _, p := range t.Partitions {
		if p.Err != nil || p.Leader < 0 {
			return false
		}
	}
	return true
}

func pause(ctx context.Context) bool {
	t := time.NewTimer(settleEvery)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Group returns the name of a consumer group that nobody has used.
func (c *Cluster) Group(purpose string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := fmt.Sprintf("%s-%d", c.unique(purpose), len(c.groups))
	c.groups = append(c.groups, group)
	return group
}

func (c *Cluster) unique(purpose string) string { return "fronta-" + purpose + "-" + c.id }

// DeleteTopic deletes a topic before the end, to have its memory back.
func (c *Cluster) DeleteTopic(ctx context.Context, topic string) error {
	if _, err := c.admin.DeleteTopic(ctx, topic); err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	c.mu.Lock()
	c.topics = slices.DeleteFunc(c.topics, func(t string) bool { return t == topic })
	c.mu.Unlock()
	return nil
}

// Close ends the broker if it is ours, and otherwise deletes what was made there. The error names what is left behind.
func (c *Cluster) Close() error {
	defer c.admin.Close()
	if c.end != nil {
		return c.end()
	}
	// Not the command's context: it has ended when the command was interrupted.
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.deleteGroups(ctx), c.deleteTopics(ctx))
}

func (c *Cluster) deleteTopics(ctx context.Context) error {
	if len(c.topics) == 0 {
		return nil
	}
	answers, err := c.admin.DeleteTopics(ctx, c.topics...)
	if err != nil {
		return fmt.Errorf("delete topics %s: %w", strings.Join(c.topics, ", "), err)
	}
	var errs []error
	for _, a := range answers.Sorted() {
		if a.Err != nil && !errors.Is(a.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("delete topic %s: %w", a.Topic, a.Err))
		}
	}
	return errors.Join(errs...)
}

// deleteGroups tries again while a group has members: a member that has just left may still be counted.
func (c *Cluster) deleteGroups(ctx context.Context) error {
	left := c.groups
	for len(left) > 0 {
		answers, err := c.admin.DeleteGroups(ctx, left...)
		if err != nil {
			return fmt.Errorf("delete groups %s: %w", strings.Join(left, ", "), err)
		}
		var errs []error
		left = nil
		for _, a := range answers.Sorted() {
			switch {
			case a.Err == nil, errors.Is(a.Err, kerr.GroupIDNotFound): // never used
			case errors.Is(a.Err, kerr.NonEmptyGroup):
				left = append(left, a.Group)
				fallthrough
			default:
				errs = append(errs, fmt.Errorf("delete group %s: %w", a.Group, a.Err))
			}
		}
		if len(left) == 0 || len(left) < len(errs) || !pause(ctx) {
			return errors.Join(errs...)
		}
	}
	return nil
}
