package fronta_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/fronta-mq/fronta"
)

// database stands for one that keeps, beside its data, the highest fence that
// it has seen for each partition, and does both in one transaction.
type database struct {
	mu     sync.Mutex
	fences map[fronta.TopicPartition]int64
	orders []string
}

func (db *database) insert(order string, from fronta.TopicPartition, fence int64) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if fence < db.fences[from] {
		return fmt.Errorf("%s/%d has a newer owner", from.Topic, from.Partition)
	}
	db.fences[from] = fence
	db.orders = append(db.orders, order)
	return nil
}

// A process that was declared dead may still write. Its fence is lower than
// that of the partition's next owner, so the database can refuse it.
func ExampleRecord_fence() {
	broker := startBroker("orders")
	defer broker.Close()
	db := &database{fences: make(map[fronta.TopicPartition]int64)}
	write := func(r *fronta.Record) error {
		from := fronta.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		return db.insert(string(r.Value), from, r.Fence)
	}

	var zombie *fronta.Record // what the first owner was last working on
	for _, order := range []string{"1", "2"} {
		produce(broker, "orders", "anna="+order)
		c, err := fronta.NewConsumer(fronta.Config{
			Client: broker.Opts(),
			Group:  "billing",
			Topics: []string{"orders"},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		ctx, done := after(1)
		err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			defer done()
			if zombie == nil {
				zombie = r
			}
			return write(r)
		}))
		if err != nil {
			fmt.Println(err)
			return
		}
	}

	fmt.Println("the first owner wakes up:", write(zombie))
	fmt.Println("orders:", db.orders)
	// Output:
	// the first owner wakes up: orders/0 has a newer owner
	// orders: [1 2]
}
