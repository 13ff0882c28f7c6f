package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Part is one partition under one ownership: from Add until Revoke, Lose or
// Close. A partition that comes back is a new Part, so that what belongs to an
// old ownership can never be taken for the new one's (H-038).
type Part struct {
	TopicPartition
	Fence int64

	e      *Engine
	ctx    context.Context // of its handlers; ends with the ownership
	cancel context.CancelCauseFunc
	halted atomic.Bool // no handler of it may start any more

	// Guarded by the engine's lock.
	open    bool
	q       *queue.Partition // nil until the offset where reading starts is known
	tasks   []*task          // by slot
	letters map[*task]struct{}
	blocked []queue.Slot // parked: a handler of an earlier ownership runs in their lane
	active  int          // of Engine.running
	idleCh  chan struct{}
	bytes   int64 // admitted and staged
	inReady bool
	crowded bool // in Engine.crowded
	paused  bool // by the user
	held    bool // the driver does not fetch it
	reading int64
	staged  []batch
	stagedN int
	stagedB int64
	passed  int64   // reading came to here behind the last record taken from staged; 0: nowhere
	run     *worker // works through records of it in a run, see run.go
	epochs  []epochChange
	end     int64 // the log's end as last seen, −1 unknown
	epoch   int32
	emptied bool // it was empty when memory was last looked at

	// See progress.go.
	version  uint64
	gated    bool             // until the first commit of the ownership is confirmed
	orders   []segmentOrder   // of the segments that are read again
	attempts []progress.Count // of records not read again yet
	told     int64            // the offset below which former owners have told of records; 0: none
	toldEnd  int64            // what told was at first; never changes while records are offered
	toldAt   int32            // the leader epoch there

	// See care.go.
	begun    int64 // the offset at which the ownership began
	starts   int   // unclean ones in a row that began there, this one not counted
	reaching bool  // admission is bound to reach
	reach    int64 // the offset below which the brokers know that records may be started
	asked    int64 // the reach for which another one was asked for
	suspect  int64 // the record that is to be started next, or runs, while careful; −1 none
	crashes  map[int64]int
	care     *care
}

// task is an unfinished record. Every attempt has a task of its own, so that a
// handler that outlives its attempt never sees a later one's fields change.
type task struct {
	Delivery
	part *Part
	slot queue.Slot
	size int32
	lane queue.Lane
	more *taskState
}

// taskState is what only few tasks have.
type taskState struct {
	keyErr   error      // the order's key function failed
	former   queue.Lane // by the order of the segment that the record was told of in
	check    uint32     // of the lane in that order; 0: not known
	lost     error      // neither could be computed
	crashes  int        // of the process while it was handled, as many as are too many
	letter   *Letter    // the record is on its way to the dead-letter topic
	tries    int        // of writing it
	retry    *time.Timer
	deadline *time.Timer // of a pulled delivery
	since    time.Time   // when it was handed out by Receive
	reported bool        // as stuck
}

func (t *task) state() *taskState {
	if t.more == nil {
		t.more = new(taskState)
	}
	return t.more
}

// batch is a run of records as they were read, not admitted yet.
type batch struct {
	tasks []task
	bytes int64
	end   int64 // the offset after the last one read, markers included
}

type epochChange struct {
	from  int64 // the first offset of the epoch that was read
	epoch int32
}

// recordOverhead is what a record costs in memory besides key, value and
// headers: the client's record, the task and the core's slot.
const recordOverhead = 320

func sizeOf(r *kgo.Record) int32 {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 40 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int32(min(n, 1<<30))
}

// Add opens a partition whose reading will start at start, or wherever the
// first record is if start is negative. A partition that is open already is
// given up first, as if lost.
func (e *Engine) Add(tp TopicPartition, fence, start int64) *Part {
	var fx effects
	e.mu.Lock()
	if old := e.parts[tp]; old != nil {
		e.closePartLocked(old, ErrLost, &fx)
	}
	p := e.addLocked(tp, fence, start)
	e.wakeLocked(&fx) // the old one may have left room
	e.mu.Unlock()
	fx.run()
	return p
}

func (e *Engine) addLocked(tp TopicPartition, fence, start int64) *Part {
	p := &Part{TopicPartition: tp, Fence: fence, e: e, open: true, reading: -1, end: -1, epoch: -1, begun: -1, reach: math.MaxInt64, suspect: -1}
	p.ctx, p.cancel = context.WithCancelCause(e.ctx)
	if start >= 0 {
		p.startAt(start)
	}
	e.parts[tp] = p
	e.intake.wakeLocked()
	return p
}

func (p *Part) startAt(offset int64) {
	p.q = queue.New(offset)
	p.reading = offset
}

// Offer hands over records read from a partition, in the order of offsets,
// and the log's end as the broker told it. Records of a partition that is not
// open are dropped: they were read for an ownership that is over.
//
// Only one goroutine may offer records of a partition.
func (e *Engine) Offer(tp TopicPartition, records []*kgo.Record, end int64) {
	if len(records) == 0 {
		return
	}
	e.mu.Lock()
	p := e.parts[tp]
	e.mu.Unlock()
	batches, n, bytes := e.prepare(p, records)
	last := records[len(records)-1].Offset + 1
	var fx effects
	e.mu.Lock()
	if bytes > 0 {
		e.intake.sizeLocked(bytes / int64(n))
	}
	if p == nil || !p.open || p.halted.Load() || e.stopping {
		e.counters.Dropped += int64(n)
		e.mu.Unlock()
		return
	}
	first := records[0].Offset
	if p.q == nil {
		p.startAt(first)
		if p.gated {
			e.urgentLocked(p)
		}
	}
	if first < p.reading {
		p = e.rewindLocked(p, first, &fx)
		for i := range batches {
			for j := range batches[i].tasks {
				batches[i].tasks[j].part = p
			}
		}
	}
	p.reading = last
	p.end = max(end, last)
	if n == 0 {
		p.markersLocked(last)
	}
	p.staged = append(p.staged, batches...)
	p.stagedN += n
	p.stagedB += bytes
	p.bytes += bytes
	e.bytes += bytes
	e.staged += n

	e.reachLocked(p)
	e.readyLocked(p)
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

// rewindLocked is called when the log went back to first: it was truncated by
// an unclean leader election and the client resumes where it still agrees with
// the brokers. What we hold from there on may be other records than the log has
// now, so a new ownership begins; what lies below is in the log as before, and
// what of it is unfinished goes with it: the client will not read it again.
func (e *Engine) rewindLocked(old *Part, first int64, fx *effects) *Part {
	e.counters.Rewinds++
	was := old.reading
	fx.add(func() { e.cfg.Events.rewound(old.TopicPartition, was, first) })
	if old.run != nil {
		e.breakRunLocked(old.run)
	}
	kept := old.belowLocked(first)
	start, held, careful := min(old.q.Frontier(), old.q.Horizon(), first), old.held, old.care
	e.closePartLocked(old, ErrLost, fx)

	p := e.addLocked(old.TopicPartition, old.Fence, start)
	p.paused, p.gated = old.paused, old.gated
	p.begun, p.starts, p.crashes = old.begun, old.starts, old.crashes
	p.reaching, p.reach = old.reaching, old.reach
	p.version = old.version + 1 // or what is new would look like what was committed
	if careful != nil {
		p.care = &care{until: careful.until, marked: -1}
	}
	if p.held = held; held {
		e.intake.heldN++
	}
	for _, c := range old.epochs {
		if c.from < first {
			p.epochLocked(c.from, c.epoch)
		}
	}
	for i := range kept {
		kept[i].part = p
	}
	for len(kept) > 0 {
		n := min(len(kept), batchTasks)
		b := batch{tasks: kept[:n:n], end: kept[n-1].Offset + 1}
		if kept = kept[n:]; len(kept) == 0 {
			b.end = first
		}
		for i := range b.tasks {
			b.bytes += int64(b.tasks[i].size)
		}
		p.staged = append(p.staged, b)
		p.stagedN += n
		p.stagedB += b.bytes
		p.bytes += b.bytes
		e.bytes += b.bytes
		e.staged += n
	}
	return p
}

// belowLocked copies the unfinished records and the staged ones below offset.
// No run may be under way.
func (p *Part) belowLocked(offset int64) (kept []task) {
	keep := func(t *task, attempts int) {
		if t.Offset >= offset {
			return
		}
		k := task{Delivery: t.Delivery, size: t.size, lane: t.lane}
		k.DeliveryCount = 1 + attempts
		if t.more != nil && t.more.keyErr != nil {
			k.more = &taskState{keyErr: t.more.keyErr}
		}
		kept = append(kept, k)
	}
	p.q.Each(func(i queue.Info) bool {
		keep(p.tasks[i.Slot], i.Attempts)
		return true
	})
	for _, b := range p.staged {
		for i := range b.tasks {
			keep(&b.tasks[i], b.tasks[i].DeliveryCount-1+p.storedAttempts(b.tasks[i].Offset))
		}
	}
	slices.SortFunc(kept, func(a, b task) int { return cmp.Compare(a.Offset, b.Offset) })
	return kept
}

// storedAttempts is how many attempts a former owner counted of a record that is
// not read again yet.
func (p *Part) storedAttempts(offset int64) int {
	i, ok := slices.BinarySearchFunc(p.attempts, offset, func(c progress.Count, o int64) int { return cmp.Compare(c.Offset, o) })
	if !ok {
		return 0
	}
	return p.attempts[i].N
}

// admitStep is how many staged records are admitted at once when nothing is
// ready. Only what is admitted has a lane, so this is also how far ahead the
// search for an idle lane looks at a time.
const admitStep = 64

// prepare does outside the lock what can be done there.
func (e *Engine) prepare(p *Part, records []*kgo.Record) (batches []batch, n int, bytes int64) {
	if p == nil {
		return nil, len(records), 0
	}
	batches = make([]batch, 0, len(records)/batchTasks+1)
	for len(records) > 0 {
		b := batch{tasks: make([]task, 0, min(batchTasks, len(records)))}
		for len(records) > 0 && len(b.tasks) < batchTasks {
			r := records[0]
			records = records[1:]
			b.end = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			b.tasks = append(b.tasks, task{Delivery: Delivery{Record: r, DeliveryCount: 1, Fence: p.Fence}, part: p, size: sizeOf(r)})
			t := &b.tasks[len(b.tasks)-1]
			b.bytes += int64(t.size)
			if !e.cfg.LaneInside {
				e.laneOf(t)
			}
			if r.Offset < p.toldEnd {
				e.toldOf(p, t)
			}
		}
		if len(b.tasks) > 0 {
			n += len(b.tasks)
			bytes += b.bytes
			batches = append(batches, b)
		} else if len(batches) > 0 {
			batches[len(batches)-1].end = b.end
		}
	}
	return batches, n, bytes
}

// batchTasks is how many tasks are allocated at once, and how many records a
// run has at most. One that stays unfinished for long keeps the memory of its
// neighbours, so it is not many.
const batchTasks = 256

func (e *Engine) laneOf(t *task) {
	lane, err := e.cfg.Lane(t.Delivery.Record)
	if err != nil {
		t.state().keyErr = err
	}
	t.lane = lane
}

// full says that a partition holds its share of the limits, so that nothing
// more may be admitted to it. A partition that holds nothing may always admit
// one record, however large it is.
func (e *Engine) fullLocked(p *Part) bool {
	if p.stagedN > 0 {
		next := p.staged[0].tasks[0].Offset
		e.passToldLocked(p, next)
		if next >= p.reach || !e.fitsLocked(p, next) {
			return true
		}
	}
	n := p.q.Len()
	if n == 0 {
		return e.unfinished >= e.cfg.MaxInFlight
	}
	share := max(1, len(e.parts))
	return n >= max(1, e.cfg.MaxInFlight/share) || e.unfinished >= e.cfg.MaxInFlight ||
		p.bytes-p.stagedB >= e.cfg.MaxBytes/int64(share)
}

// admitLocked moves up to n staged records of p into its queue, as far as its
// share of the limits goes.
func (e *Engine) admitLocked(p *Part, n int) {
	for n > 0 && p.stagedN > 0 && !e.fullLocked(p) {
		e.enterLocked(p, p.unstageLocked(e), p.q.Admit)
		p.passLocked()
		n--
	}
	e.reachLocked(p)
	e.intake.roomLocked(e, p)
}

// unstageLocked takes the first staged record of p.
func (p *Part) unstageLocked(e *Engine) *task {
	b := &p.staged[0]
	t := &b.tasks[0]
	b.tasks = b.tasks[1:]
	b.bytes -= int64(t.size)
	p.stagedN--
	p.stagedB -= int64(t.size)
	e.staged--
	if len(b.tasks) == 0 {
		p.dropBatchLocked()
	}
	return t
}

// unstageBatchLocked takes the first staged batch of p, whole.
func (p *Part) unstageBatchLocked(e *Engine) (tasks []task, bytes int64) {
	tasks, bytes = p.staged[0].tasks, p.staged[0].bytes
	p.dropBatchLocked()
	p.stagedN -= len(tasks)
	p.stagedB -= bytes
	e.staged -= len(tasks)
	return tasks, bytes
}

func (p *Part) dropBatchLocked() {
	p.passed = p.staged[0].end
	p.staged[0] = batch{}
	if p.staged = p.staged[1:]; len(p.staged) == 0 {
		p.staged = nil
	}
}

// restageLocked puts records back in front of what is staged.
func (p *Part) restageLocked(e *Engine, tasks []task, end int64) {
	b := batch{tasks: tasks, end: end}
	for i := range tasks {
		b.bytes += int64(tasks[i].size)
	}
	p.staged = append([]batch{b}, p.staged...)
	p.stagedN += len(tasks)
	p.stagedB += b.bytes
	e.staged += len(tasks)
}

// enterLocked puts a record into the queue, unless a former owner has told that
// it is finished.
func (e *Engine) enterLocked(p *Part, t *task, admit func(int64, queue.Lane) (queue.Slot, bool)) {
	if e.cfg.LaneInside {
		e.laneOf(t)
	}
	var s queue.Slot
	var ok bool
	switch e.recallLocked(p, t) {
	case finished:
		return
	case former:
		s, ok = p.q.AdmitFormer(t.Offset, t.lane, t.more.former)
	default:
		s, ok = admit(t.Offset, t.lane)
	}
	if !ok {
		panic(fmt.Sprintf("engine: %s/%d: record at offset %d read behind %d", p.Topic, p.Partition, t.Offset, p.q.Horizon()))
	}
	t.slot = s
	if int(s) < len(p.tasks) {
		p.tasks[s] = t
	} else {
		p.tasks = append(p.tasks, t)
	}
	p.epochLocked(t.Offset, t.LeaderEpoch)
	e.unfinished++
	if t.DeliveryCount > 1 {
		p.q.SetAttempts(s, t.DeliveryCount-1)
	}
	if n := p.crashes[t.Offset]; n > 0 {
		t.DeliveryCount += n
		if n >= e.cfg.MaxCrashes && (e.cfg.Letters != nil || e.cfg.Discard) {
			t.state().crashes = n
		}
	}
}

// passLocked lets the frontier step over what was read behind the last record
// and is none: transaction markers, aborted records.
func (p *Part) passLocked() {
	if p.passed > 0 && p.run == nil {
		p.q.Advance(p.passed)
		p.passed = 0
	}
}

func (p *Part) epochLocked(from int64, epoch int32) {
	if epoch > p.epoch {
		p.epoch = epoch
		p.epochs = append(p.epochs, epochChange{from, epoch})
	}
}

// admissibleLocked says whether staged records of p could be started now.
func (e *Engine) admissibleLocked(p *Part) bool {
	return p.stagedN > 0 && p.run == nil && !p.gated && !e.fullLocked(p)
}

// readyLocked puts p among the partitions that take turns, if it has work. If
// it has, and only MaxInFlight keeps it from it, p gets its turn when another
// partition's record ends.
func (e *Engine) readyLocked(p *Part) {
	if p.inReady || !p.open || p.paused || p.q == nil || p.gated || p.halted.Load() {
		return
	}
	if p.care != nil && e.caringLocked(p) {
		return
	}
	switch {
	case p.q.Ready() > 0 || e.admissibleLocked(p):
		p.inReady = true
		e.ready.push(p)
	case p.stagedN > 0 && p.run == nil && e.unfinished >= e.cfg.MaxInFlight && !p.crowded:
		p.crowded = true
		e.crowded.push(p)
	}
}

// letInLocked gives the partition that has waited longest for room under
// MaxInFlight its turn, if there is room.
func (e *Engine) letInLocked() {
	for e.crowded.n > 0 && e.unfinished < e.cfg.MaxInFlight {
		p := e.crowded.pop()
		p.crowded = false
		if e.readyLocked(p); p.inReady {
			return
		}
	}
}

// shareOutLocked is called when partitions have left: each of the others has a
// larger share of the limits now.
func (e *Engine) shareOutLocked() {
	for _, p := range e.parts {
		e.readyLocked(p)
	}
}

// markersLocked is told that nothing but markers was read up to end.
func (p *Part) markersLocked(end int64) {
	if n := len(p.staged); n > 0 {
		p.staged[n-1].end = end
		return
	}
	p.passed = end
	p.passLocked()
}

// closePartLocked ends an ownership: its records are forgotten, its handlers
// cancelled, and what they answer from now on changes nothing.
func (e *Engine) closePartLocked(p *Part, cause error, fx *effects) {
	if !p.open {
		return
	}
	if p.run != nil {
		e.breakRunLocked(p.run)
	}
	p.open = false
	p.halted.Store(true)
	p.cancel(cause)
	if e.parts[p.TopicPartition] == p {
		delete(e.parts, p.TopicPartition)
	}
	delete(e.waiting, p)
	if p.care != nil {
		e.leaveCareLocked(p)
	}
	if p.held {
		p.held = false
		e.intake.heldN--
	}
	e.bytes -= p.bytes
	e.staged -= p.stagedN
	if p.q != nil {
		e.unfinished -= p.q.Len()
		p.q.Each(func(i queue.Info) bool {
			if t := p.tasks[i.Slot]; i.State == queue.Running {
				e.zombieLocked(t)
			}
			return true
		})
	}
	for t := range p.letters {
		if t.more.retry != nil {
			t.more.retry.Stop()
		}
	}
	for p.active > 0 {
		e.releaseLocked(p)
	}
	p.staged, p.stagedN, p.stagedB = nil, 0, 0
	p.tasks, p.letters, p.blocked, p.bytes = nil, nil, nil, 0
	e.intake.wakeLocked()
	fx.add(func() { e.cfg.Events.closed(p.TopicPartition, cause) })
}

// zombieLocked remembers a handler that still runs although its partition's
// ownership is over, so that its lane stays closed until it returns.
func (e *Engine) zombieLocked(t *task) {
	z := e.zombies[t.part.TopicPartition]
	if z == nil {
		z = make(map[*task]struct{})
		e.zombies[t.part.TopicPartition] = z
	}
	z[t] = struct{}{}
	// The deadline of a pulled delivery stands: it ends this, too.
	if s := t.more; s != nil && s.deadline != nil && e.stopping {
		s.deadline.Stop()
	}
}

// buryLocked is called when such a handler has returned.
func (e *Engine) buryLocked(t *task) {
	tp := t.part.TopicPartition
	z := e.zombies[tp]
	if _, ok := z[t]; !ok {
		return
	}
	delete(z, t)
	if len(z) == 0 {
		delete(e.zombies, tp)
		e.idleLocked()
	}
	p := e.parts[tp]
	if p == nil || len(p.blocked) == 0 {
		return
	}
	// Any of the lanes that wait may be the one that is free now; Take finds
	// out which.
	for _, s := range p.blocked {
		p.q.Snooze(s, 0)
	}
	p.blocked = p.blocked[:0]
	p.q.Tick(0)
	e.readyLocked(p)
}

// blockedLocked says whether a handler of an earlier ownership of the
// partition runs in the task's lane, or holds the very record.
func (e *Engine) blockedLocked(t *task) bool {
	for z := range e.zombies[t.part.TopicPartition] {
		if z.Offset == t.Offset || z.lane != queue.Alone && z.lane == t.lane {
			return true
		}
	}
	return false
}

// Revoke takes partitions away in good order: no handler of theirs starts any
// more, those that run have until ctx ends, and what they achieve counts. It
// answers with the final snapshots, after which the partitions are closed:
// what ends later is not in them and is never committed (H-039).
func (e *Engine) Revoke(ctx context.Context, tps []TopicPartition) []Snapshot {
	e.mu.Lock()
	var leaving []*Part
	for _, tp := range tps {
		if p := e.parts[tp]; p != nil {
			p.halted.Store(true)
			if p.q != nil {
				p.q.Leave()
			}
			leaving = append(leaving, p)
		}
	}
	e.mu.Unlock()

	for _, p := range leaving {
		p.drain(ctx)
	}

	var fx effects
	var drafts []draft
	e.mu.Lock()
	for _, p := range leaving {
		if p.run != nil {
			e.breakRunLocked(p.run) // what it has done counts
		}
		if p.open && p.q != nil {
			drafts = append(drafts, e.draftLocked(p, true))
		}
		e.closePartLocked(p, ErrLost, &fx)
	}
	e.shareOutLocked()
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
	final := make([]Snapshot, len(drafts))
	for i := range drafts {
		final[i] = drafts[i].finish()
	}
	return final
}

func (p *Part) drain(ctx context.Context) {
	for {
		p.e.mu.Lock()
		if p.active == 0 || !p.open {
			p.e.mu.Unlock()
			return
		}
		if p.idleCh == nil {
			p.idleCh = make(chan struct{})
		}
		idle := p.idleCh
		p.e.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// Lose drops partitions that belong to somebody else already: nothing of
// theirs may be committed.
func (e *Engine) Lose(tps []TopicPartition) {
	var fx effects
	e.mu.Lock()
	for _, tp := range tps {
		if p := e.parts[tp]; p != nil {
			e.closePartLocked(p, ErrLost, &fx)
		}
	}
	e.shareOutLocked()
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

// Owned are the partitions that are open.
func (e *Engine) Owned() []TopicPartition {
	e.mu.Lock()
	defer e.mu.Unlock()
	tps := make([]TopicPartition, 0, len(e.parts))
	for tp := range e.parts {
		tps = append(tps, tp)
	}
	return tps
}

// Housekeep gives memory back that partitions needed for a burst and have not
// needed since the last call. The driver calls it now and then.
func (e *Engine) Housekeep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.parts {
		if p.q == nil {
			continue
		}
		empty := p.q.Len() == 0
		if empty && p.emptied && p.q.Shrink() {
			p.tasks = nil
		}
		p.emptied = empty
	}
}

// partRing is a queue of partitions.
type partRing struct {
	parts []*Part
	first int
	n     int
}

func (r *partRing) push(p *Part) {
	if r.n == len(r.parts) {
		bigger := make([]*Part, max(8, 2*r.n))
		for i := range r.n {
			bigger[i] = r.parts[(r.first+i)%len(r.parts)]
		}
		r.parts, r.first = bigger, 0
	}
	r.parts[(r.first+r.n)%len(r.parts)] = p
	r.n++
}

func (r *partRing) pop() *Part {
	if r.n == 0 {
		return nil
	}
	p := r.parts[r.first]
	r.parts[r.first] = nil
	r.first = (r.first + 1) % len(r.parts)
	r.n--
	return p
}
