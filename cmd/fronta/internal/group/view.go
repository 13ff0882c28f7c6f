package group

// What is known of a group, and how it is judged and printed.

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/progress"
)

// Description is what is known of a consumer group. Sums are over the partitions whose figures are known.
type Description struct {
	Group       string `json:"group"`
	Type        string `json:"type,omitempty"`     // the protocol: "classic" or "consumer"; empty: the group is only known by its commits
	State       string `json:"state,omitempty"`    // as the brokers name it
	Protocol    string `json:"protocol,omitempty"` // the assignor
	Epoch       int32  `json:"epoch,omitempty"`    // of a group of type "consumer"
	Coordinator int32  `json:"coordinator"`        // the broker's id

	Members        []Member `json:"members"`
	MembersUnknown string   `json:"members_unknown,omitempty"` // why Members is empty although there may be some

	MetadataLimit Limit `json:"metadata_limit"`

	Lag             int64       `json:"lag"`
	UnfinishedMin   int64       `json:"unfinished_min"`
	UnfinishedExact bool        `json:"unfinished_exact"`
	Partitions      []Partition `json:"partitions"`
}

// Limit is how long a commit's metadata may be.
type Limit struct {
	Units   int    `json:"units"`             // UTF-16
	Assumed string `json:"assumed,omitempty"` // why it was not learned from the brokers
}

// Member is a member of the group.
type Member struct {
	ID         string     `json:"id"`
	InstanceID *string    `json:"instance_id,omitempty"` // of a static member
	ClientID   string     `json:"client_id"`
	Host       string     `json:"host"`
	Epoch      int32      `json:"epoch"` // −1 in a group of type "classic"
	Partitions []Assigned `json:"partitions"`
}

// Assigned are a member's partitions of a topic.
type Assigned struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

// What a consumer would do with a commit's progress.
const (
	Trusted   = "trusted"   // skip what it tells to be finished
	Refused   = "refused"   // begin at the committed offset with nothing taken as finished, see Reason
	Unchecked = "unchecked" // that could not be found out, see Error
)

// Partition is what a group has committed of a partition. Numbers that are not known are null.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Member    string `json:"member,omitempty"` // the id of the one that has it

	Committed *int64 `json:"committed"`
	LogStart  *int64 `json:"log_start"`
	End       *int64 `json:"end"`
	Lag       *int64 `json:"lag"` // from Committed to End

	// Of the offsets from Committed to End, or from LogStart if that is higher, those that are not told to be finished: at
	// least so many, and if UnfinishedExact is set, just so many.
	UnfinishedMin   *int64 `json:"unfinished_min"`
	UnfinishedExact bool   `json:"unfinished_exact"`

	Units    int             `json:"metadata_units"` // of the metadata
	Format   progress.Format `json:"format"`
	Verdict  string          `json:"verdict,omitempty"` // Trusted, Refused or Unchecked; empty without metadata
	Reason   string          `json:"reason,omitempty"`  // why it is refused
	Progress *Progress       `json:"progress,omitempty"`

	Gone  bool   `json:"gone,omitempty"`  // the topic or partition does not exist any more
	Error string `json:"error,omitempty"` // what could not be learned, and why

	metadata string
	topicID  [16]byte
	told     *progress.Progress // what the metadata says, nil if it can't be read
	epoch    int32              // the last one in the log that is not above told's, if epochEnd is set
	epochEnd *int64             // where that one ends in the log
}

// Progress is what a commit's metadata says, without the lists: "fronta progress decode" has them.
type Progress struct {
	Horizon  int64     `json:"horizon"`
	Heads    int64     `json:"heads"`   // first unfinished records of lanes; in order "unordered" all unfinished ones. Without markers
	Markers  int64     `json:"markers"` // lanes whose next unfinished record is not known
	Segments []Segment `json:"segments"`
	Attempts int       `json:"attempts"` // records with failed attempts

	Epoch   int32            `json:"leader_epoch"` // −1: not told
	Fence   int64            `json:"fence"`        // 0: not told
	Clean   bool             `json:"clean"`        // the last owner gave the partition up in good order
	Starts  int              `json:"starts"`       // owners before it, in a row, that began at this offset and did not
	Reach   int64            `json:"reach,omitempty"`
	Suspect *int64           `json:"suspect"` // the record that was started last while records are started one at a time
	Crashes []progress.Count `json:"crashes,omitempty"`
}

// Segment is a stretch of offsets that one order's lanes describe.
type Segment struct {
	Order   string `json:"order"`
	End     int64  `json:"end"`
	Heads   int64  `json:"heads"`
	Markers int64  `json:"markers"`
}

// judge completes what is known of a partition.
func (p *Partition) judge() {
	if p.Committed == nil {
		return
	}
	first := *p.Committed // where a consumer begins
	if p.LogStart != nil {
		first = max(first, *p.LogStart)
	}
	if p.told != nil {
		p.Progress = view(p.told)
	}
	if p.Units > 0 {
		p.Verdict, p.Reason = p.verdict(first)
	}
	if p.End == nil {
		return
	}
	lag := max(0, *p.End-*p.Committed)
	p.Lag = &lag
	switch {
	case p.Verdict == Trusted && p.tells():
		n, exact := Unfinished(p.told, *p.End)
		p.UnfinishedMin, p.UnfinishedExact = &n, exact
	case p.Verdict == Unchecked:
	default:
		n := max(0, *p.End-first)
		p.UnfinishedMin, p.UnfinishedExact = &n, true
	}
}

func (p *Partition) verdict(first int64) (verdict, reason string) {
	switch {
	case p.Reason != "":
		return Refused, p.Reason
	case p.Gone:
		return Refused, "there is no such partition"
	case p.Error != "" || p.End == nil || p.told == nil:
		return Unchecked, ""
	}
	horizon := p.told.Horizon()
	switch {
	case !p.tells():
		return Trusted, "" // there is nothing to believe
	case horizon > *p.End:
		return Refused, fmt.Sprintf("its horizon %s lies beyond the log's end %s: it is not about this log", out.Count(horizon), out.Count(*p.End))
	case first > *p.Committed:
		return Refused, fmt.Sprintf("the log begins at %s now, and the records before it are gone whose lanes the progress names", out.Count(first))
	case p.epochEnd != nil && p.epoch < p.told.Epoch:
		return Refused, fmt.Sprintf("nothing of leader epoch %d is in the log, although the record below its horizon was of it: the log was truncated", p.told.Epoch)
	case p.epochEnd != nil && *p.epochEnd < horizon:
		return Refused, fmt.Sprintf("leader epoch %d ends at %s, below its horizon %s: the log was truncated", p.told.Epoch, out.Count(*p.epochEnd), out.Count(horizon))
	}
	return Trusted, ""
}

// tells says whether the metadata says anything of the offsets from the committed one on.
func (p *Partition) tells() bool { return p.told.Horizon() > p.told.Offset }

// view counts what a progress has.
func view(told *progress.Progress) *Progress {
	v := &Progress{
		Horizon: told.Horizon(), Segments: []Segment{}, Attempts: len(told.Attempts),
		Epoch: told.Epoch, Fence: told.Fence, Clean: told.Clean, Starts: told.Starts,
		Reach: told.Reach, Crashes: told.Crashes,
	}
	if told.Suspect >= 0 {
		v.Suspect = &told.Suspect
	}
	for i := range told.Segments {
		s := &told.Segments[i]
		markers := int64(len(s.Markers))
		heads := length(s.Heads) - markers
		v.Segments = append(v.Segments, Segment{s.Order, s.End, heads, markers})
		v.Heads += heads
		v.Markers += markers
	}
	return v
}

func length(ranges []progress.Range) (n int64) {
	for _, r := range ranges {
		n += r.To - r.From
	}
	return n
}

// Unfinished counts the offsets below end that a progress does not tell to be finished; at least, unless exact is true.
//
// Above the horizon that is all of them, and in a segment of order "unordered" its heads. A segment of lanes tells of each
// lane's first unfinished record alone. What follows in the same lanes is unfinished as well, but which offsets those are
// only their records could tell: between the heads alone and everything from the first head on, less the markers, which are
// finished. The two meet when there is but one lane, in order "partition", or when all offsets from the first head on are heads.
func Unfinished(told *progress.Progress, end int64) (n int64, exact bool) {
	n, exact = end-told.Horizon(), true
	for i := range told.Segments {
		s := &told.Segments[i]
		if len(s.Heads) == 0 {
			continue
		}
		markers := int64(len(s.Markers))
		least, most := length(s.Heads)-markers, s.End-s.Heads[0].From-markers
		switch s.Order {
		case "unordered":
			n += least
		case "partition":
			n += most
		default:
			n += least
			exact = exact && least == most
		}
	}
	return n, exact
}

// sum adds up.
func (d *Description) sum() {
	d.UnfinishedExact = true
	for i := range d.Partitions {
		p := &d.Partitions[i]
		if p.Lag != nil {
			d.Lag += *p.Lag
		}
		if p.UnfinishedMin != nil {
			d.UnfinishedMin += *p.UnfinishedMin
			d.UnfinishedExact = d.UnfinishedExact && p.UnfinishedExact
		} else if p.Committed != nil && !p.Gone {
			d.UnfinishedExact = false
		}
	}
}

// Incomplete is an error that says of how many partitions something could not be learned, nil if of none.
func (d *Description) Incomplete() error {
	n, first := 0, ""
	for i := range d.Partitions {
		if p := &d.Partitions[i]; p.Error != "" {
			if n++; n == 1 {
				first = fmt.Sprintf("partition %d: %s", p.Partition, p.Error)
			}
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("group %q: %d of %d partitions could not be looked at; the first: %s", d.Group, n, len(d.Partitions), first)
}

// units counts UTF-16 units, by which the brokers measure metadata.
func units(s string) (n int) {
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}

// WriteText implements out.Value.
func (d *Description) WriteText(w io.Writer) {
	about := []string{fmt.Sprintf("group %s: %s", out.Clean(d.Group), orElse(d.State, "state unknown"))}
	if d.Type != "" {
		protocol := d.Type + " protocol"
		if d.Protocol != "" {
			protocol += " (" + out.Clean(d.Protocol) + ")"
		}
		about = append(about, protocol)
	}
	switch {
	case d.MembersUnknown != "":
		about = append(about, "members unknown")
	case len(d.Members) == 1:
		about = append(about, "1 member")
	default:
		about = append(about, out.Count(len(d.Members))+" members")
	}
	about = append(about, fmt.Sprintf("coordinator %d", d.Coordinator))
	fmt.Fprintln(w, strings.Join(about, ", "))
	if d.MembersUnknown != "" {
		fmt.Fprintf(w, "members: %s\n", out.Clean(d.MembersUnknown))
	}
	fmt.Fprintf(w, "lag %s, unfinished %s\n", out.Count(d.Lag), AtLeast(d.UnfinishedMin, d.UnfinishedExact))
	fmt.Fprintf(w, "metadata may have %s units", out.Count(d.MetadataLimit.Units))
	if d.MetadataLimit.Assumed != "" {
		fmt.Fprintf(w, " (assumed: %s)", out.Clean(d.MetadataLimit.Assumed))
	}
	fmt.Fprintln(w)
	d.writePartitions(w)
	d.writeNotes(w)
	d.writeMembers(w)
}

func (d *Description) writePartitions(w io.Writer) {
	if len(d.Partitions) == 0 {
		fmt.Fprintln(w, "\nno partitions: nothing is committed and nothing is assigned")
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"topic", "partition", "committed", "end", "lag", "unfinished", "horizon", "heads", "markers", "order", "format", "units", "clean", "fence", "member"}}
	clients := make(map[string]string)
	for _, m := range d.Members {
		clients[m.ID] = m.ClientID
	}
	for i := range d.Partitions {
		p := &d.Partitions[i]
		row := []string{p.Topic, strconv.Itoa(int(p.Partition)), count(p.Committed), count(p.End), count(p.Lag)}
		if p.UnfinishedMin == nil {
			row = append(row, "-")
		} else {
			row = append(row, AtLeast(*p.UnfinishedMin, p.UnfinishedExact))
		}
		if v := p.Progress; v != nil {
			row = append(row, out.Count(v.Horizon), out.Count(v.Heads), out.Count(v.Markers), orElse(v.orders(), "-"))
		} else {
			row = append(row, "-", "-", "-", "-")
		}
		row = append(row, p.formatCell(), out.Count(p.Units))
		if v := p.Progress; v != nil && p.Format == progress.Fronta {
			clean, fence := "no", "-"
			if v.Clean {
				clean = "yes"
			}
			if v.Fence != 0 {
				fence = strconv.FormatInt(v.Fence, 10)
			}
			row = append(row, clean, fence)
		} else {
			row = append(row, "-", "-")
		}
		rows = append(rows, append(row, orElse(clients[p.Member], orElse(p.Member, "-"))))
	}
	out.Table(w, rows...)
}

// formatCell is the format and whether it is of use.
func (p *Partition) formatCell() string {
	switch {
	case p.Committed == nil:
		return "-"
	case p.Verdict == "" || p.Verdict == Trusted:
		return p.Format.String()
	case p.Verdict == Refused && p.Format == progress.Unknown:
		return "unreadable"
	default:
		return p.Format.String() + ", " + p.Verdict
	}
}

// orders names the orders of a progress, each once, in the order of its segments.
func (v *Progress) orders() string {
	var orders []string
	seen := make(map[string]bool)
	for _, s := range v.Segments {
		if !seen[s.Order] {
			seen[s.Order] = true
			orders = append(orders, s.Order)
		}
	}
	return strings.Join(orders, ", ")
}

// shownCrashes is how many records with crashes a note names.
const shownCrashes = 5

// writeNotes writes what the table has no room for.
func (d *Description) writeNotes(w io.Writer) {
	first := true
	for i := range d.Partitions {
		p := &d.Partitions[i]
		note := func(format string, args ...any) {
			if first {
				fmt.Fprintln(w)
				first = false
			}
			fmt.Fprintln(w, out.Clean(fmt.Sprintf("topic %s partition %d: ", p.Topic, p.Partition)+fmt.Sprintf(format, args...)))
		}
		switch {
		case p.Error != "":
			note("%s", p.Error)
		case p.Gone:
			note("it does not exist any more, what is committed of it has no meaning")
			continue
		case p.Committed == nil:
			note("nothing is committed, its owner begins where its configuration says")
		}
		if p.Committed != nil && p.End != nil && *p.Committed > *p.End {
			note("%s is committed, beyond the log's end", out.Count(*p.Committed))
		}
		if p.Committed != nil && p.LogStart != nil && *p.Committed < *p.LogStart {
			note("the log begins at %s: %s offsets were deleted before they were finished", out.Count(*p.LogStart), out.Count(*p.LogStart-*p.Committed))
		}
		if p.Verdict == Refused {
			note("its metadata is refused, a consumer takes nothing as finished: %s", p.Reason)
		}
		if v := p.Progress; v != nil {
			if v.Starts > 0 {
				note("before the last owner %s in a row began at %s and did not end in good order", times(v.Starts, "owner"), out.Count(*p.Committed))
			}
			if v.Suspect != nil {
				note("records are started one at a time to find one that ends the process; the last was %s", out.Count(*v.Suspect))
			}
			for i, c := range v.Crashes {
				if i == shownCrashes {
					note("… and %s more records", out.Count(len(v.Crashes)-i))
					break
				}
				note("the process ended %s while record %s ran", times(c.N, "time"), out.Count(c.Offset))
			}
			if v.Attempts > 0 {
				note("%s with failed attempts", times(v.Attempts, "record"))
			}
		}
		if p.Units > d.MetadataLimit.Units && d.MetadataLimit.Assumed == "" {
			note("its metadata has %s units, more than the broker takes now", out.Count(p.Units))
		}
	}
}

func (d *Description) writeMembers(w io.Writer) {
	if len(d.Members) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"member", "client", "host", "partitions"}}
	for _, m := range d.Members {
		var has []string
		for _, a := range m.Partitions {
			numbers := make([]string, len(a.Partitions))
			for i, n := range a.Partitions {
				numbers[i] = strconv.Itoa(int(n))
			}
			has = append(has, a.Topic+" "+strings.Join(numbers, ","))
		}
		rows = append(rows, []string{m.ID, orElse(m.ClientID, "-"), orElse(m.Host, "-"), orElse(strings.Join(has, "; "), "none")})
	}
	out.Table(w, rows...)
}

func count(n *int64) string {
	if n == nil {
		return "-"
	}
	return out.Count(*n)
}

// AtLeast writes what [Unfinished] answers.
func AtLeast(n int64, exact bool) string {
	if exact {
		return out.Count(n)
	}
	return ">= " + out.Count(n)
}

func times(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return out.Count(n) + " " + what + "s"
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
