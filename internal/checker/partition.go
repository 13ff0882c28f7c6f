package checker

import (
	"math"
	"slices"
	"sync"
)

// The rules, for one partition. What must stay true: each event is judged with what is known when it comes, and what a
// later event may excuse is kept as a suspicion next to the one that would excuse it: at the record whose dead letter
// may still be seen (waiting), or at the owner who may still be reported lost (term.suspects). So the verdict does not
// depend on when anybody asks.

// standing is what became of an owner at a partition.
type standing uint8

const (
	live    standing = iota
	lost             // declared dead: what still runs is a zombie's
	revoked          // gave the partition back in good order
	killed           // killed while it held the partition
)

func (s standing) String() string {
	return [...]string{"live", "lost", "revoked", "killed"}[s]
}

// A term is one stay of an owner at a partition.
type term struct {
	owner    string
	standing standing
	dead     bool  // its process is gone: its runs are no runs
	fenced   bool  // fence is known
	fence    int64 // highest of its starts
	running  int64
	suspects []finding

	// What the group knew when the term ended or somebody with a higher fence started: p.covered of that time. Later
	// commits are another owner's, for whom what this one had not committed is unfinished.
	closed  bool
	covered uint32
}

// position is a deliberate change of the group's position to offset. If that jumped forward, the records in
// [from, offset) were skipped; else from is offset.
type position struct {
	seq          uint32
	from, offset int64
}

type partition struct {
	mu      sync.Mutex
	id      Partition
	checker *Checker
	opts    Options

	seq uint32 // number of the event being judged

	pages map[int64]*page
	hot   [64]hotPage // by the low bits of the number

	lanes     []lane // [0] is unused
	laneIndex map[string]int32

	terms     []*term // [0] is unused
	current   map[string]int32
	lastOwner string
	lastTerm  int32 // term of lastOwner; 0 if none is remembered

	oneRun   [1]int32            // what runsOf returns, mostly
	moreRuns map[int64][]int32   // terms that run a record besides record.run
	lastDone map[int64]uint32    // last time a record with flagAgain was finished
	waiting  map[int64][]finding // suspicions by the record whose dead letter would clear them

	committed int64
	mark      uint32 // time of the last Committing without its Committed; 0 if none
	commitSeq uint32 // time of the last Committed
	covered   uint32 // what was finished until then is in the last commit
	highFence int64
	highTerm  int32 // who had highFence first; 0 if nobody started yet
	resets    []position

	tally    Report // the counters that need no scan
	results  [resultCount]int64
	seen     int64
	breaches []finding // at most opts.MaxViolations, each tallied
}

func newPartition(c *Checker, id Partition) *partition {
	return &partition{
		id:        id,
		checker:   c,
		opts:      c.opts,
		pages:     map[int64]*page{},
		lanes:     make([]lane, 1),
		laneIndex: map[string]int32{},
		terms:     []*term{{}},
		current:   map[string]int32{},
		moreRuns:  map[int64][]int32{},
		lastDone:  map[int64]uint32{},
		waiting:   map[int64][]finding{},
		tally: Report{
			Repeats:     map[string]int64{},
			DeadLetters: map[string]int64{},
			Discards:    map[string]int64{},
		},
	}
}

// raise records a breach.
func (p *partition) raise(f finding) {
	p.tally.count(f.code.kind(), 1)
	if len(p.breaches) < p.opts.MaxViolations {
		p.breaches = append(p.breaches, f)
	}
}

// suspect keeps a finding until its term is known to be lost or not.
func (p *partition) suspect(t *term, f finding) {
	t.suspects = append(t.suspects, f)
	p.tally.Suspects++
}

// await keeps a finding until a dead letter of the record excuses it, or raises it where dead letters are prompt.
func (p *partition) await(offset int64, f finding) {
	if p.opts.PromptDeadLetters {
		p.raise(f)
		return
	}
	p.waiting[offset] = append(p.waiting[offset], f)
	p.tally.Suspects++
}

// clear drops the suspicions that a dead letter or a reset excuses. A start that passed the record may have passed
// others of the lane as well, so the search goes on there.
func (p *partition) clear(offset int64) {
	list, ok := p.waiting[offset]
	if !ok {
		return
	}
	delete(p.waiting, offset)
	p.tally.Suspects -= int64(len(list))
	for _, f := range list {
		if f.chain {
			p.judgePassed(f, offset+1)
		}
	}
}

// judgePassed looks for a record of the lane in [from, f.offset) that was known and unfinished when f's record started.
func (p *partition) judgePassed(f finding, from int64) {
	l := p.laneOf(p.find(f.offset))
	pos, _ := slices.BinarySearch(l.offsets, from)
	for ; pos < len(l.offsets) && l.offsets[pos] < f.offset; pos++ {
		q := p.find(l.offsets[pos])
		if q.producedSeq > f.known || q.excused(p.opts.PromptDeadLetters) || q.has(flagTerminal) && q.doneSeq < f.started {
			continue
		}
		f.other = l.offsets[pos]
		p.await(f.other, f)
		return
	}
}

// termOf returns the newest term of an owner, or 0.
func (p *partition) termOf(owner string) int32 {
	if p.lastTerm != 0 && p.lastOwner == owner {
		return p.lastTerm
	}
	i := p.current[owner]
	if i != 0 {
		p.lastOwner, p.lastTerm = owner, i
	}
	return i
}

func (p *partition) newTerm(owner string) int32 {
	i := int32(len(p.terms))
	p.terms = append(p.terms, &term{owner: owner, fence: math.MinInt64})
	p.current[owner] = i
	p.lastOwner, p.lastTerm = owner, i
	return i
}

// replaced says that somebody with a higher fence has started since.
func (p *partition) replaced(t *term) bool {
	return p.highTerm != 0 && t.fenced && t.fence < p.highFence
}

// goodStanding says that what runs in term i counts: nothing else of the lane may run beside it.
func (p *partition) goodStanding(i int32) bool {
	t := p.terms[i]
	return t.standing == live && !p.replaced(t)
}

// exist notes that there is a record at offset.
func (p *partition) exist(offset int64, r *record) {
	if r.has(flagSeen) {
		return
	}
	r.flags |= flagSeen
	p.seen++
	if p.skipped(offset) {
		r.flags |= flagSkipped
		p.tally.Skipped++
	}
}

// skipped says that the last reset that concerns offset jumped over it.
func (p *partition) skipped(offset int64) bool {
	for _, s := range slices.Backward(p.resets) {
		if offset >= s.offset {
			return false
		}
		if offset >= s.from {
			return true
		}
	}
	return false
}

func (p *partition) produced(offset int64, name string) {
	p.seq++
	r := p.at(offset)
	if r.has(flagProduced) {
		if l := p.laneOf(r); l == nil && name != "" || l != nil && l.name != name {
			p.raise(finding{code: laneChanged, seq: p.seq, offset: offset, text: name})
		}
		return
	}
	p.exist(offset, r)
	r.flags |= flagProduced
	r.producedSeq = p.seq
	p.tally.Produced++
	p.passedBefore(offset, r)
	if name == "" {
		r.lane = laneOwn
		return
	}
	r.lane = p.laneNamed(name)
	p.link(offset, r)
}

// link puts a record into its lane. Records of the lane that were started before this was known are judged now, each by
// its first start. Whether they overlapped needs no look of its own: of two first attempts that did, the later record
// had started before the earlier one was finished.
func (p *partition) link(offset int64, r *record) {
	l := p.laneOf(r)
	early := r.startSeq != 0
	from := 0
	if early {
		p.advance(l)
		from = l.finishedBefore(r.startSeq)
	}
	pos := p.insert(l, offset, r)
	if r.run != 0 {
		l.active = append(l.active, offset)
	}
	if early {
		p.judgePassed(finding{
			code: passed, seq: p.seq, known: p.seq, started: r.startSeq, chain: true, term: r.term, offset: offset,
		}, l.offsets[min(from, pos)])
	}
	if r.excused(p.opts.PromptDeadLetters) {
		return
	}
	for _, later := range l.offsets[pos+1:] {
		s := p.find(later)
		if s.startSeq == 0 || r.has(flagTerminal) && r.doneSeq < s.startSeq {
			continue
		}
		p.await(offset, finding{
			code: passed, seq: p.seq, known: p.seq, started: s.startSeq, term: s.term, offset: later, other: offset,
		})
	}
}

func (p *partition) assigned(owner string) {
	p.seq++
	if i := p.termOf(owner); i != 0 && p.terms[i].standing == live {
		return
	}
	if p.checker.isKilled(owner) {
		p.raise(finding{code: deadAssigned, seq: p.seq, text: owner, offset: -1})
		return
	}
	p.newTerm(owner)
}

// passedBefore suspects the commit that had passed a record before it was heard of.
func (p *partition) passedBefore(offset int64, r *record) {
	if offset < p.committed && !r.passable() && !r.has(flagPassed) {
		r.flags |= flagPassed
		p.await(offset, finding{code: commitPassed, seq: p.seq, offset: offset, other: p.committed})
	}
}

// startedBelowCommit condemns the commit that had passed a record that now turns out to be unfinished.
func (p *partition) startedBelowCommit(offset int64, r *record) {
	if offset >= p.committed || r.passable() {
		return
	}
	if !r.has(flagPassed) {
		r.flags |= flagPassed
		p.raise(finding{code: commitPassed, seq: p.seq, offset: offset, other: p.committed})
		return
	}
	list := p.waiting[offset]
	for k, f := range list {
		if f.code == commitPassed {
			if list = slices.Delete(list, k, k+1); len(list) > 0 {
				p.waiting[offset] = list
			} else {
				delete(p.waiting, offset)
			}
			p.tally.Suspects--
			p.raise(f)
			return
		}
	}
}

// admit finds the term a start belongs to. A zombie's start is one whose result will not count. The term is 0 if the
// start cannot have happened.
func (p *partition) admit(owner string, offset, fence int64) (i int32, zombie bool) {
	i = p.termOf(owner)
	t := p.terms[i]
	if i == 0 || t.standing != live && !t.dead && fence > t.fence {
		if p.checker.isKilled(owner) {
			p.raise(finding{code: deadStarted, seq: p.seq, offset: offset, text: owner})
			return 0, false
		}
		i = p.newTerm(owner)
		t = p.terms[i]
	}
	switch {
	case t.dead:
		p.raise(finding{code: deadStarted, seq: p.seq, term: i, offset: offset})
		return 0, false
	case t.standing == revoked:
		p.raise(finding{code: startedAfterRevoke, seq: p.seq, term: i, offset: offset, other: fence})
		return i, true
	case t.standing == lost:
		return i, true
	}

	first := !t.fenced
	t.fenced = true
	t.fence = max(t.fence, fence)
	switch {
	case p.highTerm == 0 || fence > p.highFence:
		if p.highTerm != i {
			for _, other := range p.terms[1:] {
				if other != t {
					p.close(other)
				}
			}
		}
		p.highFence, p.highTerm = fence, i
	case fence < p.highFence:
		f := finding{code: fenceFell, seq: p.seq, term: i, otherTerm: p.highTerm, offset: offset, other: fence}
		if i == p.highTerm {
			p.raise(f) // it fell within one term: no loss explains that
			return i, false
		}
		p.suspect(t, f)
		return i, true
	case first && p.opts.FencesRise && p.terms[p.highTerm].owner != owner:
		p.raise(finding{code: fenceShared, seq: p.seq, term: i, otherTerm: p.highTerm, offset: offset, other: fence})
	}
	return i, false
}

func (p *partition) started(owner string, offset int64, delivery int, fence int64) {
	p.seq++
	p.tally.Attempts++
	p.tally.MaxDelivery = max(p.tally.MaxDelivery, int64(delivery))
	r := p.at(offset)
	p.exist(offset, r)
	i, zombie := p.admit(owner, offset, fence)
	if i == 0 {
		return
	}
	overlapped := p.judgeOverlaps(i, offset, r, zombie)
	if zombie {
		p.tally.ZombieStarts++
		p.passedBefore(offset, r)
		p.addRun(i, offset, r)
		return
	}

	if l := p.laneOf(r); l != nil {
		p.advance(l)
		// Attempts that overlapped are out of order too, but that has been said.
		if !overlapped && l.head < len(l.offsets) && l.offsets[l.head] < offset {
			p.await(l.offsets[l.head], finding{
				code: passed, seq: p.seq, known: p.seq, started: p.seq, chain: true,
				term: i, offset: offset, other: l.offsets[l.head],
			})
		}
		if !overlapped && l.lastTerm == i && offset < l.lastOffset && l.lastSeq > p.lastReset() {
			p.raise(finding{code: wentBack, seq: p.seq, term: i, offset: offset, other: l.lastOffset})
		}
		l.lastOffset, l.lastTerm, l.lastSeq = offset, i, p.seq
	}
	if r.has(flagTerminal) && !r.has(flagReopened) {
		p.judgeRepeat(i, offset, r)
		r.flags |= flagReopened
	}

	if r.term != 0 && r.term != i {
		r.flags |= flagMoved
	}
	r.term = i
	if r.startSeq == 0 {
		r.startSeq = p.seq
	}
	r.flags &^= flagRejected
	p.startedBelowCommit(offset, r)
	p.addRun(i, offset, r)
}

func (p *partition) lastReset() uint32 {
	if n := len(p.resets); n > 0 {
		return p.resets[n-1].seq
	}
	return 0
}

// judgeOverlaps compares a start with all that runs in the lane, and says whether that broke a promise at once.
func (p *partition) judgeOverlaps(i int32, offset int64, r *record, zombie bool) (broken bool) {
	if r.run != 0 {
		broken = p.judgeOverlap(i, offset, offset, r, zombie)
	}
	l := p.laneOf(r)
	if l == nil || len(l.active) == 0 {
		return broken
	}
	kept := l.active[:0]
	for _, a := range l.active {
		other := p.find(a)
		if !p.anyRun(a, other, func(t *term) bool { return !t.dead }) {
			continue
		}
		kept = append(kept, a)
		if a != offset && p.judgeOverlap(i, offset, a, other, zombie) {
			broken = true
		}
	}
	l.active = kept
	return broken
}

func (p *partition) judgeOverlap(i int32, offset, active int64, other *record, zombie bool) (broken bool) {
	t := p.terms[i]
	for _, u := range p.runsOf(active, other) {
		runner := p.terms[u]
		f := finding{code: overlapped, seq: p.seq, term: i, otherTerm: u, offset: offset, other: active}
		switch {
		case runner.dead:
		case zombie:
			if u != i && p.goodStanding(u) {
				p.tally.Overlaps++
			}
		case runner.standing == lost:
			p.tally.Overlaps++
		case runner.standing == live && u != i && runner.fence < t.fence:
			p.suspect(runner, f)
		default:
			p.raise(f)
			broken = true
		}
	}
	return broken
}

// judgeRepeat counts a start of a finished record, and decides whether it is allowed.
func (p *partition) judgeRepeat(i int32, offset int64, r *record) {
	done := r.doneSeq
	if r.has(flagAgain) {
		done = p.lastDone[offset]
	}
	wasReset := false
	for _, s := range p.resets {
		wasReset = wasReset || s.seq > done && offset >= s.offset
	}
	before := p.terms[r.term]
	f := finding{seq: p.seq, term: i, otherTerm: r.term, offset: offset}
	var reason string
	switch {
	case wasReset:
		reason = "reset"
	case r.term == 0:
		reason = "unknown"
	case r.term == i && r.has(flagMoved) && !r.has(flagAccepted) && !p.opts.PromptDeadLetters:
		// A rejects the record and is killed, B starts it, A's dead letter is seen, B tries again.
		reason = "dead letter"
	case r.term == i:
		reason = "same owner"
		f.code = repeatedBySame
	case before.standing == live && before.fence < p.terms[i].fence:
		reason = "takeover"
	case before.standing == live:
		reason = "live"
		f.code = repeatedOfLive
	case before.standing == revoked:
		reason = "revoked"
		if p.opts.Progress == Exact {
			f.code = repeatedOfRevoked
		}
	default:
		reason = before.standing.String()
		if p.opts.Progress == Exact && done <= before.covered {
			f.code = repeatedOfCommitted
		}
	}
	if offset < p.committed {
		f.code, f.other = repeatedBelowCommit, p.committed
	}
	p.tally.Repeated++
	p.tally.Repeats[reason]++
	switch {
	case f.code != 0:
		p.raise(f)
	case reason == "takeover":
		f.code = repeatedOfLive
		p.suspect(before, f)
	}
}

// runsOf returns the terms that run a record, those of dead owners included.
func (p *partition) runsOf(offset int64, r *record) []int32 {
	if r.run == 0 {
		return nil
	}
	if len(p.moreRuns) > 0 {
		if more, ok := p.moreRuns[offset]; ok {
			return append([]int32{r.run}, more...)
		}
	}
	p.oneRun[0] = r.run
	return p.oneRun[:]
}

func (p *partition) anyRun(offset int64, r *record, is func(*term) bool) bool {
	for _, u := range p.runsOf(offset, r) {
		if is(p.terms[u]) {
			return true
		}
	}
	return false
}

// runsInGoodStanding says that somebody runs the record whose result will count.
func (p *partition) runsInGoodStanding(offset int64, r *record) bool {
	return p.anyRun(offset, r, func(t *term) bool { return t.standing == live && !p.replaced(t) })
}

func (p *partition) addRun(i int32, offset int64, r *record) {
	p.terms[i].running++
	if r.run == 0 || p.terms[r.run].dead {
		r.run = i
	} else {
		p.moreRuns[offset] = append(p.moreRuns[offset], i)
	}
	if l := p.laneOf(r); l != nil && !slices.Contains(l.active, offset) {
		l.active = append(l.active, offset)
	}
}

func (p *partition) removeRun(i int32, offset int64, r *record) {
	p.terms[i].running--
	if more, ok := p.moreRuns[offset]; ok {
		if r.run == i {
			r.run, more = more[0], more[1:]
		} else {
			k := slices.Index(more, i)
			more = slices.Delete(more, k, k+1)
		}
		if len(more) > 0 {
			p.moreRuns[offset] = more
		} else {
			delete(p.moreRuns, offset)
		}
		return
	}
	r.run = 0
	if l := p.laneOf(r); l != nil {
		if k := slices.Index(l.active, offset); k >= 0 {
			l.active = slices.Delete(l.active, k, k+1)
		}
	}
}

func (p *partition) ended(owner string, offset int64, result Result) {
	p.seq++
	if result == 0 || result >= resultCount {
		p.raise(finding{code: strayResult, seq: p.seq, offset: offset, text: owner, other: int64(result)})
		return
	}
	settles := result != Failed && result != Snoozed && result != Abandoned
	if k := p.termOf(owner); p.terms[k].dead {
		if settles {
			p.tally.LateSettles++
		}
		return
	}
	r := p.find(offset)
	var i int32
	if r != nil {
		for _, u := range p.runsOf(offset, r) {
			if p.terms[u].owner == owner {
				i = max(i, u)
			}
		}
	}
	if i == 0 {
		p.raise(finding{code: strayEnd, seq: p.seq, offset: offset, text: owner, other: int64(result)})
		return
	}
	p.removeRun(i, offset, r)
	p.results[result]++
	if !p.goodStanding(i) {
		if settles {
			p.tally.LateSettles++
		}
		return
	}
	switch result {
	case Accepted, ResultDeadLettered, ResultDiscarded:
		r.flags |= flagAccepted
		p.finish(offset, r)
	case RejectedPending:
		r.flags |= flagRejected
		if r.has(flagLetter) {
			p.finish(offset, r) // the dead letter was seen before this
		}
	}
}

// finish makes a record terminal, for the first time or again.
func (p *partition) finish(offset int64, r *record) {
	if !r.has(flagTerminal) {
		if r.has(flagSkipped) {
			p.tally.Skipped--
		}
		r.flags |= flagTerminal
		r.doneSeq = p.seq
		p.tally.Handled++
		if l := p.laneOf(r); l != nil && l.head < len(l.offsets) && l.offsets[l.head] == offset {
			l.pass(r)
		}
		return
	}
	if r.has(flagReopened) {
		r.flags &^= flagReopened
		r.flags |= flagAgain
		p.lastDone[offset] = p.seq
	}
}

func (p *partition) deadLettered(offset int64, reason string) {
	p.seq++
	r := p.at(offset)
	p.exist(offset, r)
	if r.has(flagLetter) {
		p.tally.DuplicateDeadLetters++
	} else {
		p.tally.DeadLetters[reason]++
	}
	p.settledOutside(offset, r)
}

func (p *partition) discarded(offset int64, reason string) {
	p.seq++
	r := p.at(offset)
	p.exist(offset, r)
	if !r.has(flagLetter) {
		p.tally.Discards[reason]++
	}
	p.settledOutside(offset, r)
}

// settledOutside finishes a record by its dead letter. The letter may be that of an earlier owner, seen while another
// runs the record again: then that attempt, and its retries, are still to come to an end.
func (p *partition) settledOutside(offset int64, r *record) {
	r.flags |= flagLetter
	again := r.has(flagMoved) && !p.opts.PromptDeadLetters && p.runsInGoodStanding(offset, r)
	switch {
	case !r.has(flagTerminal):
		p.finish(offset, r)
		if again {
			r.flags |= flagReopened
		}
	case !again:
		p.finish(offset, r)
	}
	p.clear(offset)
}

func (p *partition) committing() {
	p.seq++
	p.mark = p.seq
}

func (p *partition) commit(owner string, offset int64) {
	p.seq++
	if offset < p.committed {
		i := p.termOf(owner)
		f := finding{code: commitFell, seq: p.seq, term: i, offset: offset, other: p.committed, text: owner}
		switch t := p.terms[i]; {
		case i != 0 && (t.standing == lost || t.standing == killed):
			p.tally.LateCommits++
			return
		case i != 0 && t.standing == live && p.replaced(t):
			p.suspect(t, f)
			return
		}
		p.raise(f)
	}
	p.each(p.committed, offset, func(at int64, r *record) {
		f := finding{code: commitPassed, seq: p.seq, text: owner, offset: at, other: offset}
		switch {
		case r.passable():
			if r.has(flagReopened) && p.runsInGoodStanding(at, r) {
				p.raise(f)
			}
		case r.has(flagPassed):
		case p.runsInGoodStanding(at, r):
			r.flags |= flagPassed
			p.raise(f)
		default:
			r.flags |= flagPassed
			p.await(at, f)
		}
	})
	p.committed = offset
	if owner == "" {
		return // an observer may read the same commit twice, which covers nothing new
	}
	p.covered = p.commitSeq
	if p.mark != 0 {
		p.covered, p.mark = p.mark, 0
	}
	p.commitSeq = p.seq
}

// gone ends the term of an owner that lives on.
func (p *partition) gone(owner string, why standing) {
	p.seq++
	i := p.termOf(owner)
	if i == 0 || p.terms[i].standing != live {
		return
	}
	p.end(p.terms[i], why)
}

func (p *partition) kill(owner string) {
	p.seq++
	for _, t := range p.terms[1:] {
		if t.owner != owner {
			continue
		}
		t.dead = true
		if t.standing == live {
			p.end(t, killed)
		}
	}
}

// close keeps what the group knew when a term was over.
func (p *partition) close(t *term) {
	if !t.closed {
		t.closed, t.covered = true, p.covered
	}
}

// end decides what was suspected of a term.
func (p *partition) end(t *term, why standing) {
	t.standing = why
	p.close(t)
	p.tally.Suspects -= int64(len(t.suspects))
	for _, f := range t.suspects {
		switch {
		case why == revoked:
			p.raise(f)
		case f.code == overlapped:
			p.tally.Overlaps++
		case f.code == commitFell:
			p.tally.LateCommits++
		}
	}
	t.suspects = nil
}

func (p *partition) reset(offset int64) {
	p.seq++
	from := p.committed
	if from == 0 {
		from = math.MinInt64
	}
	p.each(from, offset, func(at int64, r *record) {
		if !r.passable() {
			r.flags |= flagSkipped
			p.tally.Skipped++
			p.clear(at)
		}
	})
	p.each(offset, math.MaxInt64, func(at int64, r *record) {
		if !r.has(flagSkipped) || r.has(flagTerminal) {
			return
		}
		r.flags &^= flagSkipped
		p.tally.Skipped--
		if l := p.laneOf(r); l != nil {
			pos, _ := slices.BinarySearch(l.offsets, at)
			l.back(pos)
		}
	})
	p.resets = append(p.resets, position{seq: p.seq, from: min(from, offset), offset: offset})
	p.committed = offset
}

// addTo adds what is known of the partition to a report.
func (p *partition) addTo(r *Report, final bool) {
	t := &p.tally
	r.Produced += t.Produced
	r.Unproduced += p.seen - t.Produced
	r.Handled += t.Handled
	r.Attempts += t.Attempts
	r.MaxDelivery = max(r.MaxDelivery, t.MaxDelivery)
	for result, n := range p.results {
		if n > 0 {
			r.Results[Result(result).String()] += n
		}
	}
	for _, owner := range p.terms {
		if !owner.dead {
			r.Running += owner.running
		}
	}
	r.Repeated += t.Repeated
	addCounts(r.Repeats, t.Repeats)
	addCounts(r.DeadLetters, t.DeadLetters)
	addCounts(r.Discards, t.Discards)
	r.DuplicateDeadLetters += t.DuplicateDeadLetters
	r.Skipped += t.Skipped
	r.Overlaps += t.Overlaps
	r.ZombieStarts += t.ZombieStarts
	r.LateSettles += t.LateSettles
	r.LateCommits += t.LateCommits
	r.CommitViolations += t.CommitViolations
	r.CommitRegressions += t.CommitRegressions
	r.OrderViolations += t.OrderViolations
	r.FenceViolations += t.FenceViolations
	r.RepeatViolations += t.RepeatViolations
	r.HistoryViolations += t.HistoryViolations

	found := slices.Clone(p.breaches)
	if final {
		condemn := func(list []finding) {
			for _, f := range list {
				r.count(f.code.kind(), 1)
			}
			found = append(found, list...)
		}
		for _, owner := range p.terms {
			condemn(owner.suspects)
		}
		for _, list := range p.waiting {
			condemn(list)
		}
		lostBefore := r.Lost
		p.each(math.MinInt64, math.MaxInt64, func(offset int64, rec *record) {
			if rec.passable() {
				return
			}
			r.Lost++
			if r.Lost-lostBefore <= int64(p.opts.MaxViolations) {
				found = append(found, finding{code: neverEnded, seq: math.MaxUint32, term: rec.term, offset: offset})
			}
		})
	} else {
		r.Suspects += t.Suspects
	}
	slices.SortFunc(found, finding.compare)
	for _, f := range found[:min(len(found), p.opts.MaxViolations)] {
		r.Violations = append(r.Violations, p.violation(f))
	}
}

func addCounts(to, from map[string]int64) {
	for name, n := range from {
		to[name] += n
	}
}
