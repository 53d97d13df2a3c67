package openai

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
)

// EmbeddingRequest is a request for embeddings: what a caller may say, and what is said to
// a provider.
type EmbeddingRequest struct {
	Model          string   `json:"model"`
	Input          []string `json:"input"`                     // 1 to MaxInputs, none empty
	EncodingFormat string   `json:"encoding_format,omitempty"` // Float or Base64
	Dimensions     int64    `json:"dimensions,omitempty"`      // of each vector; 0: not said
}

// How vectors are encoded. Official clients ask for Base64, which is a quarter of the size,
// and decode it themselves.
const (
	Float  = "float"
	Base64 = "base64"
)

const (
	// MaxInputs bounds the texts of a call, as OpenAI does.
	MaxInputs = 2048

	maxDimensions = 16_384 // no model that is known has as many
)

// ParseEmbedding reads a request for embeddings, as strictly as ParseChat.
func ParseEmbedding(body []byte) (*EmbeddingRequest, *Error) {
	members, err := whole(body)
	if err != nil {
		return nil, err
	}
	req := &EmbeddingRequest{EncodingFormat: Float}
	for _, m := range members {
		read, known := embeddingFields[m.Name]
		if !known {
			return nil, unknownField(m.Name, m.Name, embeddingNames)
		}
		if err := read(req, field{m.Name, m.Value}); err != nil {
			return nil, err
		}
	}
	switch {
	case req.Model == "":
		return nil, Errorf(InvalidValue, "model", "model is missing: it names the feature to call.")
	case req.Input == nil:
		return nil, Errorf(InvalidValue, "input", "input is missing.")
	}
	return req, nil
}

// embeddingFields are the accepted fields and their readers.
var embeddingFields = map[string]func(*EmbeddingRequest, field) *Error{
	"model": func(r *EmbeddingRequest, f field) (err *Error) {
		r.Model, err = f.text(128)
		return err
	},
	"input": readInput,
	"encoding_format": func(r *EmbeddingRequest, f field) *Error {
		if !f.isOneOf(`"`+Float+`"`, `"`+Base64+`"`) {
			return f.invalid("must be %s or %s", Float, Base64)
		}
		return f.string(&r.EncodingFormat)
	},
	"dimensions": func(r *EmbeddingRequest, f field) (err *Error) {
		if r.Dimensions, err = f.integer(1); err == nil && r.Dimensions > maxDimensions {
			err = f.invalid("must be at most %d", maxDimensions)
		}
		return err
	},
	// Read, but of no effect: they only label the call.
	"user":     func(_ *EmbeddingRequest, f field) *Error { _, err := f.text(maxUserBytes); return err },
	"metadata": func(_ *EmbeddingRequest, f field) *Error { return readMetadata(nil, f) },
}

var embeddingNames = slices.Collect(maps.Keys(embeddingFields))

// readInput takes a text, or a list of texts.
func readInput(r *EmbeddingRequest, f field) *Error {
	list, single := []json.RawMessage{f.raw}, f.raw[0] == '"'
	if !single && json.Unmarshal(f.raw, &list) != nil {
		return f.invalid("must be a string or a list of strings")
	}
	if len(list) == 0 || len(list) > MaxInputs {
		return f.invalid("must have 1 to %d texts", MaxInputs)
	}
	r.Input = make([]string, len(list))
	for i, raw := range list {
		at := field{f.index(i), raw}
		if single {
			at.path = f.path
		}
		switch c := raw[0]; {
		case c == '[', '0' <= c && c <= '9':
			// LangChain for Python makes tokens of texts by itself, unless it is told not to.
			return f.invalid("must be text: lists of tokens are not taken")
		case c != '"' || json.Unmarshal(raw, &r.Input[i]) != nil:
			return at.invalid("must be a string")
		case r.Input[i] == "":
			return at.invalid("must not be empty")
		}
	}
	return nil
}

// Embeddings are the answer to an EmbeddingRequest.
type Embeddings struct {
	Model   string
	Vectors [][]float32 // of finite numbers, in the order of the texts
	Base64  bool        // how they are written
	Tokens  int64
}

// WriteTo writes e as OpenAI's API has it, a vector at a time: all of them as text may be
// many times as large as they are.
func (e *Embeddings) WriteTo(w io.Writer) (written int64, err error) {
	var b []byte
	flush := func() {
		if err == nil {
			var n int
			n, err = w.Write(b)
			written, b = written+int64(n), b[:0]
		}
	}
	b = append(b, `{"object":"list","data":[`...)
	for i, v := range e.Vectors {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"object":"embedding","index":`...)
		b = append(strconv.AppendInt(b, int64(i), 10), `,"embedding":`...)
		if e.Base64 {
			b = appendBase64(b, v)
		} else {
			b = appendFloats(b, v)
		}
		b = append(b, '}')
		flush()
	}
	b = append(b, `],"model":`...)
	b = append(append(b, Encode(e.Model)...), `,"usage":`...)
	b = append(b, Encode(struct {
		Prompt int64 `json:"prompt_tokens"`
		Total  int64 `json:"total_tokens"`
	}{e.Tokens, e.Tokens})...)
	b = append(b, '}')
	flush()
	return written, err
}

// appendBase64 writes a vector as the bytes of its numbers, the lowest first.
func appendBase64(b []byte, v []float32) []byte {
	raw := make([]byte, 0, 4*len(v))
	for _, f := range v {
		n := math.Float32bits(f)
		raw = append(raw, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), '"')
}

// appendFloats writes each number so that whoever reads it gets the same.
func appendFloats(b []byte, v []float32) []byte {
	b = append(b, '[')
	for i, f := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(f), 'g', -1, 32)
	}
	return append(b, ']')
}

// ReadVector reads a vector in either encoding; false: it is none, or has a number that is
// not finite.
func ReadVector(raw json.RawMessage) ([]float32, bool) {
	var v []float32
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '"' {
		var text []byte
		if json.Unmarshal(raw, &text) != nil || len(text)%4 != 0 {
			return nil, false
		}
		v = make([]float32, 0, len(text)/4)
		for four := range slices.Chunk(text, 4) {
			v = append(v, math.Float32frombits(uint32(four[0])|uint32(four[1])<<8|uint32(four[2])<<16|uint32(four[3])<<24))
		}
	} else if bytes.Contains(raw, []byte("null")) || json.Unmarshal(raw, &v) != nil {
		return nil, false
	}
	finite := func(f float32) bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }
	return v, len(v) > 0 && !slices.ContainsFunc(v, func(f float32) bool { return !finite(f) })
}
