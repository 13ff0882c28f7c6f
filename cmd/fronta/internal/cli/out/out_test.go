package out

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type result struct {
	Name  string  `json:"name"`
	Score float64 `json:"score"`
}

func (r result) WriteText(w io.Writer) { fmt.Fprintf(w, "%s\nscored %g\n", r.Name, r.Score) }

// bundle is a printer whose streams can be read.
type bundle struct {
	*Printer
	stdout, stderr strings.Builder
}

func newBundle(asJSON, terminal bool, width int) *bundle {
	b := new(bundle)
	b.Printer = New(Options{Stdout: &b.stdout, Stderr: &b.stderr, JSON: asJSON, Terminal: &terminal, Width: width})
	return b
}

func (b *bundle) expect(t *testing.T, stdout, stderr string) {
	t.Helper()
	if got := b.stdout.String(); got != stdout {
		t.Errorf("stdout:\n%q, want\n%q", got, stdout)
	}
	if got := b.stderr.String(); got != stderr {
		t.Errorf("stderr:\n%q, want\n%q", got, stderr)
	}
	if err := b.Err(); err != nil {
		t.Error(err)
	}
}

func TestPrintText(t *testing.T) {
	t.Parallel()
	b := newBundle(false, false, 0)
	b.Print(result{"noop", 0.8})
	b.expect(t, "noop\nscored 0.8\n", "")
}

func TestPrintJSONLines(t *testing.T) {
	t.Parallel()
	b := newBundle(true, false, 0)
	b.Print(result{"a\nb", 0.8})
	b.Print(result{"c", 1})
	b.expect(t, `{"name":"a\nb","score":0.8}`+"\n"+`{"name":"c","score":1}`+"\n", "")
	if !b.JSON() {
		t.Error("JSON() is false")
	}
}

func TestErrTellsOfOutputThatIsMissing(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	for name, tt := range map[string]struct {
		json  bool
		value result
		want  string
	}{
		"text":                {false, result{"a", 1}, full.Error()},
		"JSON":                {true, result{"a", 1}, full.Error()},
		"no form of a number": {true, result{"a", math.NaN()}, "unsupported value: NaN"},
	} {
		p := New(Options{Stdout: failing{full}, Stderr: io.Discard, JSON: tt.json})
		if err := p.Err(); err != nil {
			t.Errorf("%s: %v before anything was printed", name, err)
		}
		p.Print(tt.value)
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Err() = %v, want %s", name, err, tt.want)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestProgressInAPipe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(false, false, 0)
		for i := range 50 { // 4.9 s
			b.Progress(fmt.Sprintf("%d handled", i), "1 blocked")
			time.Sleep(100 * time.Millisecond)
		}
		b.Print(result{"done", 1})
		b.EndProgress()
		b.expect(t, "0 handled, 1 blocked\n20 handled, 1 blocked\n40 handled, 1 blocked\ndone\nscored 1\n", "")
	})
}

func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(false, true, 10)
		b.Progress("0 handled", "0 blocked")
		b.Progress("1 handled", "0 blocked") // too soon
		time.Sleep(100 * time.Millisecond)
		b.Progress("2 handled, 1 retried", "1 blocked")
		b.Print(result{"event", 1})
		fmt.Fprintln(b.Stderr(), "warning")
		b.EndProgress()
		b.Print(result{"done", 1})
		const clear = "\x1b[2A\r\x1b[J"
		shown := "2 handled…\n1 blocked\n"
		b.expect(t, "0 handled\n0 blocked\n"+clear+shown+clear+"event\nscored 1\n"+shown+clear+shown+clear+
			"done\nscored 1\n", "warning\n")
	})
}

// In JSON mode the standard output has nothing but JSON, and the standard error of a program's caller no chatter.
func TestProgressInJSONMode(t *testing.T) {
	t.Parallel()
	piped := newBundle(true, false, 0)
	piped.Progress("1 handled")
	piped.Print(result{"done", 1})
	piped.EndProgress()
	piped.expect(t, `{"name":"done","score":1}`+"\n", "")

	watched := newBundle(true, true, 0)
	watched.Progress("1 handled")
	watched.EndProgress()
	watched.Print(result{"done", 1})
	watched.expect(t, `{"name":"done","score":1}`+"\n", "1 handled\n\x1b[1A\r\x1b[J")
}

func TestProgressMayBeginAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(false, false, 0)
		b.Progress("loading")
		b.EndProgress()
		b.Progress("running")
		b.expect(t, "loading\nrunning\n", "")
	})
}

// A key of a record can hold anything; a terminal would obey it.
func TestProgressHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	b := newBundle(false, true, 0)
	b.Progress("key \x1b[2J\n\u009b1m blocked")
	b.expect(t, "key \uFFFD[2J\uFFFD\uFFFD1m blocked\n", "")
}

func TestPrinterFromManyGoroutines(t *testing.T) {
	t.Parallel()
	b := newBundle(false, true, 80)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				b.Progress("x")
				b.Print(result{"r", 1})
				fmt.Fprintln(b.Stderr(), "e")
			}
		})
	}
	all.Wait()
	b.EndProgress()
	if n := strings.Count(b.stdout.String(), "r\nscored 1\n"); n != 800 {
		t.Errorf("%d whole results, want 800", n)
	}
}
