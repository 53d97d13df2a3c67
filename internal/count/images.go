package count

import (
	"maps"
	"math"
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// Images is what an image costs of a model's input, at most. Either Rule is set, or Low
// and High are.
type Images struct {
	Low, High int64  // tokens, at the detail that is asked for
	Rule      string // one of ImageRules: how the provider reckons it of the pixels
}

// ImageRules gives the names of the rules. Each is a model for whose family the provider
// has published it.
func ImageRules() []string { return slices.Sorted(maps.Keys(rules)) }

// Of gives the tokens that image i costs at most. One whose size is not known costs what
// the dearest of its detail does.
func (i Images) Of(image openai.Image) int64 {
	low := image.Detail == "low"
	switch {
	case i.Rule == "" && low:
		return min(i.Low, i.Dearest())
	case i.Rule == "":
		return i.Dearest()
	}
	width, height := min(image.Width, largest), min(image.Height, largest)
	if width <= 0 || height <= 0 {
		width, height = 0, 0
	}
	return rules[i.Rule](int64(width), int64(height), image.Detail)
}

// Dearest gives the tokens that the dearest image costs.
func (i Images) Dearest() int64 {
	if i.Rule == "" {
		return max(i.Low, i.High)
	}
	return rules[i.Rule](0, 0, "")
}

// largest is a side, in pixels, that no image of a request has.
const largest = 1 << 20

// rule gives the tokens of an image of that many pixels; of 0 by 0, the most of any image.
type rule func(width, height int64, detail string) int64

// rules has them by name. Their sources:
//
//   - OpenAI: developers.openai.com/api/docs/guides/images-vision, "Calculating costs". What
//     is called auto may be any detail. The multiplier is the largest that was ever
//     published for the family; real answers show 1.2 where 1.62 is said.
//   - Anthropic: platform.claude.com/docs/en/build-with-claude/vision: a token for each
//     square of 28 pixels, of an image that was made to fit.
//   - Google: ai.google.dev/gemini-api/docs/image-understanding and .../media-resolution;
//     real answers show one tile more, for the image as a whole.
var rules = map[string]rule{
	"gpt-4o":      tiles(85, 170), // and 4.1, 4.5, 4-turbo
	"gpt-4o-mini": tiles(2833, 5667),
	"gpt-5":       tiles(70, 140), // and 5.1
	"o1":          tiles(75, 150), // and o3

	"gpt-4.1-mini": patches(162, budget{1536, 2048}, budget{1536, 2048}),
	"gpt-4.1-nano": patches(246, budget{1536, 2048}, budget{1536, 2048}),
	"gpt-5-mini":   patches(162, budget{1536, 2048}, budget{1536, 2048}),
	"gpt-5-nano":   patches(246, budget{1536, 2048}, budget{1536, 2048}),
	"o4-mini":      patches(172, budget{1536, 2048}, budget{1536, 2048}),
	"gpt-5.2":      patches(120, budget{1536, 2048}, budget{1536, 2048}),
	"gpt-5.4":      patches(120, budget{2500, 2048}, budget{10_000, 6000}),
	"gpt-5.6":      patches(120, budget{2500, 65_535}, budget{30_000, 65_535}), // an image beyond that is refused

	"claude":     squares(28, budget{1568, 1568}),
	"claude-4.7": squares(28, budget{4784, 2576}), // and all later ones

	"gemini":   crops,
	"gemini-3": func(int64, int64, string) int64 { return 1120 }, // at the resolution that is the default
}

// tiles is OpenAI's older rule: the image is made to fit in 2048 by 2048 pixels, and its
// shorter side in 768, and costs base tokens and tile for each square of 512 pixels. A
// smaller image stays as it is. base is all that it costs at low detail.
func tiles(base, tile int64) rule {
	return func(width, height int64, detail string) int64 {
		if detail == "low" {
			return base
		}
		if width == 0 {
			return base + 8*tile
		}
		long, short := max(width, height), min(width, height)
		num, den := int64(1), int64(1) // by which it shrinks
		if long > 2048 {
			num, den = 2048, long
		}
		if short*num > 768*den {
			num, den = 768, short
		}
		return base + tile*ceil(width*num, 512*den)*ceil(height*num, 512*den)
	}
}

// budget bounds what an image is shrunk to.
type budget struct {
	squares int64 // that may cover it
	side    int64 // its longer one, in pixels
}

// patches is OpenAI's newer rule: a square of 32 pixels is a patch, and each costs so many
// hundredths of a token. An image of low detail fits in 512 by 512 pixels, or is enlarged to
// it.
func patches(hundredths int64, high, auto budget) rule {
	return func(width, height int64, detail string) int64 {
		n := int64(16 * 16)
		switch detail {
		case "low":
		case "high":
			n = high.patches(width, height)
		default: // the model may choose
			n = max(n, high.patches(width, height), auto.patches(width, height))
		}
		return ceil(n*hundredths, 100)
	}
}

// patches shrinks the image as the guide says, in steps B and C.
func (b budget) patches(width, height int64) int64 {
	if width == 0 {
		return b.squares
	}
	const side = 32
	w, h := float64(width), float64(height)
	if long := max(width, height); long > b.side {
		w, h = w*float64(b.side)/float64(long), h*float64(b.side)/float64(long)
	}
	cover := func(w, h float64) float64 { return math.Ceil(w/side) * math.Ceil(h/side) }
	if cover(w, h) > float64(b.squares) {
		shrink := math.Sqrt(side * side * float64(b.squares) / (w * h))
		whole := func(n float64) float64 { return max(1, math.Floor(n/side)) / (n / side) }
		shrink *= min(whole(w*shrink), whole(h*shrink))
		w, h = math.Floor(w*shrink), math.Floor(h*shrink)
	}
	return min(b.squares, max(1, int64(cover(w, h))))
}

// squares is Anthropic's rule: an image costs a token for each square that it takes to
// cover it, when it is as large as the budget allows.
func squares(side int64, b budget) rule {
	return func(width, height int64, _ string) int64 {
		if width == 0 {
			return b.squares
		}
		long := max(width, height, b.side)
		across := ceil(width*b.side, side*long)
		down := ceil(height*b.side, side*long)
		for across*down > b.squares {
			// The image shrinks until it takes a column less, or a row.
			if (across-1)*height >= (down-1)*width {
				across--
			} else {
				down--
			}
		}
		return across * down
	}
}

// crops is Google's rule for Gemini 2: an image of up to 384 pixels a side costs 258 tokens.
// A larger one is cut into squares of two thirds of its shorter side, but no less than 256
// and no more than 768 pixels, which cost as much each; real answers have one more.
func crops(width, height int64, _ string) int64 {
	// most is for an image of 16384 by 384 pixels; of those that a request may have, none
	// takes more.
	const tile, most = 258, 64*2 + 1
	if width == 0 {
		return tile * most
	}
	if max(width, height) <= 384 {
		return tile
	}
	side := max(256, min(768, min(width, height)*2/3))
	return tile * min(most, 1+ceil(width, side)*ceil(height, side))
}

func ceil(n, by int64) int64 { return (n + by - 1) / by }
