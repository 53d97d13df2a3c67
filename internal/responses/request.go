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
	instructions json.RawMessage // a string; nil: none
	format       json.RawMessage // of the text; nil: plain text
	metadata     json.RawMessage // an object; nil: none
	origins      []origin        // of each message
}

// Bounds of metadata, which are OpenAI's: it is sent back, in a stream three times.
const (
	maxPairs = 16
	maxKey   = 64  // bytes
	maxValue = 512 // bytes
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
	return r.req, nil
}

// reader respells a request.
type reader struct {
	req   *Request
	chat  []strictjson.Member // of the request for a chat completion, but its messages
	turns []turn              // they become its messages
}

func (r *reader) say(name string, value json.RawMessage) {
	r.chat = append(r.chat, strictjson.Member{Name: name, Value: value})
}

// fields are the accepted fields and their readers. None gets a null.
var fields = map[string]func(*reader, strictjson.Member) *openai.Error{
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
func as(name string) func(*reader, strictjson.Member) *openai.Error {
	return func(r *reader, m strictjson.Member) *openai.Error {
		r.say(name, m.Value)
		return nil
	}
}

// neutral accepts only values that ask for nothing.
func neutral(values ...string) func(*reader, strictjson.Member) *openai.Error {
	return func(r *reader, m strictjson.Member) *openai.Error {
		return oneOf(values...)(r, option{m.Name, m.Value})
	}
}

func stateless(_ *reader, m strictjson.Member) *openai.Error {
	return openai.Errorf(openai.UnsupportedParameter, m.Name,
		"%s is not supported: nothing is stored here. Send the whole conversation as input.", m.Name)
}

// option is a member of an object of options, with its path.
type option struct {
	path string
	raw  json.RawMessage
}

// options reads an object of options.
func options(known map[string]func(*reader, option) *openai.Error) func(*reader, strictjson.Member) *openai.Error {
	return func(r *reader, m strictjson.Member) *openai.Error {
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

func (r *reader) instructions(m strictjson.Member) *openai.Error {
	var text string
	if json.Unmarshal(m.Value, &text) != nil {
		return openai.Errorf(openai.InvalidValue, m.Name, "instructions must be a string.")
	}
	if text == "" { // as good as none
		return nil
	}
	r.req.instructions = m.Value
	first := turn{role: "system", origin: origin{path: m.Name, plain: true}}
	first.say(m.Value)
	r.turns = slices.Insert(r.turns, 0, first)
	return nil
}

func (r *reader) metadata(m strictjson.Member) *openai.Error {
	pairs, err := openai.ObjectAt(m.Value, m.Name)
	if err != nil {
		return err
	}
	fits := len(pairs) <= maxPairs
	for _, p := range pairs {
		var value string
		fits = fits && len(p.Name) <= maxKey && json.Unmarshal(p.Value, &value) == nil && len(value) <= maxValue
	}
	if !fits {
		return openai.Errorf(openai.InvalidValue, m.Name, "metadata may have at most %d strings, with names of at most %d bytes and values of at most %d.", maxPairs, maxKey, maxValue)
	}
	r.req.metadata = m.Value
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
	format := object(members)
	if string(kind) == `"json_schema"` {
		members = slices.DeleteFunc(members, func(m strictjson.Member) bool { return m.Name == "type" })
		format = encode(map[string]json.RawMessage{"type": kind, "json_schema": object(members)})
	}
	r.req.format = o.raw
	r.say("response_format", format)
	return nil
}

// tools respells tools.
func (r *reader) tools(m strictjson.Member) *openai.Error {
	var raws []json.RawMessage
	if json.Unmarshal(m.Value, &raws) != nil {
		r.say(m.Name, m.Value) // where it is refused
		return nil
	}
	list := make([]json.RawMessage, len(raws))
	for i, raw := range raws {
		tool, err := function(index(m.Name, i), raw)
		if err != nil {
			return err
		}
		list[i] = tool
	}
	r.say(m.Name, encode(list))
	return nil
}

// toolChoice respells the choice of a tool that is named.
func (r *reader) toolChoice(m strictjson.Member) *openai.Error {
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
		return encode(map[string]json.RawMessage{"type": kind}), nil
	}
	var own []strictjson.Member
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
	return encode(map[string]json.RawMessage{"type": kind, "function": object(own)}), nil
}

// chatBody is the request for a chat completion.
func (r *reader) chatBody() []byte {
	messages := make([]json.RawMessage, len(r.turns))
	r.req.origins = make([]origin, len(r.turns))
	for i, t := range r.turns {
		messages[i], r.req.origins[i] = t.message(), t.origin
	}
	r.say("messages", encode(messages))
	return object(r.chat)
}

// object writes an object with members in their order.
func object(members []strictjson.Member) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(encode(m.Name))
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// encode makes JSON in which <, > and & stand as they are: what is respelled must not grow,
// or it would not be measured as it was sent.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // our own types, and JSON that was read
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}
