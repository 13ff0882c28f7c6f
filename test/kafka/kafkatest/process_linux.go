package kafkatest

import (
	"os/exec"
	"syscall"
)

// bind gives the process a group of its own, so that an interrupt typed at the terminal does not reach it before the test,
// and has the system kill it when this process dies.
func bind(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
