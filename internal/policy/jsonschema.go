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
		return shape{"properties": shape{"tiers": shape{"required": []any{tier}}}}
	}
	root.add("allOf", shape{"if": has(Anonymous), "then": shape{"required": []any{"fingerprint"}}})
	root.add("allOf", shape{"if": shape{"required": []any{"auth"}}, "then": has(User)})
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

// add puts x at the end of a list, unless it is there.
func (s shape) add(key string, x any) {
	if s == nil {
		return
	}
	list, _ := s[key].([]any)
	if word, ok := x.(string); !ok || !slices.Contains(list, any(word)) {
		s[key] = append(list, x)
	}
}

func (s shape) remove(key string) { delete(s, key) }

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

// ifKind adds what holds for objects of a kind.
func (s shape) ifKind(kind string, then shape) {
	s.add("allOf", shape{"if": shape{"properties": shape{"kind": shape{"const": kind}}}, "then": then})
}

// decimal is a number of at most 6 decimals up to that power of ten, in quotes or not.
func (s shape) decimal(power int) shape {
	most := "1" + strings.Repeat("0", power)
	return s.set("type", []string{"string", "number"}).set("maximum", json.Number(most)).
		set("pattern", `^(`+most+`(\.0{1,6})?|(0|[1-9][0-9]{0,`+strconv.Itoa(power-1)+`})(\.[0-9]{1,6})?)$`)
}

// reference is one to a secret.
func (s shape) reference() {
	name := func(pattern, what string) shape {
		return shape{"type": "string", "maxLength": 1024, "pattern": pattern, "description": what}
	}
	s.set("type", "object").set("additionalProperties", false).set("minProperties", 1).
		set("description", aboutSecrets).
		set("properties", shape{
			"env":    name(envName().String(), "name of an environment variable"),
			"ssm":    name(ssmName().String(), "name or ARN of an SSM parameter"),
			"secret": name(secretName().String(), "name or ARN of a Secrets Manager secret"),
		}).
		set("not", shape{"required": []any{"ssm", "secret"}})
}
