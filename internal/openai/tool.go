package openai

import "encoding/json"

// Tooling is what a request says of functions that the model may call.
type Tooling struct {
	Tools             []Tool     `json:"tools,omitempty"`
	ToolChoice        ToolChoice `json:"tool_choice,omitzero"`
	ParallelToolCalls *bool      `json:"parallel_tool_calls,omitempty"`
}

// Tool is a function that the model may call. The caller runs it.
type Tool struct {
	Name        string
	Description string          // may be empty
	Parameters  json.RawMessage // a JSON Schema, an object as it was written; nil: none
	Strict      *bool           // arguments must fit Parameters; nil: not said
}

// MarshalJSON writes t as OpenAI's API has it.
func (t Tool) MarshalJSON() ([]byte, error) {
	type function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
		Strict      *bool           `json:"strict,omitempty"`
	}
	return plain(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function(t)})
}

// ToolChoice says whether the model must call a tool, and which. The zero value says
// nothing, so that it may.
type ToolChoice struct {
	Mode string // none, auto or required; "": not said, or Name is
	Name string // of the tool that must be called; "": none is named
}

// MarshalJSON writes c as OpenAI's API has it: a word, or an object that names a function.
func (c ToolChoice) MarshalJSON() ([]byte, error) {
	if c.Name == "" {
		return plain(c.Mode)
	}
	type function struct {
		Name string `json:"name"`
	}
	return plain(struct {
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{"function", function{c.Name}})
}

// ToolCall is a call of a tool that the model asks for, or a piece of one in a stream:
// those of one Index make up the call. ID and Name come with its first piece.
type ToolCall struct {
	Index     int
	ID        string
	Name      string
	Arguments string // JSON, if the model has kept to that
	// Signature is of the thoughts behind the call, as Gemini's API wants it; "": none is sent.
	Signature string
}

// ToolCalls are whole calls of tools.
type ToolCalls []ToolCall

// MarshalJSON writes them as a message of OpenAI's API has them.
func (list ToolCalls) MarshalJSON() ([]byte, error) {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	type extra struct {
		Google struct {
			Signature string `json:"thought_signature,omitempty"`
		} `json:"google,omitzero"`
	}
	type call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
		Extra    extra    `json:"extra_content,omitzero"`
	}
	wire := make([]call, len(list))
	for i, c := range list {
		wire[i] = call{ID: c.ID, Type: "function", Function: function{c.Name, c.Arguments}}
		wire[i].Extra.Google.Signature = c.Signature
	}
	return plain(wire)
}

// ToolCallDelta is a piece of a call as a chunk carries it.
type ToolCallDelta ToolCall

// MarshalJSON writes what there is of d, as a chunk of OpenAI's API has it.
func (d ToolCallDelta) MarshalJSON() ([]byte, error) {
	type function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	}
	wire := struct {
		Index    int      `json:"index"`
		ID       string   `json:"id,omitempty"`
		Type     string   `json:"type,omitempty"`
		Function function `json:"function"`
	}{Index: d.Index, ID: d.ID, Function: function{d.Name, d.Arguments}}
	if d.ID != "" {
		wire.Type = "function"
	}
	return plain(wire)
}
