// Package command has the subcommands of fronta, one a file. Each is made by a function newXCommand(env) that Root lists;
// it parses flags into a struct, works by the library's public API, and prints through env.Out.
package command

import (
	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
)

// constructors make the subcommands. A new command is a file with its constructor, and a line here.
var constructors = []func(env *cli.Env) *cobra.Command{
	newBenchCommand,
	newBrokerCommand,
	newDemoCommand,
	newGroupCommand,
	newProgressCommand,
	newVersionCommand,
}

// Root makes the whole command, to be given to [cli.Run] with the same env.
func Root(env *cli.Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "fronta",
		Short: "A Kafka topic as a queue",
		Long: "fronta is the command of the Go library of that name, which lets a service use a Kafka topic as a queue.\n\n" +
			"It exits with 0 when the work is done, 1 when the work failed and 2 when it was called wrongly.",
	}
	for _, construct := range constructors {
		root.AddCommand(construct(env))
	}
	return root
}
