package command

// fronta progress: what a commit's metadata says. What must stay true: it works on the text alone, without a broker, and
// what it prints is bounded unless more is asked for.

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/group"
	"github.com/fronta-mq/fronta/progress"
)

func newProgressCommand(env *cli.Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "progress",
		Short: "Read what a commit's metadata says",
		Long:  "Reads what a commit's metadata says of the offsets behind the committed one.",
	}
	c.AddCommand(newProgressDecodeCommand(env))
	return c
}

func newProgressDecodeCommand(env *cli.Env) *cobra.Command {
	var (
		offset    int64
		topicID   string
		partition int32
		all       bool
	)
	c := &cobra.Command{
		Use:   "decode text",
		Short: "Explain the metadata of one commit",
		Long: "Explains the metadata text of one commit: fronta's own, Atleon's or Parallel Consumer's. fronta's begins with a tilde,\n" +
			"so a shell wants it in quotes. \"-\" reads it from the standard input, where a line break at the end is no part of it.\n\n" +
			"A text is about one committed offset, which --offset says. fronta's is about one partition of one topic besides:\n" +
			"with --topic-id and --partition it is checked that it is about that one, otherwise that is left open.\n\n" +
			"heads are the offsets of the lanes' first unfinished records; with order \"unordered\" they are all unfinished ones.\n" +
			"markers are finished records that stand for a lane of which the next unfinished record is not known. Everything else\n" +
			"below the horizon that is not in the lane of a head or marker before it is finished. unfinished is how many offsets\n" +
			"that leaves; \">= 12\" where only the records can tell what is in those lanes.\n\n" +
			"It exits with 1 if the text can't be read, with the reason. Of long lists 20 entries are printed, with --all or\n" +
			"--json all of them.",
		Example: "  fronta progress decode AQICAulV0Ao --offset 5\n" +
			"  fronta progress decode - --offset 81920 --topic-id 5Zt5Lh7cTmOlTGAvsLeDkg --partition 3 --json <metadata.txt",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			bound := c.Flags().Changed("topic-id") || c.Flags().Changed("partition")
			binding := progress.Binding{Partition: partition}
			switch {
			case !c.Flags().Changed("offset"):
				return cli.Usagef("--offset is missing: the same text says something else next to another offset")
			case offset < 0:
				return cli.Usagef("--offset %d: a committed offset is not negative", offset)
			case partition < 0:
				return cli.Usagef("--partition %d: it must not be negative", partition)
			case bound && !c.Flags().Changed("partition"):
				return cli.Usagef("--topic-id without --partition: a text is about one partition of the topic")
			case c.Flags().Changed("topic-id"):
				id, err := parseTopicID(topicID)
				if err != nil {
					return cli.Usagef("--topic-id %q: %w", topicID, err)
				}
				binding.TopicID = id
			}
			text := args[0]
			if text == "-" {
				var err error
				if text, err = readText(env.Stdin); err != nil {
					return err
				}
			}
			d := decodeText(text, offset, binding, bound)
			d.all = all
			env.Out.Print(d)
			if d.Reason != "" {
				return errors.New("the text can't be read: " + out.Clean(d.Reason))
			}
			return nil
		},
	}
	c.Flags().Int64Var(&offset, "offset", 0, "the committed `offset`; required")
	c.Flags().StringVar(&topicID, "topic-id", "", "the topic's `id`, as Kafka's tools print it or as a UUID;\nleave it out with --partition alone where topics have none")
	c.Flags().Int32Var(&partition, "partition", 0, "the `number` of the partition")
	c.Flags().BoolVar(&all, "all", false, "print all entries of all lists")
	return c
}

// parseTopicID reads the forms in which topic ids are written: base64 in the alphabet for URLs, as Kafka does, or in the
// other one, and 32 hexadecimal digits with or without dashes.
func parseTopicID(s string) (id [16]byte, err error) {
	plain := strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(s), "=")
	b, err := base64.RawURLEncoding.DecodeString(plain)
	if err != nil || len(b) != len(id) {
		b, err = hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	}
	if err != nil || len(b) != len(id) {
		return id, errors.New("not a topic id, such as 5Zt5Lh7cTmOlTGAvsLeDkg or e59b792e-1edc-4e63-a54c-602fb0b78392")
	}
	return [16]byte(b), nil
}

// longestText is more than a commit's metadata can have.
const longestText = 64 << 10

func readText(r io.Reader) (string, error) {
	if r == nil {
		return "", nil
	}
	b, err := io.ReadAll(io.LimitReader(r, longestText+2))
	if err != nil {
		return "", fmt.Errorf("read the standard input: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if len(text) > longestText {
		return "", fmt.Errorf("the standard input has more than %s bytes: metadata is never so long", out.Count(longestText))
	}
	return text, nil
}

// decoded is what a text says.
type decoded struct {
	progress.Info
	// Bound tells that the text was checked to be about the topic and partition that were given; false: none were.
	Bound bool `json:"bound"`

	// Of the offsets below the horizon, those that are not told to be finished; of a text that can't be read at least none.
	UnfinishedMin   int64 `json:"unfinished_min"`
	UnfinishedExact bool  `json:"unfinished_exact"`

	all bool
}

func decodeText(text string, offset int64, binding progress.Binding, bound bool) *decoded {
	d := &decoded{Info: progress.Inspect(text, offset), Bound: bound, UnfinishedExact: true}
	if d.Progress != nil {
		d.UnfinishedMin, d.UnfinishedExact = group.Unfinished(d.Progress, d.Horizon)
	}
	if bound && d.Reason == "" {
		// What it says of another partition is worth a look all the same, so Progress stays.
		if _, _, err := progress.Decode(text, offset, binding); err != nil {
			d.Reason = err.Error()
			if r := new(progress.Reason); errors.As(err, &r) {
				d.Code = r.Code
			}
		}
	}
	d.UnfinishedExact = d.UnfinishedExact && d.Reason == ""
	return d
}

// shownEntries is how many entries of a list are printed, unless all are wanted.
const shownEntries = 20

// WriteText implements out.Value.
func (d *decoded) WriteText(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-13s%s\n", name, out.Clean(fmt.Sprintf(format, args...)))
	}
	format := d.Format.String()
	if d.Variant != "" && d.Format != progress.AtleonV1 { // its name has it
		format += ", " + d.Variant
	}
	line("format", "%s", format)
	form := ""
	if d.Wide {
		form = ", the wide form"
	}
	line("size", "%s UTF-16 units, %s bytes%s", out.Count(d.Units), out.Count(d.Bytes), form)
	line("offset", "%s", out.Count(d.Offset))
	p := d.Progress
	if p == nil {
		if d.Reason == "" {
			line("horizon", "%s: nothing is told, every record from here on counts as unfinished", out.Count(d.Offset))
		}
		return
	}
	line("horizon", "%s, %s offsets further", out.Count(d.Horizon), out.Count(d.Horizon-d.Offset))
	line("unfinished", "%s", group.AtLeast(d.UnfinishedMin, d.UnfinishedExact))
	if d.Format == progress.Fronta {
		about := "it is about the topic and partition that were given"
		switch {
		case d.Reason != "":
			about = "refused, see below"
		case !d.Bound:
			about = "not checked: --topic-id and --partition were not given"
		}
		line("partition", "%s", about)
		line("leader epoch", "%s", numberOr(int64(p.Epoch), -1, "not told"))
		line("fence", "%s", numberOr(p.Fence, 0, "not told"))
		clean := "no"
		if p.Clean {
			clean = "yes: the owner gave the partition up in good order"
		}
		line("clean", "%s", clean)
		if p.Starts > 0 {
			line("starts", "%s owners before it, in a row, began at this offset and did not end in good order", out.Count(p.Starts))
		}
		if p.Reach > 0 {
			line("reach", "%s: no record from here on has been started", out.Count(p.Reach))
		}
		if p.Suspect >= 0 {
			line("suspect", "%s: started last, while records were started one at a time", out.Count(p.Suspect))
		}
	}
	from := p.Offset
	for i := range p.Segments {
		s := &p.Segments[i]
		fmt.Fprintln(w)
		line("segment", "%s to %s", out.Count(from), out.Count(s.End-1))
		line("order", "%s", s.Order)
		if s.Check != 0 {
			line("check", "%08x: hash of the first head's lane", s.Check)
		}
		heads := int64(0)
		for _, r := range s.Heads {
			heads += r.To - r.From
		}
		list(w, "heads", heads, s.Heads, d.all, func(r progress.Range) (string, int64) {
			if r.To == r.From+1 {
				return out.Count(r.From), 1
			}
			return fmt.Sprintf("%s to %s", out.Count(r.From), out.Count(r.To-1)), r.To - r.From
		})
		list(w, "markers", int64(len(s.Markers)), s.Markers, d.all, func(m int64) (string, int64) { return out.Count(m), 1 })
		from = s.End
	}
	counted := func(c progress.Count) (string, int64) {
		return fmt.Sprintf("%s: %s", out.Count(c.Offset), out.Count(c.N)), 1
	}
	if len(p.Attempts)+len(p.Crashes) > 0 {
		fmt.Fprintln(w)
	}
	list(w, "attempts", int64(len(p.Attempts)), p.Attempts, d.all, counted)
	list(w, "crashes", int64(len(p.Crashes)), p.Crashes, d.all, counted)
}

// list prints how many there are and the first of them. entry tells how many an entry stands for. Nothing is printed of none.
func list[E any](w io.Writer, name string, total int64, entries []E, all bool, entry func(E) (string, int64)) {
	if len(entries) == 0 {
		return
	}
	fmt.Fprintf(w, "%-13s%s\n", name, out.Count(total))
	for i, e := range entries {
		if i == shownEntries && !all {
			fmt.Fprintf(w, "  … and %s more\n", out.Count(total))
			return
		}
		text, n := entry(e)
		fmt.Fprintf(w, "  %s\n", text)
		total -= n
	}
}

func numberOr(n, none int64, instead string) string {
	if n == none {
		return instead
	}
	return fmt.Sprint(n)
}
