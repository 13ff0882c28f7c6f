package fronta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Config is what a [Consumer] is made of. Client, Group and Topics are
// needed; everything else has a default that its zero value stands for.
type Config struct {
	// Client are franz-go options: kgo.SeedBrokers, TLS, SASL, rack, hooks,
	// session timeout, instance id … What fronta sets itself (group, topics,
	// offsets, commits, rebalance callbacks, acks) is refused here, except a
	// group or topics that agree with Group and Topics.
	Client []kgo.Opt

	// Group is the consumer group. Its offsets are the consumer's progress.
	Group string

	// Topics are the topics to consume; with Regex, patterns (package regexp)
	// of which any may match. Topics that do not exist yet are consumed when
	// they do.
	Topics []string

	// Regex makes Topics patterns.
	Regex bool

	// Engine is Ordered.
	Engine Engine

	// Protocol is how the group is run: ClassicProtocol (the default) or
	// ConsumerProtocol (KIP-848, Kafka 4.0 and later).
	Protocol Protocol

	// Order says which records must not run at the same time. Default ByKey().
	Order Order

	// Concurrency is how many handlers run at once, or how many deliveries
	// Receive hands out before one is settled. Default 256.
	Concurrency int

	// MaxInFlight is how many records may be in work, over all partitions:
	// running, ready, waiting for a retry or behind another one of their
	// lane. Every partition may use an equal share of it, at least one record.
	// Default 10,000, or four times Concurrency if that is more.
	MaxInFlight int

	// MaxBufferedBytes is how many bytes of records may be held, over all
	// partitions, in work or read ahead; every partition may use an equal
	// share. A record counts with its key, value, headers and 320 bytes. Above
	// it reading pauses. It can go over it by what a fetch brings, when records
	// are larger than those before them, and what the client has fetched and
	// not handed over comes on top: each at most kgo.FetchMaxBytes a broker, as
	// compressed as the records are (default here 32 MiB, or MaxBufferedBytes if
	// that is less, but at least 1 MiB). Default 64 MiB.
	MaxBufferedBytes int64

	// Retry says how long a record waits after a failed attempt. Default
	// ExponentialBackoff{}: 1 s, 2 s, 4 s … 5 min.
	Retry RetryPolicy

	// MaxDeliveries is how many attempts a record gets before DeadLetter takes
	// it. Default 10 with DeadLetter; for ever without, when setting it is an
	// error. Below 0 (see Unlimited): for ever.
	MaxDeliveries int

	// DeadLetter takes records that are rejected or whose deliveries are
	// exhausted. Default: none, they stay in the queue.
	DeadLetter DeadLetter

	// HandlerTimeout is how long an attempt may take; then its context is
	// cancelled. Its lane stays closed until the handler returns. A delivery
	// of Receive is released as a failed attempt. Default 0: no limit.
	HandlerTimeout time.Duration

	// StuckAfter is how long a handler runs, or a delivery is out, before it
	// is reported as stuck (log, hook, Stats). Default HandlerTimeout + 30 s,
	// or 5 min without HandlerTimeout. Below 0: never.
	StuckAfter time.Duration

	// DrainTimeout is how long running handlers have when the consumer stops,
	// or their partition leaves, before their context is cancelled. In a
	// rebalance it is at most three quarters of kgo.RebalanceTimeout (default
	// 60 s), so that the group does not wait in vain. Default 30 s.
	DrainTimeout time.Duration

	// CommitInterval is how often progress is committed when anything has
	// changed. Default 1 s.
	CommitInterval time.Duration

	// Progress is the form in which a commit's metadata says what is finished
	// beyond the committed offset. All forms are read, whichever is written.
	// Default FrontaProgress.
	Progress Progress

	// MetadataLimit is how long a commit's metadata may be, in UTF-16 units, as
	// the brokers' offset.metadata.max.bytes counts. When what a partition's
	// progress could come to has no room, new records of it wait until others
	// have ended. If the brokers allow less, that is found out. Default 4,096,
	// the brokers' default; at least 64, at most 32,767.
	MetadataLimit int

	// FormerOrders are orders that the group's consumers had before, besides
	// those that can be told from their name alone: ByKeyFunc under other names.
	// What was committed under them is then resumed without repeating finished
	// records. Default: none.
	FormerOrders []Order

	// MaxCrashes is during how many of its deliveries the process may end before
	// a record is dead-lettered with reason "crash", without being started
	// again (see docs/guarantees.md). Default 3. Below 0 (see Unlimited): records
	// are never started one at a time to find the one that ends the process.
	MaxCrashes int

	// StartAt is where a partition begins for which the group has no committed
	// offset. Default Earliest().
	StartAt Start

	// OutOfRange says what happens when the offset to read is not in the log
	// (see the Reset values). Default ResetEarliest.
	OutOfRange Reset

	// Isolation is ReadUncommitted (the default) or ReadCommitted.
	Isolation Isolation

	// StartTimeout is how long Run waits for a broker's first answer before it
	// gives up. Default 30 s.
	StartTimeout time.Duration

	// Middleware wraps the handler; the first is the outermost.
	Middleware []Middleware

	// Logger gets what is worth a line. Default slog.Default().
	Logger *slog.Logger

	// Hooks are told what happens; each implements one or more of the
	// interfaces named Hook….
	Hooks []any

	rebalanceTimeout time.Duration   // as Client has it
	context          context.Context // as Client has it
}

// Unlimited is a MaxDeliveries without end.
const Unlimited = -1

// Engine is how records are shared among the members of a group.
type Engine uint8

// Ordered is the engine on consumer groups: a partition has one owner, and
// lanes keep their order.
const Ordered Engine = 0

// Protocol is a consumer group's protocol.
type Protocol uint8

// The protocols.
const (
	// ClassicProtocol: members agree on the assignment; cooperative-sticky,
	// with static membership if kgo.InstanceID is set.
	ClassicProtocol Protocol = iota
	// ConsumerProtocol: the broker assigns (KIP-848).
	ConsumerProtocol
)

// Progress is a form of commit metadata.
type Progress uint8

// The forms. Only the first one holds all that is worth keeping: failed
// attempts, fences and crashes begin anew with every owner under the others.
const (
	// FrontaProgress stores lane heads: it grows with the lanes that have
	// unfinished records.
	FrontaProgress Progress = iota
	// AtleonV1 is what Atleon 0.43 and later reads (acknowledged-ahead-of-commit).
	AtleonV1
	// ParallelConsumer is what Parallel Consumer 0.5 reads.
	ParallelConsumer
)

// Isolation is which records of transactions are read.
type Isolation uint8

// The isolation levels.
const (
	ReadUncommitted Isolation = iota // also records of open and aborted transactions
	ReadCommitted                    // only records of committed transactions, and those outside of any
)

// Reset says where reading goes on when its offset is not in the log.
//
// An offset below the log's start, since retention has deleted what was there,
// is answered by reading on at the log's start under ResetEarliest and
// ResetLatest alike: what is retained is never skipped. The three differ when
// the offset lies beyond the log's end, which means that the log lost data.
type Reset uint8

// The ways to go on.
const (
	ResetEarliest Reset = iota // at the log's start: repeats, skips nothing
	ResetLatest                // at the log's end
	ResetNone                  // the consumer stops with an error that names the partition
)

// Start is where the reading of a partition without a committed offset begins.
type Start struct {
	kind startKind
	at   time.Time
}

type startKind uint8

const (
	startEarliest startKind = iota
	startLatest
	startTime
)

// Earliest begins with the first record of the log.
func Earliest() Start { return Start{} }

// Latest begins with the first record that comes after the partition was first
// assigned. Partitions added to a topic later are read from their beginning.
func Latest() Start { return Start{kind: startLatest} }

// Since begins with the first record whose timestamp is t or later, or at the
// log's end if there is none.
func Since(t time.Time) Start { return Start{kind: startTime, at: t} }

func (s Start) offset() kgo.Offset {
	switch s.kind {
	case startLatest:
		return kgo.NewOffset().AtEnd()
	case startTime:
		// The driver looks up the time itself. The client has a time in the
		// same place as an offset, so that it could be taken for a committed
		// one.
		return kgo.NewOffset().AtEnd()
	default:
		return kgo.NewOffset().AtStart()
	}
}

// since is the time of a Since, zero for others.
func (s Start) since() time.Time {
	if s.kind != startTime {
		return time.Time{}
	}
	return s.at
}

func (r Reset) offset() kgo.Offset {
	switch r {
	case ResetLatest:
		return kgo.NewOffset().AtEnd()
	case ResetNone:
		return kgo.NoResetOffset()
	default:
		return kgo.NewOffset().AtStart()
	}
}

// ConfigError says which field of [Config] is wrong, and how to mend it.
type ConfigError struct {
	Field  string // "Concurrency", "DeadLetter" …
	Reason string
}

func (e *ConfigError) Error() string { return "fronta: Config." + e.Field + ": " + e.Reason }

const (
	minMetadata     = 64
	defaultMetadata = 4096
	maxMetadata     = 32767
)

func bad(field, format string, args ...any) error {
	return &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// withDefaults checks c and fills in what is not set.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Group == "":
		return c, bad("Group", "is empty: name the consumer group whose offsets keep the progress")
	case len(c.Topics) == 0:
		return c, bad("Topics", "is empty: name at least one topic")
	case c.Engine != Ordered:
		return c, bad("Engine", "is %d: the only engine is Ordered", c.Engine)
	case c.Protocol > ConsumerProtocol:
		return c, bad("Protocol", "is %d: use ClassicProtocol or ConsumerProtocol", c.Protocol)
	case c.Progress > ParallelConsumer:
		return c, bad("Progress", "is %d: use FrontaProgress, AtleonV1 or ParallelConsumer", c.Progress)
	case c.MetadataLimit != 0 && (c.MetadataLimit < minMetadata || c.MetadataLimit > maxMetadata):
		return c, bad("MetadataLimit", "is %d: it must be from %d to %d (0 stands for the default, %d)", c.MetadataLimit, minMetadata, maxMetadata, defaultMetadata)
	case c.Isolation > ReadCommitted:
		return c, bad("Isolation", "is %d: use ReadUncommitted or ReadCommitted", c.Isolation)
	case c.OutOfRange > ResetNone:
		return c, bad("OutOfRange", "is %d: use ResetEarliest, ResetLatest or ResetNone", c.OutOfRange)
	case c.StartAt.kind == startTime && c.StartAt.at.UnixMilli() < 0:
		return c, bad("StartAt", "is Since(%s): Kafka's timestamps begin in 1970", c.StartAt.at.Format(time.RFC3339))
	}
	if err := c.checkTopics(); err != nil {
		return c, err
	}
	if err := c.Order.validate(); err != nil {
		return c, bad("Order", "%v", err)
	}
	for i, o := range c.FormerOrders {
		if err := o.validate(); err != nil {
			return c, bad("FormerOrders", "[%d]: %v", i, err)
		}
	}
	if err := c.DeadLetter.validate(); err != nil {
		return c, bad("DeadLetter", "%v", err)
	}

	positive := func(field string, n *int, otherwise int) error {
		if *n < 0 {
			return bad(field, "is %d: it must be at least 1 (0 stands for the default, %d)", *n, otherwise)
		}
		if *n == 0 {
			*n = otherwise
		}
		return nil
	}
	duration := func(field string, d *time.Duration, otherwise time.Duration) error {
		if *d < 0 {
			return bad(field, "is %s: it can't be negative (0 stands for the default, %s)", *d, otherwise)
		}
		if *d == 0 {
			*d = otherwise
		}
		return nil
	}
	if c.MetadataLimit == 0 {
		c.MetadataLimit = defaultMetadata
	}
	switch {
	case c.MaxCrashes < 0:
		c.MaxCrashes = 0 // from here on: not watched
	case c.MaxCrashes == 0:
		c.MaxCrashes = 3
	}
	const most = 10_000_000
	if err := positive("Concurrency", &c.Concurrency, 256); err != nil {
		return c, err
	}
	if c.Concurrency > most {
		return c, bad("Concurrency", "is %d: more than %d handlers at once is more than a process can hold", c.Concurrency, most)
	}
	if err := positive("MaxInFlight", &c.MaxInFlight, max(10_000, 4*c.Concurrency)); err != nil {
		return c, err
	}
	if c.MaxInFlight > 1<<30 {
		return c, bad("MaxInFlight", "is %d: at most %d records can be in work", c.MaxInFlight, 1<<30)
	}
	if c.MaxBufferedBytes < 0 {
		return c, bad("MaxBufferedBytes", "is %d: it must be at least 1 (0 stands for the default, 64 MiB)", c.MaxBufferedBytes)
	}
	if c.MaxBufferedBytes == 0 {
		c.MaxBufferedBytes = 64 << 20
	}
	if c.HandlerTimeout < 0 {
		return c, bad("HandlerTimeout", "is %s: it can't be negative (0 stands for no limit)", c.HandlerTimeout)
	}
	switch {
	case c.StuckAfter < 0:
		c.StuckAfter = 0
	case c.StuckAfter == 0 && c.HandlerTimeout > 0:
		c.StuckAfter = c.HandlerTimeout + 30*time.Second
	case c.StuckAfter == 0:
		c.StuckAfter = 5 * time.Minute
	}
	if err := errors.Join(
		duration("DrainTimeout", &c.DrainTimeout, 30*time.Second),
		duration("CommitInterval", &c.CommitInterval, time.Second),
		duration("StartTimeout", &c.StartTimeout, 30*time.Second),
	); err != nil {
		return c, err
	}
	if c.CommitInterval < time.Millisecond {
		return c, bad("CommitInterval", "is %s: it must be at least 1ms (0 stands for the default, 1s)", c.CommitInterval)
	}

	switch {
	case c.MaxDeliveries > 0 && !c.DeadLetter.set():
		return c, bad("MaxDeliveries", "is %d, but nothing takes a record after that: set DeadLetter to DeadLetterTopic(…) or Discard(), or leave MaxDeliveries at 0 to have records tried for ever", c.MaxDeliveries)
	case c.MaxDeliveries == 0 && c.DeadLetter.set():
		c.MaxDeliveries = 10
	case c.MaxDeliveries < 0:
		c.MaxDeliveries = 0 // from here on: for ever
	}
	if c.Retry == nil {
		c.Retry = ExponentialBackoff{}
	}
	if v, ok := c.Retry.(interface{ validate() error }); ok {
		if err := v.validate(); err != nil {
			return c, bad("Retry", "%v", err)
		}
	}
	for i, m := range c.Middleware {
		if m == nil {
			return c, bad("Middleware", "[%d] is nil", i)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := checkHooks(c.Hooks); err != nil {
		return c, err
	}
	return c, c.checkClient()
}

func (c *Config) checkTopics() error {
	for i, topic := range c.Topics {
		if c.Regex {
			re, err := regexp.Compile(topic)
			if err != nil {
				return bad("Topics", "[%d]: %q is no regular expression: %v", i, topic, err)
			}
			if d := c.DeadLetter.topic; d != "" && re.MatchString(d) {
				return bad("DeadLetter", "topic %q is matched by Topics[%d] (%q): its dead letters would be consumed again; name it so that no pattern matches it", d, i, topic)
			}
			continue
		}
		if !validTopic(topic) {
			hint := ""
			if strings.ContainsAny(topic, `*+?()[]{}|^$\`) {
				hint = "; if it is a pattern, set Regex"
			}
			return bad("Topics", "[%d]: %q is no topic name: 1 to 249 letters, digits, '.', '_' and '-'%s", i, topic, hint)
		}
		if topic == c.DeadLetter.topic {
			return bad("DeadLetter", "topic %q is also in Topics: its dead letters would be consumed again; use a topic of their own", topic)
		}
	}
	return nil
}

// checkClient refuses options that would work against fronta's own.
func (c *Config) checkClient() error {
	for i, o := range c.Client {
		if o == nil {
			return bad("Client", "option %d is nil", i)
		}
	}
	// Options about commits and rebalances are valid only in a group, so
	// without one the client names them.
	groupless := append(slices.Clip(slices.Clone(c.Client)), kgo.ConsumerGroup(""), kgo.ShareGroup(""))
	if err := kgo.ValidateOpts(groupless...); err != nil {
		if strings.Contains(err.Error(), "group was not specified") {
			return bad("Client", "has options that fronta sets itself (commits or rebalance callbacks): remove them; see Hooks for what to use instead (%v)", err)
		}
		return bad("Client", "%v", err)
	}
	if err := kgo.ValidateOpts(c.Client...); err != nil {
		return bad("Client", "%v", err)
	}
	// A client that never connects, to ask what the options come to.
	probe, err := kgo.NewClient(c.Client...)
	if err != nil {
		return bad("Client", "%v", err)
	}
	defer probe.Close()
	if group, _ := probe.OptValue(kgo.ConsumerGroup).(string); group != "" && group != c.Group {
		return bad("Client", "kgo.ConsumerGroup(%q) and Config.Group (%q) disagree: remove the former", group, c.Group)
	}
	if topics, _ := probe.OptValue(kgo.ConsumeTopics).([]string); len(topics) > 0 {
		want := slices.Sorted(slices.Values(c.Topics))
		if !slices.Equal(topics, slices.Compact(want)) {
			return bad("Client", "kgo.ConsumeTopics(%q) and Config.Topics (%q) disagree: remove the former", topics, c.Topics)
		}
	}
	if share, _ := probe.OptValue(kgo.ShareGroup).(string); share != "" {
		return bad("Client", "has kgo.ShareGroup(%q): fronta runs the group itself; remove it", share)
	}
	if m, _ := probe.OptValue(kgo.ConsumePartitions).(map[string]map[int32]kgo.Offset); len(m) > 0 {
		return bad("Client", "has kgo.ConsumePartitions: the group assigns partitions; remove it")
	}
	if v := probe.OptValues(kgo.TransactionalID); len(v) == 2 && v[1] == true {
		return bad("Client", "has kgo.TransactionalID(%q): the consumer writes nothing but dead letters, outside of transactions; use a client of your own for transactions", v[0])
	}
	if err := c.checkOptions(probe); err != nil {
		return err
	}
	if regex, _ := probe.OptValue(kgo.ConsumeRegex).(bool); regex != c.Regex && regex {
		return bad("Client", "has kgo.ConsumeRegex, but Config.Regex is false: set Regex")
	}
	if server, _ := probe.OptValue(kgo.ServerSideBalancer).(bool); server && c.Protocol != ConsumerProtocol {
		return bad("Client", "has kgo.ServerSideBalancer, but Config.Protocol is ClassicProtocol: set Protocol to ConsumerProtocol")
	}
	c.rebalanceTimeout, _ = probe.OptValue(kgo.RebalanceTimeout).(time.Duration)
	c.context, _ = probe.OptValue(kgo.WithContext).(context.Context)
	return nil
}

// checkOptions refuses options that fronta would override, or that would make
// what it promises untrue. They are found by comparing with a client that has
// none: an option that is given with its default value changes nothing.
func (c *Config) checkOptions(probe *kgo.Client) error {
	bare, err := kgo.NewClient()
	if err != nil {
		return bad("Client", "%v", err)
	}
	defer bare.Close()
	for _, o := range []struct {
		name   string
		option any
		way    string
	}{
		{"ConsumeStartOffset", kgo.ConsumeStartOffset, "remove it and set StartAt"},
		{"ConsumeResetOffset", kgo.ConsumeResetOffset, "remove it and set OutOfRange"},
		{"AdjustFetchOffsetsFn", kgo.AdjustFetchOffsetsFn, "the group's offsets are the consumer's progress; remove it"},
		{"BlockRebalanceOnPoll", kgo.BlockRebalanceOnPoll, "rebalances would wait for ever; remove it"},
		{"RequiredAcks", kgo.RequiredAcks, "dead letters are acknowledged by all in-sync replicas; remove it"},
		{"DisableIdempotentWrite", kgo.DisableIdempotentWrite, "dead letters are written idempotently; remove it"},
		{"ManualFlushing", kgo.ManualFlushing, "dead letters would never be sent; remove it"},
		{"DefaultProduceTopicAlways", kgo.DefaultProduceTopicAlways, "dead letters would go to that topic; remove it"},
	} {
		if !reflect.DeepEqual(probe.OptValues(o.option), bare.OptValues(o.option)) {
			return bad("Client", "has kgo.%s: %s", o.name, o.way)
		}
	}
	level := kgo.FetchIsolationLevel
	if c.Isolation == ReadUncommitted && !reflect.DeepEqual(probe.OptValues(level), bare.OptValues(level)) {
		return bad("Client", "has kgo.FetchIsolationLevel, but Config.Isolation is ReadUncommitted: set Isolation to ReadCommitted")
	}
	return nil
}

// handler wraps h in the middleware.
func (c *Config) handler(h Handler) (Handler, error) {
	for i := len(c.Middleware) - 1; i >= 0; i-- {
		if h = c.Middleware[i](h); h == nil {
			return nil, bad("Middleware", "[%d] returned a nil handler", i)
		}
	}
	return h, nil
}

var errNilHandler = errors.New("fronta: Run: the handler is nil")
