// Package group is the driver of the ordered engine: it joins a consumer group
// with franz-go, moves what it reads into package engine, and commits how far
// each partition has come.
//
// What must stay true:
//
//   - A commit's offset and text are taken from one state of the partition, and
//     ownership is checked, in the same instant in which the request is built
//     for the wire, with the group's generation held (see commit.go).
//   - What a commit before ours says is believed only if it is about this very
//     topic and partition, at this offset, and its log is still what it was (see
//     stored.go). Otherwise nothing counts as finished.
//   - A record reaches the engine only under the ownership for which it was
//     read. The only way round would be a poll that returned just before a
//     partition went and that is looked at only after it has come back; so
//     before partitions are opened, the poll under way is waited for.
//   - A revoked partition is let go only after its handlers have ended or run
//     out of time, and after its last position was committed.
//   - A membership that the coordinator has declared void is not patched up:
//     everything it owned is lost, its client is thrown away, and a new one
//     joins (H-007).
package group

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config is what a Driver runs by. All of it is checked by package fronta.
type Config struct {
	Client        []kgo.Opt
	Context       context.Context // kgo.WithContext's, if Client has it
	Group         string
	Topics        []string
	Regex         bool
	NextGen       bool // KIP-848
	ReadCommitted bool
	Start         kgo.Offset
	StartLatest   bool
	StartSince    time.Time // zero: StartLatest or Start decides
	Reset         kgo.Offset
	ResetLatest   bool
	FetchMaxBytes int32 // what one fetch may bring, unless Client says otherwise

	DeadLetterTopic string // "": none

	Progress      progress.Format // of what is committed; None stands for Fronta
	MetadataLimit int             // how long the text of a commit may be, in UTF-16 units; 0: 4096

	CommitInterval time.Duration
	CommitRefresh  time.Duration // how often an unchanged position is committed again
	CommitTimeout  time.Duration // of one commit
	DrainTimeout   time.Duration // for handlers at a stop
	RevokeTimeout  time.Duration // for handlers of partitions that leave
	LeaveTimeout   time.Duration // for leaving the group at a stop
	StartTimeout   time.Duration // until a broker has answered

	Log    *slog.Logger
	Events Events
}

// Events are told what happened to the membership. A nil func is not called.
type Events struct {
	Assigned        func(tps []engine.TopicPartition, fence int64)
	Revoked         func([]engine.TopicPartition)
	Lost            func([]engine.TopicPartition, error)
	Committed       func(engine.Position)
	CommitFailed    func(engine.Position, error)
	FetchFailed     func(tp engine.TopicPartition, err error)
	PartitionsAdded func(topic string, was, is int)
}

// Driver runs an engine on a consumer group.
type Driver struct {
	cfg    Config
	engine *engine.Engine
	client atomic.Pointer[kgo.Client] // of the present membership
	counts counters

	ready     chan struct{} // closed when the group was joined for the first time
	readyOnce sync.Once
	seen      partitionCounts
	fences    fences
	committed committed
	texts     texts
	most      int            // Config.MetadataLimit
	room      room           // how long the text of a commit may be
	batch     atomic.Int64   // how many bytes one commit may have
	letters   *Writer        // nil: none
	closing   sync.WaitGroup // clients that are being closed
}

// New returns a driver that has not joined yet. It holds nothing that has to
// be freed until Run.
func New(cfg Config) *Driver {
	d := &Driver{cfg: cfg, ready: make(chan struct{}), most: cfg.MetadataLimit}
	if d.most == 0 {
		d.most = defaultMetadataLimit
	}
	if d.texts.format = cfg.Progress; d.texts.format == progress.None {
		d.texts.format = progress.Fronta
	}
	d.room.limit.Units = d.most
	d.batch.Store(firstBatch)
	d.committed.init()
	d.seen.init()
	return d
}

// Attach gives the driver its engine.
func (d *Driver) Attach(e *engine.Engine) {
	d.engine = e
	limit, _ := d.room.get()
	e.SetCapacity(capacityOf(limit, d.texts.format))
}

// Ready is closed when the group was joined for the first time.
func (d *Driver) Ready() <-chan struct{} { return d.ready }

// Run consumes until ctx ends, the engine fails, or something happens that no
// retry can mend; then it stops in good order. hard cuts the order short: from
// then on handlers are cancelled at once.
func (d *Driver) Run(ctx, hard context.Context) error {
	if d.letters != nil {
		defer d.letters.close()
	}
	defer d.waitClosed()
	for try := 0; ; try++ {
		s, err := d.join()
		if err != nil {
			d.engine.Fail(err)
			d.engine.Close()
			return err
		}
		if try == 0 {
			if err := d.check(ctx); err != nil {
				if ctx.Err() == nil {
					d.engine.Fail(err)
				}
				return s.stop(hard)
			}
		}
		err = s.serve(ctx)
		if err != errRejoin {
			return s.stop(hard)
		}
		began := s.began
		s.abandon()
		if time.Since(began) > time.Minute {
			try = 0
		}
		// The first time at once; a coordinator that throws out every new
		// member is not to be asked in a loop.
		if try > 0 {
			wait := min(100*time.Millisecond<<min(try, 7), 10*time.Second)
			wait = wait/2 + rand.N(wait/2)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			case <-d.engine.Fatal():
			}
		}
	}
}

// closeTimeout is how long the end of Run waits for clients that are being
// closed.
const closeTimeout = 5 * time.Second

// waitClosed waits until no goroutine of a client is left.
func (d *Driver) waitClosed() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.closing.Wait()
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// errRejoin says that the membership is void and a new one is needed.
var errRejoin = errors.New("membership void")
