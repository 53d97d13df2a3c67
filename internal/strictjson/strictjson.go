// Package strictjson reads JSON objects as they are written.
//
// encoding/json folds the case of names and lets the last of several win, so
// that {"max_tokens":999999,"MAX_TOKENS":10} reads as 10. Here a name is what it
// is, and one that stands twice is refused.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// Member is a member of an object, its value not decoded yet.
type Member struct {
	Name  string
	Value json.RawMessage
}

// What a value is not.
var (
	ErrNotJSON   = errors.New("not valid JSON")
	ErrNotObject = errors.New("not a JSON object")
	ErrNotList   = errors.New("not a JSON list")
)

// DuplicateError: a name stands twice in one object.
type DuplicateError struct{ Name string }

func (e *DuplicateError) Error() string { return fmt.Sprintf("the name %q stands twice", e.Name) }

// few members are looked through, which costs less than a map of them.
const few = 16

// Object splits an object into its members, in the order in which they stand. raw must
// hold nothing else.
func Object(raw []byte) ([]Member, error) {
	if start := blank(raw, 0); start == len(raw) || raw[start] != '{' {
		return nil, ErrNotObject
	}
	if !json.Valid(raw) {
		return nil, ErrNotJSON
	}
	return Members(raw)
}

// Members is Object of what is known to be valid JSON, such as a value within a body that
// was checked: large values are not read once more at each level. Nested objects are not
// looked at. The values are parts of valid, not copies.
func Members(valid []byte) ([]Member, error) {
	members := make([]Member, 0, few/4)
	var names map[string]bool // of many members; few are compared with each other
	err := split(valid, '{', func(quoted, value []byte) error {
		name, ok := String(quoted)
		if !ok {
			return ErrNotJSON
		}
		if names == nil && len(members) == few {
			names = make(map[string]bool, 2*few)
			for _, m := range members {
				names[m.Name] = true
			}
		}
		if names[name] || names == nil && slices.ContainsFunc(members, func(m Member) bool { return m.Name == name }) {
			return &DuplicateError{name}
		}
		if names != nil {
			names[name] = true
		}
		members = append(members, Member{name, value})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return members, nil
}

// List splits a list that is known to be valid JSON, as Members does an object.
func List(valid []byte) ([]json.RawMessage, error) {
	list := []json.RawMessage{}
	err := split(valid, '[', func(_, value []byte) error {
		list = append(list, value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// String decodes a string that is known to be valid JSON; ok is false if it is no string.
func String(valid []byte) (s string, ok bool) {
	if n := len(valid); n >= 2 && valid[0] == '"' && valid[n-1] == '"' && bytes.IndexByte(valid, '\\') < 0 && utf8.Valid(valid) {
		return string(valid[1 : n-1]), true
	}
	return s, len(valid) > 0 && valid[0] == '"' && json.Unmarshal(valid, &s) == nil
}

// Depth is how many objects and lists stand within each other at most, in what is known to
// be valid JSON.
func Depth(valid []byte) (most int) {
	for i, depth := 0, 0; i < len(valid); i++ {
		switch valid[i] {
		case '"':
			i = pastString(valid, i) - 1
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

// split gives each value of an object or of a list, whichever begins with open, and of an
// object the name before it.
func split(valid []byte, open byte, yield func(name, value []byte) error) error {
	i := blank(valid, 0)
	if i == len(valid) || valid[i] != open {
		if open == '{' {
			return ErrNotObject
		}
		return ErrNotList
	}
	for i++; ; {
		if i = blank(valid, i); i < len(valid) && valid[i] == ',' {
			i = blank(valid, i+1)
		}
		if i == len(valid) {
			return ErrNotJSON
		}
		if valid[i] == open+2 { // } and ] come two after { and [
			return nil
		}
		var name []byte
		if open == '{' {
			end := past(valid, i)
			name, i = valid[i:end], blank(valid, end)
			if i == len(valid) || valid[i] != ':' {
				return ErrNotJSON
			}
			i = blank(valid, i+1)
		}
		end := past(valid, i)
		if end == i {
			return ErrNotJSON
		}
		if err := yield(name, valid[i:end:end]); err != nil {
			return err
		}
		i = end
	}
}

// blank is where the white space from i on ends.
func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// past is where the value that begins at i ends.
func past(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = pastString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default: // a part of a number or of a word
			i++
			continue
		}
		if depth == 0 {
			return i
		}
	}
	return len(b)
}

func pastString(b []byte, i int) int {
	for i++; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b)
		}
		begin := i
		i += n
		escapes := 0
		for i-1-escapes >= begin && b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// Unique reports the first name that stands twice in any object within raw, at
// any depth, as a *DuplicateError, or that raw is not one JSON value.
func Unique(raw []byte) error {
	if !json.Valid(raw) {
		return ErrNotJSON
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	type level struct {
		names  map[string]bool // nil in an array
		isName bool            // the next string is a name
	}
	var levels []level
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil { // cannot be, since raw is valid
			return err
		}
		var top *level
		if len(levels) > 0 {
			top = &levels[len(levels)-1]
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{':
				levels = append(levels, level{names: map[string]bool{}, isName: true})
				continue
			case '[':
				levels = append(levels, level{})
				continue
			}
			levels = levels[:len(levels)-1]
			if len(levels) > 0 {
				levels[len(levels)-1].isName = levels[len(levels)-1].names != nil
			}
			continue
		case string:
			if top != nil && top.isName {
				if top.names[t] {
					return &DuplicateError{t}
				}
				top.names[t], top.isName = true, false
				continue
			}
		}
		if top != nil {
			top.isName = top.names != nil
		}
	}
}
