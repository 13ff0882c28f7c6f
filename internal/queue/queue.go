// Package queue is the pure core of fronta: one partition of a topic as a
// state machine.
//
// A [Partition] is told what happened (a record was read, a record's work
// ended this way, it is now this late) and answers what follows (run this
// record, the committed offset may be that one, wake me then). It has no
// goroutine, no clock, no lock and no I/O, and it knows nothing of a Kafka
// client: whoever owns it serialises the calls and carries out the answers.
//
// What must stay true, whatever the order of calls:
//
//   - The frontier never passes an unfinished record (P-1). A record is
//     unfinished from [Partition.Admit] until [Partition.Finish].
//   - Of a lane only the head, its first unfinished record, is ever ready,
//     running, waiting or parked; the next one becomes ready when the head is
//     finished, and in the order of offsets (P-2).
//   - Memory follows the number of unfinished records. Finished records and
//     idle lanes leave nothing behind, however far the frontier is back.
//   - Every call costs O(1), but for a wait, which costs O(log waiting), a
//     snapshot, which is a pass over all slots, and the end of a segment of a
//     former owner, which costs as much as lanes were learned in it.
//
// A partition may begin with what former owners told of it, see [Resume], and
// [Partition.Snapshot] makes what the next one is told:
//
//   - What a snapshot tells to be finished is finished (P-1), and what is
//     finished it tells (P-3), also while reading has not come back to where
//     the former owner was.
//   - Nothing that was told is used that a missing or another record makes
//     doubtful. When in doubt, records run again.
package queue

import (
	"fmt"
	"math"
)

// Slot names an unfinished record inside its partition, from Admit to Finish.
// Slots are small and dense and are used again, so that the owner can keep
// what it knows of a record in a slice indexed by Slot.
type Slot int32

// none is the absence of a slot, chunk or lane entry.
const none = -1

// Lane is the hash of what must not run at the same time: records with the
// same Lane run one after another. Two keys whose 64-bit hashes meet share a
// lane, which costs them parallelism and never order.
type Lane uint64

// Alone is the lane of a record that has to wait for nobody.
const Alone Lane = 0

// Time is a reading of the owner's clock in nanoseconds; only differences
// mean anything.
type Time int64

// Never is the time of an event that is not due at all.
const Never Time = math.MaxInt64

// State is where an unfinished record stands.
type State uint8

// The states of a record. The zero State is a slot that holds no record.
const (
	Free    State = iota
	Queued        // behind the head of its lane
	Ready         // may run: Take hands it out
	Running       // handed out by Take, its outcome is awaited
	Waiting       // head of its lane, ready again when its time has come
	Parked        // head of its lane, its owner works on it outside the handler
)

var stateNames = [...]string{"free", "queued", "ready", "running", "waiting", "parked"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// record is what handing out and finishing a record have to touch: 16 bytes,
// four to a cache line, because with a million unfinished records nearly every
// one of them has left the processor's caches by the time it is settled. Its
// offset is where its bit stands in the frontier.
type record struct {
	next  Slot    // the next record of the lane, or the next free slot
	chunk int32   // of the frontier
	tag   laneTag // of its lane
	bit   uint16  // in the chunk
	state State
	flags flags
}

// flags are what few records have.
type flags uint8

const (
	tried        flags = 1 << iota // its detail counts attempts
	former                         // it lies in a stretch of a former order, see past
	behindLane                     // and waits for a record of its lane,
	behindFormer                   // for a record of its lane of the former order, or for both
	first                          // of its lane in its stretch, though not in the partition when it was admitted
)

// detail is the rest of what is known of a record. Each field is written when
// it comes to matter and holds an earlier record's value before, so that a
// record that is handled at the first attempt in a lane of its own never
// touches its detail.
type detail struct {
	lane     Lane  // while record.tag is not 0
	wait     int32 // its place in the wait heap while it is Waiting
	attempts int32 // failed ones, while tried; stays at math.MaxInt32 once there
}

// Partition is the queue of one partition under one owner. The zero value is
// not usable; see [New].
type Partition struct {
	records []record
	details []detail // of the same slots
	free    Slot     // head of the list of free slots
	count   int      // unfinished
	keyed   int      // of those, not lanes of their own
	running int

	horizon  int64
	frontier frontier
	lanes    laneTable
	ready    ring
	waits    waitHeap
	leaving  bool
	past     *past // nil: nothing is known from former owners
	missed   int64 // 1 + the offset of a head that was missing, 0 if none
}

// New returns the queue of a partition whose reading starts at start: there
// the frontier stands until the first record is admitted.
func New(start int64) *Partition {
	p := &Partition{free: none, horizon: start}
	p.frontier.init()
	p.lanes.init()
	return p
}

// Admit adds the record at offset, which must not lie below the horizon (it
// was read before): then nothing changes and ok is false. Offsets between the
// horizon and offset are a gap that no record will fill.
func (p *Partition) Admit(offset int64, lane Lane) (s Slot, ok bool) {
	if p.past != nil {
		return p.admitAfter(offset, lane, Alone, false)
	}
	if offset < p.horizon {
		return none, false
	}
	p.horizon = offset + 1

	s = p.free
	if s == none {
		s = Slot(len(p.records))
		p.records = append(p.records, record{})
		p.details = append(p.details, detail{})
	} else {
		p.free = p.records[s].next
	}
	r := &p.records[s]
	*r = record{next: none, tag: tagOf(lane), state: Ready}
	r.chunk, r.bit = p.frontier.add(offset)
	p.count++

	if lane != Alone {
		p.details[s].lane = lane
		p.keyed++
		if last := p.lanes.push(p.details, lane, r.tag, s); last != none {
			p.records[last].next = s
			r.state = Queued
			return s, true
		}
	}
	p.ready.pushBack(s)
	return s, true
}

// Advance says that reading has come to offset without a record to admit:
// whatever lay between (transaction markers, aborted records, compaction's
// gaps) will never be delivered. An offset below the horizon changes nothing.
// If a head of a former owner lay between, all is forgotten, see Recall, and
// Missed tells of it.
func (p *Partition) Advance(offset int64) {
	if p.past != nil {
		p.pass(offset)
		return
	}
	p.horizon = max(p.horizon, offset)
}

// Take hands out the record that has been ready longest. Lanes take turns:
// the next record of a lane queues up behind the others that are ready.
func (p *Partition) Take() (s Slot, ok bool) {
	if p.leaving {
		return none, false
	}
	s, ok = p.ready.popFront()
	if ok {
		p.records[s].state = Running
		p.running++
	}
	return s, ok
}

// Return puts back a running record that was not started after all: it is
// ready again, ahead of the others, and no attempt is counted. Of several
// records that are returned the last stands first: return them in the reverse
// of the order in which they were taken, and they stand as before.
func (p *Partition) Return(s Slot) bool {
	r, ok := p.expect(s, Running)
	if !ok {
		return false
	}
	p.running--
	r.state = Ready
	p.ready.pushFront(s)
	return true
}

// Finish ends the record for good: accepted, dead-lettered or discarded. The
// next record of its lane, if there is one, becomes ready. Only a record that
// is running or parked can be finished; for any other nothing changes and the
// answer is false.
func (p *Partition) Finish(s Slot) bool {
	r, ok := p.get(s)
	if !ok {
		return false
	}
	switch r.state {
	case Running:
		p.running--
	case Parked:
	default:
		return false
	}
	if p.past != nil {
		p.finishAfter(s)
		return true
	}
	p.frontier.remove(r.chunk, r.bit)
	if r.tag != 0 {
		p.keyed--
		if next := r.next; next != none {
			p.records[next].state = Ready
			p.ready.pushBack(next)
		} else {
			p.lanes.remove(r.tag, s)
		}
	}
	p.release(s)
	return true
}

// release gives the slot of a finished record back.
func (p *Partition) release(s Slot) {
	p.records[s] = record{next: p.free}
	p.free = s
	p.count--
}

// Retry ends an attempt of a running or parked record that failed: it is
// counted, and the record is ready again at the time due. Its lane waits.
func (p *Partition) Retry(s Slot, due Time) bool {
	return p.wait(s, due, true)
}

// Snooze is Retry without counting an attempt.
func (p *Partition) Snooze(s Slot, due Time) bool {
	return p.wait(s, due, false)
}

func (p *Partition) wait(s Slot, due Time, attempt bool) bool {
	r, ok := p.get(s)
	if !ok {
		return false
	}
	switch r.state {
	case Running:
		p.running--
	case Parked:
	default:
		return false
	}
	if attempt {
		p.countAttempt(s)
	}
	r.state = Waiting
	p.waits.push(p, due, s)
	return true
}

// Park takes a running record out of the handler's hands without finishing
// it: its owner has to do something first, such as write a dead letter. It
// holds its lane and the frontier. Finish, Retry or Snooze end the parking.
func (p *Partition) Park(s Slot) bool {
	r, ok := p.expect(s, Running)
	if !ok {
		return false
	}
	p.running--
	r.state = Parked
	return true
}

// Count adds a failed attempt to a running or parked record and leaves it
// where it is.
func (p *Partition) Count(s Slot) bool {
	r, ok := p.get(s)
	if !ok || r.state != Running && r.state != Parked {
		return false
	}
	p.countAttempt(s)
	return true
}

func (p *Partition) countAttempt(s Slot) {
	r, d := &p.records[s], &p.details[s]
	switch {
	case r.flags&tried == 0:
		r.flags |= tried
		d.attempts = 1
	case d.attempts < math.MaxInt32:
		d.attempts++
	}
}

// Tick makes every record ready whose wait is over at now, the earliest
// first, and says how many there were.
func (p *Partition) Tick(now Time) int {
	n := 0
	for len(p.waits) > 0 && p.waits[0].due <= now {
		s := p.waits.pop(p)
		p.records[s].state = Ready
		p.ready.pushBack(s)
		n++
	}
	return n
}

// NextWake is the time at which Tick has something to do, or Never.
func (p *Partition) NextWake() Time {
	if len(p.waits) == 0 || p.leaving {
		return Never
	}
	return p.waits[0].due
}

// Leave says that the partition is going away: from now on Take hands out
// nothing. What is running can still be settled and counts.
func (p *Partition) Leave() { p.leaving = true }

// Leaving says whether Leave was called.
func (p *Partition) Leaving() bool { return p.leaving }

// Frontier is the first unfinished offset, or the horizon when there is none:
// the offset that may be committed. While the partition is Resuming, heads
// that were not come to count, and so do markers, which are finished but must
// be read again; when there is nothing of it all, the frontier is the end of
// the last segment, beyond the horizon.
func (p *Partition) Frontier() int64 {
	if first, ok := p.frontier.first(); ok {
		return first
	}
	if p.past != nil {
		return p.past.frontier(p.horizon)
	}
	return p.horizon
}

// Horizon is the offset that reading has come to: the one after the last
// admitted, recalled as finished or skipped.
func (p *Partition) Horizon() int64 { return p.horizon }

// Len is the number of unfinished records.
func (p *Partition) Len() int { return p.count }

// Ready is the number of records that Take could hand out.
func (p *Partition) Ready() int {
	if p.leaving {
		return 0
	}
	return p.ready.len()
}

// Running is the number of records handed out and not settled.
func (p *Partition) Running() int { return p.running }

// Waiting is the number of records that wait for their time.
func (p *Partition) Waiting() int { return len(p.waits) }

// Lanes is the number of lanes with unfinished records, records that are
// lanes of their own not counted.
func (p *Partition) Lanes() int { return p.lanes.count }

// Info is what the core knows of one unfinished record.
type Info struct {
	Slot     Slot
	Offset   int64
	Lane     Lane
	State    State
	Attempts int  // failed attempts so far
	Due      Time // while Waiting
}

// Info tells of the record in slot s; ok is false if there is none.
func (p *Partition) Info(s Slot) (info Info, ok bool) {
	r, ok := p.get(s)
	if !ok {
		return Info{}, false
	}
	info = Info{Slot: s, Offset: p.Offset(s), State: r.state, Attempts: p.Attempts(s)}
	if r.tag != 0 {
		info.Lane = p.details[s].lane
	}
	if info.State == Waiting {
		info.Due = p.waits[p.details[s].wait].due
	}
	return info, true
}

// Offset is the offset of the record in slot s, which must be unfinished.
func (p *Partition) Offset(s Slot) int64 {
	r := &p.records[s]
	return p.frontier.offset(r.chunk, r.bit)
}

// Attempts is the number of failed attempts of the record in slot s, which
// must be unfinished.
func (p *Partition) Attempts(s Slot) int {
	if p.records[s].flags&tried == 0 {
		return 0
	}
	return int(p.details[s].attempts)
}

// Each calls f for every unfinished record, in no particular order, until it
// answers false.
func (p *Partition) Each(f func(Info) bool) {
	for s := range p.records {
		if info, ok := p.Info(Slot(s)); ok && !f(info) {
			return
		}
	}
}

// Backlog is the number of unfinished records in the lane of the record in
// slot s that come behind it, 0 if there is no record in s. It costs as much
// as they are many.
func (p *Partition) Backlog(s Slot) int {
	r, ok := p.get(s)
	if !ok {
		return 0
	}
	n := 0
	for next := r.next; next != none; next = p.records[next].next {
		n++
	}
	return n
}

// keepSlots is how many slots are not worth giving back.
const keepSlots = 1024

// Shrink gives memory back once the partition is empty after it held many
// records. Slots handed out later start again at 0, so an owner that indexes
// by slot may drop its slice too: the answer says whether that is so.
func (p *Partition) Shrink() bool {
	if p.count > 0 || cap(p.records) <= keepSlots {
		return false
	}
	p.records, p.details, p.free = nil, nil, none
	p.ready = ring{}
	p.waits = nil
	if p.past == nil || p.past.marked == 0 {
		p.frontier.init()
	}
	p.lanes.init()
	return true
}

func (p *Partition) get(s Slot) (*record, bool) {
	if s < 0 || int(s) >= len(p.records) || p.records[s].state == Free {
		return nil, false
	}
	return &p.records[s], true
}

func (p *Partition) expect(s Slot, want State) (*record, bool) {
	r, ok := p.get(s)
	return r, ok && r.state == want
}
