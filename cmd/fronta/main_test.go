package main

// The command as a user meets it: scripts under testdata/script run the real binary.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fronta": main})
}

// deadline is how long a step of a script may take; only a broken one needs it.
const deadline = 30 * time.Second

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		Deadline:            time.Now().Add(2 * deadline), // a command that should have refused to start
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Values[brokers{}] = make(map[string]*process)
			env.Setenv("GOOS", runtime.GOOS)
			env.Setenv("GOARCH", runtime.GOARCH)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"broker":   startBroker,
			"stop-all": stopBrokers,
			"listen":   listen,
			"produce":  produce,
			"consume":  consume,
			"commit":   commit,
			"json":     isJSON,
			"topics":   topics,
			"groups":   groups,
		},
	})
}

// exits CODE COMMAND... runs a command that must end with that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", args[1], err)
	}
	if want := args[0]; strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

type brokers struct{}

type process struct {
	cmd    *exec.Cmd
	output *bufio.Reader
	errors strings.Builder // to be read when cmd has ended
}

// broker NAME ARGS... starts "fronta broker ARGS..." and waits for its first line, which becomes $NAME, and the address in
// it $NAME_ADDR.
func startBroker(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: broker name [flags...]")
	}
	bin := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path := filepath.Join(dir, "fronta"); bin == "" {
			if _, err := os.Stat(path); err == nil {
				bin = path
			}
		}
	}
	cmd := exec.Command(bin, append([]string{"broker"}, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	p := &process{cmd: cmd}
	cmd.Stderr = &p.errors
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	ts.Defer(func() { _ = cmd.Process.Kill() })
	stuck := time.AfterFunc(deadline, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	p.output = bufio.NewReader(stdout)
	line, err := p.output.ReadString('\n')
	if err != nil {
		ts.Fatalf("no ready line but %q: %v, %s", line, cmd.Wait(), p.errors.String())
	}
	ts.Value(brokers{}).(map[string]*process)[args[0]] = p
	line = strings.TrimSpace(line)
	ts.Setenv(args[0], line)
	address := ""
	if strings.HasPrefix(line, "{") {
		var ready struct{ Address string }
		ts.Check(json.Unmarshal([]byte(line), &ready))
		address = ready.Address
	} else if _, rest, ok := strings.Cut(line, " at "); ok {
		address, _, _ = strings.Cut(rest, ",")
	}
	ts.Setenv(args[0]+"_ADDR", address)
}

// stop-all SIGNAL CODE signals the brokers that run; each must end with the code and without another word on its standard
// output. What was on its standard error is $NAME_STDERR.
func stopBrokers(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"INT": os.Interrupt, "TERM": syscall.SIGTERM, "KILL": os.Kill}
	if neg || len(args) != 2 || signals[args[0]] == nil {
		ts.Fatalf("usage: stop-all INT|TERM|KILL code")
	}
	running := ts.Value(brokers{}).(map[string]*process)
	if len(running) == 0 {
		ts.Fatalf("no broker runs")
	}
	for name, p := range running {
		delete(running, name)
		ts.Check(p.cmd.Process.Signal(signals[args[0]]))
		stuck := time.AfterFunc(deadline, func() { _ = p.cmd.Process.Kill() })
		more, _ := p.output.ReadString(0)
		_ = p.cmd.Wait()
		stuck.Stop()
		ts.Setenv(name+"_STDERR", p.errors.String())
		if code := p.cmd.ProcessState.ExitCode(); strconv.Itoa(code) != args[1] || more != "" {
			ts.Fatalf("broker %s: %s and more output %q, want exit code %s; %s", name, p.cmd.ProcessState, more, args[1], p.errors.String())
		}
	}
}

// listen NAME takes a free port for the rest of the script: $NAME is its address.
func listen(ts *testscript.TestScript, _ bool, args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

// produce ADDR TOPIC VALUE... writes records to partition 0.
func produce(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(args[0]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ts.Check(err)
	defer c.Close()
	for _, v := range args[2:] {
		ts.Check(c.ProduceSync(ctx, &kgo.Record{Topic: args[1], Value: []byte(v)}).FirstErr())
	}
}

// consume ADDR TOPIC VALUE... reads as many records of the group "script" from where it was and commits them.
func consume(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(args[0]))
	ts.Check(err)
	defer c.Close()
	adm, topic, want := kadm.NewClient(c), args[1], args[2:]
	offsets, err := adm.FetchOffsets(ctx, "script")
	if !errors.Is(err, kerr.GroupIDNotFound) {
		ts.Check(err)
	}
	at := int64(0)
	if o, ok := offsets.Lookup(topic, 0); ok {
		at = o.At
	}
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(at)}})
	var got []string
	for len(got) < len(want) {
		fetches := c.PollRecords(ctx, len(want)-len(got))
		ts.Check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		ts.Fatalf("from offset %d: %q, want %q", at, got, want)
	}
	next := kadm.Offset{Topic: topic, At: at + int64(len(want)), LeaderEpoch: -1}
	ts.Check(adm.CommitAllOffsets(ctx, "script", kadm.Offsets{topic: {0: next}}))
}

// commit ADDR GROUP TOPIC PARTITION OFFSET METADATA commits for a group without members.
func commit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 6 {
		ts.Fatalf("usage: commit addr group topic partition offset metadata")
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	partition, err := strconv.ParseInt(args[3], 10, 32)
	ts.Check(err)
	at, err := strconv.ParseInt(args[4], 10, 64)
	ts.Check(err)
	c, err := kgo.NewClient(kgo.SeedBrokers(args[0]))
	ts.Check(err)
	defer c.Close()
	o := kadm.Offset{Topic: args[2], Partition: int32(partition), At: at, LeaderEpoch: -1, Metadata: args[5]}
	ts.Check(kadm.NewClient(c).CommitAllOffsets(ctx, args[1], kadm.Offsets{args[2]: {o.Partition: o}}))
}

// json TEXT|stdout checks that this is one line with one JSON object; json TEXT FIELD that it has a field, and json TEXT FIELD
// VALUE what the field is. A field inside another is named like rows.0.keys.
func isJSON(ts *testscript.TestScript, _ bool, args []string) {
	text := args[0]
	if text == "stdout" {
		text = strings.TrimSuffix(ts.ReadFile("stdout"), "\n")
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil || strings.Contains(text, "\n") {
		ts.Fatalf("not one line with one JSON object: %q (%v)", text, err)
	}
	if len(args) < 2 {
		return
	}
	var value any = object
	for _, name := range strings.Split(args[1], ".") {
		var inner any
		switch in := value.(type) {
		case map[string]any:
			inner = in[name]
		case []any:
			if i, err := strconv.Atoi(name); err == nil && i < len(in) {
				inner = in[i]
			}
		}
		if value = inner; value == nil {
			ts.Fatalf("no field %s in %s", args[1], text)
		}
	}
	if len(args) == 3 && fmt.Sprint(value) != args[2] {
		ts.Fatalf("%s is %v, want %s", args[1], value, args[2])
	}
}

// topics ADDR some|none PREFIX waits until the cluster has a topic whose name begins like this, or has none.
func topics(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: topics addr some|none prefix")
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(args[0]))
	ts.Check(err)
	defer c.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := kadm.NewClient(c).ListTopics(ctx)
		ts.Check(err)
		found := "none"
		for _, name := range all.Names() {
			if strings.HasPrefix(name, args[2]) {
				found = "some"
			}
		}
		if found == args[1] {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ts.Fatalf("%s of the topics %v begin with %s", found, all.Names(), args[2])
		}
	}
}

// groups ADDR checks that the cluster has no consumer group.
func groups(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: groups addr")
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(args[0]))
	ts.Check(err)
	defer c.Close()
	all, err := kadm.NewClient(c).ListGroups(ctx)
	ts.Check(err)
	if names := all.Groups(); len(names) > 0 {
		ts.Fatalf("groups are left: %v", names)
	}
}
