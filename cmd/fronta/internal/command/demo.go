package command

// fronta demo: the library at work, and the proof that it kept its promises. What must stay true: exit code 0 means that
// everything in the summary was checked and held.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/demo"
)

func newDemoCommand(env *cli.Env) *cobra.Command {
	var (
		brokers []string
		o       = demo.Options{Records: 8000, Customers: 300, Partitions: 4, Duration: 9 * time.Second}
	)
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch a queue at work, and check what it promises",
		Long: "Runs orders of a few hundred customers through a queue, each customer's one after another: some customers are slow,\n" +
			"the payments of one fail for a while, one order is refused, one makes the handler panic, and a second member of the\n" +
			"group joins in the middle and leaves again.\n\n" +
			"It ends by itself with a summary that is checked: every order was handled, none too early, none lost, those that had\n" +
			"to be given up are in the dead-letter topic with the reason, and everything is committed. It exits with 0 if all of\n" +
			"that held, and with 1 otherwise.\n\n" +
			"Without --brokers it needs nothing but this command: the broker is embedded.",
		Example: "  fronta demo\n" +
			"  fronta demo --records 100000 --customers 2000 --duration 30s\n" +
			"  fronta demo --brokers localhost:9092 --json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(
				within("records", o.Records, 100, 1_000_000),
				within("customers", o.Customers, 10, max(10, min(100_000, o.Records))),
				within("partitions", o.Partitions, 2, 1_000), // one for each member
				durationWithin("duration", o.Duration, time.Second, 10*time.Minute),
			); err != nil {
				return err
			}
			return runDemo(c.Context(), env, brokers, o)
		},
	}
	brokersFlag(c, &brokers)
	c.Flags().IntVar(&o.Records, "records", o.Records, "how many orders come in, 100 to 1000000")
	c.Flags().IntVar(&o.Customers, "customers", o.Customers, "how many customers they are from, 10 to 100000")
	c.Flags().IntVar(&o.Partitions, "partitions", o.Partitions, "how many partitions their topic has, 2 to 1000")
	c.Flags().DurationVar(&o.Duration, "duration", o.Duration, "in which time they come in, 1s to 10m; what is left takes a few seconds more")
	return c
}

func runDemo(ctx context.Context, env *cli.Env, brokers []string, o demo.Options) (err error) {
	c, err := connect(ctx, env, brokers, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s, err := demo.Run(ctx, c, o, demo.Display{
		Say: func(line string) {
			if !env.Out.JSON() {
				env.Out.Print(text(line))
			}
		},
		Progress: env.Out.Progress,
		Log:      env.Log,
	})
	env.Out.EndProgress()
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was checked")
	}
	if err != nil {
		return err
	}
	env.Out.Print(s)
	if !s.OK {
		return errors.New("a promise was broken")
	}
	return nil
}

// text is a line to print.
type text string

// WriteText implements out.Value.
func (t text) WriteText(w io.Writer) { fmt.Fprintln(w, string(t)) }

// brokersFlag is --brokers of the commands that can work on a real cluster.
func brokersFlag(c *cobra.Command, brokers *[]string) {
	c.Flags().StringSliceVar(brokers, "brokers", nil,
		"`host:port,...` of a Kafka cluster to work on instead of an embedded broker;\ntopics and groups get names of their own and are deleted at the end")
}

// connect opens the cluster to work on; without brokers an embedded one, on request in a process of its own.
func connect(ctx context.Context, env *cli.Env, brokers []string, separate bool) (*cluster.Cluster, error) {
	if err := validBrokers(brokers); err != nil {
		return nil, err
	}
	switch {
	case len(brokers) > 0:
		return cluster.Connect(ctx, brokers)
	case separate:
		return cluster.Separate(ctx, env)
	default:
		return cluster.Embedded(env)
	}
}

// validBrokers checks what was given by --brokers.
func validBrokers(brokers []string) error {
	for _, b := range brokers {
		if _, port, ok := cutLast(b, ":"); !ok || port == "" || b == ":"+port {
			return cli.Usagef("--brokers %q: not of the form host:port,...", b)
		}
	}
	return nil
}

// within checks a number that was given by a flag.
func within(flag string, n, least, most int) error {
	if n < least || n > most {
		return cli.Usagef("--%s %d: it must be from %d to %d", flag, n, least, most)
	}
	return nil
}

func durationWithin(flag string, d, least, most time.Duration) error {
	if d < least || d > most {
		return cli.Usagef("--%s %s: it must be from %s to %s", flag, d, least, most)
	}
	return nil
}
