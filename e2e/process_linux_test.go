package e2e

import (
	"os/exec"
	"syscall"
)

// ownGroup makes cmd the head of a process group, so that all it starts can be
// ended with it, and ends it with the test's own process.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
