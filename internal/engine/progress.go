package engine

import (
	"time"

	"github.com/fronta-mq/fronta/internal/queue"
	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a commit says of a partition is offset and progress, taken from one
// state under the lock (H-142). What an ownership begins with is what the
// commit before it said.
//
// An ownership has to be known before it acts: nothing of a partition is
// started until the first commit of its ownership is confirmed. That commit
// makes its fence durable, so that the next owner's is higher whatever becomes
// of this one, and says that the partition is not in clean hands, so that the
// next owner learns of a crash even if this process dies with its first record.

// Ordering is an order of records as the engine needs it.
type Ordering struct {
	Name   string
	Lane   func(*kgo.Record) (queue.Lane, error)
	Inside bool                     // as Config.LaneInside
	Check  func(*kgo.Record) uint32 // a hash of the lane that is the same in every process, never 0; it may panic
}

// Start is where the reading of a partition begins.
type Start struct {
	TopicPartition
	Offset int64 // below 0: at the first record that is read
	Epoch  int32
	End    int64              // of the log, as far as is known; below 0: not known
	Stored *progress.Progress // what the commit at Offset said; nil: nothing that can be relied on
}

// Position is how far a partition may be committed.
type Position struct {
	TopicPartition
	Offset  int64
	Epoch   int32 // of the record before Offset, −1 unknown
	Fence   int64
	Version uint64 // rises with every change that is worth a commit and does not move Offset

	reach   int64 // what a commit of it makes durable, see care.go
	suspect int64
}

// Snapshot is a position with everything that is committed with it.
type Snapshot struct {
	Position
	Progress progress.Progress
}

// fenceEpoch is the zero of the clock that fences start from.
var fenceEpoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Begin says where the reading of partitions starts, once that is known, and
// answers with the fence of their records. It is higher than all that former
// owners have told of, and at least the clock's milliseconds, so that it goes
// on rising when the group, and with it what owners told, is deleted and made
// again.
//
// refused are partitions whose progress names an order that is not known here:
// they are read from their offset with nothing taken as finished.
func (e *Engine) Begin(starts []Start) (fence int64, refused map[TopicPartition]error) {
	fence = max(time.Since(fenceEpoch).Milliseconds(), 1)
	for _, s := range starts {
		if s.Stored != nil {
			fence = max(fence, s.Stored.Fence+1)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range starts {
		p := e.parts[s.TopicPartition]
		if p == nil || p.q != nil {
			continue
		}
		p.Fence = fence
		p.gated = true
		if s.Offset < 0 {
			continue
		}
		p.startAt(s.Offset)
		p.epochLocked(s.Offset, s.Epoch)
		e.urgentLocked(p)
	}
	return fence, refused
}

// urgentLocked asks the driver for a commit of p now.
func (e *Engine) urgentLocked(p *Part) {
	p.version++
	select {
	case e.urgent <- struct{}{}:
	default:
	}
}

// Urgent is signalled when the position of a partition should be committed
// now, not at the next tick.
func (e *Engine) Urgent() <-chan struct{} { return e.urgent }

// Confirmed says that the brokers have stored a position, with its progress.
func (e *Engine) Confirmed(at Position) {
	var fx effects
	e.mu.Lock()
	if p := e.parts[at.TopicPartition]; p != nil && p.Fence == at.Fence {
		p.gated = false
		e.readyLocked(p)
		e.wakeLocked(&fx)
	}
	e.mu.Unlock()
	fx.run()
}

// SetCapacity says how many bytes of progress a commit has room for. 0: none,
// and nothing is held back for it.
func (e *Engine) SetCapacity(bytes int) {
	var fx effects
	e.mu.Lock()
	e.capacity = bytes
	e.shareOutLocked()
	e.wakeLocked(&fx)
	e.mu.Unlock()
	fx.run()
}

// Seal says that the consumer ends in good order: what is committed from now
// on says so.
func (e *Engine) Seal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sealed = true
}

// Positions are the positions of all open partitions whose start is known, or
// of those named.
func (e *Engine) Positions(only ...TopicPartition) []Position {
	e.mu.Lock()
	defer e.mu.Unlock()
	var ps []Position
	if len(only) > 0 {
		for _, tp := range only {
			if p := e.parts[tp]; p != nil && p.q != nil {
				ps = append(ps, p.positionLocked())
			}
		}
		return ps
	}
	for _, p := range e.parts {
		if p.q != nil {
			ps = append(ps, p.positionLocked())
		}
	}
	return ps
}

func (p *Part) positionLocked() Position {
	at := Position{TopicPartition: p.TopicPartition, Offset: p.q.Frontier(), Epoch: -1, Fence: p.Fence, Version: p.version}
	// Epochs below the frontier's are of no use any more.
	for len(p.epochs) > 1 && p.epochs[1].from < at.Offset {
		p.epochs = p.epochs[1:]
	}
	if len(p.epochs) > 0 {
		at.Epoch = p.epochs[0].epoch
	}
	return at
}

// Snapshot is the position of an open partition whose start is known, and its
// progress.
func (e *Engine) Snapshot(tp TopicPartition) (Snapshot, bool) {
	e.mu.Lock()
	p := e.parts[tp]
	if p == nil || p.q == nil {
		e.mu.Unlock()
		return Snapshot{}, false
	}
	s := p.snapshotLocked(e.sealed)
	e.mu.Unlock()
	return s, true
}

func (p *Part) snapshotLocked(clean bool) Snapshot {
	s := Snapshot{Position: p.positionLocked()}
	s.Progress = progress.Progress{Offset: s.Offset, Epoch: p.epoch, Fence: p.Fence, Clean: clean, Suspect: -1}
	return s
}
