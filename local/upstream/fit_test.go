package upstream

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestFit(t *testing.T) {
	t.Parallel()
	file := func(name string) string {
		text, err := os.ReadFile("testdata/" + name)
		check.OK(t, err)
		return string(text)
	}
	for schema, want := range map[string]string{
		`{}`:                          `"text"`,
		`true`:                        `"text"`,
		`{"type":"integer"}`:          `1`,
		`{"type":"number"}`:           `1.5`,
		`{"type":"boolean"}`:          `true`,
		`{"type":"null"}`:             `null`,
		`{"type":"array"}`:            `["text"]`,
		`{"type":"object"}`:           `{}`,
		`{"const":{"a":1}}`:           `{"a":1}`,
		`{"const":null}`:              `null`,
		`{"enum":["b","a"]}`:          `"b"`,
		`{"type":["null","integer"]}`: `1`,
		// Numbers
		`{"type":"integer","minimum":3,"maximum":9}`:                         `3`,
		`{"type":"integer","exclusiveMinimum":3,"multipleOf":5}`:             `5`,
		`{"type":"integer","exclusiveMinimum":5,"multipleOf":5}`:             `10`,
		`{"type":"integer","minimum":-9.5,"maximum":-3.5}`:                   `-9`,
		`{"type":"integer","exclusiveMaximum":-20}`:                          `-21`,
		`{"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1}`:        `0.5`,
		`{"type":"number","exclusiveMinimum":0.125,"exclusiveMaximum":0.25}`: `0.1875`,
		`{"type":"number","minimum":4,"multipleOf":0.5}`:                     `4`,
		`{"minimum":7}`: `7`,
		// Texts
		`{"type":"string","minLength":6}`:                              `"textxx"`,
		`{"type":"string","maxLength":2}`:                              `"te"`,
		`{"type":"string","maxLength":0}`:                              `""`,
		`{"type":"string","format":"date"}`:                            `"2026-01-31"`,
		`{"type":"string","format":"email"}`:                           `"someone@example.com"`,
		`{"type":"string","pattern":"^[A-Z]{3}-\\d{2,4}$"}`:            `"XXX-11"`,
		`{"type":"string","pattern":"^(a|b)+c?$","minLength":3}`:       `"aac"`,
		`{"type":"string","pattern":"^(?!x).*$","format":"uuid"}`:      `"0190a3b2-5d1c-7e4f-8a6b-1c2d3e4f5a6b"`,
		`{"type":"string","pattern":"((^)*)*","minLength":1000000000}`: ``,
		// Arrays
		`{"type":"array","items":{"type":"integer"},"minItems":3}`:                                                            `[1,1,1]`,
		`{"type":"array","items":{"type":"integer"},"maxItems":0}`:                                                            `[]`,
		`{"type":"array","items":false}`:                                                                                      `[]`,
		`{"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}]}`:                                                 `[1,null]`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"array","items":[{"type":"integer"},{"type":"string"}]}`: `[1,"text"]`,
		`{"type":"array","items":{"type":"boolean"},"minItems":2,"uniqueItems":true}`:                                         ``,
		// Objects: members stand as they do in the schema.
		`{"type":"object","properties":{"z":{"type":"integer"},"ä \"b\"":{"type":"array","items":{"type":"string"}},"a":{}},"required":["a"],"additionalProperties":false}`: `{"z":1,"ä \"b\"":["text"],"a":"text"}`,
		`{"type":"object","required":["x"],"additionalProperties":{"type":"integer"}}`:                                                                                      `{"x":1}`,
		`{"type":"object","additionalProperties":{"type":"integer"},"minProperties":2}`:                                                                                     `{"key1":1,"key2":1}`,
		`{"type":"object","required":["x"],"additionalProperties":false}`:                                                                                                   ``,
		`{"type":"object","properties":{"no":false,"yes":true}}`:                                                                                                            `{"yes":"text"}`,
		`{"type":"object","properties":{"no":false},"required":["no"]}`:                                                                                                     ``,
		`{"properties":{"pattern":{"type":"string"},"$ref":{"type":"string"}}}`:                                                                                             `{"pattern":"text","$ref":"text"}`,
		// Choices
		`{"anyOf":[{"type":"string","const":"x"},{"type":"null"}]}`: `"x"`,
		`{"anyOf":[false,{"type":"null"}]}`:                         `null`,
		`{"type":"object","properties":{"a":{"type":"null"}},"anyOf":[{"properties":{"b":{"type":"integer"}},"required":["b"]}]}`:                            `{"b":1,"a":null}`,
		`{"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"const":2}},"required":["b"]}],"additionalProperties":true}`: `{"a":1,"b":2}`,
		`{"oneOf":[{"type":"integer"},{"type":"string"}]}`: `1`,
		`{"not":{}}`: ``,
		// References
		`{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"integer"}}}`:                                                                      `1`,
		`{"properties":{"a":{"type":"integer"},"b":{"$ref":"#/properties/a","description":"as a"}}}`:                                      `{"a":1,"b":1}`,
		`{"properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]}`:                                            `{"next":{"next":null}}`,
		`{"$ref":"#/$defs/list","$defs":{"list":{"type":"object","properties":{"of":{"type":"array","items":{"$ref":"#/$defs/list"}}}}}}`: `{"of":[]}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"a":{"$ref":"#/$defs/a"}},"required":["a"]}}}`:                                   ``, // endless
		`{"$ref":"#/$defs/gone"}`:                       ``,
		`{"$ref":"https://example.com/schema.json"}`:    ``,
		`{"type":"colour"}`:                             ``,
		`{"type":"string","minLength":3,"maxLength":2}`: ``,
		`[]`:                  ``,
		`"x"`:                 ``,
		file("zod.json"):      `{"steps":[{"explanation":"text","output":"text"},{"explanation":"text","output":"text"}],"final":"text","when":"2026-01-31T12:00:00Z","mail":"someone@example.com","id":"0190a3b2-5d1c-7e4f-8a6b-1c2d3e4f5a6b","kind":"b","lit":"x","n":3,"f":0.5,"u":{"t":"a","v":1.5},"tree":{"name":"text","children":[]},"code":"XXX-11","both":"text","flag":true}`,
		file("pydantic.json"): `{"name":"textxxxxxx","color":"red","tags":["text"],"scores":{"key1":1},"u":{"kind":"a","n":5},"tree":{"value":1.5,"left":null,"kids":[]},"d":"2026-01-31T12:00:00Z","dec":1.5,"t":[1,"text"],"opt":1,"ids":[100,100,100]}`,
	} {
		got, err := fit(json.RawMessage(schema))
		check.That(t, string(got) == want && (err != nil) == (want == ""), "%s:\n got %s (%v)\nwant %s", schema, got, err, want)
	}
	// A schema of some lines can ask for more than anybody could send.
	defs := []string{`"d0":{"type":"integer"}`}
	for i := range 30 {
		defs = append(defs, fmt.Sprintf(`"d%d":{"type":"array","items":{"$ref":"#/$defs/d%d"},"minItems":2}`, i+1, i))
	}
	if got, err := fit(json.RawMessage(`{"$ref":"#/$defs/d30","$defs":{` + strings.Join(defs, ",") + `}}`)); err == nil {
		t.Errorf("%d bytes", len(got))
	}
}

// schemas makes schemas that something fits, of all kinds that helpers make.
func schemas(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kind := rapid.IntRange(0, 10).Draw(t, "kind")
		if depth == 0 {
			kind %= 6
		}
		inner := func() string { return schemas(depth-1).Draw(t, "inner") }
		n := rapid.IntRange(0, 3).Draw(t, "n")
		switch kind {
		case 0:
			return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, n, n+rapid.IntRange(0, 9).Draw(t, "more"))
		case 1:
			low := rapid.IntRange(-1000, 1000).Draw(t, "low")
			return fmt.Sprintf(`{"type":"integer","minimum":%d,"exclusiveMaximum":%d}`, low, low+1+n)
		case 2:
			low := rapid.Float64Range(-1000, 1000).Draw(t, "low")
			return fmt.Sprintf(`{"type":"number","exclusiveMinimum":%v,"maximum":%v}`, low, low+float64(n+1)/8)
		case 3:
			return `{"type":["null","boolean"]}`
		case 4:
			return fmt.Sprintf(`{"enum":["%d",%d,null]}`, n, n)
		case 5:
			return fmt.Sprintf(`{"const":[%d]}`, n)
		case 6:
			return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, inner(), n, n+1)
		case 7:
			return fmt.Sprintf(`{"anyOf":[%s,%s]}`, inner(), inner())
		case 8:
			return fmt.Sprintf(`{"allOf":[%s]}`, inner())
		}
		var properties, required []string
		for i := range n {
			name := fmt.Sprintf(`"%d%s"`, i, rapid.SampledFrom([]string{"", "name", "é", " "}).Draw(t, "name"))
			properties = append(properties, name+":"+inner())
			if rapid.Bool().Draw(t, "required") {
				required = append(required, name)
			}
		}
		return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`, strings.Join(properties, ","), strings.Join(required, ","))
	})
}

// Whatever can be fitted is. fit itself checks what it gives by somebody else's rules.
func TestFitsWhatCanBeFitted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		schema := schemas(3).Draw(t, "schema")
		if got, err := fit(json.RawMessage(schema)); err != nil || !json.Valid(got) {
			t.Errorf("%s: %s, %v", schema, got, err)
		}
	})
}

func FuzzFit(f *testing.F) {
	for _, name := range []string{"zod.json", "pydantic.json"} {
		text, err := os.ReadFile("testdata/" + name)
		check.OK(f, err)
		f.Add(string(text))
	}
	f.Add(`{"$ref":"#/allOf/0","allOf":[{"$ref":"#"}],"pattern":"(a*)*"}`)
	f.Fuzz(func(t *testing.T, schema string) {
		if got, err := fit(json.RawMessage(schema)); err == nil && !json.Valid(got) {
			t.Errorf("%s: %s", schema, got)
		}
	})
}
