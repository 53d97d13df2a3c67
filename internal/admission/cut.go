package admission

import (
	"slices"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// Cut is what an anonymous caller's request lost to fit the caps.
type Cut struct {
	Messages   int // that went whole
	Characters int // of the messages, those that went whole included
	Images     int
	Tools      int
	// Effort is what the wish for reasoning was lowered to; "": to nothing, so that the
	// model does as it likes. nil: it was not lowered.
	Effort *string
}

// cut keeps the newest messages, as many as the tier allows and whole while they fit both
// its characters and its tokens; what does not is shortened as far as it can be, and older
// ones go. A call of a tool and its result stay together, or go together. Of the images the
// newest are kept, as many as may be.
func (c *Call) cut(base int64) {
	o, all := c.Offer, c.Messages
	before, chars := amount(all), o.tier.MaxInputChars
	if chars == 0 {
		chars = 1 << 40 // no bound of its own: a body has fewer
	}
	budget, images := o.tier.MaxInputTokens-base, int(o.maxImages())
	kept := len(all)
	for kept > 0 {
		from := turn(all, kept)
		if int64(len(all)-from) > o.tier.MaxMessages {
			break
		}
		messages := all[from:kept]
		for i := len(messages) - 1; i >= 0; i-- {
			m := &messages[i]
			m.Images = m.Images[max(0, len(m.Images)-images):]
			images -= len(m.Images)
		}
		n, tokens := amount(messages).characters(), int64(0)
		if n <= chars { // counting what must be cut anyway would cost for nothing
			tokens = c.Candidates.count(messages...)
		}
		if n > chars || tokens > budget {
			c.TooMuch = true
			if c.shorten(messages, chars, budget) {
				kept = from
			}
			break
		}
		chars, budget = chars-n, budget-tokens
		kept = from
	}
	// What remains of a long conversation begins as one does: servers with a strict template
	// refuse one that begins with an answer. Where its text is too long, all that fits is kept.
	for tooMany := kept > 0 && !c.TooMuch; tooMany && kept < len(all) && all[kept].Role == "assistant"; {
		next := kept + 1
		for next < len(all) && all[next].Role == "tool" {
			next++
		}
		if next == len(all) {
			break
		}
		kept = next
	}
	c.Messages = all[kept:]
	after := amount(c.Messages)
	c.Cut.Messages, c.Cut.Characters, c.Cut.Images = kept, before.Characters-after.Characters, before.Images-after.Images
}

// amount is how much there is of what can be cut of messages.
func amount(messages []openai.Message) (a Cut) {
	for _, m := range messages {
		a.Characters += int(characters(m))
		a.Images += len(m.Images)
	}
	return a
}

func (c Cut) characters() int64 { return int64(c.Characters) }

// turn is where the messages begin that stay together with the last before end: with the
// results of tools the message that called them.
func turn(all []openai.Message, end int) int {
	end--
	for end > 0 && all[end].Role == "tool" {
		end--
	}
	return end
}

// shorten makes messages that stay together fit: first their texts lose their ends, the
// oldest first, until they fit chars; then their images go, the oldest first, while that
// leads to budget; then the texts lose more of their ends. It reports whether anything
// remains.
func (c *Call) shorten(messages []openai.Message, chars, budget int64) bool {
	bare := slices.Clone(messages) // without their texts
	for i := range bare {
		bare[i].Content = ""
	}
	if chars -= amount(bare).characters(); chars < 0 {
		return false
	}
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		n := int64(utf8.RuneCountInString(m.Content))
		m.Content = firstRunes(m.Content, chars)
		chars = max(0, chars-n)
	}
	texts := c.Candidates.count(messages...) - c.Candidates.count(bare...)
	for i := range bare {
		for m := &bare[i]; len(m.Images) > 0 && texts+c.Candidates.count(bare...) > budget; {
			m.Images = m.Images[1:]
		}
		messages[i].Images = bare[i].Images
	}
	if budget -= c.Candidates.count(bare...); budget < 0 {
		return false
	}
	remains := false
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		most := budget + c.Candidates.count(bare[i])
		if n := c.Candidates.count(*m); n <= most {
			budget = most - n
		} else {
			m.Content, budget = c.Candidates.head(*m, most), 0
		}
		remains = remains || m.Content != "" || len(m.Images)+len(m.ToolCalls) > 0
	}
	return remains
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
