package command

// fronta group: what a consumer group has committed and what its commits say. What must stay true: it changes nothing, and
// what it prints of a partition is what a consumer would make of it.

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/group"
)

func newGroupCommand(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "group",
		Short: "Look at consumer groups",
		Long:  "Looks at consumer groups: what they have committed, and what is finished beyond that.",
	}
	c.AddCommand(newGroupDescribeCommand(env))
	return c
}

// localBroker is where "fronta broker" and Kafka's own quick start listen.
const localBroker = "127.0.0.1:9092"

func newGroupDescribeCommand(env *cli.Env) *cobra.Command {
	brokers, topic, timeout := []string{localBroker}, "", 15*time.Second
	c := &cobra.Command{
		Use:   "describe group",
		Short: "Show a group's commits, lag and progress",
		Long: "Shows, for each partition that a consumer group has committed or that one of its members has: the committed offset, the\n" +
			"log's end, and what the commit's metadata says of the offsets between. It reads fronta's progress, and that of Atleon\n" +
			"and of Parallel Consumer. Nothing is changed.\n\n" +
			"lag is the end less the committed offset. unfinished is how many of those offsets are not told to be finished:\n" +
			"  - everything, without metadata or if it is refused;\n" +
			"  - otherwise everything from the horizon on, and below it, where the order is \"unordered\", exactly the offsets that\n" +
			"    are listed;\n" +
			"  - where records run by key or bucket the metadata tells of each lane's first unfinished record alone, its head. The\n" +
			"    lane's later records are unfinished too, but nobody can tell which those are without reading them. So the figure\n" +
			"    is a lower bound, the heads and what lies beyond the horizon: \">= 12\", and in JSON unfinished_exact is false.\n" +
			"Both count offsets, as lag always does: transaction markers and compacted records are among them.\n\n" +
			"What a consumer checks before it skips anything is checked here too: that the metadata is about this offset of this\n" +
			"partition of a topic of this id, that its horizon is not beyond the log's end, that the log was not truncated since\n" +
			"(leader epoch), and that the log still begins at or before the committed offset. If a check fails the reason is\n" +
			"printed, and a consumer would take nothing as finished. Not checked is what only records or a configuration can tell:\n" +
			"that all heads are still in the log, that the first one's lane is the one that was written down, and that the consumer\n" +
			"knows the order.\n\n" +
			"clean says that the last owner gave the partition up in good order; while a member has it, it says no. units is the\n" +
			"metadata's length, to be compared with the broker's limit (" + "offset.metadata.max.bytes" + "), which counts in the same units:\n" +
			"UTF-16, as Java does.\n\n" +
			"It needs the ACL operations DESCRIBE on the Group and on its Topics, and for the broker's limit DESCRIBE_CONFIGS on\n" +
			"the Cluster; without the last one Kafka's default of 4,096 is assumed. Of topics that it must not describe, brokers do\n" +
			"not show a group's commits at all.\n\n" +
			"It exits with 1 if the group is unknown or no consumer group, or if something could not be learned; metadata that is\n" +
			"refused is no failure.",
		Example: "  fronta group describe billing\n" +
			"  fronta group describe billing --brokers kafka-1:9092,kafka-2:9092 --topic orders\n" +
			"  fronta group describe billing --json | jq '.partitions[] | select(.verdict == \"refused\") | .reason'",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := errors.Join(
				validBrokers(brokers),
				durationWithin("timeout", timeout, 100*time.Millisecond, 10*time.Minute),
			); err != nil {
				return err
			}
			switch {
			case args[0] == "":
				return cli.Usagef("the group's name is empty")
			case len(brokers) == 0:
				return cli.Usagef("--brokers names none")
			case c.Flags().Changed("topic") && topic == "":
				return cli.Usagef("--topic is empty; leave it out to see all topics")
			}
			return describeGroup(c.Context(), env, brokers, args[0], topic, timeout)
		},
	}
	c.Flags().StringSliceVar(&brokers, "brokers", brokers, "`host:port,...` of the Kafka cluster")
	c.Flags().StringVar(&topic, "topic", "", "`name` of the only topic to show")
	c.Flags().DurationVar(&timeout, "timeout", timeout, "how long the brokers have for all answers, 100ms to 10m")
	return c
}

func describeGroup(ctx context.Context, env *cli.Env, brokers []string, name, topic string, timeout time.Duration) error {
	at := strings.Join(brokers, ",")
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ClientID("fronta"),
		// An answer that says "not now" is asked for again, but not until the end: the reason would be lost.
		kgo.RetryTimeout(timeout/2),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = client.Ping(limited)
	var d *group.Description
	if err != nil {
		err = fmt.Errorf("brokers at %s: %w", at, err)
	} else {
		d, err = group.Describe(limited, client, name, topic)
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: nothing was learned")
	case err != nil && limited.Err() != nil:
		return fmt.Errorf("no answer from %s within %s (--timeout): %w", at, timeout, err)
	case err != nil:
		return err
	}
	env.Out.Print(d)
	return d.Incomplete()
}
