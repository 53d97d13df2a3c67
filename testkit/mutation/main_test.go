package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What is explained is there, in code as it is now: without a run, which takes long.
func TestEquivalentsAreThere(t *testing.T) {
	t.Parallel()
	entries := 0
	for dir := range plans {
		known, err := equivalents(dir)
		check.OK(t, err)
		entries += len(known)
		all, err := mutantsOf(filepath.Join("../..", dir))
		check.OK(t, err)
		for key, reason := range known {
			check.That(t, reason != "" && slices.ContainsFunc(all, func(m mutant) bool { return m.key() == key }), "%s/%s is no mutant, or has no reason", dir, key)
		}
	}
	check.Equal(t, strings.Count(equivalentText, "\n\t"), entries, "entries of packages that are tried")
}

func TestMutants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte("package a\n\nfunc f(a, b int) (int, bool) {\n\tif a < b {\n\t\ta += 2\n\t}\n\tif a < b {\n\t\tprintln(!(a == b))\n\t}\n\treturn a, true\n}\n"), 0o600))
	all, err := mutantsOf(dir)
	check.OK(t, err)
	var got []string
	for _, m := range all {
		got = append(got, strings.TrimPrefix(m.key(), "a.go f: "))
	}
	for _, want := range []string{
		"if a < b { => if a <= b {", "if a < b { => if a >= b { #2", "if a < b { => if true || (a < b) {", "if a < b { => if false && (a < b) { #2",
		"a += 2 => a -= 2", "a += 2 => a += 3", "a += 2 => a += 1", "a += 2 => ", "println(!(a == b)) => println(!(a != b))", "println(!(a == b)) => println((a == b))", "println(!(a == b)) => ",
		"return a, true => return true, a", "return a, true => return a, false",
	} {
		check.That(t, slices.Contains(got, want), "no %q among %q", want, got)
	}
	check.Equal(t, len(got), 17, "mutants: %q", got)
}
