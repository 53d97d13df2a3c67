package admin

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// object is a body: values by name.
type object map[string]json.RawMessage

// readObject reads the body: a JSON object with no other names than the allowed
// ones, each at most once. null counts as absent.
func readObject(r *request, allowed ...string) (object, *openai.Error) {
	data, apiErr := openai.ReadBody(r.Request, openai.MaxText)
	if apiErr != nil {
		return nil, apiErr
	}
	if !utf8.Valid(data) {
		return nil, openai.Errorf(openai.InvalidJSON, "", "The body must be valid JSON.")
	}
	members, err := strictjson.Object(data)
	if twice, ok := errors.AsType[*strictjson.DuplicateError](err); ok {
		return nil, openai.Errorf(openai.InvalidJSON, openai.Clip(twice.Name), "%q stands twice: send it once.", openai.Clip(twice.Name))
	}
	if err != nil {
		return nil, openai.Errorf(openai.InvalidJSON, "", "The body must be a JSON object.")
	}
	body := object{}
next:
	for _, m := range members {
		for _, name := range allowed {
			if m.Name == name {
				if string(m.Value) != "null" {
					body[name] = m.Value
				}
				continue next
			}
		}
		return nil, openai.Errorf(openai.UnsupportedParameter, openai.Clip(m.Name), "%q is not supported. Supported are: %s.", openai.Clip(m.Name), strings.Join(allowed, ", "))
	}
	return body, nil
}

// text reads a string, "" if it is absent.
func text(body object, name string) (string, *openai.Error) {
	raw, there := body[name]
	if !there {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", openai.Errorf(openai.InvalidValue, name, "%s must be a string.", name)
	}
	if len(s) > maxText || strings.ContainsFunc(s, unicode.IsControl) {
		return "", openai.Errorf(openai.InvalidValue, name, "%s must be at most %d bytes without control characters.", name, maxText)
	}
	return s, nil
}

// maxText bounds a text in a request, in bytes.
const maxText = 500
