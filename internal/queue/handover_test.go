package queue

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fronta-mq/fronta/progress"
)

var (
	handovers = flag.Int("handovers", 20_000, "how many random histories TestHandover runs")
	handover  = flag.Uint64("handover", 0, "run TestHandover with the history of this seed alone")
)

// A log is a partition with the owners it has one after another: each reads,
// runs and finishes records, commits now and then, and crashes. What the broker
// holds is all that the next one knows.
type log struct {
	random  *rand.Rand
	offsets []int64
	keys    []int // −1: none
	gone    []bool
	end     int64
	version int // of the key function

	ever   []bool // was finished
	commit commit
	trace  func(string, ...any)
	seen   *events
}

// commit is what the broker holds.
type commit struct {
	offset int64
	text   string
}

// events count what happened, to see that histories are wild enough.
type events struct {
	mismatch, missed, former, marked, forgot, exact, attempts, segments, cut atomic.Int64
}

// logOrder is an order of records: lanes are numbers, −1 is a lane of its own.
type logOrder string

var logOrders = []logOrder{"key", "key:f", "bucket:3", "partition", "unordered"}

func (l *log) lane(o logOrder, i int) int {
	switch k := l.keys[i]; {
	case o == "unordered":
		return -1
	case o == "partition":
		return 0
	case o == "key:f":
		return ((k+1)*7+i%2*l.version)%5 + 10*l.version // other lanes with each version
	case k < 0 || o == "key":
		return k
	default:
		return k % 3
	}
}

func (l *log) check(o logOrder, i int) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, o, l.lane(o, i))
	return h.Sum32() | 1
}

// told interprets p by what its documentation says: which records that are
// still in the log it tells are finished. From where it can't be relied on it
// tells nothing.
func (l *log) told(p *progress.Progress) []bool {
	finished := make([]bool, len(l.offsets))
	i := 0
	next := func(end int64) bool { // of the records in the log
		for i < len(l.offsets) && l.gone[i] {
			i++
		}
		return i < len(l.offsets) && l.offsets[i] < end
	}
	for ; next(p.Offset); i++ {
		finished[i] = true
	}
	for _, s := range p.Segments {
		o := logOrder(s.Order)
		var heads []int64
		for _, r := range s.Heads {
			for at := r.From; at < r.To; at++ {
				heads = append(heads, at)
			}
		}
		learned := map[int]bool{}
		first := true
		for ; next(s.End); i++ {
			for len(heads) > 0 && heads[0] < l.offsets[i] {
				if o != "unordered" {
					return finished
				}
				heads = heads[1:]
			}
			lane := l.lane(o, i)
			switch {
			case len(heads) > 0 && heads[0] == l.offsets[i]:
				if first && s.Check != 0 && s.Check != l.check(o, i) && heads[0] == s.Heads[0].From {
					return finished
				}
				heads = heads[1:]
				learned[lane] = lane >= 0
				finished[i] = slices.Contains(s.Markers, l.offsets[i])
			default:
				finished[i] = !learned[lane]
			}
			first = first && (len(heads) == 0 || heads[0] == s.Heads[0].From)
		}
		if len(heads) > 0 && o != "unordered" {
			return finished
		}
	}
	return finished
}

// owner is one ownership.
type owner struct {
	*log
	p        *Partition
	start    int64
	order    logOrder
	exact    bool // commits say which records are unfinished, not which are heads
	seed     uint64
	limit    int
	segments []progress.Segment
	former   []bool // of segments
	finished []bool // as far as the owner knows
	attempts []int
	stored   []progress.Count // attempts as they were told
	stuck    map[int]bool     // keys
	slots    map[Slot]int
	running  []Slot
	next     int // the record to be read
	snapshot Snapshot
	last     *progress.Progress // that was committed
	lastTold []bool             // what it tells
	encoder  progress.Encoder
	now      Time
	floor    int64
}

// hash is a lane as the core takes it: owners hash differently.
func (o *owner) hash(lane int) Lane {
	if lane < 0 {
		return Alone
	}
	return laneOf(lane*1000 + int(o.seed%1000))
}

func newLog(seed uint64, trace func(string, ...any), seen *events) *log {
	r := rand.New(rand.NewPCG(seed, 7))
	n := []int{20, 60, 200}[r.IntN(3)]
	keys := []int{1, 3, 10, 50}[r.IntN(4)]
	l := &log{random: r, ever: make([]bool, n), gone: make([]bool, n), version: 1, trace: trace, seen: seen}
	at := []int64{0, 7, 500, 1 << 40}[r.IntN(4)]
	start, sparse := at, []int{1, 3, 10, 700}[r.IntN(4)]
	for range n {
		at += int64(r.IntN(sparse))
		l.offsets = append(l.offsets, at)
		at++
		key := r.IntN(keys)
		if r.IntN(10) == 0 {
			key = -1
		}
		l.keys = append(l.keys, key)
	}
	l.end = at + int64(r.IntN(3))
	l.commit.offset = start
	return l
}

// run is a history: owners that crash, and at last one that doesn't.
func (l *log) run() error {
	r := l.random
	order := logOrders[r.IntN(len(logOrders))]
	fickle := r.IntN(3) // how gladly the order is changed
	shrinks, changes := r.IntN(6) == 0, r.IntN(6) == 0
	for life := 0; ; life++ {
		last := life == 8
		if life > 0 && r.IntN(4) < fickle {
			order = logOrders[r.IntN(len(logOrders))]
		}
		if changes && r.IntN(3) == 0 {
			l.version++
		}
		if shrinks {
			// The log is compacted, or its beginning is deleted.
			for i := range l.gone {
				l.gone[i] = l.gone[i] || r.IntN(30) == 0
			}
		}
		o, err := l.newOwner(order)
		if err != nil {
			return fmt.Errorf("owner %d: %w", life, err)
		}
		steps := r.IntN(6 * len(l.offsets))
		if last {
			o.stuck = nil
			steps = 1 << 30
		}
		for range steps {
			if err := o.step(); err != nil {
				return fmt.Errorf("owner %d: %w", life, err)
			}
			if o.p.Len() == 0 && o.p.Horizon() == l.end {
				if err := o.drained(); err != nil {
					return fmt.Errorf("owner %d: %w", life, err)
				}
				return nil
			}
		}
		if r.IntN(3) == 0 {
			// It goes in good order: with a last commit.
			if err := o.store(); err != nil {
				return fmt.Errorf("owner %d: %w", life, err)
			}
		}
		if err := o.write(); err != nil {
			return fmt.Errorf("owner %d: %w", life, err)
		}
	}
}

func (l *log) binding() progress.Binding {
	return progress.Binding{TopicID: [16]byte{1, 2, 3}, Partition: int32(len(l.offsets))}
}

func (l *log) newOwner(order logOrder) (*owner, error) {
	r := l.random
	stored, _, err := progress.Decode(l.commit.text, l.commit.offset, l.binding())
	if err != nil {
		return nil, err
	}
	o := &owner{
		log: l, start: l.commit.offset, order: order, exact: r.IntN(8) == 0, seed: r.Uint64(),
		limit:    []int{1, 3, 10, 1000}[r.IntN(4)],
		segments: stored.Segments,
		finished: l.told(&stored),
		attempts: make([]int, len(l.offsets)),
		slots:    map[Slot]int{}, stuck: map[int]bool{},
		floor: l.commit.offset,
	}
	if r.IntN(10) < 7 {
		for range r.IntN(10) {
			o.stuck[r.IntN(50)] = true
		}
	}
	segments := make([]Segment, len(o.segments))
	for i, s := range o.segments {
		o.former = append(o.former, s.Order != string(order))
		segments[i] = Segment{
			End: s.End, Check: s.Check, Heads: s.Heads, Markers: s.Markers,
			Former: o.former[i], Unordered: s.Order == "unordered",
		}
	}
	o.stored = stored.Attempts
	for _, a := range o.stored {
		if i, ok := slices.BinarySearch(l.offsets, a.Offset); ok {
			o.attempts[i] = a.N
		}
	}
	o.p = Resume(l.commit.offset, segments)
	for o.next < len(l.offsets) && l.offsets[o.next] < l.commit.offset {
		o.next++
	}
	l.trace("owner: %s exact=%v limit=%d stuck=%v starts at %d with %+v", order, o.exact, o.limit, o.stuck, l.commit.offset, stored)
	if len(segments) > 1 {
		l.seen.segments.Add(1)
	}
	return o, nil
}

func (o *owner) step() error {
	var err error
	switch x := o.random.IntN(100); {
	case x < 45:
		err = o.read()
	case x < 65:
		err = o.take()
	case x < 90:
		err = o.settle()
	default:
		err = o.store()
	}
	if at := o.p.Frontier(); err == nil && at < o.floor {
		err = fmt.Errorf("the frontier went back from %d to %d", o.floor, at)
	}
	o.floor = o.p.Frontier()
	return err
}

// read reads the next record, if there is room for it.
func (o *owner) read() error {
	for o.next < len(o.offsets) && o.gone[o.next] {
		o.next++
	}
	if o.next == len(o.offsets) {
		o.p.Advance(o.end)
		return o.expectMissed()
	}
	if o.p.Len() >= o.limit {
		return nil
	}
	i := o.next
	offset := o.offsets[i]
	if o.random.IntN(10) == 0 && offset > o.p.Horizon() {
		o.p.Advance(offset - o.random.Int64N(min(3, offset-o.p.Horizon()+1)))
		return o.expectMissed()
	}
	o.next++
	lane, own := o.hash(o.lane(o.order, i)), Alone
	former := false
	if o.p.Resuming() {
		index, isFormer, ok := o.p.SegmentAt(offset)
		if ok {
			former = isFormer
			own = o.hash(o.lane(logOrder(o.segments[index].Order), i))
		}
		check := uint32(0)
		if ok {
			check = o.check(logOrder(o.segments[index].Order), i)
		}
		if o.random.IntN(400) == 0 {
			// Its key function fails. What is not known to be finished
			// whatever the lanes is lost.
			known := o.p.Frontier()
			o.p.Forget()
			o.seen.forgot.Add(1)
			for j := i; j < len(o.finished); j++ {
				o.finished[j] = o.finished[j] && o.offsets[j] < known
			}
			own, check = Alone, 0
		}
		got := o.p.Recall(offset, own, check)
		o.trace("recall %d: %v", offset, got)
		switch got {
		case Finished:
			if !o.finished[i] {
				return fmt.Errorf("offset %d is lost", offset)
			}
			return nil
		case Mismatch:
			o.seen.mismatch.Add(1)
			if o.segments[index].Heads[0].From != offset || o.segments[index].Check == check {
				return fmt.Errorf("offset %d: a mismatch of check %d", offset, check)
			}
			former = false
		case Missed:
			former = false
			if err := o.expectMissed(); err != nil {
				return err
			}
		}
		if !o.p.Resuming() {
			former = false
		}
	}
	if o.finished[i] {
		return fmt.Errorf("offset %d is finished and admitted", offset)
	}
	var s Slot
	var ok bool
	if former {
		o.seen.former.Add(1)
		s, ok = o.p.AdmitFormer(offset, lane, own)
	} else {
		s, ok = o.p.Admit(offset, lane)
	}
	o.trace("admit %d (key %d): slot %d", offset, o.keys[i], s)
	if !ok {
		return fmt.Errorf("offset %d is refused", offset)
	}
	if o.p.Resuming() && o.attempts[i] > 0 {
		o.seen.attempts.Add(1)
	}
	o.p.SetAttempts(s, o.attempts[i])
	o.slots[s] = i
	return nil
}

// expectMissed is called when reading may have passed a head.
func (o *owner) expectMissed() error {
	at, ok := o.p.Missed()
	if !ok {
		return nil
	}
	o.seen.missed.Add(1)
	i, ok := slices.BinarySearch(o.offsets, at)
	if !ok || !o.gone[i] {
		return fmt.Errorf("offset %d is missed", at)
	}
	return nil
}

// take starts a record. Nothing of its lane may be unfinished before it, nor,
// in a stretch of a former order, of its lane there.
func (o *owner) take() error {
	s, ok := o.p.Take()
	if !ok {
		if o.p.Len() > 0 && o.p.Running()+o.p.Waiting() == 0 {
			return errors.New("nothing is ready, running or waiting")
		}
		o.now++
		o.p.Tick(o.now)
		return nil
	}
	i := o.slots[s]
	o.trace("take %d", o.offsets[i])
	if o.finished[i] {
		return fmt.Errorf("offset %d runs again", o.offsets[i])
	}
	o.running = append(o.running, s)
	lane := o.lane(o.order, i)
	index, former, ok := o.p.SegmentAt(o.offsets[i])
	own, from := -1, int64(0)
	if ok && former {
		own = o.lane(logOrder(o.segments[index].Order), i)
		if from = o.start; index > 0 {
			from = o.segments[index-1].End
		}
	}
	for j := range i {
		if o.finished[j] || o.gone[j] {
			continue
		}
		if lane >= 0 && o.lane(o.order, j) == lane {
			return fmt.Errorf("offset %d runs before %d in lane %d", o.offsets[i], o.offsets[j], lane)
		}
		if own >= 0 && o.offsets[j] >= from && o.lane(logOrder(o.segments[index].Order), j) == own {
			return fmt.Errorf("offset %d runs before %d in the former lane %d", o.offsets[i], o.offsets[j], own)
		}
	}
	return nil
}

func (o *owner) settle() error {
	if len(o.running) == 0 {
		return nil
	}
	at := o.random.IntN(len(o.running))
	s := o.running[at]
	i := o.slots[s]
	if o.stuck[o.keys[i]] {
		return nil
	}
	o.running = slices.Delete(o.running, at, at+1)
	switch o.random.IntN(8) {
	case 0:
		o.p.Retry(s, o.now+Time(o.random.IntN(3)))
		o.attempts[i]++
	case 1:
		o.p.Snooze(s, o.now+Time(o.random.IntN(3)))
	case 2:
		if !o.p.Return(s) {
			return fmt.Errorf("offset %d is not returned", o.offsets[i])
		}
	default:
		o.trace("finish %d", o.offsets[i])
		if !o.p.Finish(s) {
			return fmt.Errorf("offset %d is not finished", o.offsets[i])
		}
		if o.gone[i] {
			return fmt.Errorf("offset %d is not in the log", o.offsets[i])
		}
		delete(o.slots, s)
		o.finished[i], o.ever[i] = true, true
	}
	return nil
}

// store commits, and sees to it that what the commit tells is what is finished.
func (o *owner) store() error {
	s := &o.snapshot
	heads := o.p.Heads()
	o.p.Snapshot(s, o.exact)
	p := progress.Progress{Offset: s.Offset, Epoch: 3, Fence: 5, Suspect: -1}
	for i := range s.Segments {
		t := &s.Segments[i]
		seg := progress.Segment{End: t.End, Order: string(o.order), Check: t.First.Check}
		if o.exact {
			seg.Order = "unordered"
		} else if t.Index >= 0 {
			seg.Order = o.segments[t.Index].Order
		}
		if t.First.Slot >= 0 {
			seg.Check = o.check(logOrder(seg.Order), o.slots[t.First.Slot])
		}
		p.Segments = append(p.Segments, seg)
	}
	s.Fill()
	marks, attempts := 0, 0
	prev := s.Offset
	for i := range s.Segments {
		t, seg := &s.Segments[i], &p.Segments[i]
		seg.Heads, seg.Markers = slices.Clone(t.Heads), slices.Clone(t.Markers)
		marks += len(t.Markers)
		if seg.End <= prev || i == 0 && (len(seg.Heads) == 0 || seg.Heads[0].From != s.Offset) {
			return fmt.Errorf("segment %d of %+v", i, p)
		}
		for _, r := range seg.Heads {
			heads -= r.To - r.From
			if r.From < prev || r.To > seg.End {
				return fmt.Errorf("segment %d of %+v", i, p)
			}
		}
		prev = seg.End
	}
	if heads != 0 && !o.exact {
		return fmt.Errorf("%d more heads are announced than told", heads)
	}
	p.Attempts = slices.Clone(s.Attempts)
	for _, a := range o.stored {
		// Those of records to be read are known to their owner alone.
		if a.Offset >= o.p.Horizon() && a.Offset < s.Horizon {
			p.Attempts = append(p.Attempts, a)
		}
	}
	for i, a := range p.Attempts {
		if at, ok := slices.BinarySearch(o.offsets, a.Offset); !ok || o.attempts[at] != a.N || i > 0 && p.Attempts[i-1].Offset >= a.Offset {
			return fmt.Errorf("attempts %v", p.Attempts)
		}
	}
	for _, i := range o.slots {
		if o.attempts[i] > 0 && slices.ContainsFunc(p.Segments, func(s progress.Segment) bool {
			return slices.ContainsFunc(s.Heads, func(r progress.Range) bool { return r.From <= o.offsets[i] && o.offsets[i] < r.To })
		}) {
			attempts++
		}
	}
	if len(s.Attempts) != attempts {
		return fmt.Errorf("attempts %v of %d heads", p.Attempts, attempts)
	}
	o.trace("commit %+v", p)

	told := o.told(&p)
	for i, t := range told {
		switch {
		case o.gone[i]:
		case t && !o.ever[i]:
			return fmt.Errorf("offset %d is told to be finished: %+v", o.offsets[i], p)
		case o.exact && o.finished[i] && !t && o.offsets[i] < o.p.Horizon() && o.offsets[i] != p.Offset,
			!o.exact && o.finished[i] != t:
			return fmt.Errorf("offset %d is finished: %v, told is %v: %+v", o.offsets[i], o.finished[i], t, p)
		}
	}
	if p.Offset < o.commit.offset {
		return fmt.Errorf("committed is %d after %d", p.Offset, o.commit.offset)
	}
	o.last, o.lastTold, o.commit.offset = &p, told, p.Offset
	o.seen.marked.Add(int64(marks))
	if o.exact {
		o.seen.exact.Add(1)
	}
	return nil
}

// write makes the text of the owner's last commit, the only one that is ever
// read. Now and then it has little room.
func (o *owner) write() error {
	p, told := o.last, o.lastTold
	if p == nil {
		return nil
	}
	limit := progress.Limit{Units: 4096}
	if o.random.IntN(20) == 0 {
		limit.Units = o.random.IntN(80)
	}
	text, fit := o.encoder.Append(nil, p, o.binding(), limit)
	o.commit.text = string(text)
	read, _, err := progress.Decode(o.commit.text, o.commit.offset, o.binding())
	if err != nil {
		return fmt.Errorf("%+v is written and not read: %w", p, err)
	}
	if len(text) > 0 && fit.Horizon == p.Horizon() && fit.LeftOutMarkers == 0 {
		want := *p
		if fit.LeftOutAttempts > 0 {
			want.Attempts = want.Attempts[:len(want.Attempts)-fit.LeftOutAttempts]
		}
		if got, want := fmt.Sprintf("%+v", read), fmt.Sprintf("%+v", want); got != want {
			return fmt.Errorf("%s was written and %s is read", want, got)
		}
		return nil
	}
	o.seen.cut.Add(1)
	for i, t := range o.told(&read) {
		if t && !told[i] {
			return fmt.Errorf("offset %d is told to be finished by a part of %+v: %+v", o.offsets[i], p, read)
		}
	}
	return nil
}

// drained is called when all is read and finished.
func (o *owner) drained() error {
	if err := o.store(); err != nil {
		return err
	}
	if o.p.Frontier() != o.end {
		return fmt.Errorf("all is finished and %d is committed", o.commit.offset)
	}
	if o.p.past != nil || o.p.Heads() != 0 {
		return fmt.Errorf("something is left of the past: %+v", o.p.past)
	}
	for i, done := range o.ever {
		if !done && !o.gone[i] {
			return fmt.Errorf("offset %d was never finished", o.offsets[i])
		}
	}
	return nil
}

// TestHandover runs random histories of owners that crash and are followed by
// others, of the same order or another one. What a commit tells must be what
// is finished: a record told of too much is lost, one too few runs again.
//
// H-022 H-028 H-143 H-144
func TestHandover(t *testing.T) {
	t.Parallel()
	var seen events
	if *handover != 0 {
		if err := newLog(*handover, t.Logf, &seen).run(); err != nil {
			t.Fatal(err)
		}
		return
	}
	n := *handovers
	if testing.Short() {
		n = min(n, 3_000)
	}
	const shards = 4
	first := uint64(time.Now().UnixNano())
	var next atomic.Int64
	t.Run("histories", func(t *testing.T) {
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					seed := first + uint64(i)
					if err := newLog(seed, silent, &seen).run(); err != nil {
						t.Fatalf("%v\nrun it again with -run TestHandover -handover %d", err, seed)
					}
				}
			})
		}
	})
	for name, count := range map[string]*atomic.Int64{
		"mismatch": &seen.mismatch, "missed": &seen.missed, "former": &seen.former, "marked": &seen.marked, "forgot": &seen.forgot,
		"exact": &seen.exact, "attempts": &seen.attempts, "segments": &seen.segments, "cut": &seen.cut,
	} {
		t.Logf("%s: %d", name, count.Load())
		if count.Load() == 0 {
			t.Errorf("no history has: %s", name)
		}
	}
}
