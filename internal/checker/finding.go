package checker

import (
	"cmp"
	"fmt"
)

// A finding is a breach of a promise, or the suspicion of one, in the few words that are needed to put it into a
// sentence later: most suspicions are cleared, and only the first breaches are shown.
type finding struct {
	code      code
	chain     bool   // about a start that may have passed more records of its lane than other
	seq       uint32 // when it was found
	known     uint32 // for passed: records produced later are not meant
	started   uint32 // for passed: when the record was started
	term      int32
	otherTerm int32
	offset    int64
	other     int64 // what it collided with: an offset, a fence, a result
	text      string
}

// code says which rule a finding is about.
type code uint8

const (
	passed code = iota + 1
	wentBack
	overlapped
	fenceFell
	fenceShared
	startedAfterRevoke
	repeatedBySame
	repeatedOfLive
	repeatedOfRevoked
	repeatedOfCommitted
	repeatedBelowCommit
	commitPassed
	commitFell
	neverEnded
	deadStarted
	deadAssigned
	strayEnd
	strayResult
	laneChanged
)

func (c code) kind() Kind {
	switch c {
	case passed, wentBack:
		return KindOrder
	case overlapped:
		return KindOverlap
	case fenceFell, fenceShared, startedAfterRevoke:
		return KindFence
	case repeatedBySame, repeatedOfLive, repeatedOfRevoked, repeatedOfCommitted, repeatedBelowCommit:
		return KindRepeat
	case commitPassed:
		return KindCommit
	case commitFell:
		return KindRegression
	case neverEnded:
		return KindLost
	default:
		return KindHistory
	}
}

// compare sorts findings of a partition.
func (f finding) compare(g finding) int {
	return cmp.Or(
		cmp.Compare(f.seq, g.seq),
		cmp.Compare(f.offset, g.offset),
		cmp.Compare(f.code, g.code),
		cmp.Compare(f.other, g.other),
		cmp.Compare(f.otherTerm, g.otherTerm),
	)
}

// violation puts a finding into words.
func (p *partition) violation(f finding) Violation {
	t, other := p.terms[f.term], p.terms[f.otherTerm]
	v := Violation{
		Promise:   f.code.kind().Promise(),
		Kind:      f.code.kind(),
		Partition: p.id,
		Offset:    f.offset,
		Owner:     t.owner,
	}
	r := p.find(f.offset)
	if r != nil && f.code != commitFell {
		if l := p.laneOf(r); l != nil {
			v.Lane = l.name
		}
	}
	if v.Owner == "" && f.code != laneChanged {
		v.Owner = f.text
	}
	switch f.code {
	case passed:
		v.Detail = fmt.Sprintf("%q started it while offset %d of its lane was not finished", t.owner, f.other)
	case wentBack:
		v.Detail = fmt.Sprintf("%q started it after it had started offset %d of its lane", t.owner, f.other)
	case overlapped:
		what := fmt.Sprintf("offset %d of its lane", f.other)
		if f.other == f.offset {
			what = "the same record"
		}
		switch {
		case f.otherTerm == f.term:
			v.Detail = fmt.Sprintf("%q started it while it was itself running %s", t.owner, what)
		case other.standing == revoked:
			v.Detail = fmt.Sprintf("%q started it while %q, which had given the partition back, was running %s", t.owner, other.owner, what)
		default:
			v.Detail = fmt.Sprintf("%q started it while %q, never reported lost, was running %s", t.owner, other.owner, what)
		}
	case fenceFell:
		v.Detail = fmt.Sprintf("%q started it with fence %d after a higher one had been used, and was never reported lost", t.owner, f.other)
		if f.term == f.otherTerm {
			v.Detail = fmt.Sprintf("%q started it with fence %d after it had used a higher one itself", t.owner, f.other)
		}
	case fenceShared:
		v.Detail = fmt.Sprintf("%q started it with fence %d, which %q had used before", t.owner, f.other, other.owner)
	case startedAfterRevoke:
		v.Detail = fmt.Sprintf("%q started it with fence %d after it had given the partition back", t.owner, f.other)
	case repeatedBySame:
		v.Detail = fmt.Sprintf("%q had finished it and started it again", t.owner)
	case repeatedOfLive:
		v.Detail = fmt.Sprintf("%q started it again although %q had finished it and still held the partition", t.owner, other.owner)
	case repeatedOfRevoked:
		v.Detail = fmt.Sprintf("%q started it again although %q had finished it and given the partition back in good order", t.owner, other.owner)
	case repeatedOfCommitted:
		v.Detail = fmt.Sprintf("%q started it again although %q had finished it before the last commit", t.owner, other.owner)
	case repeatedBelowCommit:
		v.Detail = fmt.Sprintf("%q started it again although it was finished and offset %d is committed", t.owner, f.other)
	case commitPassed:
		by := ""
		if v.Owner != "" {
			by = fmt.Sprintf(" by %q", v.Owner)
		}
		v.Detail = fmt.Sprintf("offset %d was committed%s while it was not finished", f.other, by)
	case commitFell:
		v.Detail = fmt.Sprintf("%q committed offset %d after offset %d had been committed", v.Owner, f.offset, f.other)
	case neverEnded:
		v.Detail = p.fate(r)
	case deadStarted:
		v.Detail = fmt.Sprintf("%q started it after it had been killed", v.Owner)
	case deadAssigned:
		v.Detail = fmt.Sprintf("%q was assigned the partition after it had been killed", v.Owner)
	case strayEnd:
		v.Detail = fmt.Sprintf("%q ended it as %s without running it", v.Owner, Result(f.other))
	case strayResult:
		v.Detail = fmt.Sprintf("%q ended it with the unknown result %d", v.Owner, f.other)
	case laneChanged:
		v.Detail = fmt.Sprintf("it was produced again, in lane %q", f.text)
	}
	return v
}

// fate says what is known of a record that never ended.
func (p *partition) fate(r *record) string {
	begin := "it was produced"
	if !r.has(flagProduced) {
		begin = "it was seen in a handler"
	}
	t := p.terms[r.term]
	switch {
	case r.run != 0 && !p.terms[r.run].dead:
		return fmt.Sprintf("%s and never finished: %q is still running it", begin, p.terms[r.run].owner)
	case r.has(flagRejected):
		return fmt.Sprintf("%s and never finished: %q rejected it, and no dead letter was seen", begin, t.owner)
	case r.term != 0:
		return fmt.Sprintf("%s and never finished: %q was the last to start it", begin, t.owner)
	default:
		return begin + " and never finished: nobody in good standing started it"
	}
}
