package cli

// How a command line becomes an exit code. What must stay true: a command's own errors exit with 1, whatever is wrong with
// the command line exits with 2, and nothing but a command's output is on the standard output.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// The command's exit codes.
const (
	ExitOK     = 0 // the work is done
	ExitFailed = 1 // the work failed
	ExitUsage  = 2 // unknown command or flag, bad argument
)

// UsageError is the error of a command whose arguments are wrong in a way that only it can tell. It exits with ExitUsage
// and a hint at the command's help.
type UsageError struct{ Err error }

// Error is the message of Err.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef is a [UsageError] with a message made like fmt.Errorf's.
func Usagef(format string, args ...any) error {
	return &UsageError{fmt.Errorf(format, args...)}
}

// Run executes args on root, whose commands have an env that Run completes, and returns the exit code. A command works
// until ctx ends; that a signal ended it is not an error. The error, if any, has been written to env.Stderr.
func Run(ctx context.Context, env *Env, root *cobra.Command, args []string) int {
	var asJSON, started bool
	root.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON, one object a line, and nothing else on stdout")
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetHelpCommand(newHelpCommand(root))
	root.InitDefaultCompletionCmd(args...)
	env.complete(false)
	prepare(root, func() {
		started = true
		env.complete(asJSON)
	})

	called, err := root.ExecuteContextC(ctx)
	env.Out.EndProgress()
	if err == nil {
		// Output that could not be written is output that its reader lacks.
		if err = env.Out.Err(); err == nil {
			return ExitOK
		}
	}
	fmt.Fprintf(env.Stderr, "%s: %s\n", root.Name(), strings.TrimRight(err.Error(), "\n"))
	if usage := new(UsageError); !started || errors.As(err, &usage) {
		fmt.Fprintf(env.Stderr, "Run '%s --help' for usage.\n", called.CommandPath())
		return ExitUsage
	}
	return ExitFailed
}

// prepare makes the command and those below it tell when their work starts: an error before is one of usage, since cobra
// has no type for those. A command that only groups others shows its help, and refuses a command that it lacks, which cobra
// does for the root alone.
func prepare(c *cobra.Command, start func()) {
	if !c.Runnable() && c.HasParent() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usagef("unknown command %q for %q", args[0], c.CommandPath())
			}
			return c.Help()
		}
	}
	if work := c.RunE; work != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			start()
			return work(c, args)
		}
	}
	for _, sub := range c.Commands() {
		prepare(sub, start)
	}
}

// newHelpCommand replaces cobra's, which answers an unknown command with success.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show what a command does and its flags",
		RunE: func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return Usagef("no command %q to help with", strings.Join(args, " "))
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}
