package deadletter_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/deadletter"
)

// source is the record of the examples in docs/formats.md.
func source() *kgo.Record {
	return &kgo.Record{
		Topic:       "orders",
		Partition:   3,
		Offset:      4711,
		LeaderEpoch: 5,
		Timestamp:   time.UnixMilli(1764547200123),
		Key:         []byte("customer-17"),
		Value:       []byte(`{"order":1}`),
		Headers:     []kgo.RecordHeader{{Key: "trace", Value: []byte("ab12")}},
	}
}

func failure() deadletter.Info {
	return deadletter.Info{
		Group:         "billing",
		Reason:        deadletter.Deliveries,
		Error:         "card declined",
		DeliveryCount: 10,
		FirstFailure:  time.UnixMilli(1764547201000),
		LastFailure:   time.UnixMilli(1764547500250),
	}
}

func mustParse(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *kgo.Record) deadletter.Letter {
	t.Helper()
	l, err := deadletter.Parse(r)
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return l
}

func own(r *kgo.Record) (names []string, size int) {
	for _, h := range r.Headers {
		if strings.HasPrefix(h.Key, deadletter.Prefix) {
			names = append(names, h.Key)
			size += len(h.Key) + len(h.Value)
		}
	}
	return names, size
}

// sameBytes tells nil from empty, which bytes.Equal does not.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// copyOf is deep, with nil and empty kept apart, so that later writes to r would show.
func copyOf(r *kgo.Record) *kgo.Record {
	c := *r
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	c.Headers = slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	return &c
}

func TestRecordKnown(t *testing.T) {
	t.Parallel()
	dead := deadletter.Record("orders.dlq", source(), failure())
	want := []kgo.RecordHeader{
		{Key: "trace", Value: []byte("ab12")},
		{Key: "fronta.origin.topic", Value: []byte("orders")},
		{Key: "fronta.origin.partition", Value: []byte("3")},
		{Key: "fronta.origin.offset", Value: []byte("4711")},
		{Key: "fronta.origin.timestamp", Value: []byte("1764547200123")},
		{Key: "fronta.origin.timestamp-type", Value: []byte("CreateTime")},
		{Key: "fronta.origin.leader-epoch", Value: []byte("5")},
		{Key: "fronta.origin.group", Value: []byte("billing")},
		{Key: "fronta.hops", Value: []byte("0")},
		{Key: "fronta.group", Value: []byte("billing")},
		{Key: "fronta.reason", Value: []byte("deliveries")},
		{Key: "fronta.error", Value: []byte("card declined")},
		{Key: "fronta.delivery-count", Value: []byte("10")},
		{Key: "fronta.first-failure", Value: []byte("1764547201000")},
		{Key: "fronta.last-failure", Value: []byte("1764547500250")},
	}
	if d := cmp.Diff(want, dead.Headers); d != "" {
		t.Errorf("headers (-want +got):\n%s", d)
	}
	if dead.Topic != "orders.dlq" || dead.Partition != 0 || dead.Offset != 0 || dead.LeaderEpoch != 0 || dead.Context != nil {
		t.Errorf("record is not fresh: %+v", dead)
	}

	l := mustParse(t, dead)
	wantLetter := deadletter.Letter{
		Origin: deadletter.Origin{
			Topic: "orders", Partition: 3, Offset: 4711, Timestamp: time.UnixMilli(1764547200123),
			TimestampType: 0, LeaderEpoch: 5, Group: "billing",
		},
		Group: "billing", Reason: deadletter.Deliveries, Error: "card declined", DeliveryCount: 10,
		FirstFailure: time.UnixMilli(1764547201000), LastFailure: time.UnixMilli(1764547500250),
		Key: []byte("customer-17"), Value: []byte(`{"order":1}`),
		Headers: []kgo.RecordHeader{{Key: "trace", Value: []byte("ab12")}},
	}
	if d := cmp.Diff(wantLetter, l); d != "" {
		t.Errorf("letter (-want +got):\n%s", d)
	}
	if l.Origin.Timestamp.Location() != time.UTC || l.FirstFailure.Location() != time.UTC {
		t.Errorf("times are not UTC: %v %v", l.Origin.Timestamp, l.FirstFailure)
	}
}

func TestRecordZeroInfo(t *testing.T) {
	t.Parallel()
	l := mustParse(t, deadletter.Record("dlq", &kgo.Record{Topic: "t"}, deadletter.Info{DeliveryCount: -4}))
	want := deadletter.Letter{
		Origin: deadletter.Origin{Topic: "t", Timestamp: time.UnixMilli(-1).UTC()},
		Reason: deadletter.Rejected,
	}
	if d := cmp.Diff(want, l); d != "" {
		t.Errorf("letter (-want +got):\n%s", d)
	}
}

// H-080: the list of foreign headers arrives as it was; only fronta.* is replaced.
func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	foreign := []kgo.RecordHeader{
		{Key: "a", Value: []byte("1")},
		{Key: "a", Value: []byte("2")},
		{Key: "b", Value: nil},
		{Key: "c", Value: []byte{}},
		{Key: "", Value: []byte("x")},
		{Key: "\xff\x00fronta.", Value: []byte{0, 0xff, 0xfe}},
		{Key: "fronta", Value: []byte("not our prefix")},
		{Key: "Fronta.reason", Value: []byte("not our prefix")},
		{Key: "a", Value: []byte("1")},
	}
	src := source()
	src.Headers = nil
	for i, h := range foreign {
		src.Headers = append(src.Headers, h)
		if i%2 == 0 {
			src.Headers = append(src.Headers, kgo.RecordHeader{Key: "fronta.reason", Value: []byte("old")},
				kgo.RecordHeader{Key: "fronta.unknown", Value: []byte("old")})
		}
	}
	before := copyOf(src)
	dead := deadletter.Record("dlq", src, failure())
	same := func(what string, got []kgo.RecordHeader) {
		t.Helper()
		if len(got) < len(foreign) {
			t.Fatalf("%s: %d headers, want at least %d", what, len(got), len(foreign))
		}
		for i, h := range foreign {
			if got[i].Key != h.Key || !sameBytes(got[i].Value, h.Value) {
				t.Errorf("%s: header %d is %q=%#v, want %q=%#v", what, i, got[i].Key, got[i].Value, h.Key, h.Value)
			}
		}
	}
	same("dead letter", dead.Headers)
	if names, _ := own(dead); len(names) != 14 {
		t.Errorf("own headers are %q, want the 14 new ones", names)
	}
	l := mustParse(t, dead)
	same("letter", l.Headers)
	if len(l.Headers) != len(foreign) {
		t.Errorf("the letter has %d headers, want %d", len(l.Headers), len(foreign))
	}
	same("restored", deadletter.Restore(dead).Headers)

	// The same once more over the wire, where nil and empty are -1 and 0.
	wired := copyOf(dead)
	for i, h := range dead.Headers {
		wired.Headers[i] = overWire(t, h)
	}
	same("over the wire", mustParse(t, wired).Headers)
	if !reflect.DeepEqual(before, src) {
		t.Error("the source was changed")
	}
}

func overWire(t *testing.T, h kgo.RecordHeader) kgo.RecordHeader {
	t.Helper()
	in := kmsg.Record{Headers: []kmsg.Header{{Key: h.Key, Value: h.Value}}}
	in.Length = int32(len(in.AppendTo(nil)) - 1)
	var out kmsg.Record
	if err := out.ReadFrom(in.AppendTo(nil)); err != nil || len(out.Headers) != 1 {
		t.Fatalf("%q over the wire: %d headers, %v", h.Key, len(out.Headers), err)
	}
	return kgo.RecordHeader{Key: out.Headers[0].Key, Value: out.Headers[0].Value}
}

// H-081: nil and empty, key and value, and every timestamp come through, and a header
// keeps the timestamp for a topic that overwrites it.
func TestKeyValueTimestamp(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, {}, []byte("k")} {
		for _, value := range [][]byte{nil, {}, []byte("v"), bytes.Repeat([]byte{0xa5}, 1<<20)} {
			for _, ms := range []int64{-1, 0, 1, 1764547200123, -62135596800000 - 1, math.MaxInt64, math.MinInt64} {
				src := source()
				src.Key, src.Value, src.Timestamp = key, value, time.UnixMilli(ms)
				dead := deadletter.Record("dlq", src, failure())
				if !sameBytes(dead.Key, key) || !sameBytes(dead.Value, value) || !dead.Timestamp.Equal(src.Timestamp) {
					t.Fatalf("key %#v, %d bytes of value, timestamp %d: dead letter differs", key, len(value), ms)
				}
				dead.Timestamp = time.UnixMilli(99) // a topic with LogAppendTime
				l := mustParse(t, dead)
				if !sameBytes(l.Key, key) || !sameBytes(l.Value, value) || l.Origin.Timestamp.UnixMilli() != ms {
					t.Fatalf("key %#v, %d bytes of value, timestamp %d: letter differs", key, len(value), ms)
				}
				back := deadletter.Restore(dead)
				if !sameBytes(back.Key, key) || !sameBytes(back.Value, value) || back.Timestamp.UnixMilli() != ms {
					t.Fatalf("key %#v, %d bytes of value, timestamp %d: restored record differs", key, len(value), ms)
				}
			}
		}
	}
}

func TestTimestampTypeAndEpoch(t *testing.T) {
	t.Parallel()
	for _, kind := range []int8{-1, 0, 1} {
		for _, epoch := range []int32{-1, 0, math.MaxInt32} {
			src := source()
			src.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: kind})
			src.LeaderEpoch = epoch
			o := mustParse(t, deadletter.Record("dlq", src, failure())).Origin
			if o.TimestampType != kind || o.LeaderEpoch != epoch {
				t.Errorf("type %d epoch %d came back as %d and %d", kind, epoch, o.TimestampType, o.LeaderEpoch)
			}
		}
	}
}

// H-079: fifty trips leave the first origin and a bounded size.
func TestFiftyRoundTrips(t *testing.T) {
	t.Parallel()
	rec := source()
	var firstSize int
	for hop := range 50 {
		info := failure()
		info.Group = fmt.Sprintf("group-%02d", hop)
		info.Error = strings.Repeat("x", 10000)
		dead := deadletter.Record("orders.dlq", rec, info)
		dead.Partition, dead.Offset, dead.LeaderEpoch = 1, int64(hop), 9
		l := mustParse(t, dead)
		if l.Hops != hop || l.Group != info.Group {
			t.Fatalf("hop %d: %d hops, group %q", hop, l.Hops, l.Group)
		}
		want := deadletter.Origin{
			Topic: "orders", Partition: 3, Offset: 4711, LeaderEpoch: 5, Group: "group-00",
			Timestamp: time.UnixMilli(1764547200123).UTC(),
		}
		if l.Origin != want {
			t.Fatalf("hop %d: origin is %+v, want %+v", hop, l.Origin, want)
		}
		_, size := own(dead)
		if hop == 0 {
			firstSize = size
		}
		if grown := size - firstSize; grown < 0 || grown > 1 { // hops: one digit, then two
			t.Fatalf("hop %d: own headers take %d bytes, %d at first", hop, size, firstSize)
		}
		if hop%10 == 9 {
			rec = dead // a consumer of the dead-letter topic that fails itself
			continue
		}
		rec = deadletter.Restore(dead)
		if deadletter.IsDeadLetter(rec) {
			t.Fatalf("hop %d: restored record is still a dead letter", hop)
		}
		if _, err := deadletter.Parse(rec); err == nil {
			t.Fatalf("hop %d: restored record still parses as a dead letter", hop)
		}
		rec.Partition, rec.Offset, rec.LeaderEpoch = 2, int64(100000+hop), 77
		rec.Timestamp = rec.Timestamp.Add(time.Hour) // LogAppendTime
	}
}

func TestHopsStopCounting(t *testing.T) {
	t.Parallel()
	dead := deadletter.Record("dlq", source(), failure())
	for i := range dead.Headers {
		if dead.Headers[i].Key == deadletter.HeaderHops {
			dead.Headers[i].Value = []byte("2147483646")
		}
	}
	for range 3 {
		dead = deadletter.Record("dlq", dead, failure())
		if l := mustParse(t, dead); l.Hops != math.MaxInt32 {
			t.Fatalf("hops = %d", l.Hops)
		}
	}
}

// A program that passes headers on to what it produces elsewhere passes ours on too:
// that record's origin is its own place, or a redrive would put it into the wrong topic.
func TestOriginCopiedToAnotherTopic(t *testing.T) {
	t.Parallel()
	copied := deadletter.Restore(deadletter.Record("orders.dlq", source(), failure()))
	copied.Topic, copied.Partition, copied.Offset = "invoices", 1, 12
	l := mustParse(t, deadletter.Record("invoices.dlq", copied, failure()))
	if l.Origin.Topic != "invoices" || l.Origin.Partition != 1 || l.Origin.Offset != 12 || l.Hops != 0 {
		t.Errorf("origin is %+v with %d hops", l.Origin, l.Hops)
	}
}

// An origin that is damaged in any one header is replaced as a whole, never mixed.
func TestDamagedOriginIsReplaced(t *testing.T) {
	t.Parallel()
	history := []string{
		deadletter.HeaderOriginTopic, deadletter.HeaderOriginPartition, deadletter.HeaderOriginOffset,
		deadletter.HeaderOriginTimestamp, deadletter.HeaderOriginGroup, deadletter.HeaderHops,
	}
	for _, name := range history {
		for _, damage := range []string{"gone", "twice", "bad"} {
			t.Run(name+"/"+damage, func(t *testing.T) {
				t.Parallel()
				src := deadletter.Restore(deadletter.Record("dlq", source(), failure()))
				src.Partition, src.Offset = 0, 5000
				at := slices.IndexFunc(src.Headers, func(h kgo.RecordHeader) bool { return h.Key == name })
				switch damage {
				case "gone":
					src.Headers = slices.Delete(src.Headers, at, at+1)
				case "twice":
					src.Headers = append(src.Headers, src.Headers[at])
				case "bad":
					src.Headers[at].Value = bytes.Repeat([]byte("x"), 40000)
				}
				if deadletter.Restore(src) != nil {
					t.Error("Restore accepts it")
				}
				dead := deadletter.Record("dlq", src, failure())
				l := mustParse(t, dead)
				if l.Origin.Partition != 0 || l.Origin.Offset != 5000 || l.Hops != 0 {
					t.Errorf("origin is %+v with %d hops, want the present place", l.Origin, l.Hops)
				}
				if names, size := own(dead); len(names) != 14 || size > 1000 {
					t.Errorf("%d own headers of %d bytes", len(names), size)
				}
			})
		}
	}
}

// Damage that does not touch the history does not keep a record from being redriven.
func TestRestoreNeedsHistoryAlone(t *testing.T) {
	t.Parallel()
	dead := deadletter.Record("dlq", source(), failure())
	dead.Headers = slices.DeleteFunc(dead.Headers, func(h kgo.RecordHeader) bool { return h.Key == deadletter.HeaderReason })
	dead.Headers = append(dead.Headers, kgo.RecordHeader{Key: deadletter.HeaderDeliveryCount, Value: []byte("many")})
	back := deadletter.Restore(dead)
	if back == nil || back.Topic != "orders" || back.Partition != 3 {
		t.Fatalf("restored: %+v", back)
	}
	want := []string{
		deadletter.HeaderOriginTopic, deadletter.HeaderOriginPartition, deadletter.HeaderOriginOffset,
		deadletter.HeaderOriginTimestamp, deadletter.HeaderOriginTimestampType, deadletter.HeaderOriginLeaderEpoch,
		deadletter.HeaderOriginGroup, deadletter.HeaderHops,
	}
	if names, _ := own(back); !slices.Equal(names, want) {
		t.Errorf("restored record has %q", names)
	}
	if again := deadletter.Restore(back); !reflect.DeepEqual(again.Headers, back.Headers) {
		t.Errorf("restoring twice differs: %v", again.Headers)
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 1<<20)
	tests := []struct {
		header string
		value  any // string or []byte value, nil = header removed, int = that often
		want   string
	}{
		{deadletter.HeaderOriginTopic, nil, "is missing"},
		{deadletter.HeaderOriginTopic, "", "is empty"},
		{deadletter.HeaderOriginTopic, []byte(nil), "is empty"},
		{deadletter.HeaderOriginTopic, strings.Repeat("x", 32768), "has 32768 bytes, more than 32767"},
		{deadletter.HeaderOriginTopic, 2, "is there 2 times"},
		{deadletter.HeaderOriginPartition, nil, "is missing"},
		{deadletter.HeaderOriginPartition, "", "has no value, want a decimal number"},
		{deadletter.HeaderOriginPartition, "-1", "is -1, want 0 to 2147483647"},
		{deadletter.HeaderOriginPartition, "2147483648", "is 2147483648, want 0 to 2147483647"},
		{deadletter.HeaderOriginPartition, "03", `is no decimal number in its shortest form: "03"`},
		{deadletter.HeaderOriginPartition, "+3", `is no decimal number in its shortest form: "+3"`},
		{deadletter.HeaderOriginPartition, "-0", `is no decimal number in its shortest form: "-0"`},
		{deadletter.HeaderOriginPartition, "1_0", `is no decimal number of 64 bits: "1_0"`},
		{deadletter.HeaderOriginPartition, "\xff\n", `is no decimal number of 64 bits: "\xff\n"`},
		{deadletter.HeaderOriginOffset, "9223372036854775808", `is no decimal number of 64 bits: "9223372036854775808"`},
		{deadletter.HeaderOriginOffset, long, `is no decimal number: 1048576 bytes beginning with "99999999999999999999"`},
		{deadletter.HeaderOriginOffset, "-1", "is -1, want 0 to 9223372036854775807"},
		{deadletter.HeaderOriginTimestamp, "2025-12-01", `is no decimal number of 64 bits: "2025-12-01"`},
		{deadletter.HeaderOriginTimestampType, "", `is "", want CreateTime or LogAppendTime`},
		{deadletter.HeaderOriginTimestampType, 3, "is there 3 times"},
		{deadletter.HeaderOriginTimestampType, long, `is "99999999999999999999999999999999", want CreateTime or LogAppendTime`},
		{deadletter.HeaderOriginLeaderEpoch, "-1", "is -1, want 0 to 2147483647"},
		{deadletter.HeaderOriginGroup, nil, "is missing"},
		{deadletter.HeaderHops, "4294967296", "is 4294967296, want 0 to 2147483647"},
		{deadletter.HeaderGroup, nil, "is missing"},
		{deadletter.HeaderReason, nil, "is missing"},
		{deadletter.HeaderReason, "", "is empty"},
		{deadletter.HeaderError, nil, "is missing"},
		{deadletter.HeaderDeliveryCount, "-1", "is -1, want 0 to 9223372036854775807"},
		{deadletter.HeaderFirstFailure, "now", `is no decimal number of 64 bits: "now"`},
		{deadletter.HeaderLastFailure, []byte(nil), "has no value, want a decimal number"},
	}
	for _, tt := range tests {
		t.Run(tt.header+" "+tt.want[:min(len(tt.want), 20)], func(t *testing.T) {
			t.Parallel()
			dead := deadletter.Record("orders.dlq", source(), failure())
			dead.Partition, dead.Offset = 2, 17
			at := slices.IndexFunc(dead.Headers, func(h kgo.RecordHeader) bool { return h.Key == tt.header })
			switch v := tt.value.(type) {
			case nil:
				dead.Headers = slices.Delete(dead.Headers, at, at+1)
			case string:
				dead.Headers[at].Value = []byte(v)
			case []byte:
				dead.Headers[at].Value = v
			case int:
				for range v - 1 {
					dead.Headers = append(dead.Headers, dead.Headers[at])
				}
			}
			l, err := deadletter.Parse(dead)
			var bad *deadletter.ParseError
			if !errors.As(err, &bad) {
				t.Fatalf("Parse = %+v, %v", l, err)
			}
			want := deadletter.ParseError{Topic: "orders.dlq", Partition: 2, Offset: 17, Header: tt.header, Problem: tt.want}
			if *bad != want {
				t.Errorf("error is %+v\nwant     %+v", *bad, want)
			}
			text := fmt.Sprintf("deadletter: parse topic %q partition 2 offset 17: header %s %s", "orders.dlq", tt.header, tt.want)
			if err.Error() != text {
				t.Errorf("text is %s\nwant    %s", err, text)
			}
		})
	}
}

func TestNilAndPlainRecords(t *testing.T) {
	t.Parallel()
	if _, err := deadletter.Parse(nil); err == nil {
		t.Error("Parse(nil) is no error")
	}
	if deadletter.IsDeadLetter(nil) || deadletter.Restore(nil) != nil {
		t.Error("nil is a dead letter")
	}
	plain := source()
	if deadletter.IsDeadLetter(plain) || deadletter.Restore(plain) != nil {
		t.Error("a plain record is a dead letter")
	}
	var bad *deadletter.ParseError
	if _, err := deadletter.Parse(plain); !errors.As(err, &bad) || bad.Header != deadletter.HeaderOriginTopic {
		t.Errorf("Parse of a plain record: %v", err)
	}
	if !deadletter.IsDeadLetter(deadletter.Record("dlq", plain, failure())) {
		t.Error("a dead letter is none")
	}
}

// A header of a later version is no reason to refuse a letter, nor is its reason.
func TestParseLaterVersion(t *testing.T) {
	t.Parallel()
	info := failure()
	info.Reason = "quota"
	dead := deadletter.Record("dlq", source(), info)
	dead.Headers = append(dead.Headers, kgo.RecordHeader{Key: "fronta.colour", Value: []byte("red")})
	l := mustParse(t, dead)
	if l.Reason != "quota" || len(l.Headers) != 1 {
		t.Errorf("letter is %+v", l)
	}
}

// What is returned can be appended to without writing into the source or a neighbour.
func TestNoAliasing(t *testing.T) {
	t.Parallel()
	src := source()
	src.Headers = append(make([]kgo.RecordHeader, 0, 64), src.Headers...)
	dead := deadletter.Record("dlq", src, failure())
	dead.Headers[0].Key = "changed"
	_ = append(dead.Headers[:1], kgo.RecordHeader{Key: "in place"})
	if spare := src.Headers[:2]; src.Headers[0].Key != "trace" || spare[1].Key != "" {
		t.Errorf("the source's headers were written to: %q", spare)
	}

	dead = deadletter.Record("dlq", src, failure())
	back := deadletter.Restore(dead)
	l := mustParse(t, dead)
	before := copyOf(dead)
	for _, h := range dead.Headers {
		_ = append(h.Value, "overflow"...)
	}
	for i := range back.Headers {
		if strings.HasPrefix(back.Headers[i].Key, deadletter.Prefix) {
			back.Headers[i].Value[0] = '!'
		}
		back.Headers[i].Key = "changed"
	}
	l.Headers[0].Key = "changed"
	if !reflect.DeepEqual(before, dead) {
		t.Errorf("the dead letter was changed:\n%s", cmp.Diff(before.Headers, dead.Headers))
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	parse := func(text string, limit int) string {
		return mustParse(t, deadletter.Record("dlq", source(), deadletter.Info{Error: text, MaxError: limit})).Error
	}
	cut := func(n int) string { return fmt.Sprintf(" [cut: %d bytes in all]", n) }
	tests := []struct {
		name, in string
		limit    int
		want     string
	}{
		{"empty", "", 0, ""},
		{"at the default bound", strings.Repeat("x", 4096), 0, strings.Repeat("x", 4096)},
		{"past the default bound", strings.Repeat("x", 4097), 0, strings.Repeat("x", 4096-len(cut(4097))) + cut(4097)},
		{"a raised bound", strings.Repeat("x", 5000), 5000, strings.Repeat("x", 5000)},
		{"a huge bound", "x\xff", math.MaxInt, "x\uFFFD"},
		{"too low a bound", strings.Repeat("x", 65), 1, strings.Repeat("x", 64-len(cut(65))) + cut(65)},
		{"a negative bound", strings.Repeat("x", 65), -1, strings.Repeat("x", 64-len(cut(65))) + cut(65)},
		{"invalid UTF-8", "a\xffb\xed\xa0\x80c", 0, "a\uFFFDb\uFFFD\uFFFD\uFFFDc"},
		{"cleaning makes it too long", strings.Repeat("\xff", 30), 64, strings.Repeat("\uFFFD", (64-len(cut(30)))/3) + cut(30)},
		{"cleaning makes it just fit", strings.Repeat("\xff", 21) + "y", 64, strings.Repeat("\uFFFD", 21) + "y"},
		{"not inside a character", strings.Repeat("😀", 17), 64, strings.Repeat("😀", (64-len(cut(68)))/4) + cut(68)},
	}
	for _, tt := range tests {
		if got := parse(tt.in, tt.limit); got != tt.want {
			t.Errorf("%s: %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func TestErrorTextProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		)
		in := strings.Repeat(piece.Draw(t, "piece"), rapid.IntRange(0, 20).Draw(t, "times"))
		limit := rapid.IntRange(deadletter.MinMaxError, 200).Draw(t, "limit")
		got := mustParse(t, deadletter.Record("dlq", source(), deadletter.Info{Error: in, MaxError: limit})).Error
		if len(got) > limit || !utf8.ValidString(got) {
			t.Fatalf("%d bytes of at most %d, valid %v: %q", len(got), limit, utf8.ValidString(got), got)
		}
		whole := string([]rune(in)) // invalid bytes become U+FFFD
		if len(whole) <= limit {
			if got != whole {
				t.Fatalf("%q\nwant %q", got, whole)
			}
			return
		}
		kept, noted := strings.CutSuffix(got, fmt.Sprintf(" [cut: %d bytes in all]", len(in)))
		if !noted || !strings.HasPrefix(whole, kept) {
			t.Fatalf("%q does not say that %q was cut", got, whole)
		}
		next, size := utf8.DecodeRuneInString(whole[len(kept):])
		if len(got)+size <= limit {
			t.Fatalf("%q has room for %q", got, next)
		}
	})
}

// H-080: ten thousand headers and a large value, in one pass and in order.
func TestTenThousandHeaders(t *testing.T) {
	t.Parallel()
	src := source()
	src.Value = make([]byte, 1<<20)
	src.Headers = nil
	for i := range 10000 {
		src.Headers = append(src.Headers, kgo.RecordHeader{Key: fmt.Sprint(i % 7), Value: fmt.Append(nil, i)})
	}
	dead := deadletter.Record("dlq", src, failure())
	if len(dead.Headers) != 10014 || cap(dead.Headers) != 10014 {
		t.Errorf("%d headers in room for %d", len(dead.Headers), cap(dead.Headers))
	}
	l := mustParse(t, dead)
	if !reflect.DeepEqual(l.Headers, src.Headers) {
		t.Error("the headers differ")
	}
	if !reflect.DeepEqual(deadletter.Restore(dead).Headers[:10000], src.Headers) {
		t.Error("the restored headers differ")
	}
}

func anyBytes() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if rapid.IntRange(0, 4).Draw(t, "nil") == 0 {
			return nil
		}
		return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")...)
	})
}

func anyTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64().Draw(t, "milliseconds"))
	})
}

func anyName() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 40), func(b []byte) string { return string(b) })
}

func anyRecord() *rapid.Generator[*kgo.Record] {
	return rapid.Custom(func(t *rapid.T) *kgo.Record {
		r := &kgo.Record{
			Topic:       anyName().Draw(t, "topic"),
			Partition:   rapid.Int32Range(0, math.MaxInt32).Draw(t, "partition"),
			Offset:      rapid.Int64Range(0, math.MaxInt64).Draw(t, "offset"),
			LeaderEpoch: rapid.Int32Range(-1, math.MaxInt32).Draw(t, "epoch"),
			Timestamp:   anyTime().Draw(t, "timestamp"),
			Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{
				TimestampType: rapid.Int8Range(-1, 1).Draw(t, "timestamp type"),
			}),
			Key:   anyBytes().Draw(t, "key"),
			Value: anyBytes().Draw(t, "value"),
		}
		name := rapid.OneOf(rapid.Just(""), anyName(),
			rapid.SampledFrom([]string{deadletter.HeaderReason, deadletter.HeaderOriginOffset, deadletter.HeaderHops, "fronta.", "fronta"}))
		for range rapid.IntRange(0, 8).Draw(t, "headers") {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name.Draw(t, "name"), Value: anyBytes().Draw(t, "value")})
		}
		return r
	})
}

func anyInfo() *rapid.Generator[deadletter.Info] {
	return rapid.Custom(func(t *rapid.T) deadletter.Info {
		return deadletter.Info{
			Group: rapid.OneOf(rapid.Just(""), anyName()).Draw(t, "group"),
			Reason: rapid.SampledFrom([]deadletter.Reason{
				deadletter.Rejected, deadletter.Deliveries, deadletter.Panic, deadletter.Timeout, deadletter.Crash,
			}).Draw(t, "reason"),
			Error:         rapid.StringN(0, 100, -1).Draw(t, "error"),
			DeliveryCount: rapid.IntRange(0, math.MaxInt).Draw(t, "deliveries"),
			FirstFailure:  rapid.OneOf(rapid.Just(time.Time{}), anyTime()).Draw(t, "first failure"),
			LastFailure:   rapid.OneOf(rapid.Just(time.Time{}), anyTime()).Draw(t, "last failure"),
		}
	})
}

func foreignOf(headers []kgo.RecordHeader) []kgo.RecordHeader {
	var out []kgo.RecordHeader
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, deadletter.Prefix) {
			out = append(out, h)
		}
	}
	return out
}

// H-079, H-080, H-081: whatever is dead-lettered, redriven and dead-lettered again, some
// trips through a second dead-letter topic, reads back as it was.
func TestRoundTripProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first := anyRecord().Draw(t, "record")
		foreign := foreignOf(copyOf(first).Headers)
		rec := first
		var origin deadletter.Origin
		for hop := range rapid.IntRange(1, 4).Draw(t, "hops") {
			info := anyInfo().Draw(t, "info")
			before := copyOf(rec)
			dead := deadletter.Record("dlq", rec, info)
			if !reflect.DeepEqual(before, rec) {
				t.Fatalf("hop %d: Record changed its source", hop)
			}
			if hop == 0 {
				origin = deadletter.Origin{
					Topic: first.Topic, Partition: first.Partition, Offset: first.Offset, Timestamp: first.Timestamp.UTC(),
					TimestampType: first.Attrs.TimestampType(), LeaderEpoch: first.LeaderEpoch, Group: info.Group,
				}
			}
			before = copyOf(dead)
			l := mustParse(t, dead)
			want := deadletter.Letter{
				Origin: origin, Hops: hop, Group: info.Group, Reason: info.Reason, Error: info.Error,
				DeliveryCount: info.DeliveryCount, FirstFailure: info.FirstFailure.UTC(), LastFailure: info.LastFailure.UTC(),
				Key: first.Key, Value: first.Value, Headers: foreign,
			}
			if !reflect.DeepEqual(l, want) {
				t.Fatalf("hop %d: letter (-want +got):\n%s", hop, cmp.Diff(want, l))
			}
			back := deadletter.Restore(dead)
			if !reflect.DeepEqual(before, dead) {
				t.Fatalf("hop %d: Parse or Restore changed its input", hop)
			}
			if back.Topic != first.Topic || back.Partition != first.Partition || !back.Timestamp.Equal(first.Timestamp) ||
				!sameBytes(back.Key, first.Key) || !sameBytes(back.Value, first.Value) ||
				!reflect.DeepEqual(foreignOf(back.Headers), foreign) {
				t.Fatalf("hop %d: restored record is %+v", hop, back)
			}
			rec = back
			if rapid.Bool().Draw(t, "dead-letter the dead letter") {
				rec = dead
			}
			rec.Offset = rapid.Int64Range(0, math.MaxInt64).Draw(t, "next offset")
		}
	})
}

// The room that docs/formats.md tells operators to leave above the largest record.
func TestOverhead(t *testing.T) {
	t.Parallel()
	src := &kgo.Record{
		Topic: strings.Repeat("t", 249), Partition: math.MaxInt32, Offset: math.MaxInt64, LeaderEpoch: math.MaxInt32,
		Timestamp: time.UnixMilli(math.MinInt64), Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: 1}),
	}
	dead := deadletter.Record("dlq", src, deadletter.Info{
		Group: strings.Repeat("g", 249), Reason: deadletter.Deliveries, Error: strings.Repeat("e", 1<<20), DeliveryCount: math.MaxInt,
		FirstFailure: time.UnixMilli(math.MinInt64), LastFailure: time.UnixMilli(math.MinInt64),
	})
	size := 2 // the count of headers may take more bytes
	for _, h := range dead.Headers {
		wire := kmsg.Header{Key: h.Key, Value: h.Value}
		size += len(wire.AppendTo(nil))
	}
	if size > 6<<10 {
		t.Errorf("own headers take %d bytes on the wire, documented are 6 KiB", size)
	}
}

// docs/formats.md shows the bytes of the example letter; this keeps it true.
func TestFormatPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	dead := deadletter.Record("orders.dlq", source(), failure())
	for _, h := range dead.Headers[1:] {
		if row := fmt.Sprintf("| `%s` | `%s` | `% x` |\n", h.Key, h.Value, h.Value); !bytes.Contains(page, []byte(row)) {
			t.Errorf("missing row: %s", row)
		}
		if entry := fmt.Sprintf("\n### `%s`\n", h.Key); !bytes.Contains(page, []byte(entry)) {
			t.Errorf("missing section: %s", entry)
		}
	}
	hops := dead.Headers[8]
	wire := kmsg.Header{Key: hops.Key, Value: hops.Value}
	if line := fmt.Sprintf("% x", wire.AppendTo(nil)); !bytes.Contains(page, []byte(line)) {
		t.Errorf("missing bytes of %s: %s", hops.Key, line)
	}
}
