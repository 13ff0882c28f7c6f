package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/queue"
)

// Counters count what happened since the engine was made. They never fall,
// but for Stuck and Out, which are of the moment.
type Counters struct {
	Accepted     int64 // records whose handler returned nil
	Failed       int64 // failed attempts
	Retried      int64 // attempts that led to another one
	Snoozed      int64
	Rejected     int64 // attempts that ended in Reject
	DeadLettered int64 // records whose dead letter was acknowledged
	Discarded    int64
	LetterErrors int64 // failed attempts to write a dead letter
	Withheld     int64 // exhausted records kept in retry by the budget
	Late         int64 // results that came after the partition was gone
	Abandoned    int64 // attempts given up because of a stop or a lost partition
	Expired      int64 // pulled deliveries released without the caller
	Dropped      int64 // records read for a partition that was gone by then
	Recalled     int64 // records that were read again and known to be finished
	Forgotten    int64 // times progress was given up while it was read again
	Crashed      int64 // records dead-lettered because the process did not survive them
	Rewinds      int64 // times a partition's log went back
	StuckReports int64
	Stuck        int64 // handlers that run for longer than StuckAfter now
	Out          int64 // deliveries handed out by Receive and not settled
}

// Events are told what happened, outside the lock and in order. A nil func is
// not called.
type Events struct {
	Late         func(*Delivery)
	Retry        func(d *Delivery, err error, delay time.Duration)
	Withheld     func(*Delivery)
	Homeless     func(*Delivery, error) // rejected, with nowhere to go
	Discarded    func(*Delivery, deadletter.Reason, error)
	DeadLettered func(Letter)
	LetterFailed func(d *Delivery, tries int, delay time.Duration, err error)
	Stuck        func(d *Delivery, age time.Duration, released bool)
	Closed       func(TopicPartition, error)
	Rewound      func(tp TopicPartition, was, is int64)

	// Forgotten: progress of tp that reaches up to horizon is given up from at
	// on: the record there is not what it told of, or is not there any more.
	Forgotten func(tp TopicPartition, at, horizon int64, why error)
	Crashed   func(tp TopicPartition, at int64, times int)           // the process ended while the record at was handled
	Careful   func(tp TopicPartition, from, until int64, starts int) // records are started one at a time
	Carefree  func(tp TopicPartition)
}

func (ev *Events) forgotten(tp TopicPartition, at, horizon int64, why error) {
	if ev.Forgotten != nil {
		ev.Forgotten(tp, at, horizon, why)
	}
}

func (ev *Events) crashed(tp TopicPartition, at int64, times int) {
	if ev.Crashed != nil {
		ev.Crashed(tp, at, times)
	}
}

func (ev *Events) careful(tp TopicPartition, from, until int64, starts int) {
	if ev.Careful != nil {
		ev.Careful(tp, from, until, starts)
	}
}

func (ev *Events) carefree(tp TopicPartition) {
	if ev.Carefree != nil {
		ev.Carefree(tp)
	}
}

func (ev *Events) late(d *Delivery) {
	if ev.Late != nil {
		ev.Late(d)
	}
}

func (ev *Events) retry(d *Delivery, err error, delay time.Duration) {
	if ev.Retry != nil {
		ev.Retry(d, err, delay)
	}
}

func (ev *Events) withheld(d *Delivery) {
	if ev.Withheld != nil {
		ev.Withheld(d)
	}
}

func (ev *Events) homeless(d *Delivery, err error) {
	if ev.Homeless != nil {
		ev.Homeless(d, err)
	}
}

func (ev *Events) discarded(d *Delivery, reason deadletter.Reason, err error) {
	if ev.Discarded != nil {
		ev.Discarded(d, reason, err)
	}
}

func (ev *Events) deadLettered(l Letter) {
	if ev.DeadLettered != nil {
		ev.DeadLettered(l)
	}
}

func (ev *Events) letterFailed(d *Delivery, tries int, delay time.Duration, err error) {
	if ev.LetterFailed != nil {
		ev.LetterFailed(d, tries, delay, err)
	}
}

func (ev *Events) stuck(d *Delivery, age time.Duration, released bool) {
	if ev.Stuck != nil {
		ev.Stuck(d, age, released)
	}
}

func (ev *Events) closed(tp TopicPartition, cause error) {
	if ev.Closed != nil {
		ev.Closed(tp, cause)
	}
}

func (ev *Events) rewound(tp TopicPartition, was, is int64) {
	if ev.Rewound != nil {
		ev.Rewound(tp, was, is)
	}
}

// Stats are the engine at one moment.
type Stats struct {
	Counters
	Running    int   // handlers running, deliveries out, letters being written
	Unfinished int   // records admitted and not finished
	Waiting    int   // of those, records that wait for their next attempt
	Staged     int   // records read and not admitted
	Bytes      int64 // of both
	Workers    int   // goroutines that run handlers or wait to
	Stopping   bool
	Parts      []PartStats // by topic and partition
}

// PartStats is one partition.
type PartStats struct {
	TopicPartition
	Fence      int64
	Known      bool  // whether the start of reading is known; without it the offsets are 0
	Frontier   int64 // the offset that may be committed
	Horizon    int64 // the offset after the last admitted
	Reading    int64 // the offset after the last read
	End        int64 // the log's end as last seen, −1 unknown
	Unfinished int
	Staged     int
	Bytes      int64
	Lanes      int
	Paused     bool
	Held       bool
	Leaving    bool
	Full       bool // admission waits until progress has room for more
	Careful    bool // records are started one at a time, to find the one that ends the process
	Heads      int64
	Blocked    []Blocked // the longest blocked first, at most maxBlocked
}

// Blocked is a lane that waits: its head has failed, or a dead letter is being
// written for it, or a handler of an earlier ownership runs in it.
type Blocked struct {
	Key      []byte // nil: the record has no key
	Offset   int64  // of its head
	State    string
	Attempts int // failed so far
	Since    time.Time
	Err      error
	Behind   int // unfinished records of the lane behind its head
}

const maxBlocked = 16

// Stats takes a snapshot. It costs time in proportion to the partitions and
// the records that wait.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := Stats{
		Counters: e.counters, Running: e.running, Unfinished: e.unfinished, Staged: e.staged,
		Bytes: e.bytes, Workers: len(e.workers.all), Stopping: e.stopping,
	}
	s.Stuck = e.watch.stuckLocked()
	s.Running -= e.workers.heldLocked()
	for _, p := range e.parts {
		ps := PartStats{
			TopicPartition: p.TopicPartition, Fence: p.Fence, End: p.end, Staged: p.stagedN,
			Bytes: p.bytes, Paused: p.paused, Held: p.held, Leaving: p.halted.Load(),
		}
		if p.q != nil {
			ps.Known = true
			ps.Frontier, ps.Horizon, ps.Reading = p.q.Frontier(), p.q.Horizon(), p.reading
			ps.Unfinished, ps.Lanes, ps.Heads = p.q.Len(), p.q.Lanes(), p.q.Heads()
			ps.Careful = p.care != nil
			ps.Full = p.stagedN > 0 && !e.fitsLocked(p, p.staged[0].tasks[0].Offset)
			s.Waiting += p.q.Waiting()
			ps.Blocked = p.blockedStatsLocked()
		}
		s.Parts = append(s.Parts, ps)
	}
	slices.SortFunc(s.Parts, func(a, b PartStats) int { return compare(a.TopicPartition, b.TopicPartition) })
	return s
}

// heldLocked is how many records of open partitions workers hold without
// running them: those of their batches that they have not come to, or that wait
// to be settled. A run counts as one record.
func (w *workers) heldLocked() (n int) {
	for x := range w.all {
		if x.inRun {
			continue
		}
		end := int(x.size.Load())
		if x.taken > 0 {
			end = int(x.taken)
		}
		_, running := x.whereLocked()
		for _, t := range x.batch[min(x.settled, end):end] {
			if t != running && t.part.open {
				n++
			}
		}
	}
	return n
}

func (p *Part) blockedStatsLocked() []Blocked {
	if p.q.Waiting() == 0 && len(p.letters) == 0 && len(p.blocked) == 0 && p.q.Running() == 0 {
		return nil
	}
	var found []Blocked
	var slots []queue.Slot
	p.q.Each(func(i queue.Info) bool {
		if i.State != queue.Waiting && i.State != queue.Parked && (i.State != queue.Running || i.Attempts == 0) {
			return true
		}
		t := p.tasks[i.Slot]
		b := Blocked{Key: t.Key, Offset: i.Offset, State: i.State.String(), Attempts: i.Attempts}
		if t.Failure != nil {
			b.Since, b.Err = t.Failure.First, t.Failure.Err
		}
		found = append(found, b)
		slots = append(slots, i.Slot)
		return true
	})
	order := make([]int, len(found))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(found[a].Offset, found[b].Offset) })
	oldest := make([]Blocked, 0, min(len(order), maxBlocked))
	for _, i := range order[:min(len(order), maxBlocked)] {
		b := found[i]
		b.Behind = p.q.Backlog(slots[i])
		oldest = append(oldest, b)
	}
	return oldest
}

func compare(a, b TopicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
