package policy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A tree says what its file says, for each right file of these tests; its lines, too.
func TestTree(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile(sample)
	check.OK(t, err)
	files := map[string]string{"good": good, "sample": string(own)}
	for name, change := range accepted {
		files[name] = strings.Replace(good, change[0], change[1], 1)
	}
	for name, text := range files {
		data := []byte(text)
		tree, err := Tree(data)
		check.OK(t, err)
		again, err := Tree(data)
		check.That(t, err == nil && bytes.Equal(tree, again), "%s: two trees of one file differ", name)
		root := treeOf(tree, data)
		check.Must(t, root != nil, "%s: its tree is not read", name)
		got, err := parsed(nil, root, nil) // nothing but the tree
		check.OK(t, err)
		want, err := parsed(data, nil, nil)
		check.OK(t, err)
		check.Diff(t, cmp.Diff(want, got), "%s", name)
		lines, wanted := &reader{lines: map[string]int{}}, &reader{lines: map[string]int{}}
		readPolicy(value{r: lines, node: root})
		from, _ := wanted.document(data)
		readPolicy(from)
		check.Diff(t, cmp.Diff(wanted.lines, lines.lines), "%s: lines", name)
	}
}

// A tree counts beside its own file alone: whatever else lies there, the file does.
func TestTreeBesideAnotherFile(t *testing.T) {
	t.Parallel()
	other := []byte(strings.Replace(good, "max_output_tokens: 500", "max_output_tokens: 501", 1))
	check.Must(t, string(other) != good, "the change changes nothing")
	tree, err := Tree([]byte(good))
	check.OK(t, err)
	file := filepath.Join(t.TempDir(), "tokenfuse.yaml")
	check.OK(t, os.WriteFile(file, other, 0o600))
	want, err := Parse(other)
	check.OK(t, err)
	changed := bytes.Clone(tree)
	changed[len(changed)-1] ^= 1
	for name, beside := range map[string][]byte{
		"of the file before": tree, "cut": tree[:len(tree)-1], "longer": append(bytes.Clone(tree), 0), "changed": changed, "empty": {},
		"of another version": bytes.Replace(tree, []byte("of "), []byte("of 0."), 1), "text": []byte(good),
	} {
		check.OK(t, os.WriteFile(file+TreeSuffix, beside, 0o600))
		for _, load := range []func(string) (*Policy, error){Load, LoadUncounted} {
			got, err := load(file)
			check.OK(t, err)
			check.Diff(t, cmp.Diff(want, got), "%s", name)
		}
		if name != "of the file before" {
			check.That(t, treeOf(beside, []byte(good)) == nil, "a tree that is %s counts", name)
		}
	}
}

// A file with mistakes has no tree: they are told.
func TestTreeOfMistakes(t *testing.T) {
	t.Parallel()
	_, err := Tree([]byte(strings.Replace(good, "max_output_tokens: 500", "max_output_tokens: 0", 1)))
	check.That(t, err != nil && strings.Contains(fmt.Sprint(err), "max_output_tokens"), "%v", err)
}
