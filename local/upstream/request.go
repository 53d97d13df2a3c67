package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
)

const (
	maxBody   = 32 << 20 // bytes: an image of the largest size, and some more
	maxOutput = 1 << 17  // tokens: as much as large models allow
)

// request is all that a request may hold.
type request struct {
	Model               string           `json:"model"`
	Messages            []requestMessage `json:"messages"`
	MaxTokens           *int             `json:"max_tokens"`
	MaxCompletionTokens *int             `json:"max_completion_tokens"`
	Stream              bool             `json:"stream"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Temperature       *float64        `json:"temperature"`
	TopP              *float64        `json:"top_p"`
	PresencePenalty   *float64        `json:"presence_penalty"`
	FrequencyPenalty  *float64        `json:"frequency_penalty"`
	Seed              *int64          `json:"seed"`
	Stop              []string        `json:"stop"`
	ResponseFormat    *responseFormat `json:"response_format"`
	Tools             []tool          `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls *bool           `json:"parallel_tool_calls"`
	ReasoningEffort   *string         `json:"reasoning_effort"`

	json   string // the answer, if it must be JSON
	choice toolChoice
}

type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      bool            `json:"strict"`
	} `json:"json_schema"`
}

// anObject is what is answered where any JSON object will do.
const anObject = `{"answer":"This is the built-in upstream, which stands in for a model provider.","fits":true}`

// answer is JSON in this format, or "" for text.
func (f *responseFormat) answer() (string, *problem) {
	switch {
	case f.Type == "json_object", f.Type == "json_schema" && f.JSONSchema.Schema == nil:
		return anObject, nil
	case f.Type == "json_schema":
		fitting, err := fit(f.JSONSchema.Schema)
		if err != nil {
			return "", invalid("response_format", "invalid_json_schema", "Invalid schema for response_format '%s': %s.", f.JSONSchema.Name, err)
		}
		return string(fitting), nil
	}
	return "", nil
}

// names are the fields of request: encoding/json would take them in any case.
var names = []string{
	"model", "messages", "max_tokens", "max_completion_tokens", "stream", "stream_options", "temperature", "top_p",
	"presence_penalty", "frequency_penalty", "seed", "stop", "response_format",
	"tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
}

// maxOutputTokens is the cap, whichever field it came in.
func (r *request) maxOutputTokens() int {
	if r.MaxTokens != nil {
		return *r.MaxTokens
	}
	return *r.MaxCompletionTokens
}

func (r *request) lastUserText() string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role == "user" {
			return m.text
		}
	}
	return ""
}

// parse reads and checks a chat, and gives its body too.
func parse(w http.ResponseWriter, r *http.Request) (*request, []byte, *problem) {
	var req request
	body, p := readBody(w, r, names, &req)
	if p == nil {
		p = req.check()
	}
	return &req, body, p
}

// readBody reads a body into v. It may have no fields but those of these names.
func readBody(w http.ResponseWriter, r *http.Request, names []string, v any) ([]byte, *problem) {
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != "application/json" {
		return nil, mediaType
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, tooLarge
	}
	var fields map[string]json.RawMessage
	if err != nil || json.Unmarshal(body, &fields) != nil {
		return nil, notJSON
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(names, name) {
			return nil, invalid(name, "unknown_parameter", "Unrecognized request argument supplied: %s", name)
		}
	}
	return body, decode(body, v, "")
}

func (r *request) check() *problem {
	if r.Model == "" {
		return invalid("model", "missing_required_parameter", "You must provide a model.")
	}
	if len(r.Messages) == 0 {
		return invalid("messages", "missing_required_parameter", "You must provide messages.")
	}
	for i := range r.Messages {
		if p := r.Messages[i].check(fmt.Sprintf("messages[%d]", i)); p != nil {
			return p
		}
	}
	if p := checkOrder(r.Messages); p != nil {
		return p
	}
	if p := r.checkTools(); p != nil {
		return p
	}
	if (r.MaxTokens == nil) == (r.MaxCompletionTokens == nil) {
		return invalid("max_tokens", "invalid_value", "Set exactly one of max_tokens and max_completion_tokens.")
	}
	if n := r.maxOutputTokens(); n < 1 || n > maxOutput {
		return invalid("max_tokens", "invalid_value", "The output cap must be from 1 to %d.", maxOutput)
	}
	if r.StreamOptions != nil && !r.Stream {
		return invalid("stream_options", "invalid_value", "stream_options is only allowed when stream is set.")
	}
	for _, f := range []struct {
		name        string
		value       *float64
		least, most float64
	}{
		{"temperature", r.Temperature, 0, 2},
		{"top_p", r.TopP, 0, 1},
		{"presence_penalty", r.PresencePenalty, -2, 2},
		{"frequency_penalty", r.FrequencyPenalty, -2, 2},
	} {
		if f.value != nil && (*f.value < f.least || *f.value > f.most) {
			return invalid(f.name, "invalid_value", "%s must be from %v to %v.", f.name, f.least, f.most)
		}
	}
	if e := r.ReasoningEffort; e != nil {
		if _, ok := efforts[*e]; !ok {
			return invalid("reasoning_effort", "invalid_value", "Invalid value: '%s'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', and 'xhigh'.", *e)
		}
	}
	if len(r.Stop) > 4 {
		return invalid("stop", "invalid_value", "There may be at most 4 stop sequences.")
	}
	if f := r.ResponseFormat; f != nil {
		if !slices.Contains([]string{"text", "json_object", "json_schema"}, f.Type) {
			return invalid("response_format.type", "invalid_value", "Unknown response format.")
		}
		if (f.Type == "json_schema") != (f.JSONSchema != nil) {
			return invalid("response_format.json_schema", "invalid_value", "A json_schema belongs to the type json_schema.")
		}
		var p *problem
		if r.json, p = f.answer(); p != nil {
			return p
		}
	}
	return nil
}
