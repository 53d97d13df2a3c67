package count

import (
	"encoding/json"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// OpenAI shows tools to its models as a namespace of TypeScript. How, it has published for
// its open models: github.com/openai/harmony, src/encoding.rs (json_schema_to_typescript).
// The older models' way differs in little, and was found out from hundreds of answers:
// github.com/hmarr/openai-chat-tokens, github.com/pamelafox/openai-messages-token-helper.
//
// typescript writes what is at least as long as either. What both leave out, as far as is
// known, is a comment here: minimum, pattern, format and whatever else a schema may say.
type typescript struct {
	tokenizer *tokens.Tokenizer
	harmony   bool // each line of a description is a comment of its own, an object's stands twice
	out       strings.Builder

	root string // the schema that is being written
	// unfolded are the tokens of definitions where they are referred to: each is written
	// out, but only once here, since references within references may grow without bound.
	unfolded    int64
	definitions map[string]*definition // of root, by name; nil: not looked at yet
}

// definition is a part of a schema that others refer to.
type definition struct {
	schema string
	open   bool  // it is being counted
	tokens int64 // 0: not yet
}

// most is a number of tokens that nobody has, and that sums of a few of it do not overflow.
const most = 1 << 40

// tools counts a namespace of them.
func (w *typescript) tools(tools []openai.Tool) int64 {
	size := 64
	for _, t := range tools {
		size += 64 + len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	w.out.Grow(size)
	w.out.WriteString("namespace functions {\n\n")
	for _, t := range tools {
		w.comment(t.Description, 0)
		w.write("type ", t.Name, " = (")
		switch w.root, w.definitions = string(t.Parameters), nil; {
		case w.root == "" || !w.harmony && nothing(w.root):
		case !json.Valid(t.Parameters) || value(w.root, 0, 0) != len(w.root): // no schema that anybody would take
			w.write(w.root, w.root)
		default:
			w.write("_: ")
			w.schema(w.root, 0)
		}
		w.write(") => any;\n\n")
	}
	w.write("} // namespace functions")
	return w.count()
}

// nothing reports whether a schema is that of an object without properties, of which nothing
// is said.
func nothing(schema string) bool {
	k := read(schema)
	is := keywords{kind: k.kind, additional: k.additional, properties: k.properties}
	return k == is && k.kind == `"object"` && (k.additional == "" || k.additional == "false") && !hasMembers(k.properties)
}

func (w *typescript) count() int64 {
	return min(most, int64(w.tokenizer.Count(w.out.String()))+w.unfolded)
}

func (w *typescript) write(parts ...string) {
	for _, p := range parts {
		w.out.WriteString(p)
	}
}

const blanks = "                                "

func (w *typescript) indent(depth int) { w.out.WriteString(blanks[:min(2*depth, len(blanks))]) }

// comment writes text as one comment, or as one for each of its lines.
func (w *typescript) comment(text string, depth int) {
	if text == "" {
		return
	}
	w.indent(depth)
	w.write("// ")
	if w.harmony && strings.IndexByte(text, '\n') >= 0 {
		text = strings.ReplaceAll(text, "\n", "\n// ")
	}
	w.write(text, "\n")
}

// hasMembers reports whether an object has members.
func hasMembers(object string) (has bool) {
	members(object, func(string, string) { has = true })
	return has
}

// keywords are those of a schema that have a place of their own; each is a value of JSON,
// "" if it is not there.
type keywords struct {
	kind, title, description, fallback, examples string
	enum, constant, nullable                     string
	properties, additional, items, ref           string
	anyOf, oneOf, allOf                          string
	others                                       bool // it has further ones
}

func (k *keywords) take(name, value string) {
	switch name {
	case "type":
		k.kind = value
	case "title":
		k.title = value
	case "description":
		k.description = value
	case "default":
		k.fallback = value
	case "examples":
		k.examples = value
	case "enum":
		k.enum = value
	case "const":
		k.constant = value
	case "nullable":
		k.nullable = value
	case "properties":
		k.properties = value
	case "additionalProperties":
		k.additional = value
	case "items":
		k.items = value
	case "$ref":
		k.ref = value
	case "anyOf":
		k.anyOf = value
	case "oneOf":
		k.oneOf = value
	case "allOf":
		k.allOf = value
	default:
		k.others = k.others || !silent(name)
	}
}

// say reports whether there is anything to say of the type.
func (k *keywords) say() bool {
	return k.title != "" || k.description != "" || k.examples != "" || k.others
}

// silent reports whether a keyword is never shown, or elsewhere.
func silent(name string) bool {
	switch name {
	case "required", "$defs", "definitions", "$schema", "$id", "strict":
		return true
	}
	return false
}

func read(schema string) (k keywords) {
	members(schema, k.take)
	return k
}

// schema writes a schema as a type, with what is said of it.
func (w *typescript) schema(s string, depth int) {
	k := read(s)
	if k.say() {
		w.about(s, &k, depth)
		w.indent(depth)
	}
	w.kind(s, &k, depth)
}

// about writes as comments what is said of a type.
func (w *typescript) about(s string, k *keywords, depth int) {
	if k.title != "" {
		w.comment(text(k.title), depth)
		w.indent(depth)
		w.write("//\n")
	}
	w.comment(text(k.description), depth)
	if k.examples != "" {
		w.indent(depth)
		w.write("// Examples:\n")
		elements(k.examples, func(value string) {
			w.indent(depth)
			w.write("// - ", value, "\n")
		})
	}
	if !k.others {
		return
	}
	var known keywords
	members(s, func(name, value string) {
		known.others = false
		if known.take(name, value); known.others {
			w.indent(depth)
			w.write("// ", name, ": ", value, "\n")
		}
	})
}

// kind writes the type alone.
func (w *typescript) kind(s string, k *keywords, depth int) {
	switch {
	case depth > deepest:
		w.write(s)
	case k.ref != "":
		w.reference(text(k.ref))
	case k.constant != "":
		w.write(k.constant)
	case k.enum != "":
		w.list(k.enum, " | ", func(value string) { w.write(value) })
	case k.anyOf != "":
		w.variants(k.anyOf, " | ", depth)
	case k.oneOf != "":
		w.variants(k.oneOf, "\n | ", depth)
	case k.allOf != "":
		w.variants(k.allOf, " & ", depth)
	case strings.HasPrefix(k.kind, "["):
		w.list(k.kind, " | ", func(value string) { w.named(text(value), k, depth) })
	default:
		w.named(text(k.kind), k, depth)
	}
	if k.nullable == "true" {
		w.write(" | null")
	}
}

func (w *typescript) named(kind string, k *keywords, depth int) {
	switch {
	case k.properties != "" || k.additional != "" && k.additional != "false" && k.additional != "true" || kind == "object":
		w.object(k, depth)
	case k.items != "" && (kind == "array" || kind == ""):
		if !elements(k.items, func(string) {}) {
			w.schema(k.items, depth)
		} else {
			w.list(k.items, ", ", func(value string) { w.schema(value, depth) })
		}
		w.write("[]")
	case kind == "array":
		w.write("Array<any>")
	case kind == "integer":
		w.write("number")
	case kind == "":
		w.write("any")
	default:
		w.write(kind)
	}
}

func (w *typescript) list(values, between string, f func(value string)) {
	first := true
	elements(values, func(value string) {
		if !first {
			w.write(between)
		}
		first = false
		f(value)
	})
}

// variants writes types of which one holds, or all do, with what is said of each.
func (w *typescript) variants(values, between string, depth int) {
	lines := between[0] == '\n'
	if lines {
		w.write(between)
	}
	w.list(values, between, func(value string) {
		k := read(value)
		w.kind(value, &k, depth+1)
		if k.say() {
			w.write(" ")
			w.about(value, &k, 0)
		}
		if k.fallback != "" {
			w.write(" // default: ", k.fallback)
		}
	})
	if lines {
		w.write("\n")
	}
}

func (w *typescript) object(k *keywords, depth int) {
	if w.harmony {
		w.comment(text(k.description), depth)
	}
	w.write("{\n")
	members(k.properties, func(name, value string) {
		p := read(value)
		w.about(value, &p, depth)
		w.indent(depth)
		w.write(name, "?: ")
		w.kind(value, &p, depth+1)
		w.write(",")
		if p.fallback != "" {
			w.write(" // default: ", p.fallback)
		}
		w.write("\n")
	})
	if k.additional != "" && k.additional != "false" && k.additional != "true" {
		w.indent(depth)
		w.write("[key: string]: ")
		w.schema(k.additional, depth+1)
		w.write(",\n")
	}
	w.indent(depth)
	w.write("}")
}

// reference writes the name of a definition, and counts it as if it were written out.
func (w *typescript) reference(to string) {
	w.write(to)
	if w.definitions == nil {
		w.definitions = map[string]*definition{"#": {schema: w.root, open: true}}
		members(w.root, func(name, value string) {
			if name == "$defs" || name == "definitions" {
				members(value, func(member, value string) {
					w.definitions["#/"+name+"/"+member] = &definition{schema: value}
				})
			}
		})
	}
	d := w.definitions[to]
	switch {
	case d == nil || d.open: // it is somewhere else, or within itself: as if all were written once more
		if d = w.definitions["#"]; d.tokens == 0 {
			d.tokens = int64(w.tokenizer.Count(w.root))
		}
	case d.tokens == 0:
		d.open = true
		inner := typescript{tokenizer: w.tokenizer, harmony: w.harmony, root: w.root, definitions: w.definitions}
		inner.out.Grow(2 * len(d.schema))
		inner.schema(d.schema, 1)
		d.tokens, d.open = max(1, inner.count()), false
	}
	w.unfolded = min(most, w.unfolded+d.tokens)
}
