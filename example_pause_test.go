package fronta_test

import (
	"context"
	"fmt"

	"github.com/fronta-mq/fronta"
)

// Orders wait until the refund is through. Pause and Resume do the same for
// single partitions.
func ExampleConsumer_PauseTopic() {
	broker := startBroker("orders", "refunds")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "anna=2")
	produce(broker, "refunds", "anna=0")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders", "refunds"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	c.PauseTopic("orders")
	ctx, done := after(3)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		fmt.Printf("%s: %s\n", r.Topic, r.Value)
		if r.Topic == "refunds" {
			c.ResumeTopic("orders")
		}
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// refunds: 0
	// orders: 1
	// orders: 2
	// error: <nil>
}

// A partition is paused by its name. What runs goes on, what waits stays, and
// the pause outlives rebalances.
func ExampleConsumer_Pause() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Hooks:  []any{assignedFunc(func() { fmt.Println("assigned") })},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	first := fronta.TopicPartition{Topic: "orders", Partition: 0}
	c.Pause(first)
	fmt.Println("paused")
	c.Resume(first)
	fmt.Println("resumed")
	ctx, done := after(1)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		fmt.Println("handled")
		return nil
	}))
	fmt.Println("error:", err)
	// Output:
	// paused
	// resumed
	// assigned
	// handled
	// error: <nil>
}

type assignedFunc func()

func (f assignedFunc) OnAssigned([]fronta.TopicPartition, int64) { f() }
