package consumer_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// Brokers that take 64 letters of metadata, and hundreds of stuck keys, of which 64 letters cannot tell. The commit is refused and
// sent again with less, in the same round, and there is one line about it in the log. What is read later of the partitions
// with the stuck keys waits until their progress is small enough, so that nothing finished is forgotten from then on; other
// partitions go on, and so do all when the keys are stuck no more (H-026, H-141; P-4).
func TestBrokersTakeLittleMetadata(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Start(t, kafkatest.WithProperty("offset.metadata.max.bytes", "64"))
	const interval = 2 * time.Second
	w := newWorld(t, cluster, 3, nil)
	log := &lines{}
	commits := &answers{}
	confirmed := &confirmed{}
	set := func(c *fronta.Config) {
		c.Client = append(c.Client, kgo.WithHooks(commits))
		c.CommitInterval = interval
		c.Concurrency = 700
		c.Logger = slog.New(log)
		c.Hooks = append(c.Hooks, confirmed)
	}

	// A record of each key, then again in any order, when some keys of the first two partitions are stuck.
	const keys = 1500
	key := func(i int) string { return "key-" + strconv.Itoa(i%keys) }
	w.produceAs(keys, key)
	stuck := make(map[string]bool)
	for _, a := range w.withKeys(func(string) bool { return true }) {
		if a.partition < 2 && rand.IntN(2) == 0 {
			stuck[w.keys[a]] = true
		}
	}
	order := rand.Perm(keys)
	w.produceAs(keys, func(i int) string { return key(order[i-keys]) })
	isStuck := func(number int, key string) bool { return number >= keys && stuck[key] }
	first := make(map[int32]int64) // where the first stuck record of each partition is
	for i := 2*keys - 1; i >= keys; i-- {
		if a := w.find(i); isStuck(i, w.keys[a]) {
			first[a.partition] = a.offset
		}
	}

	release := make(chan struct{})
	m := w.join("a", func(ctx context.Context, r *fronta.Record) error {
		if isStuck(number(r), string(r.Key)) {
			select {
			case <-release:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}, set)
	w.await(2*keys - len(stuck))
	// A commit is refused, and what it was about is confirmed in the round that it begins.
	w.until("the limit is known", func() bool { return len(log.about("metadata")) > 0 })
	began, n := commits.round(log.when("metadata"), interval/2)
	if n < 2 {
		t.Errorf("the limit was found out with %d commits", n)
	}
	for p := range int32(2) {
		w.until("the partition is committed", func() bool { return confirmed.after(p, began).partition == p })
		if took := confirmed.after(p, began).at.Sub(began); took > interval/2 {
			t.Errorf("partition %d was confirmed %s after the round of commits began", p, took)
		}
	}
	w.until("what lies before the stuck records is committed", func() bool {
		return confirmed.has(0, first[0]) && confirmed.has(1, first[1])
	})

	before := m.c.Stats().Commits
	w.produceAs(keys, key)
	w.until("all of the third partition is done", func() bool {
		for _, a := range w.withKeys(func(string) bool { return true }) {
			if a.partition == 2 && !w.isDone(a) {
				return false
			}
		}
		return true
	})
	w.until("more is committed", func() bool { return m.c.Stats().Commits > before })
	s := m.c.Stats()
	if s.CommitErrors > 0 {
		t.Errorf("%d commits failed", s.CommitErrors)
	}
	for _, p := range s.Partitions {
		if p.WaitsForProgress != (p.Partition < 2) {
			t.Errorf("partition %d waits for progress: %t, with %d heads", p.Partition, p.WaitsForProgress, p.Heads)
		}
	}
	all := w.stored()
	for p, s := range all {
		if units := len(utf16.Encode([]rune(s.metadata))); units > 64 {
			t.Errorf("partition %d: metadata of %d units", p, units)
		}
	}
	close(release)
	w.await(3 * keys)
	m.leave()
	w.judge()
	if got := log.about("metadata"); len(got) != 1 {
		t.Errorf("%d lines about metadata, want one: %q", len(got), got)
	} else {
		t.Logf("%d keys were stuck; metadata %s; logged: %s", len(stuck), sizes(all), got[0])
	}
}

// answers notes when offset commits were answered, before the client hands the answer on.
type answers struct {
	mu    sync.Mutex
	times []time.Time
}

func (s *answers) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key != int16(kmsg.OffsetCommit) || err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Now())
}

// round is when the first of some commits was answered, less than gap before the last one that was answered before at, and how
// many they were.
func (s *answers) round(at time.Time, gap time.Duration) (began time.Time, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.times {
		switch {
		case t.After(at):
			return began, n
		case n == 0 || t.Sub(began) > gap:
			began, n = t, 1
		default:
			n++
		}
	}
	return began, n
}

// confirmed notes when which offsets were confirmed.
type confirmed struct {
	mu   sync.Mutex
	list []confirmation
}

type confirmation struct {
	partition int32
	offset    int64
	at        time.Time
}

func (c *confirmed) OnCommitted(tp fronta.TopicPartition, offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, confirmation{tp.Partition, offset, time.Now()})
}

// after is the first confirmation of a partition after a moment; its partition is -1 if there is none.
func (c *confirmed) after(partition int32, moment time.Time) confirmation {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.list {
		if x.partition == partition && x.at.After(moment) {
			return x
		}
	}
	return confirmation{partition: -1}
}

// has says whether a position was confirmed.
func (c *confirmed) has(partition int32, offset int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.list, func(x confirmation) bool { return x.partition == partition && x.offset == offset })
}

// lines is a log that keeps what is worth a warning.
type lines struct {
	mu   sync.Mutex
	kept []string
	at   []time.Time
}

func (*lines) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		text.WriteString(" " + a.String())
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.at = append(l.kept, text.String()), append(l.at, r.Time)
	return nil
}

func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *lines) WithGroup(string) slog.Handler      { return l }

// when is the time of the first line with a word.
func (l *lines) when(word string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, line := range l.kept {
		if strings.Contains(line, word) {
			return l.at[i]
		}
	}
	return time.Time{}
}

// about are the lines with a word.
func (l *lines) about(word string) (some []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.kept {
		if strings.Contains(line, word) {
			some = append(some, line)
		}
	}
	return some
}
