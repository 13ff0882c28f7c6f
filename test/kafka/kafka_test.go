// Package kafka_test tests the way this project runs Apache Kafka: the script kafka.sh and the package kafkatest.
package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// timeout bounds each wait for the broker, far above what it needs.
const timeout = time.Minute

func produce(t *testing.T, client *kgo.Client, topic string, values ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for _, value := range values {
		record := &kgo.Record{Topic: topic, Key: []byte("key"), Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatalf("produce %q to %s: %v", value, topic, err)
		}
	}
}

// consume returns the next n values that the client reads.
func consume(t *testing.T, client *kgo.Client, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var values []string
	for len(values) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d records: %v came in time", n, values)
		}
		// A broker that goes away and comes back is an error in between.
		fetches.EachError(func(topic string, partition int32, err error) { t.Logf("fetch %s/%d: %v", topic, partition, err) })
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

func wantValues(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("read %v, want %v", got, want)
	}
}

// committed is what the broker has stored of a group for partition 0: offset and metadata.
func committed(t *testing.T, cluster *kafkatest.Cluster, group, topic string) (int64, string) {
	t.Helper()
	offsets, err := kadm.NewClient(cluster.NewClient(t)).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatalf("fetch the offsets of %s: %v", group, err)
	}
	offset, _ := offsets.Lookup(topic, 0)
	return offset.At, offset.Metadata
}

func commit(t *testing.T, cluster *kafkatest.Cluster, group, topic string, at int64, metadata string) error {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, At: at, LeaderEpoch: -1, Metadata: metadata})
	responses, err := kadm.NewClient(cluster.NewClient(t)).CommitOffsets(t.Context(), group, offsets)
	if err != nil {
		t.Fatalf("commit for %s: %v", group, err)
	}
	return responses.Error()
}

func TestGroupReadsWhatWasProduced(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"classic", "consumer"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Shared(t)
			topic := "produced-" + protocol
			cluster.CreateTopic(t, topic, 1, nil)
			produce(t, cluster.NewClient(t), topic, "a", "b", "c")

			opts := []kgo.Opt{kgo.ConsumerGroup("readers-" + protocol), kgo.ConsumeTopics(topic)}
			if protocol == "consumer" {
				opts = append(opts, kgo.ServerSideBalancer())
			} else {
				opts = append(opts, kgo.SessionTimeout(time.Second), kgo.HeartbeatInterval(200*time.Millisecond))
			}
			member := cluster.NewClient(t, opts...)
			wantValues(t, consume(t, member, 3), "a", "b", "c")
			groups, err := kadm.NewClient(member).ListGroups(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := groups["readers-"+protocol].GroupType; got != protocol {
				t.Errorf("the group is of type %q, want %q", got, protocol)
			}
		})
	}
}

func TestTopicConfigs(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Shared(t)
	cluster.CreateTopic(t, "compacted", 3, map[string]string{"cleanup.policy": "compact"})
	configs, err := kadm.NewClient(cluster.NewClient(t)).DescribeTopicConfigs(t.Context(), "compacted")
	if err != nil {
		t.Fatal(err)
	}
	config, err := configs.On("compacted", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Configs {
		if c.Key == "cleanup.policy" && c.MaybeValue() != "compact" {
			t.Errorf("cleanup.policy is %s", c.MaybeValue())
		}
	}
}

// A transaction needs the internal topic of transactions and the broker's own connection to itself, for the markers.
func TestTransaction(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Shared(t)
	cluster.CreateTopic(t, "transactional", 1, nil)
	writer := cluster.NewClient(t, kgo.TransactionalID("writer"))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, writer, "transactional", fmt.Sprintf("committed=%v", bool(end)))
		if err := writer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	reader := cluster.NewClient(t, kgo.ConsumeTopics("transactional"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	wantValues(t, consume(t, reader, 1), "committed=true")
}

// A share group needs the internal topic of its state, a feature that is on, and the broker's own connection to itself.
func TestShareGroup(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Shared(t)
	cluster.CreateTopic(t, "shared", 1, nil)
	client := cluster.NewClient(t)
	produce(t, client, "shared", "a", "b")

	// A new share group starts at the end otherwise.
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "sharers"
	resource.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{
		{Name: "share.auto.offset.reset", Value: kmsg.StringPtr("earliest")},
	}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = append(alter.Resources, resource)
	altered, err := alter.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(altered.Resources[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
	member := cluster.NewClient(t, kgo.ShareGroup("sharers"), kgo.ConsumeTopics("shared"))
	wantValues(t, consume(t, member, 2), "a", "b")
}

// One cluster through all its ends, with clients that stay connected: the address is the same, records and offsets are kept.
func TestRestartAndKillKeepData(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Start(t, kafkatest.WithProperty("offset.metadata.max.bytes", "10"))
	cluster.CreateTopic(t, "kept", 1, nil)
	client := cluster.NewClient(t)
	reader := cluster.NewClient(t, kgo.ConsumeTopics("kept"))
	addr := cluster.Addr()

	produce(t, client, "kept", "first")
	wantValues(t, consume(t, reader, 1), "first")
	if err := commit(t, cluster, "group", "kept", 1, "0123456789"); err != nil {
		t.Errorf("commit 10 characters of metadata: %v", err)
	}
	if err := commit(t, cluster, "group", "kept", 1, "0123456789a"); !errors.Is(err, kerr.OffsetMetadataTooLarge) {
		t.Errorf("commit 11 characters of metadata: %v, want OFFSET_METADATA_TOO_LARGE", err)
	}

	cluster.Properties["offset.metadata.max.bytes"] = "11"
	cluster.Restart()
	produce(t, client, "kept", "second")
	wantValues(t, consume(t, reader, 1), "second")
	if at, metadata := committed(t, cluster, "group", "kept"); at != 1 || metadata != "0123456789" {
		t.Errorf("after the restart the group has offset %d, metadata %q", at, metadata)
	}
	if err := commit(t, cluster, "group", "kept", 2, "0123456789a"); err != nil {
		t.Errorf("commit 11 characters after the limit was raised: %v", err)
	}

	cluster.Kill()
	if connection, err := net.Dial("tcp", addr); err == nil {
		connection.Close()
		t.Error("the killed broker still takes connections")
	}
	cluster.StartAgain()
	produce(t, client, "kept", "third")
	wantValues(t, consume(t, reader, 1), "third")
	if at, metadata := committed(t, cluster, "group", "kept"); at != 2 || metadata != "0123456789a" {
		t.Errorf("after the kill the group has offset %d, metadata %q", at, metadata)
	}
	if cluster.Addr() != addr {
		t.Errorf("the address was %s and is %s", addr, cluster.Addr())
	}
	wantValues(t, consume(t, cluster.NewClient(t, kgo.ConsumeTopics("kept")), 3), "first", "second", "third")
}

// A cluster with everything on, beside the shared one: neither sees the other's topics.
func TestTLSAndSCRAMBesideAnotherCluster(t *testing.T) {
	t.Parallel()
	other := kafkatest.Shared(t)
	cluster := kafkatest.Start(t,
		kafkatest.WithTLS(),
		kafkatest.WithSCRAM("admin", "s3cret"),
		kafkatest.WithSCRAM("guest", "welcome"),
		kafkatest.WithProperty("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		kafkatest.WithProperty("super.users", "User:ANONYMOUS;User:admin"))
	cluster.CreateTopic(t, "secret", 1, nil)
	produce(t, cluster.NewClient(t), "secret", "a", "b")
	member := cluster.NewClient(t, kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("secret"))
	wantValues(t, consume(t, member, 2), "a", "b")

	topics, err := kadm.NewClient(other.NewClient(t)).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if topics.Has("secret") {
		t.Error("the other cluster has the topic")
	}

	guest, err := kgo.NewClient(append(cluster.OptsAs("guest"), kgo.DefaultProduceTopic("secret"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	err = guest.ProduceSync(t.Context(), kgo.StringRecord("c")).FirstErr()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("a user without rights produced: %v, want TOPIC_AUTHORIZATION_FAILED", err)
	}
	// Without TLS nothing is answered, without the login neither.
	for name, opts := range map[string][]kgo.Opt{
		"plain":    {kgo.SeedBrokers(cluster.Addr())},
		"no login": cluster.Opts()[:2],
	} {
		client, err := kgo.NewClient(append(opts, kgo.RequestRetries(0))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Ping(t.Context()); err == nil {
			t.Errorf("a client was served: %s", name)
		}
		client.Close()
	}
}

// Whether tests are skipped or fail without Kafka, seen from outside: by a run of one test that needs it.
func TestSkippingRule(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped: -short is set")
	}
	for _, c := range []struct {
		name        string
		environment []string
		flags       []string
		want        string
	}{
		{"switched off", []string{"FRONTA_KAFKA=off", "CI=true"}, nil, "FRONTA_KAFKA is off"},
		{"short", []string{"FRONTA_KAFKA=", "CI=true"}, []string{"-test.short"}, "-short is set"},
		{"no Java", []string{"FRONTA_KAFKA=", "CI=", "JAVA_HOME=/nonexistent"}, nil, "JAVA_HOME is /nonexistent"},
		{"no Java in CI", []string{"FRONTA_KAFKA=", "CI=true", "JAVA_HOME=/nonexistent"}, nil, "JAVA_HOME is /nonexistent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run := exec.CommandContext(t.Context(), os.Args[0], append(c.flags, "-test.v", "-test.run=^TestTopicConfigs$")...)
			run.Env = append(os.Environ(), c.environment...)
			output, err := run.CombinedOutput()
			fails := c.name == "no Java in CI"
			if (err != nil) != fails {
				t.Errorf("ended with %v", err)
			}
			if result := map[bool]string{false: "--- SKIP", true: "--- FAIL"}[fails]; !strings.Contains(string(output), result) || !strings.Contains(string(output), c.want) {
				t.Errorf("printed\n%s\nwant %q and %q", output, result, c.want)
			}
		})
	}
}

// dieWithBroker is set in the child process of the next test.
const dieWithBroker = "KAFKATEST_DIE_WITH_BROKER"

// A test binary that is killed cannot clean up; the system ends its broker.
func TestBrokerDiesWithItsTestBinary(t *testing.T) {
	if os.Getenv(dieWithBroker) != "" {
		cluster := kafkatest.Start(t)
		fmt.Printf("broker at %s\n", cluster.Addr())
		<-t.Context().Done() // until the parent kills this process
		return
	}
	t.Parallel()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("only Linux ends a process with its parent")
	}
	kafkatest.Shared(t) // for the skipping rule, and so that Kafka is fetched
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokerDiesWithItsTestBinary$", "-test.timeout=5m")
	child.Env = append(os.Environ(), dieWithBroker+"=1", "TMPDIR="+t.TempDir())
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Fscanf(output, "broker at %s\n", &addr); err != nil {
		t.Fatalf("the child's broker: %v", err)
	}
	connection, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	// The end of the broker is the end of its connection.
	if err := connection.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the broker still runs after its test binary was killed")
	}
}

// script runs kafka.sh and returns what it printed on standard output, and its exit code.
func script(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", append([]string{"kafka.sh"}, arguments...)...)
	command.Stderr = t.Output()
	output, err := command.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("kafka.sh %v: %v", arguments, err)
	}
	return strings.TrimSpace(string(output)), command.ProcessState.ExitCode()
}

func TestScript(t *testing.T) {
	t.Parallel()
	kafkatest.Shared(t) // for the skipping rule, and so that Kafka is fetched
	dir := filepath.Join(t.TempDir(), "a broker")
	t.Cleanup(func() { exec.Command("bash", "kafka.sh", "clean", dir).Run() })
	must := func(code int, arguments ...string) string {
		t.Helper()
		output, got := script(t, arguments...)
		if got != code {
			t.Fatalf("kafka.sh %v: exit code %d, want %d", arguments, got, code)
		}
		return output
	}

	must(2, "begin")
	must(2, "jars")
	must(1, "jars", ".nowhere")
	if lib, code := script(t, "jars", "interop"); code != 3 { // without Maven
		found, _ := filepath.Glob(filepath.Join(lib, "parallel-consumer-core-*.jar"))
		if again := must(0, "jars", "interop"); len(found) != 1 || again != lib {
			t.Errorf("jars of interop are in %s and then in %s, with %v", lib, again, found)
		}
	}
	must(2, "start")
	must(2, "start", dir, "--port", "none")
	must(1, "stop", dir)
	addr := must(0, "start", dir, "--set", "offset.metadata.max.bytes=10")
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("by-hand"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce(t, client, "by-hand", "a")
	if again := must(0, "start", dir); again != addr {
		t.Errorf("a second start says %s, the first said %s", again, addr)
	}
	must(1, "start", dir, "--set", "offset.metadata.max.bytes=11") // it runs, and would not read that
	must(0, "kill", dir)
	must(1, "status", dir)
	if again := must(0, "start", dir); again != addr {
		t.Errorf("after the kill the address is %s, before it was %s", again, addr)
	}
	if status := must(0, "status", dir); status != addr {
		t.Errorf("the status is %s, the address %s", status, addr)
	}
	client.AddConsumeTopics("by-hand")
	wantValues(t, consume(t, client, 1), "a")
	must(0, "stop", dir)
	must(0, "stop", dir)
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	must(0, "clean", dir)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("after clean the folder has %v (%v), want only what is not the broker's", left, err)
	}
}

// A port that is taken is said, and nothing stays behind.
func TestScriptPortTaken(t *testing.T) {
	t.Parallel()
	kafkatest.Shared(t) // for the skipping rule, and so that Kafka is fetched
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if _, code := script(t, "start", dir, "--port", port); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if _, code := script(t, "status", dir); code != 1 {
		t.Errorf("status after the failed start: exit code %d, want 1", code)
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the failed start left data: %v", err)
	}
}
