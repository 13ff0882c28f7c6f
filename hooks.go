package fronta

import (
	"time"

	"github.com/fronta-mq/fronta/deadletter"
)

// Hooks are told what happens in a consumer. A hook implements any of the
// interfaces below; Config.Hooks refuses a value that implements none. Hooks
// are called outside of all locks, from the goroutine in which the thing
// happened, and should not take long. They may call any method of the
// Consumer, but from one that waits for the consumer to stop they wait for
// themselves, until the limits of the stop have passed. A hook that panics is
// logged.

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// HookAssigned is called when partitions were assigned, before any of their
// records is read.
type HookAssigned interface {
	OnAssigned(partitions []TopicPartition, fence int64)
}

// HookRevoked is called when partitions have left in good order: their
// handlers have ended or were cancelled, their progress is committed.
type HookRevoked interface {
	OnRevoked(partitions []TopicPartition)
}

// HookLost is called when partitions were lost to another member without
// notice. Their handlers are cancelled and nothing more is committed.
type HookLost interface {
	OnLost(partitions []TopicPartition, err error)
}

// HookCommitted is called for each partition whose position the brokers have
// confirmed: all records below offset are finished.
type HookCommitted interface {
	OnCommitted(partition TopicPartition, offset int64)
}

// HookCommitFailed is called for each partition whose position could not be
// committed. It is tried again.
type HookCommitFailed interface {
	OnCommitFailed(partition TopicPartition, offset int64, err error)
}

// HookRetry is called when an attempt failed and the record waits for the next
// one. r is the attempt that failed.
type HookRetry interface {
	OnRetry(r *Record, err error, delay time.Duration)
}

// HookDeadLettered is called when the brokers have acknowledged a dead letter.
type HookDeadLettered interface {
	OnDeadLettered(r *Record, reason deadletter.Reason, err error)
}

// HookDeadLetterFailed is called when a dead letter could not be written. The
// record's lane waits, and the write is tried again after delay.
type HookDeadLetterFailed interface {
	OnDeadLetterFailed(r *Record, err error, delay time.Duration)
}

// HookDiscarded is called when a record was discarded ([Discard]).
type HookDiscarded interface {
	OnDiscarded(r *Record, reason deadletter.Reason, err error)
}

// HookStuck is called once for a handler that has run for longer than
// Config.StuckAfter, for one that still runs when Run returns, and for a
// delivery of Receive that was released because nobody settled it.
type HookStuck interface {
	OnStuck(r *Record, age time.Duration)
}

// HookLate is called when an attempt's result came after its partition had
// gone: it changed nothing, and the record is handled again by its next owner.
type HookLate interface {
	OnLate(r *Record)
}

func checkHooks(hooks []any) error {
	for i, h := range hooks {
		switch h.(type) {
		case HookAssigned, HookRevoked, HookLost, HookCommitted, HookCommitFailed, HookRetry,
			HookDeadLettered, HookDeadLetterFailed, HookDiscarded, HookStuck, HookLate:
		default:
			return bad("Hooks", "[%d] is a %T, which implements none of the Hook interfaces", i, h)
		}
	}
	return nil
}

// hooksOf picks the hooks that implement H.
func hooksOf[H any](hooks []any) []H {
	var of []H
	for _, h := range hooks {
		if h, ok := h.(H); ok {
			of = append(of, h)
		}
	}
	return of
}
