package fronta

import (
	"context"
	"fmt"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a record as a handler sees it: the client's record, and what
// fronta knows of its way. It is valid for ever, but only one attempt's: the
// next attempt of the same record gets a Record of its own.
type Record struct {
	*kgo.Record

	// DeliveryCount says which attempt this is, 1 at first. A [Snooze] and an
	// attempt that a stop or a rebalance cut short do not count; a crash of the
	// process that was found to be this record's does. It goes on with the next
	// owner, but for what failed after the last commit; with Config.Progress
	// AtleonV1 or ParallelConsumer it starts again at 1.
	DeliveryCount int

	// Fence rises with every new owner of the record's partition: it is one
	// more than the last owner's, and at least the clock's milliseconds, also
	// under static membership (kgo.InstanceID) and when the group is deleted and
	// made again. It is committed before the owner's first record starts. A
	// database that keeps the highest fence it has seen for a partition, and
	// refuses lower ones, is safe from a process that was declared dead and goes
	// on working. AtleonV1 and ParallelConsumer have no place for it: under them
	// it is the clock's alone.
	Fence int64

	// Failure is what is known of this owner's failed attempts; nil before the
	// first, also when DeliveryCount is above 1.
	Failure *Failure
}

// Failure is what is known of a record's failed attempts: First and Last say
// when the first and the last of them ended, Err is what the last returned.
type Failure = engine.Failure

// String is "topic/partition@offset".
func (r *Record) String() string {
	return fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset)
}

// Handler does the work of a record. It is called from many goroutines at
// once, but never for two records of the same lane (see [Order]).
type Handler interface {
	// Handle works on the record and settles it by what it returns:
	//
	//	nil                 accept: done
	//	Reject(err)         dead letter now
	//	RetryAfter(d, err)  failed attempt, tried again after d
	//	Snooze(d)           wait for d, not a failure
	//	Stop(err)           stop the consumer, the record stays
	//	any other error     failed attempt, tried again as Config.Retry says
	//
	// These are found through wrapping, as errors.As does. A panic, or a call
	// of runtime.Goexit, is a failed attempt with its stack.
	//
	// ctx ends when the record is no longer this consumer's business; its
	// cause is then [ErrStopping], [ErrLost] or [ErrHandlerTimeout]. What the
	// handler returns after the first two, unless it is nil and comes in time,
	// changes nothing: the record is handled again.
	Handle(ctx context.Context, r *Record) error
}

// HandlerFunc is a function as a [Handler].
type HandlerFunc func(ctx context.Context, r *Record) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Record) error { return f(ctx, r) }

// Middleware wraps a handler with what is the same for many: logging, tracing,
// transactions. It sees the outcome as the error that the inner handler
// returns and may change it.
type Middleware func(Handler) Handler

// The causes with which a handler's context ends. Ask with
// context.Cause(ctx).
var (
	// ErrStopping: the consumer stops and the handler has used up
	// Config.DrainTimeout.
	ErrStopping = engine.ErrStopping
	// ErrLost: the partition belongs to another member by now, or will in a
	// moment. Verbs of a [Delivery] answer it too.
	ErrLost = engine.ErrLost
	// ErrHandlerTimeout: the handler ran past Config.HandlerTimeout.
	ErrHandlerTimeout = engine.ErrHandlerTimeout
)

// ErrSettled is what a verb of a [Delivery] answers when the delivery was
// settled before, be it by another verb or because its deadline passed.
var ErrSettled = engine.ErrSettled

// PanicError is the error of an attempt whose handler panicked: it is
// Err of [Record.Failure] then, and the text of the dead letter.
type PanicError = engine.PanicError
