//go:build clients

package e2e

import (
	"bytes"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const fuseClient = "web/client"

// A build of web/client gives the files that are committed, of at most 5 KB.
func TestClientsFuseBuild(t *testing.T) {
	dist := filepath.Join(root, fuseClient, "dist")
	read := func() map[string]string {
		files := map[string]string{}
		for _, name := range []string{"index.js", "index.js.map", "index.d.ts", "solver.js", "solver.js.map", "solver.d.ts"} {
			text, err := os.ReadFile(filepath.Join(dist, name))
			check.OK(t, err)
			files[name] = string(text)
		}
		return files
	}
	committed := read()
	build := exec.Command("npm", "run", "build")
	build.Dir = filepath.Join(root, fuseClient)
	out, err := build.CombinedOutput()
	check.Must(t, err == nil, "%v: %s", err, out)
	for name, text := range read() {
		check.That(t, text == committed[name], "%s is not what a build gives", name)
	}
	var small bytes.Buffer
	w := gzip.NewWriter(&small)
	_, err = w.Write([]byte(committed["index.js"]))
	check.OK(t, err)
	check.OK(t, w.Close())
	check.That(t, small.Len() <= 5000, "index.js has %d bytes gzipped", small.Len())
}

// fuse.mjs says what web/client does for each SDK.
func TestClientsFuse(t *testing.T) {
	l := newLab(t, "https://page.invalid", startDev)
	program, err := os.ReadFile(filepath.Join(root, "e2e/clients/fuse.mjs"))
	check.OK(t, err)
	dir := workplace(t, "", map[string]string{"fuse.mjs": string(program)})
	cmd := exec.Command(newNode(), filepath.Join(dir, "fuse.mjs"), filepath.Join(root, fuseClient, "dist/index.js"),
		l.challenging.url, l.cutOff.url, l.cutOff.tokenOf(t, "--sub", "fuse"))
	out, err := cmd.CombinedOutput()
	check.Must(t, err == nil, "%v: %s", err, out)
}
