// Pull takes orders one by one, instead of having a handler called, and
// settles each from the goroutine that knows how it ended: for programs that
// have workers of their own.
//
// Run it against a broker of its own, with some orders to handle, each
// command in a terminal of its own:
//
//	go run ./cmd/fronta broker --topic orders:4 --topic orders.billing.dlq:4
//	go run ./examples/pull
//	go run ./examples/produce
//
// Ctrl-C stops it in good order: what is out is finished, nothing new is taken.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/fronta-mq/fronta"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	c, err := fronta.NewConsumer(fronta.Config{
		Client:         []kgo.Opt{kgo.SeedBrokers("localhost:9092")},
		Group:          "billing",
		Topics:         []string{"orders"},
		DeadLetter:     fronta.DeadLetterTopic("orders.billing.dlq"),
		Concurrency:    32,          // deliveries out at once
		HandlerTimeout: time.Minute, // then a delivery comes back, unless it is renewed
	})
	if err != nil {
		log.Fatal(err)
	}

	var workers sync.WaitGroup
	for {
		d, err := c.Receive(ctx)
		if err != nil {
			if ctx.Err() == nil {
				log.Print(err) // not the end of ctx: what stopped the consumer
			}
			break
		}
		workers.Go(func() { work(d) })
	}
	workers.Wait()
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
}

// work settles d by the first verb that applies.
func work(d *fronta.Delivery) {
	var err error
	switch packed, failure := pack(d); {
	case failure != nil:
		err = d.Fail(failure) // tried again with a backoff, in the end a dead letter
	case len(packed) == 0:
		err = d.Reject(errors.New("nothing in it")) // a dead letter now
	default:
		fmt.Printf("%s: %s\n", d.Key, packed)
		err = d.Accept()
	}
	if err != nil {
		log.Print(err) // settled before, or its partition went to another member
	}
}

// pack stands for work in several steps, which renews its delivery between
// them: each step has a minute.
func pack(d *fronta.Delivery) ([]byte, error) {
	var packed []byte
	for _, item := range d.Value {
		packed = append(packed, item)
		if len(packed)%16 == 0 {
			if err := d.Renew(); err != nil {
				return nil, err
			}
		}
	}
	return packed, nil
}
