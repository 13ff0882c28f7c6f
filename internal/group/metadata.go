package group

import (
	"sync"
	"unicode/utf16"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/progress"
)

// texts turns progress into the texts of commits.
type texts struct {
	format progress.Format

	mu      sync.Mutex // of a session that ends, one commit can overlap with the next session's
	encoder progress.Encoder
	buf     []byte
}

// of is the metadata for a snapshot.
func (w *texts) of(s *engine.Snapshot, b progress.Binding, limit progress.Limit) (string, progress.Fit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var fit progress.Fit
	switch w.format {
	case progress.AtleonV1:
		w.buf, fit = progress.AppendAtleonV1(w.buf[:0], &s.Progress, limit.Units)
	case progress.ParallelConsumer:
		w.buf, fit = progress.AppendParallelConsumer(w.buf[:0], &s.Progress, limit.Units)
	default:
		w.buf, fit = w.encoder.Append(w.buf[:0], &s.Progress, b, limit)
	}
	return string(w.buf), fit
}

// wide says whether the format has a form with more than one byte a letter.
func (w *texts) wide() bool { return w.format == progress.Fronta }

// Metadata is how long the text of a partition's last confirmed commit is and
// how long it may be, in UTF-16 units. Before the first confirmed commit of the
// ownership units is 0.
func (d *Driver) Metadata(tp engine.TopicPartition) (units, limit int) {
	s, _ := d.committed.get(tp)
	in, _ := d.room.get()
	return s.units, in.Units
}

// unitsOf is the length of a text as brokers and logs count it.
func unitsOf(text string) (n int) {
	for _, r := range text {
		n += max(utf16.RuneLen(r), 1)
	}
	return n
}

// topicIDs are the ids of the topics under which a session reads partitions:
// what they were when each was assigned. A commit is never bound to a topic that
// was made again meanwhile under the same name (H-056).
type topicIDs struct {
	mu sync.Mutex
	m  map[engine.TopicPartition][16]byte
}

// has says whether the id is known. Brokers before Kafka 2.8 have none.
func (t *topicIDs) has(tp engine.TopicPartition) bool {
	return t.binding(tp).TopicID != [16]byte{}
}

func (t *topicIDs) set(tp engine.TopicPartition, id [16]byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = make(map[engine.TopicPartition][16]byte)
	}
	t.m[tp] = id
}

// binding is what the texts about tp are bound to.
func (t *topicIDs) binding(tp engine.TopicPartition) progress.Binding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return progress.Binding{TopicID: t.m[tp], Partition: tp.Partition}
}
