//go:build unix && !linux

package engine

import (
	"os/exec"
	"syscall"
)

// apart keeps a terminal's Ctrl-C from reaching the child before the calls in flight have
// settled.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
