package engine

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from reaching the child before the calls in flight have
// settled. The kernel ends the child when this process dies, however it dies.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
