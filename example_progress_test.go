package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// What was finished behind a record that is stuck stays finished: the commit
// says so, and the next consumer handles the others alone. Failed attempts are
// counted on.
func ExampleConfig_progress() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "bert=1", "carl=1", "anna=2", "bert=2")

	config := fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Retry:  fronta.ConstantBackoff(time.Hour),
	}
	c, err := fronta.NewConsumer(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := after(4)
	err = c.Run(ctx, fronta.HandlerFunc(func(_ context.Context, r *fronta.Record) error {
		defer done()
		if string(r.Key) == "anna" {
			return errors.New("anna's card is refused")
		}
		return nil
	}))
	fmt.Println("the first consumer:", err)

	next, err := fronta.NewConsumer(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done = after(2)
	err = next.Run(ctx, fronta.HandlerFunc(func(_ context.Context, r *fronta.Record) error {
		defer done()
		fmt.Printf("%s of %s, delivery %d\n", r, r.Key, r.DeliveryCount)
		return nil
	}))
	fmt.Println("the second one:", err)
	// Output:
	// the first consumer: <nil>
	// orders/0@0 of anna, delivery 2
	// orders/0@3 of anna, delivery 1
	// the second one: <nil>
}
