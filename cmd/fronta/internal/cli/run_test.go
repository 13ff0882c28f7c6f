package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
)

type text string

func (s text) WriteText(w io.Writer) { fmt.Fprintln(w, string(s)) }

// tool is a root with a command for each way to end.
func tool(env *cli.Env) *cobra.Command {
	work := func(use string, run func(c *cobra.Command, args []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Args: cobra.NoArgs, RunE: run}
	}
	ok := work("ok", func(c *cobra.Command, _ []string) error {
		env.Out.Print(text("result"))
		env.Log.Info("quiet")
		env.Log.Warn("careful")
		return c.Context().Err()
	})
	ok.Flags().Int("count", 0, "")
	must := work("must", func(*cobra.Command, []string) error { return nil })
	must.Flags().String("topic", "", "")
	_ = must.MarkFlagRequired("topic")
	group := &cobra.Command{Use: "group"}
	group.AddCommand(work("list", func(*cobra.Command, []string) error { return nil }))

	root := &cobra.Command{Use: "tool"}
	root.AddCommand(ok, must, group,
		work("fail", func(*cobra.Command, []string) error {
			env.Out.Progress("working")
			return errors.New("it broke")
		}),
		work("wrong", func(*cobra.Command, []string) error {
			return fmt.Errorf("flags: %w", cli.Usagef("--a and --b: %w", io.EOF))
		}),
	)
	return root
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	const hint, groupHint = "Run 'tool --help' for usage.\n", "Run 'tool group --help' for usage.\n"
	for args, want := range map[string]struct {
		code   int
		stdout string // the beginning
		stderr string // "" is nothing at all, else the whole
	}{
		"ok":              {0, "result\n", "level=WARN msg=careful\n"},
		"ok --json":       {0, `"result"` + "\n", "level=WARN msg=careful\n"},
		"fail":            {1, "working\n", "tool: it broke\n"},
		"fail --json":     {1, "", "tool: it broke\n"},
		"wrong":           {2, "", "tool: flags: --a and --b: EOF\nRun 'tool wrong --help' for usage.\n"},
		"ok more":         {2, "", "tool: unknown command \"more\" for \"tool ok\"\nRun 'tool ok --help' for usage.\n"},
		"ok --count=many": {2, "", "tool: invalid argument \"many\" for \"--count\" flag: strconv.ParseInt: parsing \"many\": invalid syntax\nRun 'tool ok --help' for usage.\n"},
		"ok --x":          {2, "", "tool: unknown flag: --x\nRun 'tool ok --help' for usage.\n"},
		"must":            {2, "", "tool: required flag(s) \"topic\" not set\nRun 'tool must --help' for usage.\n"},
		"group x":         {2, "", "tool: unknown command \"x\" for \"tool group\"\n" + groupHint},
		"nothing":         {2, "", "tool: unknown command \"nothing\" for \"tool\"\n" + hint},
		"help nothing":    {2, "", "tool: no command \"nothing\" to help with\nRun 'tool help --help' for usage.\n"},
		"group":           {0, "Usage:\n  tool group", ""},
		"group list":      {0, "", ""},
		"help group list": {0, "Usage:\n  tool group list", ""},
		"":                {0, "Usage:\n  tool [command]", ""},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr strings.Builder
			env := &cli.Env{Stdout: &stdout, Stderr: &stderr}
			code := cli.Run(t.Context(), env, tool(env), strings.Fields(args))
			if code != want.code {
				t.Errorf("exit code %d, want %d", code, want.code)
			}
			if got := stdout.String(); !strings.HasPrefix(got, want.stdout) || (want.stdout == "" && got != "") {
				t.Errorf("stdout %q, want %q", got, want.stdout)
			}
			got := stderr.String()
			if i := strings.Index(got, "level="); i > 0 {
				got = got[i:] // without the time
			}
			if got != want.stderr {
				t.Errorf("stderr %q, want %q", got, want.stderr)
			}
		})
	}
}

// Whoever reads the output must learn that some is missing.
func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	r, w := io.Pipe()
	r.CloseWithError(errors.New("disk full"))
	env := &cli.Env{Stdout: w, Stderr: &stderr}
	if code := cli.Run(t.Context(), env, tool(env), []string{"ok"}); code != cli.ExitFailed {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailed)
	}
	if !strings.Contains(stderr.String(), "tool: disk full\n") {
		t.Errorf("stderr %q", stderr.String())
	}
}

func TestContextReachesTheCommand(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := &cli.Env{Stdout: io.Discard, Stderr: io.Discard}
	if code := cli.Run(ctx, env, tool(env), []string{"ok"}); code != cli.ExitFailed {
		t.Errorf("exit code %d: the command did not see that its context ended", code)
	}
}
