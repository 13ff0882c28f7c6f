package consumer_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/fronta-mq/fronta/progress"
)

// What a group has stored, read and understood without the library's help: the heads of a progress are spelled out, with
// the keys that the world knows, into the records that are unfinished by it.

// stored is a group's commit of a partition.
type stored struct {
	offset   int64
	metadata string
	format   progress.Format
	*progress.Progress
}

// stored reads what the group has committed. A text that can't be read fails the test.
func (w *world) stored() map[int32]stored {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	admin := kadm.NewClient(w.client)
	topics, err := admin.ListTopics(ctx, w.topic)
	if err != nil {
		w.t.Fatalf("ask for the id of %s: %v", w.topic, err)
	}
	var offsets kadm.OffsetResponses
	for {
		if offsets, err = admin.FetchOffsets(ctx, w.group); !kerr.IsRetriable(err) || ctx.Err() != nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // a broker on a busy machine may not coordinate for a moment
	}
	if err != nil {
		w.t.Fatalf("fetch the offsets of %s: %v", w.group, err)
	}
	all := make(map[int32]stored)
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic != w.topic || o.At < 0 {
			return
		}
		s := stored{offset: o.At, metadata: o.Metadata}
		p, f, err := progress.Decode(o.Metadata, o.At, progress.Binding{TopicID: topics[w.topic].ID, Partition: o.Partition})
		s.Progress, s.format = &p, f
		if err != nil {
			w.t.Errorf("%s/%d: the metadata of offset %d (%d bytes): %v", o.Topic, o.Partition, o.At, len(o.Metadata), err)
		}
		all[o.Partition] = s
	})
	return all
}

// unfinished are the records that whoever goes by what the group has stored must handle, by partition and offset.
func (w *world) unfinished(all map[int32]stored) []at {
	w.mu.Lock()
	defer w.mu.Unlock()
	offsets := make(map[int32][]int64)
	for a := range w.keys {
		offsets[a.partition] = append(offsets[a.partition], a.offset)
	}
	var open []at
	for _, p := range slices.Sorted(maps.Keys(offsets)) {
		slices.Sort(offsets[p])
		s := all[p]
		var segments []progress.Segment
		if s.Progress != nil {
			segments = s.Segments
		}
		heads := make(map[int64]bool) // whether it is a marker
		for _, seg := range segments {
			for _, r := range seg.Heads {
				for o := r.From; o < r.To; o++ {
					heads[o] = false
				}
			}
			for _, o := range seg.Markers {
				heads[o] = true
			}
		}
		lanes := make(map[string]bool)
		for _, o := range offsets[p] {
			if o < s.offset {
				continue
			}
			for len(segments) > 0 && o >= segments[0].End {
				segments = segments[1:]
				clear(lanes)
			}
			key := w.keys[at{p, o}]
			marker, head := heads[o]
			switch {
			case len(segments) == 0 || head && !marker || lanes[key]:
				open = append(open, at{p, o})
			}
			if head && segments[0].Order != "unordered" {
				lanes[key] = true
			}
		}
	}
	return open
}

// withKeys are the records of keys that is says yes to, by partition and offset.
func (w *world) withKeys(is func(key string) bool) []at {
	w.mu.Lock()
	defer w.mu.Unlock()
	var some []at
	for a, key := range w.keys {
		if is(key) {
			some = append(some, a)
		}
	}
	return sorted(some)
}

func sorted(list []at) []at {
	slices.SortFunc(list, func(a, b at) int {
		if a.partition != b.partition {
			return int(a.partition - b.partition)
		}
		return int(a.offset - b.offset)
	})
	return list
}

// untilStored waits until what the group has stored leaves exactly these records unfinished. The brokers tell nobody of a
// commit, so they are asked again and again.
func (w *world) untilStored(what string, want []at) map[int32]stored {
	w.t.Helper()
	for began := time.Now(); ; {
		all := w.stored()
		have := w.unfinished(all)
		if slices.Equal(have, want) {
			return all
		}
		if time.Since(began) > patience {
			w.t.Fatalf("not within %s: %s: %s", patience, what, differ(have, want))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// differ says how two sorted lists of records differ.
func differ(have, want []at) string {
	if slices.Equal(have, want) {
		return "the same"
	}
	less := func(a, b []at) (only []at) {
		in := make(map[at]bool, len(b))
		for _, x := range b {
			in[x] = true
		}
		for _, x := range a {
			if !in[x] {
				only = append(only, x)
			}
		}
		return only
	}
	more, missing := less(have, want), less(want, have)
	return fmt.Sprintf("%d records, want %d; %d too many %v, %d missing %v", len(have), len(want),
		len(more), more[:min(len(more), 10)], len(missing), missing[:min(len(missing), 10)])
}
