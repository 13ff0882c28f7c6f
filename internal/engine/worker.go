package engine

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/deadletter"
)

// Workers are goroutines that run handlers, never more than Concurrency.
//
// Coming for one record at a time costs two rounds of the lock per record,
// too much for handlers that take a microsecond. So a worker takes as many
// records as are likely to keep it busy for batchTime, judged by how long
// handlers took lately, and as few workers as there are processors are woken
// for them. Should a handler then take long after all, the records its worker
// has not begun would wait behind it; the patrol, which looks every
// millisecond while there are such records, takes them back and lets one more
// worker work:
//
//	worker 1: takes records a, b, c; calls the handler for a, which blocks
//	patrol:   worker 1 is where it was a millisecond ago: takes b and c back
//	worker 2: is woken, takes b
//
// When such handlers return they count as slow, and workers come for one
// record at a time again.
//
// A record is claimed by one atomic addition, so that either the worker or
// the patrol has it.
type workers struct {
	e       *Engine
	idle    []*worker
	all     map[*worker]struct{}
	waking  int // woken and not yet come for work
	stalled int // found by the patrol where they were before
	average time.Duration
	patrol  *time.Timer
	armed   bool
	closed  bool
}

const (
	batchTime   = 50 * time.Microsecond
	batchLimit  = 64
	patrolEvery = time.Millisecond
)

type worker struct {
	e       *Engine
	wake    chan struct{}
	batch   []*task
	results []result // of the batch, by index; of a run only the one that ended it
	exit    *result  // of the handler that ended the goroutine

	next atomic.Int32 // the index in batch of the record to be claimed next
	size atomic.Int32 // of batch, as the patrol sees it

	took  time.Duration // the mean time of the last batch's handlers; 0: none ran
	inRun bool          // the batch was begun as a run

	// Guarded by the engine's lock.
	rounds  uint64  // batches begun, so that the patrol knows one from the next
	stalled bool    // the patrol found it where it was before
	settled int     // the patrol settled the results before this index
	taken   int32   // the patrol took the batch's records from this index on; 0: it did not
	seen    uint64  // what the patrol saw last
	current watched // what the watchdog saw last

	run      *Part  // whose records it works through in a run; nil once that is broken
	tasks    []task // of the run
	runBytes int64
}

// whereLocked tells where a worker is: a number that changes with every
// record, and the task whose handler it runs, nil if none.
func (w *worker) whereLocked() (at uint64, running *task) {
	next, size := w.next.Load(), w.size.Load()
	at = w.rounds<<16 | uint64(uint16(next))
	switch {
	case size == 0 || next == 0:
	case w.taken > 0 && next == size+1:
		running = w.at(int(w.taken) - 1)
	case next <= size:
		running = w.at(int(next) - 1)
	}
	return at, running
}

// at is the task with index i of the worker's batch or run.
func (w *worker) at(i int) *task {
	if w.inRun {
		return &w.tasks[i]
	}
	return w.batch[i]
}

type result struct {
	t   *task
	out Outcome
}

func (w *workers) init(e *Engine) {
	w.e = e
	w.all = make(map[*worker]struct{})
	// Until there is evidence, handlers count as slow: one record a worker.
	w.average = time.Millisecond
}

// quantum is how many records a worker should come for.
func (w *workers) quantum() int {
	if w.average >= batchTime {
		return 1
	}
	return min(max(int(batchTime/max(w.average, 1)), 1), batchLimit)
}

// limit is how many workers should be at work.
func (w *workers) limit() int {
	if w.quantum() > 1 {
		return min(w.e.cfg.Concurrency, runtime.GOMAXPROCS(0)+w.stalled)
	}
	return w.e.cfg.Concurrency
}

// wakeLocked sees to it that what is ready is worked on.
func (e *Engine) wakeLocked(fx *effects) {
	if e.cfg.Handle == nil {
		e.handOutLocked(fx)
		return
	}
	w := &e.workers
	if e.ready.n == 0 {
		e.letInLocked()
	}
	if e.stopping || w.closed || e.ready.n == 0 {
		return
	}
	q := w.quantum()
	if w.fullLocked() {
		return
	}
	ready := 0
	for i := range e.ready.n {
		p := e.ready.parts[(e.ready.first+i)%len(e.ready.parts)]
		ready += p.q.Ready()
		if e.admissibleLocked(p) {
			ready += p.stagedN
		}
		if ready >= q*e.cfg.Concurrency {
			break
		}
	}
	want := (ready+q-1)/q - w.waking
	for ; want > 0; want-- {
		if w.fullLocked() {
			return
		}
		w.waking++
		if n := len(w.idle); n > 0 {
			next := w.idle[n-1]
			w.idle = w.idle[:n-1]
			next.wake <- struct{}{}
			continue
		}
		next := &worker{e: e, wake: make(chan struct{}, 1)}
		w.all[next] = struct{}{}
		go next.loop()
	}
}

// fullLocked says that as many workers are at work as should be. If some of
// them may be found to take long, which lets more work, the patrol will look.
func (w *workers) fullLocked() bool {
	busy := len(w.all) - len(w.idle)
	if busy < w.limit() {
		return false
	}
	if busy > w.stalled && busy < w.e.cfg.Concurrency {
		w.armLocked()
	}
	return true
}

// keepIdle is how many workers without work are kept for the next record.
// More than that end: a burst leaves no goroutines behind.
func (w *workers) keepIdle() int { return min(w.e.cfg.Concurrency, 4*runtime.GOMAXPROCS(0)) }

func (w *worker) loop() {
	ended := false
	defer func() {
		// Only runtime.Goexit inside of the user's code gets here with work
		// left; see protect. The goroutine is lost, its records are not.
		if !ended {
			w.exited()
		}
	}()
	var fx effects
	first := true
	for {
		e := w.e
		e.mu.Lock()
		w.backLocked(&fx)
		if first {
			e.workers.waking--
			first = false
		}
		if w.took > 0 {
			e.workers.average += (w.took - e.workers.average) / 8
			w.took = 0
		}
		n := e.takeLocked(w)
		e.flushLocked(&fx)
		if n == 0 {
			ws := &e.workers
			if e.stopping || ws.closed || len(ws.idle) >= ws.keepIdle() {
				delete(ws.all, w)
				e.mu.Unlock()
				ended = true
				fx.run()
				return
			}
			ws.idle = append(ws.idle, w)
			e.mu.Unlock()
			fx.run()
			clear(fx)
			fx = fx[:0]
			if _, ok := <-w.wake; !ok {
				ended = true
				return
			}
			first = true
			continue
		}
		if e.ready.n > 0 || e.crowded.n > 0 {
			e.wakeLocked(&fx)
		}
		e.mu.Unlock()
		if len(fx) > 0 {
			fx.run()
			clear(fx)
			fx = fx[:0]
		}
		w.work()
	}
}

// backLocked is called when w comes back with its results.
func (w *worker) backLocked(fx *effects) {
	if w.stalled {
		w.stalled = false
		w.e.workers.stalled--
	}
	switch {
	case w.inRun:
		w.e.comeBackLocked(w)
	case w.taken > 0:
		w.results = w.results[:w.taken]
	}
	for i := w.settled; i < len(w.results); i++ {
		w.e.settleLocked(w.results[i].t, w.results[i].out, fx)
	}
	clear(w.results)
	w.results, w.settled = w.results[:0], 0
	w.tasks = nil
}

// takeLocked fills w's batch.
func (e *Engine) takeLocked(w *worker) int {
	clear(w.batch)
	w.batch = w.batch[:0]
	if !e.stopping {
		quantum := e.workers.quantum()
		for len(w.batch) < quantum {
			t := e.nextLocked(w)
			if w.inRun {
				break
			}
			if t == nil {
				break
			}
			w.batch = append(w.batch, t)
		}
	}
	n := len(w.batch)
	if w.inRun {
		n = len(w.tasks)
	} else {
		w.results = slices.Grow(w.results, n)[:n]
	}
	// The order matters to the patrol, which takes from next up to size.
	w.size.Store(0)
	w.next.Store(0)
	w.rounds++
	w.taken = 0
	w.size.Store(int32(n))
	if n > 1 || w.inRun {
		e.workers.armLocked()
	}
	return n
}

// nextLocked takes the next ready record, partitions in turn. For a worker
// that has nothing yet it may start a run instead.
func (e *Engine) nextLocked(w *worker) *task {
	for {
		p := e.ready.pop()
		if p == nil {
			if e.letInLocked(); e.ready.n == 0 {
				return nil
			}
			continue
		}
		p.inReady = false
		if !p.open || p.paused || p.halted.Load() {
			continue
		}
		if w != nil && len(w.batch) == 0 && e.startRunLocked(p, w) {
			return nil
		}
		if p.care != nil {
			if t := e.takeSuspectLocked(p); t != nil {
				return t
			}
			continue
		}
		if p.q.Ready() == 0 && p.run == nil {
			if e.runSoonLocked(p) {
				e.workers.armLocked()
				continue
			}
			e.admitLocked(p, admitStep)
		}
		s, ok := p.q.Take()
		if !ok {
			e.readyLocked(p) // for want of room, most likely
			continue
		}
		t := p.tasks[s]
		if len(e.zombies) > 0 && e.blockedLocked(t) {
			p.q.Park(s)
			p.blocked = append(p.blocked, s)
			e.readyLocked(p)
			continue
		}
		e.readyLocked(p)
		e.claimLocked(p)
		return t
	}
}

// work runs the handler for each record of the batch that the patrol leaves.
func (w *worker) work() {
	start := time.Now()
	ran := 0
	if w.inRun {
		ran = w.workRun()
	} else {
		ran = w.workBatch()
	}
	if ran > 0 {
		w.took = max(time.Since(start)/time.Duration(ran), 1)
	}
}

func (w *worker) workBatch() (ran int) {
	for {
		i := int(w.next.Add(1)) - 1
		if i >= len(w.batch) {
			return ran
		}
		t := w.batch[i]
		if t.part.halted.Load() || w.e.forceHalt.Load() {
			w.results[i] = result{t, Outcome{Verb: notRun}}
			continue
		}
		w.results[i] = result{t, w.call(t)}
		ran++
	}
}

// workRun stops at the first record that is not accepted; that one's outcome
// is the only result.
func (w *worker) workRun() (ran int) {
	e := w.e
	p := w.tasks[0].part
	var t *task
	returned := true
	// One recover for the whole run: whatever panics ends it.
	defer func() {
		if !returned {
			v := recover()
			w.results = append(w.results, result{t, panicked(v)})
			w.results[0].out = e.withDelay(t, w.results[0].out)
		}
	}()
	for {
		i := int(w.next.Add(1)) - 1
		if i >= len(w.tasks) {
			return ran
		}
		t = &w.tasks[i]
		if p.halted.Load() || e.forceHalt.Load() {
			w.results = append(w.results, result{t, Outcome{Verb: notRun}})
			return ran
		}
		ran++
		if e.cfg.HandlerTimeout > 0 {
			if out := w.call(t); out.Verb != Accept {
				w.results = append(w.results, result{t, out})
				return ran
			}
			continue
		}
		returned = false
		if err := e.cfg.Handle(p.ctx, &t.Delivery); err != nil {
			// Errors have methods of the user's, too.
			out := e.withDelay(t, e.cfg.Outcome(err))
			returned = true
			w.results = append(w.results, result{t, out})
			return ran
		}
		returned = true
	}
}

// call runs one attempt.
func (w *worker) call(t *task) (out Outcome) {
	e := w.e
	if t.more != nil && t.more.crashes > 0 {
		return Outcome{Verb: crashed, Err: &CrashError{t.more.crashes}}
	}
	if t.more != nil && t.more.keyErr != nil {
		return e.withDelay(t, Outcome{Verb: Fail, Err: t.more.keyErr, Reason: deadletter.Panic})
	}
	if e.cfg.HandlerTimeout > 0 {
		out = e.callWithin(w, t, e.cfg.HandlerTimeout)
	} else {
		out = e.protect(w, t, t.part.ctx)
	}
	return e.withDelay(t, out)
}

func (e *Engine) callWithin(w *worker, t *task, timeout time.Duration) Outcome {
	ctx, cancel := context.WithTimeoutCause(t.part.ctx, timeout, ErrHandlerTimeout)
	defer cancel()
	out := e.protect(w, t, ctx)
	if out.Verb == Fail && out.Reason == "" && context.Cause(ctx) == ErrHandlerTimeout {
		out.Reason = deadletter.Timeout
	}
	return out
}

// withDelay asks the retry policy about an outcome that leads to another
// attempt. It does so outside the lock, since the policy is user code.
func (e *Engine) withDelay(t *task, out Outcome) (with Outcome) {
	again := out.Verb == Fail || out.Verb == Reject && e.cfg.Letters == nil && !e.cfg.Discard
	if !again || out.Timed {
		return out
	}
	with = out
	defer func() {
		if v := recover(); v != nil {
			with.Delay = time.Second
			with.Err = fmt.Errorf("%w (and the retry policy panicked: %v)", out.Err, v)
		}
	}()
	with.Delay = e.cfg.Backoff(&t.Delivery, out.Err)
	return with
}

// PanicError is the failure of an attempt whose handler panicked or ended its
// goroutine.
type PanicError struct {
	Value any
	Stack []byte
}

func (p *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Unwrap is the value if it is an error.
func (p *PanicError) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// panicked is the outcome of an attempt whose handler did not return. v is what
// it panicked with; nil stands for runtime.Goexit, after which the goroutine
// unwinds to its end whatever is done, and exited puts right what it leaves.
// The delay is for a retry policy that does not return either.
func panicked(v any) Outcome {
	if v == nil {
		v = "runtime.Goexit called"
	}
	return Outcome{Verb: Fail, Reason: deadletter.Panic, Err: &PanicError{Value: v, Stack: debug.Stack()}, Delay: time.Second}
}

func (e *Engine) protect(w *worker, t *task, ctx context.Context) (out Outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		out = panicked(v)
		if v == nil {
			w.exit = &result{t, out}
			w.exit.out = e.withDelay(t, out)
		}
	}()
	if err := e.cfg.Handle(ctx, &t.Delivery); err != nil {
		out = e.cfg.Outcome(err) // errors have methods of the user's, too
	}
	returned = true
	return out
}

// exited settles what a worker leaves behind whose goroutine a handler ended.
func (w *worker) exited() {
	e := w.e
	var fx effects
	e.mu.Lock()
	w.exitedLocked()
	w.backLocked(&fx)
	delete(e.workers.all, w)
	if i := slices.Index(e.workers.idle, w); i >= 0 {
		e.workers.idle = slices.Delete(e.workers.idle, i, i+1)
	}
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

// exitedLocked puts down how the attempt ended in which the goroutine was lost,
// and that the records behind it were not begun.
func (w *worker) exitedLocked() {
	// The results may be short of one: the retry policy, too, may have ended
	// the goroutine, or a hook before the first record was claimed.
	claimed := int(w.next.Load())
	if w.taken > 0 {
		claimed = int(w.taken)
	}
	if w.inRun {
		switch {
		case len(w.results) > 0:
		case w.exit != nil:
			w.results = append(w.results, *w.exit)
		case w.run != nil && claimed == 0:
			w.e.breakRunLocked(w)
		case w.taken > 0 || claimed > 0 && claimed <= len(w.tasks):
			w.results = append(w.results, result{&w.tasks[claimed-1], panicked(nil)})
		}
		return
	}
	for i := w.settled; i < len(w.results); i++ {
		switch {
		case i >= claimed:
			w.results[i] = result{w.batch[i], Outcome{Verb: notRun}}
		case w.results[i].t == nil && w.exit != nil:
			w.results[i] = *w.exit
		case w.results[i].t == nil:
			w.results[i] = result{w.batch[i], panicked(nil)}
		}
	}
}

func (w *workers) armLocked() {
	if w.armed || w.closed {
		return
	}
	w.armed = true
	if w.patrol == nil {
		w.patrol = time.AfterFunc(patrolEvery, w.walk)
		return
	}
	w.patrol.Reset(patrolEvery)
}

// walk is one round of the patrol.
func (w *workers) walk() {
	e := w.e
	var fx effects
	e.mu.Lock()
	w.armed = false
	again := false
	for x := range w.all {
		at, running := x.whereLocked()
		if running == nil {
			// It may have its records and not have begun; should the first
			// one take long, somebody has to come back for the others.
			again = again || x.size.Load() > 0 && x.next.Load() == 0
			continue
		}
		if x.stalled {
			continue
		}
		if at != x.seen {
			x.seen = at
			again = true
			continue
		}
		// It is where it was: its handler takes long.
		x.stalled = true
		w.stalled++
		e.readyLocked(running.part)
		if x.run != nil {
			// Even a run of one record keeps the others of its partition out.
			e.breakRunLocked(x)
			continue
		}
		size := x.size.Load()
		if size == 1 || x.inRun {
			continue
		}
		i := x.next.Swap(size + 1)
		if i > size {
			x.next.Store(i) // it came to its end just now
			continue
		}
		x.taken = i
		for j := size - 1; j >= i; j-- {
			e.settleLocked(x.batch[j], Outcome{Verb: notRun}, &fx)
		}
		// Those before are done, and their lanes must not wait either.
		for _, done := range x.results[:i-1] {
			e.settleLocked(done.t, done.out, &fx)
		}
		x.settled = int(i) - 1
	}
	e.wakeLocked(&fx)
	if again {
		w.armLocked()
	}
	e.mu.Unlock()
	fx.run()
}

// closeLocked ends the workers that wait for work; the others end when their
// handler returns.
func (w *workers) closeLocked() {
	w.closed = true
	for _, x := range w.idle {
		close(x.wake)
		delete(w.all, x)
	}
	w.idle = nil
	if w.patrol != nil {
		w.patrol.Stop()
	}
}
