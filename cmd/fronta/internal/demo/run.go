package demo

// The day: orders come in at an even pace, a member handles them, a second one joins and leaves, the bank fails and
// recovers. It ends when everything is committed, or when that takes too long.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/cmd/fronta/internal/cluster"
	"github.com/fronta-mq/fronta/internal/checker"
)

// Display is where the day is shown.
type Display struct {
	Say      func(line string)     // something happened; called from many goroutines
	Progress func(lines ...string) // how far it is; called from one
	Log      *slog.Logger
}

const (
	heartbeat = 200 * time.Millisecond // how soon a member hears of a rebalance
	showEvery = 100 * time.Millisecond
	pace      = 5 * time.Millisecond // how often orders come in
	// patience is how long things may take beyond the day before the demo gives up on them: the second member's first
	// order, and the end. The summary then says what is missing.
	patience = 30 * time.Second
)

// day is one run.
type day struct {
	opts    Options
	plan    *plan
	cluster *cluster.Cluster
	display Display
	topic   string
	letters string
	group   string

	check   *checker.Checker
	commits *positions
	shop    *shop
	members []*member

	mu       sync.Mutex
	began    time.Time
	produced int64
	ends     map[int32]int64 // the offset after the last acknowledged one
	lost     error           // why an order could not be produced
}

// member is one consumer of the group.
type member struct {
	*witness
	consumer *fronta.Consumer
	cancel   context.CancelFunc
	done     chan struct{}
	err      error // once done
}

// Run lets the day happen on the cluster. The error says why there is no summary: the summary says itself whether the
// promises were kept.
func Run(ctx context.Context, c *cluster.Cluster, o Options, display Display) (*Summary, error) {
	d := &day{
		opts: o, plan: newPlan(o), cluster: c, display: display,
		check: checker.New(checker.Options{MaxViolations: 20, Progress: checker.Exact}), commits: newPositions(), ends: make(map[int32]int64),
	}
	d.shop = &shop{opts: o, bank: bank{customer: o.unlucky(), length: o.after(outage), say: d.say}}
	d.begin()
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	if err := d.happen(ctx); err != nil {
		return nil, err
	}
	took := d.age()
	f, err := d.collect(ctx)
	if err != nil {
		return nil, err
	}
	s := judge(f)
	s.Cluster, s.Seconds = c.String(), took.Seconds()
	return s, nil
}

// begin sets the clock to zero.
func (d *day) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = time.Now()
}

func (d *day) age() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.began)
}

func (d *day) say(line string) {
	d.display.Say(fmt.Sprintf("%5.1fs  %s", d.age().Seconds(), line))
}

func (d *day) open(ctx context.Context) (err error) {
	if d.topic, err = d.cluster.CreateTopic(ctx, "demo-orders", d.opts.Partitions); err != nil {
		return err
	}
	if d.letters, err = d.cluster.CreateTopic(ctx, "demo-orders-dead", 1); err != nil {
		return err
	}
	d.group = d.cluster.Group("demo-shop")
	return nil
}

// happen returns when everything is committed, when that takes too long, or with the error of what can't go on.
func (d *day) happen(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, err := d.join(ctx, "member 1", cancel)
	if err != nil {
		return err
	}
	// Whatever happens, no consumer outlives the day.
	defer func() {
		for _, m := range d.members {
			m.leave()
		}
	}()

	shown := d.show(ctx)
	defer shown()
	// The day begins when the first member has work.
	select {
	case <-first.assigned:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	d.begin()
	if err := d.events(ctx, cancel); err != nil {
		return err
	}
	wait, stop := context.WithTimeout(ctx, d.opts.Duration+patience)
	defer stop()
	if !d.commits.reach(wait, d.ends) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, m := range d.members {
		m.leave()
		if m.err != nil {
			return fmt.Errorf("%s: %w", m.name, m.err)
		}
	}
	return nil
}

// events produces the orders, and lets things happen between them.
func (d *day) events(ctx context.Context, fail context.CancelCauseFunc) error {
	producer, err := kgo.NewClient(append(d.cluster.Opts(), kgo.DefaultProduceTopic(d.topic), kgo.ProducerLinger(pace))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	var second *member
	begin, next := time.Now(), 0
	produceUntil := func(part float64) error {
		until := d.opts.at(part)
		for next < until {
			due := min(int(time.Since(begin)*time.Duration(d.opts.Records)/d.opts.Duration), until)
			for ; next < due; next++ {
				d.produce(ctx, producer, d.plan.order(next))
			}
			if next < until {
				if err := sleep(ctx, pace); err != nil {
					return err
				}
			}
		}
		return ctx.Err()
	}
	for _, event := range []struct {
		at   float64
		what func() error
	}{
		{joinAt, func() (err error) {
			d.say("member 2 joins")
			second, err = d.join(ctx, "member 2", fail)
			return err
		}},
		{outageAt, func() error { d.shop.bank.fail(); return nil }},
		{leaveAt, func() error {
			// On a slow cluster it may not have got a partition yet, and the rebalance would show nothing.
			wait := time.NewTimer(patience)
			defer wait.Stop()
			paused := time.Now()
			select {
			case <-second.worked:
			case <-wait.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			begin = begin.Add(time.Since(paused))
			d.say("member 2 leaves")
			go second.leave()
			return nil
		}},
		{1, func() error { return producer.Flush(ctx) }},
	} {
		if err := produceUntil(event.at); err != nil {
			return context.Cause(ctx)
		}
		if err := event.what(); err != nil {
			return err
		}
	}
	d.say("all orders are in")
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return fmt.Errorf("produce orders: %w", d.lost)
	}
	return nil
}

func (d *day) produce(ctx context.Context, producer *kgo.Client, o order) {
	r := &kgo.Record{Key: []byte(o.Customer), Value: o.value()}
	producer.Produce(ctx, r, func(r *kgo.Record, err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if err != nil {
			d.lost = errors.Join(d.lost, err)
			return
		}
		d.check.Produced(partition(r.Topic, r.Partition), r.Offset, string(r.Key))
		d.produced++
		d.ends[r.Partition] = max(d.ends[r.Partition], r.Offset+1)
	})
}

// join starts a member. If it ends by itself, the day ends.
func (d *day) join(ctx context.Context, name string, fail context.CancelCauseFunc) (*member, error) {
	m := &member{witness: newWitness(name, d.check, d.commits, d.say), done: make(chan struct{})}
	consumer, err := fronta.NewConsumer(fronta.Config{
		Client:        append(d.cluster.Opts(), kgo.HeartbeatInterval(heartbeat)),
		Group:         d.group,
		Topics:        []string{d.topic},
		Order:         fronta.ByKey(),
		Concurrency:   Concurrency,
		Retry:         d.opts.retry(),
		MaxDeliveries: maxAttempts,
		DeadLetter:    fronta.DeadLetterTopic(d.letters),
		Middleware:    []fronta.Middleware{m.Watch},
		Hooks:         []any{m.witness},
		Logger:        d.display.Log,
	})
	if err != nil {
		return nil, err
	}
	m.consumer = consumer
	// Not below ctx: an interrupted demo stops its members in good order, one after another.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	d.mu.Lock()
	d.members = append(d.members, m)
	d.mu.Unlock()
	go func() {
		defer close(m.done)
		m.err = consumer.Run(run, d.shop)
		m.check.Stopped(name)
		if m.err != nil {
			fail(fmt.Errorf("%s: %w", name, m.err))
		}
	}()
	return m, nil
}

// leave stops a member in good order and waits for it. It may be called many times.
func (m *member) leave() {
	m.cancel()
	<-m.done
}

// now are the members that have joined.
func (d *day) now() []*member {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*member(nil), d.members...)
}
