package checker

import "slices"

// Where records and lanes are kept. What must stay true: a record is found by its offset in constant time whatever gaps
// the log has, its state holds no pointer, and the records of a lane are sorted by offset with all those before the
// lane's head finished.

// flags of a record.
const (
	flagSeen     uint16 = 1 << iota // exists: it was produced, started or dead-lettered
	flagProduced                    // Produced was called
	flagTerminal                    // was finished once
	flagLetter                      // a dead letter or a discard was seen
	flagAccepted                    // was finished by the result of an attempt
	flagReopened                    // finished once, started again, and not finished since
	flagAgain                       // was finished more than once: lastDone has the last time
	flagMoved                       // was started by more than one term
	flagPassed                      // a commit passed it unfinished, and that was noted
	flagSkipped                     // a Reset jumped over it
	flagRejected                    // the last attempt ended as RejectedPending
)

// A record's times are sequence numbers of its partition's events; zero means never.
type record struct {
	producedSeq uint32
	startSeq    uint32 // first start by an owner in good standing
	doneSeq     uint32 // first time it was finished
	lane        int32  // index into lanes; laneUnknown or laneOwn
	term        int32  // last term that started it in good standing; 0 if none
	run         int32  // a term that runs it; 0 if none. More are in partition.moreRuns
	flags       uint16
}

const (
	laneUnknown int32 = 0  // not produced yet, as far as is known
	laneOwn     int32 = -1 // a lane of its own
)

func (r *record) has(flag uint16) bool { return r.flags&flag != 0 }

// passable says that later records of the lane may start and commits may pass.
func (r *record) passable() bool { return r.flags&(flagTerminal|flagSkipped) != 0 }

// excused says that having passed the record unfinished is no breach after all: it was skipped on purpose, or its dead
// letter has been seen and may have been stored before it was passed.
func (r *record) excused(prompt bool) bool {
	return r.has(flagSkipped) || !prompt && r.has(flagLetter)
}

// A page is a run of records with consecutive offsets.
const pageBits = 7

type page [1 << pageBits]record

type hotPage struct {
	page   *page
	number int64
}

// find returns the record at offset, or nil if nothing near it is known.
func (p *partition) find(offset int64) *record {
	pg := p.pageAt(offset >> pageBits)
	if pg == nil {
		return nil
	}
	return &pg[offset&(1<<pageBits-1)]
}

// pageAt returns a page, or nil. The few pages that are in use stay at hand without a look into the map.
func (p *partition) pageAt(number int64) *page {
	slot := &p.hot[number&int64(len(p.hot)-1)]
	if slot.page != nil && slot.number == number {
		return slot.page
	}
	pg := p.pages[number]
	if pg != nil {
		slot.page, slot.number = pg, number
	}
	return pg
}

// at returns the record at offset and makes room for it if need be.
func (p *partition) at(offset int64) *record {
	number := offset >> pageBits
	pg := p.pageAt(number)
	if pg == nil {
		pg = new(page)
		p.pages[number] = pg
	}
	return &pg[offset&(1<<pageBits-1)]
}

// each calls yield for all records that exist in [from, to), by offset. It costs time by the pages in that range or by
// all pages, whichever are fewer.
func (p *partition) each(from, to int64, yield func(offset int64, r *record)) {
	if from >= to {
		return
	}
	first, last := from>>pageBits, (to-1)>>pageBits
	visit := func(number int64, pg *page) {
		base := number << pageBits
		for i := range pg {
			offset := base + int64(i)
			if from <= offset && offset < to && pg[i].has(flagSeen) {
				yield(offset, &pg[i])
			}
		}
	}
	if last-first <= int64(len(p.pages)) {
		for number := first; number <= last; number++ {
			if pg := p.pages[number]; pg != nil {
				visit(number, pg)
			}
		}
		return
	}
	numbers := make([]int64, 0, len(p.pages))
	for number := range p.pages {
		if first <= number && number <= last {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	for _, number := range numbers {
		visit(number, p.pages[number])
	}
}

// A lane is what must run one after another.
type lane struct {
	name    string
	offsets []int64 // produced records, sorted
	head    int     // all of offsets before it are passable; moved on when somebody asks

	// No record before head was finished, for the first time, later than maxDone, and none of the first n blocks later
	// than doneBy[n-1]. A lane that becomes known late is searched only where something may be wrong, however long it is.
	maxDone uint32
	doneBy  []uint32

	active []int64 // records that run; may hold some whose runs died with their owner

	// The last start in good standing: within one term a lane never goes back.
	lastOffset int64
	lastTerm   int32
	lastSeq    uint32
}

// laneBlock is the number of records of a lane that share an entry of doneBy: few, so that small lanes have some too.
const laneBlock = 4

// pass moves the head past a record that is passable.
func (l *lane) pass(r *record) {
	l.maxDone = max(l.maxDone, r.doneSeq)
	l.head++
	if l.head%laneBlock == 0 {
		l.doneBy = append(l.doneBy, l.maxDone)
	}
}

// back moves the head back to a record that is not passable.
func (l *lane) back(pos int) {
	if pos < l.head {
		l.head = pos
		l.doneBy = l.doneBy[:pos/laneBlock]
	}
}

// finishedBefore returns a place in the lane such that all records before it were finished before time.
func (l *lane) finishedBefore(time uint32) int {
	if l.maxDone < time {
		return l.head
	}
	blocks, _ := slices.BinarySearch(l.doneBy, time)
	return blocks * laneBlock
}

// advance moves the head to the first record that is not passable.
func (p *partition) advance(l *lane) {
	for l.head < len(l.offsets) {
		r := p.find(l.offsets[l.head])
		if !r.passable() {
			return
		}
		l.pass(r)
	}
}

// insert puts a record into its lane and returns its place there.
func (p *partition) insert(l *lane, offset int64, r *record) int {
	n := len(l.offsets)
	if n == 0 || l.offsets[n-1] < offset {
		l.offsets = append(l.offsets, offset)
		return n
	}
	pos, _ := slices.BinarySearch(l.offsets, offset)
	l.offsets = slices.Insert(l.offsets, pos, offset)
	switch {
	case pos >= l.head:
	case r.passable():
		for block := pos / laneBlock; block < len(l.doneBy); block++ {
			l.doneBy[block] = max(l.doneBy[block], r.doneSeq)
		}
		l.pass(r)
	default:
		l.back(pos)
	}
	return pos
}

func (p *partition) laneOf(r *record) *lane {
	if r.lane <= 0 {
		return nil
	}
	return &p.lanes[r.lane]
}

func (p *partition) laneNamed(name string) int32 {
	if i, ok := p.laneIndex[name]; ok {
		return i
	}
	i := int32(len(p.lanes))
	p.lanes = append(p.lanes, lane{name: name})
	p.laneIndex[name] = i
	return i
}
