// Package mototest starts moto's server for tests: services of AWS as others wrote
// them (`pip install 'moto[server]'`).
package mototest

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var servesAt = regexp.MustCompile(`Running on (http://127\.0\.0\.1:\d+)`)

// Start starts moto_server, which must be on the PATH, on a free port, and gives its
// URL. It ends with the test, and what it wrote is in the log of one that failed.
func Start(t testing.TB) (url string) {
	t.Helper()
	server, err := exec.LookPath("moto_server")
	check.Must(t, err == nil, "these tests need moto (pip install 'moto[server]'): %v", err)
	// The shell ends the server when its standard input closes, which it does however
	// this process ends.
	cmd := exec.Command("sh", "-c", `"$0" -H 127.0.0.1 -p 0 & read -r _; kill $!; wait`, server)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()} // it reads AWS's settings, too
	stdin, err := cmd.StdinPipe()
	check.OK(t, err)
	stderr, err := cmd.StderrPipe()
	check.OK(t, err)
	check.OK(t, cmd.Start())
	said := &buffer.Synced{}
	serving, drained := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			_, _ = said.Write(append(lines.Bytes(), '\n'))
			if found := servesAt.FindSubmatch(lines.Bytes()); found != nil {
				serving <- string(found[1])
			}
		}
	}()
	t.Cleanup(func() {
		_ = stdin.Close()
		<-drained
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("moto_server wrote:\n%s", said)
		}
	})
	select {
	case url = <-serving:
	case <-drained:
		t.Fatal("moto_server ended at its start")
	case <-time.After(time.Minute):
		t.Fatal("moto_server does not serve")
	}
	return url
}
