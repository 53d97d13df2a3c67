package policy

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Schema is the JSON Schema (draft 7) of tokenfuse.yaml, for editors. It is what the
// readers ask of a file: they are run once over a value without content, and each
// notes what it would accept. What Parse accepts, the schema accepts. Parse refuses
// more: what concerns several parts of a file, such as names that stand for nothing
// and limits that a call does not fit, is not in the schema.
func Schema() []byte {
	root := shape{}
	readPolicy(value{r: &reader{lines: make(map[string]int)}, shape: root})
	root.set("$schema", "http://json-schema.org/draft-07/schema#")
	root.set("title", "tokenfuse.yaml: who may spend how much on what")
	// As (*Policy).check has it.
	has := func(tier string) shape {
		return shape{"properties": shape{"tiers": requires(tier)}}
	}
	root.implies(has(Anonymous), requires("fingerprint"))
	root.implies(requires("backends"), requires("fingerprint"))
	root.implies(requires("backends"), requires("pools"))
	root.implies(requires("auth"), has(User))
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // it holds words, numbers and shapes
	}
	return append(text, '\n')
}

// shape is a JSON Schema that is being written. A nil shape, which values have while
// a file is read, takes nothing down.
type shape map[string]any

func (s shape) set(key string, x any) shape {
	if s != nil {
		s[key] = x
	}
	return s
}

// add puts x at the end of a list.
func (s shape) add(key string, x any) {
	list, _ := s[key].([]any)
	s[key] = append(list, x)
}

// within is the shape below key.
func (s shape) within(key string) shape {
	if s == nil {
		return nil
	}
	below, ok := s[key].(shape)
	if !ok {
		below = shape{}
		s[key] = below
	}
	return below
}

func (s shape) remove(key string) { delete(s, key) }

func (s shape) describe(what string) {
	if s != nil {
		s["description"] = what
	}
}

func (s shape) choice(words []string) {
	if s != nil {
		s.set("type", "string").set("enum", words)
	}
}

func (s shape) integer(least, most int64) {
	if s != nil {
		s.set("type", "integer").set("minimum", least).set("maximum", most)
	}
}

// number is one above least and up to most.
func (s shape) number(least, most float64) {
	if s != nil {
		s.set("type", "number").set("exclusiveMinimum", least).set("maximum", most)
	}
}

// decimal is a number of at most 6 decimals up to that power of ten, in quotes or not.
func (s shape) decimal(power int, zero bool) {
	if s == nil {
		return
	}
	most := "1" + strings.Repeat("0", power)
	s.set("type", []string{"string", "number"}).set("maximum", json.Number(most)).
		set("pattern", `^(`+most+`(\.0{1,6})?|(0|[1-9][0-9]{0,`+strconv.Itoa(power-1)+`})(\.[0-9]{1,6})?)$`)
	if zero {
		s.set("minimum", 0)
	} else {
		s.set("exclusiveMinimum", 0).add("allOf", shape{"pattern": "[1-9]"})
	}
}

// except refuses words, if there are any, and what matches the pattern, if there is one.
func (s shape) except(words []string, pattern string) {
	if s == nil {
		return
	}
	var list []any
	if words != nil {
		list = append(list, shape{"enum": words})
	}
	if pattern != "" {
		list = append(list, shape{"pattern": pattern})
	}
	s["not"] = shape{"anyOf": list}
}

// reference is one to a secret.
func (s shape) reference() {
	if s == nil {
		return
	}
	s.set("type", "object").set("additionalProperties", false).set("minProperties", 1).set("description", aboutSecrets)
	for name, pattern := range map[string]string{"env": envName, "ssm": ssmName.pattern(), "secret": secretName.pattern()} {
		s.within("properties").within(name).set("type", "string").set("maxLength", 1024).set("pattern", pattern)
	}
	s["not"] = requires("ssm", "secret")
}

func requires(keys ...string) shape { return shape{"required": keys} }

func (s shape) require(key string) {
	if s == nil {
		return
	}
	if keys, _ := s["required"].([]string); !slices.Contains(keys, key) {
		s["required"] = append(keys, key)
	}
}

func (s shape) requireOne(keys []string) {
	if s == nil {
		return
	}
	for _, key := range keys {
		s.add("anyOf", requires(key))
	}
}

// implies adds that what matches one shape must match the other.
func (s shape) implies(when, then shape) {
	if s != nil {
		s.add("allOf", shape{"if": when, "then": then})
	}
}

// requireFor and refuseFor are for objects whose kind is the word.
func (s shape) requireFor(word, key string) {
	s.implies(ofKind(word), requires(key))
}

func (s shape) refuseFor(word, key string) {
	s.implies(ofKind(word), shape{"properties": shape{key: false}})
}

func ofKind(word string) shape {
	return requires("kind").set("properties", shape{"kind": shape{"const": word}})
}
