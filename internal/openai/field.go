package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
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

// NoTools refuses what belongs to tools, wherever it stands, in the same words: who asks
// for them must know that there are none, and not which part of them is at fault.
func NoTools(path string) *Error {
	return Errorf(UnsupportedParameter, path, "This endpoint has no tools: %s is not supported.", path)
}

// older refuses what came before tools, and was replaced by them.
func (f field) older() *Error {
	return f.unsupported("is an older form and is not supported: use tools")
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

// missing refuses that there is no member called name.
func (f field) missing(name string) *Error {
	path := join(f.path, name)
	return Errorf(InvalidValue, path, "%s is missing.", path)
}

// index is the path of an element.
func (f field) index(i int) string { return f.path + "[" + strconv.Itoa(i) + "]" }

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

// object splits the object at path; "" is the whole body, which is valid JSON. A member whose value is null is
// absent, known or not: clients send what is not set so.
func object(raw json.RawMessage, path string) ([]strictjson.Member, *Error) {
	members, err := strictjson.Members(raw)
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

// each reads the members of an object, each of which must be called one of known.
func (f field) each(known []string, read func(name string, member field) *Error) *Error {
	members, err := object(f.raw, f.path)
	if err != nil {
		return err
	}
	for _, m := range members {
		member := field{join(f.path, m.Name), m.Value}
		if !slices.Contains(known, m.Name) {
			return unknownField(member.path, m.Name, known)
		}
		if err := read(m.Name, member); err != nil {
			return err
		}
	}
	return nil
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
func (f field) isNothing() bool {
	last := len(f.raw) - 1
	return string(f.raw) == `""` || last > 0 && (f.raw[0] == '[' || f.raw[0] == '{') && len(bytes.TrimSpace(f.raw[1:last])) == 0
}

// string takes a string of any length.
func (f field) string(into *string) *Error {
	s, ok := strictjson.String(f.raw)
	if !ok {
		return f.invalid("must be a string")
	}
	*into = s
	return nil
}

func (f field) text(maxBytes int) (s string, err *Error) {
	if err = f.string(&s); err == nil && len(s) > maxBytes {
		err = f.invalid("is longer than %d bytes", maxBytes)
	}
	if err != nil {
		return "", err
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

// ObjectAt splits the object at a path of a body: each name at most once, none of them null.
func ObjectAt(raw json.RawMessage, path string) (Members, *Error) { return object(raw, path) }

// UnknownField refuses a field by its path. name is the last of it, known are the names that
// can stand there.
func UnknownField(path, name string, known []string) *Error { return unknownField(path, name, known) }

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
	return list.text("", name, maxBytes)
}

// text is Text of the members of the object at path.
func (list Members) text(path, name string, maxBytes int) (string, *Error) {
	raw := list.Get(name)
	if raw == nil {
		return "", nil
	}
	return field{join(path, name), raw}.text(maxBytes)
}
