package kafkatest

import "os/exec"

// There are no process groups and no polite signal here: every end is a kill.

func bind(*exec.Cmd) {}

func forceEnd(command *exec.Cmd) { _ = command.Process.Kill() }

func askEnd(command *exec.Cmd) { _ = command.Process.Kill() }
