package fronta_test

// Hooks: each is told what its documentation says, and may call the consumer.

import (
	"slices"
	"sync"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// recorder implements every hook and notes what it was told.
type recorder struct {
	mu    sync.Mutex
	names []string
	told  []telling
	also  func(name string) // called outside the lock
}

type telling struct {
	name       string
	at         time.Time
	partitions []fronta.TopicPartition
	fence      int64
	record     *fronta.Record
	err        error
	reason     deadletter.Reason
	d          time.Duration
	offset     int64
}

func (h *recorder) tell(x telling) {
	x.at = time.Now()
	h.mu.Lock()
	h.told = append(h.told, x)
	also := h.also
	h.mu.Unlock()
	if also != nil {
		also(x.name)
	}
}

func (h *recorder) of(name string) (of []telling) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.told {
		if x.name == name {
			of = append(of, x)
		}
	}
	return of
}

func (h *recorder) count(name string) int { return len(h.of(name)) }

func (h *recorder) ages() (ages []time.Duration) {
	for _, x := range h.of("stuck") {
		ages = append(ages, x.d)
	}
	return ages
}

func (h *recorder) OnAssigned(tps []fronta.TopicPartition, fence int64) {
	h.tell(telling{name: "assigned", partitions: slices.Clone(tps), fence: fence})
}
func (h *recorder) OnRevoked(tps []fronta.TopicPartition) {
	h.tell(telling{name: "revoked", partitions: slices.Clone(tps)})
}
func (h *recorder) OnLost(tps []fronta.TopicPartition, err error) {
	h.tell(telling{name: "lost", partitions: slices.Clone(tps), err: err})
}
func (h *recorder) OnCommitted(tp fronta.TopicPartition, offset int64) {
	h.tell(telling{name: "committed", partitions: []fronta.TopicPartition{tp}, offset: offset})
}
func (h *recorder) OnCommitFailed(tp fronta.TopicPartition, offset int64, err error) {
	h.tell(telling{name: "commit failed", partitions: []fronta.TopicPartition{tp}, offset: offset, err: err})
}
func (h *recorder) OnRetry(r *fronta.Record, err error, delay time.Duration) {
	h.tell(telling{name: "retry", record: r, err: err, d: delay})
}
func (h *recorder) OnDeadLettered(r *fronta.Record, reason deadletter.Reason, err error) {
	h.tell(telling{name: "dead-lettered", record: r, reason: reason, err: err})
}
func (h *recorder) OnDeadLetterFailed(r *fronta.Record, err error, delay time.Duration) {
	h.tell(telling{name: "dead letter failed", record: r, err: err, d: delay})
}
func (h *recorder) OnDiscarded(r *fronta.Record, reason deadletter.Reason, err error) {
	h.tell(telling{name: "discarded", record: r, reason: reason, err: err})
}
func (h *recorder) OnStuck(r *fronta.Record, age time.Duration) {
	h.tell(telling{name: "stuck", record: r, d: age})
}
func (h *recorder) OnLate(r *fronta.Record) { h.tell(telling{name: "late", record: r}) }
