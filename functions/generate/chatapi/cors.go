package chatapi

import (
	"net/http"
	"net/url"
	"regexp"
	"sync"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

var headerNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_-]+( *, *[A-Za-z0-9_-]+)*$`)
})

// cors refuses pages of origins that are neither listed nor our own: a page may
// post without asking first. A listed one may read the answer, errors included.
// A caller who goes round the distribution in front is refused likewise.
func (h *Handler) cors(w http.ResponseWriter, r *http.Request) *openai.Error {
	cloudFront := h.Policy.CloudFront
	if cloudFront != nil && cloudFront.Required && !h.Source.Proven(r) {
		return openai.Errorf(openai.OriginNotAllowed, "", "This address is not for callers. Use the one that was published.")
	}
	header := w.Header()
	header.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin != "" && !h.Policy.CORS.Allows(origin) && !isOwn(origin, h.base(r)) {
		if h.RefusedOrigin != nil {
			h.RefusedOrigin(origin)
		}
		return openai.Errorf(openai.OriginNotAllowed, "", "Pages of %s may not call here. The owner can list them in cors.origins of tokenfuse.yaml.", openai.Clip(origin))
	}
	if origin != "" {
		header.Set("Access-Control-Allow-Origin", origin)
		header.Set("Access-Control-Expose-Headers", exposed)
	}
	if r.Method == http.MethodOptions {
		header.Set("Access-Control-Allow-Methods", "GET, POST")
		if asked := r.Header.Get("Access-Control-Request-Headers"); headerNames().MatchString(asked) {
			header.Set("Access-Control-Allow-Headers", asked)
		}
		header.Set("Access-Control-Max-Age", "7200")
	}
	return nil
}

// isOwn reports whether origin is that of the address base.
func isOwn(origin, base string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	b, err := url.Parse(base)
	return err == nil && u.Host == b.Host
}
