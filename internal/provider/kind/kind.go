// Package kind names the kinds of providers, by the API that they speak, and says what
// each cannot do. It is apart from package provider so that who only reads a
// configuration does not carry the clients.
package kind

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// Kind is a kind of provider.
type Kind string

// The kinds of providers, as the configuration calls them.
const (
	OpenAI    Kind = "openai"    // any server that speaks OpenAI's chat completions
	Anthropic Kind = "anthropic" // Anthropic's Messages API
	Bedrock   Kind = "bedrock"   // Bedrock's Converse API
)

// Names lists the kinds as the configuration calls them.
func Names() []string { return []string{string(OpenAI), string(Anthropic), string(Bedrock)} }

// speaksOpenAI reports whether whatever a request says can be said to k.
func (k Kind) speaksOpenAI() bool { return k != Anthropic && k != Bedrock }

// HasResponseFormats reports whether an answer in JSON can be asked for. Anthropic and
// Bedrock would show a schema to the model in words of their own, as input that nobody
// has counted.
func (k Kind) HasResponseFormats() bool { return k.speaksOpenAI() }

// Efforts are those of openai.Efforts that can be asked for. Anthropic's API knows these
// words as output_config.effort; how to ask it for none or minimal depends on the model.
// Bedrock passes on whatever a model may make of one.
func (k Kind) Efforts() []string {
	switch k {
	case Anthropic:
		return []string{"low", "medium", "high", "xhigh"}
	case Bedrock:
		return nil
	case OpenAI:
	}
	return openai.Efforts
}

// Impossible names what k cannot be asked without its answer being another than was asked
// for, as OpenAI's API calls it; "" if there is nothing. A fallback that r is impossible
// for is not asked. It is
//
//   - "messages" if no message but instructions says anything;
//   - "image_url" for an image that Bedrock would have to fetch;
//   - "tools" for parameters that are no object, of which both models would be told
//     otherwise;
//   - "parallel_tool_calls" if Bedrock, which cannot be told so, may call but one tool;
//   - "response_format".
func (k Kind) Impossible(r *openai.ChatRequest) string {
	if k.speaksOpenAI() {
		return ""
	}
	switch {
	case !slices.ContainsFunc(r.Messages, Says):
		return "messages"
	case !k.FetchesImages() && slices.ContainsFunc(r.Messages, func(m openai.Message) bool { return slices.ContainsFunc(m.Images, openai.Image.Remote) }):
		return "image_url"
	case slices.ContainsFunc(r.Tools, func(t openai.Tool) bool { return !takesObject(t) }):
		return "tools"
	case k == Bedrock && len(r.Tools) > 0 && r.ToolChoice.Mode != "none" && r.ParallelToolCalls != nil && !*r.ParallelToolCalls:
		return "parallel_tool_calls"
	case r.ResponseFormat != nil && !k.HasResponseFormats():
		return "response_format"
	}
	return ""
}

// Says reports whether m says anything to Anthropic and Bedrock, which refuse blank texts,
// on a side of the conversation.
func Says(m openai.Message) bool {
	return !m.IsInstruction() && (!blank(m.Content) || len(m.Images) > 0 || len(m.ToolCalls) > 0 || m.Role == "tool")
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// takesObject reports whether the parameters of t are an object, as a schema says it, or
// does not.
func takesObject(t openai.Tool) bool {
	var schema struct {
		Type json.RawMessage `json:"type"`
	}
	return t.Parameters == nil || json.Unmarshal(t.Parameters, &schema) == nil && (schema.Type == nil || string(schema.Type) == `"object"`)
}

// FetchesImages reports whether an image can be given as an address. Bedrock takes only the
// image itself.
func (k Kind) FetchesImages() bool { return k != Bedrock }

// Unsupported names the first parameter of r that k cannot honour, as OpenAI's API
// calls it; "" if there is none. Values that ask for what happens anyway are no
// parameters.
//
// Callers are told before anything is spent. A call that is made all the same, as a
// fallback is, goes without what only tunes the answer, but is not made if it is
// Impossible.
//
//   - Anthropic has no seed and no penalties and, as of API version 2026-10-21, no
//     temperature and no top_p; its models of 4.7 and later took only 1 before.
//     Its stop sequences need something besides white space.
//   - Bedrock's Converse has no seed and no penalties, and a temperature of at most
//     1. Some of its models take neither temperature nor top_p, or not both, or no
//     tools, or no images; that is for them to say.
func (k Kind) Unsupported(r *openai.ChatRequest) string {
	if k.speaksOpenAI() {
		return ""
	}
	if name := k.Impossible(r); name != "" {
		return name
	}
	is := func(p *float64, neutral float64) bool { return p == nil || *p == neutral }
	switch {
	case r.ReasoningEffort != "" && !slices.Contains(k.Efforts(), r.ReasoningEffort):
		return "reasoning_effort"
	case r.Seed != nil:
		return "seed"
	case !is(r.PresencePenalty, 0):
		return "presence_penalty"
	case !is(r.FrequencyPenalty, 0):
		return "frequency_penalty"
	case k == Anthropic && !is(r.Temperature, 1), k == Bedrock && r.Temperature != nil && *r.Temperature > 1:
		return "temperature"
	case k == Anthropic && !is(r.TopP, 1):
		return "top_p"
	case k == Anthropic && slices.ContainsFunc(r.Stop, blank):
		return "stop"
	}
	return ""
}
