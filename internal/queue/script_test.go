package queue

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/fronta-mq/fronta/progress"
)

// TestScripts runs the scripts under testdata: one file for each rule of the
// core, which opens with the mistake it is there to catch. After a change that
// is meant to change them, run
//
//	go test ./internal/queue -run TestScripts -rewrite
//
// and read the difference. The commands are the methods of Partition; records
// are named by their offsets and lanes by letters, "-" being a lane of its own:
//
//	new start=100         a new partition
//	admit 100:a 101:-     slot and state of each
//	admit-running 100:a   slot and state
//	flood n=2000 lane=-   admits as many from the horizon on
//	flush                 takes and finishes until nothing is ready
//	take [n=2]            the offsets handed out
//	return|finish|park|count 100 101
//	retry|snooze 100 due=30
//	tick now=30           how many became ready
//	advance to=200
//	leave, shrink, dump
//
// And those of a partition with former owners. A range of offsets is 3-5, the
// check of a lane is its name, and a record of a former segment has two lanes:
//
//	resume start=100      one segment a line: end=110 heads=100,103-105 markers=104 check=a former unordered
//	recall 100:a          what former owners told
//	read 100:a 101:b/x    recalls and, if they are unfinished, admits
//	admit-former 101:b/x  slot and state
//	attempts 100 n=3
//	segment 100 101
//	forget, missed, snapshot, snapshot exact
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if filepath.Ext(path) != ".txt" {
			return
		}
		s := &script{slots: map[int64]Slot{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	p     *Partition
	slots map[int64]Slot // of finished records too
	names []string       // of lanes
	check checker
}

func (s *script) lane(name string) Lane {
	if name == "-" {
		return Alone
	}
	i := slices.Index(s.names, name)
	if i < 0 {
		i = len(s.names)
		s.names = append(s.names, name)
	}
	return laneOf(i)
}

// record reads 101:b or, in a former segment, 101:b/x.
func (s *script) record(t *testing.T, d *datadriven.TestData, arg string) (offset int64, lane Lane, former *Lane) {
	at, name, _ := strings.Cut(arg, ":")
	name, formerName, both := strings.Cut(name, "/")
	offset, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	if lane = s.lane(name); both {
		l := s.lane(formerName)
		former = &l
	}
	return offset, lane, former
}

// segments reads one segment a line.
func (s *script) segments(t *testing.T, d *datadriven.TestData) []Segment {
	parse := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		return n
	}
	var segments []Segment
	for line := range strings.Lines(d.Input) {
		var seg Segment
		for _, field := range strings.Fields(line) {
			key, value, _ := strings.Cut(field, "=")
			switch key {
			case "end":
				seg.End = parse(value)
			case "heads":
				for _, r := range strings.Split(value, ",") {
					from, to, ok := strings.Cut(r, "-")
					if !ok {
						to = from
					}
					seg.Heads = append(seg.Heads, progress.Range{From: parse(from), To: parse(to) + 1})
				}
			case "markers":
				for _, m := range strings.Split(value, ",") {
					seg.Markers = append(seg.Markers, parse(m))
				}
			case "check":
				seg.Check = uint32(s.lane(value))
			case "former":
				seg.Former = true
			case "unordered":
				seg.Unordered = true
			default:
				d.Fatalf(t, "no such field: %s", field)
			}
		}
		segments = append(segments, seg)
	}
	return segments
}

func (s *script) name(l Lane) string {
	for i, name := range s.names {
		if laneOf(i) == l {
			return name
		}
	}
	return "-"
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	number := func(key string, otherwise int64) int64 {
		n := otherwise
		d.MaybeScanArgs(t, key, &n)
		return n
	}
	// each calls f for every offset among the arguments.
	each := func(f func(Slot) bool) {
		for _, arg := range d.CmdArgs {
			offset, err := strconv.ParseInt(arg.Key, 10, 64)
			if err != nil {
				continue
			}
			slot, ok := s.slots[offset]
			if !ok {
				d.Fatalf(t, "%d was never admitted", offset)
			}
			fmt.Fprintf(&out, "%d: %v\n", offset, f(slot))
		}
	}
	p := s.p
	switch d.Cmd {
	case "new":
		s.p = New(number("start", 0))
		return ""
	case "resume":
		p = Resume(number("start", 0), s.segments(t, d))
		s.p = p
	case "recall":
		for _, arg := range d.CmdArgs {
			offset, lane, former := s.record(t, d, arg.Key)
			if former != nil {
				lane = *former
			}
			fmt.Fprintf(&out, "%d: %v\n", offset, p.Recall(offset, lane, uint32(lane)))
		}
	case "forget":
		p.Forget()
	case "missed":
		offset, ok := p.Missed()
		fmt.Fprintf(&out, "%d %v\n", offset, ok)
	case "segment":
		for _, arg := range d.CmdArgs {
			offset, _ := strconv.ParseInt(arg.Key, 10, 64)
			i, former, ok := p.SegmentAt(offset)
			fmt.Fprintf(&out, "%d: %d, former %v, %v\n", offset, i, former, ok)
		}
	case "attempts":
		each(func(slot Slot) bool {
			p.SetAttempts(slot, int(number("n", 0)))
			return true
		})
	case "snapshot":
		out.WriteString(dumpSnapshot(p, d.HasArg("exact"), func(check uint32) string {
			for i, name := range s.names {
				if uint32(laneOf(i)) == check {
					return name
				}
			}
			return fmt.Sprint(check)
		}))
	case "admit", "admit-running", "admit-former", "read":
		for _, arg := range d.CmdArgs {
			offset, lane, former := s.record(t, d, arg.Key)
			admit := p.Admit
			switch {
			case d.Cmd == "admit-running":
				admit = p.AdmitRunning
			case former != nil:
				admit = func(offset int64, lane Lane) (Slot, bool) { return p.AdmitFormer(offset, lane, *former) }
			}
			if d.Cmd == "read" {
				own := lane
				if former != nil {
					own = *former
				}
				if r := p.Recall(offset, own, uint32(own)); r == Finished {
					fmt.Fprintf(&out, "%d: finished\n", offset)
					continue
				} else if r != Unfinished {
					fmt.Fprintf(&out, "%d: %v\n", offset, r)
					admit = p.Admit
				}
			}
			slot, ok := admit(offset, lane)
			if !ok {
				fmt.Fprintf(&out, "%d: refused\n", offset)
				continue
			}
			s.slots[offset] = slot
			info, _ := p.Info(slot)
			fmt.Fprintf(&out, "%d: slot %d, %v\n", offset, slot, info.State)
		}
	case "flood":
		lane := "-"
		d.MaybeScanArgs(t, "lane", &lane)
		for range number("n", 1) {
			offset := p.Horizon()
			s.slots[offset], _ = p.Admit(offset, s.lane(lane))
		}
	case "flush":
		n := 0
		for {
			slot, ok := p.Take()
			if !ok {
				break
			}
			p.Finish(slot)
			n++
		}
		fmt.Fprintf(&out, "finished %d\n", n)
	case "take":
		for range number("n", 1) {
			slot, ok := p.Take()
			if !ok {
				out.WriteString("nothing\n")
				break
			}
			fmt.Fprintf(&out, "%d\n", p.Offset(slot))
		}
	case "return":
		each(p.Return)
	case "finish":
		each(p.Finish)
	case "park":
		each(p.Park)
	case "count":
		each(p.Count)
	case "retry":
		each(func(slot Slot) bool { return p.Retry(slot, Time(number("due", 0))) })
	case "snooze":
		each(func(slot Slot) bool { return p.Snooze(slot, Time(number("due", 0))) })
	case "tick":
		fmt.Fprintf(&out, "%d became ready\n", p.Tick(Time(number("now", 0))))
	case "advance":
		p.Advance(number("to", 0))
	case "leave":
		p.Leave()
	case "shrink":
		fmt.Fprintf(&out, "%v\n", p.Shrink())
	case "dump":
		out.WriteString(dump(p, s.name))
	default:
		d.Fatalf(t, "no such command")
	}
	if err := s.check.check(p); err != nil {
		d.Fatalf(t, "%v\n%s", err, dump(p, s.name))
	}
	return out.String()
}
