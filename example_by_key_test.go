package fronta_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/fronta-mq/fronta"
)

// Records of one key run one after another, different keys at once: here the
// first order of each customer waits until the other customer's has started,
// on a topic of one partition.
func ExampleByKey() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "anna=2", "ben=1", "anna=3", "ben=2")

	c, err := fronta.NewConsumer(fronta.Config{
		Client: broker.Opts(),
		Group:  "billing",
		Topics: []string{"orders"},
		Order:  fronta.ByKey(), // the default
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	var both sync.WaitGroup
	both.Add(2)
	var mu sync.Mutex
	handled := make(map[string][]string)
	ctx, done := after(5)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		customer, order := string(r.Key), string(r.Value)
		if order == "1" {
			both.Done()
			both.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		handled[customer] = append(handled[customer], order)
		return nil
	}))
	fmt.Println("anna:", handled["anna"])
	fmt.Println("ben:", handled["ben"])
	fmt.Println("error:", err)
	// Output:
	// anna: [1 2 3]
	// ben: [1 2]
	// error: <nil>
}
