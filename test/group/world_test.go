// Package group_test runs consumers in groups on the embedded broker, with
// faults, and lets package checker judge what they did.
//
// What must stay true: time is virtual wherever it can be, so that a minute
// costs next to nothing and "within a second" is exact, and every test that
// moves records ends in [world.verdict], so that no test passes while a promise
// is broken.
//
// Time is real where a member may commit while its own join waits for another
// member: there the client waits for a lock of package sync, which stops a
// bubble's clock.
package group_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/fake"
	"github.com/fronta-mq/fronta/internal/checker"
	"github.com/fronta-mq/fronta/progress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	topic = "orders"
	group = "billing"
)

// virtually runs a test in virtual time.
func virtually(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

var protocols = map[string]fronta.Protocol{"classic": fronta.ClassicProtocol, "consumer": fronta.ConsumerProtocol}

// virtuallyNow is virtually without running in parallel.
func virtuallyNow(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// underBoth runs a test in virtual time under both group protocols.
func underBoth(t *testing.T, test func(*testing.T, fronta.Protocol)) {
	t.Helper()
	t.Parallel()
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) { test(t, protocol) })
		})
	}
}

// liveUnderBoth runs a test in real time under both group protocols.
func liveUnderBoth(t *testing.T, test func(*testing.T, fronta.Protocol)) {
	t.Helper()
	t.Parallel()
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
}

// newLiveWorld is newWorld in real time.
func newLiveWorld(t *testing.T, partitions int, opts ...fake.Option) *world {
	t.Helper()
	w := &world{t: t, live: true, check: checker.New(promised)}
	w.start(slices.Concat([]fake.Option{fake.Topic(topic, partitions)}, opts)...)
	return w
}

// promised is what consumers on the embedded broker are held to.
var promised = checker.Options{Progress: checker.Exact, FencesRise: true}

// world is a broker, the consumers on it, and what is known of both.
type world struct {
	t     *testing.T
	b     *fake.Broker
	live  bool // time is real
	check *checker.Checker

	mu       sync.Mutex
	producer *kgo.Client
	commits  []commit
	members  []*member
}

// commit is one partition of an OffsetCommit request as the broker got it.
type commit struct {
	at         time.Time
	member     string
	generation int32
	topicID    [16]byte
	partition  int32
	offset     int64
	epoch      int32
	metadata   *string
}

// progress is what the commit says.
func (c commit) progress() (progress.Progress, error) {
	if c.metadata == nil || *c.metadata == "" {
		return progress.Progress{}, errors.New("it has no metadata")
	}
	p, format, err := progress.Decode(*c.metadata, c.offset, progress.Binding{TopicID: c.topicID, Partition: c.partition})
	if err == nil && format != progress.Fronta {
		err = fmt.Errorf("its metadata is in the format of %s", format)
	}
	return p, err
}

// newWorld starts a broker with topic in the given number of partitions.
func newWorld(t *testing.T, partitions int, opts ...fake.Option) *world {
	t.Helper()
	w := &world{t: t, check: checker.New(promised)}
	w.start(slices.Concat([]fake.Option{fake.Virtual(), fake.Topic(topic, partitions)}, opts)...)
	return w
}

func (w *world) start(opts ...fake.Option) {
	w.t.Helper()
	b, err := fake.Start(opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(b.Close)
	w.b = b
	w.cluster().ControlKey(int16(kmsg.OffsetCommit), w.see)
	w.producer = w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
}

func (w *world) cluster() *kfake.Cluster { return w.b.Cluster() }

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	client, err := kgo.NewClient(append(w.b.Opts(), opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(client.Close)
	return client
}

// see notes a commit request.
func (w *world) see(r kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // the signature is kfake's
	req := r.(*kmsg.OffsetCommitRequest)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rt := range req.Topics {
		for _, rp := range rt.Partitions {
			w.commits = append(w.commits, commit{
				time.Now(), req.MemberID, req.Generation, rt.TopicID, rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata,
			})
		}
	}
	return nil, nil, false
}

// seen are the commits so far.
func (w *world) seen() []commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.commits)
}

// always answers every request of a kind with answer, until the returned func
// is called. answer says nil for those that the broker shall answer.
func (w *world) always(key kmsg.Key, answer func(kmsg.Request) kmsg.Response) (end func()) {
	var mu sync.Mutex
	ended := false
	w.cluster().ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			w.cluster().DropControl()
			return nil, nil, false
		}
		w.cluster().KeepControl()
		if resp := answer(req); resp != nil {
			return resp, nil, true
		}
		return nil, nil, false
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	}
}

// mute swallows every request of the kinds: the broker takes it and never
// answers. It returns what counts those that it swallowed.
func (w *world) mute(kinds ...kmsg.Key) (swallowed func(kmsg.Key) int) {
	var mu sync.Mutex
	counts := make(map[kmsg.Key]int)
	for _, key := range kinds {
		w.cluster().ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			mu.Lock()
			defer mu.Unlock()
			w.cluster().KeepControl()
			counts[key]++
			return nil, nil, true
		})
	}
	return func(key kmsg.Key) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[key]
	}
}

// produce writes a record for each key to a partition and returns the offset
// of the first. The value is the key's.
func (w *world) produce(partition int32, keys ...string) int64 {
	w.t.Helper()
	return w.produceTo(topic, partition, keys...)
}

func (w *world) produceTo(topic string, partition int32, keys ...string) int64 {
	w.t.Helper()
	records := make([]*kgo.Record, len(keys))
	for i, key := range keys {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte("value of " + key)}
	}
	if err := w.producer.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		w.check.Produced(checker.Partition{Topic: topic, Partition: partition}, r.Offset, string(r.Key))
	}
	return records[0].Offset
}

// keys are n keys: prefix0, prefix1 …
func keys(prefix string, n int) []string {
	ks := make([]string, n)
	for i := range ks {
		ks[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return ks
}

// stored is what the group has committed of a partition, −1 if nothing.
func (w *world) stored(partition int32) int64 { return w.storedOf(topic, partition).Offset }

func (w *world) storedOf(topic string, partition int32) kfake.GroupCommit {
	if g := w.cluster().GroupInfo(group); g != nil {
		if c, ok := g.Commits[topic][partition]; ok {
			return c
		}
	}
	return kfake.GroupCommit{Offset: -1}
}

// set stores an offset with metadata as an operator does, while the group has
// no members.
func (w *world) set(partition int32, offset int64, metadata *string) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, TopicID: w.cluster().TopicInfo(topic).TopicID, Partitions: []kmsg.OffsetCommitRequestTopicPartition{
		{Partition: partition, Offset: offset, LeaderEpoch: -1, Metadata: metadata},
	}}}
	resp, err := req.RequestWith(w.t.Context(), w.client())
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits for cond to become true, ten minutes of virtual time or half a
// minute of real time.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	limit, pause := 10*time.Minute, 10*time.Millisecond
	if w.live {
		limit, pause = 30*time.Second, 2*time.Millisecond
	}
	for began := time.Now(); time.Since(began) < limit; {
		if cond() {
			return
		}
		time.Sleep(pause)
	}
	for _, m := range w.members {
		w.t.Logf("%s: %+v\n%s", m.name, m.Stats(), m.log.text())
	}
	w.t.Fatalf("waited in vain for this: %s", what)
}

// verdict demands that every record was handled and no promise broken.
func (w *world) verdict() checker.Report {
	w.t.Helper()
	for _, c := range w.seen() {
		if c.generation < 0 { // of [world.set]
			continue
		}
		if p, err := c.progress(); err != nil { // H-029
			w.t.Errorf("a commit of partition %d at offset %d: %v", c.partition, c.offset, err)
		} else if p.Fence == 0 {
			w.t.Errorf("a commit of partition %d at offset %d tells of no fence", c.partition, c.offset)
		}
	}
	r := w.check.Finish()
	if !r.OK() {
		w.t.Errorf("%s", r)
		for _, m := range w.members {
			w.t.Logf("%s:\n%s", m.name, m.log.text())
		}
	}
	return r
}

// member is one consumer.
type member struct {
	*fronta.Consumer
	name   string
	w      *world
	log    *logs
	cancel context.CancelFunc
	done   chan struct{}
	err    error

	mu          sync.Mutex
	assignments []fronta.TopicPartition
	revocations []fronta.TopicPartition
	losses      []fronta.TopicPartition
	lossErr     error
	refused     []refusal
	confirmed   map[fronta.TopicPartition]int64
	late        int
	started     []start
}

type refusal struct {
	fronta.TopicPartition
	offset int64
	err    error
	at     time.Time
}

type start struct {
	partition int32
	offset    int64
	key       string
	fence     int64
	delivery  int
	at        time.Time
}

type handler = func(context.Context, *fronta.Record) error

// accept is a handler that takes no time.
func accept(context.Context, *fronta.Record) error { return nil }

// takes is a handler that takes d.
func takes(d time.Duration) handler {
	return func(context.Context, *fronta.Record) error {
		time.Sleep(d)
		return nil
	}
}

// join runs a consumer until the test ends or stop is called.
func (w *world) join(name string, cfg fronta.Config, h handler) *member {
	w.t.Helper()
	m := w.prepare(name, cfg)
	m.run(h)
	return m
}

func (w *world) prepare(name string, cfg fronta.Config) *member {
	w.t.Helper()
	m := &member{name: name, w: w, log: new(logs), done: make(chan struct{}), confirmed: make(map[fronta.TopicPartition]int64)}
	cfg.Client = append(w.b.Opts(), cfg.Client...)
	cfg.Group = group
	if cfg.Topics == nil {
		cfg.Topics = []string{topic}
	}
	if cfg.Retry == nil {
		cfg.Retry = fronta.ConstantBackoff(time.Second)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Hooks = append(cfg.Hooks, m)
	c, err := fronta.NewConsumer(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	m.Consumer = c
	w.mu.Lock()
	w.members = append(w.members, m)
	w.mu.Unlock()
	return m
}

func (m *member) run(h handler) {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		m.err = m.Run(ctx, fronta.HandlerFunc(m.watched(h)))
	}()
	m.w.t.Cleanup(func() { m.cancel(); <-m.done })
}

// watched tells the checker of h's attempts.
func (m *member) watched(h handler) handler {
	return func(ctx context.Context, r *fronta.Record) error {
		p := checker.Partition{Topic: r.Topic, Partition: r.Partition}
		m.w.check.Started(m.name, p, r.Offset, r.DeliveryCount, r.Fence)
		m.mu.Lock()
		m.started = append(m.started, start{r.Partition, r.Offset, string(r.Key), r.Fence, r.DeliveryCount, time.Now()})
		m.mu.Unlock()
		result := checker.Failed
		defer func() { m.w.check.Ended(m.name, p, r.Offset, result) }()
		err := h(ctx, r)
		switch {
		case err == nil:
			result = checker.Accepted
		case ctx.Err() != nil:
			result = checker.Abandoned
		}
		return err
	}
}

// stop stops the consumer in good order and returns how long that took, in
// virtual time.
func (m *member) stop() time.Duration {
	m.w.t.Helper()
	began := time.Now()
	m.cancel()
	<-m.done
	if m.err != nil {
		m.w.t.Errorf("%s: Run: %v", m.name, m.err)
	}
	m.w.check.Stopped(m.name)
	return time.Since(began)
}

func (m *member) OnAssigned(ps []fronta.TopicPartition, _ int64) {
	for _, p := range ps {
		m.w.check.Assigned(m.name, checker.Partition(p))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.assignments = append(m.assignments, ps...)
}

func (m *member) OnRevoked(ps []fronta.TopicPartition) {
	for _, p := range ps {
		m.w.check.Revoked(m.name, checker.Partition(p))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.revocations = append(m.revocations, ps...)
}

func (m *member) OnLost(ps []fronta.TopicPartition, err error) {
	for _, p := range ps {
		m.w.check.Lost(m.name, checker.Partition(p))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.losses = append(m.losses, ps...)
	m.lossErr = err
}

func (m *member) OnCommitted(p fronta.TopicPartition, offset int64) {
	m.w.check.Committed(m.name, checker.Partition(p), offset)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.confirmed[p] = offset
}

func (m *member) OnCommitFailed(p fronta.TopicPartition, offset int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused = append(m.refused, refusal{p, offset, err, time.Now()})
}

func (m *member) OnLate(*fronta.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late++
}

func (m *member) starts() []start {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.started)
}

// counts are how often partitions came, went in good order, and were lost.
func (m *member) counts() (assigned, revoked, lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.assignments), len(m.revocations), len(m.losses)
}

func (m *member) refusals() []refusal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.refused)
}

// owned are the partitions that the member has, in order.
func (m *member) owned() []int32 {
	var ps []int32
	for _, p := range m.Stats().Partitions {
		ps = append(ps, p.Partition)
	}
	return ps
}

func (m *member) owns(n int) func() bool {
	return func() bool { return len(m.owned()) == n }
}

func (m *member) accepted(n int64) func() bool {
	return func() bool { return m.Stats().Accepted >= n }
}

// logs keeps what a consumer logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// lines are the lines that contain all of the words.
func (l *logs) lines(words ...string) []string {
	var found []string
	for line := range strings.Lines(l.text()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// part names a partition of topic for the checker.
func part(partition int32) checker.Partition {
	return checker.Partition{Topic: topic, Partition: partition}
}
