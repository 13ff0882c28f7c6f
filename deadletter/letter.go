// Package deadletter is the format of dead letters: records that a consumer gave up
// on and wrote to another topic, with what is needed to understand them and to put
// them back.
//
// [Record] makes the dead letter of a record, [Parse] reads it, [Restore] makes the
// record that goes back to the topic it came from. All three are pure: they do no
// I/O, start no goroutine, keep nothing, and may be called from any goroutine. They
// read their input and never write to it; the records they return share the bytes of
// key, value and foreign header values with it, so neither side may change them in
// place, and a pooled source must not be recycled while the result is in use.
//
// The bytes are documented in docs/formats.md.
package deadletter

import (
	"errors"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reason says in one word why a record was given up. [Parse] accepts words it does
// not know, since a later version may write them.
type Reason string

// The reasons fronta writes.
const (
	Rejected   Reason = "rejected"   // the handler said that it will never work
	Deliveries Reason = "deliveries" // the last allowed delivery failed
	Panic      Reason = "panic"      // the last allowed delivery panicked
	Timeout    Reason = "timeout"    // the last allowed delivery ran past its timeout
	Crash      Reason = "crash"      // the process ended during the deliveries
)

// Origin is where a record was when it was dead-lettered for the first time. It stays
// the same however often the record is redriven and dead-lettered again.
type Origin struct {
	// Topic is never empty in a parsed letter.
	Topic string
	// Partition of Topic.
	Partition int32
	// Offset in Partition.
	Offset int64
	// Timestamp of the record, in milliseconds, UTC when parsed. It is
	// time.UnixMilli(-1) for a record that had none, as in franz-go.
	Timestamp time.Time
	// TimestampType is 0 when the producer set Timestamp, 1 when the broker did, -1 when
	// not known, as in [kgo.RecordAttrs.TimestampType].
	TimestampType int8
	// LeaderEpoch of the batch the record was read from, -1 when not known. Together with
	// Offset it tells whether a truncated log holds another record there now.
	LeaderEpoch int32
	// Group whose consumer gave the record up; empty when there was none.
	Group string
}

// maxHops is where counting stops.
const maxHops = math.MaxInt32

// Letter is a dead letter that was read.
type Letter struct {
	// Origin is the first place the record was dead-lettered from.
	Origin Origin
	// Hops is how often the record had been dead-lettered before: 0 for a first dead
	// letter. It stops at 2,147,483,647.
	Hops int

	// Group gave the record up this time. It differs from Origin.Group when a redriven
	// record failed in another group that reads the same topic.
	Group string
	// Reason is never empty.
	Reason Reason
	// Error is the text of the last error, possibly cut; see [Info].
	Error string
	// DeliveryCount is how often the record was delivered since it was produced or
	// redriven; 0 when not known.
	DeliveryCount int
	// FirstFailure is when the first of these deliveries failed, in milliseconds, UTC; the
	// zero time when not known.
	FirstFailure time.Time
	// LastFailure is when the last of these deliveries failed, in milliseconds, UTC; the
	// zero time when not known.
	LastFailure time.Time

	// Key of the source record; nil and empty are different.
	Key []byte
	// Value of the source record; nil (a tombstone) and empty are different.
	Value []byte
	// Headers of the source record in their order, without those named fronta.*; nil when
	// there are none.
	Headers []kgo.RecordHeader
}

// IsDeadLetter reports whether a record claims to be a dead letter: whether it has the
// headers [HeaderReason] and [HeaderOriginTopic]. [Parse] can still refuse it, and says
// why. A redriven record is none any more. It allocates nothing; nil is no dead letter.
func IsDeadLetter(r *kgo.Record) bool {
	if r == nil {
		return false
	}
	var reason, topic bool
	for i := range r.Headers {
		switch r.Headers[i].Key {
		case HeaderReason:
			reason = true
		case HeaderOriginTopic:
			topic = true
		}
		if reason && topic {
			return true
		}
	}
	return false
}

// Parse reads a dead letter. It accepts any record and answers with a letter or an
// error, which is a [*ParseError] unless r is nil. The first header in the order of
// the Header constants that is missing, there twice or not in its format is named.
// Optional are [HeaderOriginTimestampType], [HeaderOriginLeaderEpoch],
// [HeaderFirstFailure] and [HeaderLastFailure]. Headers named fronta.* that are not
// known are ignored.
func Parse(r *kgo.Record) (Letter, error) {
	if r == nil {
		return Letter{}, errors.New("deadletter: parse: the record is nil")
	}
	o := collect(r.Headers)
	var in reader
	var l Letter
	l.Origin, l.Hops = in.history(&o)
	l.Group = in.text(HeaderGroup, o.group, 0, maxString)
	l.Reason = Reason(in.text(HeaderReason, o.reason, 1, maxString))
	l.Error = in.text(HeaderError, o.errorText, 0, math.MaxInt)
	l.DeliveryCount = int(in.number(HeaderDeliveryCount, o.deliveryCount, true, 0, 0, math.MaxInt))
	l.FirstFailure = in.instant(HeaderFirstFailure, o.first)
	l.LastFailure = in.instant(HeaderLastFailure, o.latest)
	if in.failed() {
		return Letter{}, &ParseError{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
			Header: in.header, Problem: in.problem,
		}
	}
	l.Key, l.Value = r.Key, r.Value
	if o.foreign > 0 {
		l.Headers = appendForeign(make([]kgo.RecordHeader, 0, o.foreign), r.Headers)
	}
	return l, nil
}
