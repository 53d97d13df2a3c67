package responses

import (
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Response is an answer, or how far it has come. The members that are always the same say
// that nothing is stored, and how the API behaves where a caller cannot choose; official
// clients insist on most of them.
type Response struct {
	ID                string             `json:"id"`
	Object            string             `json:"object"` // response
	Created           int64              `json:"created_at"`
	Status            string             `json:"status"` // in_progress, completed, incomplete or failed
	Background        bool               `json:"background"`
	Completed         *int64             `json:"completed_at"`
	Error             *failure           `json:"error"`
	Incomplete        *incompleteDetails `json:"incomplete_details"`
	Instructions      json.RawMessage    `json:"instructions"`
	MaxOutputTokens   int64              `json:"max_output_tokens"` // the cap that was applied
	MaxToolCalls      *int64             `json:"max_tool_calls"`
	Metadata          json.RawMessage    `json:"metadata"`
	Model             string             `json:"model"`
	Output            []any              `json:"output"` // messageItem, callItem and reasoningItem
	ParallelToolCalls bool               `json:"parallel_tool_calls"`
	PreviousResponse  *string            `json:"previous_response_id"`
	Reasoning         struct {
		Effort  *string `json:"effort"`
		Summary *string `json:"summary"`
	} `json:"reasoning"`
	ServiceTier string   `json:"service_tier"`
	Store       bool     `json:"store"`
	Temperature *float64 `json:"temperature"`
	Text        struct {
		Format    json.RawMessage `json:"format"`
		Verbosity string          `json:"verbosity"`
	} `json:"text"`
	ToolChoice  any            `json:"tool_choice"`
	Tools       []functionTool `json:"tools"`
	TopLogprobs int            `json:"top_logprobs"`
	TopP        *float64       `json:"top_p"`
	Truncation  string         `json:"truncation"`
	Usage       *usage         `json:"usage"`
	User        *string        `json:"user"`
	// Notice and Limits are as in a chat completion: why there is no text, and what is left of
	// the caller's limits.
	Notice string `json:"notice,omitempty"`
	Limits any    `json:"limits,omitempty"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"` // max_output_tokens or content_filter
}

type functionTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      bool            `json:"strict"`
}

type functionChoice struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

type usage struct {
	Input        int64 `json:"input_tokens"`
	InputDetails struct {
		Cached  int64 `json:"cached_tokens"`
		Written int64 `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int64 `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int64 `json:"total_tokens"`
}

func usageOf(u price.Usage) *usage {
	shown := &usage{Input: u.Input, Output: u.Output, Total: u.Total()}
	shown.InputDetails.Cached, shown.InputDetails.Written = u.CachedInput, u.CacheWrite
	shown.OutputDetails.Reasoning = u.Reasoning
	return shown
}

// The items of an output.
type (
	messageItem struct {
		ID      string `json:"id"`
		Type    string `json:"type"` // message
		Status  string `json:"status"`
		Content []any  `json:"content"` // textPart and refusalPart
		Role    string `json:"role"`    // assistant
	}
	textPart struct {
		Type        string `json:"type"` // output_text
		Annotations []any  `json:"annotations"`
		Logprobs    []any  `json:"logprobs"`
		Text        string `json:"text"`
	}
	refusalPart struct {
		Type    string `json:"type"` // refusal
		Refusal string `json:"refusal"`
	}
	callItem struct {
		ID        string `json:"id"`
		Type      string `json:"type"` // function_call
		Status    string `json:"status"`
		Arguments string `json:"arguments"`
		CallID    string `json:"call_id"`
		Name      string `json:"name"`
	}
	reasoningItem struct {
		ID      string `json:"id"`
		Type    string `json:"type"`    // reasoning
		Summary []any  `json:"summary"` // summaryPart
	}
	summaryPart struct {
		Type string `json:"type"` // summary_text
		Text string `json:"text"`
	}
)

// Head is what is known of an answer before it begins.
type Head struct {
	ID        string // without resp_; those of the items are made of it, too
	Created   int64  // seconds since 1970
	Model     string
	MaxOutput int64 // tokens
}

// response is the answer to r as it begins.
func (r *Request) response(h Head) Response {
	a := Response{
		ID: "resp_" + h.ID, Object: "response", Created: h.Created, Model: h.Model, Status: inProgress, MaxOutputTokens: h.MaxOutput,
		Instructions: r.instructions, Metadata: json.RawMessage(`{}`), Output: []any{}, ParallelToolCalls: true,
		ServiceTier: "default", Temperature: r.Temperature, TopP: r.TopP, ToolChoice: "auto", Tools: []functionTool{}, Truncation: "disabled",
	}
	if r.metadata != nil {
		a.Metadata = r.metadata
	}
	if r.tooling.ParallelToolCalls != nil {
		a.ParallelToolCalls = *r.tooling.ParallelToolCalls
	}
	if r.ReasoningEffort != "" {
		a.Reasoning.Effort = &r.ReasoningEffort
	}
	a.Text.Format, a.Text.Verbosity = r.format, "medium"
	if r.format == nil {
		a.Text.Format = json.RawMessage(`{"type":"text"}`)
	}
	switch c := r.tooling.ToolChoice; {
	case c.Name != "":
		a.ToolChoice = functionChoice{"function", c.Name}
	case c.Mode != "":
		a.ToolChoice = c.Mode
	}
	for _, t := range r.tooling.Tools {
		a.Tools = append(a.Tools, functionTool{"function", t.Name, t.Description, t.Parameters, t.Strict != nil && *t.Strict})
	}
	return a
}

// failureOf is err as a response tells it, which has fewer words for what went wrong.
func failureOf(err *openai.Error) *failure {
	code := "server_error"
	if err.Code == openai.RateLimitExceeded {
		code = string(err.Code)
	}
	return &failure{code, err.Message}
}
