package deadletter

// This file makes records: the dead letter and the record that is redriven. What must
// stay true: a record that goes to the dead-letter topic and back, however often, keeps
// its key, value, timestamp, foreign headers and first origin, and does not grow.

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The bounds of the error text, in bytes.
const (
	// DefaultMaxError is used when [Info].MaxError is 0.
	DefaultMaxError = 4 << 10
	// MinMaxError is used when [Info].MaxError is less: the note that the text was cut
	// fits in it.
	MinMaxError = 64
)

// Info is what a consumer knows about a record that it gives up. The zero value is a
// rejected record about which nothing else is known.
type Info struct {
	// Group is the consumer group that gives up.
	Group string
	// Reason is the class of the failure. Empty means [Rejected].
	Reason Reason
	// Error is the text of the last error. Bytes that are not UTF-8 become U+FFFD. What is
	// longer than MaxError is cut between characters and ends in a note such as
	// " [cut: 70000 bytes in all]".
	Error string
	// MaxError is the most bytes of error text that are written, the note included. 0
	// means [DefaultMaxError], anything else below [MinMaxError] means [MinMaxError].
	MaxError int
	// DeliveryCount is how often the record was delivered; below 0 it is written as 0.
	DeliveryCount int
	// FirstFailure is when the first delivery failed, written in milliseconds; the zero
	// time is not written.
	FirstFailure time.Time
	// LastFailure is when the last delivery failed, written in milliseconds; the zero
	// time is not written.
	LastFailure time.Time
}

// Record makes the dead letter of src, a record as it was fetched, for the given topic.
//
// Key, value (nil stays nil, so a tombstone stays one), timestamp and all foreign
// headers (order, duplicates, nil values, empty and binary names) are those of src.
// Headers named fronta.* are written anew, after the foreign ones. The partition is left
// to the client's partitioner, the context to the one that is given to Produce.
//
// When src was dead-lettered before, the origin that it carries is kept and its hops
// are counted up. That holds for a record that [Restore] put back, recognised by an
// origin that names the topic it was read from, and for a dead letter itself (a
// dead-letter topic with a dead-letter topic of its own). An origin that names another
// topic on a record that is no dead letter was copied there by a program that passes
// headers on to what it produces; it is not the history of this record, and keeping it would
// redrive the record into the wrong topic. It is replaced, as is an origin that is
// damaged.
//
// src is not changed. It must not be nil.
func Record(topic string, src *kgo.Record, info Info) *kgo.Record {
	o := collect(src.Headers)
	origin := Origin{
		Topic:         src.Topic,
		Partition:     src.Partition,
		Offset:        src.Offset,
		Timestamp:     src.Timestamp,
		TimestampType: src.Attrs.TimestampType(),
		LeaderEpoch:   src.LeaderEpoch,
		Group:         info.Group,
	}
	if origin.Timestamp.IsZero() { // never fetched: made by hand, and has no timestamp yet
		origin.Timestamp = time.UnixMilli(-1)
	}
	hops := 0
	if first, before, ok := historyOf(&o); ok && (first.Topic == src.Topic || o.reason.seen > 0) {
		origin, hops = first, min(before, maxHops-1)+1
	}
	reason := info.Reason
	if reason == "" {
		reason = Rejected
	}

	w := writer{
		headers: make([]kgo.RecordHeader, 0, o.foreign+headerCount),
		buf:     make([]byte, 0, numberRoom+len(origin.Topic)+len(origin.Group)+len(info.Group)+len(reason)),
	}
	w.headers = appendForeign(w.headers, src.Headers)
	w.history(origin, hops)
	w.text(HeaderGroup, info.Group)
	w.text(HeaderReason, string(reason))
	w.headers = append(w.headers, kgo.RecordHeader{Key: HeaderError, Value: errorText(info.Error, info.MaxError)})
	w.number(HeaderDeliveryCount, int64(max(info.DeliveryCount, 0)))
	w.instant(HeaderFirstFailure, info.FirstFailure)
	w.instant(HeaderLastFailure, info.LastFailure)
	return &kgo.Record{
		Topic:     topic,
		Key:       src.Key,
		Value:     src.Value,
		Headers:   w.headers,
		Timestamp: src.Timestamp,
	}
}

// Restore makes the record that puts a dead letter back into the topic it came from.
//
// It has the key, the value and the foreign headers of r, the timestamp of the origin,
// and the headers of the origin and of the hops, so that a next dead letter tells the
// same history. What described the failure is gone, and with it the delivery count:
// the record starts anew. Its Partition is that of the origin, which matters only to
// a client with [kgo.ManualPartitioner]; every other partitioner chooses its own.
//
// A topic that deletes by time judges the record by its old timestamp. Where that is not
// wanted, set Timestamp to the present before producing; the origin headers keep the
// old one.
//
// Restore needs the origin and the hops alone: damage to other headers does not keep a
// record from being redriven. Without a valid origin, or for a nil r, it answers nil;
// [Parse] says what is wrong. r is not changed.
func Restore(r *kgo.Record) *kgo.Record {
	if r == nil {
		return nil
	}
	o := collect(r.Headers)
	origin, hops, ok := historyOf(&o)
	if !ok {
		return nil
	}
	w := writer{
		headers: make([]kgo.RecordHeader, 0, o.foreign+headerCount),
		buf:     make([]byte, 0, numberRoom+len(origin.Topic)+len(origin.Group)),
	}
	w.headers = appendForeign(w.headers, r.Headers)
	w.history(origin, hops)
	return &kgo.Record{
		Topic:     origin.Topic,
		Partition: origin.Partition,
		Key:       r.Key,
		Value:     r.Value,
		Headers:   w.headers,
		Timestamp: origin.Timestamp,
	}
}

// numberRoom is enough for the values of a letter that are numbers or fixed words.
const numberRoom = 144

func historyOf(o *own) (Origin, int, bool) {
	if o.originTopic.seen == 0 { // by far the most records: spare them the error text
		return Origin{}, 0, false
	}
	var in reader
	origin, hops := in.history(o)
	return origin, hops, !in.failed()
}

// errorText cleans text and cuts it to limit bytes. It looks at no more of a long text
// than it keeps.
func errorText(text string, limit int) []byte {
	if limit == 0 {
		limit = DefaultMaxError
	}
	limit = max(limit, MinMaxError)
	if len(text) <= limit && utf8.ValidString(text) {
		return []byte(text)
	}
	note := fmt.Sprintf(" [cut: %d bytes in all]", len(text))
	out := make([]byte, 0, min(limit, len(text)+len(note)))
	fits := 0 // bytes of out that leave room for the note
	for _, c := range text {
		if len(out)+utf8.RuneLen(c) > limit {
			return append(out[:fits], note...)
		}
		out = utf8.AppendRune(out, c)
		if len(out) <= limit-len(note) {
			fits = len(out)
		}
	}
	return out
}
