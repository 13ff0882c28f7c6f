package out

// Progress: a few lines that are redrawn in place on a terminal, and one plain line now and then in a pipe or a file, where
// a control sequence would be rubbish. Nobody waits for it, so it has no goroutine: it is drawn when it is told, if it is
// time.

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	// redrawEvery is how often a terminal is redrawn at most: more is flicker, and slows the work that is shown.
	redrawEvery = 100 * time.Millisecond
	// plainEvery is how often a plain line is written at most.
	plainEvery = 2 * time.Second
)

// Progress tells how far the work is, in a few short lines that replace those told before. Call it as often as there is news:
// on a terminal the lines are redrawn up to ten times a second and cut at its width; elsewhere they become one line,
// joined by ", ", at once at first and then every two seconds. See [New] for where they go.
func (p *Printer) Progress(lines ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown == nil {
		return
	}
	p.block = append(p.block[:0], lines...)
	every := plainEvery
	if p.live {
		every = redrawEvery
	}
	now := time.Now()
	if !p.last.IsZero() && now.Sub(p.last) < every {
		return
	}
	p.last = now
	if p.live {
		p.erase()
		p.draw()
		return
	}
	fmt.Fprintln(p.progressWriter(), oneLine(strings.Join(lines, ", "), 0))
}

// EndProgress takes the progress off the terminal, before results are printed. Progress may begin again afterwards.
// [Printer.Print] does not end it: what it prints comes above the progress.
func (p *Printer) EndProgress() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.block, p.last = nil, time.Time{}
}

// erase takes the progress off the terminal and leaves the cursor at the start of its first line.
func (p *Printer) erase() {
	if p.drawn > 0 {
		fmt.Fprintf(p.progressWriter(), "\x1b[%dA\r\x1b[J", p.drawn)
		p.drawn = 0
	}
}

// draw puts the progress on the terminal. A line that wrapped would take two, and erase would leave one behind.
func (p *Printer) draw() {
	if !p.live || p.shown == nil || len(p.block) == 0 {
		return
	}
	var b strings.Builder
	width := p.width()
	for _, line := range p.block {
		b.WriteString(oneLine(line, width))
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(p.progressWriter(), b.String())
	p.drawn = len(p.block)
}

func (p *Printer) progressWriter() io.Writer {
	if p.json {
		return p.stderr // losing it loses nothing that was asked for
	}
	return &recorder{p: p, to: p.shown}
}

// oneLine cuts a line to width characters, 0 for any, and replaces control characters, which may come from record keys.
func oneLine(line string, width int) string {
	chars := []rune(line)
	if width > 0 && len(chars) > width {
		chars = append(chars[:max(width-1, 0)], '…')
	}
	return Clean(string(chars))
}
