package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// children lists the processes that a process has started.
func children(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := os.ReadDir("/proc")
	check.OK(t, err)
	var pids []int
	for _, entry := range stats {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent, ok := stat(child); ok && parent == pid {
			pids = append(pids, child)
		}
	}
	check.Must(t, len(pids) != 0, "process %d has no children", pid)
	return pids
}

// alive reports whether a process runs: a zombie does not.
func alive(pid int) bool {
	state, _, ok := stat(pid)
	return ok && state != "Z" && state != "X"
}

// stat reads a process's state and parent, see proc_pid_stat(5).
func stat(pid int) (state string, parent int, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	// The name before the last parenthesis may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

// However dev dies, its engine ends with it.
func TestKilled(t *testing.T) {
	t.Parallel()
	d := startDev(t, testConfig(t, 1000))
	engine := children(t, d.cmd.Process.Pid)
	check.Equal(t, d.stop(t, syscall.SIGKILL), -1, "exit code … of a killed process")
	await(t, "the engine ends", func() bool { return !serves(d.store) })
	for _, pid := range engine {
		await(t, "the engine's process ends", func() bool { return !alive(pid) })
	}
}
