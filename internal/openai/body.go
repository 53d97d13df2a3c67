package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// ReadBody checks the type of a request's body, which must be JSON, and reads it. A body
// of more than 1 MiB is refused.
func ReadBody(r *http.Request) ([]byte, *Error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, Errorf(UnsupportedMediaType, "", "The Content-Type must be application/json.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, Errorf(BodyTooLarge, "", "The body must be at most %d bytes.", maxBody)
	}
	if err != nil {
		return nil, Errorf(InvalidJSON, "", "The body could not be read.")
	}
	return body, nil
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
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
