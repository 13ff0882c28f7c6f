package engine

import (
	"context"
	"errors"
	"sync"
)

// letterBox takes dead letters: at once, or when told to.
type letterBox struct {
	mu      sync.Mutex
	hold    bool // letters wait for answer
	fail    func(Letter) error
	held    []func(error)
	written []Letter
}

var errLetter = errors.New("the broker is away")

func (b *letterBox) Write(_ context.Context, l Letter, done func(error)) {
	b.mu.Lock()
	var err error
	if b.fail != nil {
		err = b.fail(l)
	}
	if err == nil {
		b.written = append(b.written, l)
	}
	if b.hold {
		b.held = append(b.held, func(forced error) {
			if forced == nil {
				forced = err
			}
			done(forced)
		})
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	done(err)
}

// answer lets the letters that wait go, with err if it is not nil.
func (b *letterBox) answer(err error) int {
	b.mu.Lock()
	held := b.held
	b.held = nil
	b.mu.Unlock()
	for _, done := range held {
		done(err)
	}
	return len(held)
}

func (b *letterBox) offsets() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var os []int64
	for _, l := range b.written {
		os = append(os, l.Record.Offset)
	}
	return os
}
