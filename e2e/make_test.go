package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
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
	check.That(t, err == nil && a.status == http.StatusOK, "models: %v: %d %s", err, a.status, a.body)
	check.OK(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	d.exitCode(t) // make's own, of which it makes no promise
	check.That(t, !serves(d.url) && !serves(d.store), "it still serves")
}

// `make help` names each target that people call, once, and says what it does.
func TestMakeHelp(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	check.OK(t, err)
	cmd := exec.Command("make", "-s", "help")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	check.Must(t, err == nil, "%v: %s", err, out)
	declared := regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindSubmatch(makefile)
	check.Must(t, declared != nil, "the Makefile declares no targets")
	wanted := 0
	for target := range strings.FieldsSeq(string(declared[1])) {
		if strings.HasPrefix(target, "build-") { // what `sam build` calls
			continue
		}
		wanted++
		found := regexp.MustCompile(`(?m)^  `+target+` +\S.*$`).FindAll(out, -1)
		check.That(t, len(found) == 1, "%s: %q", target, found)
	}
	lines := strings.Count(string(out), "\n")
	check.That(t, lines == wanted && wanted != 0, "%d lines for %d targets:\n%s", lines, wanted, out)
}
