package demo

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cli"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
	"github.com/fronta-mq/fronta/deadletter"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func embedded(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Embedded(&cli.Env{Stdout: io.Discard, Stderr: io.Discard, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

var short = Options{Records: 400, Customers: 40, Partitions: 4, Duration: time.Second}

// quiet shows nothing but passes on what is said.
func quiet(say func(string)) Display {
	return Display{Say: say, Progress: func(...string) {}, Log: slog.New(slog.DiscardHandler)}
}

func TestADay(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var story strings.Builder
	s, err := Run(t.Context(), embedded(t), short, quiet(func(line string) {
		mu.Lock()
		defer mu.Unlock()
		story.WriteString(line + "\n")
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !s.OK {
		t.Errorf("broken: %q, %v", broken(s), s.Violations)
	}
	if s.Handled != 400 || s.Failed < maxAttempts+1 || len(s.DeadLetters) != 2 {
		t.Errorf("handled %d, %d failed attempts, dead letters %v", s.Handled, s.Failed, s.DeadLetters)
	}
	for _, want := range []string{"member 2 joins", "member 2 has partition", "fail;", "work again", "member 2 leaves", "all orders are in"} {
		if !strings.Contains(story.String(), want) {
			t.Errorf("%q is not part of the story:\n%s", want, story.String())
		}
	}
}

// goleak sees whether anything is left.
func TestAnInterruptEndsTheDay(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"member 1 has", "member 2 joins", "fail;", "member 2 leaves", "all orders are in"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := Run(ctx, embedded(t), short, quiet(func(line string) {
				if strings.Contains(line, at) {
					cancel()
				}
			}))
			if s != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("summary %v, error %v", s, err)
			}
		})
	}
}

// Every size that the flags allow has its troubles, and none of the three meets another.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Records: 100, Customers: 10, Partitions: 2, Duration: time.Second},
		{Records: 8000, Customers: 300, Partitions: 4, Duration: 9 * time.Second},
		{Records: 100_000, Customers: 100_000, Partitions: 8, Duration: 10 * time.Minute},
	} {
		p := newPlan(o)
		reasons := make(map[deadletter.Reason]int)
		unlucky, work := 0, time.Duration(0)
		lanes := make(map[string]time.Duration)
		for id := range o.Records {
			order := p.order(id)
			reasons[p.expect[id]]++
			if order.Customer == o.unlucky() && id >= o.at(outageAt) && id < o.at(outageAt+outage) {
				unlucky++
			}
			work += o.work(order)
			lanes[order.Customer] += o.work(order)
		}
		if reasons[deadletter.Rejected] != 1 || reasons[deadletter.Panic] != 1 || unlucky == 0 {
			t.Errorf("%+v: to be given up %v, unlucky %d", o, reasons, unlucky)
		}
		if work > o.Duration*Concurrency {
			t.Errorf("%+v: %s of work is more than a member can do", o, work)
		}
		for customer, work := range lanes {
			if work > o.Duration {
				t.Errorf("%+v: %s has %s of work", o, customer, work)
			}
		}
	}
}

// A record of the unlucky customer must not become a dead letter, however the backoff's random part falls.
func TestRetriesOutlastTheOutage(t *testing.T) {
	t.Parallel()
	o := Options{Duration: 9 * time.Second}
	b := o.retry().(fronta.ExponentialBackoff)
	b.Jitter = -1 // none
	var least time.Duration
	for attempt := 1; attempt < maxAttempts; attempt++ {
		least += b.Delay(&fronta.Record{DeliveryCount: attempt}, nil) * 8 / 10
	}
	if least < o.after(outage) {
		t.Errorf("the last attempt may come %s after the first, and the outage takes %s", least, o.after(outage))
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	var many []fronta.TopicPartition
	for i := range 15 {
		many = append(many, fronta.TopicPartition{Partition: int32(14 - i)})
	}
	for want, tps := range map[string][]fronta.TopicPartition{
		"no partition":      nil,
		"partition 14":      many[:1],
		"partitions 13, 14": many[:2],
		"partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more": many,
	} {
		if got := numbers(tps); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
