// Produce writes a hundred orders of ten customers into the topic that the
// other examples consume, and ends.
//
//	go run ./cmd/fronta broker --topic orders:4 --topic orders.billing.dlq:4
//	go run ./examples/produce
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers("localhost:9092"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	var orders []*kgo.Record
	for n := range 100 {
		orders = append(orders, &kgo.Record{
			Key:   fmt.Appendf(nil, "customer-%d", n%10),
			Value: fmt.Appendf(nil, "order %d", n),
		})
	}
	if err := client.ProduceSync(context.Background(), orders...).FirstErr(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("produced", len(orders), "orders")
}
