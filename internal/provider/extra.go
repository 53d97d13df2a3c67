package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// extended is the body of a request with further fields behind its own.
type extended struct {
	body  any
	extra json.RawMessage
}

// withExtra adds the fields of extra, an object or nil, to body. They are the owner's,
// who may name none that body has: the configuration sees to it.
func withExtra(body any, extra json.RawMessage) any {
	if len(extra) == 0 {
		return body
	}
	return extended{body, extra}
}

// without is extra without what the request itself says: what the owner gives as the rule
// for a model may be one that a caller may change. Extra that is no object stays as it is.
func without(extra json.RawMessage, name string, said bool) json.RawMessage {
	if !said || !bytes.Contains(extra, []byte(name)) {
		return extra
	}
	members, err := strictjson.Object(extra)
	if err != nil {
		return extra
	}
	var rest []byte
	for _, m := range members {
		if m.Name != name {
			field, _ := encodeJSON(m.Name) // a string, which cannot fail
			rest = append(append(append(append(rest, ','), field...), ':'), m.Value...)
		}
	}
	if rest == nil {
		return nil
	}
	rest[0] = '{'
	return append(rest, '}')
}

// MarshalJSON joins two objects, each with at least one field.
func (e extended) MarshalJSON() ([]byte, error) {
	own, err := encodeJSON(e.body)
	if err != nil {
		return nil, err
	}
	further := bytes.TrimSpace(e.extra)
	if !json.Valid(further) || further[0] != '{' || own[0] != '{' {
		return nil, errors.New("extra fields are no object")
	}
	return append(append(own[:len(own)-1], ','), further[1:]...), nil
}

// setHeaders adds fixed headers, over which those that a client sets itself win.
func setHeaders(to http.Header, extra map[string]string) error {
	for name, value := range extra {
		if name == "" || strings.ContainsAny(name, " :\r\n") || strings.ContainsAny(value, "\r\n") {
			return errors.New("a header cannot be sent")
		}
		if to.Get(name) == "" {
			to.Set(name, value)
		}
	}
	return nil
}
