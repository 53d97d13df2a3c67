package count_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/usage"
)

// What templates say of tools before they list them.
const (
	// Llama 3.1's own (its chat template).
	llama = "Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" +
		"Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.\n\n" +
		`Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.` + "\n\n"
	// Qwen 2.5's and Hermes' own.
	hermes = "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" +
		"\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n" +
		`{"name": <function-name>, "arguments": <args-json-object>}` + "\n</tool_call>"
)

func model(t *testing.T, tokenizer string, k kind.Kind, id string) Model {
	t.Helper()
	tok, err := tokens.New(tokenizer)
	check.OK(t, err)
	return Model{Tokenizer: tok, Kind: k, ID: id}
}

// Whatever the schemas are, no renderer makes more tokens of them than are counted; and
// where tokens are exact, the count is not far above that of the renderer.
func TestToolsOfAnyShape(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	classic, modern := model(t, "cl100k_base", kind.OpenAI, "gpt-4"), model(t, "o200k_base", kind.OpenAI, "gpt-oss-120b")
	ratio := map[bool]float64{}
	for sample := range 150 {
		var tools []openai.Tool
		var wire []json.RawMessage
		asTypeScript := map[bool]string{}
		xml := "<tools>"
		for i := range 1 + r.IntN(30) {
			s := randomShape(r, 3, sample%2 == 0)
			s.kind, s.enum, s.variant, s.variants, s.items = "object", "", "", nil, nil
			s.fallback, s.title = "", ""
			tool := openai.Tool{Name: fmt.Sprint(pick(r, "get_weather", "f", "searchOrdersOfUser"), i), Description: maybe(r, pick(r, words...)), Parameters: json.RawMessage(s.json())}
			tools = append(tools, tool)
			raw, err := tool.MarshalJSON()
			check.OK(t, err)
			wire = append(wire, raw)
			for _, c := range []bool{false, true} {
				if tool.Description != "" {
					asTypeScript[c] += "// " + tool.Description + "\n"
				}
				takes := "_: " + s.typescript("", c)
				if c && len(s.fields) == 0 {
					takes = ""
				}
				asTypeScript[c] += "type " + tool.Name + " = (" + takes + ") => any;\n\n"
			}
			xml += "\n<function>\n<name>" + tool.Name + "</name>\n<description>" + tool.Description + "</description>" + s.xml() + "\n</function>"
		}
		compact, err := json.Marshal(wire)
		check.OK(t, err)
		near := func(m Model, isClassic bool, said int64) {
			counted := m.Tools(tools, openai.ToolChoice{})
			least := said + int64(m.Tokenizer.Count("# Tools\n\n## functions\n\nnamespace functions {\n\n"+asTypeScript[isClassic]+"} // namespace functions"))
			check.That(t, counted >= least, "%s: counted %d, rendered %d: %s", m.ID, counted, least, compact)
			largest := max(least, int64(m.Tokenizer.Count(string(compact))))
			ratio[isClassic] = max(ratio[isClassic], float64(counted-said)/float64(largest))
		}
		near(classic, true, 0)
		near(modern, false, 98-8) // gpt-5 has 98 beside the namespace, the headings among them

		var indented, ascii bytes.Buffer
		check.OK(t, json.Indent(&indented, compact, "", "    "))
		for _, c := range indented.String() {
			if c < 128 {
				ascii.WriteRune(c)
			} else {
				fmt.Fprintf(&ascii, "%s", strings.Trim(fmt.Sprintf("%+q", c), "'"))
			}
		}
		for _, k := range []kind.Kind{kind.OpenAI, kind.Anthropic, kind.Bedrock} {
			m := model(t, "upper_bound", k, "any")
			counted := m.Tools(tools, openai.ToolChoice{})
			for name, text := range map[string]string{"compact": hermes + string(compact), "indented": llama + indented.String(), "ASCII": llama + ascii.String(), "XML": hermes + xml} {
				check.That(t, counted >= int64(m.Tokenizer.Count(text)), "%s, %s: counted %d, rendered %d: %s", k, name, counted, len(text), compact)
			}
		}
	}
	check.That(t, ratio[true] < 1.2 && ratio[false] < 1.2, "the count is up to %v times the largest rendering", ratio)
}

// Calls and their results cost no more, in whichever template, than their messages count;
// special tokens stand here as one character each.
func TestConversationsOfAnyShape(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	classic, modern := model(t, "cl100k_base", kind.OpenAI, "gpt-4"), model(t, "o200k_base", kind.OpenAI, "gpt-oss-120b")
	foreign := model(t, "upper_bound", kind.OpenAI, "any")
	for range 200 {
		var messages []openai.Message
		older, harmony, hermes, xml := "", "", "", ""
		for turn, calls := range pick(r, []int{0}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{2, 5, 3, 2, 9}) {
			user, said := pick(r, words...), maybe(r, pick(r, words...))
			assistant := openai.Message{Role: "assistant", Content: said}
			alone, parallel, results := "|assistant|"+said+"|", "", ""
			for i := range calls {
				c := openai.ToolCall{ID: fmt.Sprint("call_", turn, i), Name: pick(r, "get_weather", "f", "searchOrdersOfUser")}
				arguments := map[string]json.RawMessage{}
				for j := range r.IntN(pick(r, 2, 40)) {
					arguments[fmt.Sprint(pick(r, "q", "city"), j)] = json.RawMessage(pick(r, "1", quote(pick(r, words...)), `{"a":[1,{"b":""}]}`))
				}
				raw, err := json.Marshal(arguments)
				check.OK(t, err)
				c.Arguments = string(raw)
				result := pick(r, words...)
				assistant.ToolCalls = append(assistant.ToolCalls, c)
				messages = append(messages, openai.Message{Role: "tool", Content: result, ToolCallID: c.ID})
				alone = "|assistant to=functions." + c.Name + "|" + said + c.Arguments + "|"
				parallel += `{"recipient_name":"functions.` + c.Name + `","parameters":` + c.Arguments + "},"
				results += "|functions." + c.Name + "|" + result + "|"
				harmony += "|assistant to=functions." + c.Name + "|commentary json|" + c.Arguments + "||functions." + c.Name + " to=assistant|commentary|" + result + "|"
				var pretty bytes.Buffer
				check.OK(t, json.Indent(&pretty, raw, "", "    "))
				hermes += "\n|\n" + `{"name": "` + c.Name + `", "arguments": ` + pretty.String() + "}\n||user\n|\n" + result + "\n||\n"
				xml += "\n|\n<function=" + c.Name + ">"
				for name, value := range arguments {
					xml += "\n<parameter=" + name + ">\n" + string(value) + "\n</parameter>"
				}
				xml += "\n</function>\n|" + "|user\n|\n" + result + "\n||\n"
			}
			if calls > 1 {
				alone = "|assistant to=multi_tool_use.parallel|" + said + `{"tool_uses":[` + parallel + "]}|"
			}
			messages = append(messages, openai.Message{Role: "user", Content: user}, assistant)
			older += "|user|" + user + "|" + alone + results
			harmony += "|user|" + user + "||assistant|" + said + "|"
			hermes += "|user\n" + user + "||assistant\n" + said + "|"
			xml += "|user\n" + user + "||assistant\n" + said + "|"
		}
		for i, text := range []string{older, harmony, hermes, xml} {
			m := []Model{classic, modern, foreign, foreign}[i]
			counted := int64(0)
			for _, message := range messages {
				counted += m.Message(message)
			}
			check.That(t, counted >= int64(m.Tokenizer.Count(text)), "%s, template %d: counted %d, rendered %d: %q", m.Tokenizer.Name(), i, counted, m.Tokenizer.Count(text), text)
		}
	}
}

// What is said of a property stands where OpenAI's models find it.
func TestShown(t *testing.T) {
	t.Parallel()
	classic, modern := model(t, "cl100k_base", kind.OpenAI, "gpt-4"), model(t, "o200k_base", kind.OpenAI, "gpt-oss-120b")
	for _, tt := range []struct{ property, classic, modern string }{
		{`{"type":"string"}`, "p?: string,\n", "p?: string,\n"},
		{`{"type":"integer","description":"How many."}`, "// How many.\np?: number,\n", "// How many.\np?: number,\n"},
		{`{"type":"string","description":"One.\nTwo."}`, "// One.\nTwo.\np?: string,\n", "// One.\n// Two.\np?: string,\n"},
		{`{"type":"string","title":"Its name"}`, "// Its name\n//\np?: string,\n", "// Its name\n//\np?: string,\n"},
		{`{"type":"string","enum":["a","b"],"default":"a"}`, "p?: \"a\" | \"b\", // default: \"a\"\n", "p?: \"a\" | \"b\", // default: \"a\"\n"},
		{`{"type":"string","examples":["red","blue"]}`, "// Examples:\n// - \"red\"\n// - \"blue\"\np?: string,\n", "// Examples:\n// - \"red\"\n// - \"blue\"\np?: string,\n"},
		{`{"type":["string","null"]}`, "p?: string | null,\n", "p?: string | null,\n"},
		{`{"type":"string","nullable":true}`, "p?: string | null,\n", "p?: string | null,\n"},
		{`{"type":"array","items":{"type":"number"}}`, "p?: number[],\n", "p?: number[],\n"},
		{`{"type":"object","description":"Who.","properties":{"q":{"type":"string"}}}`, "// Who.\np?: {\n  q?: string,\n},\n", "// Who.\np?:   // Who.\n{\n  q?: string,\n  },\n"},
		{`{"anyOf":[{"type":"string"},{"type":"number"}]}`, "p?: string | number,\n", "p?: string | number,\n"},
		{`{"oneOf":[{"type":"string","description":"A name."},{"type":"number"}]}`, "p?:\n | string // A name.\n | number\n,\n", "p?:\n | string // A name.\n | number\n,\n"},
		{`{"type":"string","minLength":3}`, "// minLength: 3\np?: string,\n", "// minLength: 3\np?: string,\n"},
		{`{"type":"object","additionalProperties":{"type":"number"}}`, "p?: {\n  [key: string]: number,\n  },\n", "p?: {\n  [key: string]: number,\n  },\n"},
		{`{"const":"fixed"}`, "p?: \"fixed\",\n", "p?: \"fixed\",\n"},
	} {
		const many = 200
		parameters := `{"type":"object","properties":{` + strings.Repeat(`"p":`+tt.property+`,`, many-1) + `"p":` + tt.property + `}}`
		for m, shown := range map[Model]string{classic: tt.classic, modern: tt.modern} {
			counted := float64(m.Tools([]openai.Tool{{Name: "f", Parameters: json.RawMessage(parameters)}}, openai.ToolChoice{}))
			least := float64(m.Tokenizer.Count(strings.Repeat(shown, many)))
			check.That(t, least <= counted && counted <= 1.1*least+120, "%s: counted %g of %s, shown are %g of %q", m.ID, counted/many, tt.property, least/many, shown)
		}
	}
}

// A letter that is written as an escape has its bytes.
func TestEscapes(t *testing.T) {
	t.Parallel()
	m := model(t, "upper_bound", kind.Anthropic, "claude")
	for letter, size := range map[string]int64{"é": 6, "日": 6, "🙂": 12, "<": 6, "&": 6, "'": 6, "a": 1} {
		prose := strings.Repeat(letter, 1000)
		for where, tool := range map[string]openai.Tool{"description": {Name: "f", Description: prose}, "schema": {Name: "f", Parameters: json.RawMessage(`{"description":"` + prose + `"}`)}} {
			counted := m.Tools([]openai.Tool{tool}, openai.ToolChoice{})
			check.That(t, 1000*size <= counted && counted <= 1000*size+1200, "1000 times %s in the %s cost %d", letter, where, counted)
		}
		call := m.Message(openai.Message{Role: "assistant", ToolCalls: openai.ToolCalls{{Name: "f", Arguments: `{"a":"` + prose + `"}`}}})
		check.That(t, 1000*size <= call && call <= 1000*size+300, "1000 times %s in a call cost %d", letter, call)
	}
}

// An image in a message is no text of it, but parts the text that it stands in.
func TestMessageWithImages(t *testing.T) {
	t.Parallel()
	m := model(t, "o200k_base", kind.OpenAI, "gpt-4o")
	whole := m.Message(openai.Message{Role: "user", Content: "cartoon"})
	check.Equal(t, m.Message(openai.Message{Role: "user", Content: "cartoon", Images: []openai.Image{{At: 0}, {At: 7}}}), whole+8, "around the text")
	parted := m.Message(openai.Message{Role: "user", Content: "cartoon", Images: []openai.Image{{At: 3}}})
	check.Equal(t, parted, int64(m.Tokenizer.PerMessage()+m.Tokenizer.Count("car")+m.Tokenizer.Count("toon")+4), "within the text")
}

// What a schema refers to counts wherever it does, as OpenAI writes it out; nobody can make
// the count take long, overflow, or end.
func TestReferences(t *testing.T) {
	t.Parallel()
	m := model(t, "o200k_base", kind.OpenAI, "gpt-5")
	tools := func(parameters string) int64 {
		return m.Tools([]openai.Tool{{Name: "f", Parameters: json.RawMessage(parameters)}}, openai.ToolChoice{})
	}
	address := `{"type":"object","properties":{"street":{"type":"string","description":"with its number"},"zip":{"type":"string"}}}`
	inline := tools(`{"type":"object","properties":{"from":` + address + `,"to":` + address + `}}`)
	referred := tools(`{"type":"object","properties":{"from":{"$ref":"#/$defs/Address"},"to":{"$ref":"#/$defs/Address"}},"$defs":{"Address":` + address + `}}`)
	check.That(t, inline <= referred && referred <= inline*5/4, "written out it costs %d, and referred to %d", inline, referred)

	var doubling strings.Builder
	for i := range 60 {
		fmt.Fprintf(&doubling, `"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}},`, i, i+1, i+1)
	}
	check.Equal(t, tools(`{"type":"object","properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{`+doubling.String()+`"d60":{"type":"string"}}}`), 1<<40+102, "doubled 60 times")

	node := `{"type":"object","properties":{"value":{"type":"string"},"left":{"$ref":"#"},"right":{"$ref":"#"}}}`
	check.That(t, tools(node) >= 3*int64(m.Tokenizer.Count(node))-60, "what holds itself costs %d, and once %d", tools(node), m.Tokenizer.Count(node))
}

// The largest tools that a request may have are counted at once, whatever they are: none makes
// the count go over its text again and again.
func TestNoToolTakesLong(t *testing.T) {
	t.Parallel()
	many := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < 30<<10; i++ {
			fmt.Fprintf(&b, format, i, i+1)
			b.WriteString(",")
		}
		return b.String()
	}
	m := model(t, "o200k_base", kind.OpenAI, "gpt-5")
	for name, schema := range map[string]string{
		"references to nothing": `{"type":"object","properties":{` + many(`"%d":{"$ref":"#/x%d"}`) + `"z":{}}}`,
		"references in a ring":  `{"$ref":"#/$defs/d0","$defs":{` + many(`"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#"}]}`) + `"z":{}}}`,
		"small properties":      `{"type":"object","properties":{` + many(`"%d":{"items":{"items":%d}}`) + `"z":{}}}`,
		"variants":              `{"oneOf":[` + many(`{"enum":[%d,%d]}`) + `{}]}`,
		"a word":                `{"description":"` + strings.Repeat("a", 30<<10) + `"}`,
	} {
		tool := openai.Tool{Name: "f", Parameters: json.RawMessage(schema)}
		start := time.Now()
		m.Tools([]openai.Tool{tool, tool, tool, tool}, openai.ToolChoice{})
		check.That(t, time.Since(start) < 4*time.Second, "%s take %s", name, time.Since(start))
	}
}

// Whatever parameters are, they are counted: at least as text where they are no schema.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{`{"type":"object","properties":{"a":{"type":["string","null"],"enum":["x"]}},"required":["a"]}`, `{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`,
		`[]`, `{"a`, `{"type":3,"items":[{}],"anyOf":{}}`, strings.Repeat(`{"items":`, 100) + "1" + strings.Repeat("}", 100), `{"a":"\u00e9\"}`, ``, `"x"`,
		"0" + strings.Repeat("n", 255), `{"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" "` + strings.Repeat("n", 900) + `",}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, parameters string) {
		if len(parameters) > 1<<12 || !json.Valid([]byte(parameters)) && strings.ToValidUTF8(parameters, "") != parameters {
			return
		}
		tools := []openai.Tool{{Name: "f", Parameters: json.RawMessage(parameters)}}
		for _, m := range []Model{model(t, "o200k_base", kind.OpenAI, "gpt-5"), model(t, "upper_bound", kind.Anthropic, "claude")} {
			counted := m.Tools(tools, openai.ToolChoice{})
			least := 0
			if !json.Valid([]byte(parameters)) || !m.Tokenizer.Exact() {
				least = m.Tokenizer.Count(parameters)
			}
			check.That(t, int64(least) <= counted && counted <= 1<<41, "%s: counted %d of at least %d", m.ID, counted, least)
		}
	})
}

// BenchmarkTools counts the tools of the published call that has most of them; text is for
// what it would take to count their JSON alone.
func BenchmarkTools(b *testing.B) {
	calls, err := usage.Calls()
	check.OK(b, err)
	tools := slices.MaxFunc(calls, func(a, b usage.Call) int { return cmp.Compare(len(a.Tools), len(b.Tools)) }).Tools
	wire, err := json.Marshal(tools)
	check.OK(b, err)
	for _, name := range tokens.Names() {
		tokenizer, err := tokens.New(name)
		check.OK(b, err)
		m := Model{Tokenizer: tokenizer, Kind: kind.OpenAI, ID: "gpt-5"}
		for what, count := range map[string]func(){"tools": func() { m.Tools(tools, openai.ToolChoice{}) }, "text": func() { tokenizer.Count(string(wire)) }} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.SetBytes(int64(len(wire)))
				b.ReportAllocs()
				for b.Loop() {
					count()
				}
			})
		}
	}
}
