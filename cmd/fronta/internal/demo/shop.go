package demo

// The handler, and what goes wrong in it.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fronta-mq/fronta"
)

// shop handles orders. It is the same for all members.
type shop struct {
	opts Options
	bank bank
}

// Handle is what a user of the library would write.
func (s *shop) Handle(ctx context.Context, r *fronta.Record) error {
	var o order
	if err := json.Unmarshal(r.Value, &o); err != nil {
		return fronta.Reject(fmt.Errorf("%w: not an order: %w", errRefused, err))
	}
	for _, c := range o.Cents {
		if c <= 0 {
			return fronta.Reject(fmt.Errorf("%w: order %d has a price of %d", errRefused, o.ID, c))
		}
	}
	_ = o.Cents[0] // the handler's bug: an order without items panics
	if err := s.bank.charge(o.Customer); err != nil {
		return fmt.Errorf("order %d: %w", o.ID, err)
	}
	return sleep(ctx, s.opts.work(o))
}

// sleep waits for d or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var (
	errRefused = errors.New("refused")
	errBank    = errors.New("the bank does not answer")
)

// bank fails for one customer, for a while that begins with the first payment after it was told to fail.
type bank struct {
	customer string
	length   time.Duration
	say      func(string)

	mu    sync.Mutex
	armed bool
	since time.Time
}

// fail begins the outage.
func (b *bank) fail() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = true
}

func (b *bank) charge(customer string) error {
	if customer != b.customer {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed {
		return nil
	}
	if b.since.IsZero() {
		b.since = time.Now()
		b.say("payments of " + customer + " fail; its other orders wait, all other customers go on")
	}
	if time.Since(b.since) < b.length {
		return errBank
	}
	b.armed = false
	b.say("payments of " + customer + " work again")
	return nil
}
