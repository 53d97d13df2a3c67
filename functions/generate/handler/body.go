package handler

import (
	"errors"
	"io"
	"mime"
	"net/http"
)

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// readBody checks the type and reads the body.
func readBody(r *http.Request) ([]byte, *apiError) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, refuse(unsupportedMediaType, "", "The Content-Type must be application/json.")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refuse(bodyTooLarge, "", "The body is larger than %d bytes.", maxBody)
	case err != nil:
		return nil, refuse(invalidJSON, "", "The body could not be read.")
	}
	return body, nil
}
