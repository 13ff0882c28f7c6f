//go:build unix

package kafkatest

import (
	"os/exec"
	"syscall"
)

// forceEnd kills the whole process group, of which the process is the head.
func forceEnd(command *exec.Cmd) { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }

func askEnd(command *exec.Cmd) { _ = command.Process.Signal(syscall.SIGTERM) }
