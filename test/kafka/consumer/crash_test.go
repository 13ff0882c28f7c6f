package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/progress"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// ran collects which records a member starts, how often.
type ran struct {
	mu    sync.Mutex
	times map[at]int
}

func (r *ran) handle(_ context.Context, record *fronta.Record) error {
	r.mu.Lock()
	if r.times == nil {
		r.times = make(map[at]int)
	}
	r.times[at{record.Partition, record.Offset}]++
	r.mu.Unlock()
	work(record)
	return nil
}

// records are those that were started; one that was started twice fails the test.
func (r *ran) records(t *testing.T) []at {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []at
	for a, n := range r.times {
		list = append(list, a)
		if n > 1 {
			t.Errorf("the heir started partition %d offset %d %d times", a.partition, a.offset, n)
		}
	}
	return sorted(list)
}

// A member with keys whose handlers never return ends: killed in the middle of its work, killed when all else is done, or
// in good order. The next owner runs exactly what the stored progress leaves unfinished: nothing after a stop, and after
// SIGKILL no more than what was finished since the last commit that it heard of (P-3; H-028, H-143, H-144; H-150: the
// session of six seconds has to end first).
func TestMemberEndsWithStuckKeys(t *testing.T) {
	t.Parallel()
	const n, keys = 20_000, 1000
	for _, c := range []struct {
		name  string
		stuck int
		end   string
	}{
		{"one key, killed", 1, "killed"},
		{"one key, killed when idle", 1, "idle"},
		{"one key, stopped", 1, "stopped"},
		{"a tenth of the keys, killed", keys / 10, "killed"},
		{"a tenth of the keys, stopped", keys / 10, "stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafkatest.Shared(t), 2, nil)
			// Evenly spread; the first record of the topic is one of theirs.
			var stuck []string
			for k := range c.stuck {
				stuck = append(stuck, "key-"+strconv.Itoa(k*keys/c.stuck))
			}
			w.produce(n, keys)
			theirs := w.withKeys(func(key string) bool { return slices.Contains(stuck, key) })

			victim := w.spawn("victim", order{Stuck: stuck, Concurrency: c.stuck + 32, Pace: 2 * time.Millisecond})
			var all map[int32]stored
			switch c.end {
			case "killed":
				w.await(n / 2)
				victim.kill()
				all = w.stored()
			case "idle":
				w.await(n - len(theirs))
				all = w.untilStored("all but the stuck key's records are told of", theirs)
				victim.kill()
			case "stopped":
				w.await(n / 2)
				victim.leave()
				all = w.stored()
			}
			finished := victim.records("ended")
			commits := victim.told("committed")
			if len(commits) < 4 {
				t.Errorf("the victim made %d commits before it ended", len(commits))
			}

			// What is stored must be true: whatever is not unfinished by it was finished.
			open := w.unfinished(all)
			left := make(map[at]bool, len(open))
			for _, a := range open {
				left[a] = true
			}
			repeats := 0
			for _, a := range finished {
				if left[a] {
					repeats++
				}
			}
			if got := len(finished) - repeats + len(open); got != n {
				t.Errorf("%d records are told of as finished, %d of them were", n-len(open), len(finished)-repeats)
			}
			for p, s := range all {
				if s.format != progress.Fronta {
					t.Errorf("partition %d: the stored progress is of format %s", p, s.format)
				} else if s.Clean != (c.end == "stopped") {
					t.Errorf("partition %d: the stored progress says that the end was clean: %t", p, s.Clean)
				}
			}
			if c.end != "killed" && repeats > 0 {
				t.Errorf("%d finished records are not told of", repeats)
			}
			// The handler's word comes before the commit that is made of it: what was finished before the last but one was
			// confirmed is in the last one.
			late := lastInterval(victim.events)
			var untold []at
			for _, a := range finished {
				if left[a] && !late[a] {
					untold = append(untold, a)
				}
			}
			if len(untold) > 0 {
				t.Errorf("%d records were finished before the last but one commit and are not told of: %v", len(untold), untold[:min(len(untold), 10)])
			}

			var again ran
			heir := w.join("heir", again.handle)
			w.await(n)
			heir.leave()
			if got := again.records(t); !slices.Equal(got, open) {
				t.Errorf("the heir ran %s", differ(got, open))
			}
			report := w.judge()
			if report.Repeated != int64(repeats) {
				t.Errorf("%d records repeated, want the %d that the last commit did not tell of", report.Repeated, repeats)
			}
			t.Logf("%s after %d of %d records, %d of them since the last but one commit; the heir ran %d, %d of them again; metadata %s",
				c.end, len(finished), n, len(late), len(open), repeats, sizes(all))
		})
	}
}

// lastInterval are the records that were finished after the last but one commit of their partition. Commits that follow each
// other at once are one.
func lastInterval(events []event) map[at]bool {
	commits := make(map[int32]int)
	newer := make(map[int32]time.Time)
	late := make(map[at]bool)
	for _, e := range slices.Backward(events) {
		switch e.What {
		case "committed":
			if last, ok := newer[e.Partition]; !ok || last.Sub(e.at) >= apart {
				commits[e.Partition]++
				newer[e.Partition] = e.at
			}
		case "ended":
			if commits[e.Partition] < 2 {
				late[at{e.Partition, e.Offset}] = true
			}
		}
	}
	return late
}

// sizes tells of the length of metadata.
func sizes(all map[int32]stored) string {
	var texts []string
	for p := range int32(len(all)) {
		texts = append(texts, fmt.Sprintf("%d letters for [%d, %d)", len([]rune(all[p].metadata)), all[p].offset, all[p].Horizon()))
	}
	return strings.Join(texts, ", ")
}
