package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// field is a JSON value with its path.
type field struct {
	path string
	raw  json.RawMessage
}

func (f field) invalid(format string, args ...any) *Error {
	return Errorf(InvalidValue, f.path, f.path+" "+format+".", args...)
}

func (f field) unsupported(format string, args ...any) *Error {
	return Errorf(UnsupportedParameter, f.path, f.path+" "+format+".", args...)
}

// noTools refuses what belongs to tools, wherever it stands, in the same words: who asks
// for them must know that there are none, and not which part of them is at fault.
func (f field) noTools() *Error {
	return Errorf(UnsupportedParameter, f.path, "This endpoint has no tools: %s is not supported.", f.path)
}

func unknownField(path, name string, known []string) *Error {
	path = Clip(path)
	for _, k := range known {
		if k != name && strings.EqualFold(k, name) {
			return Errorf(UnsupportedParameter, path, "%s is not supported; it is written %s.", path, k)
		}
	}
	return Errorf(UnsupportedParameter, path, "%s is not supported here.", path)
}

// index is the path of an element.
func (f field) index(i int) string { return fmt.Sprintf("%s[%d]", f.path, i) }

// whole splits the object that is a whole body.
func whole(body []byte) ([]strictjson.Member, *Error) {
	if !utf8.Valid(body) {
		return nil, Errorf(InvalidJSON, "", "The body is not valid UTF-8.")
	}
	if !json.Valid(body) {
		return nil, Errorf(InvalidJSON, "", "The body is not valid JSON.")
	}
	return object(body, "")
}

// object splits the object at path; "" is the whole body. A member whose value is null is
// absent, known or not: clients send what is not set so.
func object(raw json.RawMessage, path string) ([]strictjson.Member, *Error) {
	members, err := strictjson.Object(raw)
	if err == nil {
		return slices.DeleteFunc(members, func(m strictjson.Member) bool { return isNull(m.Value) }), nil
	}
	if twice, ok := errors.AsType[*strictjson.DuplicateError](err); ok {
		name := Clip(join(path, twice.Name))
		return nil, Errorf(InvalidJSON, name, "%s stands twice.", name)
	}
	if path == "" {
		return nil, Errorf(InvalidJSON, "", "The body must be a JSON object.")
	}
	return nil, Errorf(InvalidValue, path, "%s must be an object.", path)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Clip bounds what an error repeats of a caller's own names.
func Clip(name string) string {
	const longest = 100
	if len(name) <= longest {
		return name
	}
	return strings.ToValidUTF8(name[:longest], "") + "…"
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

func (f field) isOneOf(values ...string) bool {
	var compact bytes.Buffer
	if json.Compact(&compact, f.raw) != nil {
		return false
	}
	for _, v := range values {
		if compact.String() == v {
			return true
		}
	}
	return false
}

// isNothing reports an empty value, of whatever type.
func (f field) isNothing() bool { return f.isOneOf(`""`, `[]`, `{}`) }

// string takes a string of any length.
func (f field) string(into *string) *Error {
	if json.Unmarshal(f.raw, into) != nil {
		return f.invalid("must be a string")
	}
	return nil
}

func (f field) text(maxBytes int) (string, *Error) {
	var s string
	if json.Unmarshal(f.raw, &s) != nil {
		return "", f.invalid("must be a string")
	}
	if len(s) > maxBytes {
		return "", f.invalid("is longer than %d bytes", maxBytes)
	}
	return s, nil
}

func (f field) boolean() (bool, *Error) {
	switch string(f.raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, f.invalid("must be true or false")
}

func (f field) integer(least int64) (int64, *Error) {
	var n int64
	if json.Unmarshal(f.raw, &n) != nil {
		return 0, f.invalid("must be a whole number")
	}
	if n < least {
		return 0, f.invalid("must be at least %d", least)
	}
	return n, nil
}

// unique refuses a name that stands twice, however deep.
func (f field) unique() *Error {
	if twice, ok := errors.AsType[*strictjson.DuplicateError](strictjson.Unique(f.raw)); ok {
		return Errorf(InvalidJSON, f.path, "%s has the name %q twice.", f.path, Clip(twice.Name))
	}
	return nil
}

// Members are those of a body with a form of our own, in the order in which they stand.
// None is null.
type Members []strictjson.Member

// ParseObject reads a body that is an object: each name at most once.
func ParseObject(body []byte) (Members, *Error) { return whole(body) }

// Get is the value of a member, not decoded yet; nil if it is absent or null.
func (list Members) Get(name string) json.RawMessage {
	for _, m := range list {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// Text is a member that must be a string of at most maxBytes; "" if it is absent or null.
func (list Members) Text(name string, maxBytes int) (string, *Error) {
	raw := list.Get(name)
	if raw == nil {
		return "", nil
	}
	return field{name, raw}.text(maxBytes)
}
