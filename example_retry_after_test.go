package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// The bank says itself when to come again; that replaces the delay of
// Config.Retry. It is a failed attempt, so the delivery count goes up.
func ExampleRetryAfter() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Retry:  fronta.ConstantBackoff(time.Hour),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	const comeAgain = 50 * time.Millisecond
	ctx, done := after(1)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		if r.DeliveryCount == 1 {
			return fronta.RetryAfter(comeAgain, errors.New("too many requests"))
		}
		defer done()
		fmt.Printf("attempt %d, since %q\n", r.DeliveryCount, r.Failure.Err)
		fmt.Println("waited:", time.Since(r.Failure.Last) >= comeAgain)
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// attempt 2, since "too many requests"
	// waited: true
	// error: <nil>
}
