package deadletter

// This file is the wire format: the names of the headers and how their values are
// written and read. What must stay true:
//
//   - Every number is the shortest decimal ASCII text, so there is one way to write
//     it and any tool can read it.
//   - Reading is total and costs no more than the bytes that are there: a number is
//     refused by its length before it is parsed, an error quotes a bounded piece.
//   - docs/formats.md describes the same bytes; TestFormatPage compares them.

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Prefix begins the name of every header of this package. Names below it are
// reserved: [Record] removes the ones it does not know, [Parse] ignores them.
const Prefix = "fronta."

// The names of the headers, in the order in which [Record] appends them.
const (
	HeaderOriginTopic         = "fronta.origin.topic"          // [Origin].Topic
	HeaderOriginPartition     = "fronta.origin.partition"      // [Origin].Partition
	HeaderOriginOffset        = "fronta.origin.offset"         // [Origin].Offset
	HeaderOriginTimestamp     = "fronta.origin.timestamp"      // [Origin].Timestamp
	HeaderOriginTimestampType = "fronta.origin.timestamp-type" // [Origin].TimestampType
	HeaderOriginLeaderEpoch   = "fronta.origin.leader-epoch"   // [Origin].LeaderEpoch
	HeaderOriginGroup         = "fronta.origin.group"          // [Origin].Group
	HeaderHops                = "fronta.hops"                  // [Letter].Hops
	HeaderGroup               = "fronta.group"                 // [Letter].Group
	HeaderReason              = "fronta.reason"                // [Letter].Reason
	HeaderError               = "fronta.error"                 // [Letter].Error
	HeaderDeliveryCount       = "fronta.delivery-count"        // [Letter].DeliveryCount
	HeaderFirstFailure        = "fronta.first-failure"         // [Letter].FirstFailure
	HeaderLastFailure         = "fronta.last-failure"          // [Letter].LastFailure
)

// headerCount is how many headers a dead letter gains at most.
const headerCount = 14

// maxString is the longest topic or group the Kafka protocol can carry.
const maxString = math.MaxInt16

// slot is what a record holds under one of our names.
type slot struct {
	value []byte
	seen  int
}

// own is what a record holds under all of our names.
type own struct {
	originTopic, originPartition, originOffset             slot
	originTimestamp, originTimestampType                   slot
	originLeaderEpoch, originGroup, hops                   slot
	group, reason, errorText, deliveryCount, first, latest slot
	foreign                                                int // headers of others
}

// slot returns the place of a header name, nil for a name under our prefix that is not known.
func (o *own) slot(name string) *slot {
	switch name {
	case HeaderOriginTopic:
		return &o.originTopic
	case HeaderOriginPartition:
		return &o.originPartition
	case HeaderOriginOffset:
		return &o.originOffset
	case HeaderOriginTimestamp:
		return &o.originTimestamp
	case HeaderOriginTimestampType:
		return &o.originTimestampType
	case HeaderOriginLeaderEpoch:
		return &o.originLeaderEpoch
	case HeaderOriginGroup:
		return &o.originGroup
	case HeaderHops:
		return &o.hops
	case HeaderGroup:
		return &o.group
	case HeaderReason:
		return &o.reason
	case HeaderError:
		return &o.errorText
	case HeaderDeliveryCount:
		return &o.deliveryCount
	case HeaderFirstFailure:
		return &o.first
	case HeaderLastFailure:
		return &o.latest
	}
	return nil
}

func isOwn(name string) bool { return strings.HasPrefix(name, Prefix) }

// collect sorts the headers of a record into ours and the number of the others.
func collect(headers []kgo.RecordHeader) own {
	var o own
	for i := range headers {
		h := &headers[i]
		if !isOwn(h.Key) {
			o.foreign++
			continue
		}
		if s := o.slot(h.Key); s != nil {
			s.value = h.Value
			s.seen++
		}
	}
	return o
}

// appendForeign appends the headers of others: order, duplicates and nil values stay.
func appendForeign(dst, headers []kgo.RecordHeader) []kgo.RecordHeader {
	for _, h := range headers {
		if !isOwn(h.Key) {
			dst = append(dst, h)
		}
	}
	return dst
}

// ParseError says which header of a record is missing or wrong, and why.
type ParseError struct {
	Topic     string // where the record was read
	Partition int32  // where the record was read
	Offset    int64  // where the record was read
	Header    string // the name of the header, one of the Header constants
	Problem   string // what is wrong with it: "is missing", "is there 2 times", …
}

// Error names the record, the header and the problem.
func (e *ParseError) Error() string {
	return fmt.Sprintf("deadletter: parse topic %q partition %d offset %d: header %s %s",
		e.Topic, e.Partition, e.Offset, e.Header, e.Problem)
}

// reader takes values out of own headers and remembers the first problem.
type reader struct {
	header, problem string
}

func (r *reader) fail(header, problem string) {
	if r.problem == "" {
		r.header, r.problem = header, problem
	}
}

func (r *reader) failed() bool { return r.problem != "" }

// present reports whether a header is there once. A header that is there twice is a
// problem of its own: two tools that pick different ones would act on different records.
func (r *reader) present(header string, s slot, required bool) bool {
	switch {
	case s.seen == 1:
		return true
	case s.seen > 1:
		r.fail(header, fmt.Sprintf("is there %d times", s.seen))
	case required:
		r.fail(header, "is missing")
	}
	return false
}

// text reads a string of limited length; nil counts as empty.
func (r *reader) text(header string, s slot, least, most int) string {
	if !r.present(header, s, true) {
		return ""
	}
	switch {
	case len(s.value) < least:
		r.fail(header, "is empty")
		return ""
	case len(s.value) > most:
		r.fail(header, fmt.Sprintf("has %d bytes, more than %d", len(s.value), most))
		return ""
	}
	return string(s.value)
}

// number reads a decimal between least and most.
func (r *reader) number(header string, s slot, required bool, absent, least, most int64) int64 {
	if !r.present(header, s, required) {
		return absent
	}
	const longest = len("-9223372036854775808")
	if len(s.value) == 0 {
		r.fail(header, "has no value, want a decimal number")
		return absent
	}
	if len(s.value) > longest {
		r.fail(header, fmt.Sprintf("is no decimal number: %d bytes beginning with %q", len(s.value), s.value[:longest]))
		return absent
	}
	n, err := strconv.ParseInt(string(s.value), 10, 64)
	if err != nil {
		r.fail(header, fmt.Sprintf("is no decimal number of 64 bits: %q", s.value))
		return absent
	}
	var canonical [longest]byte
	if string(strconv.AppendInt(canonical[:0], n, 10)) != string(s.value) {
		r.fail(header, fmt.Sprintf("is no decimal number in its shortest form: %q", s.value))
		return absent
	}
	if n < least || n > most {
		r.fail(header, fmt.Sprintf("is %d, want %d to %d", n, least, most))
		return absent
	}
	return n
}

// instant reads unix milliseconds, the zero time when the header is not there.
func (r *reader) instant(header string, s slot) time.Time {
	n := r.number(header, s, false, 0, math.MinInt64, math.MaxInt64)
	if s.seen != 1 || r.failed() {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}

// The texts of [Origin].TimestampType, which are Kafka's own names.
const (
	createTime    = "CreateTime"
	logAppendTime = "LogAppendTime"
)

func (r *reader) timestampType(header string, s slot) int8 {
	if !r.present(header, s, false) {
		return -1
	}
	switch string(s.value) {
	case createTime:
		return 0
	case logAppendTime:
		return 1
	}
	r.fail(header, fmt.Sprintf("is %q, want %s or %s", s.value[:min(len(s.value), 32)], createTime, logAppendTime))
	return -1
}

// history reads what survives a redrive: the origin and the hops.
func (r *reader) history(o *own) (Origin, int) {
	origin := Origin{
		Topic:         r.text(HeaderOriginTopic, o.originTopic, 1, maxString),
		Partition:     int32(r.number(HeaderOriginPartition, o.originPartition, true, 0, 0, math.MaxInt32)),
		Offset:        r.number(HeaderOriginOffset, o.originOffset, true, 0, 0, math.MaxInt64),
		Timestamp:     time.UnixMilli(r.number(HeaderOriginTimestamp, o.originTimestamp, true, -1, math.MinInt64, math.MaxInt64)).UTC(),
		TimestampType: r.timestampType(HeaderOriginTimestampType, o.originTimestampType),
		LeaderEpoch:   int32(r.number(HeaderOriginLeaderEpoch, o.originLeaderEpoch, false, -1, 0, math.MaxInt32)),
		Group:         r.text(HeaderOriginGroup, o.originGroup, 0, maxString),
	}
	return origin, int(r.number(HeaderHops, o.hops, true, 0, 0, maxHops))
}

// writer appends headers to a list. All values lie in one buffer, each capped to its
// own bytes, so that appending to one cannot write into the next.
type writer struct {
	headers []kgo.RecordHeader
	buf     []byte
}

func (w *writer) end(header string, from int) {
	w.headers = append(w.headers, kgo.RecordHeader{Key: header, Value: w.buf[from:len(w.buf):len(w.buf)]})
}

func (w *writer) text(header, value string) {
	from := len(w.buf)
	w.buf = append(w.buf, value...)
	w.end(header, from)
}

func (w *writer) number(header string, n int64) {
	from := len(w.buf)
	w.buf = strconv.AppendInt(w.buf, n, 10)
	w.end(header, from)
}

func (w *writer) instant(header string, t time.Time) {
	if !t.IsZero() {
		w.number(header, t.UnixMilli())
	}
}

func (w *writer) history(o Origin, hops int) {
	w.text(HeaderOriginTopic, o.Topic)
	w.number(HeaderOriginPartition, int64(o.Partition))
	w.number(HeaderOriginOffset, o.Offset)
	w.number(HeaderOriginTimestamp, o.Timestamp.UnixMilli())
	switch o.TimestampType {
	case 0:
		w.text(HeaderOriginTimestampType, createTime)
	case 1:
		w.text(HeaderOriginTimestampType, logAppendTime)
	}
	if o.LeaderEpoch >= 0 {
		w.number(HeaderOriginLeaderEpoch, int64(o.LeaderEpoch))
	}
	w.text(HeaderOriginGroup, o.Group)
	w.number(HeaderHops, int64(hops))
}
