package fronta_test

// What the examples share. What must stay true: an example leaves no goroutine
// and no broker behind, and waits for events, never for time to pass.

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/fronta-mq/fronta/fake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startBroker starts an embedded broker with these topics, one partition each.
// A service names its own brokers instead: kgo.SeedBrokers("kafka-1:9092").
func startBroker(topics ...string) *fake.Broker {
	var opts []fake.Option
	for _, topic := range topics {
		opts = append(opts, fake.Topic(topic, 1))
	}
	broker, err := fake.Start(opts...)
	if err != nil {
		panic(err)
	}
	return broker
}

// produce writes records, each "key=value", in this order.
func produce(broker *fake.Broker, topic string, records ...string) {
	client, err := kgo.NewClient(broker.Opts()...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	for _, r := range records {
		key, value, _ := strings.Cut(r, "=")
		record := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
		client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				panic(err)
			}
		})
	}
	if err := client.Flush(context.Background()); err != nil {
		panic(err)
	}
}

// after returns a context for Run, which ends when done has been called n
// times. A service takes one of signal.NotifyContext instead.
func after(n int) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var left atomic.Int64
	left.Store(int64(n))
	return ctx, func() {
		if left.Add(-1) == 0 {
			cancel()
		}
	}
}

// lineLogger logs to the standard output, without the time, which is never
// the same.
func lineLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
