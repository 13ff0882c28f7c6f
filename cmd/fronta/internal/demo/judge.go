package demo

// The verdict. judge is a pure function of what was found, so that tests can show it what must not happen.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/checker"
)

// findings are what the run has left behind.
type findings struct {
	records    int // to produce
	customers  int
	produced   int64
	expect     map[int]deadletter.Reason // by order
	letters    []DeadLetter
	partitions []Partition
	members    []Member
	report     checker.Report
}

// Summary is the verdict.
type Summary struct {
	OK              bool                `json:"ok"`
	Cluster         string              `json:"cluster"`
	Seconds         float64             `json:"seconds"`
	Customers       int                 `json:"customers"`
	Produced        int64               `json:"produced"`
	Handled         int64               `json:"handled"`  // distinct records that ended, dead letters included
	Attempts        int64               `json:"attempts"` // calls of the handler
	Failed          int64               `json:"failed"`   // attempts that failed, dead letters' included
	Repeated        int64               `json:"repeated"` // records handled again after they had been finished
	OrderViolations int64               `json:"order_violations"`
	Lost            int64               `json:"lost"`
	Lag             int64               `json:"lag"`
	DeadLetters     []DeadLetter        `json:"dead_letters"`
	Partitions      []Partition         `json:"partitions"`
	Members         []Member            `json:"members"`
	Checks          []Check             `json:"checks"`
	Violations      []checker.Violation `json:"violations"`
}

// DeadLetter is one as it was read back from the dead-letter topic.
type DeadLetter struct {
	Partition     int32             `json:"partition"` // of the orders' topic
	Offset        int64             `json:"offset"`
	Key           string            `json:"key"`
	Order         int               `json:"order"`
	Reason        deadletter.Reason `json:"reason"`
	Error         string            `json:"error"` // its first line
	DeliveryCount int               `json:"delivery_count"`
}

// Partition is where a partition of the orders' topic and the group ended.
type Partition struct {
	Partition int32 `json:"partition"`
	End       int64 `json:"end"`
	Committed int64 `json:"committed"` // -1: nothing is committed
}

// Lag is how many offsets lie between what is committed and the end; below 0 when more is committed than there is.
func (p Partition) Lag() int64 { return p.End - max(p.Committed, 0) }

// Member is one consumer.
type Member struct {
	Name        string `json:"name"`
	Handled     int64  `json:"handled"`     // records it accepted
	Assignments int64  `json:"assignments"` // times it was assigned partitions
}

// Check is one promise and whether it was kept.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Note string `json:"note,omitempty"` // what was wrong
}

func judge(f findings) *Summary {
	r := f.report
	s := &Summary{
		OK: true, Customers: f.customers,
		Produced: f.produced, Handled: r.Handled, Attempts: r.Attempts, Failed: r.Results[checker.Failed.String()],
		Repeated: r.Repeated, OrderViolations: r.OrderViolations + r.FenceViolations, Lost: r.Lost,
		DeadLetters: f.letters, Partitions: f.partitions, Members: f.members, Violations: r.Violations,
	}
	check := func(name string, ok bool, format string, args ...any) {
		c := Check{Name: name, OK: ok}
		if !ok {
			s.OK = false
			c.Note = fmt.Sprintf(format, args...)
		}
		s.Checks = append(s.Checks, c)
	}
	check("every order was produced", f.produced == int64(f.records) && r.Produced == f.produced,
		"%d orders, %d acknowledged, %d known to the checker", f.records, f.produced, r.Produced)
	check("no order was lost", r.Lost == 0 && r.Handled == f.produced && r.Unproduced == 0 && r.Running == 0,
		"%d lost, %d of %d handled, %d never produced, %d still running", r.Lost, r.Handled, f.produced, r.Unproduced, r.Running)
	check("the orders of a customer ran one after another", s.OrderViolations == 0,
		"%d records started too early or under an old fence", s.OrderViolations)
	check("no commit passed an unfinished order", r.CommitViolations+r.CommitRegressions == 0,
		"%d commits passed one, %d went back", r.CommitViolations, r.CommitRegressions)
	check("nothing that was finished ran again", r.RepeatViolations == 0, "%d records ran again without need", r.RepeatViolations)
	check("the history makes sense", r.HistoryViolations == 0, "%d events that cannot have happened", r.HistoryViolations)
	wrong := wrongLetters(f.expect, f.letters)
	check("the dead-letter topic has what had to be given up, and nothing else", wrong == "", "%s", wrong)
	apart := 0
	for _, p := range f.partitions {
		s.Lag += max(p.Lag(), 0)
		if p.Lag() != 0 {
			apart++
		}
	}
	check("everything is committed", apart == 0 && len(f.partitions) > 0,
		"of %d partitions %d are committed at another offset than their end; the lag is %d", len(f.partitions), apart, s.Lag)
	idle := slices.DeleteFunc(slices.Clone(f.members), func(m Member) bool { return m.Handled > 0 })
	check("both members took part", len(f.members) == 2 && len(idle) == 0, "%d members, of which %d handled nothing", len(f.members), len(idle))
	return s
}

// wrongLetters says how the dead letters differ from what had to be given up. A dead letter may be there twice: it is
// written again when its writer's partition leaves before its offset is committed.
func wrongLetters(expect map[int]deadletter.Reason, letters []DeadLetter) string {
	seen := make(map[int]bool)
	for _, l := range letters {
		want, ok := expect[l.Order]
		if !ok {
			return fmt.Sprintf("order %d of %s was given up: %s, %s", l.Order, l.Key, l.Reason, l.Error)
		}
		if want != l.Reason {
			return fmt.Sprintf("order %d was given up as %q instead of %q", l.Order, l.Reason, want)
		}
		seen[l.Order] = true
	}
	for _, id := range slices.Sorted(maps.Keys(expect)) {
		if !seen[id] {
			return fmt.Sprintf("order %d is not there (%s)", id, expect[id])
		}
	}
	return ""
}

// WriteText implements out.Value.
func (s *Summary) WriteText(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-18s%s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintln(w)
	line("produced", "%s orders of %s customers, on %d partitions, in %.1f s", out.Count(s.Produced), out.Count(s.Customers), len(s.Partitions), s.Seconds)
	line("handled", "%s, in %s attempts of which %s failed", out.Count(s.Handled), out.Count(s.Attempts), out.Count(s.Failed))
	for _, m := range s.Members {
		line("", "%s: %s", m.Name, out.Count(m.Handled))
	}
	line("repeated", "%s, finished and handled again", out.Count(s.Repeated))
	line("order violations", "%d", s.OrderViolations)
	line("lost", "%d", s.Lost)
	line("dead letters", "%d", len(s.DeadLetters))
	for _, l := range s.DeadLetters {
		line("", "order %d of %s: %s at delivery %d: %s", l.Order, l.Key, l.Reason, l.DeliveryCount, l.Error)
	}
	line("lag", "%d", s.Lag)
	for _, p := range s.Partitions {
		if p.Lag() != 0 || len(s.Partitions) <= shownPartitions {
			line("", "partition %d: committed %d of %d", p.Partition, max(p.Committed, 0), p.End)
		}
	}
	fmt.Fprintln(w)
	for _, c := range s.Checks {
		if c.OK {
			fmt.Fprintf(w, "ok      %s\n", c.Name)
		} else {
			fmt.Fprintf(w, "BROKEN  %s: %s\n", c.Name, c.Note)
		}
	}
	for _, v := range s.Violations {
		fmt.Fprintf(w, "        %s\n", v)
	}
}

// collectTimeout is how long the cluster has to tell what is left.
const collectTimeout = 30 * time.Second

// collect asks the cluster what is there after the day.
func (d *day) collect(ctx context.Context) (findings, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	f := findings{
		records: d.opts.Records, customers: d.opts.Customers, produced: d.produced, expect: d.plan.expect,
		letters: []DeadLetter{}, partitions: []Partition{},
	}
	for _, m := range d.members {
		f.members = append(f.members, Member{Name: m.name, Handled: m.handled.Load(), Assignments: m.rebalances.Load()})
	}
	ends, err := d.cluster.Admin().ListEndOffsets(ctx, d.topic, d.letters)
	if err = errors.Join(err, ends.Error()); err != nil {
		return f, fmt.Errorf("read the ends of %s and %s: %w", d.topic, d.letters, err)
	}
	committed, err := d.cluster.Admin().FetchOffsets(ctx, d.group)
	if err = errors.Join(err, committed.Error()); err != nil {
		return f, fmt.Errorf("read the offsets of group %s: %w", d.group, err)
	}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Topic != d.topic {
			return
		}
		p := Partition{Partition: o.Partition, End: o.Offset, Committed: -1}
		if c, ok := committed.Lookup(d.topic, o.Partition); ok {
			p.Committed = c.At
			d.check.Committed("", partition(d.topic, o.Partition), c.At)
		}
		f.partitions = append(f.partitions, p)
	})
	slices.SortFunc(f.partitions, func(a, b Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	if f.letters, err = d.readLetters(ctx, ends[d.letters]); err != nil {
		return f, fmt.Errorf("read the dead letters in %s: %w", d.letters, err)
	}
	f.report = d.check.Finish()
	return f, nil
}

// readLetters reads the dead-letter topic from its beginning to ends.
func (d *day) readLetters(ctx context.Context, ends map[int32]kadm.ListedOffset) ([]DeadLetter, error) {
	from, left := make(map[int32]kgo.Offset), make(map[int32]int64)
	for p, end := range ends {
		if end.Offset > 0 {
			from[p], left[p] = kgo.NewOffset().AtStart(), end.Offset
		}
	}
	letters := []DeadLetter{}
	if len(left) == 0 {
		return letters, nil
	}
	client, err := kgo.NewClient(append(d.cluster.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{d.letters: from}))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for r := range fetches.RecordsAll() {
			letter, err := d.letter(r)
			if err != nil {
				return nil, err
			}
			letters = append(letters, letter)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	return letters, nil
}

func (d *day) letter(r *kgo.Record) (DeadLetter, error) {
	l, err := deadletter.Parse(r)
	if err != nil {
		return DeadLetter{}, err
	}
	if l.Origin.Topic != d.topic || l.Group != d.group {
		return DeadLetter{}, fmt.Errorf("offset %d: it comes from topic %q, group %q", r.Offset, l.Origin.Topic, l.Group)
	}
	var o order
	if err := json.Unmarshal(l.Value, &o); err != nil || o.Customer != string(l.Key) {
		return DeadLetter{}, fmt.Errorf("offset %d: key %q and value %q are not those of an order", r.Offset, l.Key, l.Value)
	}
	d.check.DeadLettered(partition(l.Origin.Topic, l.Origin.Partition), l.Origin.Offset, string(l.Reason))
	return DeadLetter{
		Partition: l.Origin.Partition, Offset: l.Origin.Offset, Key: string(l.Key), Order: o.ID,
		Reason: l.Reason, Error: firstLine(l.Error), DeliveryCount: l.DeliveryCount,
	}, nil
}

// firstLine is what a panic's text has before its stack.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
