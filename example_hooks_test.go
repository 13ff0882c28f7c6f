package fronta_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
)

// alarm implements two of the Hook interfaces; a hook has those that it cares
// for.
type alarm struct{ rung func() }

func (a alarm) OnAssigned(partitions []fronta.TopicPartition, fence int64) {
	fmt.Println("assigned:", partitions)
}

func (a alarm) OnDeadLettered(r *fronta.Record, reason deadletter.Reason, err error) {
	fmt.Printf("dead letter: %s of %s, %s: %v\n", r, r.Key, reason, err)
	a.rung()
}

// Hooks are told what happens in the consumer.
func ExampleConfig_hooks() {
	broker := startBroker("orders", "orders.billing.dlq")
	defer broker.Close()
	produce(broker, "orders", "anna=1 XXX")

	ctx, done := after(1)
	c, err := fronta.NewConsumer(fronta.Config{
		Client:     broker.Opts(),
		Group:      "billing",
		Topics:     []string{"orders"},
		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
		Hooks:      []any{alarm{rung: done}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
		return fronta.Reject(errors.New("unknown currency"))
	}))
	fmt.Println("error:", err)
	// Output:
	// assigned: [{orders 0}]
	// dead letter: orders/0@0 of anna, rejected: unknown currency
	// error: <nil>
}
