package queue

import "math/bits"

// laneTable finds the last unfinished record of a lane, so that the next one
// can be tied to it. Only lanes with unfinished records are in it: a lane that
// becomes idle is taken out at once, so ten million keys seen once leave
// nothing behind.
//
// It is an open-addressing hash table with linear probing; removal moves later
// entries of the same run back, so there are no tombstones and a lookup costs
// the same after any history. It doubles when half full and keeps its size
// until Partition.Shrink, since lanes come and go with every batch that is
// read.
//
// With a million lanes each lookup misses the processor's caches, so an entry
// is as small as can be: half of the mixed hash, which places it and tells
// nearly all lanes apart, and the slot, whose record knows the whole hash.
//
// What must stay true: a lane has at most one entry, its tail is the lane's
// last unfinished record, and there is no empty entry on the way from the
// entry's home to where it stands.
type laneTable struct {
	entries []laneEntry // a power of two long
	shift   uint8       // 32 − log2(len(entries))
	count   int
}

type laneEntry struct {
	tag  laneTag // 0: no entry
	tail Slot
}

// laneTag is the upper half of a lane's mixed hash; 0 is the tag of Alone.
type laneTag uint32

const minLanes = 16

// tagOf mixes the bits of a lane. The multiplication spreads lanes whose
// hashes differ only in their low or only in their high bits.
func tagOf(l Lane) laneTag {
	if l == Alone {
		return 0
	}
	return max(1, laneTag(uint64(l)*0x9e3779b97f4a7c15>>32))
}

func (t *laneTable) init() { t.resize(minLanes) }

func (t *laneTable) resize(n int) {
	old := t.entries
	t.entries = make([]laneEntry, n)
	t.shift = uint8(32 - bits.TrailingZeros(uint(n)))
	for _, e := range old {
		if e.tag != 0 {
			t.place(e)
		}
	}
}

// home is where the search for a tag starts.
func (t *laneTable) home(tag laneTag) int { return int(tag >> t.shift) }

// place puts an entry that is not in the table where it goes.
func (t *laneTable) place(e laneEntry) {
	mask := len(t.entries) - 1
	i := t.home(e.tag)
	for t.entries[i].tag != 0 {
		i = (i + 1) & mask
	}
	t.entries[i] = e
}

// push makes s, a record of lane l with that tag, the last of its lane and
// answers with the one before it, or with none if s is the lane's only one.
func (t *laneTable) push(details []detail, l Lane, tag laneTag, s Slot) (last Slot) {
	mask := len(t.entries) - 1
	i := t.home(tag)
	for t.entries[i].tag != 0 {
		if e := &t.entries[i]; e.tag == tag && details[e.tail].lane == l {
			last, e.tail = e.tail, s
			return last
		}
		i = (i + 1) & mask
	}
	t.entries[i] = laneEntry{tag, s}
	t.count++
	if t.count*2 > len(t.entries) {
		t.resize(len(t.entries) * 2)
	}
	return none
}

// last is the last record of lane l with that tag, or none.
func (t *laneTable) last(details []detail, l Lane, tag laneTag) Slot {
	mask := len(t.entries) - 1
	for i := t.home(tag); t.entries[i].tag != 0; i = (i + 1) & mask {
		if e := &t.entries[i]; e.tag == tag && details[e.tail].lane == l {
			return e.tail
		}
	}
	return none
}

// remove takes out the lane with that tag whose only unfinished record is s.
func (t *laneTable) remove(tag laneTag, s Slot) {
	mask := len(t.entries) - 1
	hole := t.home(tag)
	for t.entries[hole].tail != s || t.entries[hole].tag != tag {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; t.entries[i].tag != 0; i = (i + 1) & mask {
		// An entry may fill the hole unless its home lies behind the hole,
		// on the way from there to where it stands.
		if home := t.home(t.entries[i].tag); (i-home)&mask >= (i-hole)&mask {
			t.entries[hole] = t.entries[i]
			hole = i
		}
	}
	t.entries[hole] = laneEntry{}
	t.count--
}
