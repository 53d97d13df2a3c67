package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// What may be said of tools at most, by callers and by the owner.
const (
	MaxTools       = 128
	MaxToolsBytes  = 128 << 10 // of all of them together
	MaxDescription = 8 << 10   // bytes
	MaxParameters  = 32 << 10  // bytes of one schema, without white space
	// MaxLevels bounds objects and lists within each other in a schema. That is 10 levels of
	// schemas: one within another takes two, its own and that of "properties" or "anyOf";
	// the outermost takes one, and a list such as "enum" in the innermost another.
	MaxLevels = 2*10 + 2
)

const (
	maxCalls  = 128 // of tools, in one message
	maxCallID = 128 // bytes
)

func readTools(f field) ([]Tool, *Error) {
	raws, err := strictjson.List(f.raw)
	switch {
	case err != nil:
		return nil, f.invalid("must be a list of tools")
	case len(raws) == 0:
		return nil, nil
	case len(raws) > MaxTools:
		return nil, f.invalid("may have at most %d entries", MaxTools)
	}
	list := make([]Tool, len(raws))
	total := 0
	names := make(map[string]bool, len(raws))
	for i, raw := range raws {
		tool := field{f.index(i), raw}
		t, err := readTool(tool)
		if err != nil {
			return nil, err
		}
		if names[t.Name] {
			path := join(tool.path, "function.name")
			return nil, Errorf(InvalidValue, path, "%s: another tool is called %s, too.", path, t.Name)
		}
		names[t.Name], list[i] = true, t
		total += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	if total > MaxToolsBytes {
		return nil, f.invalid("has more than %d bytes of names, descriptions and parameters", MaxToolsBytes)
	}
	return list, nil
}

// readTool takes a tool with or without a type, which can be nothing but function.
func readTool(f field) (t Tool, err *Error) {
	found := false
	if err = f.onlyFunctions(); err != nil {
		return t, err
	}
	err = f.each([]string{"type", "function", "cache_control"}, func(name string, member field) (err *Error) {
		if name == "function" {
			found = true
			t, err = readFunction(member)
		}
		return err
	})
	if err == nil && !found {
		err = f.missing("function")
	}
	return t, err
}

func readFunction(f field) (t Tool, err *Error) {
	err = f.each([]string{"name", "description", "parameters", "strict", "cache_control"}, func(name string, member field) (err *Error) {
		switch name {
		case "name":
			t.Name, err = readToolName(member)
		case "description":
			t.Description, err = member.text(MaxDescription)
		case "parameters":
			t.Parameters, err = readParameters(member)
		case "strict":
			var strict bool
			strict, err = member.boolean()
			t.Strict = &strict
		}
		return err
	})
	if err == nil && t.Name == "" {
		err = f.missing("name")
	}
	return t, err
}

// readToolName takes the names that all providers take.
func readToolName(f field) (name string, err *Error) {
	if err = f.string(&name); err != nil {
		return "", err
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	if name == "" || len(name) > 64 || strings.Trim(name, letters) != "" {
		return "", f.invalid("must have 1 to 64 letters of ASCII, digits, _ or -")
	}
	return name, nil
}

// readParameters takes a schema as it is written, but for white space: what is counted is
// what is sent.
func readParameters(f field) (json.RawMessage, *Error) {
	var schema bytes.Buffer
	switch {
	case f.raw[0] != '{':
		return nil, f.invalid("must be an object")
	case json.Compact(&schema, f.raw) != nil || schema.Len() > MaxParameters:
		return nil, f.invalid("is longer than %d bytes", MaxParameters)
	case strictjson.Depth(schema.Bytes()) > MaxLevels:
		return nil, f.invalid("has more than %d objects and lists within each other", MaxLevels)
	}
	return schema.Bytes(), f.unique()
}

// builtIn are how the types of tools begin that providers run themselves, and charge for.
var builtIn = []string{"web_search", "web_fetch", "google_search", "file_search", "code_interpreter", "code_execution", "computer",
	"image_generation", "mcp", "local_shell", "shell"}

// onlyFunctions refuses an object whose type is anything but function, by name: what else it
// says is of no interest then. Some clients leave the type out.
func (f field) onlyFunctions() *Error {
	members, err := object(f.raw, f.path)
	if err != nil {
		return err
	}
	kind, err := Members(members).text(f.path, "type", 64)
	if err != nil || kind == "function" || Members(members).Get("type") == nil {
		return err
	}
	costs := ""
	if slices.ContainsFunc(builtIn, func(b string) bool { return strings.HasPrefix(kind, b) }) {
		costs = "costs by itself and "
	}
	path := join(f.path, "type")
	return Errorf(UnsupportedParameter, path, "%s: %s %sis not supported: only function is.", path, Clip(kind), costs)
}

func readToolChoice(r *ChatRequest, f field) *Error {
	if mode, ok := strictjson.String(f.raw); ok {
		if mode != "none" && mode != "auto" && mode != "required" {
			return f.invalid("must be none, auto, required or the name of a function")
		}
		r.ToolChoice.Mode = mode
		return nil
	}
	if err := f.onlyFunctions(); err != nil {
		return err
	}
	err := f.each([]string{"type", "function"}, func(name string, member field) (err *Error) {
		if name == "function" {
			r.ToolChoice.Name, err = readFunctionName(member)
		}
		return err
	})
	if err == nil && r.ToolChoice.Name == "" {
		err = f.missing("function")
	}
	return err
}

func readFunctionName(f field) (name string, err *Error) {
	err = f.each([]string{"name"}, func(_ string, member field) (err *Error) {
		name, err = readToolName(member)
		return err
	})
	if err == nil && name == "" {
		err = f.missing("name")
	}
	return name, err
}

// named refuses a choice of a tool that is none of t's own; path is that of its name.
func (t Tooling) named(path string) *Error {
	if t.ToolChoice.Name == "" || len(t.Tools) == 0 || slices.ContainsFunc(t.Tools, func(own Tool) bool { return own.Name == t.ToolChoice.Name }) {
		return nil
	}
	return Errorf(InvalidValue, path, "%s: no tool is called %s.", path, t.ToolChoice.Name)
}

// readToolCalls takes calls as they were answered, in one piece or put together of the
// pieces of a stream, of which clients keep the index.
func readToolCalls(f field) (ToolCalls, *Error) {
	raws, err := strictjson.List(f.raw)
	if err != nil {
		return nil, f.invalid("must be a list of calls of tools")
	}
	if len(raws) > maxCalls {
		return nil, f.invalid("may have at most %d entries", maxCalls)
	}
	list := make(ToolCalls, len(raws))
	for i, raw := range raws {
		call := field{f.index(i), raw}
		c, err := readToolCall(call)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list[:i], func(earlier ToolCall) bool { return earlier.ID == c.ID }) {
			path := join(call.path, "id")
			return nil, Errorf(InvalidValue, path, "%s: another call has this id, too.", path)
		}
		c.Index = i
		list[i] = c
	}
	return list, nil
}

func readToolCall(f field) (c ToolCall, err *Error) {
	if err = f.onlyFunctions(); err != nil {
		return c, err
	}
	err = f.each([]string{"id", "type", "function", "index"}, func(name string, member field) (err *Error) {
		switch name {
		case "id":
			c.ID, err = readCallID(member)
		case "function":
			c.Name, c.Arguments, err = readCalled(member)
		}
		return err
	})
	switch {
	case err != nil:
	case c.ID == "":
		err = f.missing("id")
	case c.Name == "":
		err = f.missing("function")
	}
	return c, err
}

func readCallID(f field) (string, *Error) {
	id, err := f.text(maxCallID)
	if err == nil && id == "" {
		err = f.invalid("is empty")
	}
	return id, err
}

// readCalled takes which function is called, and how. Helpers of clients add the arguments
// as they have read them.
func readCalled(f field) (name, arguments string, err *Error) {
	err = f.each([]string{"name", "arguments", "parsed_arguments"}, func(member string, said field) (err *Error) {
		switch member {
		case "name":
			name, err = readToolName(said)
		case "arguments":
			err = said.string(&arguments)
		}
		return err
	})
	if err == nil && name == "" {
		err = f.missing("name")
	}
	return name, arguments, err
}

// paired refuses a conversation in which a call of a tool has no result before something
// else is said, or a result has no call. Providers do so, too, but later.
func (f field) paired(messages []Message) *Error {
	var open []string // ids of calls without a result
	asked := 0        // the message that has them
	unanswered := func() *Error {
		path := f.index(asked) + ".tool_calls"
		return Errorf(InvalidValue, path, "%s: the call %q has no result. Messages of the role tool must follow at once, one for each call.", path, open[0])
	}
	for i, m := range messages {
		switch {
		case m.Role == "tool":
			at := slices.Index(open, m.ToolCallID)
			if at < 0 {
				path := f.index(i) + ".tool_call_id"
				return Errorf(InvalidValue, path, "%s: no call of the assistant's before it has this id, or it has its result already.", path)
			}
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return unanswered()
		default:
			asked = i
			for _, c := range m.ToolCalls {
				open = append(open, c.ID)
			}
		}
	}
	if len(open) > 0 {
		return unanswered()
	}
	return nil
}
