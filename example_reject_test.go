package fronta_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record that can never succeed goes to the dead-letter topic, where
// deadletter.Parse tells where it came from and why.
func ExampleReject() {
	broker := startBroker("orders", "orders.billing.dlq")
	defer broker.Close()
	produce(broker, "orders", "anna=12 EUR", "ben=7 XXX")

	c, err := fronta.NewConsumer(fronta.Config{
		Client:     broker.Opts(),
		Group:      "billing",
		Topics:     []string{"orders"},
		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := after(2)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		if string(r.Value) == "7 XXX" {
			return fronta.Reject(errors.New("unknown currency"))
		}
		return nil
	}))
	if err != nil {
		fmt.Println(err)
		return
	}

	letters, err := kgo.NewClient(append(broker.Opts(), kgo.ConsumeTopics("orders.billing.dlq"))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer letters.Close()
	letters.PollFetches(context.Background()).EachRecord(func(r *kgo.Record) {
		letter, err := deadletter.Parse(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %s\n", letter.Key, letter.Value)
		fmt.Printf("from %s/%d@%d\n", letter.Origin.Topic, letter.Origin.Partition, letter.Origin.Offset)
		fmt.Printf("%s by %s: %s\n", letter.Reason, letter.Group, letter.Error)
	})
	// Output:
	// ben: 7 XXX
	// from orders/0@1
	// rejected by billing: unknown currency
}
