package policy

import (
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

const toolName = `^[a-zA-Z0-9_-]{1,64}$`

// readTools reads functions that are offered to the model where the caller offers none.
func readTools(v value) []openai.Tool {
	var tools []openai.Tool
	names, size := map[string]bool{}, 0
	for _, item := range v.list("tools") {
		tool := readTool(item)
		if names[tool.Name] && tool.Name != "" {
			item.report("has the name of another tool: %s", tool.Name)
		}
		names[tool.Name] = true
		size += len(openai.Encode(tool))
		tools = append(tools, tool)
	}
	if size > openai.MaxToolsBytes {
		v.report("must be at most %d bytes of JSON in all", openai.MaxToolsBytes)
	}
	return tools
}

func readTool(v value) openai.Tool {
	o := v.object()
	defer o.end()
	name, description, parameters := o.need("name"), o.get("description"), o.get("parameters")
	t := openai.Tool{Name: name.text(), Description: description.prose()}
	name.shape.set("pattern", toolName)
	if t.Name != "" && !validHeader(t.Name) {
		name.report("must have 1 to 64 characters of a-z, A-Z, 0-9, _ and -")
	}
	description.shape.set("maxLength", openai.MaxDescription)
	if len(t.Description) > openai.MaxDescription {
		description.report("must be at most %d bytes", openai.MaxDescription)
	}
	const what = "a JSON Schema, written as a mapping: of type object, with a property for each argument"
	if parameters.shape != nil {
		parameters.shape.set("type", "object").describe(what)
	}
	if parameters.isMapping(what) {
		t.Parameters = parameters.json(what, fieldsOfSchema)
		switch {
		case len(t.Parameters) > openai.MaxParameters:
			parameters.report("must be at most %d bytes of JSON", openai.MaxParameters)
		case !ofObject(t.Parameters):
			parameters.report("must be of type object")
		case strictjson.Depth(t.Parameters) > openai.MaxLevels:
			parameters.report("must have at most %d mappings and lists within each other", openai.MaxLevels)
		}
	}
	if strict := o.get("strict"); strict.given() {
		t.Strict = new(strict.boolean())
	}
	return t
}

// ofObject reports whether a schema says that what it describes is an object, or does not
// say what it is. Providers take no others.
func ofObject(schema json.RawMessage) bool {
	var s struct {
		Type json.RawMessage `json:"type"`
	}
	return schema == nil || json.Unmarshal(schema, &s) == nil && (s.Type == nil || string(s.Type) == `"object"`)
}
