package consumer_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// One record ends the process whenever it is handled. It is found and dead-lettered after the process has ended five times:
// twice, without the partition having got on, until records are started one at a time, and three times (the default of MaxCrashes)
// while it was the one. All others, also those that were running beside it each time, are handled, and no crash is put down to
// any of them (H-075).
func TestRecordEndsTheProcess(t *testing.T) {
	t.Parallel()
	const n, keys, deadly, deaths = 300, 30, 150, 5
	w := newWorld(t, kafkatest.Shared(t), 3, nil)
	w.produce(n, keys)
	poison := w.find(deadly)
	isPoison := func(a at) bool { return a == poison }

	// A static member has its partitions back as soon as it is started again.
	o := order{Letters: w.letters, Instance: w.group, Concurrency: 16, Pace: 5 * time.Millisecond, Deadly: strconv.Itoa(deadly)}
	var last *process
	var before []string // how far it was at the end of each process
	moves, reached := 0, int64(0)
	for len(before) <= deaths+moves {
		last = w.spawn(fmt.Sprintf("process %d", len(before)+1), o)
		w.until("the process has ended, or all is handled", func() bool {
			return !last.running() || w.count() == n
		})
		if last.running() {
			break
		}
		if code := last.wait(); code != deadlyCode {
			t.Fatalf("%s ended with exit code %d", last.name, code)
		}
		w.check.Killed(last.name)
		others := slices.DeleteFunc(w.withKeys(func(string) bool { return true }), func(a at) bool { return a.partition == poison.partition || !w.isDone(a) })
		before = append(before, fmt.Sprintf("%d, %d in other partitions", w.count(), len(others)))
		for p, s := range w.stored() {
			if p == poison.partition {
				// The row of unclean starts begins anew when the partition has got on.
				if len(before) > 1 && s.Starts == 0 && s.offset > reached {
					moves++
				}
				reached = s.offset
			}
			for _, c := range s.Crashes {
				if !isPoison(at{p, c.Offset}) {
					t.Errorf("%d crashes are put down to partition %d offset %d; it is partition %d offset %d that ends the process", c.N, p, c.Offset, poison.partition, poison.offset)
				}
			}
		}
	}
	if !last.running() {
		t.Fatalf("the process was started %d times and ended each time; it had handled %v; %d times the partition had got on", len(before), before, moves)
	}
	if len(before) < deaths {
		t.Errorf("the process ended %d times, want %d", len(before), deaths)
	}
	last.leave()
	letters := w.readLetters(1)
	if l := letters[0]; l.Reason != "crash" || l.Origin.Offset != poison.offset || l.Origin.Partition != poison.partition || string(l.Value) != o.Deadly {
		t.Errorf("dead letter: %+v", l)
	}
	ends, err := kadm.NewClient(w.client).ListEndOffsets(t.Context(), w.letters)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset })
	if total != 1 {
		t.Errorf("%d dead letters, want one", total)
	}
	report := w.judge()
	t.Logf("the process ended %d times, having handled %v; the partition had got on %d times; %d records ran again", len(before), before, moves, report.Repeated)
}
