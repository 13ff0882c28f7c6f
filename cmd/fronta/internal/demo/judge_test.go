package demo

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/checker"
)

// run is a little history: four orders of two customers on one partition, the third of which is given up, told to a
// checker as the demo does, and what the cluster would answer afterwards.
type run struct {
	check    *checker.Checker
	findings findings
}

var orders = checker.Partition{Topic: "orders"}

func (r *run) start(owner string, offset int64, delivery int) {
	r.check.Started(owner, orders, offset, delivery, 1)
}

func (r *run) end(owner string, offset int64, result checker.Result) {
	r.check.Ended(owner, orders, offset, result)
}

// script is the history in steps that a test can replace.
type script map[string]func(*run)

var steps = []string{"produce", "first", "second", "refused", "last", "commit", "letters"}

func kept() script {
	return script{
		"produce": func(r *run) {
			for offset, customer := range []string{"a", "b", "a", "a"} {
				r.check.Produced(orders, int64(offset), customer)
			}
		},
		"first": func(r *run) {
			r.start("member 1", 0, 1)
			r.end("member 1", 0, checker.Failed)
			r.start("member 1", 0, 2)
			r.end("member 1", 0, checker.Accepted)
		},
		"second":  func(r *run) { r.start("member 1", 1, 1); r.end("member 1", 1, checker.Accepted) },
		"refused": func(r *run) { r.start("member 1", 2, 1); r.end("member 1", 2, checker.RejectedPending) },
		"last":    func(r *run) { r.start("member 1", 3, 1); r.end("member 1", 3, checker.Accepted) },
		"commit":  func(r *run) { r.check.Committed("member 1", orders, 4) },
		"letters": func(r *run) { r.check.DeadLettered(orders, 2, "rejected") },
	}
}

// with replaces a step.
func (s script) with(step string, do func(*run)) script {
	s[step] = do
	return s
}

// judge tells the history and gives the verdict. change edits what the cluster answers.
func (s script) judge(change func(*findings)) *Summary {
	r := &run{check: checker.New(checker.Options{}), findings: findings{
		records: 4, customers: 2, produced: 4,
		expect:     map[int]deadletter.Reason{2: deadletter.Rejected},
		letters:    []DeadLetter{{Offset: 2, Key: "a", Order: 2, Reason: deadletter.Rejected}},
		partitions: []Partition{{End: 4, Committed: 4}},
		members:    []Member{{Name: "member 1", Handled: 2}, {Name: "member 2", Handled: 1}},
	}}
	for _, step := range steps {
		s[step](r)
	}
	r.findings.report = r.check.Finish()
	if change != nil {
		change(&r.findings)
	}
	return judge(r.findings)
}

func broken(s *Summary) (names []string) {
	for _, c := range s.Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}

func TestAllPromisesKept(t *testing.T) {
	t.Parallel()
	s := kept().judge(nil)
	if !s.OK || broken(s) != nil || len(s.Violations) > 0 {
		t.Fatalf("broken: %q, %v", broken(s), s.Violations)
	}
	if s.Produced != 4 || s.Handled != 4 || s.Attempts != 5 || s.Failed != 1 || s.Repeated != 0 || s.Lag != 0 {
		t.Errorf("summary %+v", s)
	}
}

func TestABrokenPromiseIsTold(t *testing.T) {
	t.Parallel()
	nothing := func(*run) {}
	for name, c := range map[string]struct {
		script script
		change func(*findings)
		broken string // part of the check's name
	}{
		"never handled":     {kept().with("second", nothing).with("commit", nothing), nil, "no order was lost"},
		"still running":     {kept().with("last", func(r *run) { r.start("member 1", 3, 1) }).with("commit", nothing), nil, "no order was lost"},
		"not in the log":    {kept().with("produce", nothing), nil, "no order was lost"},
		"commit too far":    {kept().with("last", nothing), nil, "no commit passed an unfinished order"},
		"commit goes back":  {kept().with("commit", func(r *run) { r.check.Committed("", orders, 4); r.check.Committed("", orders, 1) }), nil, "no commit passed"},
		"letter not stored": {kept().with("letters", nothing), nil, "no order was lost"},
		"order": {kept().with("first", nothing).with("last", func(r *run) {
			r.start("member 1", 3, 1)
			r.end("member 1", 3, checker.Accepted)
			r.start("member 1", 0, 1)
			r.end("member 1", 0, checker.Accepted)
		}), nil, "one after another"},
		"overlap": {kept().with("last", func(r *run) {
			r.start("member 1", 3, 1)
			r.start("member 2", 3, 1)
			r.end("member 1", 3, checker.Accepted)
			r.end("member 2", 3, checker.Accepted)
		}), nil, "one after another"},
		"repeat without need": {kept().with("last", func(r *run) {
			for range 2 {
				r.start("member 1", 3, 1)
				r.end("member 1", 3, checker.Accepted)
			}
		}), nil, "nothing that was finished ran again"},
		"end without start": {kept().with("second", func(r *run) {
			r.start("member 1", 1, 1)
			r.end("member 1", 1, checker.Accepted)
			r.end("member 1", 1, checker.Accepted)
		}), nil, "the history makes sense"},
		"not produced":       {kept(), func(f *findings) { f.records = 5 }, "every order was produced"},
		"acknowledged twice": {kept(), func(f *findings) { f.produced = 5; f.records = 5 }, "every order was produced"},
		"letter missing":     {kept(), func(f *findings) { f.letters = nil }, "the dead-letter topic has"},
		"letter too many":    {kept(), func(f *findings) { f.letters = append(f.letters, DeadLetter{Order: 1, Reason: deadletter.Deliveries}) }, "the dead-letter topic has"},
		"wrong reason":       {kept(), func(f *findings) { f.letters[0].Reason = deadletter.Deliveries }, "the dead-letter topic has"},
		"lag":                {kept(), func(f *findings) { f.partitions[0].Committed = 3 }, "everything is committed"},
		"nothing committed":  {kept(), func(f *findings) { f.partitions[0].Committed = -1 }, "everything is committed"},
		"no partitions":      {kept(), func(f *findings) { f.partitions = nil }, "everything is committed"},
		"committed too far":  {kept(), func(f *findings) { f.partitions[0].Committed = 5 }, "everything is committed"},
		"lags that cancel":   {kept(), func(f *findings) { f.partitions = []Partition{{End: 4, Committed: 3}, {End: 4, Committed: 5}} }, "everything is committed"},
		"an idle member":     {kept(), func(f *findings) { f.members[1].Handled = 0 }, "both members took part"},
		"one member":         {kept(), func(f *findings) { f.members = f.members[:1] }, "both members took part"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.script.judge(c.change)
			names := broken(s)
			if s.OK || !strings.Contains(strings.Join(names, "\n"), c.broken) {
				t.Fatalf("ok %t, broken %q; want %q", s.OK, names, c.broken)
			}
			var text bytes.Buffer
			s.WriteText(&text)
			if !strings.Contains(text.String(), "BROKEN  ") {
				t.Errorf("the text does not tell:\n%s", text.String())
			}
		})
	}
}

// A dead letter is written again when its writer's partition leaves before the offset is committed.
func TestADeadLetterMayBeThereTwice(t *testing.T) {
	t.Parallel()
	s := kept().judge(func(f *findings) { f.letters = append(f.letters, f.letters[0]) })
	if !s.OK {
		t.Errorf("broken: %q", broken(s))
	}
}
