// Package kafkatest starts Apache Kafka for tests: one process, broker and controller at once, on loopback addresses, with
// everything it writes in a folder that goes with the test.
//
//	cluster := kafkatest.Start(t)
//	cluster.CreateTopic(t, "orders", 4, nil)
//	client := cluster.NewClient(t, kgo.ConsumeTopics("orders"))
//
// A broker takes two to five seconds to start and 150 to 250 MB of memory. Tests that don't need one of their own, with other
// settings or to be restarted, use [Shared].
//
// Without Kafka on the machine the tests are skipped: see [Start].
package kafkatest

// What must stay true: no process outlives its test or the test binary, however either ends; a cluster that was handed out
// is ready; Addr and the data stay the same over every restart.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// startTimeout is generous because a loaded machine has been seen to take half a minute; a broker that ends
	// instead is noticed at once.
	startTimeout = 2 * time.Minute
	// stopTimeout is what Kafka gets to stop by itself; it needs a third of a second.
	stopTimeout = 30 * time.Second
	// startAttempts is how often a new cluster is tried with other ports when somebody else took one of them.
	startAttempts = 3
)

var errPortTaken = errors.New("a port was taken by another process")

// Cluster is a running broker. Its methods are for one goroutine at a time, except Addr, Opts, OptsAs and NewClient, which
// are safe for all.
type Cluster struct {
	// Properties are all settings of the broker, as in its server.properties. A test may change them: they are written
	// at each start, so a change counts from the next Restart or StartAgain on.
	Properties map[string]string

	installed installation
	config    config
	dir       string
	addr      string
	authority *authority // nil without TLS
	process   *process   // nil while the broker is down
	failf     func(format string, args ...any)
}

// Start starts a cluster for this test and ends it with the test.
//
// The test is skipped with a message under -short, when the environment variable FRONTA_KAFKA is 0, off, no or false, and when
// Java 17, or Maven to fetch Kafka with, is missing. On a machine where the variable CI is true the last one is an error,
// so that a build cannot pass by having skipped these tests. Anything else that keeps the broker from starting is an error.
func Start(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	installed := require(t)
	config, err := newConfig(options)
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
	cluster, err := start(installed, config, t.TempDir())
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
	cluster.failf = func(format string, args ...any) {
		t.Helper()
		t.Fatalf(format, args...)
	}
	t.Cleanup(func() {
		if cluster.process != nil {
			cluster.process.kill()
		}
		if t.Failed() {
			t.Logf("kafkatest: the broker's log ends with:\n%s", cluster.logTail(0))
		}
	})
	return cluster
}

// start makes a cluster in dir and returns it when it is ready.
func start(installed installation, config config, dir string) (*Cluster, error) {
	c := &Cluster{installed: installed, config: config, dir: dir}
	if config.tls {
		var err error
		if c.authority, err = newAuthority(); err != nil {
			return nil, err
		}
		if err := os.WriteFile(c.path("server.pem"), c.authority.server, 0o600); err != nil {
			return nil, err
		}
	}
	for attempt := 1; ; attempt++ {
		if err := c.prepare(); err != nil {
			return nil, err
		}
		err := c.run()
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == startAttempts {
			return nil, err
		}
	}
}

// prepare chooses ports and makes empty storage for them.
func (c *Cluster) prepare() error {
	for _, name := range []string{"data", "tmp"} {
		if err := os.RemoveAll(c.path(name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(c.path("tmp"), 0o700); err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	c.addr = fmt.Sprintf("127.0.0.1:%d", ports[0])
	c.Properties = maps.Clone(c.installed.properties)
	controller := fmt.Sprintf("127.0.0.1:%d", ports[1])
	listeners := "CLIENT://" + c.addr
	protocol := c.config.protocol()
	protocols := "CONTROLLER:PLAINTEXT,CLIENT:" + protocol
	c.Properties["inter.broker.listener.name"] = "CLIENT"
	if protocol != "PLAINTEXT" {
		// The broker talks to itself too, as a coordinator: a listener of its own spares it the login.
		listeners += fmt.Sprintf(",BROKER://127.0.0.1:%d", ports[2])
		protocols += ",BROKER:PLAINTEXT"
		c.Properties["inter.broker.listener.name"] = "BROKER"
	}
	c.Properties["listeners"] = listeners + ",CONTROLLER://" + controller
	c.Properties["advertised.listeners"] = listeners
	c.Properties["listener.security.protocol.map"] = protocols
	c.Properties["controller.listener.names"] = "CONTROLLER"
	c.Properties["controller.quorum.bootstrap.servers"] = controller
	c.Properties["log.dirs"] = c.path("data")
	if c.config.tls {
		c.Properties["listener.name.client.ssl.keystore.type"] = "PEM"
		c.Properties["listener.name.client.ssl.keystore.location"] = c.path("server.pem")
	}
	if len(c.config.users) > 0 {
		c.Properties["listener.name.client.sasl.enabled.mechanisms"] = "SCRAM-SHA-256,SCRAM-SHA-512"
		for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
			c.Properties["listener.name.client."+mechanism+".sasl.jaas.config"] =
				"org.apache.kafka.common.security.scram.ScramLoginModule required;"
		}
	}
	maps.Copy(c.Properties, c.config.properties)
	if err := c.writeProperties(); err != nil {
		return err
	}

	arguments := []string{"kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", newClusterID(), "--config", c.path("server.properties")}
	for _, user := range c.config.users {
		for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			arguments = append(arguments, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, user.name, user.password))
		}
	}
	from := c.logSize()
	format, err := c.java(arguments...)
	if err != nil {
		return err
	}
	select {
	case <-format.ended:
	case <-time.After(startTimeout):
		format.kill()
		return fmt.Errorf("the storage was not formatted within %v", startTimeout)
	}
	if format.err != nil {
		return fmt.Errorf("format the storage: %w\n%s", format.err, c.logTail(from))
	}
	return nil
}

// run starts the process on the storage that is there and returns when the broker is ready.
func (c *Cluster) run() error {
	if err := c.writeProperties(); err != nil {
		return err
	}
	from := c.logSize()
	process, err := c.java(append(strings.Fields(os.Getenv("KAFKA_OPTS")), "kafka.Kafka", c.path("server.properties"))...)
	if err != nil {
		return err
	}
	if err := c.awaitReady(process); err != nil {
		process.kill()
		tail := c.logTail(from)
		if strings.Contains(tail, "Address already in use") {
			err = errPortTaken
		}
		return fmt.Errorf("start the broker at %s: %w\n%s", c.addr, err, tail)
	}
	c.process = process
	return nil
}

// java starts Java with Kafka's classes; its output goes to the cluster's log.
func (c *Cluster) java(arguments ...string) (*process, error) {
	log, err := os.OpenFile(c.path("broker.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// The quick compiler and the plain collector halve the processor time of a start; a test's broker does not live long
	// enough to earn it back. Options of the caller come behind and win.
	options := []string{
		"@" + filepath.Join(c.installed.folder, "jvm.options"),
		"-XX:TieredStopAtLevel=1",
		"-XX:+UseSerialGC",
		"-Djava.io.tmpdir=" + c.path("tmp"),
		"-Dlog4j2.configurationFile=" + filepath.Join(c.installed.folder, "log4j2.xml"),
		"-cp", filepath.Join(c.installed.lib, "*"),
	}
	return startProcess(c.installed.java, append(options, arguments...), log)
}

// awaitReady asks the broker until it serves and coordinates groups. The internal topic of the groups is made by the way.
func (c *Cluster) awaitReady(process *process) error {
	client, err := kgo.NewClient(append(c.Opts(), kgo.RequestRetries(0), kgo.DialTimeout(2*time.Second))...)
	if err != nil {
		return err
	}
	defer client.Close()
	timeout := time.After(startTimeout)
	for wait := 20 * time.Millisecond; ; wait = min(wait*3/2, 300*time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := ready(ctx, client)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-process.ended:
			return fmt.Errorf("it ended while it started: %w", process.err)
		case <-timeout:
			return fmt.Errorf("it was not ready within %v: %w", startTimeout, err)
		case <-time.After(wait):
		}
	}
}

func ready(ctx context.Context, client *kgo.Client) error {
	metadata, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(metadata.Brokers) == 0 {
		return errors.New("no broker is registered")
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey, find.CoordinatorKeys = "kafkatest", []string{"kafkatest"}
	found, err := find.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, coordinator := range found.Coordinators {
		if err := kerr.ErrorForCode(coordinator.ErrorCode); err != nil {
			// With an authorizer the client may not be allowed to look: it was answered, and that is as good.
			if errors.Is(err, kerr.GroupAuthorizationFailed) {
				return nil
			}
			return err
		}
	}
	// Answers with an error while groups are loaded.
	groups, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(groups.ErrorCode)
}

// Addr is the broker's address for clients, host:port. It stays the same over restarts.
func (c *Cluster) Addr() string { return c.addr }

// Opts are the options that a franz-go client needs to reach the cluster: its address, and TLS and the login of the first
// user when the cluster has them. The slice is the caller's to append to.
func (c *Cluster) Opts() []kgo.Opt {
	if len(c.config.users) == 0 {
		return c.connectOpts()
	}
	return c.OptsAs(c.config.users[0].name)
}

// OptsAs is Opts with the login of a user that [WithSCRAM] named. It panics when there is no such user.
func (c *Cluster) OptsAs(name string) []kgo.Opt {
	at := slices.IndexFunc(c.config.users, func(u user) bool { return u.name == name })
	if at < 0 {
		panic(fmt.Sprintf("kafkatest: the cluster has no user %q", name))
	}
	return append(c.connectOpts(), kgo.SASL(c.config.users[at].mechanism()))
}

func (c *Cluster) connectOpts() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(c.addr)}
	if c.authority != nil {
		opts = append(opts, kgo.DialTLSConfig(c.authority.clientConfig()))
	}
	return opts
}

// NewClient returns a client of the cluster with Opts and further options. It is closed when the test ends.
func (c *Cluster) NewClient(t testing.TB, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(c.Opts(), options...)...)
	if err != nil {
		t.Fatalf("kafkatest: new client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// CreateTopic creates a topic and returns when every partition of it has a leader. configs are topic settings such as
// cleanup.policy; nil means Kafka's defaults.
func (c *Cluster) CreateTopic(t testing.TB, name string, partitions int, configs map[string]string) {
	t.Helper()
	client, err := kadm.NewOptClient(c.Opts()...)
	if err != nil {
		t.Fatalf("kafkatest: create topic %s: %v", name, err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	values := make(map[string]*string, len(configs))
	for key, value := range configs {
		values[key] = &value
	}
	if _, err := client.CreateTopic(ctx, int32(partitions), 1, values, name); err != nil {
		t.Fatalf("kafkatest: create topic %s with %d partitions: %v", name, partitions, err)
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		// Topics by name are asked of the broker anew each time.
		details, err := client.ListTopics(ctx, name)
		if err == nil && led(details[name]) == partitions {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("kafkatest: topic %s has a leader for %d of %d partitions after a minute: %v", name, led(details[name]), partitions, err)
		case <-time.After(wait):
		}
	}
}

// led counts the partitions of a topic that have a leader.
func led(topic kadm.TopicDetail) int {
	var n int
	for _, partition := range topic.Partitions {
		if partition.Err == nil && partition.Leader >= 0 {
			n++
		}
	}
	return n
}

// Stop stops the broker as an operator does, and returns when its process has ended. The data stays for StartAgain. It fails the
// test when the broker is down already or needs more than 30 seconds.
func (c *Cluster) Stop() {
	process := c.down("stop")
	if !process.stop(stopTimeout) {
		c.failf("kafkatest: the broker did not stop within %v and was killed\n%s", stopTimeout, c.logTail(0))
	}
}

// Kill ends the broker with SIGKILL, as a crash does, and returns when its process has ended. The data stays for StartAgain.
// It fails the test when the broker is down already.
func (c *Cluster) Kill() { c.down("kill").kill() }

// down takes the running process out of the cluster.
func (c *Cluster) down(verb string) *process {
	if c.failf == nil {
		panic("kafkatest: the shared cluster serves other tests too: start one with Start to " + verb + " it")
	}
	process := c.process
	if process == nil {
		c.failf("kafkatest: %s the broker: it is down already", verb)
	}
	c.process = nil
	return process
}

// StartAgain starts the broker after Stop or Kill with the same data and address, and the Properties of now, and returns when
// it is ready. After Kill that takes four seconds more: for so long the controller waits for the broker that died. It
// fails the test when the broker does not start.
func (c *Cluster) StartAgain() {
	if c.process != nil {
		c.failf("kafkatest: start the broker again: it is running")
	}
	if err := c.run(); err != nil {
		c.failf("kafkatest: %v", err)
	}
}

// Restart is Stop and StartAgain.
func (c *Cluster) Restart() {
	c.Stop()
	c.StartAgain()
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Cluster) writeProperties() error {
	return os.WriteFile(c.path("server.properties"), formatProperties(c.Properties), 0o600)
}

func (c *Cluster) logSize() int64 {
	info, err := os.Stat(c.path("broker.log"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// logTail returns the last lines of the broker's log behind offset from, without stack traces.
func (c *Cluster) logTail(from int64) string {
	const most = 40
	text, err := os.ReadFile(c.path("broker.log"))
	if err != nil {
		return err.Error()
	}
	text = text[min(from, int64(len(text))):]
	var lines []string
	for line := range bytes.Lines(text) {
		if line = bytes.TrimRight(line, "\n"); len(line) > 0 && line[0] != '\t' {
			lines = append(lines, string(line))
		}
	}
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
