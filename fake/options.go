package fake

// What a broker is started with. An option only stores what it was given; settings.check is the one place that judges it,
// so that every mistake is an error of Start that names the option, and a broker is never half right.

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

const (
	defaultHost = "127.0.0.1"
	// firstVirtualPort is where ports of a virtual network are handed out from. Nothing else listens there, so the
	// first broker always gets Kafka's usual port.
	firstVirtualPort = 9092

	// A group member may ask for any session timeout between these. Apache Kafka's lower bound of 6 s would make a test
	// of an expired member wait that long; the upper one admits members that must survive a debugger.
	minSessionTimeout = 10 * time.Millisecond
	maxSessionTimeout = 24 * time.Hour

	// maxTopicName is Kafka's limit, in characters.
	maxTopicName = 249
	// maxPartitions of one topic keeps a slip of the finger from filling the memory: each partition costs some.
	maxPartitions = 10_000
)

// defaultConfigs are broker configurations that differ from Apache Kafka's, all for speed: under the newer group
// protocol and in share groups a member learns of a new assignment at its next heartbeat, and kfake gives back the
// records of an expired share lock only at the next sweep. At the usual 5 s a rebalance takes ten seconds or more. In
// virtual time those seconds are free and each heartbeat costs, so there Kafka's own are the fast ones.
func defaultConfigs(virtual bool) map[string]string {
	if virtual {
		return make(map[string]string)
	}
	return map[string]string{
		"group.consumer.heartbeat.interval.ms": "100",
		"group.share.heartbeat.interval.ms":    "100",
		"share.record.lock.sweep.interval.ms":  "100",
	}
}

// Option says one thing about the broker that [Start] starts. Of options that contradict each other the last one counts,
// except [Topic], which adds a topic each time.
type Option func(*settings)

type topic struct {
	name       string
	partitions int
}

type settings struct {
	addr    string
	host    string // set by check
	port    int    // set by check; 0: any free port
	brokers int
	topics  []topic
	dataDir string
	sync    bool
	configs map[string]string
	virtual bool
	logger  *slog.Logger
	cluster []kfake.Opt
}

// Topic makes sure that a topic with this name and number of partitions exists when Start returns. It may be given many
// times, once for each topic. A topic that is already in the [DataDir] is left as it is; if it has another number of
// partitions, Start fails rather than change where keys go. Its replication factor is the number of brokers, at most 3.
//
// The name follows Kafka's rule (1 to 249 of a-z, A-Z, 0-9, dot, underscore and hyphen; not "." or ".."), and there are
// 1 to 10,000 partitions. Without this option the broker has no topic; clients and Cluster().CreateTopic can make more at any
// time.
func Topic(name string, partitions int) Option {
	return func(s *settings) { s.topics = append(s.topics, topic{name, partitions}) }
}

// Addr is the host and port to listen on, such as "127.0.0.1:9092"; port 0 means any free one. With more than one broker,
// the others take the ports that follow. The default is "127.0.0.1:0": tests that run at once do not meet.
//
// Clients are told to connect to the very address that is listened on, so it must be one that they can reach: "0.0.0.0",
// "::" or an empty host are refused. A virtual network knows only localhost and 127.0.0.1.
func Addr(hostport string) Option {
	return func(s *settings) { s.addr = hostport }
}

// Brokers is how many brokers the cluster has, each with an address of its own. The default is 1, at least 1.
func Brokers(n int) Option {
	return func(s *settings) { s.brokers = n }
}

// DataDir is a directory that keeps topics, records, committed offsets and configurations when the broker is gone; it is
// made if it does not exist. The default, the empty string, keeps everything in memory. One broker at a time may use a
// directory: where the operating system has file locks, Start refuses a directory that is in use, by this process or
// another.
//
// What was written survives the end of the process, however it ends; a crash of the machine can lose the last moments
// unless [SyncWrites] is given. The configurations of this start win over those that the directory remembers. What could
// not be written is in [Broker.Err].
func DataDir(dir string) Option {
	return func(s *settings) { s.dataDir = dir }
}

// SyncWrites makes each batch durable on the disk before it is acknowledged, at a great cost in speed. It means nothing
// without a [DataDir]. The default leaves flushing to the operating system, as Kafka does.
func SyncWrites() Option {
	return func(s *settings) { s.sync = true }
}

// Configs sets broker configurations by their Kafka names, such as "message.max.bytes"; those that kfake knows are listed
// at kfake.BrokerConfigs, others are stored and have no effect. Given more than once, they add up. An empty value means
// kfake's own default, which is Kafka's.
//
// By default a broker of this package differs from Kafka in three: group.consumer.heartbeat.interval.ms,
// group.share.heartbeat.interval.ms and share.record.lock.sweep.interval.ms are 100 instead of 5000, so that rebalances and
// expired share locks are noticed at once. On a [Virtual] network, where waiting takes no time, they are Kafka's.
func Configs(configs map[string]string) Option {
	configs = maps.Clone(configs)
	return func(s *settings) { maps.Copy(s.configs, configs) }
}

// Virtual makes brokers and clients talk over pipes in memory instead of TCP, which is what [testing/synctest] needs: a
// goroutine that waits for a real socket would stop the bubble's clock. Clients get there by [Broker.Opts] only. Ports are
// 9092 and up, in a network that belongs to this broker alone. The default is TCP.
func Virtual() Option {
	return func(s *settings) { s.virtual = true }
}

// Logger gets what the broker has to say: requests it could not handle, members that timed out, files it could not write
// or had to repair. The default, nil, is silence.
func Logger(l *slog.Logger) Option {
	return func(s *settings) { s.logger = l }
}

// ClusterOptions passes options to kfake as they are, after this package's defaults: kfake.EnableSASL, kfake.TLS,
// kfake.EnableACLs, kfake.MaxVersions (an older Kafka), kfake.GroupMinSessionTimeout and so on. Number, ports, listener,
// data directory and logger are this package's and cannot be set here. Clients of a broker with TLS or SASL need their own
// options for it besides [Broker.Opts].
//
// By default a group member may ask for a session timeout between 10 ms and 24 h.
func ClusterOptions(opts ...kfake.Opt) Option {
	return func(s *settings) { s.cluster = append(s.cluster, opts...) }
}

// OptionError is what [Start] answers, wrapped or as it is, when an option makes no sense whatever the state of the machine.
type OptionError struct {
	Option string // which: "Addr", "Brokers" or "Topic"
	Value  string // what it was given, as Go would write it
	Err    error  // what is wrong with that
}

// Error names the option, what it was given and what is wrong with it.
func (e *OptionError) Error() string {
	return fmt.Sprintf("fake: %s(%s): %v", e.Option, e.Value, e.Err)
}

// Unwrap returns Err.
func (e *OptionError) Unwrap() error { return e.Err }

func newSettings(opts []Option) (*settings, error) {
	s := &settings{brokers: 1, configs: make(map[string]string)}
	for _, opt := range opts {
		opt(s)
	}
	configs := defaultConfigs(s.virtual)
	maps.Copy(configs, s.configs)
	s.configs = configs
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *settings) check() error {
	if s.brokers < 1 {
		return &OptionError{"Brokers", strconv.Itoa(s.brokers), errors.New("a cluster has at least one broker")}
	}
	if err := s.checkAddr(); err != nil {
		return &OptionError{"Addr", strconv.Quote(s.addr), err}
	}
	// Kafka takes dots and underscores for the same letter in metrics, so it refuses names that differ in nothing else.
	seen := make(map[string]string, len(s.topics))
	for _, t := range s.topics {
		err := t.check()
		alike := strings.ReplaceAll(t.name, ".", "_")
		if other, ok := seen[alike]; ok && err == nil {
			err = errors.New("the topic is named twice")
			if other != t.name {
				err = fmt.Errorf("the name differs from that of topic %s only by a dot and an underscore", other)
			}
		}
		if err != nil {
			return &OptionError{"Topic", fmt.Sprintf("%q, %d", t.name, t.partitions), err}
		}
		seen[alike] = t.name
	}
	return nil
}

func (s *settings) checkAddr() error {
	s.host = defaultHost
	if s.addr == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return errors.New("not of the form host:port, such as 127.0.0.1:9092")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	if n > 0 && int(n)+s.brokers-1 > 65535 {
		return fmt.Errorf("no room for %d brokers on the ports from %d up to 65535", s.brokers, n)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		return errors.New("clients are told to connect to the address that is listened on, " +
			"so it must name a host that they can reach, such as 127.0.0.1")
	}
	if s.virtual && host != defaultHost && host != "localhost" {
		return errors.New("a virtual network knows only the hosts localhost and 127.0.0.1")
	}
	s.host, s.port = host, int(n)
	return nil
}

func (t topic) check() error {
	switch {
	case t.name == "":
		return errors.New("the topic has no name")
	case t.name == ".", t.name == "..":
		return fmt.Errorf("a topic cannot be named %q", t.name)
	case len(t.name) > maxTopicName:
		return fmt.Errorf("the name is longer than %d characters", maxTopicName)
	case t.partitions < 1:
		return errors.New("a topic has at least one partition")
	case t.partitions > maxPartitions:
		return fmt.Errorf("a topic has at most %d partitions here", maxPartitions)
	}
	for _, r := range t.name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return fmt.Errorf("a topic's name has only a-z, A-Z, 0-9, dot, underscore and hyphen, not %q", r)
		}
	}
	return nil
}

// ports are those to listen on, one for each broker.
func (s *settings) ports() []int {
	ports := make([]int, s.brokers)
	for i := range ports {
		if s.port > 0 {
			ports[i] = s.port + i
		}
	}
	return ports
}
