package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v4"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// beyondSchema are the mistakes that a JSON Schema cannot see, by the reason.
var beyondSchema = map[string][]string{
	"the form of the file is gone when it is held against a schema": {
		"anchor", "anchor on a mapping, and its content", "tag", "custom tag on a mapping", "merge key", "too large",
		"exponent", "hexadecimal", "leading zero", "underscore", "date for a text", "price with an exponent", "price without a leading digit",
	},
	"how long a duration is": {
		"timeout too long", "period of zero", "part of a second", "too long a period", "very many days", "passes good for days",
	},
	"a name refers to another part of the file": {
		"unknown provider", "unknown model", "unknown fallback", "unknown tier", "unknown pool", "fallback to itself",
		"plans of a tier that is none", "a plan of another tier", "a plan twice", "backend of an unknown tier", "backend of an unknown pool", "backend of a tier's pool", "backends of one pool",
		"no field for the cap, but of OpenAI", "schemas of a model that has none",
		"feature without cap", "efforts of a model that has fewer", "efforts of a model that has none", "images of a model that has no price for them", "images of a fallback that has no price for them",
		"addresses of images that nobody fetches", "embeddings of conversations", "texts of a conversation", "fallback to vectors", "embeddings of a provider that has none",
	},
	"one figure must fit another": {
		"image_tokens that fall", "parameters that are too deep", "parameters that are too long", "tools that are too long together",
		"a pass with more calls than can be kept from coming back", "a pass that lives long",
		"call above the token limit", "call above the network's token limit", "call above the spend limit",
		"call above a pool's burst", "call above a backend's burst", "call above its tier's pool's burst", "call above the context",
		"tools above the input cap", "images above the input cap", "system prompt above the input cap", "framing above the input cap",
	},
	"names and values of any shape": {
		"a tool twice", "parameters that are no object", "parameters with nothing in them", "parameters with an alias",
		"extra of ours, as others write it", "extra of ours, in a holder", "extra that is null", "extra number of YAML's", "extra that is too long",
		"header for the key", "header twice", "base_url with a key", "base_url with an unreadable query", "base_url of the whole way", "base_url of the way to embeddings", "bedrock with a query",
	},
	"addresses that say the same in another way": {"keys over http", "origin with the usual port"},
}

func schemaOf(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	var schema jsonschema.Schema
	check.OK(t, json.Unmarshal(Schema(), &schema))
	resolved, err := schema.Resolve(nil)
	check.OK(t, err)
	return resolved
}

// refusal is what the schema has against a file; nil: nothing.
func refusal(schema *jsonschema.Resolved, file string) error {
	var content any
	if err := yaml.Unmarshal([]byte(file), &content); err != nil {
		return err
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return err
	}
	return schema.Validate(content)
}

// TestSchemaAccepts: what Parse accepts, the schema accepts.
func TestSchemaAccepts(t *testing.T) {
	t.Parallel()
	schema := schemaOf(t)
	own, err := os.ReadFile(sample)
	check.OK(t, err)
	files := map[string]string{"good": good, "sample": string(own)}
	for name, change := range accepted {
		files[name] = strings.Replace(good, change[0], change[1], 1)
	}
	for name, file := range files {
		err := refusal(schema, file)
		check.That(t, err == nil, "%s: %v", name, err)
	}
}

// TestSchemaRefuses: what Parse refuses, the schema refuses, as far as one can.
func TestSchemaRefuses(t *testing.T) {
	t.Parallel()
	schema := schemaOf(t)
	beyond := map[string]bool{}
	for _, names := range beyondSchema {
		for _, name := range names {
			beyond[name] = true
		}
	}
	for _, test := range mistakes {
		err := refusal(schema, strings.Replace(good, test.old, test.new, 1))
		refused := err != nil
		check.That(t, refused != beyond[test.name], "%s: %v", test.name, err)
		delete(beyond, test.name)
	}
	for name := range beyond {
		t.Errorf("there is no mistake %q", name)
	}
}

// TestSchemaIsWhole: no key is left without what it may hold, which would accept
// anything.
func TestSchemaIsWhole(t *testing.T) {
	t.Parallel()
	var schema map[string]any
	check.OK(t, json.Unmarshal(Schema(), &schema))
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		if strings.HasSuffix(path, ".tools.items.parameters") {
			return // a schema, which may have any key
		}
		check.That(t, s["type"] != nil, "%s may be anything", path)
		check.That(t, s["type"] != "object" || s["additionalProperties"] != nil, "%s may have any key", path)
		for _, below := range [...]string{"additionalProperties", "items"} {
			if of, ok := s[below].(map[string]any); ok {
				walk(path+"."+below, of)
			}
		}
		properties, _ := s["properties"].(map[string]any)
		for name, of := range properties {
			walk(path+"."+name, of.(map[string]any))
		}
	}
	walk("", schema)

	// The tier of anonymous callers has keys that no other has.
	tiers := schema["properties"].(map[string]any)["tiers"].(map[string]any)
	keys := func(tier any) []string {
		var names []string
		for name := range tier.(map[string]any)["properties"].(map[string]any) {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	every := "limits max_images max_in_flight max_input_chars max_input_tokens max_messages max_output_tokens max_tools"
	anonymous := keys(tiers["properties"].(map[string]any)[Anonymous])
	if got, want := fmt.Sprint(anonymous), "[challenge_at "+every+" network passes pool]"; got != want {
		t.Errorf("of tier anonymous: %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(keys(tiers["additionalProperties"])), "["+every+" pool]"; got != want {
		t.Errorf("of other tiers: %s, want %s", got, want)
	}
}
