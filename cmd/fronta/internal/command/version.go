package command

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
)

const franzGo = "github.com/twmb/franz-go"

// version is what the Go toolchain recorded in the binary. What it did not record is empty: a binary built from a module
// version has no revision, and "go run" records neither.
type version struct {
	Version  string `json:"version"`            // of the module: "v1.2.3", or "(devel)" when built from a work tree
	Revision string `json:"revision,omitempty"` // of version control
	Time     string `json:"time,omitempty"`     // of the revision, in RFC 3339
	Modified bool   `json:"modified"`           // the work tree had changes besides
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
	FranzGo  string `json:"franz_go,omitempty"` // the Kafka client's version
}

func newVersionCommand(env *cli.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			env.Out.Print(versionOf(info))
			return nil
		},
	}
}

// versionOf reads what the toolchain recorded; nil if that was nothing, as in a binary of another build system.
func versionOf(info *debug.BuildInfo) version {
	v := version{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if info == nil {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	for _, dep := range info.Deps {
		if dep.Path == franzGo {
			v.FranzGo = dep.Version
		}
	}
	return v
}

// WriteText writes one line, with as much of the revision as people use.
func (v version) WriteText(w io.Writer) {
	fmt.Fprintf(w, "fronta %s", v.Version)
	if v.Revision != "" {
		fmt.Fprintf(w, " revision %.12s", v.Revision)
	}
	if v.Modified {
		fmt.Fprint(w, " (modified)")
	}
	fmt.Fprintf(w, " %s %s/%s", v.Go, v.OS, v.Arch)
	if v.FranzGo != "" {
		fmt.Fprintf(w, " franz-go %s", v.FranzGo)
	}
	fmt.Fprintln(w)
}
