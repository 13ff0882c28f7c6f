package deadletter_test

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta/deadletter"
)

func ExampleRecord() {
	src := &kgo.Record{
		Topic: "orders", Partition: 3, Offset: 4711, LeaderEpoch: 5,
		Timestamp: time.UnixMilli(1764547200123),
		Key:       []byte("customer-17"),
		Headers:   []kgo.RecordHeader{{Key: "trace", Value: []byte("ab12")}},
	}
	dead := deadletter.Record("orders.billing.dlq", src, deadletter.Info{
		Group:         "billing",
		Reason:        deadletter.Deliveries,
		Error:         "card declined",
		DeliveryCount: 10,
		LastFailure:   time.UnixMilli(1764547500250),
	})
	fmt.Printf("%s key=%s tombstone=%v\n", dead.Topic, dead.Key, dead.Value == nil)
	for _, h := range dead.Headers {
		fmt.Printf("%s=%s\n", h.Key, h.Value)
	}
	// Output:
	// orders.billing.dlq key=customer-17 tombstone=true
	// trace=ab12
	// fronta.origin.topic=orders
	// fronta.origin.partition=3
	// fronta.origin.offset=4711
	// fronta.origin.timestamp=1764547200123
	// fronta.origin.timestamp-type=CreateTime
	// fronta.origin.leader-epoch=5
	// fronta.origin.group=billing
	// fronta.hops=0
	// fronta.group=billing
	// fronta.reason=deliveries
	// fronta.error=card declined
	// fronta.delivery-count=10
	// fronta.last-failure=1764547500250
}

func ExampleParse() {
	src := &kgo.Record{Topic: "orders", Partition: 3, Offset: 4711, Timestamp: time.UnixMilli(1764547200123)}
	dead := deadletter.Record("orders.billing.dlq", src, deadletter.Info{
		Group: "billing", Error: "unknown currency", DeliveryCount: 1,
	})
	l, err := deadletter.Parse(dead)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s/%d@%d of %s\n", l.Origin.Topic, l.Origin.Partition, l.Origin.Offset, l.Origin.Timestamp.Format(time.RFC3339Nano))
	fmt.Printf("%s by %s: %s\n", l.Reason, l.Group, l.Error)

	_, err = deadletter.Parse(src)
	fmt.Println(err)
	// Output:
	// orders/3@4711 of 2025-12-01T00:00:00.123Z
	// rejected by billing: unknown currency
	// deadletter: parse topic "orders" partition 3 offset 4711: header fronta.origin.topic is missing
}

func ExampleRestore() {
	src := &kgo.Record{Topic: "orders", Partition: 3, Offset: 4711, Timestamp: time.UnixMilli(1764547200123)}
	dead := deadletter.Record("orders.billing.dlq", src, deadletter.Info{Group: "billing", Error: "card declined"})

	back := deadletter.Restore(dead)
	fmt.Println(back.Topic, deadletter.IsDeadLetter(back))

	// It fails again, now at another offset: the origin is still the first.
	back.Partition, back.Offset = 3, 9000
	again, err := deadletter.Parse(deadletter.Record("orders.billing.dlq", back, deadletter.Info{
		Group: "billing", Reason: deadletter.Timeout,
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Origin.Offset, again.Hops, again.Reason)
	// Output:
	// orders false
	// 4711 1 timeout
}

func ExampleIsDeadLetter() {
	r := &kgo.Record{Topic: "orders", Value: []byte("paid")}
	fmt.Println(deadletter.IsDeadLetter(r))
	fmt.Println(deadletter.IsDeadLetter(deadletter.Record("orders.billing.dlq", r, deadletter.Info{})))
	// Output:
	// false
	// true
}
