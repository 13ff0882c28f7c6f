package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/command"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/group"
	"github.com/fronta-mq/fronta/fake"
	"github.com/fronta-mq/fronta/progress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run calls the command.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	env := &cli.Env{Stdin: strings.NewReader(""), Stdout: &o, Stderr: &e}
	code = cli.Run(t.Context(), env, command.Root(env), args)
	return code, o.String(), e.String()
}

// bundle is a broker with the topic "orders" of four partitions, and a client.
type bundle struct {
	*testing.T
	broker *fake.Broker
	client *kgo.Client
	admin  *kadm.Client
	id     kadm.TopicID
}

func setup(t *testing.T, opts ...fake.Option) *bundle {
	t.Helper()
	t.Parallel()
	broker, err := fake.Start(append([]fake.Option{fake.Topic("orders", 4)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	client, err := kgo.NewClient(append(broker.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	b := &bundle{T: t, broker: broker, client: client, admin: kadm.NewClient(client)}
	topics, err := b.admin.ListTopics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	b.id = topics["orders"].ID
	return b
}

// produce writes n records to a partition of "orders".
func (b *bundle) produce(partition int32, n int) {
	b.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: "orders", Partition: partition, Key: fmt.Append(nil, i%7), Value: []byte("v")}
	}
	if err := b.client.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
		b.Fatal(err)
	}
}

// commit stores an offset and its metadata for the group "billing", which has no members.
func (b *bundle) commit(partition int32, at int64, metadata string) {
	b.Helper()
	o := kadm.Offset{Topic: "orders", Partition: partition, At: at, LeaderEpoch: -1, Metadata: metadata}
	if err := b.admin.CommitAllOffsets(b.Context(), "billing", kadm.Offsets{"orders": {partition: o}}); err != nil {
		b.Fatal(err)
	}
}

// text encodes a progress for a partition of "orders".
func (b *bundle) text(partition int32, p progress.Progress) string {
	b.Helper()
	return encode(b.T, p, progress.Binding{TopicID: b.id, Partition: partition})
}

func encode(t *testing.T, p progress.Progress, bound progress.Binding) string {
	t.Helper()
	var e progress.Encoder
	text, fit := e.Append(nil, &p, bound, progress.Limit{Units: group.AssumedLimit})
	if fit.Horizon != p.Horizon() {
		t.Fatalf("the progress does not fit: %+v", fit)
	}
	return string(text)
}

// describe calls the command with --json; it must exit with the code.
func (b *bundle) describe(code int, args ...string) (d group.Description, stderr string) {
	b.Helper()
	args = append([]string{"group", "describe", "--json", "--brokers", b.broker.Addrs()[0]}, args...)
	got, stdout, stderr := run(b.T, args...)
	if got != code {
		b.Fatalf("exit code %d, want %d: %s%s", got, code, stdout, stderr)
	}
	if (stderr == "") != (code == 0) {
		b.Fatalf("exit code %d, and on stderr %q", code, stderr)
	}
	if stdout != "" {
		if err := json.Unmarshal([]byte(stdout), &d); err != nil {
			b.Fatalf("%v: %s", err, stdout)
		}
	}
	return d, stderr
}

// only describes a group with one partition.
func (b *bundle) only(args ...string) group.Partition {
	b.Helper()
	d, _ := b.describe(0, append([]string{"billing"}, args...)...)
	if len(d.Partitions) != 1 {
		b.Fatalf("%d partitions, want one: %+v", len(d.Partitions), d)
	}
	return d.Partitions[0]
}

// told is a progress with nothing special.
func told(offset int64, segments ...progress.Segment) progress.Progress {
	return progress.Progress{Offset: offset, Segments: segments, Epoch: -1, Fence: 216_000_000_000, Clean: true, Suspect: -1}
}

func heads(from, to int64, more ...int64) []progress.Range {
	ranges := []progress.Range{{From: from, To: to}}
	for i := 0; i < len(more); i += 2 {
		ranges = append(ranges, progress.Range{From: more[i], To: more[i+1]})
	}
	return ranges
}

// lanes is what a consumer in key order has told at offset 100.
func lanes(offset int64) progress.Progress {
	return told(offset, progress.Segment{End: offset + 800, Order: "key", Check: 7, Heads: heads(offset, offset+2, offset+400, offset+401), Markers: []int64{offset + 400}})
}

func TestGroupDescribe(t *testing.T) {
	b := setup(t)
	for p := range int32(4) {
		b.produce(p, 1000)
	}
	b.commit(0, 100, b.text(0, lanes(100)))
	former := progress.Segment{End: 500, Order: "unordered", Heads: heads(200, 210, 300, 301)}
	dirty := told(200, former, progress.Segment{End: 990, Order: "partition", Check: 9, Heads: heads(980, 981)})
	dirty.Clean, dirty.Starts, dirty.Suspect = false, 3, 205
	dirty.Crashes = []progress.Count{{Offset: 205, N: 2}}
	dirty.Attempts = []progress.Count{{Offset: 200, N: 4}, {Offset: 300, N: 1}}
	b.commit(1, 200, b.text(1, dirty))
	b.commit(2, 1000, b.text(2, told(1000)))
	b.commit(3, 300, "")

	d, _ := b.describe(0, "billing")
	if d.Group != "billing" || d.Type != "classic" || d.State != "Empty" || len(d.Members) != 0 || len(d.Partitions) != 4 {
		t.Fatalf("%+v", d)
	}
	if d.MetadataLimit.Units != group.AssumedLimit || !strings.Contains(d.MetadataLimit.Assumed, "does not tell") {
		t.Errorf("limit %+v", d.MetadataLimit)
	}
	for i, want := range []struct {
		committed, lag, unfinished int64
		exact                      bool
		format                     progress.Format
		verdict                    string
	}{
		{100, 900, 2 + 100, false, progress.Fronta, group.Trusted}, // two heads and a marker below 900
		{200, 800, 11 + 10 + 10, true, progress.Fronta, group.Trusted},
		{1000, 0, 0, true, progress.Fronta, group.Trusted},
		{300, 700, 700, true, progress.None, ""},
	} {
		p := d.Partitions[i]
		if p.Topic != "orders" || int(p.Partition) != i || *p.Committed != want.committed || *p.End != 1000 || *p.Lag != want.lag {
			t.Errorf("partition %d: %+v", i, p)
		}
		if *p.UnfinishedMin != want.unfinished || p.UnfinishedExact != want.exact || p.Format != want.format || p.Verdict != want.verdict {
			t.Errorf("partition %d: unfinished %d (%v), %s, %q; want %+v", i, *p.UnfinishedMin, p.UnfinishedExact, p.Format, p.Verdict, want)
		}
		if (p.Units > 0) != (i != 3) {
			t.Errorf("partition %d: %d units", i, p.Units)
		}
	}
	if d.Lag != 2400 || d.UnfinishedMin != 833 || d.UnfinishedExact {
		t.Errorf("lag %d, unfinished %d (%v)", d.Lag, d.UnfinishedMin, d.UnfinishedExact)
	}
	v := d.Partitions[0].Progress
	if v.Horizon != 900 || v.Heads != 2 || v.Markers != 1 || !v.Clean || v.Fence != 216_000_000_000 || v.Epoch != -1 || v.Suspect != nil ||
		len(v.Segments) != 1 || v.Segments[0] != (group.Segment{Order: "key", End: 900, Heads: 2, Markers: 1}) {
		t.Errorf("%+v", v)
	}
	v = d.Partitions[1].Progress
	if v.Horizon != 990 || v.Heads != 12 || v.Clean || v.Starts != 3 || *v.Suspect != 205 || len(v.Crashes) != 1 || v.Attempts != 2 ||
		len(v.Segments) != 2 || v.Segments[1].Order != "partition" {
		t.Errorf("%+v", v)
	}
	if d.Partitions[3].Progress != nil {
		t.Errorf("%+v", d.Partitions[3].Progress)
	}

	if d, _ := b.describe(0, "billing", "--topic", "orders"); len(d.Partitions) != 4 {
		t.Errorf("%d partitions of the topic", len(d.Partitions))
	}
	code, stdout, stderr := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0])
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	for _, line := range []string{
		"group billing: Empty, classic protocol, 0 members, coordinator 0",
		"lag 2,400, unfinished >= 833",
		"metadata may have 4,096 units (assumed: broker 0 does not tell its offset.metadata.max.bytes)",
		"topic partition committed end lag unfinished horizon heads markers order format units clean fence member",
		fmt.Sprintf("orders 0 100 1,000 900 >= 102 900 2 1 key fronta %d yes 216000000000 -", d.Partitions[0].Units),
		fmt.Sprintf("orders 1 200 1,000 800 31 990 12 0 unordered, partition fronta %d no 216000000000 -", d.Partitions[1].Units),
		"orders 3 300 1,000 700 700 - - - - none 0 - - -",
		"topic orders partition 1: before the last owner 3 owners in a row began at 200 and did not end in good order",
		"topic orders partition 1: records are started one at a time to find one that ends the process; the last was 205",
		"topic orders partition 1: the process ended 2 times while record 205 ran",
		"topic orders partition 1: 2 records with failed attempts",
	} {
		if !hasLine(stdout, line) {
			t.Errorf("no line %q in\n%s", line, stdout)
		}
	}
}

// hasLine looks for a line, whatever the spaces.
func hasLine(text, line string) bool {
	for l := range strings.Lines(text) {
		if strings.Join(strings.Fields(l), " ") == line {
			return true
		}
	}
	return false
}

// A consumer takes nothing as finished then, and neither is it told here (H-023, H-030, H-031, H-142).
func TestGroupDescribeRefuses(t *testing.T) {
	b := setup(t)
	for p := range int32(4) {
		b.produce(p, 1000)
	}
	at := func(offset int64) string { return b.text(0, lanes(offset)) }
	for name, c := range map[string]struct {
		partition int32
		committed int64
		metadata  string
		reason    string
		progress  bool // is known all the same
	}{
		"the horizon is beyond the end": {0, 300, at(300), "horizon 1,100 lies beyond the log's end 1,000", true},
		"another offset":                {0, 50, at(100), "", false},
		"another partition":             {1, 100, at(100), "", false},
		"another topic":                 {0, 100, encode(t, lanes(100), progress.Binding{TopicID: [16]byte{1}}), "", false},
		"a text that was cut":           {0, 100, at(100)[:20], "", false},
		"a client's id":                 {0, 100, "kgo-2b9d7a", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bundle{T: t, broker: b.broker, client: b.client, admin: b.admin, id: b.id}
			for p := range int32(4) {
				b.commit(p, 1000, "")
			}
			b.commit(c.partition, c.committed, c.metadata)
			d, _ := b.describe(0, "billing")
			p := d.Partitions[c.partition]
			if p.Verdict != group.Refused || p.Reason == "" || !strings.Contains(p.Reason, c.reason) || (p.Progress != nil) != c.progress {
				t.Errorf("%+v, %+v", p, p.Progress)
			}
			if *p.UnfinishedMin != 1000-c.committed || !p.UnfinishedExact {
				t.Errorf("unfinished %d (%v)", *p.UnfinishedMin, p.UnfinishedExact)
			}
			_, stdout, _ := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0])
			if !strings.Contains(stdout, "its metadata is refused, a consumer takes nothing as finished: "+p.Reason) {
				t.Errorf("the reason is not in\n%s", stdout)
			}
			if strings.Contains(stdout, c.metadata) { // H-141
				t.Errorf("the text is in\n%s", stdout)
			}
		})
	}
}

// answerEpoch makes the brokers tell which leader epoch is the last one up to that asked for, and where it ends.
func (b *bundle) answerEpoch(epoch int32, end int64, code int16) {
	b.broker.Cluster().ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.broker.Cluster().KeepControl()
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.EndOffset, rp.ErrorCode = p.Partition, epoch, end, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

// A log that was truncated and written again has other records at the same offsets.
func TestGroupDescribeLeaderEpoch(t *testing.T) {
	const gone = "nothing of leader epoch 5 is in the log"
	for name, c := range map[string]struct {
		epoch  int32
		end    int64
		code   int16
		reason string
	}{
		"as far as it was":      {5, 900, 0, ""},
		"not known":             {-1, -1, 0, gone},
		"an earlier one":        {4, 950, 0, gone},
		"truncated":             {5, 899, 0, "leader epoch 5 ends at 899, below its horizon 900: the log was truncated"},
		"told to brokers alone": {-1, -1, kerr.ClusterAuthorizationFailed.Code, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.produce(0, 1000)
			p := lanes(100)
			p.Epoch = 5
			b.commit(0, 100, b.text(0, p))
			b.answerEpoch(c.epoch, c.end, c.code)
			got := b.only()
			if c.reason == "" && (got.Verdict != group.Trusted || got.Progress.Epoch != 5) {
				t.Errorf("%+v, %+v", got, got.Progress)
			}
			if c.reason != "" && (got.Verdict != group.Refused || !strings.HasPrefix(got.Reason, c.reason)) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// The broker's own answer, for an epoch that has never been.
func TestGroupDescribeUnknownLeaderEpoch(t *testing.T) {
	b := setup(t)
	b.produce(0, 1000)
	p := lanes(100)
	p.Epoch = 99
	b.commit(0, 100, b.text(0, p))
	if got := b.only(); got.Verdict != group.Refused || !strings.Contains(got.Reason, "leader epoch 99") {
		t.Errorf("%+v", got)
	}
}

// What can't be checked is neither trusted nor refused.
func TestGroupDescribeUncheckedLeaderEpoch(t *testing.T) {
	b := setup(t)
	b.produce(0, 1000)
	p := lanes(100)
	p.Epoch = 0
	b.commit(0, 100, b.text(0, p))
	if got := b.only(); got.Verdict != group.Trusted {
		t.Errorf("%+v", got)
	}
	b.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1})
	d, stderr := b.describe(1, "billing")
	got := d.Partitions[0]
	if got.Verdict != group.Unchecked || got.Progress == nil || got.UnfinishedMin != nil || *got.Lag != 900 || d.UnfinishedExact {
		t.Errorf("%+v", d)
	}
	if !strings.Contains(stderr, `ask how far the leader epoch of its progress goes: the broker denies it: grant DESCRIBE on Topic "orders"`) {
		t.Error(stderr)
	}
	_, stdout, _ := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0])
	if line := fmt.Sprintf("orders 0 100 1,000 900 - 900 2 1 key fronta, unchecked %d yes 216000000000 -", got.Units); !hasLine(stdout, line) {
		t.Errorf("no line %q in\n%s", line, stdout)
	}
}

// A look changes nothing, not even where topics are made by being looked at.
func TestGroupDescribeMakesNoTopic(t *testing.T) {
	b := setup(t, fake.ClusterOptions(kfake.AllowAutoTopicCreation()))
	b.commit(0, 0, "")
	if _, stderr := b.describe(1, "billing", "--topic", "nowhere"); !strings.Contains(stderr, `topic "nowhere"`) {
		t.Error(stderr)
	}
	topics, err := b.admin.ListTopics(t.Context())
	if err != nil || topics.Has("nowhere") {
		t.Errorf("%v, %v", topics.Names(), err)
	}
}

func TestGroupDescribeLogStart(t *testing.T) {
	b := setup(t)
	b.produce(0, 1000)
	b.commit(0, 100, b.text(0, lanes(100)))
	if _, err := b.admin.DeleteRecords(t.Context(), kadm.Offsets{"orders": {0: {Topic: "orders", At: 150}}}); err != nil {
		t.Fatal(err)
	}
	got := b.only()
	if got.Verdict != group.Refused || !strings.Contains(got.Reason, "the log begins at 150") || *got.LogStart != 150 || *got.Lag != 900 || *got.UnfinishedMin != 850 {
		t.Errorf("%+v", got)
	}
	if _, stdout, _ := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0]); !strings.Contains(stdout, "50 offsets were deleted before they were finished") {
		t.Error(stdout)
	}
}

// A commit beyond the end, as after a topic was deleted and made again, and one of a topic that is gone.
func TestGroupDescribeCommitsThatAreLeft(t *testing.T) {
	b := setup(t, fake.Topic("nowhere", 1))
	b.produce(0, 10)
	b.commit(0, 50, b.text(0, told(50))) // no horizon to be beyond the end
	gone := kadm.Offset{Topic: "nowhere", Partition: 0, At: 5, LeaderEpoch: -1, Metadata: "x"}
	if err := b.admin.CommitAllOffsets(t.Context(), "billing", kadm.Offsets{"nowhere": {0: gone}}); err != nil {
		t.Fatal(err)
	}
	// The embedded broker forgets commits with their topic; others take their time.
	b.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "nowhere", Err: kerr.UnknownTopicOrPartition, Count: -1})
	d, _ := b.describe(0, "billing")
	if len(d.Partitions) != 2 {
		t.Fatalf("%+v", d.Partitions)
	}
	if p := d.Partitions[0]; !p.Gone || p.End != nil || p.Lag != nil || p.Verdict != group.Refused {
		t.Errorf("%+v", p)
	}
	if p := d.Partitions[1]; *p.Lag != 0 || *p.UnfinishedMin != 0 || p.Verdict != group.Trusted {
		t.Errorf("%+v", p)
	}
	_, stdout, _ := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0])
	for _, line := range []string{
		"topic nowhere partition 0: it does not exist any more, what is committed of it has no meaning",
		"topic orders partition 0: 50 is committed, beyond the log's end",
	} {
		if !hasLine(stdout, line) {
			t.Errorf("no line %q in\n%s", line, stdout)
		}
	}
}

// Members and what they have, under both group protocols, with a commit and without one.
func TestGroupDescribeMembers(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.ServerSideBalancer()}} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.produce(0, 10)
			member, err := kgo.NewClient(append(append(b.broker.Opts(), kgo.ConsumerGroup("billing"), kgo.ConsumeTopics("orders"),
				kgo.ClientID("worker\x1b[2J"), kgo.DisableAutoCommit()), opts...)...)
			if err != nil {
				t.Fatal(err)
			}
			defer member.Close()
			if fetches := member.PollFetches(t.Context()); fetches.Err() != nil {
				t.Fatal(fetches.Err())
			}
			// Left alone the client stores its member id, which may look like the beginning of anything.
			ctx := kgo.PreCommitFnContext(t.Context(), func(req *kmsg.OffsetCommitRequest) error {
				req.Topics[0].Partitions[0].Metadata = kmsg.StringPtr("no progress")
				return nil
			})
			member.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{"orders": {0: {Offset: 4, Epoch: -1}}},
				func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
					if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
						t.Fatal(err, resp)
					}
				})
			d, _ := b.describe(0, "billing")
			if d.Type != name || d.State != "Stable" || d.Protocol == "" || len(d.Members) != 1 || len(d.Partitions) != 4 {
				t.Fatalf("%+v", d)
			}
			m := d.Members[0]
			if m.ClientID != "worker\x1b[2J" || len(m.Partitions) != 1 || len(m.Partitions[0].Partitions) != 4 || (m.Epoch < 0) != (name == "classic") {
				t.Errorf("%+v", m)
			}
			for i, p := range d.Partitions {
				if p.Member != m.ID || (p.Committed == nil) != (i > 0) || (p.Lag == nil) != (i > 0) || (p.UnfinishedMin == nil) != (i > 0) || p.End == nil {
					t.Errorf("%+v", p)
				}
			}
			if d.Lag != 6 || d.UnfinishedMin != 6 || !d.UnfinishedExact {
				t.Errorf("%+v", d)
			}
			_, stdout, _ := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0])
			for _, line := range []string{
				"orders 0 4 10 6 6 - - - - unreadable 11 - - worker\uFFFD[2J",
				"orders 3 - 0 - - - - - - - 0 - - worker\uFFFD[2J",
				"topic orders partition 3: nothing is committed, its owner begins where its configuration says",
			} {
				if !hasLine(stdout, line) {
					t.Errorf("no line %q in\n%s", line, stdout)
				}
			}
			if strings.Contains(stdout, "\x1b") {
				t.Errorf("a control character is in %q", stdout)
			}
		})
	}
}

func TestGroupDescribeFails(t *testing.T) {
	b := setup(t, fake.Topic("refunds", 1))
	b.produce(0, 10)
	b.produce(1, 10)
	b.commit(0, 5, "")
	b.commit(1, 5, "")
	heartbeat := kmsg.NewPtrShareGroupHeartbeatRequest()
	heartbeat.GroupID, heartbeat.MemberID, heartbeat.SubscribedTopicNames = "shared", "4a9c1c1e-8a61-4b9e-9e0f-3b6c7f5d2e10", []string{"orders"}
	if answer, err := heartbeat.RequestWith(t.Context(), b.client); err != nil || answer.ErrorCode != 0 {
		t.Fatal(err, answer)
	}
	for name, c := range map[string]struct {
		args  []string
		fault *kfake.Fault
		want  string
	}{
		"unknown":              {[]string{"nobody"}, nil, `group "nobody" is unknown to the cluster`},
		"a share group":        {[]string{"shared"}, nil, `group "shared" is a share group, not a consumer group`},
		"no such topic":        {[]string{"billing", "--topic", "nowhere"}, nil, `topic "nowhere": look it up: UNKNOWN_TOPIC_OR_PARTITION`},
		"another topic":        {[]string{"billing", "--topic", "refunds"}, nil, `group "billing" has no commit and no member for topic "refunds"`},
		"no permission at all": {[]string{"billing"}, &kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Group: "billing", Err: kerr.GroupAuthorizationFailed}, `grant DESCRIBE on Group "billing"`},
		"not to be described":  {[]string{"billing"}, &kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupDescribe}, Err: kerr.GroupAuthorizationFailed}, `describe it: the broker denies it: grant DESCRIBE on Group "billing": GROUP_AUTHORIZATION_FAILED`},
		"no classic one":       {[]string{"billing"}, &kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeGroups}, Err: kerr.GroupAuthorizationFailed}, `grant DESCRIBE on Group "billing"`},
		"not to be read":       {[]string{"billing"}, &kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: "billing", Err: kerr.GroupAuthorizationFailed}, `read its commits: the broker denies it: grant DESCRIBE on Group "billing"`},
		"no right to a topic":  {[]string{"billing", "--topic", "orders"}, &kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "orders", Err: kerr.TopicAuthorizationFailed, Count: -1}, `grant DESCRIBE on Topic "orders"`},
		"a broker's failure":   {[]string{"billing"}, &kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: "billing", Err: kerr.UnknownServerError}, `group "billing": read its commits: UNKNOWN_SERVER_ERROR`},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bundle{T: t, broker: b.broker, client: b.client}
			if c.fault != nil {
				defer b.broker.Cluster().Fault(*c.fault).Remove()
			}
			d, stderr := b.describe(1, c.args...)
			if d.Group != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("%+v, %q; want %q", d, stderr, c.want)
			}
		})
	}

	// What is known of other partitions is printed all the same.
	for name, c := range map[string]struct {
		fault kfake.Fault
		want  string
	}{
		"no end":   {kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Partitions: []int32{1}, Err: kerr.UnknownServerError, Count: -1}, `topic "orders": ask where its log begins and ends: UNKNOWN_SERVER_ERROR`},
		"no right": {kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "orders", Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed, Count: -1}, `grant DESCRIBE on Topic "orders"`},
	} {
		t.Run(name, func(t *testing.T) {
			b := &bundle{T: t, broker: b.broker, client: b.client}
			defer b.broker.Cluster().Fault(c.fault).Remove()
			d, stderr := b.describe(1, "billing")
			if !strings.Contains(stderr, `group "billing": 1 of 2 partitions could not be looked at; the first: partition 1: `) || !strings.Contains(stderr, c.want) {
				t.Errorf("%q", stderr)
			}
			if len(d.Partitions) != 2 || *d.Partitions[0].Lag != 5 || d.Partitions[1].Lag != nil || !strings.Contains(d.Partitions[1].Error, c.want) || d.UnfinishedExact {
				t.Errorf("%+v", d)
			}
		})
	}
}

// The limit is the coordinator's, if it may be asked for.
func TestGroupDescribeLimit(t *testing.T) {
	for name, c := range map[string]struct {
		value   string
		err     *kerr.Error
		units   int
		assumed string
	}{
		"told":       {"100", nil, 100, ""},
		"no number":  {"many", nil, group.AssumedLimit, "broker 0 does not tell its offset.metadata.max.bytes"},
		"not to ask": {"", kerr.ClusterAuthorizationFailed, group.AssumedLimit, "grant DESCRIBE_CONFIGS on the Cluster"},
		"an error":   {"", kerr.UnknownServerError, group.AssumedLimit, "ask broker 0 for its offset.metadata.max.bytes: UNKNOWN_SERVER_ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.produce(0, 10)
			b.commit(0, 5, strings.Repeat("é", 101))
			b.broker.Cluster().ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
				b.broker.Cluster().KeepControl()
				asked := req.(*kmsg.DescribeConfigsRequest).Resources[0]
				resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
				r := kmsg.NewDescribeConfigsResponseResource()
				r.ResourceType, r.ResourceName = asked.ResourceType, asked.ResourceName
				if c.err != nil {
					r.ErrorCode = c.err.Code
				} else if len(asked.ConfigNames) == 1 {
					cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
					cfg.Name, cfg.Value = asked.ConfigNames[0], &c.value
					r.Configs = append(r.Configs, cfg)
				}
				resp.Resources = append(resp.Resources, r)
				return resp, nil, true
			})
			d, _ := b.describe(0, "billing")
			if d.MetadataLimit.Units != c.units || !strings.Contains(d.MetadataLimit.Assumed, c.assumed) || (d.MetadataLimit.Assumed == "") != (c.assumed == "") {
				t.Errorf("%+v", d.MetadataLimit)
			}
			_, stdout, _ := run(t, "group", "describe", "billing", "--brokers", b.broker.Addrs()[0])
			if above := strings.Contains(stdout, "its metadata has 101 units, more than the broker takes now"); above != (c.units == 100) {
				t.Error(stdout)
			}
		})
	}
}

// Brokers without the newer group protocols, without topic ids, and that don't tell consumers of leader epochs.
func TestGroupDescribeOldBroker(t *testing.T) {
	for name, c := range map[string]struct {
		versions *kversion.Versions
		verdict  string
	}{
		"2.2": {kversion.V2_2_0(), group.Trusted},
		"2.6": {kversion.V2_6_0(), group.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, fake.ClusterOptions(kfake.MaxVersions(c.versions)))
			b.produce(0, 1000)
			b.id = kadm.TopicID{}
			p := lanes(100)
			p.Epoch = 99
			b.commit(0, 100, b.text(0, p))
			if got := b.only(); got.Verdict != c.verdict {
				t.Errorf("%+v", got)
			}
			if _, stderr := b.describe(1, "nobody"); !strings.Contains(stderr, "unknown to the cluster") {
				t.Error(stderr)
			}
		})
	}
}

func TestGroupDescribeWithoutAnswer(t *testing.T) {
	t.Parallel()
	if code, stdout, stderr := run(t, "group", "describe", "billing", "--brokers", "127.0.0.1:1"); code != 1 || stdout != "" || !strings.Contains(stderr, "brokers at 127.0.0.1:1: ") || !strings.Contains(stderr, "refused") {
		t.Errorf("nobody listens: exit code %d, %s%s", code, stdout, stderr)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	code, stdout, stderr := run(t, "group", "describe", "billing", "--brokers", l.Addr().String(), "--timeout", "200ms")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "no answer from "+l.Addr().String()+" within 200ms (--timeout)") {
		t.Errorf("nobody answers: exit code %d, %s%s", code, stdout, stderr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var o, e bytes.Buffer
	env := &cli.Env{Stdout: &o, Stderr: &e}
	if code := cli.Run(ctx, env, command.Root(env), []string{"group", "describe", "billing", "--brokers", l.Addr().String()}); code != 1 || !strings.Contains(e.String(), "interrupted") {
		t.Errorf("interrupted: exit code %d, %s", code, e.String())
	}
}

func TestGroupUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"group describe":                   "accepts 1 arg(s), received 0",
		"group describe a b":               "accepts 1 arg(s), received 2",
		"group describe a --brokers :9092": "host:port",
		"group describe a --brokers=":      "--brokers names none",
		"group describe a --topic=":        "--topic is empty",
		"group describe a --timeout 1ms":   "--timeout 1ms: it must be from 100ms to 10m0s",
		"group nosuch":                     `unknown command "nosuch" for "fronta group"`,
	} {
		if code, stdout, stderr := run(t, strings.Fields(args)...); code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
	if code, _, stderr := run(t, "group", "describe", ""); code != cli.ExitUsage || !strings.Contains(stderr, "name is empty") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if code, stdout, _ := run(t, "group", "describe", "--help"); code != 0 || !strings.Contains(stdout, "unfinished_exact") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}
