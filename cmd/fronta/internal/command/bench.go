package command

// fronta bench: the figures that the project claims, to be measured by anybody. What must stay true: a scenario prints one
// value, and a figure that misses its goal is no error: the exit code says whether it was measured.

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/bench"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
)

func newBenchCommand(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure what the project claims",
		Long: "Measures what the project claims, one scenario a command, and prints a table or with --json one object.\n\n" +
			"The goal that a figure has is printed beside it. A missed goal is a result: the exit code is 0.\n" +
			"Without --brokers the broker is embedded, in a process of its own where memory is measured.",
		Example: "  fronta bench noop\n" +
			"  fronta bench noop --brokers localhost:9092 --json\n" +
			"  fronta bench sleep --cpuprofile sleep.pprof",
	}
	c.AddCommand(
		newBenchNoopCommand(env),
		newBenchSleepCommand(env),
		newBenchInflightCommand(env),
		newBenchSettleCommand(env),
		newBenchKeysCommand(env),
		newBenchProgressCommand(env),
	)
	return c
}

// scenario is what runs a benchmark.
type scenario struct {
	brokers  []string
	separate bool // the embedded broker is a process of its own
	alone    bool // no broker at all
	profile  string
}

func (s *scenario) profileFlag(c *cobra.Command, what string) {
	c.Flags().StringVar(&s.profile, "cpuprofile", "", "`file` for a CPU profile of "+what)
}

// run measures and prints.
func (s *scenario) run(ctx context.Context, env *cli.Env, measure func(context.Context, *bench.Env) (out.Value, error)) (err error) {
	var c *cluster.Cluster
	if !s.alone {
		if c, err = connect(ctx, env, s.brokers, s.separate); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	result, err := measure(ctx, &bench.Env{Cluster: c, Progress: env.Out.Progress, Log: env.Log, Profile: s.profile})
	env.Out.EndProgress()
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was measured")
	}
	if err != nil {
		return err
	}
	env.Out.Print(result)
	return nil
}

func newBenchNoopCommand(env *cli.Env) *cobra.Command {
	var s scenario
	o := bench.NoopOptions{Records: 2_000_000, Keys: 10_000, Partitions: 4, Runs: 5}
	c := &cobra.Command{
		Use:   "noop",
		Short: "Rate of a handler that does nothing, against a bare poll loop",
		Long: "Reads a topic with a handler that does nothing, in key order, by turns with a bare poll loop of the Kafka client: a\n" +
			"consumer group that looks at every record and neither keeps an order nor commits. Both have the same client options.\n" +
			"Rates are from the first record seen to the last; one pair of runs warms up. The ratio is that of the medians.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(
				within("records", o.Records, 1, 100_000_000),
				within("keys", o.Keys, 1, 100_000_000),
				within("partitions", o.Partitions, 1, 1_000),
				within("runs", o.Runs, 1, 1_000),
			); err != nil {
				return err
			}
			return s.run(c.Context(), env, func(ctx context.Context, e *bench.Env) (out.Value, error) { return bench.RunNoop(ctx, e, o) })
		},
	}
	brokersFlag(c, &s.brokers)
	s.profileFlag(c, "fronta's last run")
	c.Flags().IntVar(&o.Records, "records", o.Records, "how many records, of 100 bytes each")
	c.Flags().IntVar(&o.Keys, "keys", o.Keys, "how many keys they have")
	c.Flags().IntVar(&o.Partitions, "partitions", o.Partitions, "how many partitions, besides the measurement with one")
	c.Flags().IntVar(&o.Runs, "runs", o.Runs, "how many pairs of runs")
	return c
}

func newBenchSleepCommand(env *cli.Env) *cobra.Command {
	var s scenario
	o := bench.SleepOptions{Runs: 3, Scale: 1}
	c := &cobra.Command{
		Use:   "sleep",
		Short: "Time of handlers that wait, against the ideal",
		Long: "Handlers sleep from 0 to 5 ms, one partition, at most 1,000 at once: 10,000 records of 1, 10 and 100 keys, 100,000 of\n" +
			"1,000 and 10,000. The ideal is the longest lane's handler times together, or all of them over 1,000 if that is more,\n" +
			"both of the times that were measured. MaxInFlight and MaxBufferedBytes are so high that all records can be in flight.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(within("runs", o.Runs, 1, 1_000), within("scale", o.Scale, 1, 10_000)); err != nil {
				return err
			}
			return s.run(c.Context(), env, func(ctx context.Context, e *bench.Env) (out.Value, error) { return bench.RunSleep(ctx, e, o) })
		},
	}
	brokersFlag(c, &s.brokers)
	s.profileFlag(c, "the last run with 10,000 keys")
	c.Flags().IntVar(&o.Runs, "runs", o.Runs, "how many runs of each row; the one with the median ratio counts")
	c.Flags().IntVar(&o.Scale, "scale", o.Scale, "divide the numbers of records by this, for a quick look")
	return c
}

func newBenchInflightCommand(env *cli.Env) *cobra.Command {
	s := scenario{separate: true}
	records := 100_000
	c := &cobra.Command{
		Use:   "inflight",
		Short: "Memory of records whose handlers wait",
		Long: "Has the handlers of all records wait at the same time, and tells what each takes of this process's memory: heap in\n" +
			"use and stacks after a garbage collection, less what was in use before the consumer was made.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := within("records", records, 1, 10_000_000); err != nil {
				return err
			}
			return s.run(c.Context(), env, func(ctx context.Context, e *bench.Env) (out.Value, error) { return bench.RunInflight(ctx, e, records) })
		},
	}
	brokersFlag(c, &s.brokers)
	c.Flags().IntVar(&records, "records", records, "how many handlers wait at once")
	return c
}

func newBenchSettleCommand(env *cli.Env) *cobra.Command {
	s := scenario{alone: true}
	o := bench.SettleOptions{Many: 1_000_000, Rounds: 5}
	c := &cobra.Command{
		Use:   "settle",
		Short: "Cost of a settle with few and many unfinished records",
		Long: "Drives the core of one partition, without a broker: with 1,000 and with 1,000,000 unfinished records of which 1,000\n" +
			"run, one that runs is settled, picked at random, another is taken and another admitted. There are 10,000 keys; with\n" +
			"a key for each record, and with all of them running, it is measured besides.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(within("many", o.Many, bench.SettleFew, 50_000_000), within("rounds", o.Rounds, 1, 1_000)); err != nil {
				return err
			}
			return s.run(c.Context(), env, func(ctx context.Context, e *bench.Env) (out.Value, error) { return bench.RunSettle(ctx, e, o) })
		},
	}
	c.Flags().IntVar(&o.Many, "many", o.Many, "how many unfinished records are many")
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how many rounds; the median counts")
	return c
}

func newBenchKeysCommand(env *cli.Env) *cobra.Command {
	s := scenario{separate: true}
	keys := 10_000_000
	c := &cobra.Command{
		Use:   "keys",
		Short: "What distinct keys leave behind in memory",
		Long: "Consumes records of distinct keys while they are produced, and compares the live heap when a tenth of them is done\n" +
			"with the live heap when all are. The broker keeps the records: about 1.2 GB for 10,000,000.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := within("keys", keys, 10, 1_000_000_000); err != nil {
				return err
			}
			return s.run(c.Context(), env, func(ctx context.Context, e *bench.Env) (out.Value, error) { return bench.RunKeys(ctx, e, keys) })
		},
	}
	brokersFlag(c, &s.brokers)
	c.Flags().IntVar(&keys, "keys", keys, "how many distinct keys, one record each")
	return c
}

func newBenchProgressCommand(env *cli.Env) *cobra.Command {
	s := scenario{alone: true}
	o := bench.ProgressOptions{Seeds: 5, Rounds: 51}
	c := &cobra.Command{
		Use:   "progress",
		Short: "Size of what a commit tells, against the entropy",
		Long: "Encodes the progress of one partition into a commit's metadata, without a broker.\n\n" +
			"Of random sets of offsets, of which 1, 10 and 50 % are unfinished: the size of 60,000 of them over their entropy, the\n" +
			"largest number that fits 4,096 units whole, and what encoding and decoding that text takes. Of records with keys: the\n" +
			"units for one stuck key with a million records behind it, and for 1 and 10 % of 10,000 keys stuck among a million.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(within("seeds", o.Seeds, 1, 1_000), within("rounds", o.Rounds, 1, 100_000)); err != nil {
				return err
			}
			return s.run(c.Context(), env, func(ctx context.Context, e *bench.Env) (out.Value, error) { return bench.RunProgress(ctx, e, o) })
		},
	}
	c.Flags().IntVar(&o.Seeds, "seeds", o.Seeds, "how many random sets of each kind; the median counts")
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often a text is encoded and decoded for each set; the median counts")
	return c
}
