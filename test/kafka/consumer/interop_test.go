package consumer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/internal/checker"
	"github.com/fronta-mq/fronta/progress"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// Groups that are handed over between this library and others on the JVM: nothing that was finished runs again, and what is
// unfinished runs in the order of its keys.

// parallelConsumer starts a member run by Parallel Consumer.
func (w *world) parallelConsumer(stuck ...string) *process {
	w.t.Helper()
	cmd := kafkatest.Java(w.t, "interop/Interop.java", append([]string{w.cluster.Addr(), w.group, w.topic}, stuck...)...)
	return w.watch("Parallel Consumer", cmd, w.nextFence())
}

// stuckOn is a handler that does not return for some keys until its context ends.
func (w *world) stuckOn(keys []string) fronta.HandlerFunc {
	return func(ctx context.Context, r *fronta.Record) error {
		work(r)
		if slices.Contains(keys, string(r.Key)) {
			w.wake()
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
}

// stuckKeys are those of the handovers below: the first records of the topic are theirs.
var stuckKeys = []string{"key-0", "key-1", "key-2"}

const handedOver, handedOverKeys = 2000, 50

// Parallel Consumer goes, in good order or at once, with keys whose records are not done; this library takes over.
func TestParallelConsumerHandsOver(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"close", "halt"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafkatest.Shared(t), 2, nil)
			w.produce(handedOver, handedOverKeys)
			theirs := w.withKeys(func(key string) bool { return slices.Contains(stuckKeys, key) })
			pc := w.parallelConsumer(stuckKeys...)
			w.await(handedOver - len(theirs))
			all := w.untilStored("Parallel Consumer has told of all that it finished", theirs)
			pc.say(end)
			code := pc.wait()
			if end == "close" {
				w.check.Stopped(pc.name)
				all = w.stored()
			} else {
				w.check.Killed(pc.name)
			}
			if want := map[string]int{"close": 0, "halt": 137}[end]; code != want {
				t.Errorf("Parallel Consumer ended with exit code %d, want %d", code, want)
			}
			for p, s := range all {
				if s.format != progress.ParallelConsumer {
					t.Errorf("partition %d: the metadata %q is of format %s", p, s.metadata, s.format)
				}
			}
			for _, e := range pc.told("committed") {
				if _, _, err := progress.Decode(e.Metadata, e.Offset, progress.Binding{Partition: e.Partition}); err != nil {
					t.Errorf("partition %d: metadata of a commit of %d: %q: %v", e.Partition, e.Offset, e.Metadata, err)
				}
			}

			var ran ran
			heir := w.join("heir", ran.handle)
			w.await(handedOver)
			heir.leave()
			if got := ran.records(t); !slices.Equal(got, theirs) {
				t.Errorf("after Parallel Consumer %s were run", differ(got, theirs))
			}
			if report := w.judge(); report.Repeated > 0 {
				t.Errorf("%d records repeated", report.Repeated)
			}
			t.Logf("%d records were left to run of %d; metadata %s", len(theirs), handedOver, sizes(all))
		})
	}
}

// This library goes with keys whose records are not done; Parallel Consumer takes over.
func TestParallelConsumerTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Shared(t), 2, nil)
	w.produce(handedOver, handedOverKeys)
	theirs := w.withKeys(func(key string) bool { return slices.Contains(stuckKeys, key) })
	m := w.join("fronta", w.stuckOn(stuckKeys), inFormat(fronta.ParallelConsumer))
	w.await(handedOver - len(theirs))
	m.leave()
	all := w.stored()
	for p, s := range all {
		if s.format != progress.ParallelConsumer {
			t.Errorf("partition %d: the metadata %q is of format %s", p, s.metadata, s.format)
		}
	}
	if open := w.unfinished(all); !slices.Equal(open, theirs) {
		t.Fatalf("stored as unfinished: %s", differ(open, theirs))
	}

	pc := w.parallelConsumer()
	w.await(handedOver)
	w.untilStored("Parallel Consumer has committed the end", nil)
	pc.say("close")
	if code := pc.wait(); code != 0 {
		t.Errorf("Parallel Consumer ended with exit code %d", code)
	}
	w.check.Stopped(pc.name)
	if got := pc.records("started"); !slices.Equal(got, theirs) {
		t.Errorf("Parallel Consumer ran %s", differ(got, theirs))
	}
	if report := w.judge(); report.Repeated > 0 {
		t.Errorf("%d records repeated", report.Repeated)
	}
	t.Logf("Parallel Consumer ran %d records of %d; metadata %s", len(pc.told("started")), handedOver, sizes(all))
}

func inFormat(f fronta.Progress) func(*fronta.Config) {
	return func(c *fronta.Config) { c.Progress, c.DrainTimeout = f, 300*time.Millisecond }
}

// A group moves to another format and back with unfinished records in it.
func TestFormatsFollowEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Shared(t), 2, nil)
	w.produce(handedOver, handedOverKeys)
	theirs := w.withKeys(func(key string) bool { return slices.Contains(stuckKeys, key) })
	for i, f := range []struct {
		write fronta.Progress
		want  progress.Format
	}{
		{fronta.AtleonV1, progress.AtleonV1},
		{fronta.FrontaProgress, progress.Fronta},
		{fronta.ParallelConsumer, progress.ParallelConsumer},
		{fronta.AtleonV1, progress.AtleonV1},
	} {
		m := w.join(f.want.String()+string(rune('a'+i)), w.stuckOn(stuckKeys), inFormat(f.write))
		w.await(handedOver - len(theirs))
		if i > 0 {
			w.until("the stuck records are in work again", func() bool { return m.c.Stats().Running >= len(stuckKeys) })
		}
		m.leave()
		all := w.stored()
		if open := w.unfinished(all); !slices.Equal(open, theirs) {
			t.Errorf("stored as unfinished by %s: %s", m.name, differ(open, theirs))
		}
		for p, s := range all {
			if s.format != f.want {
				t.Errorf("partition %d: the metadata is of format %s, want %s", p, s.format, f.want)
			}
		}
		t.Logf("%s: %s", f.want, sizes(all))
	}
	var ran ran
	heir := w.join("heir", ran.handle)
	w.await(handedOver)
	heir.leave()
	if got := ran.records(t); !slices.Equal(got, theirs) {
		t.Errorf("the last one ran %s", differ(got, theirs))
	}
	if report := w.judge(); report.Repeated > 0 {
		t.Errorf("%d records repeated", report.Repeated)
	}
}

// What Atleon itself has written for a commit of offset 5 with 6 and 8 done is gone by.
func TestAtleonHandsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Shared(t), 1, nil)
	w.produce(12, 12)
	tp := checker.Partition{Topic: w.topic}
	const name = "Atleon"
	for _, offset := range []int64{0, 1, 2, 3, 4, 6, 8} {
		w.check.Started(name, tp, offset, 1, 0)
		w.check.Ended(name, tp, offset, checker.Accepted)
		w.done(0, offset)
	}
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: w.topic, At: 5, LeaderEpoch: -1, Metadata: "AQICAulV0Ao"})
	if resp, err := kadm.NewClient(w.client).CommitOffsets(t.Context(), w.group, offsets); err != nil || resp.Error() != nil {
		t.Fatalf("commit: %v, %v", err, resp.Error())
	}
	w.check.Committed(name, tp, 5)
	w.check.Stopped(name)

	want := []at{{0, 5}, {0, 7}, {0, 9}, {0, 10}, {0, 11}}
	if open := w.unfinished(w.stored()); !slices.Equal(open, want) {
		t.Errorf("stored as unfinished: %v, want %v", open, want)
	}
	var ran ran
	heir := w.join("heir", ran.handle)
	w.await(12)
	heir.leave()
	if got := ran.records(t); !slices.Equal(got, want) {
		t.Errorf("run after Atleon: %v, want %v", got, want)
	}
	w.judge()
}
