package fake

// kfake reports a write that failed only by logging it and goes on. This logger passes everything on and remembers the
// first such report, so that a broker that lost data cannot look like one that kept it.

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kfake"
)

// writeReports are the beginnings of the messages by which kfake says that it could not write. Messages about what it found
// and repaired while it loaded a directory are not among them.
var writeReports = []string{"persist ", "save session state", "rebuildSegments ", "compact groups.log", "compact pids.log"}

type clusterLog struct {
	to *slog.Logger // nil: nobody listens

	mu  sync.Mutex
	err error
}

// Logf implements [kfake.Logger].
func (l *clusterLog) Logf(level kfake.LogLevel, format string, args ...any) {
	if level == kfake.LogLevelError || level == kfake.LogLevelWarn {
		l.remember(format, args)
	}
	if l.to == nil {
		return
	}
	to := slog.LevelDebug
	switch level {
	case kfake.LogLevelError:
		to = slog.LevelError
	case kfake.LogLevelWarn:
		to = slog.LevelWarn
	case kfake.LogLevelInfo:
		to = slog.LevelInfo
	}
	if ctx := context.Background(); l.to.Enabled(ctx, to) {
		l.to.Log(ctx, to, fmt.Sprintf(format, args...))
	}
}

func (l *clusterLog) remember(format string, args []any) {
	for _, report := range writeReports {
		if !strings.HasPrefix(format, report) {
			continue
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			l.err = fmt.Errorf(format, args...)
		}
		return
	}
}

func (l *clusterLog) writeError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
