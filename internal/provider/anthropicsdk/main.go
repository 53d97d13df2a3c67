// Command anthropicsdk asks a server with Anthropic's own client, and prints what the
// client read. The tests of package provider learn by it whether their servers speak
// as Anthropic does, and what the client sends.
//
// It is a module of its own, so that the product's module needs nothing of the client.
//
//	anthropicsdk (whole|stream) URL API_KEY PROMPT [tools]
//
// With tools it asks in the course of a conversation with images and calls of tools.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

func main() {
	if len(os.Args) < 5 {
		log.Fatal("usage: anthropicsdk (whole|stream) URL API_KEY PROMPT [tools]")
	}
	form, url, key, prompt := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	client := anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithBaseURL(url), option.WithAPIKey(key), option.WithMaxRetries(0))
	var read struct {
		Texts      []string        `json:"texts"` // one for each block of content
		Calls      [][3]string     `json:"calls"` // id, name and input of each
		StopReason string          `json:"stop_reason"`
		Input      int64           `json:"input_tokens"`
		Output     int64           `json:"output_tokens"`
		Events     int             `json:"events"`
		Error      json.RawMessage `json:"error,omitempty"` // as the server sent it
	}
	params := anthropic.MessageNewParams{
		Model: "m-1", MaxTokens: 100,
		System:        []anthropic.TextBlockParam{{Text: "Be brief."}},
		StopSequences: []string{"END"},
		Messages:      []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
	}
	if len(os.Args) > 5 {
		addTools(&params)
	}
	message, events, err := ask(client, form == "stream", params)
	read.Events = events
	if sent, ok := errors.AsType[*anthropic.Error](err); ok {
		read.Error = json.RawMessage(sent.RawJSON())
	} else if err != nil {
		log.Fatal(err)
	} else {
		for _, block := range message.Content {
			if block.Type == "tool_use" {
				read.Calls = append(read.Calls, [3]string{block.ID, block.Name, string(block.Input)})
				continue
			}
			read.Texts = append(read.Texts, block.Text)
		}
		read.StopReason, read.Input, read.Output = string(message.StopReason), message.Usage.InputTokens, message.Usage.OutputTokens
	}
	if err := json.NewEncoder(os.Stdout).Encode(read); err != nil {
		log.Fatal(err)
	}
}

func addTools(p *anthropic.MessageNewParams) {
	p.Messages[0].OfUser.Content = append(p.Messages[0].OfUser.Content,
		anthropic.NewImageBlockBase64("image/gif", "R0lGODlhAQABAAAAADs="), anthropic.NewImageBlock(anthropic.URLImageSourceParam{URL: "https://example.com/a.png"}))
	result := func(id string, content ...anthropic.ToolResultBlockParamContentUnion) anthropic.ContentBlockParamUnion {
		return anthropic.ContentBlockParamUnion{OfToolResult: &anthropic.ToolResultBlockParam{ToolUseID: id, Content: content}}
	}
	p.Messages = append(p.Messages,
		anthropic.NewAssistantMessage(anthropic.NewTextBlock("Wait."),
			anthropic.NewToolUseBlock("call_1", map[string]any{"city": "Paris"}, "weather"), anthropic.NewToolUseBlock("call_2", map[string]any{}, "time")),
		anthropic.NewUserMessage(result("call_1", anthropic.ToolResultBlockParamContentUnion{OfText: &anthropic.TextBlockParam{Text: "warm"}}), result("call_2"), anthropic.NewTextBlock("And now?")))
	p.Tools = []anthropic.ToolUnionParam{
		{OfTool: &anthropic.ToolParam{Name: "weather", Description: anthropic.String("Tells it."), Strict: anthropic.Bool(true),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"}}}},
		{OfTool: &anthropic.ToolParam{Name: "time", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{}}}},
	}
	p.ToolChoice = anthropic.ToolChoiceUnionParam{OfAny: &anthropic.ToolChoiceAnyParam{DisableParallelToolUse: anthropic.Bool(true)}}
	p.OutputConfig = anthropic.OutputConfigParam{Effort: anthropic.OutputConfigEffortLow}
}

func ask(client anthropic.Client, stream bool, params anthropic.MessageNewParams) (message *anthropic.Message, events int, err error) {
	ctx := context.Background()
	if !stream {
		message, err = client.Messages.New(ctx, params)
		return message, 0, err
	}
	s := client.Messages.NewStreaming(ctx, params)
	message = new(anthropic.Message)
	for ; s.Next(); events++ {
		if err := message.Accumulate(s.Current()); err != nil {
			return nil, events, err
		}
	}
	return message, events, s.Err()
}
