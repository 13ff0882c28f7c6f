package fronta_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/progress"
)

// Progress in the form of another library, for a group that moves there. Here
// package progress reads what was stored.
func ExampleParallelConsumer() {
	broker := startBroker("orders")
	defer broker.Close()
	produce(broker, "orders", "anna=1", "bert=1", "carl=1", "anna=2", "bert=2")

	c, err := fronta.NewConsumer(fronta.Config{
		Client:   broker.Opts(),
		Group:    "billing",
		Topics:   []string{"orders"},
		Retry:    fronta.ConstantBackoff(time.Hour),
		Progress: fronta.ParallelConsumer,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, done := after(4)
	err = c.Run(ctx, fronta.HandlerFunc(func(_ context.Context, r *fronta.Record) error {
		defer done()
		if string(r.Key) == "anna" {
			return errors.New("anna's card is refused")
		}
		return nil
	}))
	fmt.Println("stopped:", err)

	client, err := kgo.NewClient(broker.Opts()...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	stored, err := kadm.NewClient(client).FetchOffsets(context.Background(), "billing")
	if err != nil {
		fmt.Println(err)
		return
	}
	at, _ := stored.Lookup("orders", 0)
	p, format, err := progress.Decode(at.Metadata, at.At, progress.Binding{})
	fmt.Println(format, "from", p.Offset, "to", p.Horizon(), "unfinished", p.Segments[0].Heads, err)
	// Output:
	// stopped: <nil>
	// parallel-consumer from 0 to 5 unfinished [{0 1} {3 4}] <nil>
}
