//go:build sam

package deploy

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// project copies what a build needs to a folder of its own.
func project(t *testing.T, from string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, name := range []string{"cmd", "functions", "internal", "local", "pkg", "web", "go.mod", "go.sum", "Makefile", "samconfig.toml", "template.yaml", "tokenfuse.yaml"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "-R", filepath.Join(from, name), folder).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return folder
}

// built is where SAM puts what it has built of a project.
func built(folder string, name ...string) string {
	return filepath.Join(append([]string{folder, ".aws-sam", "build"}, name...)...)
}

// samBuild runs `sam build` in a project's folder, and gives what it said.
func samBuild(t *testing.T, folder, config string, resources ...string) (said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sam", append([]string{"build"}, resources...)...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "SAM_CLI_TELEMETRY=0", "CONFIG="+config)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestBuild: what is deployed is a static binary for arm64 and the configuration
// beside it, the same bytes in whatever folder it is built, under a template that is
// the source's.
func TestBuild(t *testing.T) {
	t.Parallel()
	here := project(t, "..")
	there := project(t, here)
	for _, folder := range []string{here, there} {
		if said, err := samBuild(t, folder, "tokenfuse.yaml"); err != nil {
			t.Fatalf("sam build: %v\n%s", err, said)
		}
	}
	config := read(t, filepath.Join(here, "tokenfuse.yaml"))
	tree, err := policy.Tree(config)
	check.OK(t, err)
	for _, function := range []string{"Generate", "ClearLimit", "SpendAlarm"} {
		files, err := os.ReadDir(built(here, function))
		check.Must(t, err == nil && len(files) == 3, "%s: %v, %v", function, files, err)
		binary := read(t, built(here, function, "bootstrap"))
		check.That(t, bytes.Equal(binary, read(t, built(there, function, "bootstrap"))), "%s: two builds make two binaries", function)
		check.That(t, bytes.Equal(config, read(t, built(here, function, "tokenfuse.yaml"))) && bytes.Equal(config, read(t, built(there, function, "tokenfuse.yaml"))),
			"%s has another configuration beside it", function)
		check.That(t, bytes.Equal(tree, read(t, built(here, function, "tokenfuse.yaml"+policy.TreeSuffix))), "%s has another tree beside it", function)
		checkBinary(t, built(here, function, "bootstrap"), here)
	}
	templates := transformed(t, filepath.Join(here, "template.yaml"), built(here, "template.yaml"))
	if source, deployed := asJSON(t, templates[0]), asJSON(t, templates[1]); source != deployed {
		t.Errorf("sam build changes the template:\n%s\n%s", source, deployed)
	}
}

// checkBinary: Lambda can start it, and it holds nothing that is not needed.
func checkBinary(t *testing.T, file, folder string) {
	t.Helper()
	info, err := os.Stat(file)
	check.OK(t, err)
	if info.Mode()&0o111 != 0o111 || info.Size() > 40<<20 {
		t.Errorf("%s: %s, %d bytes", file, info.Mode(), info.Size())
	}
	f, err := elf.Open(file)
	check.OK(t, err)
	defer f.Close()
	check.Equal(t, f.Machine, elf.EM_AARCH64, "%s is for", file)
	for _, p := range f.Progs {
		check.That(t, p.Type != elf.PT_INTERP && p.Type != elf.PT_DYNAMIC, "%s is not static: it has %s", file, p.Type)
	}
	check.That(t, f.Section(".symtab") == nil && f.Section(".debug_info") == nil, "%s has symbols", file)
	// net/rpc comes without lambda.norpc, the folder without -trimpath.
	for _, needless := range []string{"net/rpc", folder} {
		check.That(t, !bytes.Contains(read(t, file), []byte(needless)), "%s has %s in it", file, needless)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	check.OK(t, err)
	return b
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	check.OK(t, err)
	return string(b)
}

// TestBuildRefusesABadConfiguration: a mistake ends the build, and is named.
func TestBuildRefusesABadConfiguration(t *testing.T) {
	t.Parallel()
	folder := project(t, "..")
	bad := strings.Replace(string(read(t, "../tokenfuse.yaml")), "max_in_flight:", "max_in_fligth:", 1)
	check.OK(t, os.WriteFile(filepath.Join(folder, "prod.yaml"), []byte(bad), 0o600))
	said, err := samBuild(t, folder, "prod.yaml", "ClearLimit")
	check.That(t, err != nil && strings.Contains(said, "max_in_fligth") && !strings.Contains(said, "Build Succeeded"), "sam build with a mistake: %v\n%s", err, said)
}
