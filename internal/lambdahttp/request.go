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

// NewRequest makes of e the request that an http.Server would hand to a
// handler. Its context is ctx with the event's RequestContext.
//
//   - RemoteAddr is the gateway's source address with port 0.
//   - URL is the event's path, which holds no stage. Behind a custom domain
//     with a base path mapping it begins with that base path; use
//     http.StripPrefix there. REST APIs deliver the path percent-encoded; one
//     that is not is taken literally, so '%', '?', '#' and spaces stay in it.
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
	r.URL = parsePath(e.Path)
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
