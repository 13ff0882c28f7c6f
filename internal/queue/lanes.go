package queue

import "math/bits"

// laneTable finds a lane's first and last unfinished record by the lane's
// hash. Only lanes with unfinished records are in it: a lane that becomes idle
// is taken out at once, so ten million keys seen once leave nothing behind.
//
// It is an open-addressing hash table with linear probing; removal moves later
// entries of the same run back, so there are no tombstones and a lookup costs
// the same after any history. It doubles at 3/4 and keeps its size until
// Partition.Shrink, since lanes come and go with every batch that is read.
type laneTable struct {
	entries []laneEntry // a power of two long
	shift   uint8       // 64 − log2(len(entries))
	count   int
}

type laneEntry struct {
	lane       Lane // Alone: no entry
	head, tail Slot
}

const minLanes = 16

func (t *laneTable) init() { t.resize(minLanes) }

func (t *laneTable) resize(n int) {
	old := t.entries
	t.entries = make([]laneEntry, n)
	t.shift = uint8(64 - bits.TrailingZeros(uint(n)))
	for _, e := range old {
		if e.lane != Alone {
			t.entries[t.find(e.lane)] = e
		}
	}
}

// home is where the search for a lane starts. The multiplication spreads
// lanes whose hashes differ only in their low or only in their high bits.
func (t *laneTable) home(l Lane) int {
	return int(uint64(l) * 0x9e3779b97f4a7c15 >> t.shift)
}

// find is the place of lane l, or the empty one where it would go.
func (t *laneTable) find(l Lane) int {
	mask := len(t.entries) - 1
	i := t.home(l)
	for t.entries[i].lane != l && t.entries[i].lane != Alone {
		i = (i + 1) & mask
	}
	return i
}

// push makes s the last record of lane l and answers with the one before it,
// or with false if s is the lane's only one.
func (t *laneTable) push(l Lane, s Slot) (last Slot, found bool) {
	e := &t.entries[t.find(l)]
	if e.lane == l {
		last, e.tail = e.tail, s
		return last, true
	}
	*e = laneEntry{lane: l, head: s, tail: s}
	t.count++
	if t.count*4 > len(t.entries)*3 {
		t.resize(len(t.entries) * 2)
	}
	return none, false
}

// setHead makes s the first record of lane l.
func (t *laneTable) setHead(l Lane, s Slot) { t.entries[t.find(l)].head = s }

// remove takes out lane l, which has no unfinished record any more.
func (t *laneTable) remove(l Lane) {
	mask := len(t.entries) - 1
	hole := t.find(l)
	for i := (hole + 1) & mask; t.entries[i].lane != Alone; i = (i + 1) & mask {
		// An entry may fill the hole unless its home lies behind the hole,
		// on the way from there to where it stands.
		if home := t.home(t.entries[i].lane); (i-home)&mask >= (i-hole)&mask {
			t.entries[hole] = t.entries[i]
			hole = i
		}
	}
	t.entries[hole] = laneEntry{}
	t.count--
}
