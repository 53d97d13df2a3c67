//go:build unix && !linux

package e2e

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// ownGroup makes cmd the head of a process group, so that all it starts can be
// ended with it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// children lists the processes that a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatalf("process %d has no children: %v", pid, err)
	}
	for child := range strings.FieldsSeq(string(out)) {
		pids = append(pids, number(t, child))
	}
	return pids
}

// alive reports whether a process runs.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
