// Package e2e tests the product as its users get it: the built binary, started
// as a process, spoken to over HTTP, by curl and by OpenAI's own client.
//
// Every test has processes, ports and folders of its own. A `tokenfuse dev` that
// a test started must stop cleanly, with exit code 0, or the test fails.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The module's folder, from which everything is run, and the binary under test.
var root, binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// Programs that nohup started ignore a hangup, and so do those that they start, unless
	// they handle it themselves.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "tokenfuse-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if root, err = filepath.Abs(".."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binary = filepath.Join(dir, "tokenfuse")
	build := exec.Command("go", "build", "-o", binary)
	if raceDetector() {
		build.Args = append(build.Args, "-race")
	}
	build.Args = append(build.Args, "./cmd/tokenfuse")
	build.Dir, build.Stdout, build.Stderr = root, os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the binary:", err)
		return 1
	}
	// The tests mostly wait, for answers that come word by word: more of them can
	// run at a time than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// raceDetector reports whether the tests, and so the binary, run under it.
func raceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}

// patience bounds what ends by itself much sooner, even on a busy machine.
const patience = 60 * time.Second

// result is how a command ended.
type result struct {
	stdout, stderr string
	code           int
}

// run runs a command in the module's folder, with env added to the environment.
func run(t *testing.T, env []string, name string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = root, append(os.Environ(), env...), &stdout, &stderr
	ownGroup(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	err := cmd.Run()
	exit := new(exec.ExitError)
	check.Must(t, err == nil || errors.As(err, &exit), "%s: %v", name, err)
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
