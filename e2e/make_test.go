package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Ctrl-C, which a terminal sends to all processes of the group, ends `make dev`
// and all that it started.
func TestMakeDev(t *testing.T) {
	t.Parallel()
	// -o: what npm installs is in use by other tests.
	cmd := exec.Command("make", "-o", "node_modules/.package-lock.json", "dev", "BIN="+t.TempDir(), "ARGS=--listen 127.0.0.1:0")
	cmd.Env = os.Environ() // of which go may need anything to build
	d := follow(t, cmd)
	a, err := read(client.Get(d.url + "/v1/models"))
	if err != nil || a.status != http.StatusOK {
		t.Errorf("models: %v: %d %s", err, a.status, a.body)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	d.exitCode(t) // make's own, of which it makes no promise
	if serves(d.url) || serves(d.store) {
		t.Error("it still serves")
	}
}
