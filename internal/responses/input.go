package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// storeFalse is what to do about references to items, which are a client's, not its
// programmer's doing.
const storeFalse = "%s: nothing is stored here, so items cannot be referred to. Set store to false in your client, so that it sends them whole."

// turn is a message as it is put together from items: one of them, or a text of the
// assistant with the calls that follow it.
type turn struct {
	role   string
	parts  []json.RawMessage // of the content; nil: there is none
	calls  []json.RawMessage
	callID json.RawMessage // of a result: whose it is
	origin origin
}

// say adds a text, a JSON string.
func (t *turn) say(text json.RawMessage) {
	t.parts = append(t.parts, object(is("type", word("text")), is("text", text)))
	t.origin.parts = append(t.origin.parts, t.origin.path)
}

// message is the turn as a message of a chat completion.
func (t *turn) message() json.RawMessage {
	m := []member{is("role", word(t.role))}
	if t.parts != nil {
		m = append(m, is("content", list(t.parts)))
	}
	if t.calls != nil {
		m = append(m, is("tool_calls", list(t.calls)))
	}
	if t.callID != nil {
		m = append(m, is("tool_call_id", t.callID))
	}
	return object(m...)
}

// input reads a text, or a list of items.
func (r *reader) input(m member) *openai.Error {
	if _, ok := strictjson.String(m.Value); ok {
		t := turn{role: "user", origin: origin{path: m.Name, plain: true}}
		t.say(m.Value)
		r.turns = append(r.turns, t)
		return nil
	}
	items, notList := strictjson.List(m.Value)
	if notList != nil {
		return openai.Errorf(openai.InvalidValue, m.Name, "input must be a string or a list of items.")
	}
	before := len(r.turns)
	for i, raw := range items {
		path := index(m.Name, i)
		members, err := openai.ObjectAt(raw, path)
		if err != nil {
			return err
		}
		if err := r.item(item{path, members}); err != nil {
			return err
		}
	}
	if len(r.turns) == before {
		return openai.Errorf(openai.InvalidValue, m.Name, "input is empty.")
	}
	return nil
}

// item is an object with its path: an item of the input, or a part of one.
type item struct {
	path    string
	members openai.Members
}

// kind is the type of an item; "" if it has none.
func (i item) kind() (string, *openai.Error) {
	raw := i.members.Get("type")
	if raw == nil {
		return "", nil
	}
	kind, ok := strictjson.String(raw)
	if !ok {
		return "", openai.Errorf(openai.InvalidValue, i.path+".type", "%s.type must be a string.", i.path)
	}
	return kind, nil
}

// text is a member that must be there and be a string, as it was written.
func (i item) text(name string) (json.RawMessage, *openai.Error) {
	path := i.path + "." + name
	raw := i.members.Get(name)
	switch {
	case raw == nil:
		return nil, openai.Errorf(openai.InvalidValue, path, "%s is missing.", path)
	case raw[0] != '"':
		return nil, openai.Errorf(openai.InvalidValue, path, "%s must be a string.", path)
	}
	return raw, nil
}

// only refuses a member with another name. Members that clients send back as they got them,
// or that label the item, say nothing to a model.
func (i item) only(known ...string) *openai.Error {
	for _, m := range i.members {
		if !slices.Contains(known, m.Name) {
			return openai.UnknownField(i.path+"."+m.Name, m.Name, known)
		}
	}
	return nil
}

// item reads an item of the input.
func (r *reader) item(i item) *openai.Error {
	kind, err := i.kind()
	if err != nil {
		return err
	}
	if kind == "" && i.members.Get("role") == nil && i.members.Get("id") != nil {
		kind = "item_reference" // whose type need not be said
	}
	switch kind {
	case "", "message":
		return r.message(i)
	case "function_call":
		return r.call(i)
	case "function_call_output":
		return r.result(i)
	case "reasoning":
		return nil // a model does not need what another has thought
	case "item_reference":
		return openai.Errorf(openai.UnsupportedParameter, i.path, storeFalse, i.path)
	}
	path := i.path + ".type"
	return openai.Errorf(openai.UnsupportedParameter, path,
		"%s: %s is not supported: only message, function_call, function_call_output and reasoning are.", path, openai.Clip(kind))
}

func (r *reader) message(i item) *openai.Error {
	if err := i.only("type", "role", "content", "id", "status", "phase"); err != nil {
		return err
	}
	raw, err := i.text("role")
	if err != nil {
		return err
	}
	role, _ := strictjson.String(raw) // text has seen to it
	if !slices.Contains([]string{"user", "assistant", "system", "developer"}, role) {
		return openai.Errorf(openai.InvalidValue, i.path+".role", "%s.role must be user, assistant, system or developer.", i.path)
	}
	t := turn{role: role, origin: origin{path: i.path}}
	if content := i.members.Get("content"); content != nil {
		if err := t.content(i.path+".content", content, partsOf[role]); err != nil {
			return err
		}
	}
	if last := r.last("assistant"); last != nil && role == "assistant" && last.calls != nil {
		last.parts, last.origin.parts = append(last.parts, t.parts...), append(last.origin.parts, t.origin.parts...)
		return nil
	}
	r.turns = append(r.turns, t)
	return nil
}

// last is the turn that an item of this role may belong to; nil: there is none.
func (r *reader) last(role string) *turn {
	if n := len(r.turns); n > 0 && r.turns[n-1].role == role {
		return &r.turns[n-1]
	}
	return nil
}

// call reads a call of a function. Calls that follow each other, and the text before them,
// are one message in a chat completion.
func (r *reader) call(i item) *openai.Error {
	if err := i.only("type", "id", "call_id", "name", "arguments", "status", "parsed_arguments", "caller"); err != nil {
		return err
	}
	id, err := i.text("call_id")
	if err != nil {
		return err
	}
	name, err := i.text("name")
	if err != nil {
		return err
	}
	arguments, err := i.text("arguments")
	if err != nil {
		return err
	}
	t := r.last("assistant")
	if t == nil {
		r.turns = append(r.turns, turn{role: "assistant", origin: origin{path: i.path}})
		t = r.last("assistant")
	}
	function := object(is("name", name), is("arguments", arguments))
	t.calls = append(t.calls, object(is("id", id), is("type", word("function")), is("function", function)))
	t.origin.calls = append(t.origin.calls, i.path)
	return nil
}

// result reads the result of a call.
func (r *reader) result(i item) *openai.Error {
	if err := i.only("type", "id", "call_id", "output", "status", "caller"); err != nil {
		return err
	}
	id, err := i.text("call_id")
	if err != nil {
		return err
	}
	output := i.members.Get("output")
	if output == nil {
		return openai.Errorf(openai.InvalidValue, i.path+".output", "%s.output is missing.", i.path)
	}
	t := turn{role: "tool", callID: id, origin: origin{path: i.path, result: true}}
	if err := t.content(i.path+".output", output, partsOf["tool"]); err != nil {
		return err
	}
	if len(t.parts) == 0 { // a function may have nothing to say
		t.say(word(""))
	}
	r.turns = append(r.turns, t)
	return nil
}

// partsOf are the types of the parts that a role may have.
var partsOf = map[string][]string{
	"system":    {"input_text"},
	"developer": {"input_text"},
	"user":      {"input_text", "input_image"},
	"assistant": {"output_text", "refusal", "input_text"}, // which some clients make of all texts
	"tool":      {"input_text"},
}

// content reads a text, or a list of parts of some types.
func (t *turn) content(path string, raw json.RawMessage, types []string) *openai.Error {
	if raw[0] == '"' {
		t.say(raw)
		return nil
	}
	raws, notList := strictjson.List(raw)
	if notList != nil {
		return openai.Errorf(openai.InvalidValue, path, "%s must be a string or a list of parts.", path)
	}
	t.parts = []json.RawMessage{}
	for n, raw := range raws {
		part := item{path: index(path, n)}
		var err *openai.Error
		if part.members, err = openai.ObjectAt(raw, part.path); err != nil {
			return err
		}
		if err := t.part(part, types); err != nil {
			return err
		}
	}
	return nil
}

// part reads a part of a content.
func (t *turn) part(i item, types []string) *openai.Error {
	kind, err := i.kind()
	if err != nil {
		return err
	}
	path := i.path + ".type"
	if kind == "" {
		return openai.Errorf(openai.InvalidValue, path, "%s is missing.", path)
	}
	if !slices.Contains(types, kind) {
		return openai.Errorf(openai.UnsupportedParameter, path, "%s: %s is not supported here: only %s.", path, openai.Clip(kind), strings.Join(types, ", "))
	}
	name := "text"
	switch kind {
	case "refusal":
		name = "refusal"
	case "input_image":
		name = "image_url"
	}
	if err := i.only("type", name, "detail", "annotations", "logprobs", "parsed", "prompt_cache_breakpoint"); err != nil {
		return err
	}
	value, err := i.text(name)
	if err != nil {
		return err
	}
	if kind == "input_image" {
		image := []member{is("url", value)}
		if detail := i.members.Get("detail"); detail != nil {
			image = append(image, is("detail", detail))
		}
		value = object(image...)
	}
	t.parts = append(t.parts, object(is("type", word(name)), is(name, value)))
	t.origin.parts = append(t.origin.parts, i.path)
	return nil
}

// index is the path of an element.
func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
