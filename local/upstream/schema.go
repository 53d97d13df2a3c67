package upstream

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// schema is one level of a JSON Schema: keywords and their values, not decoded yet.
type schema map[string]json.RawMessage

// readSchema gives nil for what is no schema that a value fits.
func readSchema(raw json.RawMessage) (s schema) {
	if string(bytes.TrimSpace(raw)) == "true" {
		return schema{}
	}
	_ = json.Unmarshal(raw, &s)
	return s
}

// read decodes a keyword's value, and is zero if there is none of this type.
func read[T any](s schema, keyword string) T {
	var v T
	if raw, ok := s[keyword]; !ok || json.Unmarshal(raw, &v) != nil {
		return *new(T)
	}
	return v
}

func (s schema) without(keyword string) schema {
	rest := maps.Clone(s)
	delete(rest, keyword)
	return rest
}

// and gives a schema for what fits both. Of keywords that cannot be joined, that of s
// counts. Nothing fits nil.
func (s schema) and(other schema) schema {
	if other == nil {
		return nil
	}
	both := maps.Clone(other)
	maps.Copy(both, s)
	join := func(keyword string) json.RawMessage {
		return encode(append(read[[]json.RawMessage](s, keyword), read[[]json.RawMessage](other, keyword)...))
	}
	for keyword := range s {
		if _, ok := other[keyword]; !ok {
			continue
		}
		switch keyword {
		case "properties":
			both[keyword] = object(append(s.properties(), other.properties()...))
		case "required", "allOf":
			both[keyword] = join(keyword)
		}
	}
	return both
}

// properties are in the order in which they stand, which is that of the answer.
func (s schema) properties() []strictjson.Member {
	members, _ := strictjson.Object(s["properties"])
	return members
}

// object writes members; of several of one name the first.
func object(members []strictjson.Member) json.RawMessage {
	raw := []byte{'{'}
	written := map[string]bool{}
	for _, m := range members {
		if written[m.Name] {
			continue
		}
		if written[m.Name] = true; len(raw) > 1 {
			raw = append(raw, ',')
		}
		raw = append(append(append(raw, encode(m.Name)...), ':'), m.Value...)
	}
	return append(raw, '}')
}

// hints tell the type of a value by keywords that only that type has.
var hints = []struct {
	kind     string
	keywords []string
}{
	{"object", []string{"properties", "required", "additionalProperties", "minProperties"}},
	{"array", []string{"items", "prefixItems", "minItems"}},
	{"number", []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
}

// types are those that a value may have, null last.
func (s schema) types() []string {
	if one := read[string](s, "type"); one != "" {
		return []string{one}
	}
	if several := read[[]string](s, "type"); len(several) > 0 {
		if slices.Contains(several, "null") {
			several = append(slices.DeleteFunc(several, func(kind string) bool { return kind == "null" }), "null")
		}
		return several
	}
	for _, hint := range hints {
		for _, keyword := range hint.keywords {
			if _, ok := s[keyword]; ok {
				return []string{hint.kind}
			}
		}
	}
	return []string{"string"}
}

// at gives the schema to which a $ref within root points, or nil.
func at(root json.RawMessage, ref string) schema {
	pointer, err := url.PathUnescape(strings.TrimPrefix(ref, "#"))
	if err != nil || !strings.HasPrefix(ref, "#") {
		return nil
	}
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if step == "" {
			continue
		}
		var members map[string]json.RawMessage
		var items []json.RawMessage
		if json.Unmarshal(root, &members) == nil {
			root = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
		} else if i, err := strconv.Atoi(step); err == nil && json.Unmarshal(root, &items) == nil && i >= 0 && i < len(items) {
			root = items[i]
		} else {
			return nil
		}
	}
	return readSchema(root)
}
