package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
)

// Why does the lag grow? Stats shows which key holds its partition's frontier,
// since when, why, and how many of its records wait behind it.
func ExampleConsumer_Stats() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "ben=1", "anna=2", "carl=1")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Retry:  fronta.ConstantBackoff(time.Hour),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for range 3 {
		d, err := c.Receive(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		if string(d.Key) == "anna" {
			err = d.Fail(errors.New("card declined"))
		} else {
			err = d.Accept()
		}
		if err != nil {
			fmt.Println(err)
			return
		}
	}

	stats := c.Stats()
	fmt.Println("accepted:", stats.Accepted, "failed:", stats.Failed, "unfinished:", stats.Unfinished)
	for _, p := range stats.Partitions {
		fmt.Printf("%s/%d: frontier %d, lag %d\n", p.Topic, p.Partition, p.Frontier, p.Lag())
		for _, lane := range p.Blocked {
			fmt.Printf("%s is %s after %d attempt with %d behind: %v\n", lane.Key, lane.State, lane.Attempts, lane.Behind, lane.Err)
		}
	}
	// Output:
	// accepted: 2 failed: 1 unfinished: 2
	// orders/0: frontier 0, lag 4
	// anna is waiting after 1 attempt with 1 behind: card declined
}
