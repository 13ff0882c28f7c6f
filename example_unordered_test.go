package fronta_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/fronta-mq/fronta"
)

// Without an order, records of one key run at once too: these three wait for
// each other.
func ExampleUnordered() {
	broker := startBroker("emails")
	defer broker.Close()
	produce(broker, "emails", "anna=welcome", "anna=invoice", "anna=newsletter")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "mailer",
		Topics: []string{"emails"},
		Order:  fronta.Unordered(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	var all sync.WaitGroup
	all.Add(3)
	ctx, done := after(3)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		all.Done()
		all.Wait()
		return nil
	}))
	fmt.Println("accepted:", c.Stats().Accepted)
	fmt.Println("error:", err)
	// Output:
	// accepted: 3
	// error: <nil>
}
