package queue

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	histories = flag.Int("histories", 50_000, "how many random histories TestHistories runs")
	seed      = flag.Uint64("seed", 0, "run TestHistories with the history of this seed alone")
)

// choose is where a history takes its decisions from: a number in [0, n).
type choose func(n int) int

// history is a Partition and its twin under the same calls.
type history struct {
	p       *Partition
	twin    twin
	checker checker
	lanes   []Lane // the records' lanes are chosen from these
	steps   []int64
	now     Time
	slots   int // no slot lies at or above: the most that were unfinished at once
	log     func(format string, args ...any)

	// Of a partition with former owners.
	resumed  bool
	salt     uint64 // of the lanes of former orders
	snapshot Snapshot
	floor    int64 // no frontier lies below
}

// unmix is the lane of a mixed hash: with it lanes can be made that meet in
// the lane table.
func unmix(h uint64) Lane {
	const factor = 0x9e3779b97f4a7c15
	inverse := uint64(factor) // right in 3 bits, and each turn doubles them
	for range 5 {
		inverse *= 2 - factor*inverse
	}
	return Lane(h * inverse)
}

// palettes are the kinds of lanes a history can have.
var palettes = []func(i int) Lane{
	func(int) Lane { return Alone },
	func(int) Lane { return 7 },
	func(i int) Lane { return Lane(i % 4) }, // 0 is Alone
	laneOf,
	func(i int) Lane { return Lane(i) << 58 },                           // equal low bits
	func(i int) Lane { return Lane(i) << 32 },                           // equal low half
	func(i int) Lane { return 0xffffffff<<32 | Lane(i) },                // equal high half
	func(i int) Lane { return math.MaxUint64 - Lane(i) },                // equal high bits
	func(i int) Lane { return unmix(0xdeadbeef<<32 | uint64(i)) },       // the same tag
	func(i int) Lane { return unmix(uint64(i)) },                        // mixed to tag 0, the one that means none
	func(i int) Lane { return unmix(uint64(i%3)<<32 | uint64(i)) },      // tags 0 to 2: all meet at the table's front
	func(i int) Lane { return unmix(math.MaxUint64 - uint64(i)<<32) },   // homes at the table's end: runs wrap around
	func(i int) Lane { return unmix(uint64(i%5)<<60 | uint64(i)<<31) },  // five homes in a table of 16
	func(i int) Lane { return unmix(0xf<<60 + uint64(i*i)*(1<<58)/16) }, // homes that overlap over the end
}

// strides are how far apart the offsets of a history can be.
var strides = [][]int64{
	{1},
	{1, 1, 1, 2, 3},
	{1, 2, 100, 511, 512, 513},
	{512, 1024, 511 * 512},
	{1, 1 << 20, 1 << 40},
}

var starts = []int64{0, 1, 511, 512, 1000, 1<<31 - 2, 1<<62 - 513, 1<<62 - 1}

func newHistory(pick choose, log func(string, ...any)) *history {
	palette, width := palettes[pick(len(palettes))], 1+pick(40)
	h := &history{steps: strides[pick(len(strides))], log: log}
	for i := range width {
		h.lanes = append(h.lanes, palette(i))
	}
	start := starts[pick(len(starts))]
	h.floor = start
	if h.resumed = pick(2) > 0; h.resumed {
		h.salt = uint64(pick(1 << 16))
		segments := h.segments(pick, start)
		h.log("resume start=%d lanes=%x segments=%+v", start, h.lanes, segments)
		h.p = Resume(start, segments)
		h.twin.resume(start, segments)
		return h
	}
	h.twin.horizon = start
	h.p = New(start)
	h.log("new start=%d lanes=%x", start, h.lanes)
	return h
}

// An act is something that can happen to a partition.
type act struct {
	name   string
	weight int
	do     func(*history, choose) error
}

var acts = []act{
	{"admit", 30, (*history).admit},
	{"admit below", 1, (*history).admitBelow},
	{"admit running", 4, (*history).admitRunning},
	{"advance", 2, (*history).advance},
	{"take", 28, (*history).take},
	{"finish", 20, (*history).finish},
	{"settle", 14, (*history).settle},
	{"any slot", 4, (*history).anySlot},
	{"tick", 8, (*history).tick},
	{"backlog", 2, (*history).backlog},
	read,
	{"snapshot", 6, (*history).compareSnapshots},
	{"segment", 1, (*history).segmentAt},
	{"attempts", 2, (*history).setAttempts},
	shrink,
}

var read = act{"read", 24, (*history).read}

var shrink = act{"shrink", 1, (*history).shrink}

// Acts that only some histories have: leaving, after which little goes on, and
// crowds, after which each check takes long.
var (
	leave = act{"leave", 0, (*history).leave}
	crowd = act{"crowd", 0, (*history).crowd}
	empty = act{"empty", 0, (*history).empty}
)

// Acts after which what former owners told is lost, so that few histories have
// them.
var (
	distrust = act{"distrust", 0, (*history).distrust}
	blind    = act{"blind", 0, (*history).admit}
)

// all are the acts but for crowds.
var all = append(acts[:len(acts):len(acts)], leave, empty, distrust, blind)

func (h *history) check() error {
	if err := h.twin.compare(h.p); err != nil {
		return err
	}
	if at := h.p.Frontier(); at < h.floor {
		return fmt.Errorf("the frontier went back from %d to %d", h.floor, at)
	}
	h.floor = h.p.Frontier()
	return h.checker.check(h.p)
}

// admitAt admits a record. If it should have been recalled before and was not,
// even what is known to be finished whatever its lane is lost.
func (h *history) admitAt(offset int64, l Lane) error {
	if q := h.twin.recall; h.p.Resuming() && (q == nil || q.offset != offset) {
		h.floor = min(h.floor, h.p.Horizon())
	}
	s, ok := h.p.Admit(offset, l)
	return h.admitted("admit", h.twin.admit(offset, l), offset, l, s, ok)
}

// admitted compares the answer to an admission with the twin's, r.
func (h *history) admitted(how string, r *twinRecord, offset int64, l Lane, s Slot, ok bool) error {
	h.log("%s %d lane %x: slot %d, %v", how, offset, l, s, ok)
	if ok != (r != nil) {
		return fmt.Errorf("offset %d: %v, the twin says %v", offset, ok, r != nil)
	}
	if !ok {
		return nil
	}
	h.slots = max(h.slots, len(h.twin.unfinished))
	if h.twin.at(s) != nil || int(s) >= h.slots || s < 0 {
		return fmt.Errorf("slot %d for offset %d, with at most %d at once; in use: %v", s, offset, h.slots, h.twin.at(s))
	}
	r.slot = s
	return nil
}

func (h *history) admit(pick choose) error {
	offset := h.twin.horizon + h.steps[pick(len(h.steps))] - 1
	return h.admitAt(offset, h.lanes[pick(len(h.lanes))])
}

func (h *history) admitBelow(pick choose) error {
	return h.admitAt(h.twin.horizon-1-int64(pick(3)), h.lanes[pick(len(h.lanes))])
}

// admitRunning is refused most of the time, since nothing may be unfinished.
func (h *history) admitRunning(pick choose) error {
	offset := h.twin.horizon + int64(pick(4)) - 1
	l := h.lanes[pick(len(h.lanes))]
	s, ok := h.p.AdmitRunning(offset, l)
	return h.admitted("admit running", h.twin.admitRunning(offset, l), offset, l, s, ok)
}

func (h *history) advance(pick choose) error {
	to := h.twin.horizon + []int64{-1, 0, 1, 2, 511, 512, 100_000}[pick(7)]
	h.log("advance %d", to)
	h.p.Advance(to)
	h.twin.advance(to)
	return nil
}

func (h *history) take(choose) error {
	s, ok := h.p.Take()
	r := h.twin.take()
	h.log("take: slot %d, %v", s, ok)
	if ok != (r != nil) || ok && r.slot != s {
		return fmt.Errorf("Take is %d, %v, the twin says %+v", s, ok, r)
	}
	return nil
}

// settleable is a record that can be settled, or nil.
func (h *history) settleable(pick choose) *twinRecord {
	n := h.twin.in(Running) + h.twin.in(Parked)
	if n == 0 {
		return nil
	}
	n = pick(n)
	for _, r := range h.twin.unfinished {
		if r.settleable() {
			if n--; n < 0 {
				return r
			}
		}
	}
	panic("not so many")
}

func (h *history) finish(pick choose) error {
	if r := h.settleable(pick); r != nil {
		return h.apply(r.slot, 0, 0)
	}
	return nil
}

// settle ends the work on a record in another way.
func (h *history) settle(pick choose) error {
	if r := h.settleable(pick); r != nil {
		return h.apply(r.slot, 1+pick(5), h.now+Time(pick(8)-1))
	}
	return nil
}

// anySlot settles whatever is in a slot, or nothing, as a late or a confused
// owner does.
func (h *history) anySlot(pick choose) error {
	s := Slot(pick(len(h.p.records)+3) - 1)
	return h.apply(s, pick(6), h.now+Time(pick(8)-1))
}

func (h *history) apply(s Slot, how int, due Time) error {
	p, w, r := h.p, &h.twin, h.twin.at(s)
	var name string
	var got, want bool
	heads := p.Heads()
	switch how {
	case 0:
		name, got, want = "Finish", p.Finish(s), w.finish(r)
	case 1:
		name, got, want = "Retry", p.Retry(s, due), w.wait(r, due, 1)
	case 2:
		name, got, want = "Snooze", p.Snooze(s, due), w.wait(r, due, 0)
	case 3:
		name, got, want = "Return", p.Return(s), w.giveBack(r)
	case 4:
		name, got, want = "Park", p.Park(s), w.park(r)
	case 5:
		name, got, want = "Count", p.Count(s), w.countAttempt(r)
	}
	h.log("%s slot %d (due %d): %v", name, s, due, got)
	if got != want {
		return fmt.Errorf("%s(%d) is %v, the twin says %v", name, s, got, want)
	}
	if n := p.Heads(); n > heads {
		return fmt.Errorf("%s(%d) made %d heads of %d", name, s, n, heads)
	}
	if _, ok := p.Info(s); how == 0 && got && ok {
		return fmt.Errorf("Info(%d) tells of a record that is finished", s)
	}
	return nil
}

func (h *history) tick(pick choose) error {
	h.now += Time(pick(5))
	got, want := h.p.Tick(h.now), h.twin.tick(h.now)
	h.log("tick %d: %d", h.now, got)
	if got != want {
		return fmt.Errorf("Tick(%d) is %d, the twin says %d", h.now, got, want)
	}
	return nil
}

func (h *history) backlog(pick choose) error {
	s := Slot(pick(len(h.p.records)+3) - 1)
	if got, want := h.p.Backlog(s), h.twin.backlog(h.twin.at(s)); got != want {
		return fmt.Errorf("Backlog(%d) is %d, the twin says %d", s, got, want)
	}
	return nil
}

func (h *history) shrink(choose) error {
	want := len(h.twin.unfinished) == 0 && cap(h.p.records) > keepSlots
	got := h.p.Shrink()
	h.log("shrink: %v", got)
	if got != want {
		return fmt.Errorf("Shrink is %v", got)
	}
	if got {
		h.slots = 0
	}
	return nil
}

func (h *history) leave(choose) error {
	h.log("leave")
	h.p.Leave()
	h.twin.leaving = true
	return nil
}

// crowd admits enough records for Shrink to matter.
func (h *history) crowd(pick choose) error {
	for i := range keepSlots + 1 + pick(100) {
		step := h.steps[i%len(h.steps)]
		if err := h.admitAt(h.twin.horizon+step-1, h.lanes[i%len(h.lanes)]); err != nil {
			return err
		}
	}
	return nil
}

// empty finishes whatever can be taken.
func (h *history) empty(pick choose) error {
	for !h.twin.leaving && len(h.twin.ready) > 0 {
		r := h.twin.ready[0]
		if err := h.take(pick); err != nil {
			return err
		}
		if err := h.apply(r.slot, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// A mood is what else is likely in a history, or what takes the place of what.
type mood int

const (
	plain       mood = iota
	growing          // at first nothing is finished
	leaving          // before its end
	emptied          // again and again
	distrustful      // records are admitted that were not recalled
	crowded          // and emptied and shrunk: few histories are, for they take long
)

// run lets n things happen.
func (h *history) run(pick choose, n int) error {
	weight := 0
	for _, a := range acts {
		weight += a.weight
	}
	m := mood(pick(int(crowded)))
	if pick(200) == 0 {
		m = crowded
	}
	for i := range n {
		var a act
		at := pick(weight)
		for _, a = range acts {
			if at -= a.weight; at < 0 {
				break
			}
		}
		if a.name == "admit" && h.p.Resuming() {
			a = read
		}
		switch special := pick(50); {
		case m == growing && i < n/2 && a.name == "finish":
			a = read
		case m == leaving && special == 0 && i > n/2:
			a = leave
		case m == emptied && special == 0:
			a = empty
		case m == distrustful && special < 2:
			a = []act{distrust, blind}[special]
		case m == crowded && special < 4:
			a = []act{crowd, empty, empty, shrink}[special]
		}
		if err := a.do(h, pick); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if err := h.check(); err != nil {
			return fmt.Errorf("after %s: %w", a.name, err)
		}
	}
	return nil
}

func hex(l Lane) string { return fmt.Sprintf("%x", uint64(l)) }

// runSeed is one random history.
func runSeed(seed uint64, log func(string, ...any)) (*history, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	h := newHistory(random.IntN, log)
	steps := 20 + random.IntN(100)
	if random.IntN(10) == 0 {
		steps *= 5
	}
	return h, h.run(random.IntN, steps)
}

func silent(string, ...any) {}

// TestHistories runs random histories against the twin and looks after each
// step whether all that must stay true inside still is. A failure names its
// seed, and -seed runs that history alone and tells it step by step.
//
// H-010 H-011 H-012 H-062 H-065 H-070 H-071 H-074 H-093 H-094 H-095
func TestHistories(t *testing.T) {
	t.Parallel()
	fail := func(t *testing.T, seed uint64) {
		h, err := runSeed(seed, t.Logf)
		t.Fatalf("seed %d: %v\n%srun it again with -run TestHistories -seed %d", seed, err, dump(h.p, hex), seed)
	}
	if *seed != 0 {
		if _, err := runSeed(*seed, silent); err != nil {
			fail(t, *seed)
		}
		return
	}
	n := *histories
	if testing.Short() {
		n = min(n, 10_000)
	}
	const shards = 8
	first := uint64(time.Now().UnixNano())
	var next atomic.Int64
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				if _, err := runSeed(first+uint64(i), silent); err != nil {
					fail(t, first+uint64(i))
				}
			}
		})
	}
}

// TestModel is TestHistories with few histories, which rapid makes as short as
// it can when one fails: look here first.
func TestModel(t *testing.T) {
	t.Parallel()
	model := func(t *rapid.T) {
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		h := newHistory(pick, t.Logf)
		fail := func(err error) {
			if err != nil {
				t.Fatalf("%v\n%s", err, dump(h.p, hex))
			}
		}
		actions := map[string]func(*rapid.T){"": func(*rapid.T) { fail(h.check()) }}
		for _, a := range all {
			actions[a.name] = func(*rapid.T) { fail(a.do(h, pick)) }
		}
		t.Repeat(actions)
	}
	for range 20 { // of 100 histories each, if -rapid.checks doesn't say otherwise
		rapid.Check(t, model)
	}
}

// FuzzHistories reads a history from bytes: each decision is a byte, or as
// many as it takes.
func FuzzHistories(f *testing.F) {
	for seed := range uint64(16) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2000 {
			return
		}
		pick := func(n int) int {
			v := 0
			for limit := 1; limit < n && len(b) > 0; limit <<= 8 {
				v = v<<8 | int(b[0])
				b = b[1:]
			}
			return v % n
		}
		h := newHistory(pick, silent)
		for len(b) > 0 {
			err := all[pick(len(all))].do(h, pick)
			if err == nil {
				err = h.check()
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, dump(h.p, hex))
			}
		}
	})
}
