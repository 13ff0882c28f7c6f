package group

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

func flat(m map[string][]int32) []engine.TopicPartition {
	var tps []engine.TopicPartition
	for topic, partitions := range m {
		for _, p := range partitions {
			tps = append(tps, engine.TopicPartition{Topic: topic, Partition: p})
		}
	}
	sortNames(tps)
	return tps
}

func sortNames(tps []engine.TopicPartition) {
	slices.SortFunc(tps, func(a, b engine.TopicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

func byTopic(tps []engine.TopicPartition) map[string][]int32 {
	m := make(map[string][]int32)
	for _, tp := range tps {
		m[tp.Topic] = append(m[tp.Topic], tp.Partition)
	}
	return m
}

// names lists partitions for a log line, the first 20 of them.
func names(tps []engine.TopicPartition) string {
	var b strings.Builder
	for i, tp := range tps {
		if i == 20 {
			fmt.Fprintf(&b, " and %d more", len(tps)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s/%d", tp.Topic, tp.Partition)
	}
	return b.String()
}

// clientLog passes the client's own warnings and errors on to slog. Its chatter
// below that is of use only to the client's developers.
type clientLog struct{ log *slog.Logger }

func (l clientLog) Level() kgo.LogLevel { return kgo.LogLevelWarn }

func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if msg == "unable to commit offset for topic partition" {
		return // commitFailed tells of it, with more
	}
	to := slog.LevelWarn
	switch {
	case level == kgo.LogLevelError:
		to = slog.LevelError
	case strings.HasPrefix(msg, "received an OffsetCommitResponse after our group session has ended"):
		// A commit was answered while the member joined again: nothing is
		// amiss, the answer is taken into account by commit.go.
		to = slog.LevelDebug
	}
	l.log.Log(context.Background(), to, "kafka client: "+msg, keyvals...)
}
