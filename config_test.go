package fronta_test

// Config: every refusal names the field and what to do, and whatever is left
// out has the default that its field documents.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/fronta-mq/fronta"
)

func valid() fronta.Config {
	return fronta.Config{Client: []kgo.Opt{kgo.SeedBrokers("localhost:1")}, Group: "billing", Topics: []string{"orders"}}
}

// H-139: a setting that is given twice and disagrees is refused with both named.
func TestConfigRefusals(t *testing.T) {
	t.Parallel()
	client := func(opts ...kgo.Opt) func(*fronta.Config) {
		return func(c *fronta.Config) { c.Client = append(c.Client, opts...) }
	}
	assigned := func(context.Context, *kgo.Client, map[string][]int32) {}
	for name, tt := range map[string]struct {
		change func(*fronta.Config)
		field  string
		says   []string
	}{
		"no group":          {func(c *fronta.Config) { c.Group = "" }, "Group", []string{"empty", "name the consumer group"}},
		"no topics":         {func(c *fronta.Config) { c.Topics = nil }, "Topics", []string{"empty", "at least one"}},
		"empty topic":       {func(c *fronta.Config) { c.Topics = []string{"a", ""} }, "Topics", []string{"[1]", `""`, "1 to 249"}},
		"topic with blank":  {func(c *fronta.Config) { c.Topics = []string{"a b"} }, "Topics", []string{`"a b"`, "letters"}},
		"long topic":        {func(c *fronta.Config) { c.Topics = []string{strings.Repeat("a", 250)} }, "Topics", []string{"1 to 249"}},
		"dots":              {func(c *fronta.Config) { c.Topics = []string{".."} }, "Topics", []string{`".."`}},
		"pattern as name":   {func(c *fronta.Config) { c.Topics = []string{"orders.*"} }, "Topics", []string{"orders.*", "set Regex"}},
		"broken pattern":    {func(c *fronta.Config) { c.Topics, c.Regex = []string{"or(ders"}, true }, "Topics", []string{"or(ders", "regular expression"}},
		"engine":            {func(c *fronta.Config) { c.Engine = 7 }, "Engine", []string{"7", "Ordered"}},
		"protocol":          {func(c *fronta.Config) { c.Protocol = 9 }, "Protocol", []string{"9", "ClassicProtocol or ConsumerProtocol"}},
		"isolation":         {func(c *fronta.Config) { c.Isolation = 9 }, "Isolation", []string{"9", "ReadUncommitted or ReadCommitted"}},
		"reset":             {func(c *fronta.Config) { c.OutOfRange = 9 }, "OutOfRange", []string{"9", "ResetEarliest, ResetLatest or ResetNone"}},
		"start before 1970": {func(c *fronta.Config) { c.StartAt = fronta.Since(time.UnixMilli(-1)) }, "StartAt", []string{"1970"}},

		"key func without name":     {func(c *fronta.Config) { c.Order = fronta.ByKeyFunc("", func(*kgo.Record) []byte { return nil }) }, "Order", []string{"ByKeyFunc has no name"}},
		"key func without function": {func(c *fronta.Config) { c.Order = fronta.ByKeyFunc("f", nil) }, "Order", []string{`ByKeyFunc("f")`, "no function"}},
		"no bucket":                 {func(c *fronta.Config) { c.Order = fronta.ByBucket(0) }, "Order", []string{"ByBucket(0)", "from 1 to"}},
		"negative buckets":          {func(c *fronta.Config) { c.Order = fronta.ByBucket(-3) }, "Order", []string{"ByBucket(-3)", "from 1 to"}},
		"too many buckets":          {func(c *fronta.Config) { c.Order = fronta.ByBucket(1<<30 + 1) }, "Order", []string{"ByBucket(1073741825)"}},

		"concurrency":      {func(c *fronta.Config) { c.Concurrency = -1 }, "Concurrency", []string{"-1", "at least 1", "256"}},
		"much concurrency": {func(c *fronta.Config) { c.Concurrency = 1e9 }, "Concurrency", []string{"1000000000", "more than a process can hold"}},
		"in flight":        {func(c *fronta.Config) { c.MaxInFlight = -1 }, "MaxInFlight", []string{"-1", "at least 1", "10000"}},
		"much in flight":   {func(c *fronta.Config) { c.MaxInFlight = 1<<30 + 1 }, "MaxInFlight", []string{"at most"}},
		"buffered bytes":   {func(c *fronta.Config) { c.MaxBufferedBytes = -1 }, "MaxBufferedBytes", []string{"-1", "at least 1", "64 MiB"}},
		"handler timeout":  {func(c *fronta.Config) { c.HandlerTimeout = -1 }, "HandlerTimeout", []string{"negative", "no limit"}},
		"drain timeout":    {func(c *fronta.Config) { c.DrainTimeout = -time.Second }, "DrainTimeout", []string{"-1s", "negative", "30s"}},
		"commit interval":  {func(c *fronta.Config) { c.CommitInterval = -time.Second }, "CommitInterval", []string{"-1s", "negative"}},
		"hasty commits":    {func(c *fronta.Config) { c.CommitInterval = time.Microsecond }, "CommitInterval", []string{"1µs", "at least 1ms"}},
		"start timeout":    {func(c *fronta.Config) { c.StartTimeout = -time.Second }, "StartTimeout", []string{"-1s", "negative"}},

		"initial below zero": {func(c *fronta.Config) { c.Retry = fronta.ExponentialBackoff{Initial: -1} }, "Retry", []string{"Initial", "negative"}},
		"max below initial":  {func(c *fronta.Config) { c.Retry = fronta.ExponentialBackoff{Initial: 2, Max: 1} }, "Retry", []string{"Max", "below Initial"}},
		"shrinking":          {func(c *fronta.Config) { c.Retry = fronta.ExponentialBackoff{Factor: 0.5} }, "Retry", []string{"Factor", "at least 1"}},
		"much jitter":        {func(c *fronta.Config) { c.Retry = fronta.ExponentialBackoff{Jitter: 1.5} }, "Retry", []string{"Jitter", "at most 1"}},
		"negative constant":  {func(c *fronta.Config) { c.Retry = fronta.ConstantBackoff(-1) }, "Retry", []string{"ConstantBackoff", "negative"}},
		"no steps":           {func(c *fronta.Config) { c.Retry = fronta.BackoffSteps{} }, "Retry", []string{"BackoffSteps is empty"}},
		"negative step":      {func(c *fronta.Config) { c.Retry = fronta.BackoffSteps{1, -1} }, "Retry", []string{"BackoffSteps[1]"}},
		"nil retry func":     {func(c *fronta.Config) { c.Retry = fronta.RetryFunc(nil) }, "Retry", []string{"RetryFunc is nil"}},

		"deliveries for nothing": {func(c *fronta.Config) { c.MaxDeliveries = 3 }, "MaxDeliveries", []string{"3", "DeadLetterTopic", "Discard()", "leave MaxDeliveries at 0"}},
		"letters to the source":  {func(c *fronta.Config) { c.DeadLetter = fronta.DeadLetterTopic("orders") }, "DeadLetter", []string{`"orders"`, "Topics", "use a topic of their own"}},
		"letters matched": {func(c *fronta.Config) {
			c.Topics, c.Regex, c.DeadLetter = []string{"x", "^orders"}, true, fronta.DeadLetterTopic("orders.dlq")
		}, "DeadLetter", []string{`"orders.dlq"`, "Topics[1]", "no pattern matches"}},
		"letters to no topic name": {func(c *fronta.Config) { c.DeadLetter = fronta.DeadLetterTopic("a b") }, "DeadLetter", []string{`"a b"`, "no topic name"}},
		"budget for nothing": {func(c *fronta.Config) {
			c.DeadLetter = fronta.DeadLetter{}.WithBudget(fronta.DeadLetterBudget{Burst: 1})
		}, "DeadLetter", []string{"WithBudget", "no effect"}},
		"budget that shrinks": {func(c *fronta.Config) {
			c.DeadLetter = fronta.Discard().WithBudget(fronta.DeadLetterBudget{PerAccept: -1})
		}, "DeadLetter", []string{"PerAccept", "negative"}},
		"nil middleware":    {func(c *fronta.Config) { c.Middleware = []fronta.Middleware{nil} }, "Middleware", []string{"[0] is nil"}},
		"hook that is none": {func(c *fronta.Config) { c.Hooks = []any{new(recorder), 5} }, "Hooks", []string{"[1]", "int", "none of the Hook interfaces"}},
		"nil hook":          {func(c *fronta.Config) { c.Hooks = []any{nil} }, "Hooks", []string{"[0]"}},
		"nil option":        {client(nil), "Client", []string{"option 1 is nil"}},
		"group elsewhere":   {client(kgo.ConsumerGroup("other")), "Client", []string{`"other"`, `"billing"`, "disagree", "remove"}},
		"topics elsewhere":  {client(kgo.ConsumeTopics("other")), "Client", []string{"other", "orders", "disagree", "remove"}},
		"partitions":        {client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"x": {0: kgo.NewOffset()}})), "Client", []string{"ConsumePartitions", "remove"}},
		"transactions":      {client(kgo.TransactionalID("tx")), "Client", []string{`TransactionalID("tx")`, "client of your own"}},
		"share group":       {client(kgo.ShareGroup("s")), "Client", []string{"ShareGroup", "remove"}},
		"autocommit":        {client(kgo.DisableAutoCommit()), "Client", []string{"fronta sets itself", "commits"}},
		"marks":             {client(kgo.AutoCommitMarks()), "Client", []string{"fronta sets itself", "commits"}},
		"commit callback":   {client(kgo.AutoCommitCallback(func(*kgo.Client, *kmsg.OffsetCommitRequest, *kmsg.OffsetCommitResponse, error) {})), "Client", []string{"fronta sets itself"}},
		"assigned":          {client(kgo.OnPartitionsAssigned(assigned)), "Client", []string{"rebalance callbacks", "Hooks"}},
		"revoked":           {client(kgo.OnPartitionsRevoked(assigned)), "Client", []string{"rebalance callbacks", "Hooks"}},
		"lost, and group":   {client(kgo.OnPartitionsLost(assigned), kgo.ConsumerGroup("billing")), "Client", []string{"rebalance callbacks", "Hooks"}},
		"blocked rebalance": {client(kgo.BlockRebalanceOnPoll()), "Client", []string{"BlockRebalanceOnPoll", "remove"}},
		"start offset":      {client(kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd())), "Client", []string{"ConsumeStartOffset", "StartAt"}},
		"reset offset":      {client(kgo.ConsumeResetOffset(kgo.NoResetOffset())), "Client", []string{"Offset", "remove it and set"}},
		"adjusted offsets": {client(kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		})), "Client", []string{"AdjustFetchOffsetsFn", "remove"}},
		"isolation elsewhere":  {client(kgo.FetchIsolationLevel(kgo.ReadCommitted())), "Client", []string{"FetchIsolationLevel", "Isolation"}},
		"acks":                 {client(kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()), "Client", []string{"RequiredAcks", "remove"}},
		"no idempotence":       {client(kgo.DisableIdempotentWrite()), "Client", []string{"DisableIdempotentWrite", "remove"}},
		"manual flushing":      {client(kgo.ManualFlushing()), "Client", []string{"ManualFlushing", "remove"}},
		"topic for all":        {client(kgo.DefaultProduceTopic("x"), kgo.DefaultProduceTopicAlways()), "Client", []string{"DefaultProduceTopicAlways", "remove"}},
		"regex elsewhere":      {client(kgo.ConsumeRegex(), kgo.ConsumeTopics("orders")), "Client", []string{"ConsumeRegex", "set Regex"}},
		"server-side balancer": {client(kgo.ServerSideBalancer()), "Client", []string{"ServerSideBalancer", "Protocol"}},
		"option that is none":  {client(kgo.SeedBrokers("localhost:what")), "Client", []string{"port"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			tt.change(&cfg)
			_, err := fronta.NewConsumer(cfg)
			var ce *fronta.ConfigError
			if !errors.As(err, &ce) {
				t.Fatalf("NewConsumer answers %v, want a ConfigError", err)
			}
			if ce.Field != tt.field {
				t.Errorf("field %q, want %q (%v)", ce.Field, tt.field, err)
			}
			if !strings.HasPrefix(err.Error(), "fronta: Config."+tt.field+": ") {
				t.Errorf("%q does not name the field first", err)
			}
			for _, want := range tt.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

// H-139: the same setting twice is no mistake.
func TestConfigAgreement(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fronta.Config){
		"nothing": func(*fronta.Config) {},
		"group":   func(c *fronta.Config) { c.Client = append(c.Client, kgo.ConsumerGroup("billing")) },
		"topics":  func(c *fronta.Config) { c.Client = append(c.Client, kgo.ConsumeTopics("orders")) },
		"topics, twice": func(c *fronta.Config) {
			c.Topics = []string{"b", "a", "b"}
			c.Client = append(c.Client, kgo.ConsumeTopics("a", "b"))
		},
		"regex": func(c *fronta.Config) {
			c.Regex = true
			c.Client = append(c.Client, kgo.ConsumeRegex(), kgo.ConsumeTopics("orders"))
		},
		"isolation": func(c *fronta.Config) {
			c.Isolation = fronta.ReadCommitted
			c.Client = append(c.Client, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		},
		"acks": func(c *fronta.Config) { c.Client = append(c.Client, kgo.RequiredAcks(kgo.AllISRAcks())) },
		"server-side balancer": func(c *fronta.Config) {
			c.Protocol = fronta.ConsumerProtocol
			c.Client = append(c.Client, kgo.ServerSideBalancer())
		},
		"membership": func(c *fronta.Config) {
			c.Client = append(c.Client, kgo.InstanceID("one"), kgo.SessionTimeout(20*time.Second), kgo.RebalanceTimeout(time.Minute), kgo.Rack("r"))
		},
		"for ever":    func(c *fronta.Config) { c.MaxDeliveries = fronta.Unlimited },
		"never stuck": func(c *fronta.Config) { c.StuckAfter = -1 },
		"limits of 1": func(c *fronta.Config) { c.Concurrency, c.MaxInFlight, c.MaxBufferedBytes = 1, 1, 1 },
		"no jitter":   func(c *fronta.Config) { c.Retry = fronta.ExponentialBackoff{Jitter: -1} },
		"letters not matched": func(c *fronta.Config) {
			c.Topics, c.Regex, c.DeadLetter = []string{"^orders$"}, true, fronta.DeadLetterTopic("orders.dlq")
		},
		"budget without limit": func(c *fronta.Config) { c.DeadLetter = fronta.Discard().WithBudget(fronta.DeadLetterBudget{Burst: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			change(&cfg)
			if _, err := fronta.NewConsumer(cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConfigErrorsAreAllTold(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.DrainTimeout, cfg.StartTimeout = -1, -1
	_, err := fronta.NewConsumer(cfg)
	for _, field := range []string{"DrainTimeout", "StartTimeout"} {
		if !strings.Contains(fmt.Sprint(err), "Config."+field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

func TestRunRefusesANilHandler(t *testing.T) {
	t.Parallel()
	c, err := fronta.NewConsumer(valid())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, h := range []fronta.Handler{nil, fronta.HandlerFunc(nil)} {
		if err := c.Run(t.Context(), h); err == nil || !strings.Contains(err.Error(), "handler is nil") {
			t.Errorf("Run with %T(nil): %v", h, err)
		}
	}
}

func TestRunRefusesMiddlewareThatAnswersNil(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Middleware = []fronta.Middleware{
		func(h fronta.Handler) fronta.Handler { return h },
		func(fronta.Handler) fronta.Handler { return nil },
	}
	c, err := fronta.NewConsumer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Run(t.Context(), fronta.HandlerFunc(func(context.Context, *fronta.Record) error { return nil }))
	var ce *fronta.ConfigError
	if !errors.As(err, &ce) || ce.Field != "Middleware" || !strings.Contains(err.Error(), "[1]") {
		t.Errorf("Run: %v", err)
	}
}

// H-136: what a consumer does is the same whatever the order in which client
// options, middleware-free settings and hooks were given.
func TestOrderOfOptionsMeansNothing(t *testing.T) {
	t.Parallel()
	settings := []func(*fronta.Config){
		func(c *fronta.Config) { c.MaxDeliveries = 2 },
		func(c *fronta.Config) { c.DeadLetter = fronta.DeadLetterTopic(letters) },
		func(c *fronta.Config) { c.Retry = fronta.ConstantBackoff(3 * time.Second) },
		func(c *fronta.Config) {
			c.Client = append(c.Client, kgo.ConsumerGroup(billing))
		},
	}
	for i, order := range permutations(len(settings)) {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			virtual(t, 1, func(b *bench) {
				b.produce(record("a", "poison"))
				cfg := b.config()
				for _, s := range order {
					settings[s](&cfg)
				}
				if i%2 == 0 {
					slices.Reverse(cfg.Client)
				}
				var calls journal
				c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
					calls.add(r)
					return errDeclined
				})
				b.until("the dead letter", func() bool { return c.Stats().DeadLettered == 1 })
				c.stop()
				got := calls.all()
				if len(got) != 2 || got[1].at.Sub(got[0].at).Round(100*time.Millisecond) != 3*time.Second {
					t.Errorf("the handler was called %d times, %v", len(got), got)
				}
				if n := len(b.deadLetters()); n != 1 {
					t.Errorf("%d dead letters, want 1", n)
				}
			})
		})
	}
}

func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

// The defaults that the fields of Config document, as far as they can be seen
// from outside.
func TestDefaults(t *testing.T) {
	t.Run("order, deliveries and delays", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "poison"), record("a", "next"), record("b", "other"))
			cfg := b.config()
			cfg.DeadLetter = fronta.DeadLetterTopic(letters)
			var poison, next journal
			c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
				if string(r.Value) == "poison" {
					poison.add(r)
					return errDeclined
				}
				next.add(r)
				return nil
			})
			b.until("all are done", func() bool { return c.Stats().Accepted == 2 })
			c.stop()
			if got := poison.all(); len(got) != 10 {
				t.Errorf("MaxDeliveries: %d attempts, want 10", len(got))
			} else {
				delay := time.Second
				for i := 1; i < len(got); i++ {
					d := got[i].at.Sub(got[i-1].at)
					if d < delay*4/5 || d > delay+10*time.Millisecond {
						t.Errorf("delay %d is %s, want %s less at most a fifth", i, d, delay)
					}
					delay = min(2*delay, 5*time.Minute)
				}
			}
			if got := next.all(); got[0].offset != 2 || got[1].offset != 1 {
				t.Errorf("records ran in the order %v: Order is not ByKey", next.offsets())
			}
		})
	})
	t.Run("concurrency", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(numbered(300, 300)...)
			c := b.run(b.config(), func(ctx context.Context, _ *fronta.Record) error { return sleep(ctx, time.Minute) })
			time.Sleep(30 * time.Second)
			if s := c.Stats(); s.Running != 256 {
				t.Errorf("%d handlers run, want 256", s.Running)
			}
			c.stop()
		})
	})
	t.Run("in flight", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(numbered(11_000, 11_000)...)
			cfg := b.config()
			c := b.run(cfg, func(ctx context.Context, _ *fronta.Record) error { return errDeclined })
			b.until("the limit is reached", func() bool { return c.Stats().Unfinished >= 10_000 })
			time.Sleep(10 * time.Second)
			if s := c.Stats(); s.Unfinished != 10_000 {
				t.Errorf("%d records in work, want 10,000", s.Unfinished)
			}
			c.stop()
		})
	})
	t.Run("commit interval", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "1"))
			var calls journal
			c := b.run(b.config(), func(_ context.Context, r *fronta.Record) error { calls.add(r); return nil })
			calls.wait(t, 1)
			done := time.Now()
			b.until("the commit", func() bool { return b.committed(0) == 1 })
			if d := time.Since(done); d > 1100*time.Millisecond {
				t.Errorf("committed after %s, want at most 1 s", d)
			}
			c.stop()
		})
	})
	t.Run("stuck after", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(record("a", "1"))
			hook := new(recorder)
			cfg := b.config()
			cfg.Hooks = []any{hook}
			c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error { return sleep(ctx, 10*time.Minute) })
			b.until("the report", func() bool { return hook.count("stuck") == 1 })
			if age := hook.ages()[0]; age < 5*time.Minute || age > 8*time.Minute {
				t.Errorf("reported at the age of %s, want 5 min and up to a half more", age)
			}
			c.stop()
		})
	})
	t.Run("start at the beginning", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			b.produce(numbered(3, 3)...)
			var calls journal
			c := b.run(b.config(), func(_ context.Context, r *fronta.Record) error { calls.add(r); return nil })
			calls.wait(t, 3)
			c.stop()
		})
	})
	t.Run("logger", func(t *testing.T) {
		virtual(t, 1, func(b *bench) {
			cfg := b.config()
			cfg.Logger = nil
			var lines logged
			was := slog.Default()
			slog.SetDefault(lines.logger())
			c := b.consumer(cfg)
			slog.SetDefault(was)
			ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
			defer cancel()
			if err := c.Run(ctx, fronta.HandlerFunc(func(context.Context, *fronta.Record) error { return nil })); err != nil {
				t.Error(err)
			}
			if !strings.Contains(lines.String(), "partitions assigned") {
				t.Errorf("slog.Default() got %q", lines.String())
			}
		})
	})
}
