package kind

import (
	"encoding/json"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestUnsupported(t *testing.T) {
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
		anthropic, bedrock string
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
		{"format", func(r *openai.ChatRequest) { r.ResponseFormat = json.RawMessage(`{}`) }, "response_format", "response_format"},
		{"white stop", func(r *openai.ChatRequest) { r.Stop = []string{"END", "\n"} }, "stop", ""},
		{"no turn", func(r *openai.ChatRequest) { r.Messages = []openai.Message{{Role: "user", Content: "\t"}} }, "messages", "messages"},
		{"instructions only", func(r *openai.ChatRequest) { r.Messages = r.Messages[:1] }, "messages", "messages"},
	} {
		req := usual(tt.change)
		for kind, want := range map[Kind]string{OpenAI: "", Anthropic: tt.anthropic, Bedrock: tt.bedrock} {
			check.Equal(t, kind.Unsupported(req), want, "%s: %s does not support", tt.name, kind)
		}
	}
}
