package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// A handler's error has the record tried again after a backoff. Only its own
// key waits: anna's first order comes back until ben's is done.
func ExampleExponentialBackoff() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "anna=2", "ben=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Retry:  fronta.ExponentialBackoff{Initial: 10 * time.Millisecond, Max: time.Second},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ben := make(chan struct{})
	ctx, done := after(3)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		switch {
		case string(r.Key) == "ben":
			close(ben)
			done()
			return nil
		case string(r.Value) == "1" && r.DeliveryCount < 3:
			fmt.Printf("anna's order %s, attempt %d: card declined\n", r.Value, r.DeliveryCount)
			return errors.New("card declined")
		}
		<-ben
		fmt.Printf("anna's order %s, attempt %d: charged\n", r.Value, r.DeliveryCount)
		done()
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// anna's order 1, attempt 1: card declined
	// anna's order 1, attempt 2: card declined
	// anna's order 1, attempt 3: charged
	// anna's order 2, attempt 1: charged
	// error: <nil>
}
