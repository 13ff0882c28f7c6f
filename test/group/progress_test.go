package group_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/internal/checker"
	"github.com/fronta-mq/fronta/progress"
)

// stuck is a handler that finishes all but the records whose key begins with
// "stuck", which it has until it is to stop.
func stuck(ctx context.Context, r *fronta.Record) error {
	if strings.HasPrefix(string(r.Key), "stuck") {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// told is what is stored of a partition.
func (w *world) told(partition int32) progress.Progress {
	w.t.Helper()
	c := w.storedOf(topic, partition)
	p, _, err := progress.Decode(c.Metadata, c.Offset, w.binding(partition))
	if err != nil {
		w.t.Fatalf("partition %d, offset %d: %v", partition, c.Offset, err)
	}
	return p
}

func (w *world) binding(partition int32) progress.Binding {
	return progress.Binding{TopicID: w.cluster().TopicInfo(topic).TopicID, Partition: partition}
}

// text is a text of fronta's.
func text(p progress.Progress, b progress.Binding) string {
	t, _ := new(progress.Encoder).Append(nil, &p, b, progress.Limit{Units: 4096})
	return string(t)
}

// behind is the progress of which only the record at offset is unfinished up to
// horizon.
func behind(offset, horizon int64) progress.Progress {
	return progress.Progress{Offset: offset, Epoch: -1, Fence: 5, Clean: true, Suspect: -1, Segments: []progress.Segment{{
		End: horizon, Order: "key", Heads: []progress.Range{{From: offset, To: offset + 1}},
	}}}
}

// Nobody tells the brokers of the end: the last commits don't get through, as
// after kill -9. What was committed before is enough.
func (w *world) kill(m *member) {
	w.t.Helper()
	deaf := w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Err: kerr.UnknownServerError})
	m.stop()
	deaf.Remove()
}

// The first record is held, the others are finished, and only the progress
// changes: it is committed, by the timer, at a revocation and at a stop. Each
// owner goes on with what the one before it had to say.
//
// H-028, H-029, P-3, P-4
func TestProgressByEveryRoute(t *testing.T) {
	underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
		w := newWorld(t, 2)
		cfg := fronta.Config{Protocol: protocol, DrainTimeout: time.Second}
		a := w.join("a", cfg, stuck)
		for p := range int32(2) {
			w.produce(p, append([]string{"stuck"}, keys("a", 50)...)...)
		}
		w.until("handled", a.accepted(100))
		time.Sleep(2 * time.Second)
		if p := w.told(0); p.Offset != 0 || p.Horizon() != 51 || p.Clean {
			t.Errorf("the timer stored %+v", p)
		}
		w.kill(a)

		b := w.join("b", cfg, stuck)
		w.until("taken over", func() bool { return b.Stats().Recalled == 100 })
		if got := b.starts(); len(got) != 2 || got[0].offset != 0 || got[1].offset != 0 {
			t.Errorf("b handled %v", got)
		}
		if n := len(b.log.lines("progress is taken over", "partitions=2", "offsets=102")); n != 1 {
			t.Errorf("%d lines tell what was taken over:\n%s", n, b.log.text())
		}
		w.produce(0, keys("b", 10)...)
		w.produce(1, keys("b", 10)...)
		w.until("handled", b.accepted(20))
		c := w.join("c", cfg, stuck) // long before the timer
		w.until("shared", func() bool { return b.owns(1)() && c.owns(1)() })
		moved := c.owned()[0]
		w.until("taken over", func() bool { return c.Stats().Recalled == 60 })
		w.produce(moved, keys("c", 10)...)
		w.until("handled", c.accepted(10))
		c.stop()
		if p := w.told(moved); p.Offset != 0 || p.Horizon() != 71 || !p.Clean {
			t.Errorf("the stop stored %+v", p)
		}
		b.stop()
		last := w.join("last", cfg, accept)
		w.until("all", last.accepted(2))
		w.until("stored", func() bool { return w.stored(moved) == 71 && w.stored(1-moved) == 61 })
		last.stop()
		if p := w.told(moved); len(p.Segments) != 0 || !p.Clean || p.Fence <= 0 {
			t.Errorf("in the end there is stored %+v", p)
		}
		w.verdict()
	})
}

// limits makes the brokers refuse the metadata of partitions that is longer
// than a limit, in UTF-16 units or bytes, and counts what they refuse.
func (w *world) limits(limit int, inBytes bool) (refused func() int) {
	var mu sync.Mutex
	n := 0
	w.cluster().ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		for _, rt := range r.(*kmsg.OffsetCommitRequest).Topics {
			for _, rp := range rt.Partitions {
				length := len(*rp.Metadata)
				if !inBytes {
					length = len(utf16.Encode([]rune(*rp.Metadata)))
				}
				if length > limit {
					w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Partitions: []int32{rp.Partition}, Err: kerr.OffsetMetadataTooLarge})
					mu.Lock()
					n++
					mu.Unlock()
				}
				if len(*rp.Metadata) > 32767 {
					w.t.Errorf("metadata of %d bytes", len(*rp.Metadata))
				}
			}
		}
		return nil, nil, false
	})
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// random are n keys of which about half are held by [stuck], each a lane of its own.
func random(n int) []string {
	ks := make([]string, n)
	for i := range ks {
		ks[i] = fmt.Sprint("free", i)
		if rand.IntN(2) == 0 {
			ks[i] = fmt.Sprint("stuck", i)
		}
	}
	return ks
}

// The brokers take less metadata than the configuration says, and count it in
// their own way. The partitions whose text they take are stored as they are;
// the others are sent again at once, shorter, until the limit is known. Then
// nothing is refused any more.
//
// H-026, H-019, H-020, H-027
func TestMetadataTooLarge(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int
		inBytes bool
		told    string // by the brokers' configuration, if asked
		nothing bool   // there is no room for any progress
	}{
		"units":                  {limit: 150},
		"bytes":                  {limit: 300, inBytes: true},
		"units, told":            {limit: 150, told: "150"},
		"bytes, told":            {limit: 300, inBytes: true, told: "300"},
		"units, told wrong":      {limit: 150, told: "4096"},
		"bytes, told in units":   {limit: 300, inBytes: true, told: "4096"},
		"too little for a head":  {limit: 20, nothing: true},
		"nothing":                {limit: 0, nothing: true},
		"nothing, told":          {limit: 0, told: "0", nothing: true},
		"header and little more": {limit: 60, inBytes: true, nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 3)
				w.check = checker.New(checker.Options{FencesRise: true}) // what does not fit is repeated
				refused := w.limits(c.limit, c.inBytes)
				asked := 0
				w.always(kmsg.DescribeConfigs, func(r kmsg.Request) kmsg.Response {
					asked++
					resource := r.(*kmsg.DescribeConfigsRequest).Resources[0]
					resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
					rr := kmsg.NewDescribeConfigsResponseResource()
					rr.ResourceType, rr.ResourceName = resource.ResourceType, resource.ResourceName
					if c.told == "" {
						rr.ErrorCode = kerr.ClusterAuthorizationFailed.Code
					} else {
						rc := kmsg.NewDescribeConfigsResponseResourceConfig()
						rc.Name, rc.Value = "offset.metadata.max.bytes", &c.told
						rr.Configs = append(rr.Configs, rc)
					}
					resp.Resources = append(resp.Resources, rr)
					return resp
				})
				m := w.join("a", fronta.Config{
					Protocol: protocol, DrainTimeout: time.Second, Concurrency: 20_000, MaxInFlight: 20_000,
				}, stuck)
				w.until("assigned", m.owns(3))
				w.produce(0, "x", "y")
				w.produce(1, random(3500)...)
				w.produce(2, "x", "y")
				w.until("handled", func() bool {
					s := m.Stats()
					p := s.Partitions[1]
					return p.ReadTo == 3500 && (p.ReadAhead == 0 || p.WaitsForProgress) && p.Unfinished == s.Running
				})
				time.Sleep(1100 * time.Millisecond)
				s := m.Stats()
				if w.stored(0) != 2 || w.stored(2) != 2 || w.stored(1) < 0 {
					t.Errorf("stored: %d, %d, %d", w.stored(0), w.stored(1), w.stored(2))
				}
				if refused() == 0 || s.OversizeCommits != int64(refused()) || refused() > 20 {
					t.Errorf("%d refusals, %d counted", refused(), s.OversizeCommits)
				}
				if asked == 0 || asked > 5 {
					t.Errorf("the configuration was asked for %d times", asked)
				}
				limit := s.Partitions[1].MetadataLimit
				if limit > c.limit || !c.nothing && limit < c.limit*4/5 {
					t.Errorf("found a limit of %d, it is %d", limit, c.limit)
				}
				if units := s.Partitions[1].MetadataUnits; units > c.limit || !c.nothing && units < c.limit/2 {
					t.Errorf("stored %d units where there is room for %d", units, c.limit)
				}
				if n := len(m.log.lines("level=WARN", "less commit metadata than Config.MetadataLimit")); n < 1 || n > 3 {
					t.Errorf("%d lines tell of the limit:\n%s", n, m.log.text())
				}
				if said := len(m.log.lines("there is no room for progress")) > 0; said != c.nothing {
					t.Errorf("the log says that there is no room for progress: %v", said)
				}
				if lines := m.log.lines("unable to commit"); len(lines) != 0 {
					t.Errorf("the client tells of it as well: %s", lines)
				}
				if lines := m.log.lines("commit failed"); len(lines) != 0 || s.CommitErrors != 0 {
					t.Errorf("%d failed commits: %s", s.CommitErrors, lines)
				}
				if s.ShortenedCommits == 0 {
					t.Error("no commit counts as shortened")
				}
				n := refused()
				w.produce(1, keys("more", 100)...)
				w.produce(0, random(1000)...)
				time.Sleep(10 * time.Second)
				if more := refused() - n; more != 0 {
					t.Errorf("%d commits were refused after the limit was found", more)
				}
				told := w.storedOf(topic, 1)
				w.kill(m)
				m = w.join("again", fronta.Config{Protocol: protocol, Concurrency: 20_000, MaxInFlight: 20_000}, accept)
				w.until("all", func() bool { return w.stored(0) == 1002 && w.stored(1) == 3600 })
				if told.Metadata != "" {
					p, _, err := progress.Decode(told.Metadata, told.Offset, w.binding(1))
					if err != nil {
						t.Fatal(err)
					}
					n := 0
					for _, r := range p.Segments {
						for _, h := range r.Heads {
							n += int(h.To - h.From)
						}
					}
					below := 0
					for _, o := range m.offsets(1) {
						if o < p.Horizon() {
							below++
						}
					}
					if below != n {
						t.Errorf("%d records below the horizon %d were handled again, of which %d were unfinished", below, p.Horizon(), n)
					}
				}
				m.stop()
				w.check.Finish()
				if r := w.check.Report(); !r.OK() {
					t.Errorf("%s", r)
				}
			})
		})
	}
}

// A commit's metadata together is more than the brokers store at once: it goes
// in several requests.
func TestCommitTooLargeAsAWhole(t *testing.T) {
	virtually(t, func(t *testing.T) {
		const partitions = 20
		w := newWorld(t, partitions)
		refused, largest := 0, 0
		w.cluster().ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
			req := r.(*kmsg.OffsetCommitRequest)
			size := 0
			for _, rp := range req.Topics[0].Partitions {
				size += len(*rp.Metadata)
			}
			if size > 1500 {
				refused++
				w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.InvalidCommitOffsetSize})
			}
			largest = max(largest, size)
			return nil, nil, false
		})
		m := w.join("a", fronta.Config{DrainTimeout: time.Second, Concurrency: 20_000, MaxInFlight: 20_000}, stuck)
		for p := range int32(partitions) {
			w.produce(p, append([]string{"stuck"}, random(1000)...)...)
		}
		w.until("stored", func() bool {
			for p := range int32(partitions) {
				if told := w.told(p); told.Horizon() != 1001 {
					return false
				}
			}
			return true
		})
		if refused == 0 || refused > 10 || largest < 1500 {
			t.Errorf("%d requests were refused, the largest had %d bytes", refused, largest)
		}
		n := refused
		for p := range int32(partitions) {
			w.produce(p, "more")
		}
		time.Sleep(5 * time.Second)
		// How partitions fall into requests changes, so another one may be too
		// large, but not for ever.
		if refused > n+2 {
			t.Errorf("%d requests were refused after that", refused-n)
		}
		if s := m.Stats(); s.CommitErrors != 0 || s.OversizeCommits != 0 || s.Partitions[0].MetadataLimit != 4096 {
			t.Errorf("%d errors, %d oversize commits, limit %d", s.CommitErrors, s.OversizeCommits, s.Partitions[0].MetadataLimit)
		}
		m.stop()
		last := w.join("last", fronta.Config{}, accept)
		w.until("all", func() bool {
			s := last.Stats()
			return s.ReadAhead == 0 && s.Unfinished == 0 && w.stored(0) == 1002 && w.stored(partitions-1) == 1002
		})
		last.stop()
		w.verdict()
	})
}

// What stands next to the offset is no progress of ours for this place: work
// begins at the offset with nothing taken as finished, one line says why, and
// the next commit replaces it.
//
// H-023, H-024, H-030, H-032, H-141, H-142
func TestMetadataThatIsNotBelieved(t *testing.T) {
	random, source := make([]byte, 4096), rand.New(rand.NewPCG(7, 7))
	for i := range random {
		random[i] = byte(1 + source.IntN(255))
	}
	good := behind(10, 40)
	for name, c := range map[string]struct {
		text   func(w *world) *string
		reason string // in the line that tells of it; "": it is no progress, and nothing to tell of
	}{
		"null":            {func(*world) *string { return nil }, ""},
		"empty":           {func(*world) *string { return kmsg.StringPtr("") }, ""},
		"no further":      {func(w *world) *string { p := behind(10, 10); p.Segments = nil; t := text(p, w.binding(0)); return &t }, ""},
		"client id":       {func(*world) *string { return kmsg.StringPtr("kgo-3f8a0f5e-6d0c-4c83-a6a0-3a1e4d4a0b2f") }, "no progress in a format"},
		"JSON":            {func(*world) *string { return kmsg.StringPtr(`{"offset": 10, "done": [11, 12]}`) }, "no progress in a format"},
		"base64":          {func(*world) *string { t := base64.StdEncoding.EncodeToString(random[:300]); return &t }, ""},
		"random":          {func(*world) *string { t := string(random); return &t }, ""},
		"cut":             {func(w *world) *string { t := text(good, w.binding(0)); t = t[:len(t)-3]; return &t }, "checksum"},
		"changed":         {func(w *world) *string { t := []byte(text(good, w.binding(0))); t[20] ^= 1; s := string(t); return &s }, "checksum"},
		"other partition": {func(w *world) *string { t := text(good, w.binding(1)); return &t }, "partition"},
		"other topic":     {func(w *world) *string { b := w.binding(0); b.TopicID[3]++; t := text(good, b); return &t }, "topic"},
		"no topic id":     {func(w *world) *string { b := w.binding(0); b.TopicID = [16]byte{}; t := text(good, b); return &t }, "topic"},
		"other offset":    {func(w *world) *string { t := text(behind(11, 40), w.binding(0)); return &t }, "offset"},
		"past the end":    {func(w *world) *string { t := text(behind(10, 51), w.binding(0)); return &t }, "reaches up to offset 51, but the log ends at 50"},
		"unknown order": {func(w *world) *string {
			p := behind(10, 40)
			p.Segments[0].Order = "key:unheard of"
			t := text(p, w.binding(0))
			return &t
		}, "order"},
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 2)
				w.produce(0, keys("a", 50)...)
				w.produce(1, keys("a", 50)...)
				for p := range int32(2) {
					w.check.Reset(part(p), 10)
				}
				stored := c.text(w)
				w.set(0, 10, stored)
				other := text(good, w.binding(1))
				w.set(1, 10, &other)
				for o := int64(11); o < 40; o++ {
					w.check.Discarded(part(1), o, "finished by others")
				}
				m := w.join("a", fronta.Config{Protocol: protocol}, accept)
				w.until("all", func() bool { return w.stored(0) == 50 && w.stored(1) == 50 })
				if got := m.offsets(0); len(got) != 40 || slices.Min(got) != 10 {
					t.Errorf("handled %v", got)
				}
				if got := m.offsets(1); len(got) != 11 {
					t.Errorf("of the other partition, whose progress is good, it handled %v", got)
				}
				lines := m.log.lines("stored progress is not used")
				want := int64(1)
				if stored == nil || *stored == "" || name == "no further" {
					want = 0
				}
				if int64(len(lines)) != want || m.Stats().RefusedProgress != want {
					t.Errorf("%d counted, lines %q", m.Stats().RefusedProgress, lines)
				}
				for _, line := range lines {
					for _, part := range []string{"level=WARN", "topic=" + topic, "partition=0", "offset=10", "metadata_length=", c.reason} {
						if !strings.Contains(line, part) {
							t.Errorf("%q lacks %q", line, part)
						}
					}
					if strings.Contains(line, *stored) {
						t.Errorf("%q has the metadata", line)
					}
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// An operator sets the offset of a group that has stopped, with the old text
// kept or removed: all is handled once from there, and the text is not taken to
// be about it.
//
// H-031
func TestOperatorSetsTheOffset(t *testing.T) {
	for _, offset := range []int64{50, 110, 200} {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprintf("to %d, kept=%v", offset, keep), func(t *testing.T) {
				underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
					w := newWorld(t, 1)
					w.produce(0, keys("a", 100)...)
					w.produce(0, "stuck", "b", "c", "d", "e")
					w.produce(0, keys("f", 16)...)
					cfg := fronta.Config{Protocol: protocol, DrainTimeout: time.Second}
					m := w.join("a", cfg, stuck)
					w.until("stuck", m.accepted(120))
					m.stop()
					c := w.storedOf(topic, 0)
					if p := w.told(0); c.Offset != 100 || p.Horizon() != 121 {
						t.Fatalf("stored: %+v", p)
					}
					w.produce(0, keys("g", 179)...)
					var metadata *string
					if keep {
						metadata = &c.Metadata
					}
					w.set(0, offset, metadata)
					w.check.Reset(part(0), offset)
					m = w.join("again", cfg, accept)
					w.until("all", func() bool { return w.stored(0) == 300 })
					got := m.offsets(0)
					slices.Sort(got)
					if int64(len(got)) != 300-offset || got[0] != offset || len(slices.Compact(got)) != int(300-offset) {
						t.Errorf("handled %v", got)
					}
					if n := m.Stats().RefusedProgress; n != 0 != keep {
						t.Errorf("%d texts were refused", n)
					}
					m.stop()
					w.verdict()
				})
			})
		}
	}
}

// The log was cut off behind the committed offset and written anew, while
// nobody read it: what lies there now are other records.
//
// H-142
func TestLogWasCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		epoch  int32
		offset int64
		err    *kerr.Error
		used   bool
		reason string
	}{
		"epoch ends lower":   {3, 25, nil, false, "epoch 3 ends at offset 25"},
		"epoch is not there": {1, 45, nil, false, "epoch 1 ends at offset 45"},
		"no epoch is there":  {-1, -1, nil, false, "epoch -1 ends at offset -1"},
		"as it was":          {3, 50, nil, true, ""},
		"exactly":            {3, 40, nil, true, ""},
		"not for us":         {0, 0, kerr.ClusterAuthorizationFailed, true, ""},
		"not at all":         {0, 0, kerr.UnsupportedVersion, true, ""},
		"something wrong":    {0, 0, kerr.UnknownServerError, false, "could not be compared"},
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				w.produce(0, keys("a", 50)...)
				p := behind(10, 40)
				p.Epoch = 3
				stored := text(p, w.binding(0))
				w.set(0, 10, &stored)
				w.check.Reset(part(0), 10)
				if c.used {
					for o := int64(11); o < 40; o++ {
						w.check.Discarded(part(0), o, "finished by others")
					}
				}
				asked := 0
				w.always(kmsg.OffsetForLeaderEpoch, func(r kmsg.Request) kmsg.Response {
					asked++
					req, resp := r.(*kmsg.OffsetForLeaderEpochRequest), r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
					if e := req.Topics[0].Partitions[0].LeaderEpoch; e != 3 {
						t.Errorf("asked for epoch %d", e)
					}
					rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
					rt.Topic = topic
					rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
					rp.LeaderEpoch, rp.EndOffset = c.epoch, c.offset
					if c.err != nil {
						rp.ErrorCode = c.err.Code
					}
					rt.Partitions = append(rt.Partitions, rp)
					resp.Topics = append(resp.Topics, rt)
					return resp
				})
				m := w.join("a", fronta.Config{Protocol: protocol}, accept)
				w.until("all", func() bool { return w.stored(0) == 50 })
				want, refused := 40, int64(1)
				if c.used {
					want, refused = 11, 0
				}
				if n := len(m.starts()); n != want {
					t.Errorf("%d records were handled, want %d", n, want)
				}
				if asked == 0 {
					t.Error("no broker was asked")
				}
				if s := m.Stats(); s.RefusedProgress != refused || len(m.log.lines("stored progress is not used", c.reason)) != int(refused) {
					t.Errorf("%d refused:\n%s", s.RefusedProgress, m.log.text())
				}
				if m.starts()[0].fence <= 5 {
					t.Errorf("fence %d: what was refused told of 5", m.starts()[0].fence)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// A broker can't say what the log is like. Its partition is not read until it
// can, and then nothing is repeated; the other one is, at once. Meanwhile
// partitions are paused and move, and the consumer is stopped.
//
// P-3
func TestProgressThatCannotBeCheckedYet(t *testing.T) {
	for name, key := range map[string]kmsg.Key{"end": kmsg.ListOffsets, "epoch": kmsg.OffsetForLeaderEpoch} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 2)
				for p := range int32(2) {
					w.produce(p, append([]string{"stuck"}, keys("a", 50)...)...)
				}
				cfg := fronta.Config{Protocol: protocol, DrainTimeout: time.Second}
				first := w.join("first", cfg, stuck)
				w.until("handled", first.accepted(100))
				first.stop()
				blind := w.cluster().Fault(kfake.Fault{
					Keys: []kmsg.Key{key}, Partitions: []int32{0}, Count: -1, Err: kerr.NotLeaderForPartition,
					When: func(r kmsg.Request) bool {
						// The client itself asks with the epoch that it knows.
						req, ok := r.(*kmsg.OffsetForLeaderEpochRequest)
						return !ok || req.Topics[0].Partitions[0].CurrentLeaderEpoch < 0
					},
				})
				began := time.Now()
				m := w.join("second", cfg, stuck)
				w.until("the other one is read", func() bool { return m.Stats().Recalled == 50 })
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("that took %s", d)
				}
				m.Pause(fronta.TopicPartition{Topic: topic, Partition: 0})
				time.Sleep(5 * time.Second)
				m.Resume(fronta.TopicPartition{Topic: topic, Partition: 0})
				time.Sleep(60 * time.Second)
				if got := m.offsets(0); len(got) != 0 {
					t.Errorf("handled %v before its progress could be checked", got)
				}
				if n := len(m.log.lines("level=WARN", "can't be compared with the log yet", "partition=0")); n < 1 || n > 3 {
					t.Errorf("%d lines tell of it in a minute:\n%s", n, m.log.text())
				}
				m.stop() // that must neither wait nor spoil what is stored
				m = w.join("third", cfg, stuck)
				w.until("the other one is read", func() bool { return m.Stats().Recalled == 50 })
				fourth := w.join("fourth", cfg, stuck)
				w.until("shared", func() bool { return m.owns(1)() && fourth.owns(1)() })
				blind.Remove()
				w.until("taken over", func() bool { return m.Stats().Recalled+fourth.Stats().Recalled >= 100 })
				fourth.stop()
				w.until("back", m.owns(2))
				time.Sleep(10 * time.Second)
				m.stop()
				if n := m.Stats().RefusedProgress + fourth.Stats().RefusedProgress; n != 0 {
					t.Errorf("%d texts were refused", n)
				}
				last := w.join("last", cfg, accept)
				w.until("all", func() bool { return w.stored(0) == 51 && w.stored(1) == 51 })
				last.stop()
				w.verdict()
			})
		})
	}
}

// Retention has deleted unfinished records that progress tells of, and finished
// ones with them: what lies behind can't be told any more and is handled again,
// nothing waits for what is gone.
//
// H-054
func TestProgressOfDeletedRecords(t *testing.T) {
	for name, reset := range map[string]fronta.Reset{"earliest": fronta.ResetEarliest, "latest": fronta.ResetLatest} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				w.check = checker.New(checker.Options{FencesRise: true})
				w.produce(0, keys("a", 10)...)
				w.produce(0, append([]string{"stuck"}, keys("b", 39)...)...)
				cfg := fronta.Config{Protocol: protocol, OutOfRange: reset, DrainTimeout: time.Second}
				m := w.join("first", cfg, stuck)
				w.until("handled", m.accepted(49))
				m.stop()
				if p := w.told(0); p.Offset != 10 || p.Horizon() != 50 {
					t.Fatalf("stored: %+v", p)
				}
				fence := w.told(0).Fence
				w.check.Discarded(part(0), 10, "retention")
				if err := w.cluster().DeleteRecords(topic, 0, 30); err != nil {
					t.Fatal(err)
				}
				m = w.join("second", cfg, accept)
				w.until("stored", func() bool { return w.stored(0) == 50 })
				got := m.offsets(0)
				slices.Sort(got)
				if len(got) != 20 || got[0] != 30 {
					t.Errorf("handled %v, want all that is retained, from 30", got)
				}
				if f := m.starts()[0].fence; f <= fence {
					t.Errorf("fence %d after %d", f, fence)
				}
				// Where the offset is moved up before anything is read, the
				// progress is known to be about another one.
				want := int64(1)
				if reset == fronta.ResetLatest {
					want = 0
				}
				if n := m.Stats().Forgotten; n != want {
					t.Errorf("progress was given up while reading %d times, want %d", n, want)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// The first commit of an ownership is refused a few times: it is tried again at
// once, since nothing starts before. When it keeps being refused it is tried
// at growing distances.
//
// H-005
func TestOpeningIsInAHurry(t *testing.T) {
	for name, refuse := range map[string]*kerr.Error{
		"rebalance": kerr.RebalanceInProgress, "not coordinator": kerr.NotCoordinator, "unknown error": kerr.UnknownServerError,
		"unknown topic": kerr.UnknownTopicOrPartition,
	} {
		t.Run(name, func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				w.produce(0, keys("a", 10)...)
				fault := w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: 3, Err: refuse})
				m := w.join("a", fronta.Config{Protocol: protocol, CommitInterval: time.Hour}, accept)
				w.until("assigned", m.owns(1))
				began := time.Now()
				w.until("handled", m.accepted(10))
				// The client looks for another coordinator by itself, less hastily.
				if d := time.Since(began); d > time.Second && refuse != kerr.NotCoordinator || d > 3*time.Second || fault.Hits() != 3 {
					t.Errorf("the first record was handled %s after the assignment and %d refusals", d, fault.Hits())
				}
				m.stop()

				w.produce(0, keys("b", 10)...)
				fault = w.cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Count: -1, Err: refuse})
				m = w.join("b", fronta.Config{Protocol: protocol}, accept)
				time.Sleep(time.Minute)
				if n := fault.Hits(); n < 5 || n > 40 || len(m.starts()) != 0 {
					t.Errorf("%d commits in a minute of refusals, %d records started", n, len(m.starts()))
				}
				fault.Remove()
				began = time.Now()
				w.until("handled", m.accepted(10))
				if d := time.Since(began); d > 11*time.Second {
					t.Errorf("the first record was handled %s after the last refusal", d)
				}
				m.stop()
				w.verdict()
			})
		})
	}
}

// A topic that is made again has nothing of the old one: neither are the new
// records taken for those that were finished, nor is the old pair ever stored
// for the new topic.
//
// H-056, H-030
func TestTopicWithProgressIsMadeAgain(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%v", running), func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 1)
				cfg := fronta.Config{Protocol: protocol, DrainTimeout: time.Second, Concurrency: 1000}
				// The checker knows one topic of a name; here it is counted.
				var mu sync.Mutex
				again := make(map[string]int)
				count := func(ctx context.Context, r *fronta.Record) error {
					if r.Headers != nil {
						mu.Lock()
						defer mu.Unlock()
						again[string(r.Key)]++
						return nil
					}
					return stuck(ctx, r)
				}
				m := w.join("a", cfg, count)
				w.produce(0, "stuck")
				w.produce(0, random(500)...)
				w.until("told", func() bool { told := w.told(0); return told.Horizon() == 501 })
				if !running {
					m.stop()
				}
				old := w.storedOf(topic, 0)
				if err := w.cluster().DeleteTopic(topic); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if err := w.cluster().CreateTopic(topic, 1, nil); err != nil {
					t.Fatal(err)
				}
				producer := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
				for _, key := range keys("b", 100) {
					r := &kgo.Record{Topic: topic, Key: []byte(key), Headers: []kgo.RecordHeader{{Key: "again"}}}
					if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				if !running {
					// Even if the brokers kept the old pair.
					w.set(0, old.Offset, &old.Metadata)
					m = w.join("again", cfg, count)
				}
				w.until("stored", func() bool { return w.stored(0) == 100 })
				id := w.cluster().TopicInfo(topic).TopicID
				for _, c := range w.seen() {
					if c.topicID == id && c.generation >= 0 {
						if p, err := c.progress(); err != nil || p.Horizon() > 100 {
							t.Errorf("offset %d was stored for the new topic: %v", c.offset, err)
						}
					}
				}
				if !running && m.Stats().RefusedProgress != 1 {
					t.Errorf("%d texts were refused", m.Stats().RefusedProgress)
				}
				m.cancel()
				<-m.done
				for _, key := range keys("b", 100) {
					if n := again[key]; n != 1 {
						t.Errorf("%q was handled %d times", key, n)
					}
				}
			})
		})
	}
}

// A fleet is moved from one form of progress to another, partition by partition,
// and back: whoever owns a partition next reads what is there.
//
// P-3, H-029
func TestOtherFormsMove(t *testing.T) {
	for form, format := range map[fronta.Progress]progress.Format{fronta.AtleonV1: progress.AtleonV1, fronta.ParallelConsumer: progress.ParallelConsumer} {
		t.Run(format.String(), func(t *testing.T) {
			underBoth(t, func(t *testing.T, protocol fronta.Protocol) {
				w := newWorld(t, 2)
				cfg := fronta.Config{Protocol: protocol, DrainTimeout: time.Second, Progress: form}
				for p := range int32(2) {
					w.produce(p, "a", "stuck", "b", "b", "stuck", "c", "stuck2", "d")
				}
				a := w.join("a", cfg, stuck)
				w.until("handled", a.accepted(10))
				time.Sleep(1100 * time.Millisecond)
				for _, c := range w.seen() {
					if c.offset == 0 {
						continue // nothing is finished
					}
					p, f, err := progress.Decode(*c.metadata, c.offset, w.binding(c.partition))
					if err != nil || f != format || c.offset != 1 || p.Horizon() > 8 {
						t.Errorf("commit of offset %d: %s, %+v, %v", c.offset, f, p, err)
					}
				}
				b := w.join("b", fronta.Config{Protocol: protocol, DrainTimeout: time.Second}, stuck)
				w.until("shared", func() bool { return a.owns(1)() && b.owns(1)() })
				w.until("taken over", func() bool { return b.Stats().Recalled == 4 })
				moved := b.owned()[0]
				if told := w.told(moved); told.Horizon() != 8 {
					t.Errorf("b has stored %+v", told)
				}
				b.stop()
				w.until("back", a.owns(2))
				w.until("taken over", func() bool { return a.Stats().Recalled == 4 })
				a.stop()
				last := w.join("last", fronta.Config{Protocol: protocol}, accept)
				w.until("all", func() bool { return w.stored(0) == 8 && w.stored(1) == 8 })
				last.stop()
				if n := a.Stats().RefusedProgress + b.Stats().RefusedProgress + last.Stats().RefusedProgress; n != 0 {
					t.Errorf("%d texts were refused", n)
				}
				if r := w.check.Finish(); !r.OK() {
					t.Errorf("%s", r)
				}
			})
		})
	}
}
