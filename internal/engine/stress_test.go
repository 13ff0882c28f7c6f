package engine

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	stressSeed   = flag.Uint64("stress.seed", 0, "replay the stress tests with this `seed` alone")
	stressRounds = flag.Int("stress.rounds", 0, "how many `rounds` of stress, 0: few")
)

// world is the log, its one consumer and what is known of both: a model that
// knows nothing of lanes, batches and runs, and judges by what handlers see.
type world struct {
	t     *testing.T
	e     *Engine
	seed  uint64
	calm  atomic.Bool // from now on every record is accepted
	box   randomBox
	parts []*worldPart

	concurrency int
	running     atomic.Int64
	most        atomic.Int64
	retries     int // attempts after which a record is accepted
	exhaust     int // attempts after which it may be given up; 0: never
	discard     bool
	slow        time.Duration

	gate   sync.Mutex // guards opened
	opened chan struct{}
}

// worldPart is one partition. Its lock is held while the log or the
// ownership changes and while a position is compared with them.
type worldPart struct {
	w   *world
	tp  TopicPartition
	rng *rand.Rand

	mu        sync.Mutex
	log       []*entry // by offset; nil: a gap or a marker
	committed int64
	read      int64
	owned     bool

	lanes sync.Mutex // guards what follows
	busy  map[string]*entry
}

type entry struct {
	p      *worldPart
	offset int64
	key    string
	marker bool
	done   atomic.Bool
	runs   atomic.Int32
	gone   atomic.Bool // the log was truncated below it
}

type randomBox struct{ w *world }

func mix(a ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, x := range a {
		h ^= x
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 29
	}
	return h
}

func (b *randomBox) Write(_ context.Context, l Letter, done func(error)) {
	w := b.w
	x := l.Record.Context.Value(entryKey{}).(*entry)
	h := mix(w.seed, uint64(x.offset), uint64(x.runs.Add(1)))
	answer := func() {
		if h%3 == 0 && !w.calm.Load() {
			done(errLetter)
			return
		}
		x.done.Store(true)
		done(nil)
	}
	if h%5 == 0 {
		answer()
		return
	}
	go func() {
		time.Sleep(time.Duration(h % uint64(w.slow)))
		answer()
	}()
}

type entryKey struct{}

func (w *world) fatal(format string, args ...any) {
	w.t.Errorf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

// handle judges the start of a handler and behaves as the seed says.
func (w *world) handle(ctx context.Context, d *Delivery) (err error) {
	x := d.Record.Context.Value(entryKey{}).(*entry)
	p := x.p
	n := w.running.Add(1)
	for m := w.most.Load(); n > m && !w.most.CompareAndSwap(m, n); m = w.most.Load() {
	}
	if n > int64(w.concurrency) {
		w.fatal("%d handlers run, Concurrency is %d", n, w.concurrency)
	}
	lane := x.key
	if lane == "" {
		lane = fmt.Sprint("alone at ", x.offset)
	}
	p.lanes.Lock()
	if other := p.busy[lane]; other != nil {
		w.fatal("P-2: %v: offset %d starts while offset %d of its lane runs", p.tp, x.offset, other.offset)
	}
	p.busy[lane] = x
	p.lanes.Unlock()
	w.judgeOrder(x)
	defer func() {
		p.lanes.Lock()
		delete(p.busy, lane)
		p.lanes.Unlock()
		w.running.Add(-1)
	}()

	h := mix(w.seed, uint64(p.tp.Partition), uint64(x.offset), uint64(x.runs.Add(1)))
	if w.exhaust > 0 && w.discard && d.DeliveryCount >= w.exhaust {
		x.done.Store(true) // whatever comes, it may be discarded
	}
	if w.calm.Load() || d.DeliveryCount > w.retries {
		x.done.Store(true)
		return nil
	}
	wait := time.Duration(h >> 20 % uint64(w.slow))
	switch h % 64 {
	case 0:
		return errBad
	case 1:
		panic("stress")
	case 2:
		runtime.Goexit()
	case 3:
		return snooze(wait)
	case 4:
		if w.discard {
			x.done.Store(true)
		}
		return reject()
	case 5, 6:
		time.Sleep(wait)
	case 7:
		select {
		case <-w.turn():
		case <-ctx.Done():
			return ctx.Err()
		}
	case 8:
		<-w.turn() // heedless of its context
	case 9, 10, 11, 12:
		for range h >> 20 % 2000 {
			runtime.Gosched()
			h ^= h >> 7
		}
		if h == 1 {
			return nil
		}
	case 13:
		return failFor(wait)
	}
	x.done.Store(true)
	return nil
}

// judgeOrder demands that all earlier records of the lane are finished.
func (w *world) judgeOrder(x *entry) {
	if x.key == "" || x.gone.Load() {
		return
	}
	p := x.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.gone.Load() {
		return
	}
	for o := x.offset - 1; o >= max(0, p.committed); o-- {
		if y := p.log[o]; y != nil && y.key == x.key && !y.done.Load() {
			w.fatal("P-2: %v: offset %d starts before offset %d of its lane is finished", p.tp, x.offset, o)
		}
	}
}

// turn is closed at the next release.
func (w *world) turn() <-chan struct{} {
	w.gate.Lock()
	defer w.gate.Unlock()
	if w.calm.Load() {
		c := make(chan struct{})
		close(c)
		return c
	}
	return w.opened
}

func (w *world) release() {
	w.gate.Lock()
	defer w.gate.Unlock()
	close(w.opened)
	w.opened = make(chan struct{})
}

// judgePosition demands that everything below a position is finished (P-1).
// The partition's lock is held.
func (p *worldPart) judgePosition(at int64) {
	if at > int64(len(p.log)) {
		p.w.fatal("P-1: %v: position %d, the log ends at %d", p.tp, at, len(p.log))
		return
	}
	if at < p.committed {
		p.w.fatal("%v: position %d after %d", p.tp, at, p.committed)
	}
	for o := p.committed; o < at; o++ {
		if x := p.log[o]; x != nil && !x.marker && !x.done.Load() {
			p.w.fatal("P-1: %v: position %d passes offset %d, which is unfinished", p.tp, at, o)
			return
		}
	}
	p.committed = max(p.committed, at)
}

func (p *worldPart) grow(n int) {
	for range n {
		offset := int64(len(p.log))
		var x *entry
		switch r := p.rng.IntN(20); {
		case r == 0: // a gap
		case r == 1:
			x = &entry{p: p, offset: offset, marker: true}
		default:
			x = &entry{p: p, offset: offset}
			switch p.rng.IntN(4) {
			case 0: // no key
			case 1:
				x.key = "hot"
			default:
				x.key = fmt.Sprint("key ", p.rng.IntN(40))
			}
		}
		p.log = append(p.log, x)
	}
	if p.log[len(p.log)-1] == nil {
		p.log[len(p.log)-1] = &entry{p: p, offset: int64(len(p.log)) - 1, marker: true}
	}
}

// offer reads up to n offsets on. The partition's lock is held, and given up
// for the engine's work.
func (p *worldPart) offer(n int) {
	if p.read >= int64(len(p.log)) {
		return
	}
	var rs []*kgo.Record
	for ; p.read < int64(len(p.log)) && len(rs) < n; p.read++ {
		x := p.log[p.read]
		if x == nil {
			continue
		}
		r := rec(p.tp, x.offset, x.key)
		r.LeaderEpoch = int32(x.offset / 500)
		r.Context = context.WithValue(context.Background(), entryKey{}, x)
		if x.marker {
			r.Attrs = controlAttrs
		}
		rs = append(rs, r)
	}
	end := int64(len(p.log))
	p.w.e.Offer(p.tp, rs, end)
}

func (p *worldPart) add() {
	start := p.committed
	if p.rng.IntN(2) == 0 {
		p.w.e.Add(p.tp, 1, start)
	} else {
		p.w.e.Add(p.tp, 1, -1)
		p.w.e.Begin([]Start{{TopicPartition: p.tp, Offset: start, Epoch: -1, End: -1}})
		p.w.e.Confirmed(p.w.e.Positions(p.tp)[0])
	}
	p.read, p.owned = start, true
}

// step does one random thing to the partition.
func (p *worldPart) step() {
	e, r := p.w.e, p.rng
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.owned {
		p.add()
		return
	}
	switch r.IntN(40) {
	case 0:
		d := time.Duration(0)
		if r.IntN(2) == 0 {
			d = time.Duration(r.Int64N(int64(p.w.slow)))
		}
		ctx := within(d)
		p.mu.Unlock() // handlers that end meanwhile judge their order
		final := e.Revoke(ctx, []TopicPartition{p.tp})
		p.mu.Lock()
		for _, at := range final {
			p.judgePosition(at.Offset)
		}
		p.owned = false
	case 1:
		e.Lose([]TopicPartition{p.tp})
		p.owned = false
	case 2:
		p.add() // over an open one: as if lost
	case 3, 4:
		e.Pause(p.tp)
	case 5, 6, 7, 8:
		e.Resume(p.tp)
	case 9:
		p.rewind()
	case 10, 11:
		for _, at := range e.Positions(p.tp) {
			p.judgePosition(at.Offset)
		}
	case 12:
		e.Housekeep()
	case 13:
		e.Stats()
	case 14:
		e.Reading(func() {})
	case 15:
		e.Read()
	default:
		p.offer(1 + r.IntN(400))
	}
}

// rewind truncates what was read: other records take the places.
func (p *worldPart) rewind() {
	if p.read <= p.committed {
		return
	}
	first := p.committed + p.rng.Int64N(p.read-p.committed)
	n := len(p.log) - int(first)
	for _, x := range p.log[first:] {
		if x != nil {
			x.gone.Store(true)
		}
	}
	p.log = p.log[:first]
	p.grow(n)
	// The client resumes at a record or marker.
	p.read = first
	for p.log[p.read] == nil {
		p.read++
	}
	p.offer(1 + p.rng.IntN(50))
}

func (w *world) run() {
	stop := make(chan struct{})
	var drivers, others sync.WaitGroup
	for _, p := range w.parts {
		drivers.Go(func() {
			for range 150 {
				p.step()
				switch p.rng.IntN(4) {
				case 0:
					time.Sleep(time.Duration(p.rng.Int64N(int64(w.slow) / 4)))
				case 1:
					runtime.Gosched()
				}
			}
		})
	}
	every := func(d time.Duration, do func()) {
		others.Go(func() {
			tick := time.NewTicker(d)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					do()
				}
			}
		})
	}
	every(w.slow/3, w.release)
	every(w.slow/7, func() {
		w.e.mu.Lock()
		defer w.e.mu.Unlock()
		if err := checkLocked(w.e, false); err != nil {
			w.fatal("%v", err)
		}
	})
	// Handlers here are too slow for runs, so that the engine has to be told
	// otherwise now and then.
	quick := false
	every(w.slow/29, func() {
		w.e.mu.Lock()
		defer w.e.mu.Unlock()
		if quick = !quick; quick {
			w.e.workers.average = 1
		}
	})
	drivers.Wait()

	// Everything is read and handled now.
	w.calm.Store(true)
	for _, p := range w.parts {
		p.mu.Lock()
		if !p.owned {
			p.add()
		}
		w.e.Resume(p.tp)
		for p.read < int64(len(p.log)) {
			p.offer(100)
		}
		p.mu.Unlock()
	}
	deadline := time.Now().Add(1000*w.slow + 30*time.Second)
	for !w.finished() {
		if time.Now().After(deadline) {
			w.e.mu.Lock()
			for tp, p := range w.e.parts {
				w.t.Logf("%v: frontier %d, unfinished %d, staged %d, ready %d, running %d, waiting %d, letters %d, blocked %d, run %v, inReady %v",
					tp, p.q.Frontier(), p.q.Len(), p.stagedN, p.q.Ready(), p.q.Running(), p.q.Waiting(), len(p.letters), len(p.blocked), p.run != nil, p.inReady)
			}
			w.t.Logf("workers %d, idle %d, stalled %d, waking %d, armed %v", len(w.e.workers.all), len(w.e.workers.idle), w.e.workers.stalled, w.e.workers.waking, w.e.workers.armed)
			w.e.mu.Unlock()
			w.fatal("not everything is handled")
			break
		}
		w.release()
		time.Sleep(w.slow / 3)
	}
	close(stop)
	others.Wait()
	if err := w.e.Drain(within(time.Minute)); err != nil {
		w.fatal("Drain: %v", err)
	}
	w.e.Close()
}

func (w *world) finished() bool {
	all := true
	for _, p := range w.parts {
		p.mu.Lock()
		for _, at := range w.e.Positions(p.tp) {
			p.judgePosition(at.Offset)
		}
		all = all && p.committed == int64(len(p.log))
		p.mu.Unlock()
	}
	return all
}

func newWorld(t *testing.T, seed uint64, slow time.Duration) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, seed: seed, slow: slow, retries: 4, opened: make(chan struct{})}
	w.box.w = w
	cfg := config()
	cfg.Handle = w.handle
	cfg.Concurrency = 1 + rng.IntN(12)
	cfg.MaxInFlight = []int{2, 10, 100, 5000}[rng.IntN(4)]
	cfg.MaxBytes = []int64{20_000, 1 << 20, 1 << 30}[rng.IntN(3)]
	cfg.LaneInside = rng.IntN(2) == 0
	cfg.Backoff = func(*Delivery, error) time.Duration { return slow / 5 }
	w.concurrency = cfg.Concurrency
	if rng.IntN(2) == 0 {
		cfg.HandlerTimeout = slow
	}
	switch rng.IntN(3) {
	case 0:
		cfg.Letters = &w.box
		cfg.MaxDeliveries = 3 * rng.IntN(2)
	case 1:
		cfg.Discard, w.discard = true, true
		cfg.MaxDeliveries = 3 * rng.IntN(2)
		w.exhaust = cfg.MaxDeliveries
	}
	w.e = New(cfg)
	for i := range 1 + rng.IntN(5) {
		p := &worldPart{
			w: w, tp: TopicPartition{"stress", int32(i)}, rng: rand.New(rand.NewPCG(seed, uint64(i)+2)),
			busy: make(map[string]*entry),
		}
		p.grow(500 + rng.IntN(4000))
		w.parts = append(w.parts, p)
	}
	return w
}

func seeds(t *testing.T, few int) []uint64 {
	if *stressSeed != 0 {
		return []uint64{*stressSeed}
	}
	if *stressRounds > 0 {
		few = *stressRounds
	} else if testing.Short() {
		few = max(1, few/4)
	}
	var s []uint64
	for range few {
		s = append(s, rand.Uint64()>>1|1)
	}
	return s
}

func (w *world) left() {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if err := goneLocked(w.e); err != nil {
		w.fatal("%v", err)
	}
	if n := w.running.Load(); n != 0 {
		w.fatal("%d handlers run still", n)
	}
}

// Random handlers, records, pauses, ownerships and rewinds, in virtual time:
// hours pass, and in the end nothing is lost, out of order or left over.
// Replay with -run TestStressVirtual -stress.seed=SEED.
func TestStressVirtual(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(t, 8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, seed, 30*time.Second)
				w.run()
				time.Sleep(w.slow) // letters that are late
				synctest.Wait()
				w.left()
			})
		})
	}
}

// The same in real time, where the patrol comes at any instant.
func TestStress(t *testing.T) {
	t.Parallel()
	for _, seed := range seeds(t, 4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed, 5*time.Millisecond)
			w.run()
			// Idle workers end, and the late letters' goroutines.
			for range 1000 {
				w.e.mu.Lock()
				n := len(w.e.workers.all)
				w.e.mu.Unlock()
				if n == 0 {
					break
				}
				runtime.Gosched()
			}
			w.left()
		})
	}
}
