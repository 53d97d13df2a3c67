//go:build clients

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// browser finds one of Debian's browsers.
func browser(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatalf("no %v: see clients in .ci/run", names)
	return ""
}

// browse runs a program of e2e/clients, which visits pages by rig.mjs, in Chromium. It must
// end well and say nothing to standard error.
func browse(t *testing.T, program string, args ...string) string {
	t.Helper()
	return browseIn(t, "chromium", browser(t, "chromium-headless-shell", "chromium"), program, args...)
}

func browseIn(t *testing.T, kind, browser, program string, args ...string) string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{program, "rig.mjs"} {
		text, err := os.ReadFile(filepath.Join(root, "e2e/clients", name))
		check.OK(t, err)
		files[name] = string(text)
	}
	got := run(t, []string{"TOKENFUSE_BROWSER=" + browser, "TOKENFUSE_BROWSER_KIND=" + kind}, newNode(),
		append([]string{filepath.Join(workplace(t, "", files), program)}, args...)...)
	check.Must(t, got.code == 0 && got.stderr == "", "%s in %s: exit %d\n%s\n%s", program, kind, got.code, got.stdout, got.stderr)
	return got.stdout
}
