package upstream

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// envelope is a chat.completion or a chat.completion.chunk.
type envelope struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Created int64           `json:"created"`
	Model   string          `json:"model"`
	Choices []choice        `json:"choices"`
	Usage   json.RawMessage `json:"usage,omitempty"`
}

type choice struct {
	Index        int     `json:"index"`
	Message      any     `json:"message,omitempty"` // a message
	Delta        any     `json:"delta,omitempty"`   // a message, which opens a stream, or a delta
	Logprobs     *bool   `json:"logprobs"`          // always null
	FinishReason *string `json:"finish_reason"`
}

// message is an answer in one piece. Its content is null if it only calls tools.
type message struct {
	Role      string     `json:"role"`
	Content   *string    `json:"content"`
	Reasoning string     `json:"reasoning_content,omitempty"` // as DeepSeek has it
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// delta is what a chunk adds to a message.
type delta struct {
	Content   string     `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

// toolCall is a call, or what a chunk adds to one: then it has an index.
type toolCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

func wireUsage(u price.Usage) json.RawMessage {
	type promptDetails struct {
		Cached int64 `json:"cached_tokens"`
	}
	type completionDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	}
	return encode(struct {
		Prompt            int64             `json:"prompt_tokens"`
		Completion        int64             `json:"completion_tokens"`
		Total             int64             `json:"total_tokens"`
		PromptDetails     promptDetails     `json:"prompt_tokens_details"`
		CompletionDetails completionDetails `json:"completion_tokens_details"`
	}{u.Input, u.Output, u.Total(), promptDetails{u.CachedInput}, completionDetails{u.Reasoning}})
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// modelList names one model, though a request may name any.
var modelList = struct {
	Object string  `json:"object"`
	Data   []model `json:"data"`
}{"list", []model{{ID: "built-in", Object: "model", OwnedBy: "tokenfuse"}}}

func contentType(stream bool) string {
	if stream {
		return "text/event-stream; charset=utf-8"
	}
	return "application/json"
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", contentType(false))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // our own types always encode
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

func ptr[T any](v T) *T { return &v }
