package chatapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The line of a request is a span: of the caller's trace, which the provider is told of,
// with the provider's own id of the request, which the spend event has, too.
func TestSpan(t *testing.T) {
	t.Parallel()
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	var sent http.Header
	g := setup{model: func(model http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent = r.Header
			w.Header().Set("X-Request-Id", "req_4711")
			if r.Header.Get("Tracestate") == "fail=1" {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			model.ServeHTTP(w, r)
		})
	}}.newRig(t)
	spans, events := 0, 0
	call := func(traceparent, state string) map[string]any {
		t.Helper()
		r := g.request(http.MethodPost, "/v1/chat/completions", g.token("123", ""), cvCall("hi", false))
		if traceparent != "" {
			r.Header.Set("Traceparent", traceparent)
			r.Header.Set("Tracestate", state)
		}
		g.do(r)
		lines := g.logged("request")
		spans++
		check.Must(t, len(lines) == spans, "%d lines", len(lines))
		var line map[string]any
		check.OK(t, json.Unmarshal(lines[spans-1], &line))
		return line
	}
	expect := func(line, want map[string]any) {
		t.Helper()
		for name, value := range want {
			got, _ := json.Marshal(line[name])
			if wanted, _ := json.Marshal(value); string(got) != string(wanted) {
				t.Errorf("%s is %s, want %s", name, got, wanted)
			}
		}
	}

	line := call("00-"+trace+"-"+parent+"-01", "a=1")
	settled := g.logged("spend")
	events++
	var spend struct {
		Event struct {
			ID     string `json:"provider_request_id"`
			Input  int64
			Output int64
		}
	}
	check.Must(t, len(settled) == events, "%d spend events", len(settled))
	check.OK(t, json.Unmarshal(settled[0], &spend))
	check.Equal(t, spend.Event.ID, "req_4711", "the provider's id in the spend event")
	span, _ := line["span_id"].(string)
	check.Equal(t, sent.Get("Traceparent"), "00-"+trace+"-"+span+"-01", "sent")
	check.Equal(t, sent.Get("Tracestate"), "a=1", "sent")
	model := map[string]any{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "test-model", "gen_ai.request.max_tokens": cvCap,
		"server.address": "127.0.0.1", "provider_request_id": "req_4711",
	}
	expect(line, model)
	expect(line, map[string]any{"trace_id": trace, "parent_span_id": parent, "gen_ai.response.finish_reasons": []string{"stop"}, "error.type": nil,
		"gen_ai.usage.input_tokens": spend.Event.Input, "gen_ai.usage.output_tokens": spend.Event.Output})

	line = call("00-"+strings.ToUpper(trace)+"-"+parent+"-01", "a=1") // not as the standard asks
	expect(line, model)
	expect(line, map[string]any{"trace_id": nil, "span_id": nil, "parent_span_id": nil})
	check.Equal(t, sent.Get("Traceparent")+sent.Get("Tracestate"), "", "sent")

	line = call("00-"+trace+"-"+parent+"-00", "fail=1")
	expect(line, model)
	expect(line, map[string]any{"trace_id": trace, "error.type": "provider_error", "gen_ai.usage.input_tokens": nil, "gen_ai.response.finish_reasons": nil})

	// Who asks no model is in no such span.
	r := g.request(http.MethodGet, "/v1/models", "", "")
	r.Header.Set("Traceparent", "00-"+trace+"-"+parent+"-01")
	g.do(r)
	line = nil
	check.OK(t, json.Unmarshal(g.logged("request")[spans], &line))
	expect(line, map[string]any{"trace_id": trace, "gen_ai.operation.name": nil, "server.address": nil})
}

func TestProviderName(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"api.openai.com": "openai", "me.openai.azure.com": "azure.ai.openai", "api.groq.com": "groq", "vllm.internal": "openai", "": "openai",
		"api.x.ai": "x_ai", "api.mistral.ai": "mistral_ai", "generativelanguage.googleapis.com": "gcp.gemini", "notgroq.com": "openai",
	} {
		check.Equal(t, providerName(kind.OpenAI, server), want, "%s", server)
	}
	check.Equal(t, providerName(kind.Bedrock, "bedrock-runtime.eu-west-1.amazonaws.com"), "aws.bedrock", "Bedrock")
	check.Equal(t, providerName(kind.Anthropic, "api.anthropic.com"), "anthropic", "Anthropic")
}
