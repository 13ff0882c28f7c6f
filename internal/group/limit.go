package group

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/fronta-mq/fronta/progress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// defaultMetadataLimit is offset.metadata.max.bytes where nobody has set it.
const defaultMetadataLimit = 4096

// room is how long the text of a commit may be. Config.MetadataLimit says so
// until the brokers have refused a text (H-026); what is found out then holds
// for the life of the driver.
type room struct {
	mu    sync.Mutex
	limit progress.Limit
	taken int // the longest text known to be taken, in letters of one byte
}

func (r *room) get() (limit progress.Limit, taken int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limit, r.taken
}

func (r *room) set(limit progress.Limit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = limit
	r.taken = min(r.taken, limit.Units)
}

// took is told of a text that the brokers have stored. As many letters of one
// byte fit as of several bytes, whichever way they are counted.
func (r *room) took(units int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = max(r.taken, units)
}

// trial is what became of a text.
type trial struct {
	units   int
	wide    bool
	refused bool
}

// search finds out how long a text may be, from texts that were refused and
// others that were not. Every trial is a commit that counts, so that what is
// stored is as good as what is known of the limit.
//
// Apache Kafka counts UTF-16 units; other brokers count bytes. A text in ASCII
// has as many of the one as of the other, so the limit is found with those, and
// one wide text tells in the end which of the two is counted.
type search struct {
	try progress.Limit // what to try next

	phase    phase
	wide     bool // whether there is a wide form, and it is not known to be refused for what it is
	hint     int  // a length that was taken before; 0: none that is of use
	low      int  // the longest ASCII text that was taken
	high     int  // the shortest that was refused
	wideHigh int  // the shortest wide text that was refused
	floor    int  // the highest limit under which no text was refused: what fits is more than low, if it makes a difference
	trials   int
	hopeless bool // an empty text was refused: it is not a matter of length
}

type phase uint8

const (
	asTold  phase = iota // the length that the broker's configuration names
	inASCII              // the length that was refused, in ASCII
	halving
	asWide // the length that was found, in the wide form
	found
)

// maxTrials is how many texts a search tries at most.
const maxTrials = 20

// newSearch begins a search. limit is that under which texts were refused,
// taken is the longest that was taken before, told is what the coordinator's
// configuration says, 0 or less if that is not known. wide says whether the
// format has a wide form.
func newSearch(limit progress.Limit, taken, told int, wide bool, results []trial) *search {
	s := &search{try: limit, wide: wide && !limit.ASCII, hint: taken, high: limit.Units + 1, wideHigh: limit.Units + 1}
	_, refusedWide := s.note(results)
	switch {
	case told > 0 && told < min(limit.Units, s.high):
		s.phase, s.try.Units = asTold, told
	case refusedWide:
		s.phase, s.try.ASCII = inASCII, true
	default:
		s.halve()
	}
	return s
}

// note draws conclusions from trials, and says whether any were refused, and
// wide ones among them.
func (s *search) note(results []trial) (refused, wide bool) {
	for _, t := range results {
		switch {
		case !t.refused:
			s.low = max(s.low, t.units)
			continue
		case t.wide:
			wide, s.wideHigh = true, min(s.wideHigh, t.units)
		case t.units == 0:
			s.hopeless = true
		default:
			s.high = min(s.high, t.units)
		}
		refused = true
	}
	return refused, wide
}

// next is told what became of the texts under the limit that was to be tried.
// It is false when the search is over: then try is the limit to go by.
func (s *search) next(results []trial) bool {
	s.trials++
	refused, wide := s.note(results)
	switch {
	case s.hopeless:
		s.phase = found
	case s.phase == asWide:
		if refused {
			s.try = progress.Limit{Units: s.low, ASCII: true}
		}
		s.phase = found
	case s.phase == halving:
		if !refused {
			s.floor = max(s.floor, s.try.Units)
		}
		s.halve()
	case !refused && s.phase == inASCII:
		// More letters than in the wide text that was refused, and they are
		// taken: so bytes are counted. Otherwise that is not known yet.
		s.try.Units, s.phase = s.low, found
		if s.low < s.wideHigh {
			s.try.ASCII, s.phase = false, asWide
		}
	case !refused:
		s.phase = found
	case s.phase == asTold && wide:
		s.phase, s.try.ASCII = inASCII, true
	default:
		s.halve()
	}
	return s.phase != found
}

// halve chooses the next limit between what was taken and what was refused.
func (s *search) halve() {
	s.phase = halving
	least := max(s.low, min(s.floor, s.high-1))
	if s.high-least > max(8, s.high/16) && s.trials < maxTrials {
		s.try = progress.Limit{Units: (least + s.high) / 2, ASCII: true}
		if least < s.hint && s.hint < s.high {
			s.try.Units = s.hint
		}
		s.hint = 0
		return
	}
	s.try = progress.Limit{Units: s.low, ASCII: true}
	s.phase = found
	if s.wide && least > 0 {
		s.phase, s.try = asWide, progress.Limit{Units: least}
	}
}

// askLimit asks the group's coordinator what it is configured with. 0: it did
// not say, as when it is not for everybody to ask.
func askLimit(ctx context.Context, client *kgo.Client, group string) int {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = group
	at, err := find.RequestWith(ctx, client)
	if err != nil || at.ErrorCode != 0 {
		return 0
	}
	const name = "offset.metadata.max.bytes"
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(at.NodeID))
	resource.ConfigNames = []string{name}
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0
	}
	for _, r := range resp.Resources {
		for _, c := range r.Configs {
			if c.Name == name && c.Value != nil {
				n, _ := strconv.Atoi(*c.Value)
				return max(n, 0)
			}
		}
	}
	return 0
}

// askTimeout is how long one question about a limit or a log may take.
const askTimeout = 3 * time.Second

// tooLarge says whether a commit was refused for its size: that of the text, or
// that of the request as a whole.
func tooLarge(err error) bool {
	return errors.Is(err, kerr.OffsetMetadataTooLarge) || errors.Is(err, kerr.InvalidCommitOffsetSize)
}

// capacityOf is how many bytes of progress fit a limit. 0 if that is too little
// to hold anything back for: not even the least progress would be sure to fit.
func capacityOf(limit progress.Limit, format progress.Format) int {
	if format != progress.Fronta {
		limit.ASCII = true
		return limit.Bytes()
	}
	n := limit.Bytes()
	if n < progress.HeaderBytes+progress.Bound(2, 2) {
		return 0
	}
	return n
}
