package fake

// The broker's life. What must stay true: Start either returns a broker that answers on every address it tells, with every
// topic it was asked for, or an error and nothing left behind; after Close nothing listens, the data directory is complete
// and another broker may take it.

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Broker is a running Kafka cluster of one or more brokers, started by [Start]. Its methods may be called from many
// goroutines at once.
type Broker struct {
	cluster *kfake.Cluster
	network *kfake.VirtualNetwork // nil: TCP
	addrs   []string
	dir     *dirLock // nil: in memory
	log     *clusterLog
	close   sync.Once
}

// Start starts a broker. Without options it is one broker in memory on a free port of 127.0.0.1, without topics. The
// caller closes it.
//
// It fails when an option makes no sense ([OptionError]), when an address cannot be listened on (errors.Is(err, syscall.EADDRINUSE) where
// that is the reason), when the data directory is in use ([ErrDataDirInUse]), cannot be read or written, or has a topic with
// another number of partitions than asked for.
func Start(opts ...Option) (*Broker, error) {
	s, err := newSettings(opts)
	if err != nil {
		return nil, err
	}
	b := &Broker{log: &clusterLog{to: s.logger}}
	listen := s.listenTCP
	if s.virtual {
		b.network = new(kfake.VirtualNetwork)
		listen = virtualListen(b.network)
	}
	if s.dataDir != "" {
		if b.dir, err = lockDir(s.dataDir); err != nil {
			return nil, fmt.Errorf("fake: data directory %s: %w", s.dataDir, err)
		}
	}

	// What a caller may change comes before its options, what this package answers for comes after them.
	clusterOpts := []kfake.Opt{
		kfake.GroupMinSessionTimeout(minSessionTimeout),
		kfake.GroupMaxSessionTimeout(maxSessionTimeout),
		kfake.BrokerConfigs(s.configs),
	}
	clusterOpts = append(clusterOpts, s.cluster...)
	clusterOpts = append(clusterOpts,
		kfake.Ports(s.ports()...),
		kfake.ListenFn(listen),
		kfake.WithLogger(b.log),
		kfake.DataDir(s.dataDir),
	)
	if s.sync {
		clusterOpts = append(clusterOpts, kfake.SyncWrites())
	}
	if b.cluster, err = kfake.NewCluster(clusterOpts...); err != nil {
		b.dir.unlock()
		return nil, fmt.Errorf("fake: start: %w", err)
	}
	b.addrs = b.cluster.ListenAddrs()
	for _, t := range s.topics {
		if err := b.ensureTopic(t); err != nil {
			b.Close()
			return nil, fmt.Errorf("fake: topic %s: %w", t.name, err)
		}
	}
	if err := b.Err(); err != nil {
		b.Close()
		return nil, fmt.Errorf("fake: data directory %s: %w", s.dataDir, err)
	}
	return b, nil
}

func (b *Broker) ensureTopic(t topic) error {
	if b.cluster.TopicInfo(t.name) == nil {
		return b.cluster.CreateTopic(t.name, int32(t.partitions), nil)
	}
	if have := len(b.cluster.PartitionInfos(t.name)); have != t.partitions {
		return fmt.Errorf("it exists with %d partitions, not %d", have, t.partitions)
	}
	return nil
}

// Addrs are the host:port pairs of the brokers as they were started, one for each. Brokers that are added or removed
// through [Broker.Cluster] do not change it.
func (b *Broker) Addrs() []string {
	return append([]string(nil), b.addrs...)
}

// Opts are the options that a franz-go client needs to reach the broker: its seeds and, on a virtual network, the dialer.
// Each call returns a slice of its own, so it may be appended to.
func (b *Broker) Opts() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(b.addrs...)}
	if b.network != nil {
		opts = append(opts, kgo.Dialer(b.network.DialContext))
	}
	return opts
}

// Cluster is the kfake cluster underneath, for faults, held requests and moved leaders. Do not close it: [Broker.Close]
// does. Most of its methods never return once the broker is closed.
func (b *Broker) Cluster() *kfake.Cluster {
	return b.cluster
}

// Err is the first thing that could not be written to the data directory; later writes may have succeeded, but what the
// directory holds is not to be trusted. It is nil while all went well and without [DataDir]. Ask after [Broker.Close] to
// know that everything was kept.
func (b *Broker) Err() error {
	return b.log.writeError()
}

// Close stops the broker: nothing listens any more, connections end, the data directory is complete and free for another
// broker. It may be called many times and from several goroutines; each call returns when the broker is closed. See
// [Broker.Err] for what could not be kept.
func (b *Broker) Close() {
	b.close.Do(func() {
		b.cluster.Close()
		b.dir.unlock()
	})
}

// listenTCP listens on the host that Addr named. kfake always asks for 127.0.0.1; only the port that it asks for counts.
func (s *settings) listenTCP(network, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return net.Listen(network, net.JoinHostPort(s.host, port))
}

// virtualListen gives out ports as an operating system does when it is asked for port 0, which a VirtualNetwork would take
// literally: the second broker would find port 0 in use. kfake calls it from one goroutine at a time: first Start, then
// the cluster's own.
func virtualListen(network *kfake.VirtualNetwork) func(string, string) (net.Listener, error) {
	return func(proto, address string) (net.Listener, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		if port != "0" {
			return network.Listen(proto, address)
		}
		for p := firstVirtualPort; p <= 65535; p++ {
			l, err := network.Listen(proto, net.JoinHostPort(host, strconv.Itoa(p)))
			if err == nil {
				return l, nil
			}
		}
		return nil, errors.New("the virtual network has no free port")
	}
}
