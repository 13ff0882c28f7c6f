package consumer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/checker"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// What a record has behind it is not forgotten when its consumer stops: its failed attempts count on (H-075), and the fence
// rises with every owner, even when the group with all that it had stored was deleted in between (P-2).
func TestAttemptsAndFencesOutliveConsumers(t *testing.T) {
	t.Parallel()
	const n, most = 40, 6
	w := newWorld(t, kafkatest.Shared(t), 1, func(c *fronta.Config) { c.MaxDeliveries = most })
	w.produce(n, 10)

	var mu sync.Mutex
	deliveries := make(map[int][]int) // by number of the record
	fences := make(map[string]int64)
	waiting := 0
	handle := func(name string, retry bool) fronta.HandlerFunc {
		return func(_ context.Context, r *fronta.Record) error {
			mu.Lock()
			defer mu.Unlock()
			i := number(r)
			fences[name] = r.Fence
			deliveries[i] = append(deliveries[i], r.DeliveryCount)
			failed := errors.New("not now")
			switch {
			case !retry || i != 7 && i != 8:
				return nil
			case name == "a" && r.DeliveryCount == 3:
				waiting++
				return fronta.RetryAfter(time.Hour, failed)
			case i == 8 && name == "b":
				return nil
			}
			return failed
		}
	}
	a := w.join("a", handle("a", true))
	// Behind 7 and 8 three records each wait.
	w.await(n - 8)
	w.until("both have failed three times", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return waiting == 2 && a.c.Stats().Failed == 6
	})
	a.leave()
	b := w.join("b", handle("b", true))
	w.await(n)
	b.leave()
	w.judge()

	mu.Lock()
	if got := deliveries[7]; !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("the delivery counts of the record that always fails: %v", got)
	}
	if got := deliveries[8]; !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("the delivery counts of the record that failed three times: %v", got)
	}
	mu.Unlock()
	if l := w.readLetters(1)[0]; l.Reason != deadletter.Deliveries || l.DeliveryCount != most || string(l.Value) != "7" {
		t.Errorf("dead letter: %+v", l)
	}

	if resp, err := kadm.NewClient(w.client).DeleteGroup(t.Context(), w.group); err != nil || resp.Err != nil {
		t.Fatalf("delete the group: %v, %v", err, resp.Err)
	}
	w.check.Reset(checker.Partition{Topic: w.topic}, 0)
	w.forget()
	c := w.join("c", handle("c", false))
	w.await(n)
	c.leave()
	w.judge()
	mu.Lock()
	defer mu.Unlock()
	if fences["a"] >= fences["b"] || fences["b"] >= fences["c"] {
		t.Errorf("fences: %v", fences)
	}
	if got := deliveries[8]; got[len(got)-1] != 1 {
		t.Errorf("delivery counts with a new group: %v", got)
	}
	t.Logf("deliveries of the two: %v, %v; fences %v", deliveries[7], deliveries[8], fences)
}
