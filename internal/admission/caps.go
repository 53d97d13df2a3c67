package admission

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// Prompt is what a caller asks of a feature, as far as its cost depends on it. Cap takes
// its messages over, and may shorten them.
type Prompt struct {
	Messages       []openai.Message
	MaxOutput      int64  // the output cap that was asked for, in tokens; 0: none was
	Format         int    // bytes of a response format beyond text; 0: there is none
	openai.Tooling        // what the caller says of tools
	Effort         string // of reasoning, one of openai.Efforts; "": not said
	// Inputs are the texts to embed, of a call that is for that. Messages are nil then.
	Inputs []string
}

// Call is a prompt within the caps of what is offered, and the most that it can use.
type Call struct {
	Offer          *Offer
	Candidates     candidates       // of the offer, those that can do what is asked
	Messages       []openai.Message // as they go upstream, the feature's system prompt first
	openai.Tooling                  // as it goes upstream
	OwnTools       bool             // its tools, if any, are the feature's own
	Effort         string           // likewise
	Inputs         []string         // of a call that embeds them
	Input          int64            // tokens, system prompt and framing included: exact, or an upper bound
	OfTools        int64            // of Input, what offering Tools costs
	MaxOutput      int64            // tokens
	Cut            Cut              // what did not fit; only of an anonymous caller
	TooMuch        bool             // some of it because the input was too long, not of too many messages
	Worst          Amount
	// End is when the call ends at the latest, by the real clock. The settle has
	// SettleMargin after it.
	End time.Time
}

// Images is how many images go upstream.
func (c *Call) Images() int { return amount(c.Messages).Images }

// Cap holds a prompt against the caps. An anonymous caller's input is cut to fit;
// anybody else's is refused if it does not.
func (o *Offer) Cap(p Prompt) (*Call, *Refusal) {
	if o.Feature.Model.Embeds != (p.Inputs != nil) {
		return nil, &Refusal{Kind: OtherAPI}
	}
	if p.Inputs != nil {
		return o.embed(p.Inputs)
	}
	tier, feature := o.tier, o.Feature
	anonymous := tier.Name == policy.Anonymous
	if n := int64(len(p.Messages)); n > tier.MaxMessages && !anonymous {
		return nil, &Refusal{Kind: TooManyMessages, Requested: n, Most: tier.MaxMessages}
	}
	if i := slices.IndexFunc(p.Messages, openai.Message.IsInstruction); i >= 0 && !feature.AllowSystem {
		return nil, &Refusal{Kind: SystemMessage, Message: i}
	}
	if p.Format > 0 && !feature.AllowResponseFormat {
		return nil, &Refusal{Kind: FormatNotTaken}
	}
	c := &Call{Offer: o, Messages: p.Messages, MaxOutput: o.MaxOutput()}
	if p.MaxOutput > 0 {
		c.MaxOutput = min(c.MaxOutput, p.MaxOutput)
	}
	for _, take := range []func(*Call, Prompt, bool) *Refusal{o.takeTools, o.takeImages, o.takeEffort} {
		if refusal := take(c, p, anonymous); refusal != nil {
			return nil, refusal
		}
	}

	c.Candidates = o.Candidates.able(c, p.Format > 0)
	c.OfTools = c.Candidates.countTools(c.Tooling, len(p.Tools) == 0)
	// A schema is shown to the model in a form that we do not know: its bytes are
	// an upper bound, with room for what introduces it.
	base := c.Candidates.base() + c.OfTools
	if p.Format > 0 {
		base += int64(p.Format) + formatFraming
	}
	if anonymous {
		c.cut(base)
	}
	c.Input = base + c.Candidates.count(c.Messages...)
	chars := amount(c.Messages).characters()
	switch {
	case tier.MaxInputChars > 0 && chars > tier.MaxInputChars:
		return nil, &Refusal{Kind: TooLong, Requested: chars, Most: tier.MaxInputChars}
	case c.Input > tier.MaxInputTokens:
		return nil, &Refusal{Kind: TooManyTokens, Requested: c.Input, Most: tier.MaxInputTokens}
	case len(c.Messages) == 0:
		return nil, &Refusal{Kind: NothingFits}
	}
	if feature.System != "" {
		c.Messages = append([]openai.Message{{Role: "system", Content: feature.System}}, c.Messages...)
	}
	c.Worst = c.Candidates.worstCase(c.Input, c.MaxOutput)
	return c, nil
}

// formatFraming is for what introduces a response format, in tokens.
const formatFraming = 64

// characters are those of a message that count: of its text, and of the calls of tools in
// it.
func characters(m openai.Message) int64 {
	n := utf8.RuneCountInString(m.Content)
	for _, c := range m.ToolCalls {
		n += utf8.RuneCountInString(c.Name) + utf8.RuneCountInString(c.Arguments)
	}
	return int64(n)
}
