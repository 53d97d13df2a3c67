package secret

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
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	attempts  = 3
	maxAnswer = 1 << 20 // bytes; a secret has at most 64 KB
)

// ask makes one call of AWS's JSON protocol, which both services speak. Their SDK
// clients know hundreds of calls more, and to prepare for these was most of the start of
// a function.
func (r *Reader) ask(ctx context.Context, service, id, target string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		again, err := r.try(ctx, service, id, target, body, out)
		if err == nil || !again || n == attempts {
			return err
		}
		select {
		case <-time.After(time.Duration(n) * 200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// try reports whether an error may be gone the next time.
func (r *Reader) try(ctx context.Context, service, id, target string, body []byte, out any) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.endpoint(ctx, service, id), bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", target)
	keys, err := r.aws.Credentials.Retrieve(ctx)
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(ctx, keys, req, hex.EncodeToString(sum[:]), service, r.aws.Region, time.Now()); err != nil {
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
	again = res.StatusCode >= 500 || strings.Contains(kind, "Throttl") || strings.Contains(kind, "TooManyRequests")
	return again, fmt.Errorf("%s: %s", kind, cmp.Or(e.Message, "no message"))
}

// endpoint is where a service is: as the configuration says, else in the region.
func (r *Reader) endpoint(ctx context.Context, service, id string) string {
	if url := aws.ToString(r.aws.BaseEndpoint); url != "" {
		return url
	}
	for _, source := range r.aws.ConfigSources {
		if s, ok := source.(interface {
			GetServiceBaseEndpoint(context.Context, string) (string, bool, error)
		}); ok {
			if url, found, err := s.GetServiceBaseEndpoint(ctx, id); err == nil && found {
				return url
			}
		}
	}
	suffix := "amazonaws.com"
	if strings.HasPrefix(r.aws.Region, "cn-") {
		suffix += ".cn"
	}
	return "https://" + service + "." + r.aws.Region + "." + suffix + "/"
}
