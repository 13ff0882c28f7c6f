package consumer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/fronta-mq/fronta"
	"github.com/fronta-mq/fronta/deadletter"
	"github.com/fronta-mq/fronta/internal/checker"
)

// Members in processes of their own, which can be killed, or end themselves, in the middle of their work: the test binary
// again, told by a variable to be a consumer. It tells on its standard output what it does, and leaves in good order
// when its standard input ends, so that it does not outlive the test.

// childVariable, when set, makes the test binary a consumer.
const childVariable = "FRONTA_TEST_CHILD"

// order is what the child is told to do.
type order struct {
	Addr, Group, Topic string
	Letters            string `json:",omitempty"` // the dead-letter topic

	// Instance makes it a static member: one that takes its own place again at once after it was killed.
	Instance string `json:",omitempty"`

	Concurrency int           `json:",omitempty"`
	Pace        time.Duration `json:",omitempty"` // of each handler, beside the time of work

	Stuck  []string `json:",omitempty"` // keys whose handlers run until the end
	Deadly string   `json:",omitempty"` // value of the record whose handler ends the process
}

// event is what the child tells.
type event struct {
	What      string // assigned, started, ended, failed, committed, lettered
	Partition int32
	Offset    int64
	Delivery  int    `json:",omitempty"`
	Fence     int64  `json:",omitempty"`
	Reason    string `json:",omitempty"`
	Metadata  string `json:",omitempty"` // of Parallel Consumer's commits

	at time.Time // when it was read
}

// deadlyCode is the exit code of a child that its handler ended.
const deadlyCode = 3

// teller writes events. A write to a pipe is done when the kernel has it, so that what was told before a kill is not lost;
// short lines are written whole.
type teller struct{}

func (teller) tell(e event) {
	line, _ := json.Marshal(e)
	_, _ = os.Stdout.Write(append(line, '\n'))
}

func (t teller) OnAssigned(tps []fronta.TopicPartition, fence int64) {
	for _, tp := range tps {
		t.tell(event{What: "assigned", Partition: tp.Partition, Fence: fence})
	}
}

func (t teller) OnCommitted(tp fronta.TopicPartition, offset int64) {
	t.tell(event{What: "committed", Partition: tp.Partition, Offset: offset})
}

func (t teller) OnDeadLettered(r *fronta.Record, reason deadletter.Reason, _ error) {
	t.tell(event{What: "lettered", Partition: r.Partition, Offset: r.Offset, Reason: string(reason)})
}

func child() {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childVariable)), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var t teller
	client := []kgo.Opt{kgo.SeedBrokers(o.Addr), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond)}
	if o.Instance != "" {
		client = append(client, kgo.InstanceID(o.Instance))
	}
	cfg := fronta.Config{
		Client: client, Group: o.Group, Topics: []string{o.Topic}, Concurrency: o.Concurrency,
		CommitInterval: commitInterval, DrainTimeout: 300 * time.Millisecond,
		Hooks: []any{t}, Logger: slog.New(slog.DiscardHandler),
	}
	if o.Letters != "" {
		cfg.DeadLetter = fronta.DeadLetterTopic(o.Letters)
	}
	c, err := fronta.NewConsumer(cfg)
	if err == nil {
		err = c.Run(ctx, fronta.HandlerFunc(func(ctx context.Context, r *fronta.Record) error {
			t.tell(event{What: "started", Partition: r.Partition, Offset: r.Offset, Delivery: r.DeliveryCount, Fence: r.Fence})
			time.Sleep(o.Pace)
			work(r)
			if o.Deadly != "" && string(r.Value) == o.Deadly {
				os.Exit(deadlyCode)
			}
			if slices.Contains(o.Stuck, string(r.Key)) {
				<-ctx.Done()
				t.tell(event{What: "abandoned", Partition: r.Partition, Offset: r.Offset})
				return context.Cause(ctx)
			}
			t.tell(event{What: "ended", Partition: r.Partition, Offset: r.Offset})
			return nil
		}))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "child ended:", err)
		os.Exit(1)
	}
}

// commitInterval is that of all members.
const commitInterval = 200 * time.Millisecond

// process is a member in another process, whose events are passed on to the judge under the process's name.
type process struct {
	w     *world
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	fence int64         // for those that have none
	ended chan struct{} // closed when its output has been read to the end and it has ended

	mu     sync.Mutex
	events []event
}

// spawn starts a child that does as o says. What o leaves open is filled in with the world's.
func (w *world) spawn(name string, o order) *process {
	w.t.Helper()
	o.Addr, o.Group, o.Topic = w.cluster.Addr(), w.group, w.topic
	instructions, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(instructions))
	return w.watch(name, cmd, 0)
}

// watch starts a process that tells events. The fence is for those that have none of their own.
func (w *world) watch(name string, cmd *exec.Cmd, fence int64) *process {
	w.t.Helper()
	p := &process{w: w, name: name, cmd: cmd, fence: fence, ended: make(chan struct{})}
	cmd.Stderr = w.t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer w.wake()
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			e := event{at: time.Now()}
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				break // the last line was cut by the kill
			}
			p.hear(e)
		}
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	}()
	w.t.Cleanup(func() {
		_ = p.stdin.Close()
		_ = cmd.Process.Kill()
		<-p.ended
	})
	return p
}

func (p *process) hear(e event) {
	w, tp := p.w, checker.Partition{Topic: p.w.topic, Partition: e.Partition}
	switch e.What {
	case "assigned":
		w.check.Assigned(p.name, tp)
	case "started":
		fence := max(e.Fence, p.fence)
		w.fenced(fence)
		w.check.Started(p.name, tp, e.Offset, e.Delivery, fence)
	case "ended":
		w.check.Ended(p.name, tp, e.Offset, checker.Accepted)
		w.done(e.Partition, e.Offset)
	case "abandoned":
		w.check.Ended(p.name, tp, e.Offset, checker.Abandoned)
	case "committed":
		w.committed(p.name, tp, e.Offset, e.at)
	case "lettered":
		w.check.DeadLettered(tp, e.Offset, e.Reason)
		w.done(e.Partition, e.Offset)
	}
	p.mu.Lock()
	p.events = append(p.events, e)
	p.mu.Unlock()
	w.wake()
}

// told are the events of a kind, in order.
func (p *process) told(what string) []event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var some []event
	for _, e := range p.events {
		if e.What == what {
			some = append(some, e)
		}
	}
	return some
}

// records are those that events of a kind are about, each once.
func (p *process) records(what string) []at {
	var list []at
	for _, e := range p.told(what) {
		list = append(list, at{e.Partition, e.Offset})
	}
	return slices.Compact(sorted(list))
}

// kill ends the process with SIGKILL and returns when all that it told has been heard.
func (p *process) kill() {
	p.w.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.w.t.Fatal(err)
	}
	<-p.ended
	p.w.check.Killed(p.name)
}

// say writes a line to the process's standard input.
func (p *process) say(line string) {
	p.w.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.w.t.Fatalf("tell %s to %s: %v", p.name, line, err)
	}
}

// leave has it stop in good order.
func (p *process) leave() {
	p.w.t.Helper()
	if err := p.stdin.Close(); err != nil {
		p.w.t.Fatal(err)
	}
	if code := p.wait(); code != 0 {
		p.w.t.Errorf("%s ended with exit code %d", p.name, code)
	}
	p.w.check.Stopped(p.name)
}

// wait returns the exit code when the process has ended.
func (p *process) wait() int {
	p.w.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.w.t.Fatalf("%s did not end within %s", p.name, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// running says whether the process has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
