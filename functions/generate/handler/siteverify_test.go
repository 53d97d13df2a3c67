package handler

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/challenge"
)

// A third party that verifies is asked at most 20 times a minute for a network:
// who posts nonsense must not make us flood it.
func TestSiteverifyIsAskedSeldom(t *testing.T) {
	t.Parallel()
	g := newRig(t, siege)
	g.freeze(0)
	var asked atomic.Int64
	thirdParty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, `{"success":false,"error-codes":["invalid-input-response"]}`)
	}))
	t.Cleanup(thirdParty.Close)
	verifier, err := challenge.NewSiteverify(challenge.SiteverifyConfig{Kind: "turnstile", Secret: "a-real-secret", URL: thirdParty.URL, Now: g.now})
	if err != nil {
		t.Fatal(err)
	}
	g.handler.Challenges, g.handler.Altcha = verifier, nil

	const addr = "203.0.113.7:1"
	codes := map[string]int{}
	var last answer
	for range 25 {
		last = g.post(addr, `{"payload":"nonsense"}`)
		codes[g.codeOf(last)]++
	}
	if asked.Load() != 20 || codes["challenge_failed"] != 20 || codes["rate_limit_exceeded"] != 5 {
		t.Errorf("asked %d times, answers %v", asked.Load(), codes)
	}
	if e := g.wireError(last); e.Limit != "siteverify" || last.header.Get("Retry-After") == "" {
		t.Errorf("%+v", e)
	}
	// Other networks are not held up, and this one not for ever.
	g.post("198.51.100.1:1", `{"payload":"nonsense"}`)
	g.freeze(time.Minute)
	g.post(addr, `{"payload":"nonsense"}`)
	if asked.Load() != 22 {
		t.Errorf("asked %d times, want 22", asked.Load())
	}
	r := g.request(http.MethodGet, "/v1/challenge", "", "")
	if a := g.do(r); a.status != http.StatusOK || a.body != `{"kind":"altcha","site_key":""}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}
