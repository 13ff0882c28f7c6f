package fronta_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// It is too early for this order. Putting it off is no failure: the delivery
// count stays as it is.
func ExampleSnooze() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	var notBefore time.Time
	ctx, done := after(1)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		if notBefore.IsZero() {
			notBefore = time.Now().Add(50 * time.Millisecond)
		}
		if wait := time.Until(notBefore); wait > 0 {
			return fronta.Snooze(wait)
		}
		defer done()
		fmt.Println("delivery count:", r.DeliveryCount)
		return nil
	}))
	fmt.Println("snoozed:", c.Stats().Snoozed > 0)
	fmt.Println("error:", err)
	// Output:
	// delivery count: 1
	// snoozed: true
	// error: <nil>
}
