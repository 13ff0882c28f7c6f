// The command fronta shows, measures and serves the fronta library: a Kafka topic as a queue.
//
// Run "fronta help" for its commands. It exits with 0 when the work is done, 1 when the work failed and 2 when it was called
// wrongly. Results are on the standard output, as text or with --json as JSON; errors and warnings are on the standard error.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for an orderly end; from then on a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	env := &cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	os.Exit(cli.Run(ctx, env, command.Root(env), os.Args[1:]))
}
