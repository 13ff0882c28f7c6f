package group

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/progress"
)

func fetchedOffset(name string, id byte, offset int64, text *string) *kmsg.OffsetFetchResponse {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Offset, p.Metadata = offset, text
	t := kmsg.NewOffsetFetchResponseGroupTopic()
	t.Topic, t.TopicID = name, [16]byte{id}
	t.Partitions = append(t.Partitions, p)
	g := kmsg.NewOffsetFetchResponseGroup()
	g.Topics = append(g.Topics, t)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Groups = append(resp.Groups, g)
	return resp
}

// loggedTo makes the session's driver log into a buffer.
func loggedTo(s *session) *bytes.Buffer {
	var b bytes.Buffer
	s.d.cfg.Log = slog.New(slog.NewTextHandler(&b, nil))
	return &b
}

func told(offset, horizon int64) progress.Progress {
	return progress.Progress{Offset: offset, Epoch: -1, Fence: 7, Suspect: -1, Segments: []progress.Segment{{
		End: horizon, Order: "key", Heads: []progress.Range{{From: offset, To: offset + 1}},
	}}}
}

func textOf(p progress.Progress, id byte) *string {
	b, _ := new(progress.Encoder).Append(nil, &p, progress.Binding{TopicID: [16]byte{id}}, progress.Limit{Units: 4096})
	t := string(b)
	return &t
}

// What answers about offsets can have next to an offset, and an offset of −1
// with a text.
//
// H-032, H-024
func TestFetchedTexts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resp *kmsg.OffsetFetchResponse
		used bool
	}{
		"null":                    {fetchedOffset(p0.Topic, 1, 10, nil), false},
		"empty":                   {fetchedOffset(p0.Topic, 1, 10, kmsg.StringPtr("")), false},
		"no offset, foreign text": {fetchedOffset(p0.Topic, 1, -1, kmsg.StringPtr("somebody's")), false},
		"no offset, our text":     {fetchedOffset(p0.Topic, 1, -1, textOf(told(10, 40), 1)), false},
		"ours":                    {fetchedOffset(p0.Topic, 1, 10, textOf(told(10, 40), 1)), true},
		// The client has no name for the id.
		"ours, without a name": {fetchedOffset("", 1, 10, textOf(told(10, 40), 1)), true},
	} {
		s := &session{d: New(Config{Group: "billing"})}
		lines := loggedTo(s)
		s.ids.set(p0, [16]byte{1})
		if err := s.fetched(t.Context(), nil, c.resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		st := &start{Start: engine.Start{TopicPartition: p0, Offset: 10, Epoch: -1, End: -1}}
		s.decode(st)
		if used := st.told() == 30; used != c.used || !used && st.Stored != nil {
			t.Errorf("%s: %+v", name, st.Stored)
		}
		if lines.Len() > 0 || s.d.Counts().RefusedProgress != 0 {
			t.Errorf("%s: %s", name, lines)
		}
	}
}

// What is refused keeps its fence, and says why, without the text.
//
// H-141
func TestRefusedKeepsFence(t *testing.T) {
	t.Parallel()
	s := &session{d: New(Config{Group: "billing"})}
	lines := loggedTo(s)
	text := textOf(told(10, 40), 1)
	s.ids.set(p0, [16]byte{1})
	_ = s.fetched(t.Context(), nil, fetchedOffset(p0.Topic, 1, 10, text))
	st := &start{Start: engine.Start{TopicPartition: p0, Offset: 10, Epoch: -1, End: -1}}
	s.decode(st)
	s.refuse(st, errors.New("it is too good to be true"))
	if p := st.Stored; p == nil || p.Fence != 7 || st.told() != 0 || p.Offset != 10 || !p.Clean || p.Suspect != -1 || p.Epoch != -1 {
		t.Errorf("left is %+v", p)
	}
	for _, part := range []string{"level=WARN", "group=billing", "topic=orders", "partition=0", "offset=10", "metadata_length=", "too good to be true"} {
		if !strings.Contains(lines.String(), part) {
			t.Errorf("%q lacks %q", lines, part)
		}
	}
	if strings.Contains(lines.String(), *text) || strings.Count(lines.String(), "\n") != 1 {
		t.Errorf("logged: %q", lines)
	}
}

// The owner before was this very process, which has lost the partition and goes
// on: that is no crash. Another process's end may be one.
func TestOwnLossIsNoCrash(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           string
		fence          int64 // of the driver's last ownership
		starts         int
		clean          bool
		wantStarts     int
		wantClean      bool
		suspect, wantS int64
	}{
		{"another's", 6, 1, false, 1, false, 12, 12},
		{"ours", 7, 0, false, 0, true, -1, -1},
		{"ours, after a crash", 7, 2, false, 1, false, 12, -1},
		{"clean", 7, 0, true, 0, true, -1, -1},
	} {
		s := &session{d: New(Config{Group: "billing"})}
		s.ids.set(p0, [16]byte{1})
		s.d.fences.set([]*start{{Start: engine.Start{TopicPartition: p0}}}, c.fence)
		p := told(10, 40)
		p.Starts, p.Clean, p.Suspect = c.starts, c.clean, c.suspect
		_ = s.fetched(t.Context(), nil, fetchedOffset(p0.Topic, 1, 10, textOf(p, 1)))
		st := &start{Start: engine.Start{TopicPartition: p0, Offset: 10, Epoch: -1, End: -1}}
		s.decode(st)
		if got := st.Stored; got == nil || got.Starts != c.wantStarts || got.Clean != c.wantClean || got.Suspect != c.wantS || got.Horizon() != 40 {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// The end of a membership is noticed twice; it is told once.
func TestLostIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(context.Context, *engine.Delivery) error { return nil })
		s, client := newSession(t, e)
		var lost, revoked []engine.TopicPartition
		s.d.cfg.Events.Lost = func(tps []engine.TopicPartition, _ error) { lost = append(lost, tps...) }
		s.d.cfg.Events.Revoked = func(tps []engine.TopicPartition) { revoked = append(revoked, tps...) }
		mine := map[string][]int32{p0.Topic: {0}}
		s.assigned(t.Context(), client, mine)
		s.lose(e.Owned(), kerr.UnknownMemberID)
		s.lost(t.Context(), client, mine)
		s.revoked(t.Context(), client, mine)
		if len(lost) != 1 || len(revoked) != 0 || len(e.Owned()) != 0 {
			t.Errorf("told of %v lost and %v revoked", lost, revoked)
		}
		s.assigned(t.Context(), client, mine)
		s.revoked(t.Context(), client, mine)
		if len(lost) != 1 || len(revoked) != 1 {
			t.Errorf("after it was back, told of %v lost and %v revoked", lost, revoked)
		}
	})
}

// A partition is postponed and goes, or comes again, while its progress is
// looked at: what was found out for the old ownership does not open the new
// one.
//
//	verify: asks about P0, as it was assigned first
//	group:  P0 is revoked, and assigned again at another offset
//	verify: has its answer, and would begin P0 at the old offset
func TestPostponedIsOfOneOwnership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, func(context.Context, *engine.Delivery) error { return nil })
		s, client := newSession(t, e)
		var begun atomic.Int32
		s.d.cfg.Events.Assigned = func([]engine.TopicPartition, int64) { begun.Add(1) }
		mine := map[string][]int32{p0.Topic: {0}}
		p1 := engine.TopicPartition{Topic: p0.Topic, Partition: 1}
		s.assigned(t.Context(), client, map[string][]int32{p0.Topic: {0, 1}})
		other := &start{Start: engine.Start{TopicPartition: p1, Offset: 0, Epoch: -1, End: -1}}
		old := &start{Start: engine.Start{TopicPartition: p0, Offset: 0, Epoch: -1, End: -1}}
		s.postpone([]*start{old, other}, map[engine.TopicPartition]error{p0: kerr.NotLeaderForPartition, p1: kerr.NotLeaderForPartition})
		if paused := client.PauseFetchPartitions(nil); len(paused[p0.Topic]) != 2 {
			t.Errorf("paused: %v", paused)
		}
		if free := s.late.without([]engine.TopicPartition{p0, {Topic: "other"}}); len(free) != 1 {
			t.Errorf("what is held back may be read: %v", free)
		}
		s.revoked(t.Context(), client, mine)
		s.assigned(t.Context(), client, mine)
		time.Sleep(time.Minute)
		if n := len(e.Positions(p0)); n != 0 || begun.Load() != 1 {
			t.Error("an old ownership's start has opened the new one")
		}
		if n := len(e.Positions(p1)); n != 1 {
			t.Error("the partition that stayed was not begun")
		}
		if paused := client.PauseFetchPartitions(nil); len(paused) != 0 {
			t.Errorf("still paused: %v", paused)
		}
		// Nothing happens in between: it is begun, told of and read.
		s.postpone([]*start{old}, map[engine.TopicPartition]error{p0: kerr.NotLeaderForPartition})
		time.Sleep(time.Minute)
		if at := e.Positions(p0); len(at) != 1 || begun.Load() != 2 {
			t.Errorf("%d times begun, at %v", begun.Load(), at)
		}
		if paused := client.PauseFetchPartitions(nil); len(paused) != 0 {
			t.Errorf("still paused: %v", paused)
		}
		// The end of the session ends it.
		s.assigned(t.Context(), client, mine)
		s.postpone([]*start{old}, map[engine.TopicPartition]error{p0: kerr.NotLeaderForPartition})
		s.late.end()
		s.d.waitClosed()
		if n := len(e.Positions(p0)); n != 0 || begun.Load() != 2 {
			t.Error("begun after the end")
		}
	})
}

func TestPassing(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		kerr.NotLeaderForPartition: true, kerr.LeaderNotAvailable: true, kerr.OffsetNotAvailable: true, kerr.UnknownTopicOrPartition: true,
		context.DeadlineExceeded: true, kgo.ErrClientClosed: true, errors.New("connection refused"): true,
		kerr.TopicAuthorizationFailed: true, // H-140
		kerr.UnknownServerError:       false, kerr.InvalidRequest: false, kerr.UnsupportedForMessageFormat: false, errNotNamed: false,
	} {
		if passing(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
