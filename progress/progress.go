// Package progress reads and writes the commit metadata in which a consumer
// keeps what is finished beyond the committed offset of a partition.
//
// It knows three formats: fronta's own, Atleon's (acknowledged-ahead-of-commit,
// version 1) and Parallel Consumer's (its offset maps). [Decode] tells them
// apart by themselves. The package has no Kafka client among its imports.
//
// Reading is total: any text gives either a valid [Progress] or an error with
// the reason, in time and memory bounded by the length of the text. A reader
// that gets an error has to begin at the committed offset with nothing taken
// as finished: when in doubt, repeat.
package progress

// Range is the offsets from From up to, not including, To.
type Range struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Count says how often something happened to the record at an offset.
type Count struct {
	Offset int64 `json:"offset"`
	N      int   `json:"n"`
}

// Segment tells about a stretch of offsets: from where the segment before it
// ends (the first one: from the committed offset) up to End.
//
// In fronta's format the first head of the first segment is the committed
// offset: nothing is committed below the first unfinished record or marker.
// Other libraries commit offsets of finished records too. Then the first head
// is higher, or there is none.
//
// Its lanes are those of Order. Of each lane with unfinished records in the
// segment Heads has one offset: that of its first unfinished record, or, as a
// marker, that of a finished one behind which the lane is not known. A record
// of the segment is unfinished if its offset is a head (and no marker), or if
// its lane has a head or marker at a lower offset of the segment. All others
// are finished. Where every record is a lane of its own ("unordered"), Heads
// are the unfinished offsets.
type Segment struct {
	End   int64  `json:"end"`
	Order string `json:"order"` // "key", "key:NAME", "bucket:N", "partition" or "unordered"

	// Check is a hash of the first head's lane, 0 if it is not known. A reader
	// that computes another one for that record must not trust the segment.
	Check uint32 `json:"check,omitempty"`

	Heads   []Range `json:"heads,omitempty"`   // ascending, disjoint, not touching
	Markers []int64 `json:"markers,omitempty"` // ascending; those of Heads that are markers
}

// Progress is what a commit says of a partition.
type Progress struct {
	Offset   int64     `json:"offset"`             // that was committed
	Segments []Segment `json:"segments,omitempty"` // by ascending End, all above Offset

	Attempts []Count `json:"attempts,omitempty"` // failed attempts of heads, ascending
	Epoch    int32   `json:"epoch"`              // leader epoch of the last record below the horizon, −1 unknown
	Fence    int64   `json:"fence,omitempty"`    // the highest that was used, 0 unknown

	// Clean says that the owner gave the partition up in good order. Starts is
	// how many owners before this one, in a row, began at this same offset and
	// did not.
	Clean  bool `json:"clean"`
	Starts int  `json:"starts,omitempty"`

	// Reach is the offset below which the owner may have started records,
	// 0 if that is the horizon. Suspect is the record that was started last
	// while records were started one at a time, −1 if none. Crashes are
	// records during which the process ended, and how often.
	Reach   int64   `json:"reach,omitempty"`
	Suspect int64   `json:"suspect"`
	Crashes []Count `json:"crashes,omitempty"`
}

// Horizon is the first offset of which p tells nothing.
func (p *Progress) Horizon() int64 {
	if n := len(p.Segments); n > 0 {
		return p.Segments[n-1].End
	}
	return p.Offset
}

// Binding is the partition that a text is about. It goes into the text's
// checksum, so that a text is not taken for another partition's, nor for that
// of a topic that was deleted and made again.
type Binding struct {
	TopicID   [16]byte // zero where the brokers have no topic ids
	Partition int32
}
