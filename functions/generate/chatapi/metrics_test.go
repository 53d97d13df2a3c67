package chatapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// metric reads what the last line of the metrics says.
func (g *rig) metric(t *testing.T, out *buffer.Synced) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var line map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &line); err != nil {
		t.Fatalf("%v: %q", err, lines[len(lines)-1])
	}
	return line
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	var out buffer.Synced
	g.handler.Metrics, g.handler.Version = emf.New(&out, "tokenfuse", g.now), "7"
	user := g.token("somebody", "")
	want := func(a answer, status int, present map[string]any, absent ...string) {
		t.Helper()
		line := g.metric(t, &out)
		check.Must(t, a.status == status, "%d %s", a.status, a.body)
		for name, value := range present {
			if got, there := line[name]; !there || value != nil && got != value {
				t.Errorf("%s is %v, want %v, in %v", name, got, value, line)
			}
		}
		for _, name := range absent {
			if _, there := line[name]; there {
				t.Errorf("%s is there: %v", name, line)
			}
		}
	}
	cv := `{"model":"cv","messages":[{"role":"user","content":"I am a welder."}]}`
	for range 3 {
		want(g.chat(user, cv), http.StatusOK, map[string]any{"Feature": "cv", "Tier": "user", "Admitted": 1.0,
			"ReservedUSD": nil, "SettledUSD": nil, "ProviderLatency": nil, "AdmissionLatency": nil, "ProviderFailed": 0.0, "Failed": 0.0, "Version": "7"},
			"Denied", "Challenged", "Limit", "Refused")
	}
	want(g.chat(user, cv), http.StatusTooManyRequests, map[string]any{"Denied": 1.0, "Limit": "cv"}, "Admitted", "ProviderLatency", "Failed", "Refused")
	want(g.chat(user, `{"model":"docqa","messages":[{"role":"user","content":"[[fail:500]]"}]}`), http.StatusBadGateway,
		map[string]any{"Admitted": 1.0, "ProviderFailed": 1.0, "SettledUSD": 0.0, "Failed": 0.0})
	for status, unusable := range map[int]float64{http.StatusUnauthorized: 1, http.StatusForbidden: 1, http.StatusNotFound: 1, http.StatusTooManyRequests: 0} {
		want(g.chat(user, fmt.Sprintf(`{"model":"docqa","messages":[{"role":"user","content":"[[fail:%d]]"}]}`, status)), http.StatusBadGateway,
			map[string]any{"Admitted": 1.0, "ProviderFailed": 1.0, "Failed": unusable})
	}
	var a answer
	for a.status != http.StatusForbidden {
		a = g.visit("203.0.113.7:1", "browser", question)
	}
	want(a, http.StatusForbidden, map[string]any{"Challenged": 1.0, "Tier": "anonymous"}, "Admitted", "Denied")
	// Of what ends before its feature is known, the code is told, and nothing about the release.
	want(g.chat(user, `{"model":"docqa","n":2,"messages":[]}`), http.StatusBadRequest, map[string]any{"Refused": 1.0, "Code": "unsupported_parameter"}, "Failed", "Feature")
	want(g.chat(user, `{"model":"nothing","messages":[{"role":"user","content":"Hi"}]}`), http.StatusNotFound, map[string]any{"Refused": 1.0, "Code": "model_not_found"}, "Failed")
	want(g.chat("sk-1", cv), http.StatusUnauthorized, map[string]any{"Refused": 1.0, "Code": "invalid_token"}, "Failed")
	before := out.String()
	g.do(g.request(http.MethodGet, "/v1/models", user, ""))
	check.Equal(t, out.String(), before, "metrics after a list of models")
	g.handler.Policy = nil // a fault of ours, wherever it is
	want(g.chat(user, cv), http.StatusInternalServerError, map[string]any{"Failed": 1.0, "Version": "7", "Refused": 1.0, "Code": "internal_error"}, "Admitted")
	for _, id := range []string{"somebody", "net#", "203.0.113"} {
		check.That(t, !strings.Contains(out.String(), id), "the metrics name %s", id)
	}
}
