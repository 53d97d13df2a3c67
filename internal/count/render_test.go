package count_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The renderers here are what providers are known to make of tools and their calls, each
// written by itself from its source, to hold the count against.

// shape is a random schema, before it is written in one way or another.
type shape struct {
	kind                         string // of its type; "" with variants
	title, about, fallback, enum string // JSON but for title and about
	extra                        [][2]string
	fields                       []field
	items                        *shape
	variants                     []*shape
	variant                      string // anyOf or oneOf
}

type field struct {
	name     string
	required bool
	of       *shape
}

var words = []string{"city", "Temperature in °C, e.g. \"21\"", "find the user's order", "日本語の説明", "a\nb", "C:\\path", "<b>bold</b> & more",
	"Longer prose of what this is about, with commas; and more of it.", "ID", "🙂", "x", "snake_case_name", "  indented\n    twice"}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func maybe(r *rand.Rand, s string) string { return pick(r, "", "", s) }

// randomShape gives a shape of at most that depth; a plain one has no keyword that some
// renderer leaves out.
func randomShape(r *rand.Rand, depth int, plain bool) *shape {
	s := &shape{title: maybe(r, pick(r, words...)), about: maybe(r, pick(r, words...))}
	kinds := []string{"string", "integer", "number", "boolean", "null", "string", "array", "object", "variants"}
	if depth == 0 {
		kinds = kinds[:6]
	}
	for range r.IntN(map[bool]int{true: 1, false: 3}[plain]) {
		s.extra = append(s.extra, pick(r, [2]string{"minimum", "0"}, [2]string{"format", `"date-time"`}, [2]string{"pattern", `"^[a-z]{2,}<\\d+$"`},
			[2]string{"maxItems", "10"}, [2]string{"x-unknown", `{"a": [1, 2, {"b": null}], "ü": "é"}`}))
	}
	switch s.kind = pick(r, kinds...); s.kind {
	case "string":
		s.fallback = maybe(r, quote(pick(r, words...)))
		if r.IntN(4) == 0 {
			for i := range 1 + r.IntN(4) {
				s.enum += strings.Repeat(",", min(i, 1)) + quote(pick(r, words...))
			}
		}
	case "integer", "number":
		s.fallback = maybe(r, "17.25")
	case "array":
		s.items = randomShape(r, depth-1, plain)
	case "object":
		for i := range r.IntN(5) {
			s.fields = append(s.fields, field{fmt.Sprint(pick(r, "city", "user_id", "maxResults", "q"), i), r.IntN(2) == 0, randomShape(r, depth-1, plain)})
		}
	case "variants":
		s.kind, s.variant = "", pick(r, "anyOf", "oneOf")
		if plain {
			s.variant = "oneOf"
		}
		for range 1 + r.IntN(3) {
			s.variants = append(s.variants, randomShape(r, depth-1, plain))
		}
	}
	return s
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// json writes s as requests have it, without a blank.
func (s *shape) json() string {
	var m []string
	add := func(name, value string) {
		if value != "" && value != `""` {
			m = append(m, quote(name)+":"+value)
		}
	}
	add("type", quote(s.kind))
	add("title", quote(s.title))
	add("description", quote(s.about))
	add("default", s.fallback)
	for _, e := range s.extra {
		add(e[0], e[1])
	}
	if s.enum != "" {
		add("enum", "["+s.enum+"]")
	}
	if s.items != nil {
		add("items", s.items.json())
	}
	if s.kind == "object" {
		var fields, required []string
		for _, f := range s.fields {
			fields = append(fields, quote(f.name)+":"+f.of.json())
			if f.required {
				required = append(required, quote(f.name))
			}
		}
		add("properties", "{"+strings.Join(fields, ",")+"}")
		add("required", "["+strings.Join(required, ",")+"]")
	}
	var variants []string
	for _, v := range s.variants {
		variants = append(variants, v.json())
	}
	if variants != nil {
		add(s.variant, "["+strings.Join(variants, ",")+"]")
	}
	return "{" + strings.Join(m, ",") + "}"
}

// typescript writes s as OpenAI's harmony does (src/encoding.rs), or, with classic, as its
// older models were found to be shown it: no titles, and variants in one line.
func (s *shape) typescript(indent string, classic bool) string {
	between := func(list []*shape, sep string) string {
		var all []string
		for _, v := range list {
			t := v.typescript(indent+"   ", classic)
			if !classic {
				if v.about != "" {
					t += " // " + v.about
				}
				if v.fallback != "" {
					t += " // default: " + v.fallback
				}
			}
			all = append(all, t)
		}
		return strings.Join(all, sep)
	}
	switch {
	case s.variant == "anyOf" && classic:
		return between(s.variants, " | ")
	case s.variant == "anyOf":
		return "any"
	case s.variant == "oneOf":
		return "\n" + indent + " | " + between(s.variants, "\n"+indent+" | ")
	case s.enum != "":
		return strings.ReplaceAll(s.enum, `","`, `" | "`)
	}
	switch s.kind {
	case "integer":
		return "number"
	case "array":
		return s.items.typescript(indent, classic) + "[]"
	case "object":
	default:
		return s.kind
	}
	var b strings.Builder
	if s.about != "" && !classic {
		b.WriteString(indent + "// " + s.about + "\n")
	}
	b.WriteString("{\n")
	for _, f := range s.fields {
		if f.of.title != "" && !classic {
			b.WriteString(indent + "// " + f.of.title + "\n" + indent + "//\n")
		}
		if f.of.about != "" {
			b.WriteString(indent + "// " + f.of.about + "\n")
		}
		b.WriteString(indent + f.name + strings.Repeat("?", map[bool]int{false: 1}[f.required]) + ": " + f.of.typescript(indent+"  ", classic) + ",")
		if f.of.fallback != "" {
			b.WriteString(" // default: " + f.of.fallback)
		}
		b.WriteString("\n")
	}
	return b.String() + indent + "}"
}

// xml writes s as the template of Qwen3 Coder does the parameters of a tool: known
// keywords by themselves, others as JSON.
func (s *shape) xml() string {
	var b strings.Builder
	b.WriteString("\n<parameters>")
	for _, f := range s.fields {
		b.WriteString("\n<parameter>\n<name>" + f.name + "</name>\n<type>" + f.of.kind + "</type>")
		if f.of.about != "" {
			b.WriteString("\n<description>" + f.of.about + "</description>")
		}
		for _, e := range append(f.of.extra, [2]string{"default", f.of.fallback}, [2]string{"title", f.of.title}, [2]string{"enum", f.of.enum}) {
			if e[1] != "" {
				b.WriteString("\n<" + e[0] + ">" + e[1] + "</" + e[0] + ">")
			}
		}
		if f.of.fields != nil || f.of.items != nil || f.of.variants != nil {
			b.WriteString("\n<properties>" + f.of.json() + "</properties>")
		}
		b.WriteString("\n</parameter>")
	}
	return b.String() + "\n</parameters>"
}
