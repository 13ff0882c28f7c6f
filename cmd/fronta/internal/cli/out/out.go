// Package out prints what a command has to say, for people or for programs.
//
// What must stay true: in JSON mode the standard output has JSON lines and nothing else; a progress display never mixes
// with what is printed; a write that failed is remembered, so that the command can fail.
package out

import (
	"encoding/json"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/term"
)

// Value is something to print. In JSON mode the value is marshalled as it is, so its fields carry json tags; a command that
// prints several values gives them a field "event" that tells them apart.
type Value interface {
	// WriteText writes the value for a person to read, in whole lines. The errors of w need no check: the printer has them.
	WriteText(w io.Writer)
}

// Options are what a [Printer] is made with.
type Options struct {
	Stdout io.Writer
	Stderr io.Writer
	JSON   bool // print values as JSON lines
	// Terminal overrides whether the progress can be redrawn in place. By default, nil, it is asked of the stream.
	Terminal *bool
	// Width is how many characters fit on a line of the terminal. By default, 0, it is asked of the stream.
	Width int
}

// Printer prints values and progress. Its methods may be called from many goroutines at once.
type Printer struct {
	json   bool
	width  func() int
	stdout io.Writer
	stderr io.Writer
	// shown is where progress goes, nil for nowhere, and live whether that is a terminal.
	shown io.Writer
	live  bool

	mu    sync.Mutex
	err   error
	block []string  // the progress as last told
	drawn int       // lines of it that are on the terminal now
	last  time.Time // when progress was last written; zero: never, or not since it ended
}

// New makes a printer.
//
// Progress goes to the standard output in text mode. In JSON mode it goes to the standard error if that is a terminal,
// where a person is watching, and nowhere otherwise: a program may take everything on the standard error for an error.
func New(o Options) *Printer {
	p := &Printer{json: o.JSON, stdout: o.Stdout, stderr: o.Stderr, shown: o.Stdout}
	if o.JSON {
		p.shown = o.Stderr
	}
	file, _ := p.shown.(*os.File)
	p.live = isTerminal(file)
	if o.Terminal != nil {
		p.live = *o.Terminal
	}
	if o.JSON && !p.live {
		p.shown = nil
	}
	p.width = func() int {
		if o.Width > 0 || file == nil {
			return o.Width
		}
		w, _, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 0
		}
		return w
	}
	return p
}

// isTerminal tells whether lines can be redrawn there. The console of Windows may not understand the control sequences.
func isTerminal(f *os.File) bool {
	return f != nil && runtime.GOOS != "windows" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// JSON tells whether values are printed as JSON, for a command that gathers more for programs than for people.
func (p *Printer) JSON() bool { return p.json }

// Print prints a value: as text, or in JSON mode as one line.
func (p *Printer) Print(v Value) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	defer p.draw()
	w := &recorder{p: p, to: p.stdout}
	if !p.json {
		v.WriteText(w)
		return
	}
	line, err := json.Marshal(v)
	if err != nil {
		p.fail(err)
		return
	}
	_, _ = w.Write(append(line, '\n'))
}

// Stderr is the standard error without the risk of writing into a progress display. Whole lines at a time, please.
func (p *Printer) Stderr() io.Writer { return stderrWriter{p} }

// Err is the first write to the standard output that failed, or nil.
func (p *Printer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Printer) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// recorder remembers a failed write in its printer, whose lock is held.
type recorder struct {
	p  *Printer
	to io.Writer
}

func (r *recorder) Write(b []byte) (int, error) {
	n, err := r.to.Write(b)
	if err != nil {
		r.p.fail(err)
	}
	return n, err
}

type stderrWriter struct{ p *Printer }

func (s stderrWriter) Write(b []byte) (int, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.erase()
	defer s.p.draw()
	return s.p.stderr.Write(b)
}
