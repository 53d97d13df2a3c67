package provider

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// anthropicVersion is the version of the API that is spoken, the current one.
const anthropicVersion = "2026-10-21"

// AnthropicConfig says where Anthropic's API is.
type AnthropicConfig struct {
	BaseURL     string            // without /v1/messages; "" means https://api.anthropic.com
	APIKey      string            // required
	BillsErrors bool              // as in OpenAIConfig
	Headers     map[string]string // sent with each request
	// HTTPClient is as in OpenAIConfig.
	HTTPClient *http.Client
}

// Anthropic calls Anthropic's Messages API. It is safe for concurrent use.
//
// It shares the transport of OpenAI instead of using anthropic-sdk-go, against which
// it is tested. In generate for linux/arm64 the SDK (v2.15) takes the zip from 7.0
// to 8.06 MB and adds 0.7 ms to a start of 9, whether it is called or not. And it
// would have to be held to what this package promises: it takes any status below 400
// for an answer, events of up to 32 MB and a stream that just ends for a complete
// one, and reads its address, key, headers and tracing from the environment.
type Anthropic struct{ api }

// NewAnthropic checks cfg. Its errors do not quote the key or the URL.
func NewAnthropic(cfg AnthropicConfig) (*Anthropic, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://api.anthropic.com"
	}
	a, err := newAPI(cfg.BaseURL, "v1/messages", cfg.HTTPClient, cfg.BillsErrors)
	if err == nil {
		err = checkKey(cfg.APIKey)
	}
	if err == nil && cfg.APIKey == "" {
		err = errors.New("no API key")
	}
	if err != nil {
		return nil, err
	}
	a.header.Set("X-Api-Key", cfg.APIKey)
	a.header.Set("Anthropic-Version", anthropicVersion)
	if err := setHeaders(a.header, cfg.Headers); err != nil {
		return nil, err
	}
	a.whole = parseClaudeMessage
	a.events = func(r *eventReader) events { return &claudeEvents{events: r} }
	return &Anthropic{a}, nil
}

// Call sends one request; ctx bounds the whole answer, to its last part.
func (a *Anthropic) Call(ctx context.Context, req Request) (Answer, error) {
	r, err := newAnthropicRequest(req)
	if err != nil {
		return nil, err
	}
	return a.call(ctx, withExtra(r, without(req.Extra, "output_config", r.OutputConfig != nil)), req)
}

// anthropicRequest is the body of a request, complete but for the owner's extra fields:
// what is not here is never sent. Thinking is not asked for, but some models think by themselves; that is
// part of the output and within max_tokens.
type anthropicRequest struct {
	Model         string             `json:"model"`
	MaxTokens     int                `json:"max_tokens"`
	System        []anthropicBlock   `json:"system,omitempty"`
	Messages      []anthropicMessage `json:"messages"`
	Tools         []anthropicTool    `json:"tools,omitempty"`
	ToolChoice    *anthropicChoice   `json:"tool_choice,omitempty"`
	OutputConfig  map[string]any     `json:"output_config,omitempty"`
	StopSequences []string           `json:"stop_sequences,omitempty"`
	Stream        bool               `json:"stream,omitempty"`
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content []anthropicBlock `json:"content"`
}

// anthropicBlock has the members of its type, which are never empty.
type anthropicBlock struct {
	Type string `json:"type"`
	// Of a text.
	Text string `json:"text,omitempty"`
	// Of an image.
	Source *anthropicSource `json:"source,omitempty"`
	// Of a tool_use.
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Of a tool_result. There may be no content.
	ToolUseID string           `json:"tool_use_id,omitempty"`
	Content   []anthropicBlock `json:"content,omitempty"`
}

// anthropicSource is where an image is: here or, of type url, elsewhere.
type anthropicSource struct {
	Type      string `json:"type"` // base64 or url
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Strict      bool            `json:"strict,omitempty"`
}

type anthropicChoice struct {
	Type            string `json:"type"` // auto, any, tool or none
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

func newAnthropicRequest(req Request) (*anthropicRequest, error) {
	instructions, turns, err := turnsOf(kind.Anthropic, req, len(req.Tools) > 0)
	if err != nil {
		return nil, err
	}
	out := &anthropicRequest{
		Model:         req.Model,
		MaxTokens:     req.MaxOutputTokens,
		ToolChoice:    anthropicChoiceOf(req.tooling()),
		StopSequences: req.Stop,
		Stream:        req.Stream,
	}
	for _, text := range instructions {
		out.System = append(out.System, anthropicText(text))
	}
	for _, t := range turns {
		m := anthropicMessage{Role: t.role}
		for _, b := range t.blocks {
			m.Content = append(m.Content, anthropicBlockOf(b))
		}
		out.Messages = append(out.Messages, m)
	}
	for _, t := range req.Tools {
		out.Tools = append(out.Tools, anthropicTool{t.Name, t.Description, schema(t.Parameters), t.Strict != nil && *t.Strict})
	}
	if slices.Contains(kind.Anthropic.Efforts(), req.ReasoningEffort) {
		out.OutputConfig = outputConfig(req.ReasoningEffort, req.Extra)
	}
	return out, nil
}

// outputConfig is the owner's, if there is one, with the effort of this request.
func outputConfig(effort string, extra json.RawMessage) map[string]any {
	var own struct {
		OutputConfig map[string]any `json:"output_config"`
	}
	_ = json.Unmarshal(extra, &own)
	config := map[string]any{"effort": effort}
	for name, value := range own.OutputConfig {
		if name != "effort" {
			config[name] = value
		}
	}
	return config
}

func anthropicText(text string) anthropicBlock { return anthropicBlock{Type: "text", Text: text} }

func anthropicBlockOf(b block) anthropicBlock {
	switch {
	case b.image != nil && b.image.Remote():
		return anthropicBlock{Type: "image", Source: &anthropicSource{Type: "url", URL: b.image.URL}}
	case b.image != nil:
		return anthropicBlock{Type: "image", Source: &anthropicSource{Type: "base64", MediaType: b.image.Type, Data: content(b.image)}}
	case b.call != nil:
		return anthropicBlock{Type: "tool_use", ID: b.call.ID, Name: b.call.Name, Input: object(b.call.Arguments)}
	case b.result != nil:
		r := anthropicBlock{Type: "tool_result", ToolUseID: b.result.id}
		if !isBlank(b.result.text) {
			r.Content = []anthropicBlock{anthropicText(b.result.text)}
		}
		return r
	}
	return anthropicText(b.text)
}

// anthropicChoiceOf is what is said of whether a tool must be called, and how many may be;
// nil: nothing.
func anthropicChoiceOf(t openai.Tooling) *anthropicChoice {
	c := &anthropicChoice{Name: t.ToolChoice.Name, DisableParallel: t.ParallelToolCalls != nil && !*t.ParallelToolCalls}
	switch {
	case c.Name != "":
		c.Type = "tool"
	case t.ToolChoice.Mode == "none":
		return &anthropicChoice{Type: "none"}
	case t.ToolChoice.Mode == "required":
		c.Type = "any"
	case t.ToolChoice.Mode == "auto", c.DisableParallel:
		c.Type = "auto"
	default:
		return nil
	}
	return c
}
