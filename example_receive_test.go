package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// Instead of a handler: records are taken one by one, and settled from
// whichever goroutine knows the outcome.
func ExampleConsumer_Receive() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "anna=2", "ben=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	anna, err := c.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Anna's second order has to wait for her first one; ben's does not.
	ben, err := c.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %s, %s %s\n", anna.Key, anna.Value, ben.Key, ben.Value)
	fmt.Println("ben accepted:", ben.Accept())
	fmt.Println("anna accepted:", anna.Accept())
	fmt.Println("twice:", errors.Is(anna.Accept(), fronta.ErrSettled))

	anna, err = c.Receive(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s %s: %v\n", anna.Key, anna.Value, anna.Accept())
	fmt.Println("closed:", c.Close())
	_, err = c.Receive(ctx)
	fmt.Println(err)
	// Output:
	// anna 1, ben 1
	// ben accepted: <nil>
	// anna accepted: <nil>
	// twice: true
	// anna 2: <nil>
	// closed: <nil>
	// fronta: the consumer is closed
}

// A released record comes again, and the release counts as no attempt.
func ExampleDelivery_Release() {
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
	defer c.Close()
	for attempt := range 2 {
		d, err := c.Receive(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s, delivery %d\n", d, d.DeliveryCount)
		if attempt == 0 {
			err = d.Release(10 * time.Millisecond)
		} else {
			err = d.Accept()
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// orders/0@0, delivery 1
	// orders/0@0, delivery 1
}

// With HandlerTimeout a delivery has a deadline, after which it is released as
// a failed attempt. Long work moves the deadline on as it goes.
func ExampleDelivery_Renew() {
	broker := startBroker("videos")
	defer broker.Close()
	produce(broker, "videos", "holiday=3 parts")

	c, err := fronta.NewConsumer(fronta.Config{
		Client:         broker.Opts(),
		Group:          "encoder",
		Topics:         []string{"videos"},
		HandlerTimeout: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	d, err := c.Receive(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for part := 1; part <= 3; part++ {
		fmt.Println("encoded part", part)
		if err := d.Renew(); err != nil {
			fmt.Println(err) // somebody else has it: the work is in vain
			return
		}
	}
	fmt.Println("accepted:", d.Accept())
	// Output:
	// encoded part 1
	// encoded part 2
	// encoded part 3
	// accepted: <nil>
}
