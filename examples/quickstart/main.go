// Quickstart handles the orders of a topic: those of one customer one after
// another, those of different customers at once. A failed order is tried again
// with a backoff that holds only its customer, and is a dead letter after ten
// attempts.
//
// Run it against a broker of its own, with some orders to handle, each
// command in a terminal of its own:
//
//	go run ./cmd/fronta broker --topic orders:4 --topic orders.billing.dlq:4
//	go run ./examples/quickstart
//	go run ./examples/produce
//
// Ctrl-C stops it in good order; started again, it goes on where it was.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/fronta-mq/fronta"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := fronta.NewConsumer(fronta.Config{
		Client:     []kgo.Opt{kgo.SeedBrokers("localhost:9092")},
		Group:      "billing",
		Topics:     []string{"orders"},
		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
	})
	if err == nil {
		err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			return charge(ctx, r.Key, r.Value)
		}))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// charge stands for the real work.
func charge(_ context.Context, customer, order []byte) error {
	if len(order) == 0 {
		return errors.New("the order is empty")
	}
	fmt.Printf("%s: %s\n", customer, order)
	return nil
}
