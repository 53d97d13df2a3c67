package admission

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// Prompt is what a caller asks of a feature, as far as its cost depends on it.
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
	Messages       []openai.Message // as they go upstream, the feature's system prompt first
	openai.Tooling                  // as it goes upstream
	Inputs         []string         // of a call that embeds them
	Input          int64            // tokens, system prompt and framing included: exact, or an upper bound
	MaxOutput      int64            // tokens
	Dropped        int              // characters that were cut off an anonymous caller's input
	TooMuch        bool             // some of them because the input was too long, not of too many messages
	Worst          Amount
	// End is when the call ends at the latest, by the real clock. The settle has
	// SettleMargin after it.
	End time.Time
}

// Cap holds a prompt against the caps. An anonymous caller's input is cut to fit;
// anybody else's is refused if it does not.
func (o *Offer) Cap(p Prompt) (*Call, *Refusal) {
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

	// A schema is shown to the model in a form that we do not know: its bytes are
	// an upper bound, with room for what introduces it.
	base := o.baseInput
	if p.Format > 0 {
		base += int64(p.Format) + formatFraming
	}
	if anonymous {
		c.cut(base)
	}
	c.Input = base
	chars := int64(0)
	for _, m := range c.Messages {
		c.Input += o.count(m)
		chars += int64(utf8.RuneCountInString(m.Content))
	}
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
	c.Worst = o.worstCase(c.Input, c.MaxOutput)
	return c, nil
}

// formatFraming is for what introduces a response format, in tokens.
const formatFraming = 64

// cut keeps the newest messages, as many as the tier allows and whole while they fit both
// its characters and its tokens; the first that does not loses its end, and older ones go.
func (c *Call) cut(base int64) {
	o := c.Offer
	chars := o.tier.MaxInputChars
	if chars == 0 {
		chars = 1 << 40 // no bound of its own: a body has fewer
	}
	budget := o.tier.MaxInputTokens - base
	kept := len(c.Messages)
	oldest := max(0, kept-int(o.tier.MaxMessages))
	for kept > oldest {
		m := &c.Messages[kept-1]
		n := int64(utf8.RuneCountInString(m.Content))
		tokens := int64(0)
		if n <= chars { // counting what must be cut anyway would cost for nothing
			tokens = o.count(*m)
		}
		if n > chars || tokens > budget {
			c.TooMuch = true
			head := o.head(firstRunes(m.Content, chars), budget)
			if head != "" {
				c.Dropped += int(n) - utf8.RuneCountInString(head)
				m.Content = head
				kept--
			}
			break
		}
		chars, budget = chars-n, budget-tokens
		kept--
	}
	// What remains of a long conversation begins as one does: servers with a strict template
	// refuse one that begins with an answer. Where its text is too long, all that fits is kept.
	for tooMany := kept > 0 && !c.TooMuch; tooMany && kept < len(c.Messages)-1 && c.Messages[kept].Role == "assistant"; {
		kept++
	}
	for _, m := range c.Messages[:kept] {
		c.Dropped += utf8.RuneCountInString(m.Content)
	}
	c.Messages = c.Messages[kept:]
}

// firstRunes is the beginning of s, at most n code points long.
func firstRunes(s string, n int64) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
