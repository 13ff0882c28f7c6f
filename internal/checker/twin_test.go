package checker_test

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fronta-mq/fronta/internal/checker"
)

// The twin knows one partition's rules with hindsight. It keeps every event, searches lists, and decides at the end what
// the checker has to keep as suspicions: whether a dead letter was ever seen and whether an owner was ever lost. Resets
// are left to TestPromises.

type twinRecord struct {
	offset                int64
	produced, firstStart  int // event numbers; 0 is never
	done, lastDone        int
	letter                bool
	lane                  string
	seen, accepted        bool
	reopened, moved       bool
	term                  int
	commitNoted, commitOK bool // a commit passed it unfinished; no letter can excuse that if !commitOK
}

type twinTerm struct {
	owner, standing string
	dead, fenced    bool
	fence           int64
	closed          bool
	covered         int
	kinds           map[string]int // what is suspected: excused if the owner is lost or killed in the end
}

type twinRun struct {
	offset int64
	term   int
}

type twinStart struct {
	at, term  int
	offset    int64
	lane      string // empty if not known or the record's own
	overlaps  bool
	laneKnown bool
}

type twin struct {
	opts      checker.Options
	now       int
	records   map[int64]*twinRecord
	terms     []*twinTerm // [0] unused
	running   []twinRun
	starts    []twinStart // in good standing
	killed    map[string]bool
	committed int64
	mark      int
	commitAt  int
	covered   int
	highFence int64
	highTerm  int
	report    checker.Report
}

func newTwin(opts checker.Options) *twin {
	return &twin{
		opts: opts, records: map[int64]*twinRecord{}, killed: map[string]bool{},
		terms: []*twinTerm{{}},
		report: checker.Report{
			Partitions: 1, Final: true,
			Results: map[string]int64{}, Repeats: map[string]int64{}, DeadLetters: map[string]int64{}, Discards: map[string]int64{},
		},
	}
}

func (w *twin) record(offset int64) *twinRecord {
	r := w.records[offset]
	if r == nil {
		r = &twinRecord{offset: offset}
		w.records[offset] = r
	}
	return r
}

func (w *twin) termOf(owner string) int {
	for i := len(w.terms) - 1; i > 0; i-- {
		if w.terms[i].owner == owner {
			return i
		}
	}
	return 0
}

func (w *twin) newTerm(owner string) int {
	w.terms = append(w.terms, &twinTerm{owner: owner, standing: "live", fence: math.MinInt64, kinds: map[string]int{}})
	return len(w.terms) - 1
}

func (w *twin) good(i int) bool {
	t := w.terms[i]
	return t.standing == "live" && !(w.highTerm != 0 && t.fenced && t.fence < w.highFence)
}

func (w *twin) runsGood(offset int64) bool {
	return slices.ContainsFunc(w.running, func(r twinRun) bool { return r.offset == offset && w.good(r.term) })
}

func (w *twin) close(i int) {
	if t := w.terms[i]; !t.closed {
		t.closed, t.covered = true, w.covered
	}
}

func (w *twin) noteCommit(r *twinRecord, definite bool) {
	if r.done != 0 || r.commitNoted && !definite {
		return
	}
	if !r.commitNoted || definite {
		r.commitNoted = true
		r.commitOK = !definite
	}
}

func (w *twin) produce(offset int64, lane string) {
	w.now++
	r := w.record(offset)
	if r.produced != 0 {
		if r.lane != lane {
			w.report.HistoryViolations++
		}
		return
	}
	r.seen, r.produced, r.lane = true, w.now, lane
	w.report.Produced++
	if offset < w.committed {
		w.noteCommit(r, false)
	}
}

func (w *twin) assign(owner string) {
	w.now++
	if i := w.termOf(owner); i != 0 && w.terms[i].standing == "live" {
		return
	}
	if w.killed[owner] {
		w.report.HistoryViolations++
		return
	}
	w.newTerm(owner)
}

func (w *twin) start(owner string, offset, fence int64) {
	w.now++
	w.report.Attempts++
	w.report.MaxDelivery = 1
	r := w.record(offset)
	r.seen = true
	i := w.termOf(owner)
	if w.killed[owner] {
		w.report.HistoryViolations++
		return
	}
	if i == 0 || w.terms[i].standing != "live" && fence > w.terms[i].fence {
		i = w.newTerm(owner)
	}
	t := w.terms[i]
	zombie := t.standing != "live"
	if t.standing == "revoked" {
		w.report.FenceViolations++
	}
	if t.standing == "live" {
		first := !t.fenced
		t.fenced, t.fence = true, max(t.fence, fence)
		switch {
		case w.highTerm == 0 || fence > w.highFence:
			if i != w.highTerm {
				for k := 1; k < len(w.terms); k++ {
					if k != i {
						w.close(k)
					}
				}
			}
			w.highFence, w.highTerm = fence, i
		case fence < w.highFence && i == w.highTerm:
			w.report.FenceViolations++
		case fence < w.highFence:
			t.kinds["fence"]++
			zombie = true
		case first && w.opts.FencesRise && w.terms[w.highTerm].owner != owner:
			w.report.FenceViolations++
		}
	}

	laneKnown := r.produced != 0 && r.lane != ""
	overlaps := false
	for _, run := range w.running {
		other := w.records[run.offset]
		same := run.offset == offset || laneKnown && other.produced != 0 && other.lane == r.lane
		u := w.terms[run.term]
		switch {
		case !same:
		case zombie:
			if run.term != i && w.good(run.term) {
				w.report.Overlaps++
			}
		case u.standing == "lost":
			w.report.Overlaps++
		case u.standing == "live" && run.term != i && u.fence < t.fence:
			u.kinds["overlap"]++
		default:
			w.report.OrderViolations++
			overlaps = true
		}
	}
	if zombie {
		w.report.ZombieStarts++
		if offset < w.committed {
			w.noteCommit(r, false)
		}
		w.running = append(w.running, twinRun{offset, i})
		return
	}

	if laneKnown && !overlaps {
		for _, s := range slices.Backward(w.starts) {
			if s.laneKnown && s.lane == r.lane {
				if s.term == i && s.offset > offset {
					w.report.OrderViolations++
				}
				break
			}
		}
	}
	if r.done != 0 && !r.reopened {
		w.repeat(i, r)
		r.reopened = true
	}
	r.moved = r.moved || r.term != 0 && r.term != i
	r.term = i
	if r.firstStart == 0 {
		r.firstStart = w.now
	}
	if offset < w.committed {
		w.noteCommit(r, true)
	}
	lane := ""
	if laneKnown {
		lane = r.lane
	}
	w.starts = append(w.starts, twinStart{at: w.now, term: i, offset: offset, lane: lane, laneKnown: laneKnown, overlaps: overlaps})
	w.running = append(w.running, twinRun{offset, i})
}

func (w *twin) repeat(i int, r *twinRecord) {
	before := w.terms[r.term]
	reason, bad := before.standing, r.offset < w.committed
	switch {
	case r.term == 0:
		reason = "unknown"
	case r.term == i && r.moved && !r.accepted && !w.opts.PromptDeadLetters:
		reason = "dead letter"
	case r.term == i:
		reason, bad = "same owner", true
	case before.standing == "live" && before.fence < w.terms[i].fence:
		reason = "takeover"
		if !bad {
			before.kinds["repeat"]++
		}
	case before.standing == "live":
		bad = true
	case before.standing == "revoked":
		bad = bad || w.opts.Progress == checker.Exact
	default:
		bad = bad || w.opts.Progress == checker.Exact && r.lastDone <= before.covered
	}
	w.report.Repeated++
	w.report.Repeats[reason]++
	if bad {
		w.report.RepeatViolations++
	}
}

func (w *twin) finish(r *twinRecord) {
	switch {
	case r.done == 0:
		r.done, r.lastDone = w.now, w.now
		w.report.Handled++
	case r.reopened:
		r.reopened, r.lastDone = false, w.now
	}
}

func (w *twin) end(owner string, offset int64, result checker.Result) {
	w.now++
	settles := result == checker.Accepted || result == checker.RejectedPending
	found := -1
	for k, run := range w.running {
		if run.offset == offset && w.terms[run.term].owner == owner && (found < 0 || run.term > w.running[found].term) {
			found = k
		}
	}
	if found < 0 {
		switch i := w.termOf(owner); {
		case i == 0 || !w.terms[i].dead:
			w.report.HistoryViolations++
		case settles:
			w.report.LateSettles++
		}
		return
	}
	i := w.running[found].term
	w.running = slices.Delete(w.running, found, found+1)
	w.report.Results[result.String()]++
	r := w.records[offset]
	switch {
	case !w.good(i):
		if settles {
			w.report.LateSettles++
		}
	case result == checker.Accepted:
		r.accepted = true
		w.finish(r)
	case result == checker.RejectedPending && r.letter:
		w.finish(r)
	}
}

func (w *twin) deadLetter(offset int64) {
	w.now++
	r := w.record(offset)
	r.seen = true
	if r.letter {
		w.report.DuplicateDeadLetters++
	} else {
		w.report.DeadLetters["r"]++
	}
	r.letter = true
	again := r.moved && !w.opts.PromptDeadLetters && w.runsGood(offset)
	if first := r.done == 0; first || !again {
		w.finish(r)
		r.reopened = first && again
	}
}

func (w *twin) commit(owner string, offset int64) {
	w.now++
	if offset < w.committed {
		i := w.termOf(owner)
		switch t := w.terms[i]; {
		case i != 0 && (t.standing == "lost" || t.standing == "killed"):
			w.report.LateCommits++
			return
		case i != 0 && t.standing == "live" && !w.good(i):
			t.kinds["regression"]++
			return
		}
		w.report.CommitRegressions++
	}
	for at := w.committed; at < offset; at++ {
		r := w.records[at]
		switch {
		case r == nil || !r.seen:
		case r.done != 0:
			if r.reopened && w.runsGood(at) {
				w.report.CommitViolations++
			}
		case !r.commitNoted:
			w.noteCommit(r, w.runsGood(at))
		}
	}
	w.committed = offset
	if owner == "" {
		return
	}
	w.covered = w.commitAt
	if w.mark != 0 {
		w.covered, w.mark = w.mark, 0
	}
	w.commitAt = w.now
}

func (w *twin) leave(owner, standing string) {
	w.now++
	if i := w.termOf(owner); i != 0 && w.terms[i].standing == "live" {
		w.close(i)
		w.terms[i].standing = standing
	}
}

func (w *twin) kill(owner string) {
	w.now++
	w.killed[owner] = true
	for i, t := range w.terms {
		if t.owner != owner || i == 0 {
			continue
		}
		t.dead = true
		if t.standing == "live" {
			w.close(i)
			t.standing = "killed"
		}
		w.running = slices.DeleteFunc(w.running, func(r twinRun) bool { return r.term == i })
	}
}

// passes says that q was known and unfinished when a record of its lane started, and nothing excuses it.
func (w *twin) passes(q *twinRecord, lane string, offset int64, started int) bool {
	return q.lane == lane && q.offset < offset && (q.done == 0 || q.done > started) && (w.opts.PromptDeadLetters || !q.letter)
}

func (w *twin) finished() checker.Report {
	r := w.report
	for _, t := range w.terms[1:] {
		if t.standing == "lost" || t.standing == "killed" {
			r.Overlaps += int64(t.kinds["overlap"])
			r.LateCommits += int64(t.kinds["regression"])
			continue
		}
		r.OrderViolations += int64(t.kinds["overlap"])
		r.FenceViolations += int64(t.kinds["fence"])
		r.RepeatViolations += int64(t.kinds["repeat"])
		r.CommitRegressions += int64(t.kinds["regression"])
	}
	count := func(broken bool) {
		if broken {
			r.OrderViolations++
		}
	}
	for _, s := range w.starts {
		if !s.laneKnown || s.overlaps {
			continue
		}
		broken := false
		for _, q := range w.records {
			broken = broken || q.produced != 0 && q.produced < s.at && w.passes(q, s.lane, s.offset, s.at)
		}
		count(broken)
	}
	for _, s := range w.records {
		if s.produced == 0 || s.lane == "" || s.firstStart == 0 {
			continue
		}
		late := false
		for _, q := range w.records {
			switch {
			case q.produced == 0 || q.produced < s.firstStart && s.produced < s.firstStart:
			case q.produced < s.produced: // its lane was known last
				late = late || w.passes(q, s.lane, s.offset, s.firstStart)
			case q.produced > s.produced: // the earlier record's lane was known last
				count(w.passes(q, s.lane, s.offset, s.firstStart))
			}
		}
		count(late)
	}
	for _, q := range w.records {
		if q.commitNoted && (!q.commitOK || w.opts.PromptDeadLetters || !q.letter) {
			r.CommitViolations++
		}
		if q.seen && q.done == 0 {
			r.Lost++
		}
		if q.seen && q.produced == 0 {
			r.Unproduced++
		}
	}
	r.Running = int64(len(w.running))
	return r
}

type twinEvent struct {
	Kind   string
	Owner  string
	Offset int64
	Lane   string
	Fence  int64 // of a start; from 5 on: the highest until then, from 8 on: a higher one
	Result checker.Result
	Choice int // which running attempt ends; none for 0
}

var twinEvents = rapid.Custom(func(t *rapid.T) twinEvent {
	e := twinEvent{
		Kind: rapid.SampledFrom([]string{
			"produced", "produced", "produced", "produced", "produced", "started", "started", "started", "started",
			"started", "started", "ended", "ended", "ended", "ended", "ended", "letter", "committing", "committed",
			"committed", "lost", "revoked", "assigned", "killed",
		}).Draw(t, "kind"),
		Owner:  rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "owner"),
		Offset: rapid.Int64Range(0, 7).Draw(t, "offset"),
	}
	switch e.Kind {
	case "produced":
		e.Lane = rapid.SampledFrom([]string{"a", "a", "a", "b", ""}).Draw(t, "lane")
	case "started":
		e.Fence = rapid.Int64Range(1, 9).Draw(t, "fence")
	case "ended":
		e.Choice = rapid.IntRange(0, 6).Draw(t, "choice")
		e.Result = rapid.SampledFrom([]checker.Result{
			checker.Accepted, checker.Accepted, checker.Failed, checker.Snoozed, checker.RejectedPending,
		}).Draw(t, "result")
	case "committed":
		if rapid.Bool().Draw(t, "observer") {
			e.Owner = ""
		}
	}
	return e
})

// tell tells an event to the checker and its twin.
func (e twinEvent) tell(h run, w *twin, stretch int64) {
	if e.Kind == "ended" && e.Choice > 0 && len(w.running) > 0 {
		run := w.running[e.Choice%len(w.running)]
		e.Owner, e.Offset = w.terms[run.term].owner, run.offset
	}
	if e.Fence >= 8 {
		e.Fence = w.highFence + 1
	} else if e.Fence >= 5 {
		e.Fence = w.highFence
	}
	offset := e.Offset * stretch
	switch e.Kind {
	case "produced":
		h.Produced(orders, offset, e.Lane)
		w.produce(e.Offset, e.Lane)
	case "started":
		h.start(e.Owner, e.Fence, offset)
		w.start(e.Owner, e.Offset, e.Fence)
	case "ended":
		h.Ended(e.Owner, orders, offset, e.Result)
		w.end(e.Owner, e.Offset, e.Result)
	case "letter":
		h.DeadLettered(orders, offset, "r")
		w.deadLetter(e.Offset)
	case "committing":
		h.Committing(e.Owner, orders)
		w.now++
		w.mark = w.now
	case "committed":
		h.Committed(e.Owner, orders, offset)
		w.commit(e.Owner, e.Offset)
	case "lost":
		h.Lost(e.Owner, orders)
		w.leave(e.Owner, "lost")
	case "revoked":
		h.Revoked(e.Owner, orders)
		w.leave(e.Owner, "revoked")
	case "assigned":
		h.Assigned(e.Owner, orders)
		w.assign(e.Owner)
	case "killed":
		h.Killed(e.Owner)
		w.kill(e.Owner)
	}
}

// TestMain makes rapid try more histories than its default of 100, unless -rapid.checks says how many.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		checks := "5000"
		if testing.Short() {
			checks = "500"
		}
		if err := flag.Set("rapid.checks", checks); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestTwin compares the checker with its twin on random histories, most of which break something.
func TestTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		opts := checker.Options{
			Progress:          rapid.SampledFrom([]checker.Progress{checker.PlainOffsets, checker.Exact}).Draw(t, "progress"),
			PromptDeadLetters: rapid.Bool().Draw(t, "prompt"),
			FencesRise:        rapid.Bool().Draw(t, "rise"),
		}
		h, w := newRun(opts), newTwin(opts)
		// Far apart for the checker, so that page borders and gaps are met.
		stretch := rapid.SampledFrom([]int64{1, 63, 1000}).Draw(t, "stretch")
		// With few offsets a history says much of each.
		few := rapid.SampledFrom([]int64{1, 2, 4, 8}).Draw(t, "offsets")
		for _, e := range rapid.SliceOfN(twinEvents, 10, 70).Draw(t, "events") {
			e.Offset %= few
			e.tell(h, w, stretch)
		}
		w.compare(t, h)
	})
}

// TestTwinLateLanes compares them on one lane of some length whose records are started and produced nearly in order, so
// that many are started before their lane is known.
func TestTwinLateLanes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type timed struct {
			twinEvent
			time int
		}
		opts := checker.Options{PromptDeadLetters: rapid.Bool().Draw(t, "prompt")}
		h, w := newRun(opts), newTwin(opts)
		disorder := rapid.SampledFrom([]int{0, 1, 5, 20}).Draw(t, "disorder")
		jitter := func(most int, label string) int { return rapid.IntRange(0, most).Draw(t, label) }
		var events []timed
		for offset := range rapid.Int64Range(2, 24).Draw(t, "records") {
			at := int(offset) * 3
			start := at + jitter(disorder/5, "start")
			events = append(events,
				timed{twinEvent{Kind: "produced", Offset: offset, Lane: "a"}, at + jitter(disorder, "produced")},
				timed{twinEvent{Kind: "started", Offset: offset, Owner: "x", Fence: 1}, start},
				timed{twinEvent{Kind: "ended", Offset: offset, Owner: "x", Result: checker.Accepted}, start + jitter(3, "end")},
			)
		}
		slices.SortStableFunc(events, func(a, b timed) int { return cmp.Compare(a.time, b.time) })
		for _, e := range events {
			e.tell(h, w, 1)
		}
		w.compare(t, h)
	})
}

// compare fails if the checker's final report is not the twin's.
func (w *twin) compare(t *rapid.T, h run) {
	got, want := h.Finish(), w.finished()
	if len(got.Violations) > 0 && got.OK() {
		t.Fatalf("violations but OK:\n%s", got)
	}
	if !slices.IsSortedFunc(got.Violations, func(a, b checker.Violation) int {
		return cmp.Compare(fmt.Sprint(a.Kind == checker.KindLost), fmt.Sprint(b.Kind == checker.KindLost))
	}) {
		t.Fatalf("losses are not last:\n%s", got)
	}
	violations := got.Violations
	got.Violations, got.Partitions = nil, 1
	if diff := gocmp.Diff(want, got); diff != "" {
		for _, v := range violations {
			t.Log(v)
		}
		t.Fatalf("report (-twin +checker):\n%s", diff)
	}
}
