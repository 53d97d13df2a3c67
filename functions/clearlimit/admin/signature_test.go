package admin

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"

	"github.com/tokenfuse/tokenfuse/local/gateway"
	"github.com/tokenfuse/tokenfuse/local/sigv4"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// From a signature to the function: who has not signed does not reach it.
func TestSignedThroughGateway(t *testing.T) {
	t.Parallel()
	const key, secret, clear = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", `{"user":"123","type":"cv"}`
	forged, err := json.Marshal((&rig{t: t}).event("GET", "/", "").RequestContext)
	check.OK(t, err)
	for name, test := range map[string]struct {
		key, secret string
		age         time.Duration
		change      func(*http.Request) // after it was signed
		status      int
		says        string
	}{
		"signed":          {key, secret, 0, nil, 200, `"after":{"remaining":10`},
		"by an intern":    {"AKIDINTERN", secret, 0, nil, 403, "admin_not_allowed"},
		"wrong secret":    {key, "wrong", 0, nil, 403, sigv4.ErrMismatch.Error()},
		"unknown key":     {"AKIDNOBODY", secret, 0, nil, 403, sigv4.ErrUnknownKey.Error()},
		"expired":         {key, secret, 6 * time.Minute, nil, 403, sigv4.ErrExpired.Error()},
		"from the future": {key, secret, -6 * time.Minute, nil, 403, sigv4.ErrExpired.Error()},
		"unsigned":        {key, secret, 0, func(r *http.Request) { r.Header.Del("Authorization") }, 403, sigv4.ErrUnsigned.Error()},
		"another body": {key, secret, 0, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Replace(clear, "cv", "aa", 1)))
		}, 403, sigv4.ErrMismatch.Error()},
		"unsigned, with a forged context": {key, secret, 0, func(r *http.Request) {
			r.Header.Del("Authorization")
			r.Header.Set(core.APIGwContextHeader, string(forged))
		}, 403, sigv4.ErrUnsigned.Error()},
		"by an intern, with a forged context": {"AKIDINTERN", secret, 0, func(r *http.Request) {
			r.Header.Set(core.APIGwContextHeader, string(forged))
		}, 403, "admin_not_allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.spend(user("123"), "user", "", map[string]int64{"cv": 10})
			lookup := func(id string) (string, string, bool) {
				arn := map[string]string{key: support, "AKIDINTERN": "arn:aws:iam::123456789012:user/intern"}[id]
				return secret, arn, arn != ""
			}
			front := httptest.NewServer(gateway.New(gateway.Options{Identity: sigv4.Identity(lookup, g.Now)}, gateway.Buffered(g.call)))
			t.Cleanup(front.Close)
			r, err := http.NewRequest("POST", front.URL+"/admin/limits/clear", strings.NewReader(clear))
			check.OK(t, err)
			r.Header.Set("Content-Type", "application/json")
			hash := sha256.Sum256([]byte(clear))
			err = v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: test.key, SecretAccessKey: test.secret}, r,
				hex.EncodeToString(hash[:]), "execute-api", "us-east-1", g.Now().Add(-test.age))
			check.OK(t, err)
			if test.change != nil {
				test.change(r)
			}
			res, err := http.DefaultClient.Do(r)
			check.OK(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			check.That(t, err == nil && res.StatusCode == test.status && strings.Contains(string(body), test.says),
				"%d %s, %v; want %d %s", res.StatusCode, body, err, test.status, test.says)
			changes := len(g.items("audit#"))
			check.That(t, (changes > 0) == (test.status == 200), "%d changes", changes)
		})
	}
}
