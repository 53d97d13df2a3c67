package kind

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestUnsupported(t *testing.T) {
	schema := func(text string) func(*openai.ChatRequest) {
		return func(r *openai.ChatRequest) { r.Tools = []openai.Tool{{Name: "f", Parameters: json.RawMessage(text)}} }
	}
	usual := func(change func(*openai.ChatRequest)) *openai.ChatRequest {
		r := &openai.ChatRequest{Messages: []openai.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi."}}}
		if change != nil {
			change(r)
		}
		return r
	}
	for _, tt := range []struct {
		name               string
		change             func(*openai.ChatRequest)
		anthropic, bedrock string // with "!" before what is impossible, too
	}{
		{"nothing", nil, "", ""},
		{"what is so anyway", func(r *openai.ChatRequest) {
			r.Temperature, r.TopP, r.PresencePenalty, r.FrequencyPenalty, r.Stop = new(1.0), new(1.0), new(0.0), new(0.0), []string{"END"}
		}, "", ""},
		{"temperature", func(r *openai.ChatRequest) { r.Temperature = new(0.0) }, "temperature", ""},
		{"hot", func(r *openai.ChatRequest) { r.Temperature = new(1.5) }, "temperature", "temperature"},
		{"top_p", func(r *openai.ChatRequest) { r.TopP = new(0.5) }, "top_p", ""},
		{"seed", func(r *openai.ChatRequest) { r.Seed = new(int64(0)) }, "seed", "seed"},
		{"presence", func(r *openai.ChatRequest) { r.PresencePenalty = new(0.1) }, "presence_penalty", "presence_penalty"},
		{"frequency", func(r *openai.ChatRequest) { r.FrequencyPenalty = new(-0.1) }, "frequency_penalty", "frequency_penalty"},
		{"format", func(r *openai.ChatRequest) { r.ResponseFormat = json.RawMessage(`{}`) }, "!response_format", "!response_format"},
		{"white stop", func(r *openai.ChatRequest) { r.Stop = []string{"END", "\n"} }, "stop", ""},
		{"no turn", func(r *openai.ChatRequest) { r.Messages = []openai.Message{{Role: "user", Content: "\t"}} }, "!messages", "!messages"},
		{"instructions only", func(r *openai.ChatRequest) { r.Messages = r.Messages[:1] }, "!messages", "!messages"},
		{"an image", func(r *openai.ChatRequest) {
			r.Messages = []openai.Message{{Role: "user", Images: []openai.Image{{URL: "data:image/png;base64,AA==", Type: "image/png"}}}}
		}, "", ""},
		{"an image elsewhere", func(r *openai.ChatRequest) { r.Messages[1].Images = []openai.Image{{URL: "https://example.com/a.png"}} }, "", "!image_url"},
		{"only a call", func(r *openai.ChatRequest) {
			r.Messages = []openai.Message{{Role: "assistant", ToolCalls: openai.ToolCalls{{ID: "x", Name: "f"}}}}
		}, "", ""},
		{"tools", schema(`{"type":"object","properties":{}}`), "", ""},
		{"parameters without a type", schema(`{"properties":{}}`), "", ""},
		{"parameters that are a string", schema(`{"type":"string"}`), "!tools", "!tools"},
		{"parameters of no type", schema(`{"type":null}`), "!tools", "!tools"},
		{"parameters of two types", schema(`{"type":["object","null"]}`), "!tools", "!tools"},
		{"a choice", func(r *openai.ChatRequest) {
			r.Tools, r.ToolChoice, r.ParallelToolCalls = []openai.Tool{{Name: "f", Strict: new(true)}}, openai.ToolChoice{Mode: "required"}, new(true)
		}, "", ""},
		{"one at a time", func(r *openai.ChatRequest) {
			r.Tools, r.ParallelToolCalls = []openai.Tool{{Name: "f"}}, new(false)
		}, "", "!parallel_tool_calls"},
		{"one of none at a time", func(r *openai.ChatRequest) { r.ParallelToolCalls = new(false) }, "", ""},
		{"one at a time, but none", func(r *openai.ChatRequest) {
			r.Tools, r.ToolChoice, r.ParallelToolCalls = []openai.Tool{{Name: "f"}}, openai.ToolChoice{Mode: "none"}, new(false)
		}, "", ""},
		{"effort", func(r *openai.ChatRequest) { r.ReasoningEffort = "xhigh" }, "", "reasoning_effort"},
		{"no effort", func(r *openai.ChatRequest) { r.ReasoningEffort = "none" }, "reasoning_effort", "reasoning_effort"},
		{"little effort", func(r *openai.ChatRequest) { r.ReasoningEffort = "minimal" }, "reasoning_effort", "reasoning_effort"},
	} {
		req := usual(tt.change)
		for kind, want := range map[Kind]string{OpenAI: "", Anthropic: tt.anthropic, Bedrock: tt.bedrock} {
			name, impossible := strings.CutPrefix(want, "!")
			check.Equal(t, kind.Unsupported(req), name, "%s: %s does not support", tt.name, kind)
			check.Equal(t, kind.Impossible(req) != "", impossible, "%s: it is impossible for %s", tt.name, kind)
		}
	}
}
