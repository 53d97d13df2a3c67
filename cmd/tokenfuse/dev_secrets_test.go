package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeptSecret(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mit Leerzeichen", "日本")
	first, err := keptSecret(dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "secret")
	if err := os.Chmod(file, 0o644); err != nil { // as an older dev, or a copy, may have left it
		t.Fatal(err)
	}
	again, err := keptSecret(dir)
	if err != nil || again != first || again.keyPair() != first.keyPair() {
		t.Errorf("%q has become %q: %v", first, again, err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%v", left)
	}

	none, err := keptSecret("")
	if err != nil || none == first || none.keyPair() == first.keyPair() {
		t.Errorf("without a folder: %q, %v", none, err)
	}
	if string(first.derive("a", 32)) == string(first.derive("b", 32)) || len(first.derive("a", 32)) != 32 {
		t.Error("two uses share a secret")
	}

	if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keptSecret(dir); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("half a secret: %v", err)
	}
}
