package fronta_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fronta-mq/fronta"
)

// A handler that knows that going on makes no sense stops its consumer. The
// record stays unfinished: whoever consumes the partition next handles it.
func ExampleStop() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1")

	config := fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
	}
	c, err := fronta.NewConsumer(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	licenceExpired := errors.New("the licence has expired")
	err = c.Run(context.Background(), fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		return fronta.Stop(licenceExpired)
	}))
	fmt.Println(err)
	fmt.Println("the licence:", errors.Is(err, licenceExpired))

	next, err := fronta.NewConsumer(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := after(1)
	err = next.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		fmt.Printf("handled: %s\n", r)
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// fronta: handler asked to stop at topic "orders" partition 0 offset 0 (the record stays unfinished): the licence has expired
	// the licence: true
	// handled: orders/0@0
	// error: <nil>
}
