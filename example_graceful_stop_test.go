package fronta_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// When its context ends, Run lets handlers that run finish, for DrainTimeout,
// commits what they did and leaves the group. The next consumer goes on where
// this one ended.
func ExampleConsumer_Run_gracefulStop() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1")

	config := fronta.Config{
		Client:       broker.Opts(),
		Group:        "billing",
		Topics:       []string{"orders"},
		DrainTimeout: 30 * time.Second, // the default
	}
	c, err := fronta.NewConsumer(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background()) // or signal.NotifyContext
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		fmt.Printf("%s started\n", r)
		stop()
		fmt.Printf("%s cancelled: %v\n", r, ctx.Err())
		return nil
	}))
	fmt.Println("error:", err)

	produce(broker, "orders", "anna=2")
	next, err := fronta.NewConsumer(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := after(1)
	err = next.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		fmt.Printf("%s started\n", r)
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// orders/0@0 started
	// orders/0@0 cancelled: <nil>
	// error: <nil>
	// orders/0@1 started
	// error: <nil>
}
