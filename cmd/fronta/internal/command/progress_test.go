package command_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/command"
	"github.com/fronta-mq/fronta/progress"
)

var topicID = kadm.TopicID{0xe5, 0x9b, 0x79, 0x2e, 0x1e, 0xdc, 0x4e, 0x63, 0xa5, 0x4c, 0x60, 0x2f, 0xb0, 0xb7, 0x83, 0xfb}

// decode calls the command with what is on the standard input.
func decode(t *testing.T, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	env := &cli.Env{Stdin: stdin, Stdout: &o, Stderr: &e}
	code = cli.Run(t.Context(), env, command.Root(env), append([]string{"progress", "decode"}, args...))
	return code, o.String(), e.String()
}

func TestProgressDecode(t *testing.T) {
	t.Parallel()
	p := told(1000,
		progress.Segment{End: 2000, Order: "unordered", Heads: heads(1000, 1010, 1500, 1501)},
		progress.Segment{End: 9000, Order: "key", Check: 0xabc, Heads: heads(2001, 2004), Markers: []int64{2001}},
	)
	for at := int64(2005); at < 2201; at += 2 {
		p.Segments[1].Heads = append(p.Segments[1].Heads, progress.Range{From: at, To: at + 1})
	}
	p.Clean, p.Starts, p.Epoch, p.Suspect, p.Reach = false, 2, 7, 1500, 2500
	p.Attempts = []progress.Count{{Offset: 1000, N: 3}}
	p.Crashes = []progress.Count{{Offset: 1500, N: 2}}
	text := encode(t, p, progress.Binding{TopicID: topicID, Partition: 3})
	about := []string{"--topic-id", "5Zt5Lh7cTmOlTGAvsLeD-w", "--partition", "3"}

	code, stdout, stderr := decode(t, nil, append(about, text, "--offset", "1000")...)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	for _, line := range []string{
		"format fronta, version 1", "offset 1,000", "horizon 9,000, 8,000 offsets further", "unfinished >= 111",
		"partition it is about the topic and partition that were given",
		"leader epoch 7", "fence 216000000000", "clean no",
		"starts 2 owners before it, in a row, began at this offset and did not end in good order",
		"reach 2,500: no record from here on has been started",
		"suspect 1,500: started last, while records were started one at a time",
		"segment 1,000 to 1,999", "order unordered", "heads 11", "1,000 to 1,009", "1,500",
		"segment 2,000 to 8,999", "order key", "check 00000abc: hash of the first head's lane", "heads 101", "2,001 to 2,003", "2,041", "… and 79 more",
		"markers 1", "attempts 1", "1,000: 3", "crashes 1", "1,500: 2",
	} {
		if !hasLine(stdout, line) {
			t.Errorf("no line %q in\n%s", line, stdout)
		}
	}
	if hasLine(stdout, "2,043") {
		t.Errorf("more than 20 heads in\n%s", stdout)
	}
	if _, stdout, _ := decode(t, nil, text, "--offset", "1000", "--all"); !hasLine(stdout, "2,199") || strings.Contains(stdout, "…") ||
		!hasLine(stdout, "partition not checked: --topic-id and --partition were not given") {
		t.Errorf("not all in\n%s", stdout)
	}

	code, stdout, stderr = decode(t, strings.NewReader(text+"\r\n"), append(about, "-", "--offset", "1000", "--json")...)
	var got struct {
		Format   string
		Offset   int64
		Horizon  int64
		Units    int
		Bytes    int
		Bound    bool
		Least    int64 `json:"unfinished_min"`
		Exact    bool  `json:"unfinished_exact"`
		Progress progress.Progress
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || stderr != "" {
		t.Fatalf("exit code %d, %v, %s%s", code, err, stdout, stderr)
	}
	if got.Format != "fronta" || got.Offset != 1000 || got.Horizon != 9000 || got.Units == 0 || got.Bytes != len(text) || !got.Bound || got.Least != 111 || got.Exact || len(got.Progress.Segments[1].Heads) != 99 {
		t.Errorf("%+v", got)
	}
}

func TestProgressDecodeRefuses(t *testing.T) {
	t.Parallel()
	text := encode(t, lanes(100), progress.Binding{TopicID: topicID, Partition: 3})
	for name, args := range map[string][]string{
		"another offset":    {text, "--offset", "101"},
		"another partition": {text, "--offset", "100", "--topic-id", "e59b792e-1edc-4e63-a54c-602fb0b783fb", "--partition", "2"},
		"another topic":     {text, "--offset", "100", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAA", "--partition", "3"},
		"no topic ids":      {text, "--offset", "100", "--partition", "3"},
		"cut":               {text[:len(text)-3], "--offset", "100"},
		"a client's id":     {"kgo-2b9d7a", "--offset", "100"},
	} {
		code, stdout, stderr := decode(t, nil, args...)
		if code != 1 || !strings.HasPrefix(stderr, "fronta: the text can't be read: ") || !strings.Contains(stdout, "format") {
			t.Errorf("%s: exit code %d, %s%s", name, code, stdout, stderr)
		}
		code, stdout, _ = decode(t, nil, append(args, "--json")...)
		var got struct{ Reason string }
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 || got.Reason == "" {
			t.Errorf("%s: exit code %d, %v, %s", name, code, err, stdout)
		}
	}
	for _, args := range [][]string{{"--topic-id", topicID.String()}, {"--topic-id", "5Zt5Lh7cTmOlTGAvsLeD+w=="}, {"--topic-id", "E59B792E1EDC4E63A54C602FB0B783FB"}} {
		if code, stdout, stderr := decode(t, nil, append(args, text, "--offset", "100", "--partition", "3")...); code != 0 {
			t.Errorf("%s: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

func TestProgressDecodeOfNothing(t *testing.T) {
	t.Parallel()
	for _, stdin := range []io.Reader{nil, strings.NewReader(""), strings.NewReader("\n")} {
		code, stdout, stderr := decode(t, stdin, "-", "--offset", "7", "--partition", "0")
		if code != 0 || stderr != "" || !hasLine(stdout, "horizon 7: nothing is told, every record from here on counts as unfinished") {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
	}
	if code, _, stderr := decode(t, iotest.ErrReader(errors.New("no terminal")), "-", "--offset", "7"); code != 1 || !strings.Contains(stderr, "read the standard input: no terminal") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if code, _, stderr := decode(t, strings.NewReader(strings.Repeat("A", 70_000)), "-", "--offset", "7"); code != 1 || !strings.Contains(stderr, "more than 65,536 bytes") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestProgressDecodeUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                   "accepts 1 arg(s), received 0",
		"A":                                  "--offset is missing",
		"A --offset -1":                      "--offset -1",
		"A --offset 1 --partition -1":        "--partition -1",
		"A --offset 1 --topic-id 5Zt5Lh7cTm": "--topic-id without --partition",
		"A --offset 1 --partition 1 --topic-id 5Zt5Lh7cTm": `--topic-id "5Zt5Lh7cTm": not a topic id`,
	} {
		if code, stdout, stderr := decode(t, nil, strings.Fields(args)...); code != cli.ExitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}
