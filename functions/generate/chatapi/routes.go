package chatapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

type route func(*Handler, http.ResponseWriter, *http.Request, *entry) *openai.Error

// routes are all that is served, by path and by method.
var routes = map[string]map[string]route{
	"/v1/chat/completions": {http.MethodPost: (*Handler).chat},
	"/v1/models":           {http.MethodGet: (*Handler).models},
	"/v1/limits":           {http.MethodGet: (*Handler).limits},
	challengePath:          {http.MethodGet: (*Handler).newChallenge, http.MethodPost: (*Handler).solveChallenge},
}

// route checks route, method and origin, and passes on.
func (h *Handler) route(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	originErr := h.cors(w, r) // its headers make the next errors readable, too
	methods, known := routes[r.URL.Path]
	serve := methods[r.Method]
	switch {
	case r.Method == http.MethodOptions:
	case r.URL.Path == "/v1/responses":
		return openai.Errorf(openai.NotFound, "", "The responses API is not served here. Use chat completions: POST /v1/chat/completions.")
	case !known:
		return openai.Errorf(openai.NotFound, "", "There is nothing at this address.")
	case serve == nil:
		w.Header().Set("Allow", allowed(methods))
		return openai.Errorf(openai.MethodNotAllowed, "", "The method must be %s.", allowed(methods))
	}
	if originErr != nil {
		return originErr
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return serve(h, w, r, e)
}

// shown is the path of a request as the log has it: a route, or that it is none. What a
// caller chose would be as long as the caller likes, and the log costs what is written.
func shown(r *http.Request) string {
	if _, known := routes[r.URL.Path]; known {
		return r.URL.Path
	}
	return "other"
}

func allowed(methods map[string]route) string {
	return strings.Join(append(slices.Sorted(maps.Keys(methods)), http.MethodOptions), ", ")
}
