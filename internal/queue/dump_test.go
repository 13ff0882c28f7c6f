package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fronta-mq/fronta/progress"
)

// dump shows all there is to know of a partition: a line of figures, a line
// for each unfinished record in the order of offsets, and the offsets of what
// is ready in the order in which Take hands them out.
func dump(p *Partition, name func(Lane) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "frontier=%d horizon=%d unfinished=%d ready=%d running=%d waiting=%d lanes=%d",
		p.Frontier(), p.Horizon(), p.Len(), p.Ready(), p.Running(), p.Waiting(), p.Lanes())
	if at := p.NextWake(); at != Never {
		fmt.Fprintf(&b, " wake=%d", at)
	}
	if p.Leaving() {
		b.WriteString(" leaving")
	}
	if p.Resuming() {
		fmt.Fprintf(&b, " resuming to %d", p.Known())
	}
	b.WriteByte('\n')

	var infos []Info
	p.Each(func(i Info) bool {
		infos = append(infos, i)
		return true
	})
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, i := range infos {
		fmt.Fprintf(&b, "  %d %s %v", i.Offset, name(i.Lane), i.State)
		if i.Attempts > 0 {
			fmt.Fprintf(&b, " attempts=%d", i.Attempts)
		}
		if i.State == Waiting {
			fmt.Fprintf(&b, " due=%d", i.Due)
		}
		if n := p.Backlog(i.Slot); n > 0 {
			fmt.Fprintf(&b, " backlog=%d", n)
		}
		b.WriteByte('\n')
	}
	if p.ready.len() > 0 {
		b.WriteString("next:")
		for i := range p.ready.n {
			fmt.Fprintf(&b, " %d", p.Offset(p.ready.slots[(p.ready.first+i)&p.ready.mask()]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// dumpSnapshot shows what a commit of a partition would tell.
func dumpSnapshot(p *Partition, exact bool, check func(uint32) string) string {
	var s Snapshot
	p.Snapshot(&s, exact)
	s.Fill()
	var b strings.Builder
	fmt.Fprintf(&b, "offset=%d horizon=%d heads=%d\n", s.Offset, s.Horizon, p.Heads())
	for _, t := range s.Segments {
		if t.Index < 0 {
			b.WriteString("  own")
		} else {
			fmt.Fprintf(&b, "  segment %d", t.Index)
		}
		fmt.Fprintf(&b, " end=%d", t.End)
		for i, r := range t.Heads {
			b.WriteString([]string{" heads=", ","}[min(i, 1)] + rangeString(r))
		}
		for i, o := range t.Markers {
			fmt.Fprintf(&b, "%s%d", []string{" markers=", ","}[min(i, 1)], o)
		}
		switch f := t.First; {
		case f.Slot >= 0:
			fmt.Fprintf(&b, " first=%d", p.Offset(f.Slot))
		case f.HasCheck:
			fmt.Fprintf(&b, " check=%s", check(f.Check))
		}
		b.WriteByte('\n')
	}
	for i, a := range s.Attempts {
		fmt.Fprintf(&b, "%s%d×%d", []string{"  attempts: ", " "}[min(i, 1)], a.Offset, a.N)
	}
	if len(s.Attempts) > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

func rangeString(r progress.Range) string {
	if r.To == r.From+1 {
		return fmt.Sprint(r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To-1)
}
