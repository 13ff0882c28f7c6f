package group

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A topic that is deleted and made again by the same name is another topic. The
// client knows by its id, reads nothing of it and says UNKNOWN_TOPIC_ID at
// every fetch, for ever: it would have to be told to forget the topic. So the
// membership is given up and a new client joins, which knows only the new topic
// (H-056). What the old topic's offsets were, the brokers have deleted with it.
//
// The same error of a topic that is gone and not made again needs nothing: the
// client drops it when the brokers have not known it for a while (H-057).

// suspect finds out whether the topic is there, under another id, and if so
// ends the membership. At most one look is under way.
func (s *session) suspect(topic string) {
	if !s.looking.CompareAndSwap(false, true) {
		return
	}
	s.done.Go(func() {
		defer s.looking.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), s.d.cfg.CommitTimeout)
		defer cancel()
		defer context.AfterFunc(s.reading, cancel)()
		md, err := s.d.metadata(ctx, []string{topic})
		if err != nil {
			return // the next fetch asks again
		}
		for _, t := range md.Topics {
			if t.Topic != nil && *t.Topic == topic && t.ErrorCode == 0 {
				s.lose(s.d.engine.Owned(), errRecreated)
				s.setVoid()
			}
		}
	})
}

var errRecreated = errors.Join(errors.New("a topic was deleted and made again; the group is joined anew to read it"), kerr.UnknownTopicID)
