package cluster

// The broker in a process of its own: this command once more, as "fronta broker". It ends when its standard input does,
// which the operating system sees to when this process is gone.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// UntilStdinEnds is the flag, without its dashes, that makes "fronta broker" end with its standard input.
const UntilStdinEnds = "until-stdin-ends"

// endTimeout is how long the process has to end by itself.
const endTimeout = 5 * time.Second

type process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
}

func startProcess(ctx context.Context, stderr io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(self, "broker", "--addr", "127.0.0.1:0", "--json", "--"+UntilStdinEnds)}
	p.cmd.Args[0] = os.Args[0]
	p.cmd.Stderr = stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	var ready struct {
		Address string `json:"address"`
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err == nil && ready.Address == "" {
		err = errors.New("it did not tell its address")
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		return nil, fmt.Errorf("%w (%w)", err, p.cmd.Wait())
	}
	p.address = ready.Address
	return p, nil
}

// end asks the process to end, and makes it if it doesn't.
func (p *process) end() error {
	_ = p.stdin.Close()
	kill := time.AfterFunc(endTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the broker's process: %w", err)
	}
	return nil
}
