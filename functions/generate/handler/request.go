package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// chatRequest is what a caller may say. Everything that goes upstream is encoded
// afresh from it.
type chatRequest struct {
	Model          string
	Messages       []provider.Message
	MaxTokens      int64 // 0: not said
	Stream         bool
	IncludeUsage   bool
	Temperature    *float64
	TopP           *float64
	Presence       *float64
	Frequency      *float64
	Seed           *int64
	Stop           []string
	ResponseFormat json.RawMessage // nil or something beyond text
	hasSystem      int             // index of the first system or developer message, else -1
}

const (
	maxStops       = 4
	maxStopBytes   = 256
	maxUserBytes   = 512
	maxFormatBytes = 64 << 10
)

// parseChat reads a chat completion request: only known fields, in their exact
// case, each once. Fields that multiply cost are refused by name.
func parseChat(body []byte) (*chatRequest, *apiError) {
	if !utf8.Valid(body) {
		return nil, refuse(invalidJSON, "", "The body is not valid UTF-8.")
	}
	if !json.Valid(body) {
		return nil, refuse(invalidJSON, "", "The body is not valid JSON.")
	}
	members, err := object(body, "")
	if err != nil {
		return nil, err
	}
	req := &chatRequest{hasSystem: -1}
	for _, m := range members {
		read, known := chatFields[m.Name]
		if !known {
			return nil, unknownField(m.Name, m.Name, chatNames)
		}
		if isNull(m.Value) {
			continue
		}
		if err := read(req, field{m.Name, m.Value}); err != nil {
			return nil, err
		}
	}
	if req.Model == "" {
		return nil, refuse(invalidValue, "model", "model is missing: it names the feature to call.")
	}
	if req.Messages == nil {
		return nil, refuse(invalidValue, "messages", "messages is missing.")
	}
	return req, nil
}

// field is a JSON value with its path.
type field struct {
	path string
	raw  json.RawMessage
}

func (f field) invalid(format string, args ...any) *apiError {
	return refuse(invalidValue, f.path, f.path+" "+format+".", args...)
}

func (f field) unsupported(format string, args ...any) *apiError {
	return refuse(unsupportedParameter, f.path, f.path+" "+format+".", args...)
}

// chatFields are the accepted fields and their readers.
var chatFields = map[string]func(*chatRequest, field) *apiError{
	"model": func(r *chatRequest, f field) (err *apiError) {
		r.Model, err = f.text(128)
		return err
	},
	"messages":              readMessages,
	"max_tokens":            readMaxTokens,
	"max_completion_tokens": readMaxTokens,
	"temperature":           number(0, 2, func(r *chatRequest) **float64 { return &r.Temperature }),
	"top_p":                 number(0, 1, func(r *chatRequest) **float64 { return &r.TopP }),
	"presence_penalty":      number(-2, 2, func(r *chatRequest) **float64 { return &r.Presence }),
	"frequency_penalty":     number(-2, 2, func(r *chatRequest) **float64 { return &r.Frequency }),
	"seed": func(r *chatRequest, f field) *apiError {
		n, err := f.integer(math.MinInt64)
		r.Seed = &n
		return err
	},
	"stop": readStop,
	"stream": func(r *chatRequest, f field) (err *apiError) {
		r.Stream, err = f.boolean()
		return err
	},
	"stream_options":  readStreamOptions,
	"response_format": readResponseFormat,

	// Read, but of no effect: they only label the call.
	"user":              func(_ *chatRequest, f field) *apiError { _, err := f.text(maxUserBytes); return err },
	"safety_identifier": func(_ *chatRequest, f field) *apiError { _, err := f.text(maxUserBytes); return err },
	"prompt_cache_key":  func(_ *chatRequest, f field) *apiError { _, err := f.text(maxUserBytes); return err },
	"metadata":          readMetadata,

	// Accepted in the value that clients send by themselves, which asks for nothing.
	"n":                   neutral(`1`),
	"tools":               neutral(`[]`),
	"functions":           neutral(`[]`),
	"tool_choice":         neutral(`"none"`, `"auto"`),
	"function_call":       neutral(`"none"`, `"auto"`),
	"parallel_tool_calls": neutral(`true`, `false`),
	"logprobs":            neutral(`false`),
	"top_logprobs":        neutral(`0`),
	"logit_bias":          neutral(`{}`),
	"store":               neutral(`false`),
	"service_tier":        neutral(`"auto"`, `"default"`),
	"modalities":          neutral(`["text"]`),
}

var chatNames = names(chatFields)

func names[T any](fields map[string]T) []string {
	list := make([]string, 0, len(fields))
	for name := range fields {
		list = append(list, name)
	}
	return list
}

func unknownField(path, name string, known []string) *apiError {
	path = clip(path)
	for _, k := range known {
		if k != name && strings.EqualFold(k, name) {
			return refuse(unsupportedParameter, path, "%s is not supported; it is written %s.", path, k)
		}
	}
	return refuse(unsupportedParameter, path, "%s is not supported here.", path)
}

// index is the path of an element.
func (f field) index(i int) string { return fmt.Sprintf("%s[%d]", f.path, i) }

// object splits the object at path; "" is the whole body.
func object(raw json.RawMessage, path string) ([]strictjson.Member, *apiError) {
	members, err := strictjson.Object(raw)
	if err == nil {
		return members, nil
	}
	var twice *strictjson.DuplicateError
	if errors.As(err, &twice) {
		name := clip(join(path, twice.Name))
		return nil, refuse(invalidJSON, name, "%s stands twice.", name)
	}
	if path == "" {
		return nil, refuse(invalidJSON, "", "The body must be a JSON object.")
	}
	return nil, refuse(invalidValue, path, "%s must be an object.", path)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// clip bounds what an error repeats of a caller's own names.
func clip(name string) string {
	const longest = 100
	if len(name) <= longest {
		return name
	}
	return strings.ToValidUTF8(name[:longest], "") + "…"
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// neutral accepts only values that ask for nothing.
func neutral(values ...string) func(*chatRequest, field) *apiError {
	return func(_ *chatRequest, f field) *apiError {
		if f.isOneOf(values...) {
			return nil
		}
		return f.unsupported("is supported only as %s", strings.Join(values, " or "))
	}
}

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

func (f field) text(maxBytes int) (string, *apiError) {
	var s string
	if json.Unmarshal(f.raw, &s) != nil {
		return "", f.invalid("must be a string")
	}
	if len(s) > maxBytes {
		return "", f.invalid("is longer than %d bytes", maxBytes)
	}
	return s, nil
}

func (f field) boolean() (bool, *apiError) {
	switch string(f.raw) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, f.invalid("must be true or false")
}

func (f field) integer(least int64) (int64, *apiError) {
	var n int64
	if json.Unmarshal(f.raw, &n) != nil {
		return 0, f.invalid("must be a whole number")
	}
	if n < least {
		return 0, f.invalid("must be at least %d", least)
	}
	return n, nil
}

func number(least, most float64, into func(*chatRequest) **float64) func(*chatRequest, field) *apiError {
	return func(r *chatRequest, f field) *apiError {
		var n float64
		if json.Unmarshal(f.raw, &n) != nil || n < least || n > most {
			return f.invalid("must be a number from %g to %g", least, most)
		}
		*into(r) = &n
		return nil
	}
}

// readMaxTokens takes the smaller of max_tokens and max_completion_tokens.
func readMaxTokens(r *chatRequest, f field) *apiError {
	n, err := f.integer(1)
	if err == nil && (r.MaxTokens == 0 || n < r.MaxTokens) {
		r.MaxTokens = n
	}
	return err
}

func readStop(r *chatRequest, f field) *apiError {
	var one string
	if json.Unmarshal(f.raw, &one) == nil {
		r.Stop = []string{one}
	} else if json.Unmarshal(f.raw, &r.Stop) != nil {
		return f.invalid("must be a string or a list of strings")
	}
	if len(r.Stop) > maxStops {
		return f.invalid("may have at most %d entries", maxStops)
	}
	for _, s := range r.Stop {
		if s == "" || len(s) > maxStopBytes {
			return f.invalid("must have entries of 1 to %d bytes", maxStopBytes)
		}
	}
	return nil
}

func readStreamOptions(r *chatRequest, f field) *apiError {
	members, err := object(f.raw, f.path)
	if err != nil {
		return err
	}
	for _, m := range members {
		option := field{join(f.path, m.Name), m.Value}
		switch m.Name {
		case "include_usage":
			if !isNull(m.Value) {
				if r.IncludeUsage, err = option.boolean(); err != nil {
					return err
				}
			}
		case "include_obfuscation":
			if !isNull(m.Value) {
				if _, err := option.boolean(); err != nil {
					return err
				}
			}
		default:
			return unknownField(option.path, m.Name, []string{"include_usage", "include_obfuscation"})
		}
	}
	return nil
}

func readMetadata(_ *chatRequest, f field) *apiError {
	if _, err := object(f.raw, f.path); err != nil {
		return err
	}
	return f.unique()
}

// readResponseFormat keeps a format beyond text. Its schema stays as it is
// written: the order of the properties is that in which the model fills them.
func readResponseFormat(r *chatRequest, f field) *apiError {
	if len(f.raw) > maxFormatBytes {
		return f.invalid("is longer than %d bytes", maxFormatBytes)
	}
	members, err := object(f.raw, f.path)
	if err != nil {
		return err
	}
	if err := f.unique(); err != nil {
		return err
	}
	var format struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"json_schema,omitempty"`
	}
	for _, m := range members {
		option := field{join(f.path, m.Name), m.Value}
		switch m.Name {
		case "type":
			if format.Type, err = option.text(32); err != nil {
				return err
			}
		case "json_schema":
			if isNull(m.Value) {
				continue
			}
			if err := checkNames(option, schemaNames); err != nil {
				return err
			}
			format.Schema = m.Value
		default:
			return unknownField(option.path, m.Name, []string{"type", "json_schema"})
		}
	}
	switch {
	case format.Type == "json_schema" && format.Schema == nil, format.Type != "json_schema" && format.Schema != nil:
		return f.invalid("must have a json_schema if its type is that, and only then")
	case format.Type == "json_schema", format.Type == "json_object":
		r.ResponseFormat = encode(format)
	case format.Type != "text":
		option := field{path: join(f.path, "type")}
		return option.invalid(`must be "text", "json_object" or "json_schema"`)
	}
	return nil
}

var schemaNames = []string{"name", "description", "schema", "strict"}

// checkNames refuses an object with a name that is not known.
func checkNames(f field, known []string) *apiError {
	members, err := object(f.raw, f.path)
	if err != nil {
		return err
	}
	for _, m := range members {
		if !slices.Contains(known, m.Name) {
			return unknownField(join(f.path, m.Name), m.Name, known)
		}
	}
	return nil
}

// unique refuses a name that stands twice, however deep.
func (f field) unique() *apiError {
	var twice *strictjson.DuplicateError
	if errors.As(strictjson.Unique(f.raw), &twice) {
		return refuse(invalidJSON, f.path, "%s has the name %q twice.", f.path, clip(twice.Name))
	}
	return nil
}

func readMessages(r *chatRequest, f field) *apiError {
	var raws []json.RawMessage
	if json.Unmarshal(f.raw, &raws) != nil {
		return f.invalid("must be a list of messages")
	}
	if len(raws) == 0 {
		return f.invalid("is empty")
	}
	r.Messages = make([]provider.Message, len(raws))
	for i, raw := range raws {
		m, err := readMessage(field{f.index(i), raw})
		if err != nil {
			return err
		}
		if (m.Role == "system" || m.Role == "developer") && r.hasSystem < 0 {
			r.hasSystem = i
		}
		r.Messages[i] = m
	}
	return nil
}

// echoed are fields of messages that clients send back as they got them; they are
// accepted while they say nothing.
var echoed = []string{"refusal", "annotations", "audio", "tool_calls", "function_call"}

var messageNames = append([]string{"role", "content"}, echoed...)

func readMessage(f field) (m provider.Message, err *apiError) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return m, err
	}
	hasContent := false
	for _, member := range members {
		part := field{join(f.path, member.Name), member.Value}
		switch member.Name {
		case "role":
			if m.Role, err = part.text(32); err != nil {
				return m, err
			}
			switch m.Role {
			case "system", "developer", "user", "assistant":
			default:
				return m, part.invalid("must be system, developer, user or assistant")
			}
		case "content":
			hasContent = !isNull(member.Value)
			if hasContent {
				if m.Content, err = readContent(part); err != nil {
					return m, err
				}
			}
		case "refusal", "annotations", "audio", "tool_calls", "function_call":
			if !part.isOneOf(`null`, `""`, `[]`, `{}`) {
				return m, part.unsupported("is not supported here")
			}
		default:
			return m, unknownField(part.path, member.Name, messageNames)
		}
	}
	if m.Role == "" {
		return m, refuse(invalidValue, join(f.path, "role"), "%s is missing.", join(f.path, "role"))
	}
	if !hasContent {
		return m, refuse(invalidValue, join(f.path, "content"), "%s is missing.", join(f.path, "content"))
	}
	return m, nil
}

// readContent takes a string, or an array of text parts, which are joined.
func readContent(f field) (string, *apiError) {
	var s string
	if json.Unmarshal(f.raw, &s) == nil {
		return s, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(f.raw, &parts) != nil {
		return "", f.invalid("must be a string or a list of text parts")
	}
	if len(parts) == 0 {
		return "", f.invalid("is empty")
	}
	var text strings.Builder
	for i, raw := range parts {
		s, err := readPart(field{f.index(i), raw})
		if err != nil {
			return "", err
		}
		text.WriteString(s)
	}
	return text.String(), nil
}

func readPart(f field) (string, *apiError) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return "", err
	}
	var kind, text string
	hasText := false
	for _, m := range members {
		member := field{join(f.path, m.Name), m.Value}
		switch m.Name {
		case "type":
			if kind, err = member.text(64); err != nil {
				return "", err
			}
			if kind != "text" {
				return "", member.unsupported("%q is not supported: only text is", clip(kind))
			}
		case "text":
			if json.Unmarshal(m.Value, &text) != nil || isNull(m.Value) {
				return "", member.invalid("must be a string")
			}
			hasText = true
		default:
			return "", unknownField(member.path, m.Name, []string{"type", "text"})
		}
	}
	if kind == "" {
		return "", refuse(invalidValue, join(f.path, "type"), "%s is missing.", join(f.path, "type"))
	}
	if !hasText {
		return "", refuse(invalidValue, join(f.path, "text"), "%s is missing.", join(f.path, "text"))
	}
	return text, nil
}
