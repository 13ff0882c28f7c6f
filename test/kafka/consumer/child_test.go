package consumer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/internal/checker"
	"github.com/fronta-mq/fronta/test/kafka/kafkatest"
)

// childVariable, when set, makes the test binary a consumer that tells on its standard output what it does.
const childVariable = "FRONTA_TEST_CHILD"

// order is what the child is told to do.
type order struct {
	Addr, Group, Topic string
}

// event is what the child tells.
type event struct {
	What      string // started, ended, committed
	Partition int32
	Offset    int64
	Delivery  int
	Fence     int64
}

// teller writes events. A write to a pipe is done when the kernel has it, so that what was told before a kill is not lost;
// short lines are written whole.
type teller struct{ topic string }

func (teller) tell(e event) {
	line, _ := json.Marshal(e)
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func (t teller) OnCommitted(tp fronta.TopicPartition, offset int64) {
	t.tell(event{What: "committed", Partition: tp.Partition, Offset: offset})
}

func child() {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	t := teller{o.Topic}
	c, err := fronta.NewConsumer(fronta.Config{
		Client: []kgo.Opt{kgo.SeedBrokers(o.Addr), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond)},
		Group:  o.Group, Topics: []string{o.Topic}, CommitInterval: 200 * time.Millisecond,
		Hooks: []any{t}, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = c.Run(context.Background(), fronta.HandlerFunc(func(_ context.Context, r *fronta.Record) error {
			t.tell(event{What: "started", Partition: r.Partition, Offset: r.Offset, Delivery: r.DeliveryCount, Fence: r.Fence})
			work(r)
			t.tell(event{What: "ended", Partition: r.Partition, Offset: r.Offset})
			return nil
		}))
	}
	fmt.Fprintln(os.Stderr, "child ended:", err)
	os.Exit(1)
}

// A consuming process is killed with SIGKILL; another one takes over. Nothing is lost, the order of keys is kept, and only
// what lies above the last committed offset runs again (P-1, P-2, P-3; H-150).
func TestConsumerIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kafkatest.Shared(t), 3, nil)
	const n = 6000
	w.produce(n, 60)

	instructions, _ := json.Marshal(order{Addr: w.cluster.Addr(), Group: w.group, Topic: w.topic})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(instructions))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const victim = "victim"
	ended, commits, killed := 0, 0, false
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			break // the last line was cut by the kill
		}
		p := checker.Partition{Topic: w.topic, Partition: e.Partition}
		switch e.What {
		case "started":
			w.check.Started(victim, p, e.Offset, e.Delivery, e.Fence)
		case "ended":
			w.check.Ended(victim, p, e.Offset, checker.Accepted)
			w.done(e.Partition, e.Offset)
			if ended++; ended >= n/2 && commits > 0 && !killed {
				killed = true
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		case "committed":
			commits++
			w.check.Committed(victim, p, e.Offset)
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	w.check.Killed(victim)
	if ended < n/2 || commits == 0 {
		t.Fatalf("the child ended %d records and made %d commits before it ended", ended, commits)
	}

	heir := w.join("heir", func(_ context.Context, r *fronta.Record) error { work(r); return nil })
	w.await(n)
	heir.leave()
	report := w.judge()
	t.Logf("killed after %d records; %d ran again", ended, report.Repeated)
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
