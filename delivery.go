package fronta

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/fronta-mq/fronta/internal/engine"
)

// Delivery is a record handed out by [Consumer.Receive]. One of Accept,
// Release and Reject settles it; until then its lane waits, and nothing else.
// The first of them counts: any after it answers [ErrSettled]. Once the
// partition is gone they answer [ErrLost], and the record is handled again by
// its next owner. The methods may be called from any goroutine.
//
// With Config.HandlerTimeout a delivery has a deadline, which Renew moves on;
// past it the delivery is released as a failed attempt. A delivery that
// becomes garbage unsettled is reported and released likewise.
type Delivery struct {
	*Record

	c      *Consumer
	pulled engine.Pulled
	gone   *atomic.Bool // settled, or known to be lost
}

// Receive hands out the next record that may be worked on: the first
// unfinished one of a lane in which nothing is out. It waits until there is
// one, or until ctx ends, and then answers with the cause of ctx. The first
// call starts the consumer; [Consumer.Close] stops it, after which Receive
// answers [ErrClosed], or the error that stopped it. At most
// Config.Concurrency deliveries are out at once. Middleware is not applied.
func (c *Consumer) Receive(ctx context.Context) (*Delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := c.startPulling(); err != nil {
		return nil, err
	}
	p, err := c.engine.Receive(ctx)
	switch {
	case err == nil:
	case err == engine.ErrStopping:
		return nil, ErrClosed
	default:
		return nil, err
	}
	d := &Delivery{Record: (*Record)(p.Delivery()), c: c, pulled: p, gone: new(atomic.Bool)}
	runtime.AddCleanup(d, dropped, drop{c.engine, p, d.gone})
	return d, nil
}

type drop struct {
	e    *engine.Engine
	p    engine.Pulled
	gone *atomic.Bool
}

func dropped(d drop) {
	if !d.gone.Load() {
		// Cleanups share one goroutine, which must not wait for a lock or a hook.
		go d.e.Dropped(d.p)
	}
}

func (c *Consumer) startPulling() error {
	c.mu.Lock()
	pulling := c.state == statePulling
	c.mu.Unlock()
	if pulling {
		return nil
	}
	switch err := c.start(statePulling, nil); err {
	case nil:
		c.pulled.Store(true)
		go c.run(c.asked)
		return nil
	case ErrRunning:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.state == statePulling {
			return nil // another Receive was first
		}
		return err
	default:
		if failed := c.result(); failed != nil {
			return failed
		}
		return err
	}
}

// Accept settles the delivery as done.
func (d *Delivery) Accept() error { return d.settle(engine.Outcome{Verb: engine.Accept}) }

// Release gives the record back without counting an attempt: it is handed out
// again after delay. Use [Delivery.Fail] for an attempt that failed.
func (d *Delivery) Release(delay time.Duration) error {
	return d.settle(engine.Outcome{Verb: engine.Snooze, Delay: max(delay, 0)})
}

// Fail settles the delivery as a handler's error would: a failed attempt,
// tried again by Config.Retry or dead-lettered after Config.MaxDeliveries.
// [Reject], [RetryAfter], [Snooze] and [Stop] work too; a nil err accepts.
func (d *Delivery) Fail(err error) error { return d.settle(outcomeOf(err)) }

// Reject settles the delivery for good: it goes to the dead-letter topic, with
// err as the reason. See [Reject] for what happens without one.
func (d *Delivery) Reject(err error) error {
	return d.settle(engine.Outcome{Verb: engine.Reject, Err: orUnknown(err)})
}

// Renew moves the delivery's deadline to Config.HandlerTimeout from now. It
// does nothing where no deadline is set.
func (d *Delivery) Renew() error {
	return d.where("renew", d.c.engine.Renew(d.pulled))
}

func (d *Delivery) settle(out engine.Outcome) error {
	err := d.c.engine.Settle(d.pulled, out)
	d.gone.Store(true)
	return d.where("settle", err)
}

func (d *Delivery) where(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("fronta: %s %s: %w", what, d.Record, err)
}
