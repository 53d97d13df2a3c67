//go:build docker

package e2e

import (
	"strings"
	"testing"
)

// The image is built, and its binary runs as nobody.
func TestImage(t *testing.T) {
	t.Parallel()
	const name = "tokenfuse-e2e"
	if got := run(t, nil, "docker", "build", "-q", "-t", name, "."); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	t.Cleanup(func() { run(t, nil, "docker", "image", "rm", "-f", name) })
	if got := run(t, nil, "docker", "run", "--rm", name, "--help"); got.code != 0 || !strings.Contains(got.stdout, "--trusted-proxies") {
		t.Errorf("%+v", got)
	}
	if got := run(t, nil, "docker", "inspect", "-f", "{{.Config.User}}", name); strings.TrimSpace(got.stdout) != "65532:65532" {
		t.Errorf("it runs as %+v", got)
	}
}
