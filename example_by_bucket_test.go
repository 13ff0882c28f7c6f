package fronta_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fronta-mq/fronta"
)

// A partition's keys share four lanes, so at most four of its records run at
// once, and those of one key still one after another. The first four wait for
// each other here, to show that there are four.
func ExampleByBucket() {
	broker := startBroker("orders")
	defer broker.Close()
	const customers = 100
	var orders []string
	for n := range customers {
		orders = append(orders, fmt.Sprintf("customer-%d=order", n))
	}
	produce(broker, "orders", orders...)

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Order:  fronta.ByBucket(4),
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	var four sync.WaitGroup
	four.Add(4)
	var started, running, tooMany atomic.Int64
	ctx, done := after(customers)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		if running.Add(1) > 4 {
			tooMany.Add(1)
		}
		defer running.Add(-1)
		if started.Add(1) <= 4 {
			four.Done()
			four.Wait()
		}
		return nil
	}))
	fmt.Println("handled:", started.Load())
	fmt.Println("more than four at once:", tooMany.Load())
	fmt.Println("error:", err)
	// Output:
	// handled: 100
	// more than four at once: 0
	// error: <nil>
}
