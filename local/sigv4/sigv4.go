// Package sigv4 verifies AWS Signature Version 4, so that the admin routes can be
// tried on a laptop with the clients and keys that they have in AWS.
//
// Guarantees: a request passes only if the owner of a known key signed its
// method, path, query, host, signed headers and body, for service execute-api,
// within Window of now. A header named x-amz-… that is not signed is refused. The
// signature is compared in constant time. Errors hold neither secrets nor
// signatures.
//
// Only the form with an Authorization header is read, not the presigned URL. The
// region is whatever the signer says. Within Window a request can be replayed, as
// in AWS.
//
// Trusted: the keys, and the clock.
package sigv4

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrUnsigned: there is no signature.
	ErrUnsigned = errors.New("the request is not signed")
	// ErrMalformed: what is there cannot be a signature of this request.
	ErrMalformed = errors.New("the signature is malformed")
	// ErrUnknownKey: nobody here has the access key.
	ErrUnknownKey = errors.New("the access key is unknown")
	// ErrExpired: the request was signed too long ago, or in the future.
	ErrExpired = errors.New("the signature has expired")
	// ErrMismatch: the secret is another, or something was changed on the way.
	ErrMismatch = errors.New("the signature does not match the request")
)

const (
	// Window is how far the time of the signature may be from now.
	Window = 5 * time.Minute

	algorithm = "AWS4-HMAC-SHA256"
	service   = "execute-api"
	terminal  = "aws4_request"
	timeForm  = "20060102T150405Z"
	dateForm  = "20060102"
)

// Verify gives the ARN of whoever signed r, as an http.Server got it. body is all
// of its body, which Verify does not read. lookup finds a key's secret and owner.
// The error is one of this package's, with a reason.
//
// Source: "Create a signed AWS API request", AWS Identity and Access Management
// User Guide.
func Verify(r *http.Request, body []byte, lookup func(accessKeyID string) (secret, arn string, ok bool), now time.Time) (arn string, err error) {
	a, err := parse(r.Header.Values("Authorization"))
	if err != nil {
		return "", err
	}
	signed, err := signingTime(r.Header)
	if err != nil {
		return "", err
	}
	if signed.Format(dateForm) != a.date {
		return "", malformed("its scope is of another day than its time")
	}
	canonical, err := canonicalRequest(r, body, a.headers)
	if err != nil {
		return "", err
	}
	secret, arn, ok := lookup(a.accessKeyID)
	if !ok {
		return "", fmt.Errorf("%w: %.128q", ErrUnknownKey, a.accessKeyID)
	}

	toSign := strings.Join([]string{algorithm, signed.Format(timeForm), a.scope(), hexHash([]byte(canonical))}, "\n")
	key := mac(mac(mac(mac([]byte("AWS4"+secret), a.date), a.region), service), terminal)
	if !hmac.Equal(mac(key, toSign), a.signature) {
		return "", fmt.Errorf("%w: is the secret key right?", ErrMismatch)
	}
	// Last, so that only the owner of the key is told about clocks.
	if age := now.Sub(signed).Round(time.Second); age.Abs() > Window {
		return "", fmt.Errorf("%w: it is %s old, and at most %s are allowed; are both clocks right?", ErrExpired, age, Window)
	}
	return arn, nil
}

func malformed(reason string) error { return fmt.Errorf("%w: %s", ErrMalformed, reason) }

// authorization is a parsed Authorization header.
type authorization struct {
	accessKeyID, date, region string
	headers                   []string // lower case, sorted
	signature                 []byte
}

func (a authorization) scope() string {
	return strings.Join([]string{a.date, a.region, service, terminal}, "/")
}

func parse(values []string) (authorization, error) {
	if len(values) == 0 || values[0] == "" {
		return authorization{}, ErrUnsigned
	}
	rest, ours := strings.CutPrefix(values[0], algorithm+" ")
	if !ours || len(values) > 1 {
		return authorization{}, fmt.Errorf("%w: Authorization must be one header that begins with %s", ErrUnsigned, algorithm)
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if _, twice := parts[name]; twice {
			return authorization{}, malformed("a part stands twice")
		}
		parts[name] = value
	}
	credential := strings.Split(parts["Credential"], "/")
	if len(parts) != 3 || len(credential) != 5 || credential[0] == "" || credential[2] == "" || credential[4] != terminal {
		return authorization{}, malformed("it must have Credential=KEY/DATE/REGION/execute-api/aws4_request, SignedHeaders and Signature")
	}
	if credential[3] != service {
		return authorization{}, malformed("the service must be " + service)
	}
	a := authorization{accessKeyID: credential[0], date: credential[1], region: credential[2]}
	a.headers = strings.Split(parts["SignedHeaders"], ";")
	unique := slices.Compact(slices.Sorted(slices.Values(a.headers)))
	if !slices.Equal(unique, a.headers) || strings.ToLower(parts["SignedHeaders"]) != parts["SignedHeaders"] {
		return authorization{}, malformed("SignedHeaders must be in lower case and sorted, each once")
	}
	if !slices.Contains(a.headers, "host") {
		return authorization{}, malformed("host must be signed")
	}
	var err error
	if a.signature, err = hex.DecodeString(parts["Signature"]); err != nil || len(a.signature) != sha256.Size {
		return authorization{}, malformed("Signature must be 64 hexadecimal digits")
	}
	return a, nil
}

// signingTime is when the request was signed, by X-Amz-Date or else Date.
func signingTime(h http.Header) (time.Time, error) {
	amz, date := h.Values("X-Amz-Date"), h.Values("Date")
	if len(amz) == 1 {
		if t, err := time.Parse(timeForm, amz[0]); err == nil {
			return t, nil
		}
	} else if len(amz) == 0 && len(date) == 1 {
		if t, err := http.ParseTime(date[0]); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, malformed("it needs one X-Amz-Date such as " + timeForm)
}

// canonicalRequest is what a signer signs of a request.
func canonicalRequest(r *http.Request, body []byte, signed []string) (string, error) {
	for name := range r.Header {
		if name := strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(signed, name) {
			return "", malformed(name + " must be signed")
		}
	}
	var headers strings.Builder
	for _, name := range signed {
		value, ok := headerValue(r, name)
		if !ok {
			return "", malformed("a signed header is missing: " + strconv.QuoteToASCII(name))
		}
		headers.WriteString(name + ":" + value + "\n")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", malformed("the query cannot be read")
	}
	for _, values := range query {
		slices.Sort(values)
	}
	// A signer that sends the hash signs what it sent; it must be the body's.
	payload := hexHash(body)
	if sent := r.Header.Values("X-Amz-Content-Sha256"); len(sent) > 0 && (len(sent) > 1 || sent[0] != payload) {
		return "", fmt.Errorf("%w: X-Amz-Content-Sha256 is not the hash of the body", ErrMismatch)
	}
	return strings.Join([]string{
		r.Method,
		escapePath(r.URL.EscapedPath()),
		strings.ReplaceAll(query.Encode(), "+", "%20"),
		headers.String(),
		strings.Join(signed, ";"),
		payload,
	}, "\n"), nil
}

var spaces = regexp.MustCompile(` {2,}`)

// headerValue is a header as it is signed: values joined by commas, without outer
// space, inner runs of spaces made one.
func headerValue(r *http.Request, name string) (string, bool) {
	values := r.Header.Values(name)
	switch {
	case name == "host":
		values = []string{r.Host}
	case name == "content-length" && len(values) == 0:
		values = []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	joined := make([]string, len(values))
	for i, v := range values {
		joined[i] = spaces.ReplaceAllLiteralString(strings.TrimSpace(v), " ")
	}
	return strings.Join(joined, ","), len(values) > 0
}

// escapePath encodes a path once more, which every service but S3 wants.
func escapePath(sent string) string {
	if sent == "" {
		return "/"
	}
	segments := strings.Split(sent, "/")
	for i, s := range segments {
		segments[i] = strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
	}
	return strings.Join(segments, "/")
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func hexHash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
