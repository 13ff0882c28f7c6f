package command

// fronta broker: the embedded broker as a process of its own, for work on one machine. What must stay true: the ready line
// comes when clients can connect and every topic is there; exit code 0 means that the data directory has everything.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
	"github.com/fronta-mq/fronta/fake"
)

// topicFlag is what --topic gathers.
type topicFlag []topicSpec

type topicSpec struct {
	Name       string `json:"name"`
	Partitions int    `json:"partitions"`
}

const topicForm = "name:partitions"

// Set implements pflag.Value. The name is judged by the broker.
func (f *topicFlag) Set(s string) error {
	name, number, ok := cutLast(s, ":")
	partitions, err := strconv.Atoi(number)
	if !ok || name == "" || err != nil {
		return fmt.Errorf("a topic has the form %s, such as orders:4", topicForm)
	}
	*f = append(*f, topicSpec{name, partitions})
	return nil
}

// String implements pflag.Value.
func (f *topicFlag) String() string {
	var all []string
	for _, t := range *f {
		all = append(all, fmt.Sprintf("%s:%d", t.Name, t.Partitions))
	}
	return strings.Join(all, ", ")
}

// Type implements pflag.Value.
func (*topicFlag) Type() string { return topicForm }

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// brokerReady is printed once.
type brokerReady struct {
	Event   string    `json:"event"` // "ready"
	Address string    `json:"address"`
	Data    string    `json:"data,omitempty"` // the data directory, empty in memory
	Topics  topicFlag `json:"topics"`         // those of --topic; the data directory may have more
}

// WriteText writes one line.
func (r brokerReady) WriteText(w io.Writer) {
	fmt.Fprintf(w, "broker ready at %s", r.Address)
	if len(r.Topics) > 0 {
		fmt.Fprintf(w, ", topics %s", r.Topics.String())
	}
	if r.Data != "" {
		fmt.Fprintf(w, ", data in %s", r.Data)
	}
	fmt.Fprintln(w)
}

func newBrokerCommand(env *cli.Env) *cobra.Command {
	var (
		addr, data string
		topics     = topicFlag{}
		attached   bool
	)
	c := &cobra.Command{
		Use:   "broker",
		Short: "Run a Kafka broker in this process, for local work",
		Long: "Runs a Kafka broker in this process, for local work and tests: one node, plain text, no users.\n\n" +
			"It prints one line when it is ready (with --json an object with its address) and runs until it is interrupted\n" +
			"or terminated. Without --data everything is in memory and gone at the end.",
		Example: "  fronta broker --topic orders:4\n" +
			"  fronta broker --addr 127.0.0.1:0 --data ./broker --topic orders:4 --topic refunds:1 --json",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// A script whose variable is empty would lose what it means to keep.
			if c.Flags().Changed("data") && data == "" {
				return cli.Usagef("--data names no directory; leave it out to keep everything in memory")
			}
			if addr == "" {
				return cli.Usagef("--addr is empty; it has the form host:port, such as 127.0.0.1:9092")
			}
			ctx := c.Context()
			if attached {
				ctx = stdinContext(env)
			}
			return runBroker(ctx, env, addr, data, topics)
		},
	}
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:9092", "`host:port` to listen on; port 0 takes a free one")
	c.Flags().StringVar(&data, "data", "", "`directory` that keeps topics, records and offsets; made if missing")
	c.Flags().Var(&topics, "topic", "topic to make if it is missing; may be repeated")
	c.Flags().BoolVar(&attached, cluster.UntilStdinEnds, false, "run until the standard input ends, whatever signals come")
	_ = c.Flags().MarkHidden(cluster.UntilStdinEnds)
	return c
}

// stdinContext ends with the standard input. It does not end with an interrupt, which a terminal sends to the process that
// started this one as well: that one needs the broker for its own orderly end.
func stdinContext(env *cli.Env) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		if env.Stdin != nil {
			_, _ = io.Copy(io.Discard, env.Stdin)
		}
	}()
	return ctx
}

func runBroker(ctx context.Context, env *cli.Env, addr, data string, topics topicFlag) error {
	opts := []fake.Option{fake.Addr(addr), fake.DataDir(data), fake.Logger(env.Log)}
	for _, t := range topics {
		opts = append(opts, fake.Topic(t.Name, t.Partitions))
	}
	b, err := fake.Start(opts...)
	if bad := new(fake.OptionError); errors.As(err, &bad) {
		return cli.Usagef("--%s %s: %w", strings.ToLower(bad.Option), bad.Value, bad.Err)
	}
	if err != nil {
		return err
	}
	defer b.Close()
	env.Out.Print(brokerReady{Event: "ready", Address: b.Addrs()[0], Data: data, Topics: topics})
	if err := env.Out.Err(); err != nil {
		return fmt.Errorf("print that the broker is ready: %w", err)
	}
	<-ctx.Done()
	b.Close()
	if err := b.Err(); err != nil {
		return fmt.Errorf("the data directory %s lacks what could not be written: %w", data, err)
	}
	return nil
}
