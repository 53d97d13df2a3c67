package upstream

import (
	"encoding/json"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/usage"
)

// The stand-in bills what OpenAI billed for real calls, nearly to the token: two answers
// of three within 1, and all within 8. Images are left out where real answers cost less
// than OpenAI's own rule says.
func TestInputIsCountedAsOpenAIDoes(t *testing.T) {
	calls, err := usage.Calls()
	check.OK(t, err)
	all, near := 0, 0
	for _, c := range calls {
		if c.Kind != kind.OpenAI || c.Tokenizer == "upper_bound" || c.Images == "gpt-5-mini" {
			continue
		}
		tokenizer, err := tokens.New(c.Tokenizer)
		check.OK(t, err)
		req := asRequest(c)
		got := int64(countPrompt(tokenizer, &req))
		check.That(t, got >= c.Reported-8 && got <= c.Reported+8, "%s, %s: counted %d, OpenAI %d", c.Source, c.Model, got, c.Reported)
		if all++; got >= c.Reported-1 && got <= c.Reported+1 {
			near++
		}
	}
	check.That(t, all >= 100 && 3*near >= 2*all, "%d of %d are near", near, all)
}

func asRequest(c usage.Call) (r request) {
	r.Model = c.Model
	if r.choice = (toolChoice{c.Choice.Mode, c.Choice.Name}); r.choice == (toolChoice{}) {
		r.choice.mode = "auto"
	}
	for _, t := range c.Tools {
		var as tool
		as.Function.Name, as.Function.Description, as.Function.Parameters = t.Name, t.Description, json.RawMessage(t.Parameters)
		r.Tools = append(r.Tools, as)
	}
	names := map[string]string{}
	for _, m := range c.Messages {
		as := requestMessage{Role: m.Role, text: m.Content}
		for _, call := range m.ToolCalls {
			var made requestCall
			made.Function.Name, made.Function.Arguments = call.Name, call.Arguments
			as.calls, names[call.ID] = append(as.calls, made), call.Name
		}
		as.answered = names[m.ToolCallID]
		for _, i := range m.Images {
			as.pictures = append(as.pictures, picture{i.Width, i.Height, i.Detail})
		}
		r.Messages = append(r.Messages, as)
	}
	return r
}
