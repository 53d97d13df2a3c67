// Package awsjson makes single calls of AWS's JSON protocol. The SDK's clients know
// hundreds of calls more, and to prepare for these was most of the start of a function.
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
	"math/rand/v2"
	"net/http"
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
	Version string // of the protocol: 1.0 or 1.1
}

// Client makes calls with the region and the keys of a configuration.
type Client struct{ aws aws.Config }

// New makes a Client.
func New(cfg aws.Config) Client { return Client{cfg} }

// Ask makes one call, and repeats it until it is answered or ctx ends. Refused says that
// the error is of the request itself and that no other attempt would change it. No error
// has anything of a good answer.
func (c Client) Ask(ctx context.Context, to Service, target string, in, out any) (refused bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return true, err
	}
	for n := 0; ; n++ {
		again, err := c.try(ctx, to, target, body, out)
		if err == nil || !again || !pause(ctx, n) {
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
func (c Client) try(ctx context.Context, to Service, target string, body []byte, out any) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.Endpoint(ctx, to), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-"+to.Version)
	req.Header.Set("X-Amz-Target", target)
	keys, err := c.aws.Credentials.Retrieve(ctx)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, keys, req, hex.EncodeToString(sum[:]), to.Host, c.aws.Region, time.Now()); err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return true, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return true, err
	}
	if res.StatusCode == http.StatusOK {
		if json.Unmarshal(answer, out) != nil { // the error would quote it
			return false, errors.New("the answer is no JSON")
		}
		return false, nil
	}
	var e struct {
		Type    string `json:"__type"`
		Message string
	}
	_ = json.Unmarshal(answer, &e)
	kind := cmp.Or(e.Type[strings.LastIndexByte(e.Type, '#')+1:], res.Status)
	again = res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests ||
		strings.Contains(kind, "Throttl") || strings.Contains(kind, "TooManyRequests") || strings.Contains(kind, "LimitExceeded")
	return again, fmt.Errorf("%s: %s", kind, cmp.Or(e.Message, "no message"))
}
