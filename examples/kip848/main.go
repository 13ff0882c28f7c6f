// Kip848 consumes with the group protocol of KIP-848, in which the broker
// assigns the partitions (Kafka 4.0 and later), and reads only records of
// transactions that were committed, and those outside of any.
//
// Run it against a broker of its own, with some orders to handle, each
// command in a terminal of its own:
//
//	go run ./cmd/fronta broker --topic orders:4 --topic orders.billing.dlq:4
//	go run ./examples/kip848
//	go run ./examples/produce
//
// It has a group of its own: a group that others run by the classic protocol
// changes to this one only when it is empty, and the embedded broker does not
// let it go back.
package main

import (
	"context"
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
		Group:      "billing-848",
		Topics:     []string{"orders"},
		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
		Protocol:   fronta.ConsumerProtocol,
		Isolation:  fronta.ReadCommitted,
	})
	if err == nil {
		err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			fmt.Printf("%s: %s, under fence %d\n", r.Key, r.Value, r.Fence)
			return nil
		}))
	}
	if err != nil {
		log.Fatal(err)
	}
}
