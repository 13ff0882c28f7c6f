package fronta_test

import (
	"bytes"
	"context"
	"fmt"

	"github.com/fronta-mq/fronta"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Orders have keys of their own, but those of one account, which is the first
// part of the value, must run one after another.
func ExampleByKeyFunc() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "order-1=acme,10", "order-2=acme,25", "order-3=acme,-5")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Order: fronta.ByKeyFunc("account", func(r *kgo.Record) []byte {
			account, _, _ := bytes.Cut(r.Value, []byte(","))
			return account
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, done := after(3)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		fmt.Printf("%s: %s\n", r.Key, r.Value)
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// order-1: acme,10
	// order-2: acme,25
	// order-3: acme,-5
	// error: <nil>
}
