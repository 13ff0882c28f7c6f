package group

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fronta-mq/fronta/internal/engine"
	"github.com/fronta-mq/fronta/progress"
)

// scattered is a progress whose text needs about as many bytes as there are
// eight heads.
func scattered(heads int) *progress.Progress {
	random := rand.New(rand.NewPCG(1, uint64(heads)))
	p := &progress.Progress{Offset: 1000, Epoch: 3, Fence: 218_000_000_000, Suspect: -1}
	s := progress.Segment{Order: "key", Check: 7}
	at := p.Offset
	for range heads {
		s.Heads = append(s.Heads, progress.Range{From: at, To: at + 1})
		at += 2 + random.Int64N(16)
	}
	s.End = at
	p.Segments = append(p.Segments, s)
	return p
}

// brokers take texts up to a length, counted in one way or the other.
type brokers struct {
	limit   int
	inBytes bool
}

func (b brokers) takes(text string) bool {
	if b.inBytes {
		return len(text) <= b.limit
	}
	return unitsOf(text) <= b.limit
}

// searched plays what shorten does with one partition.
func searched(p *progress.Progress, b brokers, limit progress.Limit, taken, told int, format progress.Format) (found progress.Limit, stored string, sent int, hopeless bool) {
	texts := texts{format: format}
	s := &engine.Snapshot{Progress: *p}
	try := func(l progress.Limit) (trial, bool) {
		text, fit := texts.of(s, progress.Binding{}, l)
		sent++
		ok := b.takes(text)
		if ok {
			stored = text
		}
		return trial{fit.Units, fit.Wide, !ok}, ok && !fit.Short
	}
	first, whole := try(limit)
	if !first.refused {
		return limit, stored, sent, false
	}
	look := newSearch(limit, taken, told, texts.wide(), []trial{first})
	for more := true; more && !whole; {
		var t trial
		t, whole = try(look.try)
		more = look.next([]trial{t})
	}
	return look.try, stored, sent, look.hopeless
}

// Whatever the brokers take and however they count, the search ends with nearly
// that, within few commits, and with the best of them stored.
//
// H-026
func TestSearch(t *testing.T) {
	t.Parallel()
	for _, heads := range []int{300, 2_000, 20_000} {
		for _, most := range []int{64, 512, 4096} {
			for _, limit := range []int{0, 20, 40, 100, 511, 1000, 4000} {
				for _, inBytes := range []bool{false, true} {
					for _, told := range []int{0, limit, 4096} {
						name := fmt.Sprintf("heads=%d most=%d limit=%d bytes=%v told=%d", heads, most, limit, inBytes, told)
						p, b := scattered(heads), brokers{limit, inBytes}
						found, stored, sent, hopeless := searched(p, b, progress.Limit{Units: most}, 0, told, progress.Fronta)
						if hopeless {
							t.Errorf("%s: hopeless", name)
						}
						if sent > 15 {
							t.Errorf("%s: %d commits", name, sent)
						}
						if told == limit && told > 0 && sent > 4 {
							t.Errorf("%s: %d commits although the limit was told", name, sent)
						}
						whole, _ := (&texts{format: progress.Fronta}).of(&engine.Snapshot{Progress: *p}, progress.Binding{}, progress.Limit{Units: most})
						if b.takes(whole) {
							if stored != whole || sent != 1 {
								t.Errorf("%s: a text of %d units that is taken was not stored at once", name, unitsOf(whole))
							}
							continue
						}
						if found.Units > limit || found.Units > most {
							t.Errorf("%s: found %+v", name, found)
						}
						best, fit := (&texts{format: progress.Fronta}).of(&engine.Snapshot{Progress: *p}, progress.Binding{}, progress.Limit{Units: min(limit, most), ASCII: inBytes})
						got, _, err := progress.Decode(stored, p.Offset, progress.Binding{})
						if err != nil {
							t.Errorf("%s: %v", name, err)
						}
						if horizon := got.Horizon() - p.Offset; limit > 64 && horizon < (fit.Horizon-p.Offset)*7/10 {
							t.Errorf("%s: found %+v, stored up to %d, could be %d", name, found, horizon, fit.Horizon-p.Offset)
						}
						// Those who go by what was found are not refused any more.
						again, _ := (&texts{format: progress.Fronta}).of(&engine.Snapshot{Progress: *p}, progress.Binding{}, found)
						if !b.takes(again) || len(best) > 32767 || len(again) > 32767 {
							t.Errorf("%s: a text for %+v is refused", name, found)
						}
					}
				}
			}
		}
	}
}

// Brokers that take less than they did, since another one coordinates the
// group: what was taken before is no lower bound.
func TestSearchAnew(t *testing.T) {
	t.Parallel()
	p := scattered(9_000)
	found, stored, sent, _ := searched(p, brokers{limit: 500}, progress.Limit{Units: 2000}, 1990, 0, progress.Fronta)
	if found.Units > 500 || found.Units < 450 || found.ASCII || stored == "" || sent > 15 {
		t.Errorf("found %+v after %d commits", found, sent)
	}
	// What is known to be taken shortens the search.
	p = scattered(800)
	_, _, long, _ := searched(p, brokers{limit: 500}, progress.Limit{Units: 4096}, 0, 0, progress.Fronta)
	_, _, short, _ := searched(p, brokers{limit: 500}, progress.Limit{Units: 4096}, 480, 0, progress.Fronta)
	if short >= long {
		t.Errorf("%d commits with a lower bound, %d without", short, long)
	}
	// Of formats without a wide form there is only the length to find.
	for _, format := range []progress.Format{progress.AtleonV1, progress.ParallelConsumer} {
		exact := scattered(9_000)
		exact.Segments[0].Order = "unordered"
		found, stored, sent, _ = searched(exact, brokers{limit: 500, inBytes: true}, progress.Limit{Units: 4096}, 0, 0, format)
		if found.Units > 500 || len(stored) > 500 || len(stored) < 300 || sent > 15 {
			t.Errorf("%s: found %+v, stored %d, after %d commits", format, found, len(stored), sent)
		}
	}
}

// Brokers that refuse even an empty text don't mean its length.
func TestSearchIsHopeless(t *testing.T) {
	t.Parallel()
	if _, stored, sent, hopeless := searched(scattered(300), brokers{limit: -1}, progress.Limit{Units: 4096}, 0, 0, progress.Fronta); !hopeless || stored != "" || sent > 12 {
		t.Errorf("hopeless: %v, after %d commits", hopeless, sent)
	}
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit  progress.Limit
		format progress.Format
		want   int
	}{
		{progress.Limit{Units: 4096}, progress.Fronta, 7680},
		{progress.Limit{Units: 4096, ASCII: true}, progress.Fronta, 3071},
		{progress.Limit{Units: 4096}, progress.AtleonV1, 3071},
		{progress.Limit{Units: 4096}, progress.ParallelConsumer, 3071},
		{progress.Limit{}, progress.Fronta, 0},
		{progress.Limit{Units: 40}, progress.Fronta, 0},
	} {
		if got := capacityOf(c.limit, c.format); got != c.want {
			t.Errorf("%+v, %s: %d, want %d", c.limit, c.format, got, c.want)
		}
	}
	if n := capacityOf(progress.Limit{Units: 512}, progress.Fronta); n < 500 {
		t.Errorf("512 units: %d", n)
	}
}
