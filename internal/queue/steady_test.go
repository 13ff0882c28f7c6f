package queue

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/fronta-mq/fronta/progress"
)

// footprint is how many bytes a partition holds on to.
func footprint(p *Partition) int {
	return cap(p.records)*int(unsafe.Sizeof(record{})) +
		cap(p.details)*int(unsafe.Sizeof(detail{})) +
		cap(p.frontier.chunks)*int(unsafe.Sizeof(chunk{})) +
		cap(p.lanes.entries)*int(unsafe.Sizeof(laneEntry{})) +
		cap(p.ready.slots)*int(unsafe.Sizeof(Slot(0))) +
		cap(p.waits)*int(unsafe.Sizeof(wait{}))
}

// The sizes that the comments promise, for which the layout was chosen.
func TestSizes(t *testing.T) {
	t.Parallel()
	for name, size := range map[string][2]uintptr{
		"record":    {unsafe.Sizeof(record{}), 16},
		"detail":    {unsafe.Sizeof(detail{}), 16},
		"laneEntry": {unsafe.Sizeof(laneEntry{}), 8},
	} {
		if size[0] != size[1] {
			t.Errorf("a %s has %d bytes, want %d", name, size[0], size[1])
		}
	}
}

// In steady state a record costs no allocation, whether it is handled at the
// first attempt or fails before, and neither does a commit. H-104
//
// Not parallel: AllocsPerRun counts what other goroutines allocate too.
func TestNoAllocations(t *testing.T) {
	const keys, batch = 10_000, 1_000
	p := New(0)
	var s Snapshot
	now := Time(0)
	failed := 0
	turn := func() {
		for range batch {
			p.Admit(p.Horizon(), laneOf(int(p.Horizon()%keys)))
		}
		// Everything that may run is taken, and of that every 10th record
		// fails and waits, some of them for longer than a turn.
		now++
		p.Tick(now)
		for {
			s, ok := p.Take()
			if !ok {
				break
			}
			if failed++; failed%10 == 0 {
				p.Retry(s, now+Time(failed%7))
			} else if failed%10 == 1 {
				p.Snooze(s, now+Time(failed%5))
			} else {
				p.Finish(s)
			}
			p.Frontier()
			p.NextWake()
		}
		p.Snapshot(&s, now%2 == 0)
		s.Fill()
	}
	for range 200 {
		turn()
	}
	if n := testing.AllocsPerRun(200, turn); n != 0 {
		t.Errorf("%v allocations in a turn of %d records", n, batch)
	}
	if p.Len() == 0 || p.Waiting() == 0 {
		t.Errorf("%d unfinished, %d waiting: the turns are too tame", p.Len(), p.Waiting())
	}
}

// Reading again costs no allocation for a record either, once its lane is
// learned.
func TestNoAllocationsResuming(t *testing.T) {
	const keys = 1_000
	p := Resume(0, []Segment{{End: 1 << 40, Heads: []progress.Range{{From: 0, To: keys}}}})
	var s Snapshot
	turn := func() {
		for range 10 * keys {
			o := p.Horizon()
			lane := laneOf(int(o % (2 * keys)))
			if p.Recall(o, lane, 1) == Unfinished {
				p.Admit(o, lane)
			}
			if p.Ready() == keys/2 {
				for r, ok := p.Take(); ok; r, ok = p.Take() {
					p.Finish(r)
				}
			}
		}
		p.Snapshot(&s, false)
		s.Fill()
	}
	for range 20 {
		turn()
	}
	if n := testing.AllocsPerRun(50, turn); n != 0 {
		t.Errorf("%v allocations in a turn of %d records", n, 10*keys)
	}
	if !p.Resuming() || p.Heads() != keys || len(s.Segments) != 1 || len(s.Segments[0].Markers) == 0 {
		t.Errorf("%d heads, %d segments: the turns are too tame", p.Heads(), len(s.Segments))
	}
}

// H-106: keys that occur once each leave nothing behind.
func TestKeysSeenOnce(t *testing.T) {
	t.Parallel()
	n := 5_000_000
	if testing.Short() {
		n = 500_000
	}
	p := New(0)
	var warm int
	for i := range n {
		p.Admit(int64(i), laneOf(i))
		if p.Len() == 1_000 {
			for s, ok := p.Take(); ok; s, ok = p.Take() {
				p.Finish(s)
			}
		}
		if i == 10_000 {
			warm = footprint(p)
		}
	}
	if now := footprint(p); now != warm {
		t.Errorf("%d bytes after 10,000 keys, %d after %d", warm, now, n)
	}
}

// H-105: a million failures of one record leave nothing behind, and they are
// all counted.
func TestFailsForEver(t *testing.T) {
	t.Parallel()
	p := New(0)
	s, _ := p.Admit(0, 1)
	p.Admit(1, 1)
	warm := 0
	const n = 1_000_000
	for i := range Time(n) {
		if got, ok := p.Take(); !ok || got != s {
			t.Fatalf("Take is %d, %v at attempt %d", got, ok, i)
		}
		p.Retry(s, i)
		p.Tick(i)
		if i == 10 {
			warm = footprint(p)
		}
	}
	if now := footprint(p); now != warm {
		t.Errorf("%d bytes after 10 attempts, %d after %d", warm, now, n)
	}
	if got := p.Attempts(s); got != n {
		t.Errorf("%d attempts are counted, want %d", got, n)
	}
}

// H-070: many records that fail again and again, and leave in between.
func TestRetrySetIsBounded(t *testing.T) {
	t.Parallel()
	const records, attempts = 200, 3_600
	random := rand.New(rand.NewPCG(1, 1))
	for range 2 {
		p := New(0)
		for i := range records {
			p.Admit(int64(i), laneOf(i))
		}
		now := Time(0)
		for p.Attempts(0) < attempts {
			for s, ok := p.Take(); ok; s, ok = p.Take() {
				p.Retry(s, now+1+Time(random.IntN(20)))
			}
			if len(p.waits) > records || cap(p.waits) > 2*records {
				t.Fatalf("%d waits of %d records, room for %d", len(p.waits), records, cap(p.waits))
			}
			now = p.NextWake()
			if p.Tick(now) == 0 {
				t.Fatalf("nothing is ready at %d, which NextWake has named", now)
			}
		}
		p.Leave()
		p.Tick(now + 100)
		if _, ok := p.Take(); ok || p.NextWake() != Never || p.Waiting() != 0 {
			t.Errorf("after Leave: Take %v, NextWake %d, %d waiting", ok, p.NextWake(), p.Waiting())
		}
	}
}

// H-093, H-145: with a tenth of a million keys stuck, the others go on. Were
// the cost of a record to grow with the number of stuck ones, this would take
// hours; and nothing is kept of those that have finished.
func TestManyStuckKeys(t *testing.T) {
	t.Parallel()
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	random := rand.New(rand.NewPCG(1, 1))
	p := New(0)
	stuck := 0
	turn := func(i int) {
		p.Admit(p.Horizon(), laneOf(i))
		s, ok := p.Take()
		if !ok {
			t.Fatal("nothing is ready")
		}
		if i < n && random.IntN(10) == 0 {
			p.Retry(s, Never-1)
			stuck++
			return
		}
		p.Finish(s)
	}
	for i := range n {
		turn(i)
	}
	// From here on nothing gets stuck. The first records may still start a
	// chunk of their own.
	for range 2 * chunkBits {
		turn(n)
	}
	before := footprint(p)
	for i := range n {
		turn(n + i)
	}
	if after := footprint(p); after != before {
		t.Errorf("%d bytes with %d stuck keys, %d after %d more records", before, stuck, after, n)
	}
	if p.Len() != stuck || p.Lanes() != stuck {
		t.Errorf("%d unfinished in %d lanes, %d keys are stuck", p.Len(), p.Lanes(), stuck)
	}
	if err := new(checker).check(p); err != nil {
		t.Error(err)
	}
}

// H-065: one key makes up nine tenths of the records. A record of another key
// that is the first of its lane waits for no more turns than there were lanes
// with something ready, and never does Take find nothing while work is ready.
func TestHotKey(t *testing.T) {
	t.Parallel()
	const keys, atOnce = 1_000, 8
	random := rand.New(rand.NewPCG(1, 1))
	p := New(0)
	turns := 0
	type admitted struct{ turn, ready int }
	heads := map[Slot]admitted{}
	var running []Slot
	for range 200_000 {
		key := 0
		if random.IntN(10) == 0 {
			key = 1 + random.IntN(keys)
		}
		ready := p.Ready()
		s, _ := p.Admit(p.Horizon(), laneOf(key))
		if i, _ := p.Info(s); i.State == Ready {
			heads[s] = admitted{turns, ready}
		}
		for len(running) < atOnce {
			s, ok := p.Take()
			if !ok {
				break
			}
			if at, ok := heads[s]; ok {
				if waited := turns - at.turn; waited > at.ready {
					t.Fatalf("offset %d waited for %d turns behind %d ready records", p.Offset(s), waited, at.ready)
				}
				delete(heads, s)
			}
			turns++
			running = append(running, s)
		}
		i := random.IntN(len(running))
		p.Finish(running[i])
		running[i] = running[len(running)-1]
		running = running[:len(running)-1]
	}
}

// The largest lanes and offsets there are, and tables that grow while they
// are full of lanes that meet.
func TestCollidingLanes(t *testing.T) {
	t.Parallel()
	for name, lane := range map[string]func(i int) Lane{
		"equal tags":      func(i int) Lane { return unmix(0xabcdef01<<32 | uint64(i)) },
		"no tag":          func(i int) Lane { return unmix(uint64(i) + 1) },
		"equal homes":     func(i int) Lane { return unmix(0x5a<<56 | uint64(i)<<32) },
		"homes at end":    func(i int) Lane { return unmix(^(uint64(i) << 32)) },
		"equal low bits":  func(i int) Lane { return Lane(i+1) << 48 },
		"equal high bits": func(i int) Lane { return 1<<63 | Lane(i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 300
			random := rand.New(rand.NewPCG(1, 1))
			var checker checker
			p := New(0)
			// Each lane twice: the second record has to find the first.
			for i := range 2 * n {
				p.Admit(int64(i), lane(i%n))
			}
			if p.Lanes() != n || p.Ready() != n {
				t.Fatalf("%d lanes, %d ready, want %d", p.Lanes(), p.Ready(), n)
			}
			var running []Slot
			for p.Len() > 0 {
				for s, ok := p.Take(); ok; s, ok = p.Take() {
					running = append(running, s)
				}
				i := random.IntN(len(running))
				p.Finish(running[i])
				running[i] = running[len(running)-1]
				running = running[:len(running)-1]
				if err := checker.check(p); err != nil {
					t.Fatal(err)
				}
			}
			if p.Lanes() != 0 {
				t.Errorf("%d lanes are left", p.Lanes())
			}
		})
	}
}

// Attempts stop at their limit and don't come round to 0.
func TestAttemptsSaturate(t *testing.T) {
	t.Parallel()
	p := New(0)
	s, _ := p.Admit(0, Alone)
	p.Take()
	p.Count(s)
	p.details[s].attempts = 1<<31 - 2
	for range 3 {
		p.Count(s)
	}
	if got := p.Attempts(s); got != 1<<31-1 {
		t.Errorf("%d attempts", got)
	}
}

func TestStateString(t *testing.T) {
	t.Parallel()
	for s, want := range map[State]string{Free: "free", Queued: "queued", Ready: "ready", Running: "running", Waiting: "waiting", Parked: "parked", 9: "State(9)"} {
		if got := s.String(); got != want {
			t.Errorf("State %d is %q, want %q", s, got, want)
		}
	}
}

// Each stops when it is told to.
func TestEachStops(t *testing.T) {
	t.Parallel()
	p := New(0)
	for i := range int64(5) {
		p.Admit(i, Alone)
	}
	n := 0
	p.Each(func(Info) bool {
		n++
		return n < 3
	})
	if n != 3 {
		t.Errorf("Each went on for %d records", n)
	}
}

// Shrink gives back what a crowd has taken, all of it.
func TestShrinkGivesBack(t *testing.T) {
	t.Parallel()
	p := New(0)
	empty := footprint(p)
	for i := range 50_000 {
		p.Admit(p.Horizon()+700, laneOf(i))
	}
	for s, ok := p.Take(); ok; s, ok = p.Take() {
		p.Snooze(s, 1)
	}
	p.Tick(1)
	for s, ok := p.Take(); ok; s, ok = p.Take() {
		p.Finish(s)
	}
	if !p.Shrink() {
		t.Fatal("Shrink is false")
	}
	if got := footprint(p); got != empty {
		t.Errorf("%d bytes after Shrink, %d when new", got, empty)
	}
	if err := new(checker).check(p); err != nil {
		t.Error(err)
	}
}

// Shrink leaves markers where they are: no slot knows of them, but the frontier
// stands at them, and when their lane goes on they are taken out of it.
func TestShrinkKeepsMarkers(t *testing.T) {
	t.Parallel()
	const n = 2 * keepSlots
	p := Resume(0, []Segment{{End: 10 * n, Heads: []progress.Range{{From: 0, To: 2}}}})
	read := func(offset int64, lane Lane) {
		if p.Recall(offset, lane, 0) == Unfinished {
			p.Admit(offset, lane)
		}
	}
	read(0, 1)
	for o := range int64(n) {
		read(o+1, 2)
	}
	for s, ok := p.Take(); ok; s, ok = p.Take() {
		p.Finish(s)
	}
	if !p.Shrink() {
		t.Fatal("Shrink is false")
	}
	var checker checker
	for _, step := range []struct {
		do       func()
		frontier int64
	}{
		{func() {}, 0},
		{func() { read(n+1, 1) }, n},
		{func() { read(n+2, 2) }, n + 1},
	} {
		step.do()
		if got := p.Frontier(); got != step.frontier {
			t.Errorf("the frontier is at %d, want %d", got, step.frontier)
		}
		if err := checker.check(p); err != nil {
			t.Error(err)
		}
	}
}
