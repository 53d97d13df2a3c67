package upstream

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/openai"
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
		as.Function.Name, as.Function.Description, as.Function.Parameters = t.Name, t.Description, t.Parameters
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

// What the stand-in bills is never above what tokenfuse counts before the call.
func TestInputIsCountedFromAbove(t *testing.T) {
	rules := map[string]string{"gpt-4o": "gpt-4o", "gpt-4.1-mini": "gpt-4.1-mini", "gpt-5": "gpt-5", "gpt-5-nano": "gpt-5-nano", "gpt-5.2": "gpt-5.2", "gpt-5.4": "gpt-5.4", "o4-mini": "o4-mini"}
	tokenizer := tokenizer(t)
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.SampledFrom(slices.Sorted(maps.Keys(rules))).Draw(t, "model")
		text := rapid.StringN(0, 40, -1)
		c := usage.Call{Kind: kind.OpenAI, Model: model, Tokenizer: "o200k_base", Images: rules[model]}
		c.Choice = rapid.SampledFrom([]openai.ToolChoice{{}, {Mode: "none"}, {Mode: "required"}, {Name: "get_weather"}}).Draw(t, "choice")
		for i := range rapid.IntRange(0, 3).Draw(t, "tools") {
			parameters := fmt.Sprintf(`{"type":"object","properties":{"a b":%s,"c":%s},"required":["c"]}`, schemas(2).Draw(t, "a"), schemas(1).Draw(t, "c"))
			c.Tools = append(c.Tools, openai.Tool{Name: fmt.Sprintf("tool_%d", i), Description: text.Draw(t, "description"), Parameters: []byte(parameters)})
		}
		c.Messages = []openai.Message{{Role: "system", Content: text.Draw(t, "system")}, {Role: "user", Content: text.Draw(t, "user")}}
		for range rapid.IntRange(0, 2).Draw(t, "images") {
			side := rapid.IntRange(1, 6000)
			c.Messages[1].Images = append(c.Messages[1].Images, openai.Image{Type: "image/png", Width: side.Draw(t, "width"), Height: side.Draw(t, "height"),
				Detail: rapid.SampledFrom([]string{"", "auto", "low", "high"}).Draw(t, "detail")})
		}
		var made openai.Message
		for i := range rapid.IntRange(0, 3).Draw(t, "calls") {
			made.ToolCalls = append(made.ToolCalls, openai.ToolCall{ID: fmt.Sprint(i), Name: "tool_0", Arguments: text.Draw(t, "arguments")})
		}
		if made.Role = "assistant"; len(made.ToolCalls) > 0 {
			c.Messages = append(c.Messages, made)
		}
		for _, call := range made.ToolCalls {
			c.Messages = append(c.Messages, openai.Message{Role: "tool", ToolCallID: call.ID, Content: text.Draw(t, "result")})
		}
		counted, err := c.Counted()
		check.OK(t, err)
		req := asRequest(c)
		billed := countPrompt(tokenizer, &req)
		check.That(t, int64(billed) <= counted, "billed %d, counted %d: %+v", billed, counted, c)
	})
}
