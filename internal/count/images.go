package count

import (
	"maps"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// Images is what an image costs of a model's input, at most. Either Rule is set, or Low
// and High are.
type Images struct {
	Low, High int64  // tokens, at the detail that is asked for
	Rule      string // one of ImageRules: how the provider reckons it of the pixels
}

// ImageRules gives the names of the rules. Each is the model for whose family the
// provider has published it.
func ImageRules() []string { return slices.Sorted(maps.Keys(rules)) }

// Of gives the tokens that image i costs at most. One whose size is not known costs what
// the dearest of its detail does.
func (i Images) Of(image openai.Image) int64 {
	if i.Rule == "" {
		if image.Detail == "low" {
			return min(i.Low, i.Dearest())
		}
		return i.Dearest()
	}
	r := rules[i.Rule]
	width, height := image.Width, image.Height
	if width <= 0 || height <= 0 {
		width, height = r.dearest.x, r.dearest.y
	}
	return r.of(width, height, image.Detail)
}

// Dearest gives the tokens that the dearest image costs.
func (i Images) Dearest() int64 {
	if i.Rule == "" {
		return max(i.Low, i.High)
	}
	r := rules[i.Rule]
	return r.of(r.dearest.x, r.dearest.y, "")
}

// rule is how a provider reckons what an image costs.
type rule struct {
	of      func(width, height int, detail string) int64
	dearest struct{ x, y int } // a size for which no other costs more
}

func flat(most int64) rule {
	return rule{of: func(int, int, string) int64 { return most }}
}

// rules has them by name.
var rules = map[string]rule{
	"claude":       flat(1640),
	"claude-4.7":   flat(4930),
	"gemini":       flat(258 * 400),
	"gpt-4.1-mini": flat(2489),
	"gpt-4.1-nano": flat(3779),
	"gpt-4o":       flat(1445),
	"gpt-4o-mini":  flat(48169),
	"gpt-5":        flat(1190),
	"gpt-5-mini":   flat(2489),
	"gpt-5-nano":   flat(3779),
	"gpt-5.2":      flat(2489),
	"gpt-5.4":      flat(10000),
	"o1":           flat(1275),
	"o4-mini":      flat(2642),
}
