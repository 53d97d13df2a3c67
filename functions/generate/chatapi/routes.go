package chatapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/openai"
)

type route func(*Handler, http.ResponseWriter, *http.Request, *entry) *openai.Error

const (
	chatRoute      = "/v1/chat/completions"
	responsesRoute = "/v1/responses"
	embedRoute     = "/v1/embeddings"
	modelsRoute    = "/v1/models"
	modelRoute     = "/v1/models/{id}"
)

// routes are all that is served, by pattern and by method.
var routes = map[string]map[string]route{
	chatRoute:      {http.MethodPost: (*Handler).chat},
	responsesRoute: {http.MethodPost: (*Handler).respond},
	embedRoute:     {http.MethodPost: (*Handler).embeddings},
	modelsRoute:    {http.MethodGet: (*Handler).models},
	modelRoute:     {http.MethodGet: (*Handler).model},
	"/v1/limits":   {http.MethodGet: (*Handler).limits},
	challengePath:  {http.MethodGet: (*Handler).newChallenge, http.MethodPost: (*Handler).solveChallenge},
}

// pattern is the key of a request's route, "" if there is none. Slashes at the end and
// doubled ones do not count: they come from base URLs that end in one.
func pattern(r *http.Request) string {
	path := lambdahttp.Folded(r.URL.Path)
	if strings.HasPrefix(path, modelsRoute+"/") {
		return modelRoute
	}
	if _, known := routes[path]; !known {
		return ""
	}
	return path
}

// modelName is the {id} of a request to modelRoute.
func modelName(r *http.Request) string {
	return strings.TrimPrefix(lambdahttp.Folded(r.URL.Path), modelsRoute+"/")
}

// route checks route, method and origin, and passes on.
func (h *Handler) route(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	originErr := h.cors(w, r) // its headers make the next errors readable, too
	methods := routes[pattern(r)]
	serve := methods[r.Method]
	switch {
	case r.Method == http.MethodOptions:
	case methods == nil:
		return h.elsewhere(r)
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

// notServed are the APIs of model servers that clients ask for here, by the first part
// of their paths after any version.
var notServed = []string{"completions", "images", "audio", "moderations", "files", "batches",
	"assistants", "threads", "realtime", "messages", "generate", "rerank"}

// elsewhere tells who asks for what is not here where to go.
func (h *Handler) elsewhere(r *http.Request) *openai.Error {
	what := "There is nothing at this address."
	for part := range strings.SplitSeq(lambdahttp.Folded(r.URL.Path), "/") {
		switch {
		case part == "", part == "api", strings.HasPrefix(part, "v1"):
			continue
		case part == "responses" && strings.HasPrefix(lambdahttp.Folded(r.URL.Path), responsesRoute):
			what = "Nothing is stored here, so nothing can be asked of a response."
		case slices.Contains(notServed, part):
			what = "The " + part + " API is not served here."
		}
		break
	}
	v1 := h.base(r) + "/v1"
	return openai.Errorf(openai.NotFound, "", "%s Chat completions are: POST %s/chat/completions. Responses are: POST %s/responses. The base URL of a client is %s.", what, v1, v1, v1)
}

// shown is the path of a request as the log has it: a route, or that it is none. What a
// caller chose would be as long as the caller likes, and the log costs what is written.
func shown(r *http.Request) string { return cmp.Or(pattern(r), "other") }

func allowed(methods map[string]route) string {
	return strings.Join(append(slices.Sorted(maps.Keys(methods)), http.MethodOptions), ", ")
}
