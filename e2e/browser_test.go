//go:build clients

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// chromium finds Debian's.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no chromium-headless-shell and no chromium: see clients in .ci/run")
	return ""
}

// browse runs a program of e2e/clients, which visits pages by rig.mjs, in Chromium. It must
// end well and say nothing to standard error.
func browse(t *testing.T, program string, args ...string) {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{program, "rig.mjs"} {
		text, err := os.ReadFile(filepath.Join(root, "e2e/clients", name))
		check.OK(t, err)
		files[name] = string(text)
	}
	got := run(t, []string{"TOKENFUSE_BROWSER=" + chromium(t)}, newNode(), append([]string{filepath.Join(workplace(t, "", files), program)}, args...)...)
	check.Must(t, got.code == 0 && got.stderr == "", "%s: exit %d\n%s\n%s", program, got.code, got.stdout, got.stderr)
}
