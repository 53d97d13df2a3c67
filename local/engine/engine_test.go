package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// npm fetches the engine of each system that it is published for: package.json and the
// lock file name them all, and where each is looked for is where npm puts it.
func TestPackaged(t *testing.T) {
	t.Parallel()
	var lock struct {
		Packages map[string]struct {
			Version  string
			OS, CPU  []string
			Optional bool
		}
	}
	text, err := os.ReadFile("../../package-lock.json")
	check.OK(t, err)
	check.OK(t, json.Unmarshal(text, &lock))
	version := lock.Packages["node_modules/@dynoxide/linux-x64"].Version
	for system, want := range map[string][]string{
		"linux/amd64":   {"linux-x64/dynoxide"},
		"linux/arm64":   {"linux-arm64/dynoxide"},
		"darwin/amd64":  {"darwin-x64/dynoxide"},
		"darwin/arm64":  {"darwin-arm64/dynoxide", "darwin-x64/dynoxide"},
		"windows/amd64": {"win32-x64/dynoxide.exe"},
		"windows/arm64": {"win32-arm64/dynoxide.exe", "win32-x64/dynoxide.exe"},
	} {
		goos, goarch, _ := strings.Cut(system, "/")
		got := packaged(goos, goarch)
		check.That(t, slices.Equal(got, want), "%s: %v, want %v", system, got, want)
		found := false
		for _, binary := range got {
			name, _, _ := strings.Cut(binary, "/")
			npmOS, npmCPU, _ := strings.Cut(name, "-")
			p := lock.Packages["node_modules/@dynoxide/"+name]
			found = found || p.Optional && version != "" && p.Version == version && slices.Equal(p.OS, []string{npmOS}) && slices.Equal(p.CPU, []string{npmCPU})
		}
		check.That(t, found, "%s: package-lock.json has none of %v", system, got)
	}
}

// The engine is found from any folder of a project, and from the program's if that is in
// one; the best of several is taken.
func TestInstalled(t *testing.T) {
	t.Parallel()
	project, elsewhere := t.TempDir(), t.TempDir()
	deep := filepath.Join(project, "bin", "of it")
	install := func(name string) string {
		file := filepath.Join(project, "node_modules", "@dynoxide", filepath.FromSlash(name))
		check.OK(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o700)))
		return file
	}
	names := packaged("darwin", "arm64")
	check.Equal(t, installed(names, elsewhere, deep), "", "found")
	for _, name := range []string{"darwin-x64/dynoxide", "darwin-arm64/dynoxide"} {
		want := install(name)
		check.Equal(t, installed(names, elsewhere, deep), want, "found")
	}
}

// A database is its owner's alone, whatever the folder lets others do, and also if it was
// made with wider leave. Names of folders may hold anything.
func TestDatabaseIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "Daten für den \"Test\"")
	check.OK(t, os.MkdirAll(dir, 0o755))
	for range 2 {
		e, err := Start(t.Context(), Options{DataDir: dir})
		check.OK(t, err)
		if err := CreateLimitsTable(t.Context(), Client(e.URL), "limits"); err != nil {
			t.Error(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		check.That(t, err == nil && len(files) != 0, "no files: %v", err)
		for _, file := range files {
			info, err := os.Stat(file)
			check.That(t, err == nil && info.Mode().Perm() == 0o600, "%v: %v", info, err)
			if err := os.Chmod(file, 0o644); err != nil {
				t.Error(err)
			}
		}
		_ = e.Close()
	}
}
