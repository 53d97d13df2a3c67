// Package usage has the published usage of real calls with tools, calls of tools and
// images, to hold the count of package count against; and of calls with neither, to models
// whose templates are not known.
//
// calls.jsonl has a call a line: where it was published, the request as far as it costs
// input, and the input tokens that the provider reported for all of it. The prose of
// messages and descriptions is not that of the call, but as long: line by line as many
// tokens, or as many bytes where the tokenizer is not known. Most calls are from answers
// that open-source projects recorded for their tests:
//
//   - hmarr/openai-chat-tokens at b8e3b11 and pamelafox/openai-messages-token-helper at
//     b60075e, whose tests were made of OpenAI's answers;
//   - pydantic/pydantic-ai at 4fda389, traceloop/openllmetry at 93429cf and
//     open-telemetry/opentelemetry-python-contrib at 466ae4c, which recorded whole exchanges.
//     The number after the file is that of the exchange in it.
//
// Left out are calls with what this count is not of: response formats, files, searches that
// the provider made, tools that are no functions, and Grok 4, whose hidden prompt has 684
// tokens.
package usage

import (
	"bytes"
	_ "embed"
	"encoding/json"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

//go:embed calls.jsonl
var calls []byte

// Call is a call whose usage was published.
type Call struct {
	Source    string
	Kind      kind.Kind // by whose API it was made
	Model     string
	Tokenizer string // one of tokens.Names
	Images    string // one of count.ImageRules, if there are images
	Messages  []openai.Message
	Tools     []openai.Tool
	Choice    openai.ToolChoice
	Reported  int64  // input tokens, cached ones among them
	Note      string // why the model was shown less than others are
}

// Calls gives all of them.
func Calls() (list []Call, err error) {
	for lines := json.NewDecoder(bytes.NewReader(calls)); lines.More(); {
		var c Call
		if err := lines.Decode(&c); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// Counted gives the tokens that we count for the whole of its input.
func (c Call) Counted() (int64, error) {
	tokenizer, err := tokens.New(c.Tokenizer)
	if err != nil {
		return 0, err
	}
	m := count.Model{Tokenizer: tokenizer, Kind: c.Kind, ID: c.Model}
	n := m.Base() + m.Tools(c.Tools, c.Choice)
	for _, message := range c.Messages {
		n += m.Message(message)
		for _, i := range message.Images {
			n += count.Images{Rule: c.Images}.Of(i)
		}
	}
	return n, nil
}
