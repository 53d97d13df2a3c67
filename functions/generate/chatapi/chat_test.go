package chatapi

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestChat(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	token := g.token("123", "")
	a := g.chat(token, `{"model":"cv","messages":[{"role":"user","content":"I am a welder."}]}`)
	check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	var c openai.Completion
	check.OK(t, json.Unmarshal([]byte(a.body), &c))
	calls := g.upstream.Calls()
	check.Must(t, len(calls) == 1, "%d calls upstream", len(calls))
	if c.Usage.Total != calls[0].Billed.Total() || c.Usage.Total == 0 {
		t.Errorf("usage %d, the provider billed %d", c.Usage.Total, calls[0].Billed.Total())
	}
	left := g.remaining(token)
	used := 50_000 - left["tokens"]
	check.That(t, used <= c.Usage.Total && used >= c.Usage.Total-20, "%d tokens used, the provider billed %d", used, c.Usage.Total)
	check.Equal(t, left["cv"], 2, "quota: remain")
}
