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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
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
	again, err := unsigned(r, a.headers)
	if err != nil {
		return "", err
	}
	// A signer that sends the hash signs what it sent; it must be the body's.
	payload := hexHash(body)
	if sent := r.Header.Values("X-Amz-Content-Sha256"); len(sent) > 0 && (len(sent) > 1 || sent[0] != payload) {
		return "", fmt.Errorf("%w: X-Amz-Content-Sha256 is not the hash of the body", ErrMismatch)
	}
	secret, arn, ok := lookup(a.accessKeyID)
	if !ok {
		return "", fmt.Errorf("%w: %.128q", ErrUnknownKey, a.accessKeyID)
	}

	key := aws.Credentials{AccessKeyID: a.accessKeyID, SecretAccessKey: secret}
	if err := v4.NewSigner().SignHTTP(r.Context(), key, again, payload, service, a.region, signed); err != nil {
		return "", malformed("it cannot be made again")
	}
	ours, err := parse(again.Header.Values("Authorization"))
	if err != nil || !hmac.Equal(ours.signature, a.signature) {
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

// signingTime is when the request was signed.
func signingTime(h http.Header) (time.Time, error) {
	if sent := h.Values("X-Amz-Date"); len(sent) == 1 {
		if t, err := time.Parse(timeForm, sent[0]); err == nil && t.Format(timeForm) == sent[0] {
			return t, nil
		}
	}
	return time.Time{}, malformed("it needs one X-Amz-Date such as " + timeForm)
}

// unsigned is what r was before it was signed, of which AWS's own signer makes the
// same signature again: it has the signed headers alone.
func unsigned(r *http.Request, signed []string) (*http.Request, error) {
	before := &http.Request{Method: r.Method, URL: new(*r.URL), Host: r.Host, Header: http.Header{}}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, malformed("the query cannot be read")
	}
	for name, values := range r.Header {
		lower := strings.ToLower(name)
		if slices.Contains(signed, lower) {
			before.Header[name] = slices.Clone(values)
		} else if strings.HasPrefix(lower, "x-amz-") {
			return nil, malformed(lower + " must be signed")
		}
	}
	for _, name := range signed {
		switch {
		case name == "content-length":
			before.ContentLength = r.ContentLength
		case name != "host" && before.Header.Values(name) == nil:
			return nil, malformed("a signed header is missing: " + strconv.QuoteToASCII(name))
		}
	}
	return before, nil
}

func hexHash(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
