package fronta_test

// The documentation is tested. What must stay true: each Go block of the pages
// compiles and runs as it stands, or is part of an example that does; each
// command line that the pages name exists; the programs in examples/ do what
// their comments say.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta/fake"
)

// programTimeout is how long building a program, and each wait for it, may
// take on a busy machine.
const programTimeout = 2 * time.Minute

func TestDocumentation(t *testing.T) {
	t.Parallel()
	d := &documentation{examples: loadExamples(t), fronta: filepath.Join(t.TempDir(), "fronta.exe")}
	goCommand(t, "build", "-o", d.fronta, "./cmd/fronta")
	t.Run("pages", func(t *testing.T) {
		t.Parallel()
		for _, page := range pages(t) {
			t.Run(filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				d.checkPage(t, page)
			})
		}
	})
	t.Run("programs", func(t *testing.T) {
		t.Parallel()
		dirs, err := filepath.Glob("examples/*")
		if err != nil || len(dirs) == 0 {
			t.Fatalf("no programs in examples: %v", err)
		}
		for _, dir := range dirs {
			t.Run(filepath.Base(dir), func(t *testing.T) {
				t.Parallel()
				d.checkProgram(t, dir)
			})
		}
	})
	t.Run("checks", d.testChecks)
}

// documentation is what pages are held against.
type documentation struct {
	examples []excerpt
	fronta   string // the command, built from the checkout
}

// checkPage makes sure of a page's Go blocks and command lines.
func (d *documentation) checkPage(t *testing.T, page string) {
	text, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skipf("%s is missing: with CI=true that is a failure", page)
	}
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parseBlocks(page, string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		switch b.lang {
		case "go", "golang":
			t.Run("line "+strconv.Itoa(b.line), func(t *testing.T) {
				t.Parallel()
				d.checkGo(t, b)
			})
		case "sh", "bash", "shell", "console":
			d.checkCommands(t, b.at(), b.lines)
		}
	}
}

// checkProgram makes sure that a program in examples/ compiles, handles
// records and ends in good order, and that its comment says how to run it.
func (d *documentation) checkProgram(t *testing.T, dir string) {
	file := filepath.Join(dir, "main.go")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("each directory in examples/ is a program in one file: %v", err)
	}
	var commands []string
	for line := range strings.Lines(string(source)) {
		if command, ok := strings.CutPrefix(line, "//\t"); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if run := "go run ./" + filepath.ToSlash(dir); !slices.Contains(commands, run) {
		t.Errorf("%s: its comment does not say how to run it: add the line %q", file, "//\t"+run)
	}
	d.checkCommands(t, file, commands)
	runProgram(t, string(source))
}

// pages are the documents whose blocks are tested.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}, docs...)
}

// block is a fenced code block of a page.
type block struct {
	page  string
	line  int // of its first line of code
	lang  string
	lines []string
}

func (b block) at() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

var fenceLine = regexp.MustCompile("^[ \t>]*(`{3,}|~{3,})[ \t]*([^ \t`{,]*)")

// parseBlocks finds the fenced blocks of a Markdown text, also indented and
// quoted ones.
func parseBlocks(page, text string) ([]block, error) {
	var blocks []block
	var open *block
	var fence string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		m := fenceLine.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			fence = m[1]
			open = &block{page: page, line: number + 1, lang: strings.ToLower(m[2])}
		case open != nil && m != nil && m[2] == "" && strings.HasPrefix(m[1], fence):
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.lines = append(open.lines, line)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s: the block is never closed: end it with %s", open.at(), fence)
	}
	return blocks, nil
}

// checkGo compiles a block that is a file, runs it if it is a program, and
// looks any other block up in the examples.
func (d *documentation) checkGo(t *testing.T, b block) {
	code := strings.Join(b.lines, "\n") + "\n"
	lines := normal(b.lines)
	switch {
	case len(lines) == 0:
		t.Errorf("%s: the Go block is empty: remove it", b.at())
	case lines[0] == "package main":
		runProgram(t, code)
	case strings.HasPrefix(lines[0], "package "):
		build(t, code)
	default:
		if err := findExcerpt(lines, d.examples); err != nil {
			t.Errorf("%s: this Go block is not tested: %v.\nMake it the same as a run of lines in an example_*_test.go or a program in examples/, or begin it with a package clause, so that it is compiled. The block:\n\n%s", b.at(), err, code)
		}
	}
}

// excerpt is a file of examples, of which a block may be a part.
type excerpt struct {
	path  string
	lines []string
}

func loadExamples(t *testing.T) []excerpt {
	t.Helper()
	paths, err := filepath.Glob("example_*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("examples", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []excerpt
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, excerpt{path, normal(strings.Split(string(text), "\n"))})
	}
	return all
}

// normal is lines without indentation and blank lines.
func normal(lines []string) []string {
	var out []string
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return out
}

// findExcerpt says what keeps lines from being a part of one of the examples.
func findExcerpt(lines []string, examples []excerpt) error {
	var nearest string
	longest := 0
	for _, e := range examples {
		for i := range e.lines {
			n := 0
			for n < len(lines) && i+n < len(e.lines) && lines[n] == e.lines[i+n] {
				n++
			}
			if n == len(lines) {
				return nil
			}
			if n > longest {
				nearest, longest = e.path, n
			}
		}
	}
	if longest == 0 {
		return fmt.Errorf("no example has its first line, %q", lines[0])
	}
	return fmt.Errorf("%s comes nearest, with its first %d lines; the next one, %q, is not there", nearest, longest, lines[longest])
}

// build compiles a file inside this module and returns the binary, if it is a
// program.
func build(t *testing.T, code string) string {
	t.Helper()
	dir := t.TempDir()
	file, binary := filepath.Join(dir, "block.go"), filepath.Join(dir, "block.exe")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	goCommand(t, "vet", file)
	goCommand(t, "build", "-o", binary, file)
	return binary
}

// goCommand runs the go command and returns what it printed.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String()
}

const localBroker = "localhost:9092"

var (
	consumedTopics  = regexp.MustCompile(`Topics:\s*\[\]string\{([^}]*)\}`)
	deadLetterTopic = regexp.MustCompile(`DeadLetterTopic\(("[^"]*")\)`)
	quoted          = regexp.MustCompile(`"[^"]*"`)
)

// runProgram runs a program on a broker of its own, which it finds where it
// expects one at localhost:9092. If it consumes topics, they have some records;
// when it has committed all of them, it is interrupted. Any other program ends
// by itself. Its exit code must be 0.
func runProgram(t *testing.T, code string) {
	t.Helper()
	topics := literals(t, consumedTopics, code)
	consumes := len(topics) > 0 && strings.Contains(code, localBroker)
	if consumes && runtime.GOOS == "windows" {
		t.Skip("Windows has no SIGINT that one process could send to another")
	}
	// A program that only produces writes to orders.
	exist := slices.Concat(topics, literals(t, deadLetterTopic, code), []string{"orders"})
	slices.Sort(exist)
	var opts []fake.Option
	for _, topic := range slices.Compact(exist) {
		opts = append(opts, fake.Topic(topic, 4))
	}
	broker, err := fake.Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	committed := watchCommits(broker, topics, produceOrders(t, broker, topics))
	binary := build(t, strings.ReplaceAll(code, localBroker, broker.Addrs()[0]))

	var output bytes.Buffer
	cmd := exec.Command(binary)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	limit := time.NewTimer(programTimeout)
	defer limit.Stop()
	if consumes {
		select {
		case <-committed:
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		case err := <-ended:
			t.Fatalf("the program ended before it had handled all records: %v\n%s", err, output.String())
		case <-limit.C:
			kill(cmd, ended)
			t.Fatalf("the program has not committed all records within %s; it printed:\n%s", programTimeout, output.String())
		}
	}
	limit.Reset(programTimeout)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the program failed: %v\n%s", err, output.String())
		}
	case <-limit.C:
		kill(cmd, ended)
		t.Errorf("the program has not ended within %s; it printed:\n%s", programTimeout, output.String())
	}
}

// kill ends a program and waits until what it printed is complete.
func kill(cmd *exec.Cmd, ended <-chan error) {
	_ = cmd.Process.Kill() // it may have ended in this moment
	<-ended
}

// literals are the strings in what the group of a pattern matches in code,
// each once.
func literals(t *testing.T, pattern *regexp.Regexp, code string) []string {
	t.Helper()
	var out []string
	for _, match := range pattern.FindAllStringSubmatch(code, -1) {
		for _, literal := range quoted.FindAllString(match[1], -1) {
			text, err := strconv.Unquote(literal)
			if err != nil {
				t.Fatalf("%s: %v", literal, err)
			}
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}

// produceOrders writes a few records to each topic and returns how many.
func produceOrders(t *testing.T, broker *fake.Broker, topics []string) int64 {
	t.Helper()
	client, err := kgo.NewClient(broker.Opts()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for _, topic := range topics {
		for n := range 20 {
			records = append(records, &kgo.Record{
				Topic: topic,
				Key:   fmt.Appendf(nil, "customer-%d", n%5),
				Value: fmt.Appendf(nil, `{"order":%d,"cents":%d}`, n, 100*n+99),
			})
		}
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return int64(len(records))
}

// watchCommits returns a channel that is closed when the offsets that were
// committed for topics add up to total or more.
func watchCommits(broker *fake.Broker, topics []string, total int64) <-chan struct{} {
	type partition struct {
		topic string
		n     int32
	}
	done := make(chan struct{})
	cluster := broker.Cluster()
	ids := make(map[[16]byte]string)
	for _, topic := range topics {
		ids[cluster.TopicInfo(topic).TopicID] = topic
	}
	offsets := make(map[partition]int64)
	var once sync.Once
	cluster.ControlKey(kmsg.OffsetCommit.Int16(), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range request.(*kmsg.OffsetCommitRequest).Topics {
			name := topic.Topic
			if name == "" { // newer requests name the id
				name = ids[topic.TopicID]
			}
			if !slices.Contains(topics, name) {
				continue
			}
			for _, p := range topic.Partitions {
				offsets[partition{name, p.Partition}] = p.Offset
			}
		}
		sum := int64(0)
		for _, offset := range offsets {
			sum += offset
		}
		if sum >= total {
			once.Do(func() { close(done) })
		}
		return nil, nil, false
	})
	return done
}

var (
	frontaCommand = regexp.MustCompile(`\bgo run \./cmd/fronta(\s.*)?$`)
	longFlag      = regexp.MustCompile(`^--[a-z][a-z0-9-]*`)
)

// checkCommands makes sure that each line that runs ./cmd/fronta names a
// subcommand that exists, and flags that it has.
func (d *documentation) checkCommands(t *testing.T, at string, lines []string) {
	t.Helper()
	for _, line := range joined(lines) {
		m := frontaCommand.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		// What follows belongs to the shell or is a comment.
		rest, _, _ := strings.Cut(m[1], " #")
		var names, flags []string
		for _, word := range strings.Fields(rest) {
			if strings.ContainsAny(word, "|&;<>") {
				break
			}
			if flag := longFlag.FindString(word); flag != "" {
				flags = append(flags, flag)
			} else if len(flags) == 0 { // after a flag it may be the flag's value
				names = append(names, word)
			}
		}
		help, err := d.help(t.Context(), names...)
		if err != nil {
			t.Errorf("%s: %q names no subcommand of fronta: %v", at, strings.TrimSpace(line), err)
			continue
		}
		for _, flag := range flags {
			if !slices.ContainsFunc(strings.Fields(help), func(w string) bool { return strings.Trim(w, ",") == flag }) {
				t.Errorf("%s: %q has the flag %s, which fronta %s lacks", at, strings.TrimSpace(line), flag, strings.Join(names, " "))
			}
		}
	}
}

// help is the help of a subcommand.
func (d *documentation) help(ctx context.Context, names ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, d.fronta, append(slices.Clone(names), "--help")...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("fronta %s --help: %w: %s", strings.Join(names, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// joined are lines with those put together that end in a backslash.
func joined(lines []string) []string {
	var out []string
	var sofar string
	for _, l := range lines {
		l = strings.TrimRight(l, " \t\r\n")
		if before, ok := strings.CutSuffix(l, `\`); ok {
			sofar += before
			continue
		}
		out, sofar = append(out, sofar+l), ""
	}
	return append(out, sofar)
}

// testChecks makes sure that the checks find what they are for.
func (d *documentation) testChecks(t *testing.T) {
	t.Parallel()
	t.Run("blocks", func(t *testing.T) {
		t.Parallel()
		text := "a\n```go\none\n```\n- list\n  ~~~sh title\n  two\n  ```\n  ~~~\n````Go {x}\n```go\n````\n```\nplain\n```\n"
		blocks, err := parseBlocks("p.md", text)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, b := range blocks {
			got = append(got, fmt.Sprintf("%s %s %q", b.at(), b.lang, b.lines))
		}
		want := []string{
			`p.md:3 go ["one"]`,
			"p.md:7 sh [\"  two\" \"  ```\"]",
			"p.md:11 go [\"```go\"]",
			`p.md:14  ["plain"]`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, err := parseBlocks("p.md", "```go\nx\n"); err == nil {
			t.Error("a block without an end was accepted")
		}
	})
	t.Run("excerpts", func(t *testing.T) {
		t.Parallel()
		examples := []excerpt{{"e.go", normal(strings.Split("a {\n\n\tb\n\tc\n}", "\n"))}}
		for text, want := range map[string]string{
			"  b\n\n\n c": "",
			"a {\nc":      `e.go comes nearest, with its first 1 lines; the next one, "c", is not there`,
			"c\n}\nd":     `e.go comes nearest, with its first 2 lines; the next one, "d", is not there`,
			"x":           `no example has its first line, "x"`,
		} {
			got := ""
			if err := findExcerpt(normal(strings.Split(text, "\n")), examples); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%q: %s, want %s", text, got, want)
			}
		}
	})
	t.Run("commands", func(t *testing.T) {
		t.Parallel()
		if help, err := d.help(t.Context(), "broker"); err != nil || !strings.Contains(help, "--topic") {
			t.Errorf("help of broker: %v\n%s", err, help)
		}
		if _, err := d.help(t.Context(), "brokre"); err == nil {
			t.Error("a subcommand that does not exist has a help")
		}
		got := joined([]string{"a \\\n", "b\n", "c"})
		if want := []string{"a b", "c", ""}; !slices.Equal(got, want) {
			t.Errorf("joined: %q, want %q", got, want)
		}
	})
}

// What go get brings: the library's users get franz-go, and what that needs,
// and nothing else.
func TestImports(t *testing.T) {
	t.Parallel()
	t.Run("library", func(t *testing.T) {
		t.Parallel()
		importers := make(map[string][]string)
		var all []string
		list := goCommand(t, "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}} {{join .Imports " "}}{{end}}`, ".")
		for _, words := range fieldsOfLines(list) {
			all = append(all, words[0])
			for _, imported := range words[1:] {
				importers[imported] = append(importers[imported], words[0])
			}
		}
		if len(all) == 0 {
			t.Fatal("go list -deps found nothing")
		}
		for _, path := range all {
			if !within(path, "github.com/fronta-mq/fronta", "github.com/twmb/franz-go", "github.com/klauspost/compress", "github.com/pierrec/lz4") &&
				!(within(path, "golang.org/x/crypto") && neededByFranzGo(importers[path])) {
				t.Errorf("the library needs %s, by way of %q: move what imports it out of the library's packages", path, importers[path])
			}
		}
	})
	// The embedded broker is for tests: what is not one must not need it.
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		const kfake = "github.com/twmb/franz-go/pkg/kfake"
		list := goCommand(t, "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
		uses := false
		for _, words := range fieldsOfLines(list) {
			if !slices.Contains(words[1:], kfake) {
				continue
			}
			if within(words[0], "github.com/fronta-mq/fronta/fake", "github.com/fronta-mq/fronta/test") {
				uses = true
				continue
			}
			t.Errorf("package %s needs kfake: only package fake and tests may", words[0])
		}
		if !uses {
			t.Error("package fake does not need kfake: this test looks for the wrong package")
		}
	})
}

func fieldsOfLines(text string) [][]string {
	var out [][]string
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) > 0 {
			out = append(out, words)
		}
	}
	return out
}

// within says whether path is one of the modules or packages, or below it.
func within(path string, parents ...string) bool {
	return slices.ContainsFunc(parents, func(p string) bool {
		return path == p || strings.HasPrefix(path, p+"/")
	})
}

func neededByFranzGo(importers []string) bool {
	return !slices.ContainsFunc(importers, func(p string) bool {
		return !within(p, "github.com/twmb/franz-go", "golang.org/x/crypto")
	})
}
