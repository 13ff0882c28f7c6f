package fronta

import (
	"fmt"
	"math"

	"github.com/fronta-mq/fronta/internal/engine"
)

// DeadLetter says what becomes of a record that is rejected, or whose
// deliveries are exhausted. The zero DeadLetter is none: such records stay in
// the queue and are tried for ever. See [DeadLetterTopic] and [Discard].
type DeadLetter struct {
	topic   string
	discard bool
	budget  *DeadLetterBudget
}

// DeadLetterTopic writes such records to topic, which must exist and must not
// be one of the consumed ones. Key, value, headers and timestamp are kept;
// where the record came from and why it was given up is added in headers (see
// package deadletter). Until all in-sync replicas have the dead letter, the
// record counts as unfinished and its lane waits; a write that fails is tried
// again for as long as it takes.
func DeadLetterTopic(topic string) DeadLetter { return DeadLetter{topic: topic} }

// Discard drops such records, each with a line in the log and a count in
// [Stats].
func Discard() DeadLetter { return DeadLetter{discard: true} }

// DeadLetterBudget limits how many records may be dead-lettered because their
// deliveries are exhausted. In an outage everything fails, and that is nothing
// the records could be blamed for: once the budget is used up, exhausted
// records go on being tried, and the budget comes back with the records that
// succeed. [Reject] is not limited.
type DeadLetterBudget struct {
	Burst     int     // how many in a row; default 100
	PerAccept float64 // how many more each accepted record allows; default 0.1
}

// WithBudget replaces the default budget. A Burst below 0 removes the limit.
func (d DeadLetter) WithBudget(b DeadLetterBudget) DeadLetter {
	d.budget = &b
	return d
}

// Topic is the dead-letter topic, empty if there is none.
func (d DeadLetter) Topic() string { return d.topic }

func (d DeadLetter) set() bool { return d.topic != "" || d.discard }

func (d DeadLetter) validate() error {
	if d.topic != "" && !validTopic(d.topic) {
		return fmt.Errorf("DeadLetterTopic(%q) is no topic name: 1 to 249 letters, digits, '.', '_' and '-'", d.topic)
	}
	if b := d.budget; b != nil {
		if !d.set() {
			return fmt.Errorf("WithBudget without DeadLetterTopic or Discard has no effect")
		}
		if b.PerAccept < 0 || b.PerAccept != b.PerAccept {
			return fmt.Errorf("DeadLetterBudget.PerAccept is %v: it can't be negative", b.PerAccept)
		}
	}
	return nil
}

func validTopic(topic string) bool {
	if topic == "" || len(topic) > 249 || topic == "." || topic == ".." {
		return false
	}
	for _, c := range []byte(topic) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

func (d DeadLetter) engineBudget() engine.Budget {
	b := DeadLetterBudget{}
	if d.budget != nil {
		b = *d.budget
	}
	if b.Burst == 0 {
		b.Burst = 100
	}
	if b.Burst < 0 {
		b.Burst = math.MaxInt
	}
	if b.PerAccept == 0 {
		b.PerAccept = 0.1
	}
	return engine.Budget{Burst: b.Burst, PerAccept: b.PerAccept}
}
