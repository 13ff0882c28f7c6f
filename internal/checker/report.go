package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A report is a plain value that shares nothing with its checker. The same events give the same report, byte for byte:
// violations are sorted by partition and then by the time they were noticed, losses last.

// Kind says what sort of rule a [Violation] broke.
type Kind string

const (
	// KindLost is a record that never ended (P-1).
	KindLost Kind = "lost"
	// KindCommit is a commit past a record that had not ended (P-1).
	KindCommit Kind = "commit"
	// KindRegression is a commit below an earlier one (P-3).
	KindRegression Kind = "regression"
	// KindOrder is a start before an earlier record of the lane had ended, or after a later one (P-2).
	KindOrder Kind = "order"
	// KindOverlap is a start while the record itself or another of its lane was running (P-2).
	KindOverlap Kind = "overlap"
	// KindFence is a start with a fence that should not exist (P-2).
	KindFence Kind = "fence"
	// KindRepeat is a start of a finished record that nothing excuses (P-3).
	KindRepeat Kind = "repeat"
	// KindHistory is an event that cannot have happened, like the end of an attempt that never started: the queue or
	// whoever reports its events is wrong. It belongs to no promise.
	KindHistory Kind = "history"
)

// Promise returns the promise a violation of this kind breaks: "P-1", "P-2", "P-3", or "history".
func (k Kind) Promise() string {
	switch k {
	case KindLost, KindCommit:
		return "P-1"
	case KindOrder, KindOverlap, KindFence:
		return "P-2"
	case KindRegression, KindRepeat:
		return "P-3"
	default:
		return "history"
	}
}

// Violation is one breach of a promise.
type Violation struct {
	Promise   string    `json:"promise"` // "P-1", "P-2", "P-3" or "history"
	Kind      Kind      `json:"kind"`
	Partition Partition `json:"partition"`
	Offset    int64     `json:"offset"`          // the record that broke it; for a regression, the offset committed; -1 if none
	Lane      string    `json:"lane,omitempty"`  // empty: the record is a lane of its own, or its lane is not known
	Owner     string    `json:"owner,omitempty"` // who did it, if anybody did
	Detail    string    `json:"detail"`          // a sentence
}

// String returns the violation on one line.
func (v Violation) String() string {
	var b strings.Builder
	if v.Promise != string(v.Kind) {
		b.WriteString(v.Promise + " ")
	}
	b.WriteString(string(v.Kind) + ": ")
	if v.Partition.Topic != "" {
		fmt.Fprintf(&b, "%s offset %d", v.Partition, v.Offset)
		if v.Lane != "" {
			fmt.Fprintf(&b, " lane %q", v.Lane)
		}
		b.WriteString(": ")
	}
	b.WriteString(v.Detail)
	return b.String()
}

// Report is what a checker knows. All numbers are counts.
type Report struct {
	// Final says that the run is over: Finish made this report, and Lost is known.
	Final bool `json:"final"`

	Partitions int   `json:"partitions"`
	Produced   int64 `json:"produced"`
	Unproduced int64 `json:"unproduced"` // records seen in handlers or dead letters whose Produced is missing
	Handled    int64 `json:"handled"`    // distinct records that ended: accepted, dead-lettered or discarded
	Attempts   int64 `json:"attempts"`   // starts
	Running    int64 `json:"running"`    // attempts that have not ended, zombies included, the dead not

	MaxDelivery int64            `json:"max_delivery"` // highest delivery count given to a handler
	Results     map[string]int64 `json:"results"`      // attempts that ended, by result

	// Repeated counts starts of finished records; further attempts of the same repeat are not counted. Repeats splits
	// them by what became of the owner before: "killed", "lost", "revoked", "takeover" (the old one had not been
	// reported gone yet), "live" (it still held the partition), "same owner", "reset", "dead letter" (a dead letter of an
	// earlier owner was seen late), "unknown" (nobody was seen to run it).
	Repeated int64            `json:"repeated"`
	Repeats  map[string]int64 `json:"repeats"`

	DeadLetters          map[string]int64 `json:"dead_letters"` // distinct records, by the reason seen first
	DuplicateDeadLetters int64            `json:"duplicate_dead_letters"`
	Discards             map[string]int64 `json:"discards"` // by reason
	Skipped              int64            `json:"skipped"`  // unfinished records that a Reset jumped over

	// What a zombie may do.
	Overlaps     int64 `json:"overlaps"`      // pairs of attempts in one lane, one of them a zombie's
	ZombieStarts int64 `json:"zombie_starts"` // starts by an owner that had been replaced
	LateSettles  int64 `json:"late_settles"`  // outcomes that came after the partition was gone
	LateCommits  int64 `json:"late_commits"`  // lower commits reported by owners that were lost or killed

	// Violations by kind. Any of them makes OK false.
	Lost              int64 `json:"lost"`
	CommitViolations  int64 `json:"commit_violations"`
	CommitRegressions int64 `json:"commit_regressions"`
	OrderViolations   int64 `json:"order_violations"` // KindOrder and KindOverlap
	FenceViolations   int64 `json:"fence_violations"`
	RepeatViolations  int64 `json:"repeat_violations"`
	HistoryViolations int64 `json:"history_violations"`

	// Suspects counts what may still turn into a violation: a record passed whose dead letter has not been seen, an
	// overlap with an owner that has not been reported lost. Zero in a final report, where they are violations.
	Suspects int64 `json:"suspects"`

	// Violations lists the first of them, at most Options.MaxViolations.
	Violations []Violation `json:"violations"`
}

// OK says that no promise was broken. Before the run is finished it can only speak for what has happened so far.
func (r Report) OK() bool { return r.violationCount() == 0 }

func (r Report) violationCount() int64 {
	return r.Lost + r.CommitViolations + r.CommitRegressions + r.OrderViolations + r.FenceViolations +
		r.RepeatViolations + r.HistoryViolations
}

// String returns the report as lines of text, without a newline at the end.
func (r Report) String() string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-18s", name)
		fmt.Fprintf(&b, format, args...)
		b.WriteByte('\n')
	}
	line("produced", "%d", r.Produced)
	line("handled", "%d (attempts %d, running %d)", r.Handled, r.Attempts, r.Running)
	line("repeated", "%d%s", r.Repeated, reasons(r.Repeats))
	line("dead letters", "%d%s", sum(r.DeadLetters), reasons(r.DeadLetters))
	if n := sum(r.Discards); n > 0 {
		line("discarded", "%d%s", n, reasons(r.Discards))
	}
	for _, extra := range []struct {
		name  string
		count int64
	}{
		{"unproduced", r.Unproduced},
		{"duplicate letters", r.DuplicateDeadLetters},
		{"skipped", r.Skipped},
		{"overlaps", r.Overlaps},
		{"zombie starts", r.ZombieStarts},
		{"late settles", r.LateSettles},
		{"late commits", r.LateCommits},
		{"suspects", r.Suspects},
	} {
		if extra.count > 0 {
			line(extra.name, "%d", extra.count)
		}
	}
	if r.Final {
		line("lost", "%d", r.Lost)
	} else {
		line("lost", "not known yet")
	}
	line("order violations", "%d (fences %d)", r.OrderViolations, r.FenceViolations)
	line("bad commits", "%d (regressions %d)", r.CommitViolations, r.CommitRegressions)
	line("bad repeats", "%d", r.RepeatViolations)
	if r.HistoryViolations > 0 {
		line("bad history", "%d", r.HistoryViolations)
	}
	for _, v := range r.Violations {
		b.WriteString(v.String())
		b.WriteByte('\n')
	}
	if more := r.violationCount() - int64(len(r.Violations)); more > 0 && len(r.Violations) > 0 {
		fmt.Fprintf(&b, "and %d more\n", more)
	}
	switch {
	case !r.OK():
		b.WriteString("PROMISES BROKEN")
	case r.Final:
		b.WriteString("all promises kept")
	default:
		b.WriteString("no promise broken so far")
	}
	return b.String()
}

func sum(counts map[string]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// reasons formats counts as " (a 1, b 2)", sorted by name.
func reasons(counts map[string]int64) string {
	if len(counts) == 0 {
		return ""
	}
	parts := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		shown := name
		if shown == "" {
			shown = "no reason"
		}
		parts = append(parts, fmt.Sprintf("%s %d", shown, counts[name]))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// Report returns what is known now. It costs time by the number of partitions, not of records. It does not look for lost
// records, and leaves suspects open.
func (c *Checker) Report() Report { return c.report(false) }

// Finish returns the report of a run that is over: every record must have ended, and what was only suspected counts. It
// changes nothing: a run may go on after it, and be finished again.
func (c *Checker) Finish() Report { return c.report(true) }

func (c *Checker) report(final bool) Report {
	states := slices.Collect(maps.Values(*c.partitions.Load()))
	slices.SortFunc(states, func(a, b *partition) int {
		return cmp.Or(strings.Compare(a.id.Topic, b.id.Topic), cmp.Compare(a.id.Partition, b.id.Partition))
	})
	r := Report{
		Final:       final,
		Partitions:  len(states),
		Results:     map[string]int64{},
		Repeats:     map[string]int64{},
		DeadLetters: map[string]int64{},
		Discards:    map[string]int64{},
		Violations:  []Violation{},
	}
	for _, s := range states {
		s.mu.Lock()
		s.addTo(&r, final)
		s.mu.Unlock()
	}
	if limit := max(c.opts.MaxRepeats, 0); final && c.opts.MaxRepeats != 0 && r.Repeated > int64(limit) {
		r.count(KindRepeat, 1)
		r.Violations = append(r.Violations, Violation{
			Promise: KindRepeat.Promise(), Kind: KindRepeat, Offset: -1,
			Detail: fmt.Sprintf("repeats in the whole run: %d, allowed: %d", r.Repeated, limit),
		})
	}
	if len(r.Violations) > c.opts.MaxViolations {
		r.Violations = r.Violations[:c.opts.MaxViolations:c.opts.MaxViolations]
	}
	return r
}

// count adds n violations of a kind.
func (r *Report) count(kind Kind, n int64) {
	switch kind {
	case KindLost:
		r.Lost += n
	case KindCommit:
		r.CommitViolations += n
	case KindRegression:
		r.CommitRegressions += n
	case KindOrder, KindOverlap:
		r.OrderViolations += n
	case KindFence:
		r.FenceViolations += n
	case KindRepeat:
		r.RepeatViolations += n
	default:
		r.HistoryViolations += n
	}
}
