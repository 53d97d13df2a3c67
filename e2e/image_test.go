package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var (
	copied    = regexp.MustCompile(`(?m)^COPY ([^-].*) \S+$`)
	buildLine = regexp.MustCompile(`(?m)^RUN CGO_ENABLED=0 GOOS=\$TARGETOS GOARCH=\$TARGETARCH (go build .*) -o /tokenfuse (\S+)$`)
)

// The image's build line works for both processors from what the image is made of, and
// nothing else. The image itself is built where a builder runs: see docs/serve.md.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	check.OK(t, err)
	ignored, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	check.OK(t, err)
	sources := t.TempDir()
	for _, line := range copied.FindAllStringSubmatch(string(text), -1) {
		for _, name := range strings.Fields(line[1]) {
			if !strings.Contains(string(ignored), "\n!"+name+"\n") {
				t.Errorf(".dockerignore keeps %s out, which is copied", name)
			}
			from, to := filepath.Join(root, name), filepath.Join(sources, name)
			if info, err := os.Stat(from); err == nil && info.IsDir() {
				err = os.CopyFS(to, os.DirFS(from))
				check.OK(t, err)
			} else if data, err := os.ReadFile(from); err != nil || os.WriteFile(to, data, 0o600) != nil {
				t.Fatalf("%s cannot be copied: %v", name, err)
			}
		}
	}
	m := buildLine.FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("the Dockerfile has no build line as this test knows it")
	}
	if !strings.Contains(string(text), "FROM --platform=$BUILDPLATFORM golang:"+strings.TrimPrefix(runtime.Version(), "go")[:4]) {
		t.Errorf("the Dockerfile builds with another Go than %s", runtime.Version())
	}
	for _, processor := range []string{"amd64", "arm64"} {
		args := append(strings.Fields(strings.ReplaceAll(m[1], `"-s -w"`, "-s\x00-w")), "-o", filepath.Join(t.TempDir(), processor), m[2])
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir, cmd.Env = sources, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+processor, "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("for %s: %v\n%s", processor, err, out)
		}
	}
}
