// Package awsjson makes single calls of AWS's JSON protocol, and of its older one of forms,
// which SNS speaks alone. The SDK's clients know hundreds of calls more, and to prepare for
// these was most of the start of a function.
package awsjson

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	// attemptTimeout bounds one request, so that a lost answer does not cost the whole
	// time of a start.
	attemptTimeout = 3 * time.Second
	maxAnswer      = 1 << 20 // bytes

	// Between two requests lies a random time up to firstPause, then up to twice that, and
	// so on up to longestPause. Containers start in bursts and share one quota: what
	// spreads them is that the whole time is drawn, from 0 on ("full jitter").
	firstPause   = 200 * time.Millisecond
	longestPause = 2 * time.Second
	// answerTime is left for the last request.
	answerTime = 300 * time.Millisecond
)

// Service is a service of AWS.
type Service struct {
	Host    string // what its address begins with, and what a request is signed for: ssm
	ID      string // what the SDK calls it: Secrets Manager
	Version string // of the JSON protocol, 1.0 or 1.1; of a service of forms, its date
}

// Client makes calls with the region and the keys of a configuration.
type Client struct{ aws aws.Config }

// New makes a Client.
func New(cfg aws.Config) Client { return Client{cfg} }

// Ask makes one call, and repeats it until it is answered, ctx ends, or it was tried as
// often as the configuration's RetryMaxAttempts says, if that is set. Refused says that
// the error is of the request itself and that no other attempt would change it. No error
// has anything of a good answer.
func (c Client) Ask(ctx context.Context, to Service, target string, in, out any) (refused bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return true, err
	}
	return c.ask(ctx, to, http.Header{"Content-Type": {"application/x-amz-json-" + to.Version}, "X-Amz-Target": {target}}, body, func(answer []byte) error {
		if json.Unmarshal(answer, out) != nil { // the error would quote it
			return errors.New("the answer is no JSON")
		}
		return nil
	})
}

// Post is Ask in the protocol of forms, of which the answer says nothing but that it was
// done.
func (c Client) Post(ctx context.Context, to Service, action string, form url.Values) (refused bool, err error) {
	form.Set("Action", action)
	form.Set("Version", to.Version)
	return c.ask(ctx, to, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, []byte(form.Encode()), func([]byte) error { return nil })
}

func (c Client) ask(ctx context.Context, to Service, header http.Header, body []byte, take func(answer []byte) error) (refused bool, err error) {
	for n := 0; ; n++ {
		again, err := c.try(ctx, to, header, body, take)
		if err == nil || !again || n+1 == c.aws.RetryMaxAttempts || !pause(ctx, n) {
			return err != nil && !again, err
		}
	}
}

// pause waits before another request; false means that ctx ends too soon for one.
func pause(ctx context.Context, n int) bool {
	longest := min(longestPause, firstPause<<min(n, 10))
	if end, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(end)-answerTime)
	}
	if longest <= 0 {
		return false
	}
	select {
	case <-time.After(rand.N(longest)):
		return true
	case <-ctx.Done():
		return false
	}
}

// try reports whether an error may be gone the next time.
func (c Client) try(ctx context.Context, to Service, header http.Header, body []byte, take func(answer []byte) error) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Endpoint(ctx, to), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	maps.Copy(req.Header, header)
	keys, err := c.aws.Credentials.Retrieve(ctx)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, keys, req, hex.EncodeToString(sum[:]), to.Host, c.aws.Region, time.Now()); err != nil {
		return false, err
	}
	client := c.aws.HTTPClient
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return true, err
	}
	if res.StatusCode == http.StatusOK {
		return false, take(answer)
	}
	var e struct {
		Type    string `json:"__type"`
		Message string
	}
	if json.Unmarshal(answer, &e) != nil { // it may be XML, for which a package more would be started
		e.Type, e.Message = element(answer, "Code"), element(answer, "Message")
	}
	kind := cmp.Or(e.Type[strings.LastIndexByte(e.Type, '#')+1:], res.Status)
	again = res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests ||
		strings.Contains(kind, "Throttl") || strings.Contains(kind, "TooManyRequests") || strings.Contains(kind, "LimitExceeded")
	return again, fmt.Errorf("%s: %s", kind, cmp.Or(e.Message, "no message"))
}

// element is what the first element of a name holds in XML; "": there is none.
func element(xml []byte, name string) string {
	_, rest, _ := strings.Cut(string(xml), "<"+name+">")
	text, _, ended := strings.Cut(rest, "</"+name+">")
	if !ended {
		return ""
	}
	return text
}
