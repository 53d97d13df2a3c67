package main

import (
	"syscall"
	"time"
)

// processorTime is how long processors have worked for this process so far.
func processorTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	var began, ended, kernel, user syscall.Filetime
	if err == nil {
		err = syscall.GetProcessTimes(self, &began, &ended, &kernel, &user)
	}
	if err != nil {
		panic(err) // it fails on wrong arguments only
	}
	ticks := func(t syscall.Filetime) int64 { return int64(t.HighDateTime)<<32 + int64(t.LowDateTime) }
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}
