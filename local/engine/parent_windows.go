package engine

import (
	"os/exec"
	"syscall"
)

// apart keeps a console's Ctrl-C from reaching the child before the calls in flight have
// settled.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
