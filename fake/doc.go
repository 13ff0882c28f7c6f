// Package fake runs a Kafka broker inside the process: for tests, for demonstrations and for work on one machine.
//
// It is a thin layer over [kfake], which speaks the Kafka protocol (groups of both protocols, transactions, share groups,
// compaction) and stores in memory or in a directory. What this package adds: defaults that make tests fast, one broker
// instead of three, an address of your choice, a guard on the data directory, errors for options that make no sense, and
// a virtual network in one option.
//
//	broker, err := fake.Start(fake.Topic("orders", 4))
//	if err != nil {
//		return err
//	}
//	defer broker.Close()
//	client, err := kgo.NewClient(append(broker.Opts(), kgo.ConsumeTopics("orders"))...)
//
// # Time
//
// Under [testing/synctest] start the broker with [Virtual], in the bubble: brokers and clients then talk over pipes in
// memory, every wait is a wait on the bubble's clock, and an hour of retries passes in a moment. Close clients before the
// broker and both before the bubble ends.
//
// # Faults
//
// [Broker.Cluster] is the way to everything else that kfake can do: Fault answers chosen requests with an error, Control
// and SleepControl hold a request at an exact point, MoveTopicPartition and RehashCoordinators move leaders and
// coordinators, WaitGroupStable waits for a group, CreateTopic takes topic configurations.
//
// # What is not like Apache Kafka
//
// An offset commit's metadata may have any length (Apache Kafka refuses more than 4,096 characters by default: inject
// OFFSET_METADATA_TOO_LARGE with Fault to see that). The positions of share groups are lost when the process dies before
// [Broker.Close]. A group does not wait for more members before its first assignment
// (group.initial.rebalance.delay.ms is 0). Topics are never created by a mere look at them, unless
// kfake.AllowAutoTopicCreation is given with [ClusterOptions] and the client asks for it. There is no TLS, user or
// permission unless [ClusterOptions] turns it on.
//
// [kfake]: https://pkg.go.dev/github.com/twmb/franz-go/pkg/kfake
package fake
