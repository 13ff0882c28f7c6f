// Package checker tells whether a run of a queue kept its promises.
//
// A [Checker] is told what happened: which records were produced, which handlers started and ended, which offsets were
// committed, which dead letters were seen, and how owners of partitions came and went. It answers which promise was
// broken by which record:
//
//   - P-1, no loss: every record ends (accepted, dead-lettered or discarded), and no commit passes one that has not.
//   - P-2, order: two records of a lane never run at the same time or out of order, and fences never fall.
//   - P-3, progress: nothing that was finished runs again, except what the kind of stop or crash allows.
//
// It knows no Kafka client and trusts no engine: it sees what a user of the queue would see.
//
// # What the caller must keep
//
// The checker judges events in the order in which it hears of them, so each call must be made before anybody can act on
// what it says:
//
//   - Started as the first thing a handler does, Ended as its last, before the engine learns of the outcome.
//   - Revoked before the partition is let go, Lost and Killed before anything is known of the successor. A successor
//     that starts earlier is understood all the same when its fence is higher: see [Checker.Lost].
//   - Committed after the group has stored the offset, and the commits of one partition in the order in which they were
//     stored.
//   - When events come from another process through a pipe, read it to the end before Killed.
//
// Two events may come late, because their source is slow by nature. Produced may follow Started (a consumer can be
// faster than the producer's acknowledgement): the rules of the lane are then applied when the lane becomes known. And a
// dead letter may be seen in its topic long after the engine went on, so a record that was passed while it was neither
// finished nor running is only suspected; its dead letter clears it, and [Checker.Finish] condemns what is left. Set
// [Options.PromptDeadLetters] to judge at once.
//
// # Time and memory
//
// A record costs about 50 bytes, a lane about 200 and its name, an event about 100 ns. Partitions don't share a
// lock. Reports are deterministic: the same events of a partition give the same report, whatever other partitions did
// in between.
package checker

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
)

// Partition names a partition of a topic.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// String returns "topic/partition".
func (p Partition) String() string {
	return p.Topic + "/" + strconv.FormatInt(int64(p.Partition), 10)
}

// Progress says how much the consumers under test know after a restart, and so which repeats P-3 allows.
type Progress uint8

const (
	// PlainOffsets is for consumers that commit offsets only: whatever lies at or above the committed offset may run
	// again after its owner stopped, gracefully or not. It is the zero value.
	PlainOffsets Progress = iota

	// Exact is for consumers that store which records above the committed offset are finished: after a graceful stop
	// (Revoked, Stopped) nothing may run again, after a crash or a loss only what finished since the last commit.
	Exact
)

// String returns the constant's name.
func (p Progress) String() string {
	if p == Exact {
		return "Exact"
	}
	return "PlainOffsets"
}

// Options configure a [Checker]. The zero value works.
type Options struct {
	// MaxViolations is how many violations a report lists. All are counted. Default (zero or less): 100.
	MaxViolations int

	// Progress is the rule for repeats. Default: PlainOffsets.
	Progress Progress

	// MaxRepeats is how many repeats the whole run may have, allowed ones included; one more is a violation of P-3
	// when the run is finished. Zero, the default, sets no such limit; a negative value allows none.
	MaxRepeats int

	// PromptDeadLetters says that DeadLettered and Discarded are called before the engine may go on, for instance by
	// the writer of dead letters itself. A record that is passed while unfinished is then a violation at once. False,
	// the default, is for callers that read the dead-letter topic.
	PromptDeadLetters bool

	// FencesRise demands that each new owner of a partition has a higher fence than all before it. False, the default,
	// demands only that fences never fall.
	FencesRise bool
}

// Result is how an attempt ended.
type Result uint8

const (
	// Accepted is a success: the record is finished.
	Accepted Result = iota + 1
	// Failed is an attempt that will be repeated or, if it was the last one allowed, leads to a dead letter that is
	// reported with DeadLettered.
	Failed
	// Snoozed is an attempt that asked to be run again later. Not a failure.
	Snoozed
	// Abandoned is a handler that was cancelled since its partition was lost or the consumer stopped, or that asked the
	// consumer to stop. The record stays as it was.
	Abandoned
	// RejectedPending is a record handed over to be dead-lettered or discarded. It is finished when DeadLettered or
	// Discarded says so.
	RejectedPending
	// ResultDeadLettered is a record whose dead letter is known to be stored: it is finished. The checker believes it;
	// RejectedPending followed by DeadLettered proves it.
	ResultDeadLettered
	// ResultDiscarded is a record that was dropped on purpose: it is finished.
	ResultDiscarded

	resultCount
)

// String returns the result as a report names it.
func (r Result) String() string {
	switch r {
	case Accepted:
		return "accepted"
	case Failed:
		return "failed"
	case Snoozed:
		return "snoozed"
	case Abandoned:
		return "abandoned"
	case RejectedPending:
		return "rejected"
	case ResultDeadLettered:
		return "dead-lettered"
	case ResultDiscarded:
		return "discarded"
	default:
		return "result " + strconv.Itoa(int(r))
	}
}

// Checker collects the events of a run. All methods may be called at the same time from many goroutines. Make one with
// [New].
type Checker struct {
	opts Options

	// Partitions are found without a lock: the map is replaced when one is added.
	partitions atomic.Pointer[map[Partition]*partition]

	mu     sync.Mutex // guards additions to partitions, and killed
	killed map[string]bool
}

// New returns a checker that has heard of nothing.
func New(opts Options) *Checker {
	if opts.MaxViolations <= 0 {
		opts.MaxViolations = 100
	}
	c := &Checker{opts: opts, killed: map[string]bool{}}
	c.partitions.Store(&map[Partition]*partition{})
	return c
}

// lock returns the state of p, locked.
func (c *Checker) lock(p Partition) *partition {
	state, ok := (*c.partitions.Load())[p]
	if !ok {
		state = c.add(p)
	}
	state.mu.Lock()
	return state
}

func (c *Checker) add(p Partition) *partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.partitions.Load()
	if state, ok := old[p]; ok {
		return state
	}
	grown := make(map[Partition]*partition, len(old)+1)
	maps.Copy(grown, old)
	state := newPartition(c, p)
	grown[p] = state
	c.partitions.Store(&grown)
	return state
}

func (c *Checker) isKilled(owner string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed[owner]
}

// Produced says that the record at offset is in the log, in this lane of its partition: records of one lane must run one
// after another. An empty lane makes the record a lane of its own. Offsets may come in any order and with gaps, and
// after the record was started. Don't report records of aborted transactions.
//
// A second call for an offset changes nothing; with another lane it is a violation of the history.
func (c *Checker) Produced(p Partition, offset int64, lane string) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.produced(offset, lane)
}

// Assigned says that owner holds p from now on. It is needed only when an owner gets a partition back after Lost or
// Revoked and its fence did not rise; a start with a higher fence says the same.
func (c *Checker) Assigned(owner string, p Partition) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.assigned(owner)
}

// Started says that a handler of owner begins with a record. owner names one incarnation of a consumer: a restarted
// process, or better each new membership, has a new name. delivery is the delivery count the handler was given, 1 at
// first. fence is its fence token; pass always the same number if there is none.
//
// A start with a lower fence than the highest seen for the partition comes from an owner that was replaced: a violation,
// unless that owner is reported lost or killed, before or after. A start by a lost owner, with a fence no higher than
// it had, is the work of a zombie: it is counted, its result changes nothing.
func (c *Checker) Started(owner string, p Partition, offset int64, delivery int, fence int64) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.started(owner, offset, delivery, fence)
}

// Ended says that a handler of owner returned. Only Accepted, ResultDeadLettered and ResultDiscarded finish the record.
// The result of an owner that has lost, returned or been replaced at the partition changes nothing and is counted as
// late. If the owner runs the record twice, as a zombie and again, the newer attempt is taken to have ended.
func (c *Checker) Ended(owner string, p Partition, offset int64, result Result) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.ended(owner, offset, result)
}

// DeadLettered says that a dead letter of the record is stored in the dead-letter topic: the record is finished. reason
// is counted. It may come before Ended, after the next records of the lane, and more than once: further dead letters of
// a record are counted as duplicates.
func (c *Checker) DeadLettered(p Partition, offset int64, reason string) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.deadLettered(offset, reason)
}

// Discarded says that the record was dropped on purpose and without a dead letter: the record is finished. reason is
// counted.
func (c *Checker) Discarded(p Partition, offset int64, reason string) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.discarded(offset, reason)
}

// Committing says that owner is about to decide what it commits for p; Committed follows. It matters for Exact only and
// may be left out: without it the checker cannot know whether a record that finished while a commit was under way is
// part of it, and takes it to be covered only by the commit after that.
func (c *Checker) Committing(owner string, p Partition) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.committing()
}

// Committed says that the group has stored offset for p. owner is who stored it; an empty owner is an observer that
// read the offset from the group, and then says nothing about what else the commit covers. Every record below must be finished, and an offset below an earlier one is a violation
// of its own, except when an owner that was lost or killed reports it: its report is merely late.
func (c *Checker) Committed(owner string, p Partition, offset int64) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.commit(owner, offset)
}

// Lost says that owner does not hold p any more, without having been asked: it was declared dead, or found its
// generation gone. Handlers still running are zombies: that they overlap with a successor's is the one window P-2
// leaves, and is counted in Overlaps.
//
// An owner may learn of its loss late. A successor that starts with a higher fence before that only makes its overlaps
// and repeats suspect: Lost or Killed clears them, Revoked makes them violations, and so does the end of the run.
func (c *Checker) Lost(owner string, p Partition) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.gone(owner, lost)
}

// Revoked says that owner gives p back in good order: its handlers have ended and its last commit is stored. A handler
// that runs on is a violation when a successor overlaps with it. If the last commit failed, report Lost.
func (c *Checker) Revoked(owner string, p Partition) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.gone(owner, revoked)
}

// Stopped is Revoked for every partition that owner holds: a graceful stop.
func (c *Checker) Stopped(owner string) {
	for _, s := range *c.partitions.Load() {
		s.mu.Lock()
		s.gone(owner, revoked)
		s.mu.Unlock()
	}
}

// Killed says that owner does not exist any more, as after kill -9: its handlers don't run. A start by it afterwards is
// a violation of the history. To imitate a kill inside a process, where handlers run on, use Lost.
func (c *Checker) Killed(owner string) {
	c.mu.Lock()
	c.killed[owner] = true
	c.mu.Unlock()
	for _, s := range *c.partitions.Load() {
		s.mu.Lock()
		s.kill(owner)
		s.mu.Unlock()
	}
}

// Reset says that the group's position in p was set to offset on purpose, by an operator or a reset policy. Records at
// or above it may run again; unfinished records between the committed offset and a higher one are skipped: they count
// neither as lost nor as out of order.
func (c *Checker) Reset(p Partition, offset int64) {
	s := c.lock(p)
	defer s.mu.Unlock()
	s.reset(offset)
}
