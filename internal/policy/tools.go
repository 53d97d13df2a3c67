package policy

import (
	"encoding/json"

	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// Bounds of the owner's tools: they go with every call, and are counted with each.
const (
	maxDescription = 8 << 10   // bytes
	maxParameters  = 32 << 10  // bytes of JSON, of one tool
	maxAllTools    = 128 << 10 // bytes of JSON
	maxToolDepth   = 10        // of parameters, which are the first level themselves
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
	if size > maxAllTools {
		v.report("must be at most %d bytes of JSON in all", maxAllTools)
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
	description.shape.set("maxLength", maxDescription)
	if len(t.Description) > maxDescription {
		description.report("must be at most %d bytes", maxDescription)
	}
	const what = "a JSON Schema, written as a mapping: of type object, with a property for each argument"
	if parameters.shape != nil {
		parameters.shape.set("type", "object").describe(what)
	}
	if parameters.isMapping(what) {
		t.Parameters = parameters.json(what, fieldsOfSchema)
		switch {
		case len(t.Parameters) > maxParameters:
			parameters.report("must be at most %d bytes of JSON", maxParameters)
		case !ofObject(t.Parameters):
			parameters.report("must be of type object")
		case depth(parameters.node) > maxToolDepth:
			parameters.report("must be at most %d levels deep", maxToolDepth)
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

// depth is how many lists and mappings stand within each other.
func depth(n *yaml.Node) int {
	deepest := 0
	for _, below := range n.Content {
		deepest = max(deepest, depth(below))
	}
	if n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		deepest++
	}
	return deepest
}
