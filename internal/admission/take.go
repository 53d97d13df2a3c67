package admission

import (
	"fmt"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// takeTools sets what goes upstream of tools: the caller's, where they may send some, or
// else the feature's own, which callers can choose among but not change.
func (o *Offer) takeTools(c *Call, p Prompt, cut bool) *Refusal {
	f, most := o.Feature, o.tier.MaxTools
	mayCall := f.AllowTools && most > 0 || len(f.Tools) > 0
	notTaken := func(field string) *Refusal {
		if !f.AllowTools {
			return &Refusal{Kind: ToolsNotTaken, Field: field}
		}
		return &Refusal{Kind: ToolsClosed, Field: field}
	}
	for i, m := range p.Messages {
		switch {
		case mayCall:
		case m.Role == "tool":
			return notTaken(fmt.Sprintf("messages[%d].role", i))
		case len(m.ToolCalls) > 0:
			return notTaken(fmt.Sprintf("messages[%d].tool_calls", i))
		}
	}
	c.Tooling = p.Tooling
	switch n := int64(len(p.Tools)); {
	case n == 0:
		c.Tools, c.OwnTools = f.Tools, true
	case mayCall && !(f.AllowTools && most > 0):
		return &Refusal{Kind: ToolsFixed}
	case !mayCall:
		return notTaken("tools")
	case n > most && !cut:
		return &Refusal{Kind: TooManyTools, Requested: n, Most: most}
	case n > most:
		c.Tools, c.Cut.Tools = p.Tools[:most], int(n-most)
	}
	choice := c.ToolChoice
	switch {
	case choice.Name == "" && choice.Mode != "required":
	case !mayCall:
		return notTaken("tool_choice")
	case len(c.Tools) == 0, choice.Name != "" && !slices.ContainsFunc(c.Tools, func(t openai.Tool) bool { return t.Name == choice.Name }):
		return &Refusal{Kind: ToolNotOffered}
	}
	if len(c.Tools) == 0 {
		c.Tooling = openai.Tooling{} // what asks for nothing is nothing to a provider, too
	}
	return nil
}

// takeImages refuses images where none are taken, and too many of them.
func (o *Offer) takeImages(_ *Call, p Prompt, cut bool) *Refusal {
	n := int64(0)
	for i, m := range p.Messages {
		for _, image := range m.Images {
			field := fmt.Sprintf("messages[%d].content[%d]", i, image.Part)
			switch {
			case !o.Feature.AllowImages && !o.Feature.AllowImageURLs:
				return &Refusal{Kind: ImagesNotTaken, Field: field + ".type"}
			case o.maxImages() == 0:
				return &Refusal{Kind: ImagesClosed, Field: field + ".type"}
			case image.Remote() && !o.Feature.AllowImageURLs:
				return &Refusal{Kind: ImageURLNotTaken, Field: field + ".image_url.url"}
			}
			n++
		}
	}
	if most := o.maxImages(); n > most && !cut {
		return &Refusal{Kind: TooManyImages, Requested: n, Most: most}
	}
	return nil
}

// maxImages is the most images of a call.
func (o *Offer) maxImages() int64 { return min(o.Feature.MaxImages, o.tier.MaxImages) }

// takeEffort sets how much the model is asked to reason, among what the feature offers. An
// anonymous caller's wish is lowered to that.
func (o *Offer) takeEffort(c *Call, p Prompt, cut bool) *Refusal {
	offered := o.Feature.Efforts
	switch {
	case p.Effort == "":
	case len(offered) == 0:
		return &Refusal{Kind: EffortNotTaken}
	case slices.Contains(offered, p.Effort):
		c.Effort = p.Effort
	case !cut:
		return &Refusal{Kind: EffortNotOffered, Offered: offered}
	default:
		asked := slices.Index(openai.Efforts, p.Effort)
		for _, effort := range openai.Efforts[:max(0, asked)] {
			if slices.Contains(offered, effort) {
				c.Effort = effort
			}
		}
		c.Cut.Effort = new(c.Effort)
	}
	return nil
}
