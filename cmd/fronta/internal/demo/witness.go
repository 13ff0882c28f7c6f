package demo

// The witness stands between the queue and the handler and tells the checker what it sees. It keeps what package checker
// asks for: a start is told before the handler does anything, an end before the engine learns of it, a partition's leaving
// before it is let go.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/internal/checker"
)

// witness watches one member. It is its middleware and its hooks.
type witness struct {
	name    string
	check   *checker.Checker
	say     func(string)
	commits *positions

	handled    atomic.Int64  // accepted
	rebalances atomic.Int64  // times partitions were assigned
	assigned   chan struct{} // closed with the first partition
	worked     chan struct{} // closed when the first record was accepted

	onceAssigned, onceWorked sync.Once
}

func newWitness(name string, check *checker.Checker, commits *positions, say func(string)) *witness {
	return &witness{name: name, check: check, commits: commits, say: say, assigned: make(chan struct{}), worked: make(chan struct{})}
}

func partition(topic string, p int32) checker.Partition {
	return checker.Partition{Topic: topic, Partition: p}
}

// Watch is a fronta.Middleware; it has to be the outermost.
func (w *witness) Watch(next fronta.Handler) fronta.Handler {
	return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) (err error) {
		p := partition(r.Topic, r.Partition)
		w.check.Started(w.name, p, r.Offset, r.DeliveryCount, r.Fence)
		result := checker.Failed // unless it returns: a panic passes through here
		defer func() { w.check.Ended(w.name, p, r.Offset, result) }()
		err = next.Handle(ctx, r)
		switch {
		case err == nil:
			result = checker.Accepted
			w.handled.Add(1)
			w.onceWorked.Do(func() { close(w.worked) })
		case ctx.Err() != nil:
			result = checker.Abandoned
		case errors.Is(err, errRefused):
			result = checker.RejectedPending
		}
		return err
	})
}

// OnAssigned implements fronta.HookAssigned.
func (w *witness) OnAssigned(tps []fronta.TopicPartition, _ int64) {
	for _, tp := range tps {
		w.check.Assigned(w.name, partition(tp.Topic, tp.Partition))
	}
	if len(tps) == 0 {
		return
	}
	w.rebalances.Add(1)
	w.onceAssigned.Do(func() { close(w.assigned) })
	w.say(w.name + " has " + numbers(tps))
}

// OnRevoked implements fronta.HookRevoked.
func (w *witness) OnRevoked(tps []fronta.TopicPartition) {
	for _, tp := range tps {
		w.check.Revoked(w.name, partition(tp.Topic, tp.Partition))
	}
	w.say(w.name + " gave up " + numbers(tps))
}

// OnLost implements fronta.HookLost.
func (w *witness) OnLost(tps []fronta.TopicPartition, err error) {
	for _, tp := range tps {
		w.check.Lost(w.name, partition(tp.Topic, tp.Partition))
	}
	w.say(w.name + " lost " + numbers(tps) + ": " + err.Error())
}

// OnCommitted implements fronta.HookCommitted.
func (w *witness) OnCommitted(tp fronta.TopicPartition, offset int64) {
	w.check.Committed(w.name, partition(tp.Topic, tp.Partition), offset)
	w.commits.set(tp.Partition, offset)
}

// positions are the committed offsets as members report them.
type positions struct {
	mu      sync.Mutex
	at      map[int32]int64
	changed chan struct{} // holds one when something was set since it was last emptied
}

func newPositions() *positions {
	return &positions{at: make(map[int32]int64), changed: make(chan struct{}, 1)}
}

func (p *positions) set(partition int32, offset int64) {
	p.mu.Lock()
	p.at[partition] = offset
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// reach waits until all ends are committed, and says whether they are.
func (p *positions) reach(ctx context.Context, ends map[int32]int64) bool {
	for !p.reached(ends) {
		select {
		case <-p.changed:
		case <-ctx.Done():
			return p.reached(ends)
		}
	}
	return true
}

func (p *positions) reached(ends map[int32]int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for partition, end := range ends {
		if p.at[partition] < end {
			return false
		}
	}
	return true
}

// numbers lists partitions: "partitions 0, 1, 2".
func numbers(tps []fronta.TopicPartition) string {
	if len(tps) == 0 {
		return "no partition"
	}
	all := make([]int, len(tps))
	for i, tp := range tps {
		all[i] = int(tp.Partition)
	}
	slices.Sort(all)
	var b strings.Builder
	b.WriteString("partition")
	if len(all) > 1 {
		b.WriteByte('s')
	}
	for i, n := range all {
		if i == shownPartitions {
			fmt.Fprintf(&b, " and %d more", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}

// shownPartitions is how many a line names.
const shownPartitions = 12
