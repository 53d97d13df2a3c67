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
)

// Member is a member of an object, its value not decoded yet.
type Member struct {
	Name  string
	Value json.RawMessage
}

// ErrNotObject: the value is JSON, or not even that, but no object.
var ErrNotObject = errors.New("not a JSON object")

// DuplicateError: a name stands twice in one object.
type DuplicateError struct{ Name string }

func (e *DuplicateError) Error() string { return fmt.Sprintf("the name %q stands twice", e.Name) }

// few members are looked through, which costs less than a map of them.
const few = 16

// Object splits an object into its members, in the order in which they stand.
// Nested objects are not looked at. raw must hold nothing else.
func Object(raw []byte) ([]Member, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, ErrNotObject
	}
	members := make([]Member, 0, few/4)
	var names map[string]bool // of many members; few are compared with each other
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string) // within an object the decoder gives nothing else here
		if names == nil && len(members) == few {
			names = make(map[string]bool, 2*few)
			for _, m := range members {
				names[m.Name] = true
			}
		}
		if names[name] || names == nil && slices.ContainsFunc(members, func(m Member) bool { return m.Name == name }) {
			return nil, &DuplicateError{name}
		}
		if names != nil {
			names[name] = true
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		members = append(members, Member{name, value})
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF { // More takes a stray bracket for an end
		return nil, errors.New("something follows the object")
	}
	return members, nil
}

// Unique reports the first name that stands twice in any object within raw, at
// any depth, as a *DuplicateError, or that raw is not one JSON value.
func Unique(raw []byte) error {
	if !json.Valid(raw) {
		return errors.New("not valid JSON")
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
