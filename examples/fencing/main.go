// Fencing keeps a process that was declared dead, and goes on working, from
// writing into a database over what the partition's next owner has written:
// Record.Fence rises with every owner, and the database refuses lower ones.
//
// Run it against a broker of its own, with some orders to handle, each
// command in a terminal of its own:
//
//	go run ./cmd/fronta broker --topic orders:4 --topic orders.billing.dlq:4
//	go run ./examples/fencing
//	go run ./examples/produce
//
// Start it twice: the partitions are shared, and what moves gets a higher fence.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"sync"
	"syscall"

	"github.com/fronta-mq/fronta"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	db := &database{fences: make(map[fronta.TopicPartition]int64), orders: make(map[string]int)}
	c, err := fronta.NewConsumer(fronta.Config{
		Client:     []kgo.Opt{kgo.SeedBrokers("localhost:9092")},
		Group:      "billing",
		Topics:     []string{"orders"},
		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
	})
	if err == nil {
		err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			return db.insert(r)
		}))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// database stands for a real one, which all processes share. There, both
// statements are in one transaction:
//
//	UPDATE fences SET fence = $1 WHERE topic = $2 AND part = $3 AND fence <= $1
//	INSERT INTO orders …
//
// and if the first one updates no row, the transaction is rolled back.
type database struct {
	mu     sync.Mutex
	fences map[fronta.TopicPartition]int64
	orders map[string]int // per customer
}

func (db *database) insert(r *fronta.Record) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	from := fronta.TopicPartition{Topic: r.Topic, Partition: r.Partition}
	if highest := db.fences[from]; r.Fence < highest {
		// Whatever is returned now changes nothing: the record is another
		// process's business.
		return fmt.Errorf("insert %s: fence %d, but the partition's owner has %d", r, r.Fence, highest)
	}
	db.fences[from] = r.Fence
	db.orders[string(r.Key)]++
	fmt.Printf("%s: order %d, under fence %d\n", r.Key, db.orders[string(r.Key)], r.Fence)
	return nil
}
