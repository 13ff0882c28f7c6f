package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/fronta-mq/fronta/progress"
)

// A record whose handler ends the process (os.Exit, out of memory) takes every
// other record that runs with it, and would do so for ever: it never fails, it
// is just there again. It is found in three steps, each of which needs one
// crash more, and all of which rest on what commits made durable before.
//
//   - An owner that was not let go in good order leaves a count of starts
//     behind, one more than it found, as long as the committed offset has not
//     moved since it began.
//   - The second owner in such a row admits records only up to an offset that
//     it has committed beforehand, its reach. So if it crashes too, the record
//     that did it lies between the frontier and that offset.
//   - The third one is careful: it starts the records below that offset one at
//     a time, over all its partitions, and commits before each which one it
//     is. If it crashes, the next owner knows the record, counts the crash, and
//     goes on carefully; with MaxCrashes of them the record is dead-lettered
//     without being started.
//
// A careful owner does not wait for ever for one record: one that has run for
// carePatience is not what ends the process at once, and the next is started
// beside it.

const (
	// reachAhead is how many offsets beyond what is admitted the second owner
	// in a row of unclean starts may start before it commits again.
	reachAhead = 1000

	// carePatience is how long a careful owner waits for a record before it
	// starts another one.
	carePatience = 10 * time.Second

	// maxCrashes is for how many records of a partition crashes are remembered.
	maxCrashes = 64
)

// care is the state of a careful owner's partition.
type care struct {
	until    int64      // records below it are suspects
	marked   int64      // the record that the brokers know to be the next; −1 none
	waiting  bool       // for them to know p.suspect
	busy     bool       // a suspect runs
	slot     queue.Slot // the suspect that runs, while busy
	patience *time.Timer
}

// CrashError is the failure of a record that was dead-lettered because the
// process ended while it was handled.
type CrashError struct{ Crashes int }

func (c *CrashError) Error() string {
	return fmt.Sprintf("the process ended %d times while this record was handled", c.Crashes)
}

// beginCareLocked draws the consequences of how the owner before this one
// ended.
func (e *Engine) beginCareLocked(p *Part, s *Start) {
	p.begun, p.suspect, p.reach = s.Offset, -1, math.MaxInt64
	st := s.Stored
	if st == nil || e.cfg.MaxCrashes == 0 {
		return
	}
	for _, c := range st.Crashes {
		p.crashes = put(p.crashes, c.Offset, c.N)
	}
	if st.Clean || st.Fence == 0 {
		return
	}
	p.starts = min(st.Starts+1, math.MaxInt32)
	until := max(st.Reach, st.Horizon())
	if st.Suspect >= 0 {
		p.crashes = put(p.crashes, st.Suspect, p.crashes[st.Suspect]+1)
		until = max(until, st.Suspect+1)
		p.starts = max(p.starts, 2)
		suspect, n := st.Suspect, p.crashes[st.Suspect]
		e.later(func() { e.cfg.Events.crashed(p.TopicPartition, suspect, n) })
	}
	if s.End >= 0 {
		until = min(until, s.End)
	}
	p.reaching = true
	p.reach = max(s.Offset, st.Horizon())
	if p.starts >= 2 && until > s.Offset {
		p.care = &care{until: until, marked: -1}
		p.reach = until
		n := p.starts
		e.later(func() { e.cfg.Events.careful(p.TopicPartition, s.Offset, until, n) })
	}
}

func put(m map[int64]int, offset int64, n int) map[int64]int {
	if m == nil {
		m = make(map[int64]int)
	}
	m[offset] = n
	return m
}

// careProgressLocked adds to a snapshot what a crash must not wipe out.
func (e *Engine) careProgressLocked(p *Part, s *Snapshot, horizon int64) {
	s.suspect = p.suspect
	s.Progress.Suspect = p.suspect
	if s.Offset <= p.begun || p.suspect >= 0 {
		s.Progress.Starts = p.starts
	}
	switch {
	case p.care != nil:
		s.Progress.Reach = p.care.until
	case p.reaching:
		// Behind a gap the next record may be far off.
		s.reach = max(p.q.Horizon(), horizon)
		if p.stagedN > 0 {
			s.reach = max(s.reach, p.staged[0].tasks[0].Offset)
		}
		s.reach += reachAhead
		s.Progress.Reach = s.reach
	}
	for offset := range p.crashes {
		if offset < s.Offset {
			delete(p.crashes, offset)
		}
	}
	for i, offset := range slices.Sorted(maps.Keys(p.crashes)) {
		if i == maxCrashes {
			break
		}
		s.Progress.Crashes = append(s.Progress.Crashes, progress.Count{Offset: offset, N: p.crashes[offset]})
	}
}

// careConfirmedLocked is told what the brokers have stored.
func (e *Engine) careConfirmedLocked(p *Part, at Position) {
	if c := p.care; c != nil {
		if c.waiting && at.suspect == p.suspect {
			c.waiting, c.marked = false, p.suspect
		}
		return
	}
	if !p.reaching {
		return
	}
	if at.Offset > p.begun {
		// The starts that went before did not keep the partition from going on.
		p.starts, p.reaching, p.reach = 0, false, math.MaxInt64
		return
	}
	p.reach = max(p.reach, at.reach)
	e.reachLocked(p)
}

// reachLocked asks for a commit that lets p admit more, in good time.
func (e *Engine) reachLocked(p *Part) {
	if p.reaching && p.care == nil && !p.gated && p.asked < p.reach && p.stagedN > 0 && p.staged[0].tasks[0].Offset >= p.reach-reachAhead/2 {
		p.asked = p.reach
		e.urgentLocked(p)
	}
}

// caringLocked says whether a careful partition has to wait: for its suspect,
// for the brokers to know of it, or for another partition's. When nothing is
// left to be careful about the partition is an ordinary one again.
func (e *Engine) caringLocked(p *Part) bool {
	c := p.care
	if c.busy || c.waiting || e.careful != nil && e.careful != p {
		return true
	}
	if p.q.Ready() == 0 && p.reading >= c.until && (p.stagedN == 0 || p.staged[0].tasks[0].Offset >= c.until) {
		e.endCareLocked(p)
	}
	return false
}

func (e *Engine) endCareLocked(p *Part) {
	e.leaveCareLocked(p)
	p.starts, p.suspect, p.reaching, p.reach = 0, -1, false, math.MaxInt64
	e.urgentLocked(p)
	e.later(func() { e.cfg.Events.carefree(p.TopicPartition) })
}

// leaveCareLocked ends the care for p without a verdict.
func (e *Engine) leaveCareLocked(p *Part) {
	if c := p.care; c != nil && c.patience != nil {
		c.patience.Stop()
	}
	p.care = nil
	e.yieldLocked(p)
}

// yieldLocked lets the next careful partition start a suspect.
func (e *Engine) yieldLocked(p *Part) {
	if e.careful != p {
		return
	}
	e.careful = nil
	for _, q := range e.parts {
		if q.care != nil && q != p {
			e.readyLocked(q)
		}
	}
}

// takeSuspectLocked is nextLocked for a careful partition: it answers with the
// next suspect if the brokers know that it is the one, and otherwise sees to it
// that they will.
func (e *Engine) takeSuspectLocked(p *Part) *task {
	c := p.care
	if c.busy || c.waiting || e.careful != nil && e.careful != p {
		// Both p and the partition whose turn it is now were in the queue of
		// those with work. p comes back when that one yields.
		return nil
	}
	if p.q.Ready() == 0 {
		e.admitLocked(p, admitStep)
	}
	s, ok := p.q.Take()
	if !ok {
		e.readyLocked(p)
		return nil
	}
	t := p.tasks[s]
	switch {
	case len(e.zombies) > 0 && e.blockedLocked(t):
		p.q.Park(s)
		p.blocked = append(p.blocked, s)
		e.readyLocked(p)
		return nil
	case t.more != nil && t.more.crashes > 0:
		e.claimLocked(p) // it will not be run
		return t
	case c.marked != t.Offset:
		p.q.Return(s)
		c.waiting, p.suspect = true, t.Offset
		e.careful = p
		e.urgentLocked(p)
		e.losePatienceLocked(p, func() bool {
			if !c.waiting || p.suspect != t.Offset {
				return false
			}
			// Not to be named while another partition's suspect runs.
			c.waiting, p.suspect = false, -1
			p.version++
			return true
		})
		return nil
	}
	c.busy, c.slot, c.marked = true, s, -1
	e.careful = p
	e.losePatienceLocked(p, func() bool {
		if !c.busy || c.slot != s || p.tasks[s] != t {
			return false
		}
		c.busy = false
		return true
	})
	e.claimLocked(p)
	return t
}

// losePatienceLocked lets others have their turn in a while, if still says then
// that p keeps them from it: a record that takes long, or a partition whose
// commits are refused while others' are not, does not hold up the rest.
func (e *Engine) losePatienceLocked(p *Part, still func() bool) {
	c := p.care
	if c.patience != nil {
		c.patience.Stop()
	}
	c.patience = time.AfterFunc(carePatience, func() {
		var fx effects
		e.mu.Lock()
		if p.open && p.care == c && still() {
			e.yieldLocked(p)
			e.readyLocked(p)
			e.wakeLocked(&fx)
		}
		e.mu.Unlock()
		fx.run()
	})
}

// survivedLocked is told that an attempt has ended and the process has not.
func (e *Engine) survivedLocked(t *task) {
	p := t.part
	c := p.care
	if c == nil || p.suspect != t.Offset && (!c.busy || c.slot != t.slot) {
		return
	}
	if p.suspect == t.Offset {
		p.suspect = -1
		p.version++
	}
	if c.busy && c.slot == t.slot {
		c.busy = false
		c.patience.Stop()
		e.yieldLocked(p)
	}
}
