package fronta_test

// Stats: what a snapshot says is true at its moment.

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
)

func TestStatsBeforeRun(t *testing.T) {
	t.Parallel()
	c, err := fronta.NewConsumer(valid())
	must(t, err)
	defer c.Close()
	if got, want := fmt.Sprintf("%+v", c.Stats()), fmt.Sprintf("%+v", fronta.Stats{}); got != want {
		t.Errorf("Stats() = %s", got)
	}
	var p fronta.PartitionStats
	p.Frontier, p.End = -1, 10
	if p.Lag() != -1 {
		t.Errorf("Lag() = %d with an unknown frontier, want -1", p.Lag())
	}
	p.Frontier, p.End = 12, 10
	if p.Lag() != 0 {
		t.Errorf("Lag() = %d behind the end, want 0", p.Lag())
	}
	if (fronta.BlockedLane{}).Age() != 0 {
		t.Error("a lane that has not failed has an age")
	}
}

// H-132: one record is stuck and the 50,000 behind it are done.
func TestStatsOfOneStuckRecord(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		const n = 50_001
		rs := numbered(n, 997)
		rs[0].Key = key("stuck")
		b.produce(rs...)
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(time.Hour)
		c := b.run(cfg, func(_ context.Context, r *fronta.Record) error {
			if r.Offset == 0 {
				return errDeclined
			}
			return nil
		})
		b.until("the others are done", func() bool { return c.Stats().Accepted == n-1 })
		time.Sleep(10 * time.Minute)
		s := c.Stats()
		p := s.Partitions[0]
		if s.Unfinished != 1 || s.Waiting != 1 || s.Running != 0 || s.ReadAhead != 0 || s.Failed != 1 || s.Retried != 1 {
			b.t.Errorf("%+v", s)
		}
		if p.Lag() != n || p.Frontier != 0 || p.Committed > 0 || p.Horizon != n || p.ReadTo != n || p.End != n || p.Unfinished != 1 || p.Lanes != 1 {
			b.t.Errorf("lag %d, %+v", p.Lag(), p)
		}
		if len(p.Blocked) != 1 {
			b.t.Fatalf("%d lanes blocked", len(p.Blocked))
		}
		l := p.Blocked[0]
		if string(l.Key) != "stuck" || l.Offset != 0 || l.State != "waiting" || l.Attempts != 1 || l.Err != errDeclined || l.Behind != 0 {
			b.t.Errorf("%+v", l)
		}
		if age := l.Age(); age < 10*time.Minute || age > 11*time.Minute {
			b.t.Errorf("blocked for %s, want 10 min", age)
		}
		c.stop()
	})
}

// Blocked lanes: key, state, attempts, error, age and what is behind; the oldest
// offsets first, at most 16, and gone when they are done.
func TestBlockedLanes(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(
			record("a", "fails"), record("a", "behind"), record("a", "behind"),
			&kgo.Record{Topic: orders, Value: []byte("fails")},
			record("b", "runs"), record("c", "fine"), record("d", "queued"),
		)
		cfg := b.config()
		cfg.Retry = fronta.ConstantBackoff(time.Minute)
		mended := make(chan struct{})
		c := b.run(cfg, func(ctx context.Context, r *fronta.Record) error {
			select {
			case <-mended:
				return nil
			default:
			}
			switch string(r.Value) {
			case "fails":
				return fmt.Errorf("attempt %d", r.DeliveryCount)
			case "runs":
				if r.DeliveryCount == 1 {
					return fronta.RetryAfter(0, errDeclined)
				}
				return sleep(ctx, time.Hour)
			}
			return nil
		})
		time.Sleep(2*time.Minute + 30*time.Second)
		s := c.Stats()
		p := s.Partitions[0]
		if len(p.Blocked) != 3 {
			b.t.Fatalf("blocked: %+v", p.Blocked)
		}
		a, none, running := p.Blocked[0], p.Blocked[1], p.Blocked[2]
		if string(a.Key) != "a" || a.Offset != 0 || a.State != "waiting" || a.Attempts != 3 || a.Err.Error() != "attempt 3" || a.Behind != 2 || a.Age().Round(time.Second) != 150*time.Second {
			b.t.Errorf("%+v, age %s", a, a.Age())
		}
		if none.Key != nil || none.Offset != 3 || none.Behind != 0 {
			b.t.Errorf("%+v", none)
		}
		if string(running.Key) != "b" || running.State != "running" || running.Attempts != 1 {
			b.t.Errorf("%+v", running)
		}
		if s.Accepted != 2 || s.Unfinished != 5 || s.Waiting != 2 || s.Running != 1 || p.Frontier != 0 || p.Lag() != 7 {
			b.t.Errorf("%+v", s)
		}
		for i := range 40 {
			b.produce(record(fmt.Sprint("more", i), "fails"))
		}
		b.until("they fail", func() bool { return c.Stats().Waiting == 42 })
		p = c.Stats().Partitions[0]
		if len(p.Blocked) != 16 {
			b.t.Errorf("%d lanes listed, want 16", len(p.Blocked))
		}
		for i := 1; i < len(p.Blocked); i++ {
			if p.Blocked[i].Offset <= p.Blocked[i-1].Offset {
				b.t.Errorf("offset %d is listed after %d", p.Blocked[i].Offset, p.Blocked[i-1].Offset)
			}
		}
		close(mended)
		b.until("all but the one that runs", func() bool { return c.Stats().Unfinished == 1 })
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Shutdown(ctx)
		_ = c.wait()
	})
}

// Offsets of a partition as they move, and −1 while not known.
func TestPartitionStats(t *testing.T) {
	virtual(t, 2, func(b *bench) {
		c := b.run(b.config(), accept)
		b.until("it has its partitions", func() bool { return len(c.Stats().Partitions) == 2 })
		for i, p := range c.Stats().Partitions {
			if p.Topic != orders || p.Partition != int32(i) || p.Fence < 1 || p.End != -1 || p.Lag() != -1 || p.Committed > 0 || p.Frontier > 0 {
				b.t.Errorf("idle: %+v, lag %d", p, p.Lag())
			}
		}
		b.produce(numbered(5, 5)...)
		b.until("they are done", func() bool { return c.Stats().Partitions[0].Committed == 5 })
		p := c.Stats().Partitions[0]
		if p.Frontier != 5 || p.Horizon != 5 || p.ReadTo != 5 || p.End != 5 || p.Lag() != 0 || p.Unfinished+p.ReadAhead+p.Lanes != 0 || p.Bytes != 0 {
			b.t.Errorf("done: %+v", p)
		}
		c.stop()
		if s := c.Stats(); len(s.Partitions) != 0 || s.Accepted != 5 || !s.Stopping || s.Commits == 0 || s.CommitErrors != 0 || s.FetchErrors != 0 {
			b.t.Errorf("after the end: %+v", s)
		}
	})
}

// H-135: commits that are refused are counted as such, told, and tried again.
// Nothing is started before the first one of the ownership is confirmed.
func TestRefusedCommits(t *testing.T) {
	virtual(t, 1, func(b *bench) {
		b.produce(numbered(5, 5)...)
		f := b.failCommits()
		hook := new(recorder)
		cfg := b.config()
		cfg.Hooks = []any{hook}
		c := b.run(cfg, accept)
		b.until("some are refused", func() bool { return hook.count("commit failed") >= 3 })
		if s := c.Stats(); s.Commits != 0 || s.CommitErrors < 3 || s.Accepted != 0 || s.Partitions[0].Committed > 0 {
			b.t.Errorf("%+v", s)
		}
		f.Remove()
		b.until("the commit", func() bool { return b.committed(0) == 5 })
		b.until("it is known", func() bool {
			s := c.Stats()
			return s.Commits >= 1 && s.Accepted == 5 && s.Partitions[0].Committed == 5
		})
		c.stop()
	})
}
