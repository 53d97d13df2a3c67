package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/usage"
)

// Calls with tools whose usage was published are made again, by a provider that reports the
// same: none takes more than was reserved. One that reports more than anybody could count is
// believed, and the log says by how much the count was too low.
func TestPublishedUsage(t *testing.T) {
	t.Parallel()
	published, err := usage.Calls()
	check.OK(t, err)
	var reported atomic.Int64
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":3}}`, reported.Load())
	}))
	t.Cleanup(model.Close)

	models, features := "", ""
	of := map[string]string{} // the feature of a model
	var calls []usage.Call
	for _, c := range published {
		// Of those that were recorded whole, in the API that the provider speaks.
		if c.Kind != kind.OpenAI || len(c.Tools) == 0 || c.Images != "" || !strings.HasSuffix(path.Dir(c.Source), "cassettes") && !strings.Contains(c.Source, "/cassettes/") {
			continue
		}
		if of[c.Model] == "" {
			of[c.Model] = fmt.Sprint("f", len(of))
			models += fmt.Sprintf("  %s: {provider: main, id: %q, tokenizer: %s, stream: false, max_tokens_field: max_tokens, context: 1000000, price_per_mtok: {input: \"1\", output: \"10\"}}\n", of[c.Model], c.Model, c.Tokenizer)
			features += fmt.Sprintf("  %s: {model: %[1]s, max_output_tokens: 10, allow: [system, tools]}\n", of[c.Model])
		}
		calls = append(calls, c)
	}
	d := startDev(t, writeConfig(t, `
providers: {main: {kind: openai, base_url: "`+model.URL+`/v1"}}
models:
`+models+`features:
`+features+`tiers:
  user: {max_input_tokens: 100000, max_output_tokens: 10, max_in_flight: 10, limits: {tokens: {capacity: 10000000, per: 366d}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`), "--verbose")
	token := d.token(t, "ann")
	ask := func(c usage.Call, report int64) (answered bool) {
		body, err := json.Marshal(struct {
			Model    string           `json:"model"`
			Messages []openai.Message `json:"messages"`
			openai.Tooling
		}{of[c.Model], c.Messages, openai.Tooling{Tools: c.Tools, ToolChoice: c.Choice}})
		check.OK(t, err)
		reported.Store(report)
		a, err := read(post(t.Context(), d.url+"/v1/chat/completions", token, string(body)))
		check.OK(t, err)
		check.That(t, a.status == http.StatusBadRequest || strings.Contains(a.body, fmt.Sprintf(`"prompt_tokens":%d,`, report)), "%s: %d %s", c.Source, a.status, a.body)
		return a.status == http.StatusOK
	}
	answered := 0
	for _, c := range calls {
		if ask(c, c.Reported) { // some clients have sent what OpenAI takes no more
			answered++
		}
	}
	check.That(t, answered >= 50 && answered >= len(calls)*9/10, "%d of %d calls are answered", answered, len(calls))
	check.That(t, ask(calls[0], 500_000), "a report beyond the count fails the call")
	await(t, "a report beyond the count is told", func() bool {
		return strings.Contains(d.output(), "more than was reserved") && strings.Contains(d.output(), `"reported_input_tokens":500000`)
	})
	// The log is in order: all that was said of the published ones is here.
	for warning, times := range map[string]int{"more than was reserved": 1, "more input than was counted": 0} {
		check.Equal(t, strings.Count(d.output(), warning), times, "reports that are %s", warning)
	}
}
