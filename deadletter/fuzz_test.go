package deadletter_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta/deadletter"
)

var fuzzNames = []string{
	deadletter.HeaderOriginTopic, deadletter.HeaderOriginPartition, deadletter.HeaderOriginOffset,
	deadletter.HeaderOriginTimestamp, deadletter.HeaderOriginTimestampType, deadletter.HeaderOriginLeaderEpoch,
	deadletter.HeaderOriginGroup, deadletter.HeaderHops, deadletter.HeaderGroup, deadletter.HeaderReason,
	deadletter.HeaderError, deadletter.HeaderDeliveryCount, deadletter.HeaderFirstFailure, deadletter.HeaderLastFailure,
}

// The fuzzer's headers are lines "name=value". A name that is one letter from a on stands
// for one of ours, a line without "=" for a header whose value is nil.
func fuzzHeaders(lines string) []kgo.RecordHeader {
	var out []kgo.RecordHeader
	for line := range strings.SplitSeq(lines, "\n") {
		name, value, some := strings.Cut(line, "=")
		if len(name) == 1 && name[0] >= 'a' && int(name[0]-'a') < len(fuzzNames) {
			name = fuzzNames[name[0]-'a']
		}
		h := kgo.RecordHeader{Key: name}
		if some {
			h.Value = []byte(value)
		}
		out = append(out, h)
	}
	return out
}

func fuzzLines(headers []kgo.RecordHeader) string {
	var b strings.Builder
	for i, h := range headers {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(h.Key)
		if h.Value != nil {
			b.WriteString("=" + string(h.Value))
		}
	}
	return b.String()
}

// Any record gives a letter or an error that names one of our headers. A letter is
// complete: the record made from it again has the same headers.
func FuzzParse(f *testing.F) {
	f.Add("", []byte(nil))
	f.Add(fuzzLines(deadletter.Record("dlq", source(), failure()).Headers), []byte("v"))
	f.Add(fuzzLines(deadletter.Restore(deadletter.Record("dlq", source(), failure())).Headers), []byte("v"))
	f.Add(fuzzLines(deadletter.Record("dlq", &kgo.Record{Topic: "t"}, deadletter.Info{}).Headers), []byte{})
	f.Fuzz(func(t *testing.T, lines string, value []byte) {
		r := &kgo.Record{Topic: "dlq", Value: value, Headers: fuzzHeaders(lines)}
		before := copyOf(r)
		defer func() {
			if !reflect.DeepEqual(before, r) {
				t.Error("the record was changed")
			}
		}()

		// Whatever it carries, its own dead letter parses.
		next, err := deadletter.Parse(deadletter.Record("next", r, failure()))
		if err != nil {
			t.Errorf("its dead letter does not parse: %v", err)
		}

		back := deadletter.Restore(r)
		l, err := deadletter.Parse(r)
		if err != nil {
			var bad *deadletter.ParseError
			if !errors.As(err, &bad) || !strings.HasPrefix(bad.Header, deadletter.Prefix) || bad.Problem == "" {
				t.Errorf("error names no header: %v", err)
			}
			if len(err.Error()) > 500 {
				t.Errorf("error has %d bytes", len(err.Error()))
			}
			return
		}
		if !deadletter.IsDeadLetter(r) {
			t.Error("parses, and yet is no dead letter")
		}
		if back == nil || back.Topic != l.Origin.Topic || deadletter.IsDeadLetter(back) {
			t.Fatalf("restored: %+v", back)
		}
		if next.Origin != l.Origin || next.Hops != min(l.Hops+1, 1<<31-1) {
			t.Errorf("next origin %+v hops %d, was %+v hops %d", next.Origin, next.Hops, l.Origin, l.Hops)
		}

		again := deadletter.Record("dlq", &kgo.Record{
			Topic: l.Origin.Topic, Partition: l.Origin.Partition, Offset: l.Origin.Offset,
			Timestamp: l.Origin.Timestamp, LeaderEpoch: l.Origin.LeaderEpoch,
			Attrs: kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: l.Origin.TimestampType}),
			Key:   l.Key, Value: l.Value, Headers: l.Headers,
		}, deadletter.Info{
			Group: l.Origin.Group, Reason: l.Reason, Error: l.Error, MaxError: 1 << 30,
			DeliveryCount: l.DeliveryCount, FirstFailure: l.FirstFailure, LastFailure: l.LastFailure,
		})
		a, err := deadletter.Parse(again)
		if err != nil {
			t.Fatalf("made again: %v", err)
		}
		a.Hops, a.Group = l.Hops, l.Group
		a.Error = l.Error // cleaned when written, read as it is
		if l.Origin.Timestamp.IsZero() {
			a.Origin.Timestamp = l.Origin.Timestamp // the zero time is written as "none"
		}
		if !reflect.DeepEqual(a, l) {
			t.Errorf("made again: %+v\nwas:        %+v", a, l)
		}
	})
}
