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
	// Of slashes at the end and doubled ones API Gateway may keep some in one of the two.
	return scheme + "://" + r.Host + strings.TrimSuffix(lambdahttp.Folded(publicPath(r)), lambdahttp.Folded(r.URL.EscapedPath()))
}

// publicPath is the path as the caller sees it: with the stage, if there is one.
func publicPath(r *http.Request) string {
	if c, ok := lambdahttp.RequestContext(r.Context()); ok && c.Path != "" {
		return c.Path
	}
	return r.URL.EscapedPath()
}
