package demo

// What the day looks like while it lasts.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli/out"
)

// shownLanes is how many blocked lanes have a line.
const shownLanes = 3

// show draws the progress until the day ends or the function it returns is called, which waits for that.
func (d *day) show(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(showEvery)
		defer tick.Stop()
		var speed speed
		for {
			select {
			case <-tick.C:
				d.display.Progress(d.lines(&speed)...)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (d *day) lines(speed *speed) []string {
	d.mu.Lock()
	produced := d.produced
	d.mu.Unlock()
	var (
		inWork, running, waiting int
		lettered                 int64
		blocked                  []fronta.BlockedLane
	)
	for _, m := range d.now() {
		s := m.consumer.Stats()
		inWork += s.Unfinished
		running += s.Running
		waiting += s.Waiting
		lettered += s.DeadLettered
		for _, p := range s.Partitions {
			blocked = append(blocked, p.Blocked...)
		}
	}
	handled := d.check.Report().Handled + lettered
	lines := []string{
		fmt.Sprintf("produced %s of %s", out.Count(produced), out.Count(d.opts.Records)),
		fmt.Sprintf("handled %s, %s/s", out.Count(handled), out.Count(int(speed.of(handled)))),
		fmt.Sprintf("in work %s: %d running, %d waiting for a retry", out.Count(inWork), running, waiting),
		fmt.Sprintf("dead letters %d", lettered),
		fmt.Sprintf("blocked lanes %d", len(blocked)),
	}
	slices.SortFunc(blocked, func(a, b fronta.BlockedLane) int { return b.Behind - a.Behind })
	for i, b := range blocked {
		if i == shownLanes {
			break
		}
		lines[len(lines)-1] += fmt.Sprintf("%c %s (attempts %d, behind %d)", ":,,"[i], b.Key, b.Attempts, b.Behind)
	}
	return lines
}

// speed is the rate over the last second or so.
type speed struct {
	points []point
}

type point struct {
	at time.Time
	n  int64
}

func (s *speed) of(n int64) float64 {
	now := time.Now()
	s.points = append(s.points, point{now, n})
	for len(s.points) > 2 && now.Sub(s.points[0].at) > time.Second {
		s.points = s.points[1:]
	}
	first := s.points[0]
	if d := now.Sub(first.at); d > 0 {
		return float64(n-first.n) / d.Seconds()
	}
	return 0
}
