package chatapi

import (
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Pieces of several calls may come one between the other.
func TestReplyCollectsCalls(t *testing.T) {
	t.Parallel()
	var all reply
	for _, p := range []provider.Part{
		{Content: "I will "},
		{ToolCalls: []openai.ToolCall{{Index: 1, ID: "b", Name: "find"}}},
		{ToolCalls: []openai.ToolCall{{Index: 0, ID: "a", Name: "add", Arguments: `{"x":`}, {Index: 1, Arguments: `{}`}}},
		{Content: "ask.", ToolCalls: []openai.ToolCall{{Index: 0, Arguments: `1}`}}},
	} {
		all.add(p)
	}
	m := openai.Reply{Role: "assistant", Content: new(all.content.String()), ToolCalls: all.toolCalls()}
	check.Equal(t, string(openai.Encode(m)), `{"role":"assistant","content":"I will ask.","refusal":null,"tool_calls":[`+
		`{"id":"a","type":"function","function":{"name":"add","arguments":"{\"x\":1}"}},`+
		`{"id":"b","type":"function","function":{"name":"find","arguments":"{}"}}]}`, "message")
	check.That(t, new(reply).toolCalls() == nil, "calls of an answer without any")
}
