package consumer_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

func number(r *fronta.Record) int {
	n, _ := strconv.Atoi(string(r.Value))
	return n
}

// The main job: retries, a rejection, exhausted deliveries, in key order, dead letters before the commit (P-1, P-2).
func TestMainJob(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, set func(*fronta.Config)) {
		t.Parallel()
		w := newWorld(t, kafkatest.Shared(t), 3, set)
		const n = 600
		w.produce(n, 40)
		var running, most atomic.Int64
		m := w.join("a", func(_ context.Context, r *fronta.Record) error {
			if now := running.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer running.Add(-1)
			time.Sleep(2 * time.Millisecond)
			switch i := number(r); {
			case i%100 == 7 && r.DeliveryCount < 3:
				return errors.New("not yet")
			case i == 50:
				return fronta.Reject(errRefused)
			case i == 90:
				return errors.New("never")
			}
			return nil
		})
		w.await(n)
		m.leave()
		report := w.judge()
		if report.Repeated != 0 {
			t.Errorf("%d records repeated without any failure of the group", report.Repeated)
		}
		if most.Load() < 10 {
			t.Errorf("at most %d handlers ran at once on 3 partitions; 40 keys were there", most.Load())
		}
		reasons := map[deadletter.Reason]deadletter.Letter{}
		for _, l := range w.readLetters(2) {
			reasons[l.Reason] = l
		}
		if l, ok := reasons[deadletter.Rejected]; !ok || string(l.Value) != "50" || l.Origin.Topic != w.topic || l.DeliveryCount != 1 {
			t.Errorf("dead letter of the rejected record: %+v", l)
		}
		if l, ok := reasons[deadletter.Deliveries]; !ok || string(l.Value) != "90" || l.DeliveryCount != 4 || l.Group != w.group {
			t.Errorf("dead letter of the exhausted record: %+v", l)
		}
	})
}

// Members join and leave while handlers run (P-1, P-2; H-042, H-049).
func TestRebalances(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, set func(*fronta.Config)) {
		t.Parallel()
		w := newWorld(t, kafkatest.Shared(t), 6, set)
		handle := func(_ context.Context, r *fronta.Record) error {
			work(r)
			if number(r)%97 == 0 && r.DeliveryCount == 1 {
				return errors.New("once")
			}
			return nil
		}
		const step = 500
		w.produce(step, 50)
		a := w.join("a", handle)
		w.await(step / 2)
		b := w.join("b", handle)
		w.produce(step, 50)
		w.await(step)
		c := w.join("c", handle)
		w.produce(step, 50)
		w.await(2 * step)
		a.leave()
		w.produce(step, 50)
		w.await(3 * step)
		d := w.join("d", handle)
		b.leave()
		w.produce(step, 50)
		w.await(5 * step)
		c.leave()
		d.leave()
		w.judge()
	})
}

// The broker is restarted, or killed and started again, in the middle.
func TestBrokerGoesAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*kafkatest.Cluster){
		"restart": (*kafkatest.Cluster).Restart,
		"kill":    func(c *kafkatest.Cluster) { c.Kill(); c.StartAgain() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kafkatest.Start(t), 3, nil)
			w.produce(1000, 50)
			m := w.join("a", func(_ context.Context, r *fronta.Record) error { work(r); return nil })
			w.await(300)
			away(w.cluster)
			w.produce(500, 50)
			w.await(1500)
			m.leave()
			w.judge()
		})
	}
}

// Transaction markers and aborted records hold nothing back: the lag reaches 0 though the log ends with them (H-014 to
// H-016).
func TestTransactions(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]fronta.Isolation{"committed": fronta.ReadCommitted, "uncommitted": fronta.ReadUncommitted} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := kafkatest.Shared(t)
			w := newWorld(t, cluster, 1, func(c *fronta.Config) { c.Isolation = isolation })
			producer := cluster.NewClient(t, kgo.TransactionalID(w.topic))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			want := 0
			for i := range 20 {
				if err := producer.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				for range 5 {
					r := &kgo.Record{Topic: w.topic, Key: []byte{byte(i)}, Value: []byte("x")}
					if err := producer.ProduceSync(ctx, r).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				commit := kgo.TryCommit
				if i%3 == 1 {
					commit = kgo.TryAbort // so is the last one
				}
				if commit == kgo.TryCommit || isolation == fronta.ReadUncommitted {
					want += 5
				}
				if err := producer.EndTransaction(ctx, commit); err != nil {
					t.Fatal(err)
				}
			}
			var handled atomic.Int64
			m := w.join("a", func(_ context.Context, r *fronta.Record) error {
				if r.Attrs.IsControl() {
					t.Errorf("control record at offset %d handled", r.Offset)
				}
				handled.Add(1)
				return nil
			})
			w.await(want)
			// 100 records and 20 markers. The committed offset comes to the end by itself, without a stop.
			w.until("all 120 offsets are committed", func() bool { return m.committed() == 120 })
			m.leave()
			if int(handled.Load()) != want {
				t.Errorf("%d records handled, want %d", handled.Load(), want)
			}
		})
	}
}

// A compacted log has gaps, at its beginning too (H-010, H-012).
func TestCompactedTopic(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Start(t, kafkatest.WithProperty("log.cleaner.backoff.ms", "200"))
	w := newWorld(t, cluster, 1, nil)
	w.topic += ".compacted"
	cluster.CreateTopic(t, w.topic, 1, map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "300",
		"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "500",
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	write := func() (last int64) {
		for i := range 200 {
			r := &kgo.Record{Topic: w.topic, Key: strconv.AppendInt(nil, int64(i%20), 10), Value: []byte("x")}
			if err := w.client.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			last = r.Offset
		}
		return last
	}
	// Read the log again and again until most of it has gone.
	var left map[int64]bool
	for len(left) == 0 || len(left) > 300 {
		end := write()
		reader := cluster.NewClient(t, kgo.ConsumeTopics(w.topic), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()))
		left = map[int64]bool{}
		for !left[end] {
			fetches := reader.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("the log was not compacted: %d records left", len(left))
			}
			fetches.EachRecord(func(r *kgo.Record) { left[r.Offset] = true })
		}
		reader.Close()
		if int64(len(left)) > end { // no gap yet
			left = nil
		}
	}
	m := w.join("a", func(context.Context, *fronta.Record) error { return nil })
	w.until("the end is committed", func() bool {
		ps := m.c.Stats().Partitions
		return len(ps) == 1 && ps[0].Lag() == 0 && ps[0].Committed == ps[0].End
	})
	m.leave()
	report := w.check.Report()
	if report.OrderViolations != 0 || report.Repeated != 0 {
		t.Errorf("%s", report)
	}
}

// TLS and SASL/SCRAM; a wrong password and denials are named.
func TestSecurity(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Start(t, kafkatest.WithTLS(), kafkatest.WithSCRAM("alice", "secret"))
	w := newWorld(t, cluster, 2, nil)
	w.produce(200, 10)
	m := w.join("a", func(context.Context, *fronta.Record) error { return nil })
	w.await(200)
	m.leave()
	w.judge()

	wrong := scram.Auth{User: "alice", Pass: "wrong"}.AsSha256Mechanism()
	opts := cluster.Opts()
	opts[len(opts)-1] = kgo.SASL(wrong) // instead of the right login
	c, err := fronta.NewConsumer(fronta.Config{Client: opts, Group: "g", Topics: []string{w.topic}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context(), fronta.HandlerFunc(func(context.Context, *fronta.Record) error { return nil })); !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("wrong password: %v", err)
	}
}

// A second process with the same instance id replaces the first, which ends with an error that says so.
func TestInstanceIDUsedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Shared(t), 2, func(c *fronta.Config) { c.Client = append(c.Client, kgo.InstanceID("one")) })
	handle := func(_ context.Context, r *fronta.Record) error { return nil }
	w.produce(100, 10)
	a := w.join("a", handle)
	w.await(100)
	w.until("all are committed", func() bool { return a.committed() == 100 })
	b := w.join("b", handle)
	select {
	case err := <-a.end:
		if !errors.Is(err, kerr.FencedInstanceID) {
			t.Errorf("the first one ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the first one goes on")
	}
	w.check.Killed("a")
	w.produce(100, 10)
	w.await(200)
	b.leave()
	w.judge()
}

// Partitions that are added to the topic are read from their beginning (H-059).
func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	eachProtocol(t, func(t *testing.T, set func(*fronta.Config)) {
		t.Parallel()
		w := newWorld(t, kafkatest.Shared(t), 1, func(c *fronta.Config) {
			c.Client = append(c.Client, kgo.MetadataMinAge(200*time.Millisecond), kgo.MetadataMaxAge(time.Second))
			c.StartAt = fronta.Latest() // H-058
			set(c)
		})
		m := w.join("a", func(context.Context, *fronta.Record) error { return nil })
		// Latest commits where it begins.
		w.until("the first partition has begun", func() bool {
			ps := m.c.Stats().Partitions
			return len(ps) == 1 && ps[0].Committed >= 0
		})
		addPartitions(t, w)
		w.client = w.cluster.NewClient(t) // one that knows of them
		w.produce(400, 50)
		w.await(400)
		m.leave()
		w.judge()
	})
}

// No broker: an error after StartTimeout.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	_ = kafkatest.Shared(t)
	c, err := fronta.NewConsumer(fronta.Config{
		Client: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}, Group: "g", Topics: []string{"t"}, StartTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err = c.Run(t.Context(), fronta.HandlerFunc(func(context.Context, *fronta.Record) error { return nil }))
	if err == nil || time.Since(began) > 20*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// Odd records come through the dead-letter topic unchanged.
func TestOddRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Shared(t), 1, nil)
	many := make([]kgo.RecordHeader, 1000)
	for i := range many {
		many[i] = kgo.RecordHeader{Key: "h", Value: []byte{byte(i)}}
	}
	odd := []*kgo.Record{
		{Key: nil, Value: []byte("no key")},
		{Key: []byte{}, Value: []byte("empty key")},
		{Key: []byte("tombstone"), Value: nil},
		{Key: []byte("empty value"), Value: []byte{}},
		{Key: []byte("1970"), Value: []byte("v"), Timestamp: time.UnixMilli(0)},
		{Key: []byte("large"), Value: make([]byte, 900<<10)},
		{Key: []byte("headers"), Value: []byte("v"), Headers: many},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, r := range odd {
		r.Topic = w.topic
		if err := w.client.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	m := w.join("a", func(context.Context, *fronta.Record) error { return fronta.Reject(errRefused) })
	w.await(len(odd))
	m.leave()
	letters := map[int64]deadletter.Letter{}
	for _, l := range w.readLetters(len(odd)) {
		letters[l.Origin.Offset] = l
	}
	for _, r := range odd {
		l, ok := letters[r.Offset]
		if !ok {
			t.Errorf("no dead letter for key %q", r.Key)
			continue
		}
		if string(l.Key) != string(r.Key) || (l.Key == nil) != (r.Key == nil) || string(l.Value) != string(r.Value) ||
			(l.Value == nil) != (r.Value == nil) || len(l.Headers) != len(r.Headers) || !l.Origin.Timestamp.Equal(r.Timestamp.Truncate(time.Millisecond)) {
			t.Errorf("key %q changed on its way: key %q, %d bytes of value (nil %t), %d headers, timestamp %s instead of %s",
				r.Key, l.Key, len(l.Value), l.Value == nil, len(l.Headers), l.Origin.Timestamp, r.Timestamp)
		}
	}
}
func addPartitions(t *testing.T, w *world) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := kadm.NewClient(w.client).CreatePartitions(ctx, 2, w.topic)
	if err == nil {
		_, err = resp.On(w.topic, func(r *kadm.CreatePartitionsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatalf("add partitions to %s: %v", w.topic, err)
	}
}
