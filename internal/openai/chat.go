package openai

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
)

// ChatRequest is a request for a chat completion: what a caller may say, and what is
// said to a provider. Nil pointers, and figures that are 0, are not said.
type ChatRequest struct {
	Model               string        `json:"model"`
	Messages            []Message     `json:"messages"`
	MaxTokens           int64         `json:"max_tokens,omitempty"`
	MaxCompletionTokens int64         `json:"max_completion_tokens,omitempty"`
	Stream              bool          `json:"stream,omitempty"`
	StreamOptions       StreamOptions `json:"stream_options,omitzero"`
	Sampling
	Tooling
	ResponseFormat  json.RawMessage `json:"response_format,omitempty"`  // valid JSON for something beyond text, or nil
	ReasoningEffort string          `json:"reasoning_effort,omitempty"` // one of Efforts
}

// StreamOptions are wishes of a caller who streams.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"` // in a chunk of its own, the last
}

// Sampling tunes how a model chooses its words, and where it stops.
type Sampling struct {
	Temperature      *float64 `json:"temperature,omitempty"`       // 0 to 2
	TopP             *float64 `json:"top_p,omitempty"`             // 0 to 1
	PresencePenalty  *float64 `json:"presence_penalty,omitempty"`  // -2 to 2
	FrequencyPenalty *float64 `json:"frequency_penalty,omitempty"` // -2 to 2
	Seed             *int64   `json:"seed,omitempty"`
	Stop             []string `json:"stop,omitempty"` // at most 4, of 1 to 256 bytes each
}

// MaxOutput is the output cap that was asked for, in tokens: the smaller one if both
// fields give one, 0 if neither does.
func (r *ChatRequest) MaxOutput() int64 {
	if r.MaxTokens == 0 || r.MaxCompletionTokens == 0 {
		return r.MaxTokens + r.MaxCompletionTokens
	}
	return min(r.MaxTokens, r.MaxCompletionTokens)
}

const (
	maxStops       = 4
	maxStopBytes   = 256
	maxUserBytes   = 512
	maxFormatBytes = 64 << 10
)

// ParseChat reads a request for a chat completion: only known fields, in their exact
// case, each once. Fields that multiply cost are refused by name.
func ParseChat(body []byte) (*ChatRequest, *Error) {
	members, err := whole(body)
	if err != nil {
		return nil, err
	}
	req := &ChatRequest{}
	for _, m := range members {
		read, known := chatFields[m.Name]
		if !known {
			return nil, unknownField(m.Name, m.Name, chatNames)
		}
		if err := read(req, field{m.Name, m.Value}); err != nil {
			return nil, err
		}
	}
	if req.Model == "" {
		return nil, Errorf(InvalidValue, "model", "model is missing: it names the feature to call.")
	}
	if req.Messages == nil {
		return nil, field{}.missing("messages")
	}
	return req, req.Tooling.named("tool_choice.function.name")
}

// chatFields are the accepted fields and their readers.
var chatFields = map[string]func(*ChatRequest, field) *Error{
	"model": func(r *ChatRequest, f field) (err *Error) {
		r.Model, err = f.text(128)
		return err
	},
	"messages":              readMessages,
	"max_tokens":            outputCap(func(r *ChatRequest) *int64 { return &r.MaxTokens }),
	"max_completion_tokens": outputCap(func(r *ChatRequest) *int64 { return &r.MaxCompletionTokens }),
	"temperature":           number(0, 2, func(r *ChatRequest) **float64 { return &r.Temperature }),
	"top_p":                 number(0, 1, func(r *ChatRequest) **float64 { return &r.TopP }),
	"presence_penalty":      number(-2, 2, func(r *ChatRequest) **float64 { return &r.PresencePenalty }),
	"frequency_penalty":     number(-2, 2, func(r *ChatRequest) **float64 { return &r.FrequencyPenalty }),
	"seed": func(r *ChatRequest, f field) *Error {
		n, err := f.integer(math.MinInt64)
		r.Seed = &n
		return err
	},
	"stop": readStop,
	"stream": func(r *ChatRequest, f field) (err *Error) {
		r.Stream, err = f.boolean()
		return err
	},
	"stream_options":  readStreamOptions,
	"response_format": readResponseFormat,
	"tools": func(r *ChatRequest, f field) (err *Error) {
		r.Tools, err = readTools(f)
		return err
	},
	"tool_choice": readToolChoice,
	"parallel_tool_calls": func(r *ChatRequest, f field) *Error {
		b, err := f.boolean()
		r.ParallelToolCalls = &b
		return err
	},
	"reasoning_effort": func(r *ChatRequest, f field) *Error {
		if err := f.string(&r.ReasoningEffort); err != nil || !slices.Contains(Efforts, r.ReasoningEffort) {
			return f.invalid("must be one of %s", strings.Join(Efforts, ", "))
		}
		return nil
	},

	// Read, but of no effect: they only label the call.
	"user":              func(_ *ChatRequest, f field) *Error { _, err := f.text(maxUserBytes); return err },
	"safety_identifier": func(_ *ChatRequest, f field) *Error { _, err := f.text(maxUserBytes); return err },
	"prompt_cache_key":  func(_ *ChatRequest, f field) *Error { _, err := f.text(maxUserBytes); return err },
	"metadata":          readMetadata,

	// Accepted in the value that clients send by themselves, which asks for nothing.
	"n":             neutral(`1`),
	"functions":     older(`[]`),
	"function_call": older(`"none"`, `"auto"`),
	"logprobs":      neutral(`false`),
	"top_logprobs":  neutral(`0`),
	"logit_bias":    neutral(`{}`),
	"store":         neutral(`false`),
	"service_tier":  neutral(`"auto"`, `"default"`),
	"modalities":    neutral(`["text"]`),

	"web_search_options": func(_ *ChatRequest, f field) *Error { return f.unsupported("costs by itself and is not supported") },
}

var chatNames = slices.Collect(maps.Keys(chatFields))

// neutral accepts only values that ask for nothing.
func neutral(values ...string) func(*ChatRequest, field) *Error {
	return func(_ *ChatRequest, f field) *Error {
		if f.isOneOf(values...) {
			return nil
		}
		return f.unsupported("is supported only as %s", strings.Join(values, " or "))
	}
}

// older is neutral for what tools have replaced.
func older(values ...string) func(*ChatRequest, field) *Error {
	return func(_ *ChatRequest, f field) *Error {
		if f.isOneOf(values...) {
			return nil
		}
		return f.older()
	}
}

func number(least, most float64, into func(*ChatRequest) **float64) func(*ChatRequest, field) *Error {
	return func(r *ChatRequest, f field) *Error {
		var n float64
		if json.Unmarshal(f.raw, &n) != nil || n < least || n > most {
			return f.invalid("must be a number from %g to %g", least, most)
		}
		*into(r) = &n
		return nil
	}
}

func outputCap(into func(*ChatRequest) *int64) func(*ChatRequest, field) *Error {
	return func(r *ChatRequest, f field) (err *Error) {
		*into(r), err = f.integer(1)
		return err
	}
}

func readStop(r *ChatRequest, f field) *Error {
	var one string
	if json.Unmarshal(f.raw, &one) == nil {
		r.Stop = []string{one}
	} else if json.Unmarshal(f.raw, &r.Stop) != nil {
		return f.invalid("must be a string or a list of strings")
	}
	if len(r.Stop) > maxStops {
		return f.invalid("may have at most %d entries", maxStops)
	}
	for _, s := range r.Stop {
		if s == "" || len(s) > maxStopBytes {
			return f.invalid("must have entries of 1 to %d bytes", maxStopBytes)
		}
	}
	return nil
}

func readStreamOptions(r *ChatRequest, f field) *Error {
	return f.each([]string{"include_usage", "include_obfuscation"}, func(name string, option field) *Error {
		b, err := option.boolean()
		if name == "include_usage" {
			r.StreamOptions.IncludeUsage = b
		}
		return err
	})
}

func readMetadata(_ *ChatRequest, f field) *Error {
	if _, err := object(f.raw, f.path); err != nil {
		return err
	}
	return f.unique()
}
