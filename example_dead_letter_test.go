package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record that has failed MaxDeliveries times is a dead letter.
func ExampleDeadLetterTopic() {
	broker := startBroker("orders", "orders.billing.dlq")
	defer broker.Close()
	produce(broker, "orders", "anna=12 EUR")

	c, err := fronta.NewConsumer(fronta.Config{
		Client:        broker.Opts(),
		Group:         "billing",
		Topics:        []string{"orders"},
		Retry:         fronta.ConstantBackoff(10 * time.Millisecond),
		MaxDeliveries: 3,
		DeadLetter:    fronta.DeadLetterTopic("orders.billing.dlq"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := after(3)
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		defer done()
		return errors.New("card declined")
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
		fmt.Printf("%s after %d: %s\n", letter.Reason, letter.DeliveryCount, letter.Error)
	})
	// Output:
	// deliveries after 3: card declined
}
