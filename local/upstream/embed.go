package upstream

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// What a request for embeddings may hold. The last is OpenAI's only for some of its
// models, and is in no documentation of theirs.
const (
	maxInputs      = 2048
	maxInputTokens = 8192
	maxAllTokens   = 300_000
)

// lastToken is the highest of cl100k_base.
const lastToken = 100_276

// embeddingRequest is all that a request for embeddings may hold.
type embeddingRequest struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	Dimensions     *int            `json:"dimensions"`
	EncodingFormat *string         `json:"encoding_format"`
	User           string          `json:"user"`

	texts []string   // the inputs, or "" for one in tokens
	words [][]string // of each input, or its tokens
	count int        // tokens
}

var embeddingNames = []string{"model", "input", "dimensions", "encoding_format", "user"}

// embed answers with vectors.
func (u *Upstream) embed(w http.ResponseWriter, r *http.Request) {
	var req embeddingRequest
	body, p := readBody(w, r, embeddingNames, &req)
	if p == nil {
		p = req.check(u)
	}
	if p != nil {
		refuse(w, p)
		return
	}
	call := &Call{Model: req.Model, Inputs: req.texts, PromptTokens: req.count}
	u.log.add(call, body)
	x := exchange{u: u, w: w, ctx: r.Context(), call: call, marks: readMarkers(req.texts[len(req.texts)-1])}
	if !x.begin(contentType(false), price.Usage{Input: int64(req.count)}, price.Usage{}) {
		return
	}
	_ = x.deliver(encode(req.answer(x.marks))) // it fails only because the client has left
}

func (r *embeddingRequest) check(u *Upstream) *problem {
	if r.Model == "" {
		return invalid("model", "missing_required_parameter", "You must provide a model.")
	}
	if most := r.mostDimensions(); r.Dimensions != nil {
		switch d := *r.Dimensions; {
		case most == 0:
			return misplaced("dimensions", "This model does not support specifying dimensions.")
		case d < 1:
			return invalid("dimensions", "integer_below_min_value", "Invalid 'dimensions': integer below minimum value. Expected a value >= 1, but got %d instead.", d)
		case d > most:
			return misplaced("dimensions", "Invalid value for 'dimensions' = %d. Must be less than or equal to %d.", d, most)
		}
	}
	if f := r.EncodingFormat; f != nil && *f != "float" && *f != "base64" {
		return invalid("encoding_format", "invalid_value", "Invalid value: '%s'. Supported values are: 'float' and 'base64'.", *f)
	}
	return r.readInput(u)
}

// mostDimensions is how long a vector may be, or 0 if it is as long as it is.
func (r *embeddingRequest) mostDimensions() int {
	switch {
	case strings.HasPrefix(r.Model, "text-embedding-ada"):
		return 0
	case strings.HasPrefix(r.Model, "text-embedding-3-large"):
		return 3072
	}
	return 1536
}

func (r *embeddingRequest) dimensions() int {
	if r.Dimensions != nil {
		return *r.Dimensions
	}
	if most := r.mostDimensions(); most > 0 {
		return most
	}
	return 1536
}

// readInput reads one input or many, and counts them.
func (r *embeddingRequest) readInput(u *Upstream) *problem {
	if r.Input == nil || isNull(r.Input) {
		return missing("input")
	}
	var inputs []json.RawMessage
	if json.Unmarshal(r.Input, &inputs) != nil {
		return r.readOne(u, r.Input, "input")
	}
	switch {
	case len(inputs) == 0:
		return tooFew("input")
	case json.Unmarshal(inputs[0], new(int)) == nil && !isNull(inputs[0]):
		return r.readOne(u, r.Input, "input") // a list of tokens
	case len(inputs) > maxInputs:
		return tooMany("input", len(inputs), maxInputs)
	}
	for i, input := range inputs {
		if p := r.readOne(u, input, fmt.Sprintf("input[%d]", i)); p != nil {
			return p
		}
	}
	if r.count > maxAllTokens {
		return &problem{http.StatusBadRequest, "max_tokens_per_request", "", "max_tokens_per_request",
			fmt.Sprintf("Requested %d tokens, max %d tokens per request", r.count, maxAllTokens)}
	}
	return nil
}

// readOne reads a text, or a list of tokens.
func (r *embeddingRequest) readOne(u *Upstream, raw json.RawMessage, at string) *problem {
	var text string
	var tokens []int
	var words []string
	var count int
	switch {
	case isNull(raw):
		return invalid(at, "invalid_type", "Invalid type for '%s': expected one of a string or array of integers.", at)
	case json.Unmarshal(raw, &text) == nil:
		if text == "" {
			return misplaced(at, "Invalid '%s': input cannot be an empty string.", at)
		}
		words, count = wordsIn(text), u.embedding.Count(text)
		if len(words) == 0 {
			words = []string{text}
		}
	case json.Unmarshal(raw, &tokens) == nil:
		if len(tokens) == 0 {
			return tooFew(at)
		}
		for i, token := range tokens {
			if token < 0 || token > lastToken {
				return invalid(fmt.Sprintf("%s[%d]", at, i), "invalid_value", "Invalid '%s[%d]': no token of cl100k_base has the number %d.", at, i, token)
			}
			words = append(words, "#"+strconv.Itoa(token))
		}
		count = len(tokens)
	default:
		return invalid(at, "invalid_type", "Invalid type for '%s': expected one of a string or array of integers.", at)
	}
	if count > maxInputTokens {
		return misplaced("", "This model's maximum context length is %d tokens, however you requested %d tokens (%[2]d in your prompt; "+
			"0 for the completion). Please reduce your prompt; or completion length.", maxInputTokens, count)
	}
	r.texts, r.words, r.count = append(r.texts, text), append(r.words, words), r.count+count
	return nil
}

// answer has a vector for each input, in their order.
func (r *embeddingRequest) answer(m markers) any {
	type embedding struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	type usage struct {
		Prompt int `json:"prompt_tokens"`
		Total  int `json:"total_tokens"`
	}
	list := struct {
		Object string      `json:"object"`
		Data   []embedding `json:"data"`
		Model  string      `json:"model"`
		Usage  *usage      `json:"usage,omitempty"`
	}{Object: "list", Model: r.Model}
	for i, words := range r.words {
		var shown any = vector(words, r.dimensions())
		if r.EncodingFormat != nil && *r.EncodingFormat == "base64" {
			raw, _ := binary.Append(nil, binary.LittleEndian, shown)
			shown = base64.StdEncoding.EncodeToString(raw)
		}
		list.Data = append(list.Data, embedding{"embedding", i, shown})
	}
	if m.fail != "nousage" {
		n := r.count
		if m.report > 0 {
			n = m.report
		}
		list.Usage = &usage{n, n}
	}
	return list
}

// vector is a unit vector of so many dimensions. Each word has a direction of its own,
// nearly at a right angle to that of any other; so the more words two texts share, the
// nearer they are. A shorter vector is the beginning of a longer one.
func vector(words []string, dimensions int) []float32 {
	sum := make([]float64, dimensions)
	slices.Sort(words)
	for len(words) > 0 {
		same := len(words) // how often the first of them stands there
		if i := slices.IndexFunc(words, func(w string) bool { return w != words[0] }); i > 0 {
			same = i
		}
		hash := fnv.New64a()
		hash.Write([]byte(words[0]))
		state, bits := hash.Sum64(), uint64(0)
		for i := range sum {
			if i%64 == 0 {
				state, bits = shuffle(state)
			}
			if bits>>(i%64)&1 == 1 {
				sum[i] += float64(same)
			} else {
				sum[i] -= float64(same)
			}
		}
		words = words[same:]
	}
	length := 0.0
	for _, v := range sum {
		length += v * v
	}
	if length == 0 { // the directions cancel each other
		sum[0], length = 1, 1
	}
	unit := make([]float32, dimensions)
	for i, v := range sum {
		unit[i] = float32(v / math.Sqrt(length))
	}
	return unit
}

// shuffle is SplitMix64: the next state, and bits that look random.
func shuffle(state uint64) (next, bits uint64) {
	next = state + 0x9e3779b97f4a7c15
	bits = (next ^ next>>30) * 0xbf58476d1ce4e5b9
	bits = (bits ^ bits>>27) * 0x94d049bb133111eb
	return next, bits ^ bits>>31
}
