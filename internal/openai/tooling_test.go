package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// asSent is what a provider gets of req, as plain text of JSON.
func asSent(t *testing.T, req *ChatRequest) string {
	t.Helper()
	b, err := plain(req)
	check.Must(t, err == nil, "%v", err)
	return string(b)
}

// parsed reads a request that must be right, and holds it against what is sent of it.
func parsed(t *testing.T, body string) *ChatRequest {
	t.Helper()
	req, apiErr := ParseChat([]byte(body))
	check.Must(t, apiErr == nil, "%.500s: %+v", body, apiErr)
	again, apiErr := ParseChat([]byte(asSent(t, req)))
	check.Must(t, apiErr == nil, "sent and read again: %+v", apiErr)
	// The parts of a message are joined, so that an image may be another one's neighbour.
	check.Diff(t, cmp.Diff(req, again, cmpopts.IgnoreFields(Image{}, "Part")), "sent and read again")
	return req
}

// Tools are taken in all forms in which clients send them; of a schema nothing but the
// white space goes.
func TestTools(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","properties":{"b":{"type":"string","enum":["<&>","\u003c",1e2,null]},"a":{}},"required":["b","a"]}`
	deep := strings.Repeat(`{"properties":{"a":`, 10) + `{"enum":[1]}` + strings.Repeat(`}}`, 10)
	long := strings.Repeat("é", 4<<10)
	for _, tt := range []struct {
		tool string
		want Tool
	}{
		{`{"type":"function","function":{"name":"f"}}`, Tool{Name: "f"}},
		{`{"function":{"name":"F_9-"}}`, Tool{Name: "F_9-"}},
		{`{"type":null,"cache_control":{"type":"ephemeral"},"function":{"name":"f","cache_control":{}}}`, Tool{Name: "f"}},
		{`{"type":"function","function":{"name":"f","description":null,"parameters":null,"strict":null}}`, Tool{Name: "f"}},
		{`{"type":"function","function":{"name":"f","description":"","parameters":{},"strict":false}}`, Tool{Name: "f", Parameters: json.RawMessage(`{}`), Strict: new(false)}},
		{`{"function":{"strict":true,"parameters": ` + strings.ReplaceAll(schema, ",", " ,\n\t") + ` ,"description":"D","name":"` + strings.Repeat("a", 64) + `"},"type":"function"}`,
			Tool{Name: strings.Repeat("a", 64), Description: "D", Parameters: json.RawMessage(schema), Strict: new(true)}},
		{`{"function":{"name":"f","parameters":` + deep + `,"description":"` + long + `"}}`, Tool{Name: "f", Description: long, Parameters: json.RawMessage(deep)}},
		{`{"function":{"name":"f","parameters":{"a":"` + strings.Repeat(" ", 32<<10-8) + `"}}}`, Tool{Name: "f", Parameters: json.RawMessage(`{"a":"` + strings.Repeat(" ", 32<<10-8) + `"}`)}},
	} {
		req := parsed(t, with(`"tools":[{"function":{"name":"other"}},`+tt.tool+`]`))
		check.Diff(t, cmp.Diff([]Tool{{Name: "other"}, tt.want}, req.Tools), "%.100s", tt.tool)
		check.That(t, tt.want.Parameters == nil || strings.Contains(asSent(t, req), string(tt.want.Parameters)), "the schema was changed: %.500s", asSent(t, req))
	}
	most := parsed(t, with(`"tools":[`+numbered(128, `{"function":{"name":"f%"}}`)+`]`))
	check.Equal(t, len(most.Tools), 128, "tools")
}

// numbered is n copies of a text in which % is a number.
func numbered(n int, text string) string {
	var list []string
	for i := range n {
		list = append(list, strings.ReplaceAll(text, "%", string(rune('a'+i/26))+string(rune('a'+i%26))))
	}
	return strings.Join(list, ",")
}

// A choice is kept also where no tools are sent, since the feature may have its own.
func TestToolChoice(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]Tooling{
		`"tool_choice":"none"`:                                                             {ToolChoice: ToolChoice{Mode: "none"}},
		`"tool_choice":"auto","tools":[]`:                                                  {ToolChoice: ToolChoice{Mode: "auto"}},
		`"tool_choice":"required"`:                                                         {ToolChoice: ToolChoice{Mode: "required"}},
		`"tool_choice":{"type":"function","function":{"name":"f"}}`:                        {ToolChoice: ToolChoice{Name: "f"}},
		`"tool_choice":{"function":{"name":"f"}},"tools":[{"function":{"name":"f"}}]`:      {ToolChoice: ToolChoice{Name: "f"}, Tools: []Tool{{Name: "f"}}},
		`"parallel_tool_calls":false,"tool_choice":null`:                                   {ParallelToolCalls: new(false)},
		`"parallel_tool_calls":true,"tools":[{"type":"function","function":{"name":"f"}}]`: {ParallelToolCalls: new(true), Tools: []Tool{{Name: "f"}}},
	} {
		check.Diff(t, cmp.Diff(want, parsed(t, with(choice)).Tooling), "%s", choice)
	}
}

// What the model called, and what came of it, comes back in all forms in which clients keep
// it.
func TestCallsComeBack(t *testing.T) {
	t.Parallel()
	f := ToolCall{ID: "1", Name: "f", Arguments: `{"a":1}`}
	g := ToolCall{Index: 1, ID: "2", Name: "g"}
	const callF, callG = `{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}`, `{"id":"2","type":"function","function":{"name":"g","arguments":""}}`
	user, of1, of2 := Message{Role: "user", Content: "Hi"}, Message{Role: "tool", ToolCallID: "1", Content: "4"}, Message{Role: "tool", ToolCallID: "2"}
	const result1, result2 = `{"role":"tool","tool_call_id":"1","content":"4"}`, `{"role":"tool","tool_call_id":"2","content":""}`
	calls := func(content string, list ...ToolCall) Message {
		return Message{Role: "assistant", Content: content, ToolCalls: list}
	}
	for messages, want := range map[string][]Message{
		`{"role":"assistant","content":null,"tool_calls":[` + callF + `]},` + result1:                                                       {calls("", f), of1},
		`{"role":"assistant","tool_calls":[` + callF + `]},` + result1:                                                                      {calls("", f), of1},
		`{"tool_calls":[` + callF + `],"content":"","role":"assistant","refusal":null,"audio":null},` + result1:                             {calls("", f), of1},
		`{"role":"assistant","content":[],"tool_calls":[` + callF + `]},` + result1:                                                         {calls("", f), of1},
		`{"role":"assistant","content":[{"type":"text","text":"So: "},{"type":"text","text":"f"}],"tool_calls":[` + callF + `]},` + result1: {calls("So: f", f), of1},

		// Pieces of a stream that were put together, without what comes once or not at all.
		`{"role":"assistant","tool_calls":[{"index":0,"id":"1","type":null,"function":{"name":"f","arguments":"{\"a\":1}","parsed_arguments":{"a":1}}},
			{"index":1,"id":"2","function":{"name":"g","arguments":null}}]},` + result2 + `,` + result1: {calls("", f, g), of2, of1},

		// Results, also of several rounds whose calls are numbered alike.
		`{"role":"assistant","tool_calls":[` + callF + `,` + callG + `]},` + result1 + `,` + result2:                                                                       {calls("", f, g), of1, of2},
		`{"role":"assistant","tool_calls":[` + callF + `]},{"role":"tool","name":"f","tool_call_id":"1","content":[{"type":"text","text":""},{"type":"text","text":"4"}]}`: {calls("", f), of1},
		`{"role":"assistant","tool_calls":[` + callF + `]},` + result1 + `,{"role":"assistant","tool_calls":[` + callF + `]},` + result1:                                   {calls("", f), of1, calls("", f), of1},
		`{"role":"assistant","content":"a","tool_calls":[]},{"role":"user","content":"Hi","tool_calls":[],"tool_call_id":""}`:                                              {calls("a"), user},
	} {
		req := parsed(t, `{"model":"open","messages":[{"role":"user","content":"Hi"},`+messages+`]}`)
		check.Diff(t, cmp.Diff(append([]Message{user}, want...), req.Messages), "%s", messages)
	}
}

func TestEfforts(t *testing.T) {
	t.Parallel()
	for _, effort := range Efforts {
		check.Equal(t, parsed(t, with(`"reasoning_effort":"`+effort+`"`)).ReasoningEffort, effort, "effort")
	}
}
