package fronta

import (
	"sync"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
)

// Stats are a consumer at one moment. Counts begin with the consumer.
type Stats struct {
	Running    int   // handlers running, deliveries out, dead letters being written
	Unfinished int   // records in work: running, ready, waiting, or behind another of their lane
	Waiting    int   // of those, the ones that wait for their next attempt
	ReadAhead  int   // records read and not in work yet
	Bytes      int64 // of both, as MaxBufferedBytes counts
	Workers    int   // goroutines that run handlers or wait to
	Stuck      int   // handlers and deliveries that run for longer than StuckAfter
	Stopping   bool

	Accepted         int64 // records whose handler returned nil
	Failed           int64 // failed attempts
	Retried          int64 // failed attempts, and rejections without a DeadLetter, that led to another attempt
	Snoozed          int64
	Rejected         int64 // attempts that ended in Reject
	DeadLettered     int64 // records whose dead letter the brokers have acknowledged
	Discarded        int64
	DeadLetterErrors int64 // failed attempts to write a dead letter
	Withheld         int64 // exhausted records kept in retry by the budget
	Late             int64 // results that came after their partition had gone
	Abandoned        int64 // attempts given up because of a stop or a lost partition
	Expired          int64 // deliveries of Receive released because nobody settled them
	Dropped          int64 // records read for a partition that had gone by then
	Rewinds          int64 // times a partition's log went back
	Recalled         int64 // records read again and not handled again: an earlier owner had finished them
	Forgotten        int64 // times stored progress was given up while it was read again, since the log did not agree with it

	RefusedProgress  int64 // stored metadata that could not be read or must not be believed
	ShortenedCommits int64 // confirmed commits whose metadata had no room for all that there was to say
	OversizeCommits  int64 // commits that the brokers refused for the length of their metadata, and that were sent again shorter

	Commits      int64 // positions of partitions that the brokers have confirmed
	CommitErrors int64 // positions of partitions that they have not
	FetchErrors  int64

	Partitions []PartitionStats // those assigned now, by topic and partition
}

// PartitionStats is one assigned partition. Offsets are −1 while not known.
type PartitionStats struct {
	TopicPartition
	Fence      int64
	Committed  int64 // the offset the brokers have confirmed
	Frontier   int64 // the first unfinished offset: what the next commit says
	Horizon    int64 // the offset after the last record taken in work
	ReadTo     int64 // the offset after the last record read
	End        int64 // the log's end as last seen; with ReadCommitted, of what is decided
	Unfinished int
	ReadAhead  int
	Bytes      int64
	Lanes      int // with unfinished records; records that are lanes of their own not counted
	Paused     bool
	Leaving    bool

	// Heads are the lanes with unfinished records, those that are records of
	// their own among them: what the progress grows with. WaitsForProgress says
	// that new records wait until some have ended, because progress could
	// otherwise outgrow the metadata's limit. Careful says that records are
	// started one at a time, to find the one that ends the process.
	Heads            int64
	WaitsForProgress bool
	Careful          bool

	// MetadataUnits is how long the metadata of the last confirmed commit is,
	// MetadataLimit how long it may be, in UTF-16 units.
	MetadataUnits int
	MetadataLimit int

	// Blocked are lanes whose head has failed before and is not done, the
	// oldest offsets first, at most 16.
	Blocked []BlockedLane
}

// Lag is the number of offsets between the frontier and the log's end as last
// seen, or −1 if not known.
func (p PartitionStats) Lag() int64 {
	if p.Frontier < 0 || p.End < 0 {
		return -1
	}
	return max(p.End-p.Frontier, 0)
}

// BlockedLane is a lane that waits for its head.
type BlockedLane struct {
	Key      []byte // nil: the record has none
	Offset   int64  // of the head
	State    string // "waiting" for its next attempt, "running", "parked" while a dead letter is written
	Attempts int    // failed attempts of the head
	Since    time.Time
	Err      error // of the last attempt
	Behind   int   // records of the lane that wait behind the head
}

// Age is how long the lane has been blocked, measured from the end of the
// head's first failed attempt.
func (b BlockedLane) Age() time.Duration {
	if b.Since.IsZero() {
		return 0
	}
	return time.Since(b.Since)
}

// Stats takes a snapshot. Before the consumer runs, and after, it is empty but
// for the counts.
func (c *Consumer) Stats() Stats {
	c.mu.Lock()
	e, d := c.engine, c.driver
	c.mu.Unlock()
	if e == nil {
		return Stats{}
	}
	es, counts := e.Stats(), d.Counts()
	s := Stats{
		Running: es.Running, Unfinished: es.Unfinished, Waiting: es.Waiting, ReadAhead: es.Staged,
		Bytes: es.Bytes, Workers: es.Workers, Stuck: int(es.Stuck), Stopping: es.Stopping,
		Accepted: es.Accepted, Failed: es.Failed, Retried: es.Retried, Snoozed: es.Snoozed,
		Rejected: es.Rejected, DeadLettered: es.DeadLettered, Discarded: es.Discarded,
		DeadLetterErrors: es.LetterErrors, Withheld: es.Withheld, Late: es.Late,
		Abandoned: es.Abandoned, Expired: es.Expired, Dropped: es.Dropped, Rewinds: es.Rewinds,
		Recalled: es.Recalled, Forgotten: es.Forgotten,
		RefusedProgress: counts.RefusedProgress, ShortenedCommits: counts.Shortened, OversizeCommits: counts.Oversize,
		Commits: counts.Commits, CommitErrors: counts.CommitErrors, FetchErrors: counts.FetchErrors,
	}
	for _, p := range es.Parts {
		ps := PartitionStats{
			TopicPartition: TopicPartition(p.TopicPartition), Fence: p.Fence,
			Committed: d.Committed(p.TopicPartition), Frontier: -1, Horizon: -1, ReadTo: -1, End: p.End,
			Unfinished: p.Unfinished, ReadAhead: p.Staged, Bytes: p.Bytes, Lanes: p.Lanes,
			Paused: p.Paused, Leaving: p.Leaving, Heads: p.Heads, WaitsForProgress: p.Full, Careful: p.Careful,
		}
		ps.MetadataUnits, ps.MetadataLimit = d.Metadata(p.TopicPartition)
		if p.Known {
			ps.Frontier, ps.Horizon, ps.ReadTo = p.Frontier, p.Horizon, p.Reading
		}
		for _, b := range p.Blocked {
			ps.Blocked = append(ps.Blocked, blockedLane(b))
		}
		s.Partitions = append(s.Partitions, ps)
	}
	return s
}

func blockedLane(b engine.Blocked) BlockedLane {
	return BlockedLane{Key: b.Key, Offset: b.Offset, State: b.State, Attempts: b.Attempts, Since: b.Since, Err: b.Err, Behind: b.Behind}
}

// rare lets through one call a minute, for lines that would come in floods.
type rare struct {
	mu   sync.Mutex
	last time.Time
}

func (r *rare) now() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := time.Now(); r.last.IsZero() || t.Sub(r.last) >= time.Minute {
		r.last = t
		return true
	}
	return false
}
