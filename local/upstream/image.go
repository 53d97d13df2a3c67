package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // the formats that DecodeConfig knows
	_ "image/jpeg"
	_ "image/png"
	"math"
	"slices"
	"strings"
)

// maxImage is the largest image, in bytes.
const maxImage = 20 << 20

// picture is an image as a model is billed for it.
type picture struct {
	width, height int    // pixels
	detail        string // low, high, auto, or "" for auto
}

// unseen is taken for what an http URL shows, which nobody fetches.
var unseen = picture{width: 1024, height: 1024}

// imageURL is what a part of the type image_url holds.
type imageURL struct {
	URL    string  `json:"url"`
	Detail *string `json:"detail"`
}

// readImage gives the picture at a URL.
func readImage(i *imageURL, at string) (p picture, _ *problem) {
	if i.URL == "" {
		return p, missing(at + ".url")
	}
	if i.Detail != nil && !slices.Contains([]string{"low", "high", "auto"}, *i.Detail) {
		return p, invalid(at+".detail", "invalid_value", "Invalid value: '%s'. Supported values are: 'low', 'high', and 'auto'.", *i.Detail)
	}
	p, problem := imageAt(i.URL, at+".url")
	if i.Detail != nil {
		p.detail = *i.Detail
	}
	return p, problem
}

func imageAt(url, at string) (picture, *problem) {
	but := func(format string, args ...any) (picture, *problem) {
		return picture{}, invalid(at, "invalid_value", "Invalid image URL: '%s'. Expected a base64-encoded data URL with an image MIME type "+
			"(e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got %s.", at, fmt.Sprintf(format, args...))
	}
	if strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://") {
		return unseen, nil
	}
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return but("a value without the 'data:' prefix")
	}
	kind, data, ok := strings.Cut(rest, ";base64,")
	if !ok {
		return but("a value without the 'base64' encoding")
	}
	if !slices.Contains([]string{"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"}, kind) {
		return but("unsupported MIME type '%s'", kind)
	}
	if data == "" {
		return but("empty base64-encoded bytes")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return but("an invalid base64-encoded value")
	}
	if len(raw) > maxImage {
		return picture{}, invalid("", "image_too_large", "You uploaded an unsupported image. Please make sure your image is below 20 MB in size "+
			"and is of one the following formats: ['png', 'jpeg', 'gif', 'webp'].")
	}
	p, ok := measure(raw)
	if !ok {
		return picture{}, invalid("", "invalid_image_format", "You uploaded an unsupported image. Please make sure your image has of one the following formats: ['png', 'jpeg', 'gif', 'webp'].")
	}
	return p, nil
}

// measure reads the size of an image from its header, whatever its label says.
func measure(raw []byte) (picture, bool) {
	if p, ok := measureWebP(raw); ok {
		return p, true
	}
	config, format, err := image.DecodeConfig(bytes.NewReader(raw))
	known := slices.Contains([]string{"png", "jpeg", "gif"}, format)
	return picture{width: config.Width, height: config.Height}, err == nil && known && config.Width > 0 && config.Height > 0
}

// measureWebP reads the three forms of a WebP header: lossy, lossless and extended.
func measureWebP(raw []byte) (picture, bool) {
	const header = 30 // the longest of the three; an image has more bytes than that
	if len(raw) < header || string(raw[:4]) != "RIFF" || string(raw[8:12]) != "WEBP" {
		return picture{}, false
	}
	form, data := string(raw[12:16]), raw[20:]
	little := binary.LittleEndian
	switch {
	case form == "VP8 " && string(data[3:6]) == "\x9d\x01\x2a":
		const size = 1<<14 - 1 // above it are two bits of a scale
		p := picture{width: int(little.Uint16(data[6:]) & size), height: int(little.Uint16(data[8:]) & size)}
		return p, p.width > 0 && p.height > 0
	case form == "VP8L" && data[0] == 0x2f:
		const size = 1<<14 - 1
		bits := little.Uint32(data[1:])
		return picture{width: int(bits&size) + 1, height: int(bits>>14&size) + 1}, true
	case form == "VP8X":
		const size = 1<<24 - 1
		return picture{width: int(little.Uint32(data[4:])&size) + 1, height: int(little.Uint32(data[6:])>>8) + 1}, true
	}
	return picture{}, false
}

// imageRule is how a family of models bills an image. OpenAI has published both kinds
// ("Images and vision", model sizing behavior and calculating costs).
type imageRule struct {
	family     string  // how the ids of its models begin
	base, tile int     // tokens: of an image, and of each tile of 512 pixels
	patch      float64 // tokens of each patch of 32 pixels, in place of both; 0: tiles
	high, auto budget
}

// budget bounds an image that is cut into patches: a larger one is made smaller before.
type budget struct {
	patches, side float64 // the side in pixels
}

var (
	small    = budget{1536, 2048}
	medium   = budget{2500, 2048}
	original = budget{10_000, 6000}
	whole    = budget{math.Inf(1), math.Inf(1)}
)

// imageRules has longer names first. The last is for all other models. A patch of the
// models that are in no table of multipliers costs 1.2 tokens in real answers.
var imageRules = []imageRule{
	{family: "gpt-4.1-mini", patch: 1.62, high: small, auto: small},
	{family: "gpt-4.1-nano", patch: 2.46, high: small, auto: small},
	{family: "o4-mini", patch: 1.72, high: small, auto: small},
	{family: "gpt-5-mini", patch: 1.62, high: small, auto: small},
	{family: "gpt-5-nano", patch: 2.46, high: small, auto: small},
	{family: "gpt-5.4-mini", patch: 1.62, high: small, auto: small},
	{family: "gpt-5.4-nano", patch: 2.46, high: small, auto: small},
	{family: "gpt-5.2", patch: 1.2, high: small, auto: small},
	{family: "gpt-5.3", patch: 1.2, high: small, auto: small},
	{family: "gpt-5.4", patch: 1.2, high: medium, auto: medium},
	{family: "gpt-5.5", patch: 1.2, high: medium, auto: original},
	{family: "gpt-5.6", patch: 1.2, high: medium, auto: whole},
	{family: "gpt-5", base: 70, tile: 140},
	{family: "gpt-4o-mini", base: 2833, tile: 5667},
	{family: "o1", base: 75, tile: 150},
	{family: "o3", base: 75, tile: 150},
	{family: "computer-use", base: 65, tile: 129},
	{base: 85, tile: 170},
}

// countImage gives the tokens of an image.
func countImage(model string, p picture) int {
	rule := imageRules[slices.IndexFunc(imageRules, func(r imageRule) bool { return strings.HasPrefix(model, r.family) })]
	w, h := float64(p.width), float64(p.height)
	if rule.patch > 0 {
		bound := rule.auto
		switch p.detail {
		case "low":
			bound = budget{math.Inf(1), 512}
		case "high":
			bound = rule.high
		}
		const hardly = 1e-6 // above a whole number: it is due to the arithmetic
		return int(math.Ceil(bound.cut(w, h)*rule.patch - hardly))
	}
	if p.detail == "low" {
		return rule.base
	}
	w, h = within(w, h, max(w, h), 2048)
	w, h = within(w, h, min(w, h), 768)
	return rule.base + rule.tile*int(math.Ceil(w/512)*math.Ceil(h/512))
}

// within makes an image smaller, to whole pixels, until a side of it has at most so many.
func within(w, h, side, most float64) (float64, float64) {
	scale := min(1, most/side)
	return max(1, math.Round(w*scale)), max(1, math.Round(h*scale))
}

// cut gives the patches that cover an image.
func (b budget) cut(w, h float64) float64 {
	const side = 32
	if longer := max(w, h); longer > b.side { // to whole pixels only when it is as small as it gets
		w, h = w*b.side/longer, h*b.side/longer
	}
	if n := math.Ceil(w/side) * math.Ceil(h/side); n <= b.patches {
		return n
	}
	scale := math.Sqrt(side * side * b.patches / (w * h))
	across, down := w*scale/side, h*scale/side
	fit := min(max(1, math.Floor(across))/across, max(1, math.Floor(down))/down) // so that one side has whole patches
	w, h = max(1, math.Floor(w*scale*fit)), max(1, math.Floor(h*scale*fit))
	return min(b.patches, math.Ceil(w/side)*math.Ceil(h/side))
}

// seen is what the answer says of the pictures: a sentence for each.
func seen(pictures []picture) string {
	var b strings.Builder
	for _, p := range pictures {
		fmt.Fprintf(&b, "There was a picture of %d x %d pixels. ", p.width, p.height)
	}
	return b.String()
}
