// Package cli is what all commands share: their streams, output and exit codes. It knows none of the commands.
package cli

import (
	"io"
	"log/slog"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

// Env is the world a command works in. Commands write to nothing else and never exit by themselves.
type Env struct {
	Stdin  io.Reader // read only by commands whose help says so; nil is empty
	Stdout io.Writer // results and, in text mode, progress: through Out only
	Stderr io.Writer // errors and warnings: through Log, or returned from the command

	// Out prints results and progress. It is there once the command's RunE is called; before, when commands are made, the
	// flags are not known yet.
	Out *out.Printer
	// Log writes warnings and errors of libraries to Stderr, without breaking a progress display. It is there when Out is.
	Log *slog.Logger
}

func (e *Env) complete(asJSON bool) {
	e.Out = out.New(out.Options{Stdout: e.Stdout, Stderr: e.Stderr, JSON: asJSON})
	e.Log = slog.New(slog.NewTextHandler(e.Out.Stderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
