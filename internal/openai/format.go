package openai

import (
	"encoding/json"
	"slices"
)

// readResponseFormat keeps a format beyond text. Its schema stays as it is
// written: the order of the properties is that in which the model fills them.
func readResponseFormat(r *ChatRequest, f field) *Error {
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
			if format.Schema, err = readSchema(option); err != nil {
				return err
			}
		default:
			return unknownField(option.path, m.Name, []string{"type", "json_schema"})
		}
	}
	switch {
	case format.Type == "json_schema" && format.Schema == nil, format.Type != "json_schema" && format.Schema != nil:
		return f.invalid("must have a json_schema if its type is that, and only then")
	case format.Type == "json_schema", format.Type == "json_object":
		r.ResponseFormat = Encode(format)
	case format.Type != "text":
		option := field{path: join(f.path, "type")}
		return option.invalid(`must be "text", "json_object" or "json_schema"`)
	}
	return nil
}

var schemaNames = []string{"name", "description", "schema", "strict"}

// readSchema takes a json_schema with known names, without those that are null.
func readSchema(f field) (json.RawMessage, *Error) {
	members, err := object(f.raw, f.path)
	if err != nil {
		return nil, err
	}
	schema := []byte{'{'}
	for i, m := range members {
		if !slices.Contains(schemaNames, m.Name) {
			return nil, unknownField(join(f.path, m.Name), m.Name, schemaNames)
		}
		if i > 0 {
			schema = append(schema, ',')
		}
		schema = append(append(schema, `"`+m.Name+`":`...), m.Value...)
	}
	return append(schema, '}'), nil
}
