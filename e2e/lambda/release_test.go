package lambda

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// planted builds generate with a fault in a source file, and gives the program's path.
func planted(t *testing.T, file, old, fault string) string {
	t.Helper()
	dir := t.TempDir()
	path, err := filepath.Abs("../../" + file)
	check.OK(t, err)
	source, err := os.ReadFile(path)
	check.OK(t, err)
	check.Must(t, strings.Contains(string(source), old), "%s has no %q", file, old)
	changed := filepath.Join(dir, "changed.go")
	check.OK(t, os.WriteFile(changed, []byte(strings.Replace(string(source), old, fault, 1)), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	check.OK(t, err)
	check.OK(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-tags", "lambda.norpc", "-o", filepath.Join(dir, "generate"), "./functions/generate")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	check.Must(t, err == nil, "%v: %s", err, out)
	return filepath.Join(dir, "generate")
}

// A version that starts and fails every call writes what the canary's alarm watches, and
// one that serves does, too: a share needs both.
func TestReleaseThatFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program string // "": as it is
		text    string
		status  int
		failed  float64
	}{
		"a panic in every call": {planted(t, "functions/generate/chatapi/exchange.go", "answer, err := x.ask(callCtx)", "answer, err := x.ask(callCtx)\n\tpanic(\"planted\")"),
			question, http.StatusInternalServerError, 1},
		"a panic before the feature is known": {planted(t, "functions/generate/chatapi/chat.go", "	req, form, apiErr := parse(body)\n", "	panic(\"planted\")\n\treq, form, apiErr := parse(body)\n"),
			question, http.StatusInternalServerError, 1},
		"a wrong key":                {"", "[[fail:401]]", http.StatusBadGateway, 1},
		"a provider that is down":    {"", "[[fail:503]]", http.StatusBadGateway, 0},
		"an answer, as it should be": {"", question, http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			f := g.run("generate", tc.program, "AWS_LAMBDA_FUNCTION_VERSION=7")
			for range 2 {
				a := whole(t, g.ask(f, g.token("ann"), chat("ask", tc.text, false), timeout))
				check.Equal(t, a.status, tc.status, "status")
			}
			f.Close() // then all of its log is here
			var told []any
			for _, line := range logged(t, f) {
				if line["Failed"] != nil {
					told = append(told, line["Version"], line["Failed"])
				}
			}
			check.That(t, len(told) == 4 && told[0] == "7" && told[1] == tc.failed && told[2] == "7" && told[3] == tc.failed, "told %v", told)
			check.Equal(t, used(g.peek("user#ann")) == 0, tc.status != http.StatusOK, "nothing is taken")
		})
	}
}
