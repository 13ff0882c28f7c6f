// Middleware wraps a handler in what is the same for many: here one that logs
// attempts with their duration, and one that knows which errors are an outage,
// during which it makes no sense to come again soon.
//
// Run it against a broker of its own, with some orders to handle, each
// command in a terminal of its own:
//
//	go run ./cmd/fronta broker --topic orders:4 --topic orders.billing.dlq:4
//	go run ./examples/middleware
//	go run ./examples/produce
//
// Ctrl-C stops it in good order.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := fronta.NewConsumer(fronta.Config{
		Client:     []kgo.Opt{kgo.SeedBrokers("localhost:9092")},
		Group:      "billing",
		Topics:     []string{"orders"},
		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
		Middleware: []fronta.Middleware{logAttempts(logger), waitOutOutages(10 * time.Second)}, // the first is the outermost
		Logger:     logger,
	})
	if err == nil {
		err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			return charge(ctx, r.Key, r.Value)
		}))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// logAttempts logs how each attempt ended and how long it took.
func logAttempts(logger *slog.Logger) fronta.Middleware {
	return func(next fronta.Handler) fronta.Handler {
		return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			begin := time.Now()
			err := next.Handle(ctx, r)
			level := slog.LevelInfo
			if err != nil {
				level = slog.LevelWarn
			}
			logger.Log(ctx, level, "attempt", "record", r, "number", r.DeliveryCount, "took", time.Since(begin), "err", err)
			return err
		})
	}
}

// errOutage is what the handler's errors are made of when the bank is down.
var errOutage = errors.New("the bank does not answer")

// waitOutOutages has a record tried again after d if its attempt failed in an
// outage, whatever Config.Retry says.
func waitOutOutages(d time.Duration) fronta.Middleware {
	return func(next fronta.Handler) fronta.Handler {
		return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			err := next.Handle(ctx, r)
			if errors.Is(err, errOutage) {
				return fronta.RetryAfter(d, err)
			}
			return err
		})
	}
}

// charge stands for a call of the bank.
func charge(ctx context.Context, _, order []byte) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errOutage, context.Cause(ctx))
	case len(order) == 0:
		return fronta.Reject(errors.New("the order is empty"))
	}
	return nil
}
