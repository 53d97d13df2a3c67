package admission

import (
	"encoding/json"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/count"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// Candidate is a model that may answer.
type Candidate struct {
	Model     *policy.Model
	Tokenizer *tokens.Tokenizer

	counts count.Model
	// What every call to the feature costs of the input, in tokens, counted once: the system
	// prompt and the framing of any request; and the feature's own tools.
	base, ownTools int64
}

func newCandidate(m *policy.Model, f *policy.Feature) (Candidate, error) {
	tokenizer, err := tokens.New(m.Tokenizer)
	if err != nil {
		return Candidate{}, err
	}
	c := Candidate{Model: m, Tokenizer: tokenizer, counts: count.Model{Tokenizer: tokenizer, Kind: m.Provider.Kind, ID: m.ID}}
	c.base = c.counts.Base()
	if f.System != "" {
		c.base += c.count(openai.Message{Role: "system", Content: f.System})
	}
	c.ownTools = c.counts.Tools(f.Tools, openai.ToolChoice{})
	return c, nil
}

// count is what a message costs of the input, framing and images included.
func (c Candidate) count(m openai.Message) int64 {
	n := c.counts.Message(m)
	for _, i := range m.Images {
		if c.Model.Images != nil { // as of each model of a feature that takes images
			n += c.Model.Images.Of(i)
		}
	}
	return n
}

// candidates are those that may answer a call. What is counted and reserved is the most of
// them, whichever answers.
type candidates []Candidate

func (list candidates) most(of func(Candidate) int64) (most int64) {
	for _, c := range list {
		most = max(most, of(c))
	}
	return most
}

// able are those that can do what is asked: the first, since it is asked in any case, and of
// the rest those that it is not impossible for.
func (list candidates) able(c *Call, format bool) candidates {
	r := &openai.ChatRequest{Messages: c.Messages, Tooling: c.Tooling}
	if format {
		r.ResponseFormat = json.RawMessage("{}")
	}
	for i := len(list) - 1; i > 0; i-- {
		if list[i].Model.Provider.Kind.Impossible(r) != "" {
			list = slices.Delete(slices.Clone(list), i, i+1)
		}
	}
	return list
}

func (list candidates) base() int64 { return list.most(func(c Candidate) int64 { return c.base }) }

// count is what messages cost of the input.
func (list candidates) count(messages ...openai.Message) (sum int64) {
	for _, m := range messages {
		sum += list.most(func(c Candidate) int64 { return c.count(m) })
	}
	return sum
}

// countTools is what offering tools costs, with the choice among them. The feature's own
// are not counted again.
func (list candidates) countTools(t openai.Tooling, own bool) int64 {
	return list.most(func(c Candidate) int64 {
		if own {
			return c.ownTools + c.counts.Choice(t.ToolChoice)
		}
		return c.counts.Tools(t.Tools, t.ToolChoice)
	})
}

// head is the beginning of m's content with which m costs at most budget tokens.
func (list candidates) head(m openai.Message, budget int64) string {
	for _, c := range list {
		bare := m
		bare.Content = ""
		room := budget - c.count(bare)
		m.Content = c.Tokenizer.Cut(m.Content, int(room))
		// What stands between images counts by itself, and may count more than in one.
		for over := c.count(m) - budget; m.Content != "" && over > 0; over = c.count(m) - budget {
			room -= over
			m.Content = c.Tokenizer.Cut(m.Content, int(room))
		}
	}
	return m.Content
}

// worstCase is the most that a call can use.
func (list candidates) worstCase(input, maxOutput int64) Amount {
	return Amount{Tokens: input + maxOutput, Results: 1,
		Money: price.Pico(list.most(func(c Candidate) int64 { return int64(c.Model.Prices.WorstCase(input, maxOutput)) }))}
}
