package fake_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta/fake"
)

// An hour of a producer's and a consumer's life, with all its heartbeats, fetches and commits.
func TestAnHourOfVirtualTime(t *testing.T) {
	t.Parallel()
	t.Run("classic protocol", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { anHour(t, kmsg.Heartbeat) })
	})
	t.Run("newer protocol", func(t *testing.T) {
		t.Parallel()
		// franz-go falls back to the classic protocol with its default, the cooperative balancer.
		newer := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
		synctest.Test(t, func(t *testing.T) { anHour(t, kmsg.ConsumerGroupHeartbeat, newer...) })
	})
}

func anHour(t *testing.T, heartbeat kmsg.Key, groupOpts ...kgo.Opt) {
	b := start(t, fake.Virtual(), fake.Topic("orders", 4))
	heartbeats := b.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{heartbeat}, Observe: true, Count: -1})
	producer := client(t, b)
	consumer := client(t, b, slices.Concat(groupOpts, []kgo.Opt{kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("billing")})...)
	begin := time.Now()

	go func() {
		for minute := 1; minute <= 60; minute++ {
			time.Sleep(time.Minute) // the producer's pace on the bubble's clock
			producer.Produce(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(strconv.Itoa(minute))}, nil)
		}
	}()
	for minute := 1; minute <= 60; minute++ {
		fetches := consumer.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		if n := fetches.NumRecords(); n != 1 {
			t.Fatalf("minute %d brought %d records", minute, n)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := strconv.Itoa(minute); string(r.Value) != want {
				t.Errorf("record %s in minute %s", r.Value, want)
			}
		})
		if d := time.Since(begin).Round(time.Minute); d != time.Duration(minute)*time.Minute {
			t.Errorf("the record of minute %d came after %s", minute, d)
		}
	}
	// Every 3 s by franz-go's default, every 5 s under the newer protocol, where the broker says it.
	if n := heartbeats.Hits(); n < 600 {
		t.Errorf("%d heartbeats in an hour", n)
	}
}
