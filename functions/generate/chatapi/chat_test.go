package chatapi

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

func TestChat(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	token := g.token("123", "")
	a := g.chat(token, `{"model":"cv","messages":[{"role":"user","content":"I am a welder."}]}`)
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var c openai.Completion
	if err := json.Unmarshal([]byte(a.body), &c); err != nil {
		t.Fatal(err)
	}
	calls := g.upstream.Calls()
	if len(calls) != 1 {
		t.Fatalf("%d calls upstream", len(calls))
	}
	if c.Usage.Total != calls[0].Billed.Total() || c.Usage.Total == 0 {
		t.Errorf("usage %d, the provider billed %d", c.Usage.Total, calls[0].Billed.Total())
	}
	left := g.remaining(token)
	if used := 50_000 - left["tokens"]; used > c.Usage.Total || used < c.Usage.Total-20 {
		t.Errorf("%d tokens used, the provider billed %d", used, c.Usage.Total)
	}
	if left["cv"] != 2 {
		t.Errorf("quota: %d remain, want 2", left["cv"])
	}
}
