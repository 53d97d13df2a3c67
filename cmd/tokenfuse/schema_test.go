package main

import (
	"os"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The file beside tokenfuse.yaml is what the parser knows today.
func TestSchemaFileIsCurrent(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../tokenfuse.schema.json")
	check.OK(t, err)
	got := command(t, "schema")
	check.Must(t, got.code == 0 && got.stderr == "", "%+v", got)
	check.That(t, got.stdout == string(file), "tokenfuse.schema.json is not current: run make schema")
}
