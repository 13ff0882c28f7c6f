// Package fronta makes a Kafka topic a queue: many records in work at once,
// each settled on its own, in key order, with retries, dead letters and
// progress that survives a crash.
//
// A [Consumer] joins a consumer group and calls a [Handler] for every record.
// Records of one key run strictly one after another; different keys run at
// once, far beyond the number of partitions. What the handler returns settles
// the record: nil accepts it, an error has it tried again after a backoff that
// holds only its own key, [Reject] sends it to the dead-letter topic, [Snooze]
// puts it off, [Stop] stops the consumer. The committed offset never passes a
// record that is unfinished.
//
//	c, err := fronta.NewConsumer(fronta.Config{
//		Client:     []kgo.Opt{kgo.SeedBrokers("localhost:9092")},
//		Group:      "billing",
//		Topics:     []string{"orders"},
//		DeadLetter: fronta.DeadLetterTopic("orders.billing.dlq"),
//	})
//	if err != nil {
//		return err
//	}
//	return c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
//		return charge(ctx, r.Key, r.Value)
//	}))
//
// Instead of a handler, [Consumer.Receive] hands records out one by one, to be
// settled with the verbs of [Delivery].
//
// The guarantees, and their limits, are in docs/guarantees.md.
package fronta
