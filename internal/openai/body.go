package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
)

// What a request's body may have at most, in bytes: text, and images among it.
const (
	MaxText   = 1 << 20
	MaxImages = 4 << 20
)

// ReadBody checks the type of a request's body, which must be JSON, and reads it. A body
// of more than most bytes is refused.
func ReadBody(r *http.Request, most int64) ([]byte, *Error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, Errorf(UnsupportedMediaType, "", "The Content-Type must be application/json.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, TooLarge(most)
	}
	if err != nil {
		return nil, Errorf(InvalidJSON, "", "The body could not be read.")
	}
	return body, nil
}

// TooLarge refuses a body of more than most bytes.
func TooLarge(most int64) *Error {
	return Errorf(BodyTooLarge, "", "The body must be at most %d bytes.", most)
}

// Answer answers with v as JSON.
func Answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(Encode(v)) // a client that has gone needs no answer
}

// Encode makes JSON of our own types, which cannot fail.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// plain makes JSON in which <, > and & stand as they are. Whoever encodes around it decides
// whether they do in the end.
func plain(v any) ([]byte, error) {
	p := encoders.Get().(*encoder)
	p.Reset()
	err := p.json.Encode(v)
	out := bytes.Clone(bytes.TrimSuffix(p.Bytes(), []byte{'\n'}))
	if p.Cap() <= mostKept {
		encoders.Put(p)
	}
	return out, err
}

// encoder is kept for the next message, as encoding/json keeps its own, unless it has grown
// beyond mostKept bytes with an image.
type encoder struct {
	bytes.Buffer
	json *json.Encoder
}

const mostKept = 64 << 10

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.json = json.NewEncoder(&e.Buffer)
	e.json.SetEscapeHTML(false)
	return e
}}
