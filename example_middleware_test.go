package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fronta-mq/fronta"
)

// logAttempts is a middleware that logs each attempt with its outcome.
func logAttempts(log *slog.Logger) fronta.Middleware {
	return func(next fronta.Handler) fronta.Handler {
		return fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			err := next.Handle(ctx, r)
			if err != nil {
				log.Warn("attempt failed", "record", r, "attempt", r.DeliveryCount, "err", err)
			} else {
				log.Info("done", "record", r, "attempt", r.DeliveryCount)
			}
			return err
		})
	}
}

// Middleware wraps the handler; the outcome passes through it as an error.
func ExampleMiddleware() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client:     broker.Opts(),
		Group:      "billing",
		Topics:     []string{"orders"},
		Retry:      fronta.ConstantBackoff(10 * time.Millisecond),
		Middleware: []fronta.Middleware{logAttempts(lineLogger())},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, done := after(1)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		if r.DeliveryCount == 1 {
			return errors.New("card declined")
		}
		done()
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// level=WARN msg="attempt failed" record=orders/0@0 attempt=1 err="card declined"
	// level=INFO msg=done record=orders/0@0 attempt=2
	// error: <nil>
}
