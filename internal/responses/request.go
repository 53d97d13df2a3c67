package responses

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// Request is a request for a response. What it asks of a model is a ChatRequest; the rest is
// what a response repeats of its request.
type Request struct {
	*openai.ChatRequest
	instructions json.RawMessage // a string; nil: none, or one that is too long to be repeated
	format       json.RawMessage // of the text; nil: plain text
	metadata     json.RawMessage // an object; nil: none
	tooling      openai.Tooling  // as it was sent: what goes upstream may be the owner's
	origins      []origin        // of each message
}

// An answer repeats some of its request, a stream even three times: so there are bounds,
// which for metadata are OpenAI's.
const (
	maxRepeated = 8 << 10 // bytes of instructions
	maxPairs    = 16      // of metadata
	maxKey      = 64      // bytes
	maxValue    = 512     // bytes
)

// Parse reads a request for a response: only known fields, in their exact case, each once.
// Whatever needs something stored, and tools that run at the provider, are refused by name.
func Parse(body []byte) (*Request, *openai.Error) {
	members, err := openai.ParseObject(body)
	if err != nil {
		return nil, err
	}
	r := &reader{req: &Request{}}
	for _, m := range members {
		read, known := fields[m.Name]
		if !known {
			return nil, openai.UnknownField(m.Name, m.Name, names)
		}
		if err := read(r, m); err != nil {
			return nil, err
		}
	}
	if members.Get("input") == nil {
		return nil, openai.Errorf(openai.InvalidValue, "input", "input is missing.")
	}
	if r.req.ChatRequest, err = openai.ParseChat(r.chatBody()); err != nil {
		return nil, r.req.Respell(err)
	}
	r.req.tooling = r.req.Tooling
	return r.req, nil
}

// reader respells a request.
type reader struct {
	req   *Request
	chat  []member // of the request for a chat completion, but its messages
	turns []turn   // they become its messages
}

func (r *reader) say(name string, value json.RawMessage) {
	r.chat = append(r.chat, member{Name: name, Value: value})
}

// fields are the accepted fields and their readers. None gets a null.
var fields = map[string]func(*reader, member) *openai.Error{
	"input":        (*reader).input,
	"instructions": (*reader).instructions,

	"model":               as("model"),
	"max_output_tokens":   as("max_completion_tokens"),
	"temperature":         as("temperature"),
	"top_p":               as("top_p"),
	"stream":              as("stream"),
	"parallel_tool_calls": as("parallel_tool_calls"),
	"top_logprobs":        as("top_logprobs"),
	"service_tier":        as("service_tier"),
	"user":                as("user"),
	"safety_identifier":   as("safety_identifier"),
	"prompt_cache_key":    as("prompt_cache_key"),
	"metadata":            (*reader).metadata,
	"stream_options": options(map[string]func(*reader, option) *openai.Error{
		"include_obfuscation": oneOf(`true`, `false`), // there is none
	}),
	"text": options(map[string]func(*reader, option) *openai.Error{
		"format":    (*reader).format,
		"verbosity": oneOf(`"medium"`),
	}),
	"reasoning": options(map[string]func(*reader, option) *openai.Error{
		"effort": func(r *reader, o option) *openai.Error {
			r.say("reasoning_effort", o.raw)
			return nil
		},
		// How much of it is told: if the feature shows any, all.
		"summary":          oneOf(`"auto"`, `"concise"`, `"detailed"`),
		"generate_summary": oneOf(`"auto"`, `"concise"`, `"detailed"`),
		"context":          oneOf(`"auto"`),
		"mode":             oneOf(`"standard"`),
	}),
	"tools":       (*reader).tools,
	"tool_choice": (*reader).toolChoice,

	// Nothing is stored, whatever is asked for: a response says so.
	"store":                neutral(`true`, `false`),
	"previous_response_id": stateless,
	"conversation":         stateless,
	"background":           neutral(`false`),
	"truncation":           neutral(`"disabled"`),
	// Reasoning is never told in encrypted form; clients who keep nothing stored ask for it
	// by themselves.
	"include": neutral(`[]`, `["reasoning.encrypted_content"]`),
}

var names = slices.Collect(maps.Keys(fields))

// as respells a field whose value is the same in a chat completion.
func as(name string) func(*reader, member) *openai.Error {
	return func(r *reader, m member) *openai.Error {
		r.say(name, m.Value)
		return nil
	}
}

// neutral accepts only values that ask for nothing.
func neutral(values ...string) func(*reader, member) *openai.Error {
	return func(r *reader, m member) *openai.Error {
		return oneOf(values...)(r, option{m.Name, m.Value})
	}
}

func stateless(_ *reader, m member) *openai.Error {
	return openai.Errorf(openai.UnsupportedParameter, m.Name,
		"%s is not supported: nothing is stored here. Send the whole conversation as input.", m.Name)
}

// option is a member of an object of options, with its path.
type option struct {
	path string
	raw  json.RawMessage
}

// options reads an object of options.
func options(known map[string]func(*reader, option) *openai.Error) func(*reader, member) *openai.Error {
	return func(r *reader, m member) *openai.Error {
		members, err := openai.ObjectAt(m.Value, m.Name)
		if err != nil {
			return err
		}
		for _, member := range members {
			path := m.Name + "." + member.Name
			read := known[member.Name]
			if read == nil {
				return openai.UnknownField(path, member.Name, slices.Collect(maps.Keys(known)))
			}
			if err := read(r, option{path, member.Value}); err != nil {
				return err
			}
		}
		return nil
	}
}

// oneOf accepts only these values.
func oneOf(values ...string) func(*reader, option) *openai.Error {
	return func(_ *reader, o option) *openai.Error {
		var compact bytes.Buffer
		if json.Compact(&compact, o.raw) == nil && slices.Contains(values, compact.String()) {
			return nil
		}
		return openai.Errorf(openai.UnsupportedParameter, o.path, "%s is supported only as %s.", o.path, strings.Join(values, " or "))
	}
}

func (r *reader) instructions(m member) *openai.Error {
	text, ok := strictjson.String(m.Value)
	switch {
	case !ok:
		return openai.Errorf(openai.InvalidValue, m.Name, "instructions must be a string.")
	case text == "": // as good as none
		return nil
	}
	if len(m.Value) <= maxRepeated {
		r.req.instructions = m.Value
	}
	first := turn{role: "system", origin: origin{path: m.Name, plain: true}}
	first.say(m.Value)
	r.turns = slices.Insert(r.turns, 0, first)
	return nil
}

func (r *reader) metadata(m member) *openai.Error {
	pairs, err := openai.ObjectAt(m.Value, m.Name)
	if err != nil {
		return err
	}
	fits := len(pairs) <= maxPairs
	for _, p := range pairs {
		value, ok := strictjson.String(p.Value)
		fits = fits && ok && len(p.Name) <= maxKey && len(value) <= maxValue
	}
	if !fits {
		return openai.Errorf(openai.InvalidValue, m.Name, "metadata may have at most %d strings, with names of at most %d bytes and values of at most %d.", maxPairs, maxKey, maxValue)
	}
	r.req.metadata = object(pairs...)
	return nil
}

// format respells the format of the text: its schema stands one level deeper in a chat
// completion.
func (r *reader) format(o option) *openai.Error {
	members, err := openai.ObjectAt(o.raw, o.path)
	if err != nil {
		return err
	}
	kind := members.Get("type")
	format := object(members...)
	r.req.format = format
	if string(kind) == `"json_schema"` {
		members = slices.DeleteFunc(members, func(m member) bool { return m.Name == "type" })
		format = object(is("type", kind), is("json_schema", object(members...)))
	}
	r.say("response_format", format)
	return nil
}

// tools respells tools.
func (r *reader) tools(m member) *openai.Error {
	tools, err := strictjson.List(m.Value)
	if err != nil {
		r.say(m.Name, m.Value) // where it is refused
		return nil
	}
	for i, raw := range tools {
		var err *openai.Error
		if tools[i], err = function(index(m.Name, i), raw); err != nil {
			return err
		}
	}
	r.say(m.Name, list(tools))
	return nil
}

// toolChoice respells the choice of a tool that is named.
func (r *reader) toolChoice(m member) *openai.Error {
	if m.Value[0] != '{' {
		r.say(m.Name, m.Value)
		return nil
	}
	choice, err := function(m.Name, m.Value)
	r.say(m.Name, choice)
	return err
}

// function respells what is said of a function, which stands one level deeper in a chat
// completion. Of what is none the type alone goes on, for which it is refused.
func function(path string, raw json.RawMessage) (json.RawMessage, *openai.Error) {
	members, err := openai.ObjectAt(raw, path)
	if err != nil {
		return nil, err
	}
	kind := members.Get("type")
	switch string(kind) {
	case "":
		return nil, openai.Errorf(openai.InvalidValue, path+".type", "%s.type is missing.", path)
	case `"function"`:
	default:
		return object(is("type", kind)), nil
	}
	var own []member
	for _, m := range members {
		switch m.Name {
		case "type":
		case "defer_loading", "allowed_callers": // of functions that are looked up, or called by programs
			if err := oneOf(`false`, `["direct"]`)(nil, option{path + "." + m.Name, m.Value}); err != nil {
				return nil, err
			}
		default:
			own = append(own, m)
		}
	}
	return object(is("type", kind), is("function", object(own...))), nil
}

// chatBody is the request for a chat completion.
func (r *reader) chatBody() []byte {
	messages := make([]json.RawMessage, len(r.turns))
	r.req.origins = make([]origin, len(r.turns))
	for i, t := range r.turns {
		messages[i], r.req.origins[i] = t.message(), t.origin
	}
	r.say("messages", list(messages))
	return object(r.chat...)
}

// member is a member of an object that is written, its value valid JSON.
type member = strictjson.Member

func is(name string, value json.RawMessage) member { return member{Name: name, Value: value} }

// object writes an object with members in their order. Values stand as they were written, so
// that what is measured is what was sent, and images are not read again.
func object(members ...member) json.RawMessage {
	size := 2
	for _, m := range members {
		size += len(m.Name) + len(m.Value) + len(`"":,`)
	}
	b := append(make([]byte, 0, size), '{')
	for i, m := range members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, openai.Encode(m.Name)...), ':')
		b = append(b, m.Value...)
	}
	return append(b, '}')
}

func list(values []json.RawMessage) json.RawMessage {
	size := 2
	for _, v := range values {
		size += len(v) + 1
	}
	b := append(make([]byte, 0, size), '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// word writes a plain word as JSON.
func word(s string) json.RawMessage { return json.RawMessage(`"` + s + `"`) }
