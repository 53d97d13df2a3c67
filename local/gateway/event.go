package gateway

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
)

const (
	accountID = "123456789012"
	apiID     = "local00000"
)

// newEvent is the REST API proxy event of r.
func (g *Gateway) newEvent(r *http.Request, body []byte, identity events.APIGatewayRequestIdentity) *events.APIGatewayProxyRequest {
	prefix := ""
	if g.opts.Stage != "" {
		prefix = "/" + g.opts.Stage
	}
	path := r.URL.EscapedPath() // REST APIs leave it encoded
	if rest, ok := strings.CutPrefix(path, prefix+"/"); ok {
		path = "/" + rest
	}
	resource, parameters := resourceOf(path)

	identity.SourceIP = g.opts.SourceIP(r)
	identity.UserAgent = r.UserAgent()
	header := forwarded(r, identity.SourceIP)
	now := g.opts.Now().UTC()
	e := &events.APIGatewayProxyRequest{
		Resource:                        resource,
		Path:                            path,
		HTTPMethod:                      r.Method,
		Headers:                         last(header),
		MultiValueHeaders:               header,
		QueryStringParameters:           last(r.URL.Query()),
		MultiValueQueryStringParameters: r.URL.Query(),
		PathParameters:                  parameters,
		RequestContext: events.APIGatewayProxyRequestContext{
			AccountID:         accountID,
			ResourceID:        "local0",
			Stage:             g.opts.Stage,
			DomainName:        r.Host, // with its port, so that absolute URLs work
			DomainPrefix:      apiID,
			RequestID:         newUUID(),
			ExtendedRequestID: newExtendedRequestID(),
			Protocol:          r.Proto,
			Identity:          identity,
			ResourcePath:      resource,
			Path:              prefix + path,
			HTTPMethod:        r.Method,
			RequestTime:       now.Format("02/Jan/2006:15:04:05 -0700"),
			RequestTimeEpoch:  now.UnixMilli(),
			APIID:             apiID,
		},
		Body: string(body),
	}
	if !utf8.Valid(body) {
		e.Body = base64.StdEncoding.EncodeToString(body)
		e.IsBase64Encoded = true
	}
	return e
}

// throughJSON makes sure that e holds nothing that the wire would not carry.
func throughJSON(e *events.APIGatewayProxyRequest) (*events.APIGatewayProxyRequest, error) {
	data, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	var received events.APIGatewayProxyRequest
	if err := json.Unmarshal(data, &received); err != nil {
		return nil, err
	}
	return &received, nil
}

// resourceOf finds the resource of a path as the deployed API has them: "/v1/{proxy+}", the
// same for what clearlimit serves, and "/{proxy+}" for all else but the root. What a
// resource's variable holds has no slash at its ends, whatever the path has.
func resourceOf(path string) (resource string, parameters map[string]string) {
	all := strings.Trim(path, "/")
	if all == "" {
		return path, nil
	}
	first, rest, _ := strings.Cut(all, "/")
	if rest = strings.Trim(rest, "/"); rest == "" || !strings.HasPrefix(path, "/"+first) {
		return "/{proxy+}", map[string]string{"proxy": all}
	}
	return "/" + first + "/{proxy+}", map[string]string{"proxy": rest}
}

// forwarded returns the headers as the gateway passes them on: Host is one of
// them, and X-Forwarded-For begins with whatever the client claims.
func forwarded(r *http.Request, sourceIP string) http.Header {
	h := r.Header.Clone()
	h.Set("Host", r.Host)
	h.Set("X-Forwarded-For", strings.Join(append(h.Values("X-Forwarded-For"), sourceIP), ", "))
	proto, port := "http", "80"
	if r.TLS != nil {
		proto, port = "https", "443"
	}
	if _, p, err := net.SplitHostPort(r.Host); err == nil {
		port = p
	}
	h.Set("X-Forwarded-Proto", proto)
	h.Set("X-Forwarded-Port", port)
	return h
}

// last gives the single-valued form, nil (null in JSON) where there is nothing.
func last(multi map[string][]string) map[string]string {
	if len(multi) == 0 {
		return nil
	}
	m := make(map[string]string, len(multi))
	for k, vs := range multi {
		if len(vs) > 0 {
			m[k] = vs[len(vs)-1]
		}
	}
	return m
}

func peer(r *http.Request) string {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return addr.Addr().Unmap().WithZone("").String()
}

// newUUID returns a random UUID, RFC 9562 version 4.
func newUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func newExtendedRequestID() string {
	var b [11]byte
	rand.Read(b[:])
	return base64.StdEncoding.EncodeToString(b[:])
}
