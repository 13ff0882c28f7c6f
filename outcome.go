package fronta

import (
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
)

// outcome is an error that asks for more than "failed, try again".
type outcome struct {
	verb  engine.Verb
	err   error
	delay time.Duration
}

func (o *outcome) Error() string {
	switch o.verb {
	case engine.Reject:
		return fmt.Sprintf("rejected: %v", o.err)
	case engine.Snooze:
		return fmt.Sprintf("snoozed for %s", o.delay)
	case engine.Stop:
		return fmt.Sprintf("stop: %v", o.err)
	default:
		return fmt.Sprintf("retry after %s: %v", o.delay, o.err)
	}
}

func (o *outcome) Unwrap() error { return o.err }

// Reject says that the record will never succeed: it goes to the dead-letter
// topic now, whatever its delivery count, with err as the reason. Without
// Config.DeadLetter it is treated like any failed attempt, and a warning says
// so: fronta drops a record only when told to ([Discard]).
func Reject(err error) error {
	return &outcome{verb: engine.Reject, err: orUnknown(err)}
}

// RetryAfter is a failed attempt that is tried again after d instead of the
// delay of Config.Retry. A d below zero counts as zero. The record's lane waits.
func RetryAfter(d time.Duration, err error) error {
	return &outcome{verb: engine.Fail, err: orUnknown(err), delay: max(d, 0)}
}

// Snooze puts the record off for d without counting an attempt. A d below
// zero counts as zero. The record's lane waits.
func Snooze(d time.Duration) error {
	return &outcome{verb: engine.Snooze, delay: max(d, 0)}
}

// Stop stops the consumer in good order; Run returns err, wrapped in a
// [StopError]. The record stays unfinished and is handled again by whoever
// consumes the partition next.
func Stop(err error) error {
	return &outcome{verb: engine.Stop, err: orUnknown(err)}
}

// StopError is what Run returns after a handler returned [Stop]. It says for
// which record, and unwraps to the error given.
type StopError = engine.StopError

var errUnknown = errors.New("no reason given")

func orUnknown(err error) error {
	if err == nil {
		return errUnknown
	}
	return err
}

// outcomeOf translates what a handler returned.
func outcomeOf(err error) engine.Outcome {
	if err == nil {
		return engine.Outcome{}
	}
	var o *outcome
	if !errors.As(err, &o) {
		return engine.Outcome{Verb: engine.Fail, Err: err}
	}
	// The handler's own wrapping is part of the message.
	return engine.Outcome{Verb: o.verb, Err: text(err, o), Delay: o.delay, Timed: o.verb == engine.Fail}
}

// text is err, or what o was made of if nothing was wrapped around o.
func text(err error, o *outcome) error {
	if err == error(o) && o.err != nil {
		return o.err
	}
	return err
}
