package upstream

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What OpenAI reported for real calls: those with cl100k_base of gpt-3.5-turbo
// (github.com/hmarr/openai-chat-tokens), those with o200k_base of gpt-4o (OpenAI's
// cookbook, "How to count tokens with tiktoken").
func TestToolsAreCountedAsOpenAIDoes(t *testing.T) {
	const (
		hello = `{"role":"user","content":"hello"}`
		there = `{"role":"system","content":"Hello"},{"role":"user","content":"Hi there"}`
		empty = `{"type":"object","properties":{}}`
	)
	tool := func(name, description, parameters string) string {
		return fmt.Sprintf(`{"type":"function","function":{"name":%q,"description":%q,"parameters":%s}}`, name, description, parameters)
	}
	foo, stuff := tool("foo", "", empty), tool("do_stuff", "", empty)
	for _, tt := range []struct {
		encoding, messages, tools, more string
		want                            int
	}{
		{"cl100k_base", hello, "", "", 8},
		{"cl100k_base", hello, foo, "", 31},
		{"cl100k_base", hello, foo, `,"tool_choice":"none"`, 32},
		{"cl100k_base", hello, foo, `,"tool_choice":"auto"`, 31},
		{"cl100k_base", hello, foo, `,"tool_choice":{"type":"function","function":{"name":"foo"}}`, 36},
		{"cl100k_base", hello, tool("foo", "Do a foo", empty), "", 36},
		{"cl100k_base", hello, tool("bing_bong", "Do a bing bong", `{"type":"object","properties":{"foo":{"type":"string"}}}`), "", 49},
		{"cl100k_base", hello, tool("bing_bong", "Do a bing bong", `{"type":"object","properties":{"foo":{"type":"string"},"bar":{"type":"number","description":"A number"}}}`), "", 57},
		{"cl100k_base", hello, tool("bing_bong", "Do a bing bong", `{"type":"object","properties":{"foo":{"type":"object","properties":{"bar":{"type":"string","enum":["a","b","c"]},"baz":{"type":"boolean"}}}}}`), "", 68},
		{"cl100k_base", there, tool("do_stuff", "", `{"type":"object","properties":{"foo":{"anyOf":[{"type":"object","properties":{"kind":{"type":"string","const":"a"},"baz":{"type":"boolean"}}}]}}}`), "", 52},
		{"cl100k_base", there, tool("do_stuff", "", `{"type":"object","properties":{"foo":{"anyOf":[{"type":"string","const":"a"},{"type":"number"}]}}}`), "", 44},
		{"cl100k_base", there, stuff, "", 35},
		{"cl100k_base", strings.Replace(there, "Hello", "Hello:", 1), stuff, "", 35},
		{"cl100k_base", `{"role":"system","content":"Hello:"},` + there, stuff + "," + tool("do_other_stuff", "", empty), "", 49},
		{"cl100k_base", `{"role":"system","content":"Hello:"},` + there, stuff + "," + tool("do_other_stuff", "", empty), `,"tool_choice":{"type":"function","function":{"name":"do_stuff"}}`, 55},
		{"cl100k_base", hello, tool("get_recipe", "", `{"type":"object","required":["ingredients","instructions","time_to_cook"],"properties":{
			"ingredients":{"type":"array","items":{"type":"object","required":["name","unit","amount"],"properties":{"name":{"type":"string"},
				"unit":{"enum":["grams","ml","cups","pieces","teaspoons"],"type":"string"},"amount":{"type":"number"}}}},
			"instructions":{"type":"array","items":{"type":"string"},"description":"Steps to prepare the recipe (no numbering)"},
			"time_to_cook":{"type":"number","description":"Total time to prepare the recipe in minutes"}}}`), "", 106},
		{"cl100k_base", hello, tool("function", "description", `{"type":"object","properties":{"quality":{"type":"object","properties":{
			"pros":{"type":"array","items":{"type":"string"},"description":"Write 3 points why this text is well written"}}}}}`), "", 46},
		{"o200k_base", `{"role":"system","content":"You are a helpful assistant that can answer to questions about the weather."},{"role":"user","content":"What's the weather like in San Francisco?"}`,
			tool("get_current_weather", "Get the current weather in a given location", `{"type":"object","properties":{
			"location":{"type":"string","description":"The city and state, e.g. San Francisco, CA"},
			"unit":{"type":"string","description":"The unit of temperature to return","enum":["celsius","fahrenheit"]}},"required":["location"]}`), "", 101},
	} {
		var req request
		body := fmt.Sprintf(`{"model":"m","max_tokens":9,"messages":[%s]%s}`, tt.messages, tt.more)
		if tt.tools != "" {
			body = strings.Replace(body, "{", `{"tools":[`+tt.tools+`],`, 1)
		}
		check.Must(t, json.Unmarshal([]byte(body), &req) == nil && req.check() == nil, "%s: %+v", body, req.check())
		tokenizer, err := tokens.New(tt.encoding)
		check.OK(t, err)
		got := countPrompt(tokenizer, &req)
		check.That(t, got == tt.want, "%s:\n%s\ncounted %d, OpenAI %d", body, declarations(req.Tools), got, tt.want)
	}
}

// The same source has results and calls by themselves, which no request may.
func TestCallsAndResultsAreCountedAsOpenAIDoes(t *testing.T) {
	tokenizer, err := tokens.New("cl100k_base")
	check.OK(t, err)
	hello := requestMessage{Role: "user", text: "hello world"}
	call := func(arguments string) (m requestMessage) {
		m.calls = make([]requestCall, 1)
		m.calls[0].Function.Name, m.calls[0].Function.Arguments = "do_stuff", arguments
		return m
	}
	for _, tt := range []struct {
		messages []requestMessage
		want     int
	}{
		{[]requestMessage{hello, {Role: "tool", answered: "do_stuff", text: `{}`}}, 15},
		{[]requestMessage{hello, {Role: "tool", answered: "do_stuff", text: `{"foo": "bar", "baz": 1.5}`}}, 28},
		{[]requestMessage{{Role: "tool", answered: "dance_the_tango", text: `{"a": { "b" : { "c": false}}}`}}, 24},
		{[]requestMessage{call(`{"foo": "bar", "baz": 1.5}`)}, 26},
		{[]requestMessage{call(`{"foo":"bar", "baz":` + "\n\n" + ` 1.5}`)}, 25},
	} {
		check.Equal(t, countPrompt(tokenizer, &request{Messages: tt.messages}), tt.want, "%s", tt.messages[len(tt.messages)-1].text)
	}
}
