package lambdahttp

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

type requestContextKey struct{}

// RequestContext returns what the gateway itself says of the request: source
// address, request id, stage, IAM identity. Nothing in it comes from a header.
// False if ctx is not that of a request by NewRequest. Do not modify it.
func RequestContext(ctx context.Context) (*events.APIGatewayProxyRequestContext, bool) {
	c, ok := ctx.Value(requestContextKey{}).(*events.APIGatewayProxyRequestContext)
	return c, ok
}

// KnownMethod is a method as logs have it. "other" stands for methods that HTTP does not
// know: a caller can make those as long as it likes.
func KnownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "other"
}

// NewRequest makes of e the request that an http.Server would hand to a
// handler. Its context is ctx with the event's RequestContext.
//
//   - RemoteAddr is the gateway's source address with port 0.
//   - URL is the event's path, without a stage or a custom domain's base path.
//     REST APIs deliver the path percent-encoded; one that is not is taken
//     literally, so '%', '?', '#' and spaces stay in it.
//   - Headers and query come from the multi-valued maps, and only where those
//     are empty from the single-valued ones.
//   - Host is the Host header, else the gateway's domain name.
//
// It is an error if e is nil, has no valid method, or says base64 of a body
// that is not.
func NewRequest(ctx context.Context, e *events.APIGatewayProxyRequest) (*http.Request, error) {
	if e == nil || e.HTTPMethod == "" { // net/http would take "" for GET
		return nil, errors.New("event without an HTTP method")
	}
	body := e.Body
	if e.IsBase64Encoded {
		decoded, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, errors.New("event body is not valid base64")
		}
		body = string(decoded)
	}
	requestContext := e.RequestContext
	ctx = context.WithValue(ctx, requestContextKey{}, &requestContext)
	r, err := http.NewRequestWithContext(ctx, e.HTTPMethod, "/", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.URL = parseURL(e)
	r.URL.RawQuery = url.Values(multi(e.MultiValueQueryStringParameters, e.QueryStringParameters)).Encode()
	r.RequestURI = r.URL.RequestURI()
	r.RemoteAddr = net.JoinHostPort(requestContext.Identity.SourceIP, "0")

	headers := multi(e.MultiValueHeaders, e.Headers)
	for _, k := range slices.Sorted(maps.Keys(headers)) { // names that differ by case only: always the same order
		for _, v := range headers[k] {
			r.Header.Add(k, v)
		}
	}
	if r.Host = r.Header.Get("Host"); r.Host == "" {
		r.Host = requestContext.DomainName
	}
	r.Header.Del("Host")
	if r.Header.Get("Content-Length") != "" { // it may have counted base64
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
	return r, nil
}

// Path gives the event's path as NewRequest takes it, percent-encoded: what an adapter
// that parses paths can take instead of the event's own.
func Path(e *events.APIGatewayProxyRequest) string { return parseURL(e).EscapedPath() }

func parseURL(e *events.APIGatewayProxyRequest) *url.URL { return parsePath(resourcePath(e)) }

// resourcePath is the event's path below the root of the API. The gateway puts the
// base path of a custom domain's mapping in front of it; what remains must be the
// resource's own path, filled in.
func resourcePath(e *events.APIGatewayProxyRequest) string {
	var fill []string
	for name, value := range e.PathParameters {
		fill = append(fill, "{"+name+"+}", value, "{"+name+"}", value)
	}
	own := strings.NewReplacer(fill...).Replace(e.Resource)
	if strings.HasPrefix(own, "/") && strings.HasSuffix(e.Path, own) {
		return own
	}
	// The gateway takes no notice of slashes at the end and of doubled ones when it finds
	// the resource, but the event's path may still have them.
	if base, ok := strings.CutSuffix(Folded(e.Path), Folded(own)); ok && own != "" && strings.HasPrefix(e.Path, base+"/") {
		return e.Path[len(base):]
	}
	return e.Path
}

// Folded is a path without slashes at its end, and with one where several follow each
// other. The root is "".
func Folded(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return strings.TrimSuffix(path, "/")
}

// parsePath never fails and takes everything in path for path.
func parsePath(path string) *url.URL {
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	u := &url.URL{Path: path}
	if decoded, err := url.PathUnescape(path); err == nil {
		u.Path = decoded
	}
	if u.EscapedPath() != path {
		u.RawPath = path // where this is no encoding of Path, net/url ignores it
	}
	return u
}

func multi(multiple map[string][]string, single map[string]string) map[string][]string {
	if len(multiple) > 0 {
		return multiple
	}
	m := make(map[string][]string, len(single))
	for k, v := range single {
		m[k] = []string{v}
	}
	return m
}
