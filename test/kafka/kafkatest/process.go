package kafkatest

// One Java process. It must not outlive this one: a test ends it, and where the system can (Linux), so does the death of this
// process, however it comes.

import (
	"os"
	"os/exec"
	"runtime"
	"time"
)

type process struct {
	command *exec.Cmd
	ended   chan struct{} // closed when the process has ended and err is set
	err     error
}

func startProcess(path string, arguments []string, output *os.File) (*process, error) {
	p := &process{command: exec.Command(path, arguments...), ended: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = output, output
	bind(p.command)
	started := make(chan error)
	go func() {
		// The system ties the process to the thread that started it, not to this process as a whole: were the thread
		// free, the Go runtime could end it, and the broker would die in the middle of a test. So it stays here and waits.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.command.Start()
		started <- err
		if err != nil {
			return
		}
		p.err = p.command.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the process at once and waits for its end.
func (p *process) kill() {
	select {
	case <-p.ended:
	default:
		forceEnd(p.command)
		<-p.ended
	}
}

// stop asks the process to end and waits for it. It reports false when the time ran out and the process was killed.
func (p *process) stop(timeout time.Duration) bool {
	askEnd(p.command)
	select {
	case <-p.ended:
		return true
	case <-time.After(timeout):
		p.kill()
		return false
	}
}
