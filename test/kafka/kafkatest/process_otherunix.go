//go:build unix && !linux

package kafkatest

import (
	"os/exec"
	"syscall"
)

// bind gives the process a group of its own. These systems cannot kill it when this process dies: after a test binary that
// was killed or ran into its timeout, the broker has to be ended by hand.
func bind(command *exec.Cmd) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
