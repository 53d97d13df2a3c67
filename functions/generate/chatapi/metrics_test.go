package chatapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
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
	g.handler.Metrics = emf.New(&out, "tokenfuse", g.now)
	user := g.token("somebody", "")
	want := func(a answer, status int, present map[string]any, absent ...string) {
		t.Helper()
		line := g.metric(t, &out)
		if a.status != status {
			t.Fatalf("%d %s", a.status, a.body)
		}
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
			"ReservedUSD": nil, "SettledUSD": nil, "ProviderLatency": nil, "AdmissionLatency": nil}, "Denied", "Challenged", "ProviderFailed", "Limit")
	}
	want(g.chat(user, cv), http.StatusTooManyRequests, map[string]any{"Denied": 1.0, "Limit": "cv"}, "Admitted", "ProviderLatency")
	want(g.chat(user, `{"model":"docqa","messages":[{"role":"user","content":"[[fail:500]]"}]}`), http.StatusBadGateway,
		map[string]any{"Admitted": 1.0, "ProviderFailed": 1.0, "SettledUSD": 0.0})
	var a answer
	for a.status != http.StatusForbidden {
		a = g.visit("203.0.113.7:1", "browser", question)
	}
	want(a, http.StatusForbidden, map[string]any{"Challenged": 1.0, "Tier": "anonymous"}, "Admitted", "Denied")
	before := out.String()
	g.chat(user, `{"model":"docqa","n":2,"messages":[]}`)
	if out.String() != before {
		t.Error("a request that was never one is measured")
	}
	for _, id := range []string{"somebody", "net#", "203.0.113"} {
		if strings.Contains(out.String(), id) {
			t.Errorf("the metrics name %s", id)
		}
	}
}
