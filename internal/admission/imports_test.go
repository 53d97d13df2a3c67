package admission

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Whoever decides knows nothing of HTTP, nor do the tests of what is decided.
func TestNoHTTP(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	check.Must(t, err == nil && len(files) >= 10, "%d files, %v", len(files), err)
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		check.OK(t, err)
		for _, i := range f.Imports {
			switch i.Path.Value {
			case `"net/http"`, `"net/http/httptest"`:
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
}
