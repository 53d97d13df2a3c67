package engine

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel end the child when this process dies, however
// it dies, and keeps a terminal's Ctrl-C from reaching the child before the
// calls in flight have settled.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
