package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// period is that in which a share of the processor is given, as by Lambda.
const period = 20 * time.Millisecond

// shareProcessor gives a process so much of one processor, 1 being all of it, until it is
// released: by a control group or, where there is none to be had, by stopping it for the
// rest of each period, which is hard on a process that waits. how says which.
func shareProcessor(pid int, share float64) (release func(), how string, err error) {
	quota := strconv.Itoa(int(share * float64(period.Microseconds())))
	name := fmt.Sprintf("tokenfuse-bench-%d", pid)
	for _, group := range []struct {
		how, dir string
		files    map[string]string
	}{
		{"quota of a control group", "/sys/fs/cgroup/cpu", map[string]string{"cpu.cfs_period_us": strconv.Itoa(int(period.Microseconds())), "cpu.cfs_quota_us": quota}},
		{"quota of a control group", "/sys/fs/cgroup", map[string]string{"cpu.max": quota + " " + strconv.Itoa(int(period.Microseconds()))}},
	} {
		dir := filepath.Join(group.dir, name)
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		var failed error
		for file, value := range group.files {
			failed = errors.Join(failed, write(filepath.Join(dir, file), value))
		}
		failed = errors.Join(failed, write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)))
		if failed == nil {
			return func() {
				// A group can be removed once its process is elsewhere, or has ended.
				_ = write(filepath.Join(group.dir, "cgroup.procs"), strconv.Itoa(pid))
				_ = os.Remove(dir)
			}, group.how, nil
		}
		_ = os.Remove(dir)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(period)
		defer ticks.Stop()
		for {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			time.Sleep(time.Duration(share * float64(period)))
			select {
			case <-done:
				return
			default:
			}
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			<-ticks.C
		}
	}()
	return func() { close(done); <-ended; _ = syscall.Kill(pid, syscall.SIGCONT) }, "stopped for the rest of each period", nil
}

// write writes to a file that is there; a control group's are, or they cannot be made.
func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
