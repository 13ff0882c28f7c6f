package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
