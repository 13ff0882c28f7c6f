package command

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	platform := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	released := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Deps: []*debug.Module{{Path: franzGo, Version: "v1.22.3"}}}
	worktree := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"},
	}}
	for want, info := range map[string]*debug.BuildInfo{
		"fronta (devel) " + platform + "\n":                                  nil,
		"fronta v1.2.3 " + platform + " franz-go v1.22.3\n":                  released,
		"fronta (devel) revision 0123456789ab (modified) " + platform + "\n": worktree,
	} {
		var got strings.Builder
		versionOf(info).WriteText(&got)
		if got.String() != want {
			t.Errorf("%q, want %q", got.String(), want)
		}
	}
	if v := versionOf(worktree); v.Time != "2026-01-02T03:04:05Z" || v.Revision != "0123456789abcdef0123456789abcdef01234567" {
		t.Errorf("%+v lacks the revision or its time", v)
	}
}
