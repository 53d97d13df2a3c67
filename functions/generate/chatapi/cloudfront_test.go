package chatapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const publicAddress = "https://ai.example.com/models"

// behindCloudFront is a policy whose API is reached through CloudFront.
func behindCloudFront(required string) func(string) string {
	return func(yaml string) string {
		return yaml + `
cloudfront: {origin_secrets: [{env: ORIGIN}], url: "` + publicAddress + `/", required: ` + required + `}
`
	}
}

// through is a request as CloudFront passes it on.
func through(r *http.Request) *http.Request {
	r.Header.Set(fingerprint.OriginSecretHeader, testSecret)
	r.Header.Set("CloudFront-Viewer-Address", "198.51.100.1:4711")
	return r
}

// A required distribution cannot be gone round, with a token or without, and what
// is refused for that costs nothing.
func TestCloudFrontRequired(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"", "123"} {
		g := newRig(t, siege, behindCloudFront("true"))
		token := ""
		if user != "" {
			token = g.token(user, "")
		}
		for name, edit := range map[string]func(http.Header){
			"no secret":     func(h http.Header) { h.Del(fingerprint.OriginSecretHeader) },
			"another":       func(h http.Header) { h.Set(fingerprint.OriginSecretHeader, "another-secret-of-some-length") },
			"two":           func(h http.Header) { h.Add(fingerprint.OriginSecretHeader, testSecret) },
			"empty":         func(h http.Header) { h.Set(fingerprint.OriginSecretHeader, "") },
			"secret hidden": func(h http.Header) { h.Set(fingerprint.OriginSecretHeader, " "+testSecret+",") },
		} {
			r := through(g.request(http.MethodPost, chatPath, token, chatBody("docqa", "Hi")))
			edit(r.Header)
			a := g.do(r)
			check.That(t, a.status == http.StatusForbidden && g.wireError(a).Code == string(openai.OriginNotAllowed), "%s: %d %s", name, a.status, a.body)
		}
		g.untouched(t)
		if a := g.do(through(g.request(http.MethodPost, chatPath, token, chatBody("docqa", "Hi")))); a.status != http.StatusOK {
			t.Errorf("through CloudFront: %d %s", a.status, a.body)
		}
	}
	without := newRig(t, siege, behindCloudFront("false"))
	if a := without.do(without.request(http.MethodPost, chatPath, "", chatBody("docqa", "Hi"))); a.status != http.StatusOK {
		t.Errorf("not required: %d %s", a.status, a.body)
	}
}

// CloudFront does not tell its own address, so the policy does: challenges are to be
// found there, and its pages are ours. Nobody else can claim it.
func TestCloudFrontAddress(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege, behindCloudFront("false"))
	for name, tt := range map[string]struct {
		request *http.Request
		base    string
	}{
		"through CloudFront": {through(g.request(http.MethodGet, "/v1/models", "", "")), publicAddress},
		"directly":           {g.request(http.MethodGet, "/v1/models", "", ""), "https://example.com"},
	} {
		if base := g.handler.base(tt.request); base != tt.base {
			t.Errorf("%s: %s, want %s", name, base, tt.base)
		}
		tt.request.Header.Set("Origin", "https://ai.example.com")
		a := g.do(tt.request)
		own := strings.HasPrefix(tt.base, "https://ai.")
		check.That(t, own == (a.status == http.StatusOK), "%s: a page of the public address: %d %s", name, a.status, a.body)
	}
	r := through(g.request(http.MethodPost, chatPath, "", chatBody("docqa", "Hi")))
	r.Header.Set(passHeader, "nonsense")
	if a := g.do(r); !strings.Contains(a.body, `"challenge_url":"`+publicAddress+`/v1/challenge"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}
