package chatapi

import (
	"net/http"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
)

// base is the address of the API as the caller of r reaches it, without a trailing
// slash. CloudFront does not tell its own; the policy does.
func (h *Handler) base(r *http.Request) string {
	if c := h.Policy.CloudFront; c != nil && c.URL != "" && h.Source.Proven(r) {
		return c.URL
	}
	scheme := "https"
	if r.Header.Get("X-Forwarded-Proto") == "http" {
		scheme = "http"
	}
	return scheme + "://" + r.Host + strings.TrimSuffix(publicPath(r), r.URL.Path)
}

// publicPath is the path as the caller sees it: with the stage, if there is one.
func publicPath(r *http.Request) string {
	if c, ok := lambdahttp.RequestContext(r.Context()); ok && c.Path != "" {
		return c.Path
	}
	return r.URL.Path
}
