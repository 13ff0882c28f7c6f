package fake_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts ...fake.Option) *fake.Broker {
	t.Helper()
	b, err := fake.Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func client(t *testing.T, b *fake.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(b.Opts(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// within is a deadline that only a broken test reaches.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func produce(t *testing.T, c *kgo.Client, topic string, values ...string) {
	t.Helper()
	records := make([]*kgo.Record, 0, len(values))
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(v)})
	}
	if err := c.ProduceSync(within(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// consume polls until n records came.
func consume(t *testing.T, c *kgo.Client, n int) []string {
	t.Helper()
	ctx := within(t)
	var values []string
	for len(values) < n {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", len(values), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func TestStartWithDefaults(t *testing.T) {
	t.Parallel()
	b := start(t, fake.Topic("orders", 1))
	if got := b.Addrs(); len(got) != 1 || !strings.HasPrefix(got[0], "127.0.0.1:") {
		t.Fatalf("Addrs() = %q, want one on 127.0.0.1", got)
	}
	produce(t, client(t, b), "orders", "a", "b")
	got := consume(t, client(t, b, kgo.ConsumeTopics("orders")), 2)
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestBrokersAtOnceDoNotMeet(t *testing.T) {
	t.Parallel()
	one, two := start(t), start(t)
	if one.Addrs()[0] == two.Addrs()[0] {
		t.Errorf("two brokers share %s", one.Addrs()[0])
	}
}

func TestTopicsHaveTheirPartitions(t *testing.T) {
	t.Parallel()
	b := start(t, fake.Topic("orders", 4), fake.Topic("refunds", 1), fake.Brokers(3))
	topics, err := kadm.NewClient(client(t, b)).ListTopics(within(t))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, d := range topics {
		got[d.Topic] = fmt.Sprintf("%d partitions, %d replicas", len(d.Partitions), d.Partitions.NumReplicas())
	}
	want := map[string]string{"orders": "4 partitions, 3 replicas", "refunds": "1 partitions, 3 replicas"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAddrIsWhatClientsAreTold(t *testing.T) {
	t.Parallel()
	// Other systems have 127.0.0.1 alone on the loopback interface.
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skip(err)
	} else {
		l.Close()
	}
	b := start(t, fake.Addr("127.0.0.2:0"), fake.Brokers(2))
	brokers, err := kadm.NewClient(client(t, b)).ListBrokers(within(t))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, d := range brokers {
		told = append(told, fmt.Sprintf("%s:%d", d.Host, d.Port))
	}
	if diff := cmp.Diff(b.Addrs(), told); diff != "" {
		t.Error(diff)
	}
	for _, addr := range told {
		if !strings.HasPrefix(addr, "127.0.0.2:") {
			t.Errorf("a broker is at %s, not on 127.0.0.2", addr)
		}
	}
}

func TestBrokersTakeThePortsThatFollow(t *testing.T) {
	t.Parallel()
	got := start(t, fake.Virtual(), fake.Addr("localhost:19000"), fake.Brokers(3)).Addrs()
	if diff := cmp.Diff([]string{"localhost:19000", "localhost:19001", "localhost:19002"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	addr := start(t).Addrs()[0]
	b, err := fake.Start(fake.Addr(addr))
	if err == nil {
		b.Close()
	}
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), addr) {
		t.Errorf("Start on %s, which is in use: %v", addr, err)
	}
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		opts []fake.Option
		want string
	}{
		"no broker":            {[]fake.Option{fake.Brokers(0)}, "fake: Brokers(0): a cluster has at least one broker"},
		"negative brokers":     {[]fake.Option{fake.Brokers(-1)}, "at least one broker"},
		"no port":              {[]fake.Option{fake.Addr("localhost")}, `fake: Addr("localhost"): not of the form host:port`},
		"port by name":         {[]fake.Option{fake.Addr("localhost:kafka")}, `port "kafka" is not a number`},
		"port too high":        {[]fake.Option{fake.Addr("localhost:65536")}, "from 0 to 65535"},
		"negative port":        {[]fake.Option{fake.Addr("localhost:-1")}, "from 0 to 65535"},
		"ports run out":        {[]fake.Option{fake.Addr("localhost:65535"), fake.Brokers(2)}, "no room for 2 brokers"},
		"every interface":      {[]fake.Option{fake.Addr("0.0.0.0:0")}, "a host that they can reach"},
		"every interface, v6":  {[]fake.Option{fake.Addr("[::]:0")}, "a host that they can reach"},
		"no host":              {[]fake.Option{fake.Addr(":9092")}, "a host that they can reach"},
		"virtual elsewhere":    {[]fake.Option{fake.Addr("10.0.0.1:1"), fake.Virtual()}, "only the hosts localhost and"},
		"topic without name":   {[]fake.Option{fake.Topic("", 1)}, `fake: Topic("", 1): the topic has no name`},
		"topic named dots":     {[]fake.Option{fake.Topic("..", 1)}, "cannot be named"},
		"topic with a slash":   {[]fake.Option{fake.Topic("a/b", 1)}, "not '/'"},
		"topic with umlaut":    {[]fake.Option{fake.Topic("fröhlich", 1)}, "not 'ö'"},
		"long topic":           {[]fake.Option{fake.Topic(strings.Repeat("a", 250), 1)}, "longer than 249"},
		"no partitions":        {[]fake.Option{fake.Topic("a", 0)}, "at least one partition"},
		"too many partitions":  {[]fake.Option{fake.Topic("a", 1_000_000)}, "at most 10000 partitions"},
		"topic named twice":    {[]fake.Option{fake.Topic("a", 1), fake.Topic("a", 2)}, "named twice"},
		"topics named alike":   {[]fake.Option{fake.Topic("a.b", 1), fake.Topic("a_b", 1)}, "from that of topic a.b only"},
		"option among options": {[]fake.Option{fake.Topic("a", 1), fake.Brokers(0), fake.Virtual()}, "Brokers(0)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := fake.Start(tt.opts...)
			if err == nil {
				b.Close()
				t.Fatal("Start took it")
			}
			var option *fake.OptionError
			if !errors.As(err, &option) {
				t.Errorf("%T is not an OptionError", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
		})
	}
	longest := strings.Repeat("a", 249)
	if b := start(t, fake.Virtual(), fake.Topic(longest, 1)); b.Cluster().TopicInfo(longest) == nil {
		t.Error("a topic with a name of 249 characters is missing")
	}
}

func TestOptsMayBeAppendedTo(t *testing.T) {
	t.Parallel()
	b := start(t, fake.Virtual())
	b.Addrs()[0] = "localhost:1"
	one, two := append(b.Opts(), kgo.ClientID("one")), append(b.Opts(), kgo.ClientID("two"))
	for want, opts := range map[string][]kgo.Opt{"one": one, "two": two} {
		c, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.OptValue(kgo.ClientID); cmp.Diff(want, fmt.Sprint(got)) != "" {
			t.Errorf("client id %v, want %s", got, want)
		}
		if err := c.Ping(within(t)); err != nil {
			t.Error(err)
		}
	}
}

// Apache Kafka and kfake by itself refuse a session timeout below 6 s.
func TestShortSessionTimeouts(t *testing.T) {
	t.Parallel()
	b := start(t, fake.Topic("orders", 1))
	produce(t, client(t, b), "orders", "a")
	consume(t, client(t, b, kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("billing"),
		kgo.SessionTimeout(200*time.Millisecond), kgo.HeartbeatInterval(50*time.Millisecond)), 1)
}

func TestConfigs(t *testing.T) {
	t.Parallel()
	given := map[string]string{"message.max.bytes": "2000", "group.share.heartbeat.interval.ms": ""}
	opt := fake.Configs(given)
	given["message.max.bytes"] = "1" // the option has a copy
	b := start(t, opt, fake.Configs(map[string]string{"log.retention.ms": "1000"}))
	resources, err := kadm.NewClient(client(t, b)).DescribeBrokerConfigs(within(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"message.max.bytes":                    "2000", // given
		"log.retention.ms":                     "1000", // given in another option
		"group.consumer.heartbeat.interval.ms": "100",  // this package's default
		"group.share.heartbeat.interval.ms":    "",     // taken back: kfake shows an unset configuration so
	}
	got := make(map[string]string)
	for _, r := range resources {
		for _, c := range r.Configs {
			if _, ok := want[c.Key]; ok {
				got[c.Key] = c.MaybeValue()
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClusterOptions(t *testing.T) {
	t.Parallel()
	b := start(t, fake.ClusterOptions(kfake.MaxVersions(kversion.V2_1_0()), kfake.ClusterID("test"), kfake.NumBrokers(7)))
	versions, err := kadm.NewClient(client(t, b)).ApiVersions(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if newest, ok := v.KeyMaxVersion(kmsg.Produce.Int16()); !ok || newest != 7 {
			t.Errorf("produce requests up to version %d, want Kafka 2.1's 7", newest)
		}
	}
	if n := len(b.Addrs()); n != 1 {
		t.Errorf("%d brokers: ClusterOptions overrode Brokers", n)
	}
}

func TestFaultsThroughTheCluster(t *testing.T) {
	t.Parallel()
	b := start(t, fake.Virtual(), fake.Topic("orders", 1))
	h := b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "orders", Err: kerr.MessageTooLarge})
	err := client(t, b).ProduceSync(within(t), &kgo.Record{Topic: "orders"}).FirstErr()
	if !errors.Is(err, kerr.MessageTooLarge) || h.Hits() != 1 {
		t.Errorf("produce: %v after %d faults, want MESSAGE_TOO_LARGE after 1", err, h.Hits())
	}
}

func TestNodesAddedToAVirtualNetwork(t *testing.T) {
	t.Parallel()
	b := start(t, fake.Virtual(), fake.Brokers(2))
	if _, port, err := b.Cluster().AddNode(-1, 0); err != nil || port != 9094 {
		t.Errorf("AddNode: port %d, %v; want 9094 after 9092 and 9093", port, err)
	}
	if diff := cmp.Diff([]string{"localhost:9092", "localhost:9093"}, b.Addrs()); diff != "" {
		t.Error(diff)
	}
}

func TestLoggerHearsTheCluster(t *testing.T) {
	t.Parallel()
	var out lockedBuilder
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelError}))
	dir := t.TempDir()
	b := start(t, fake.DataDir(dir), fake.Topic("orders", 1), fake.Logger(log))
	breakDir(t, dir)
	b.Close()
	if !strings.Contains(out.String(), "level=ERROR msg=\"persist to disk: ") {
		t.Errorf("log: %q", out.String())
	}
}

func TestCloseManyTimes(t *testing.T) {
	t.Parallel()
	b := start(t, fake.DataDir(t.TempDir()))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			b.Close()
			if c, err := net.Dial("tcp", b.Addrs()[0]); err == nil {
				c.Close()
				t.Error("Close returned while the broker still listened")
			}
		})
	}
	all.Wait()
}

func TestDataDirKeepsTopicsRecordsAndOffsets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "by", "start")
	first := start(t, fake.DataDir(dir), fake.Topic("orders", 2), fake.SyncWrites())
	c := client(t, first, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce(t, c, "orders", "a", "b", "c")
	adm := kadm.NewClient(c)
	offset := kadm.Offset{Topic: "orders", Partition: 0, At: 2, LeaderEpoch: -1, Metadata: "kept"}
	if err := adm.CommitAllOffsets(within(t), "billing", kadm.Offsets{"orders": {0: offset}}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	first.Close()

	second := start(t, fake.DataDir(dir), fake.Topic("orders", 2), fake.Topic("refunds", 1))
	if second.Cluster().TopicInfo("refunds") == nil {
		t.Error("a topic that the directory lacked was not created")
	}
	c = client(t, second, kgo.ConsumeTopics("orders"))
	if diff := cmp.Diff([]string{"a", "b", "c"}, consume(t, c, 3)); diff != "" {
		t.Error(diff)
	}
	offsets, err := kadm.NewClient(c).FetchOffsets(within(t), "billing")
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := offsets.Lookup("orders", 0); got.At != 2 || got.Metadata != "kept" {
		t.Errorf("committed offset %d with metadata %q, want 2 with \"kept\"", got.At, got.Metadata)
	}
	c.Close()
	second.Close()
	for _, b := range []*fake.Broker{first, second} {
		if err := b.Err(); err != nil {
			t.Error(err)
		}
	}
}

func TestDataDirBelongsToOneBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, fake.DataDir(dir))
	b, err := fake.Start(fake.DataDir(dir))
	if err == nil {
		b.Close()
	}
	if !errors.Is(err, fake.ErrDataDirInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second broker on %s: %v", dir, err)
	}
	first.Close()
	start(t, fake.DataDir(dir))
}

// A failed start must not keep the directory from the next one.
func TestDataDirIsFreeAfterAFailedStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken := start(t).Addrs()[0]
	for name, opts := range map[string][]fake.Option{
		"port in use":      {fake.Addr(taken)},
		"other partitions": {fake.Topic("orders", 3)},
	} {
		start(t, fake.DataDir(dir), fake.Topic("orders", 2)).Close()
		b, err := fake.Start(append(opts, fake.DataDir(dir))...)
		if err == nil {
			b.Close()
			t.Fatalf("%s: Start succeeded", name)
		}
	}
	start(t, fake.DataDir(dir))
}

func TestDataDirWithOtherPartitions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, fake.DataDir(dir), fake.Topic("orders", 2)).Close()
	b, err := fake.Start(fake.DataDir(dir), fake.Topic("orders", 3))
	if err == nil {
		b.Close()
	}
	if want := "fake: topic orders: it exists with 2 partitions, not 3"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDataDirThatIsAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := fake.Start(fake.DataDir(file))
	if err == nil {
		b.Close()
		t.Fatal("Start took a file for a directory")
	}
	if !strings.Contains(err.Error(), file) {
		t.Errorf("error %q does not name %s", err, file)
	}
}

func TestErrTellsOfWhatWasNotKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := start(t, fake.DataDir(dir), fake.Topic("orders", 1))
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	breakDir(t, dir)
	b.Close()
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "persist") {
		t.Errorf("Err() = %v, want the write that failed", err)
	}
}

// breakDir leaves a file where the data directory was, which fails writes even for a user who may write anywhere.
func breakDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
