// Package kind names the kinds of providers, by the API that they speak, and says what
// each cannot do. It is apart from package provider so that who only reads a
// configuration does not carry the clients.
package kind

import (
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

// HasResponseFormats reports whether an answer in JSON can be asked for. Anthropic and
// Bedrock would show a schema to the model in words of their own, as input that nobody
// has counted.
func (k Kind) HasResponseFormats() bool { return k != Anthropic && k != Bedrock }

// FetchesImages reports whether an image can be given as an address. Bedrock takes only the
// image itself.
func (k Kind) FetchesImages() bool { return k != Bedrock }

// Unsupported names the first parameter of r that k cannot honour, as OpenAI's API
// calls it; "" if there is none. Values that ask for what happens anyway are no
// parameters. It is "messages" if no message but instructions has any text.
//
// Callers are told before anything is spent. A call that is made all the same, as a
// fallback is, goes without what only tunes the sampling, but is not made without a
// response format: that would be another answer than was asked for.
//
//   - Anthropic has no seed and no penalties and, as of API version 2026-10-21, no
//     temperature and no top_p; its models of 4.7 and later took only 1 before.
//     Its stop sequences need something besides white space.
//   - Bedrock's Converse has no seed and no penalties, and a temperature of at most
//     1. Some of its models take neither temperature nor top_p, or not both; that
//     is for them to say.
func (k Kind) Unsupported(r *openai.ChatRequest) string {
	if k != Anthropic && k != Bedrock {
		return ""
	}
	is := func(p *float64, neutral float64) bool { return p == nil || *p == neutral }
	blank := func(s string) bool { return strings.TrimSpace(s) == "" }
	switch {
	case !slices.ContainsFunc(r.Messages, func(m openai.Message) bool { return !m.IsInstruction() && !blank(m.Content) }):
		return "messages"
	case r.ResponseFormat != nil && !k.HasResponseFormats():
		return "response_format"
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
