package engine

import "time"

// watchdog reports handlers that run for longer than StuckAfter, each once. It
// costs the handlers nothing: it looks at the workers now and then and notes
// since when each has been where it is, so a report comes up to half of
// StuckAfter late.
type watchdog struct {
	e     *Engine
	timer *time.Timer
}

type watched struct {
	at       uint64
	since    time.Time
	reported bool
}

func (w *watchdog) init(e *Engine) {
	w.e = e
	e.mu.Lock() // look waits until there is a timer for it
	defer e.mu.Unlock()
	if e.cfg.StuckAfter > 0 {
		w.timer = time.AfterFunc(w.interval(), w.look)
	}
}

func (w *watchdog) interval() time.Duration { return max(w.e.cfg.StuckAfter/2, time.Millisecond) }

func (w *watchdog) look() {
	e := w.e
	var fx effects
	e.mu.Lock()
	now := time.Now()
	for x := range e.workers.all {
		at, running := x.whereLocked()
		if at != x.current.at || running == nil {
			x.current = watched{at: at, since: now}
			continue
		}
		age := now.Sub(x.current.since)
		if age < e.cfg.StuckAfter {
			continue
		}
		if !x.current.reported {
			x.current.reported = true
			e.counters.StuckReports++
			fx.add(func() { e.cfg.Events.stuck(&running.Delivery, age, false) })
		}
	}
	if e.cfg.Handle == nil {
		e.lookAtPulledLocked(now, &fx)
	}
	if !e.workers.closed {
		w.timer.Reset(w.interval())
	}
	e.mu.Unlock()
	fx.run()
}

// lookAtPulledLocked does the same for deliveries handed out by Receive.
func (e *Engine) lookAtPulledLocked(now time.Time, fx *effects) {
	e.eachOutLocked(func(t *task) {
		age := now.Sub(t.more.since)
		if age >= e.cfg.StuckAfter && !t.more.reported {
			t.more.reported = true
			e.counters.StuckReports++
			fx.add(func() { e.cfg.Events.stuck(&t.Delivery, age, false) })
		}
	})
}

// eachOutLocked calls f for every delivery handed out by Receive and not
// settled, those of partitions that are gone included.
func (e *Engine) eachOutLocked(f func(*task)) {
	for _, p := range e.parts {
		for _, t := range p.tasks {
			if t != nil && t.more != nil && !t.more.since.IsZero() && e.currentLocked(t) == nil {
				f(t)
			}
		}
	}
	for _, zs := range e.zombies {
		for t := range zs {
			if t.more != nil && !t.more.since.IsZero() {
				f(t)
			}
		}
	}
}

// stuckLocked counts the reported ones that are still where they were.
func (w *watchdog) stuckLocked() (n int64) {
	e := w.e
	for x := range e.workers.all {
		if at, running := x.whereLocked(); running != nil && at == x.current.at && x.current.reported {
			n++
		}
	}
	if e.cfg.Handle != nil {
		return n
	}
	e.eachOutLocked(func(t *task) {
		if t.more.reported {
			n++
		}
	})
	return n
}

// closeLocked ends the watch with a last look: what still runs is reported.
func (w *watchdog) closeLocked(fx *effects) {
	if w.timer != nil {
		w.timer.Stop()
	}
	now := time.Now()
	for x := range w.e.workers.all {
		at, running := x.whereLocked()
		if running == nil {
			continue
		}
		age := time.Duration(0)
		if at == x.current.at {
			age = now.Sub(x.current.since)
		}
		w.e.counters.StuckReports++
		fx.add(func() { w.e.cfg.Events.stuck(&running.Delivery, age, false) })
	}
}
