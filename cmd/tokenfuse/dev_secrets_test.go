package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestKeptSecret(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mit Leerzeichen", "日本")
	first, err := keptSecret(dir)
	check.OK(t, err)
	file := filepath.Join(dir, "secret")
	if err := os.Chmod(file, 0o644); err != nil { // as an older dev, or a copy, may have left it
		t.Fatal(err)
	}
	again, err := keptSecret(dir)
	check.That(t, err == nil && again == first && again.keyPair() == first.keyPair(), "%q has become %q: %v", first, again, err)
	for path, want := range map[string]fs.FileMode{dir: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v", left)
	}

	none, err := keptSecret("")
	check.That(t, err == nil && none != first && none.keyPair() != first.keyPair(), "without a folder: %q, %v", none, err)
	check.That(t, string(first.derive("a", 32)) != string(first.derive("b", 32)) && len(first.derive("a", 32)) == 32, "two uses share a secret")

	check.OK(t, os.WriteFile(file, []byte("half"), 0o600))
	if _, err := keptSecret(dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("half a secret: %v", err)
	}
}
