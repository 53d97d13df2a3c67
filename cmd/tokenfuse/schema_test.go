package main

import (
	"os"
	"testing"
)

// The file beside tokenfuse.yaml is what the parser knows today.
func TestSchemaFileIsCurrent(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../tokenfuse.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	got := command(t, "schema")
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	if got.stdout != string(file) {
		t.Error("tokenfuse.schema.json is not current: run make schema")
	}
}
