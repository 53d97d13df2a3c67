package chatapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/buffer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// What a refusal may cost in the log, in bytes, whatever the caller sends: one line about
// the request; with metrics where a feature was named; with a cause where something of
// ours has failed.
const (
	refusalLine  = 480 // with the metric of its code
	metricsLines = 600
	causeLine    = 900
)

// long is what a hostile caller puts wherever it fits.
var long = strings.Repeat(`"<\u0000ü`, 2000)

// Refusing is what a flood makes us do, and writing logs is what it then costs: no kind
// of refusal writes more for a caller who sends more.
func TestRefusalsAreShortInTheLog(t *testing.T) {
	t.Parallel()
	const addr = "203.0.113.7:1"
	chat := func(body string) func(*rig) *http.Request {
		return func(g *rig) *http.Request { return g.visitRequest(addr, long, body) }
	}
	user := func(body string) func(*rig) *http.Request {
		return func(g *rig) *http.Request {
			return g.request(http.MethodPost, "/v1/chat/completions", g.token(strings.Repeat(`"`, 128), ""), body)
		}
	}
	with := func(name, value string) func(*rig) *http.Request {
		return func(g *rig) *http.Request {
			r := g.visitRequest(addr, "browser", question)
			r.Header.Set(name, value)
			return r
		}
	}
	use := func(n int, request func(*rig) *http.Request) func(*rig) {
		return func(g *rig) {
			for range n {
				g.do(request(g))
			}
		}
	}
	cv := user(`{"model":"cv","messages":[{"role":"user","content":"I am a welder."}]}`)
	fuse := func(state string) func(*rig) {
		return func(g *rig) {
			g.setFuse(state, g.now().Add(time.Hour))
			g.freeze(4 * time.Second) // seen within seconds
		}
	}
	down := func(g *rig) { g.net.Plan = faults.Always(faults.LostRequest) }
	quoted := func(s string) string { return string(openai.Encode(s)) }
	for name, tt := range map[string]struct {
		before  func(*rig)
		request func(*rig) *http.Request
		code    string
		most    int
	}{
		"400 no JSON":     {nil, chat(long), "invalid_json", refusalLine},
		"400 a parameter": {nil, chat(`{` + quoted(long) + `:1}`), "unsupported_parameter", refusalLine},
		"400 a value":     {nil, chat(`{"model":"docqa","messages":` + quoted(long) + `}`), "invalid_value", refusalLine},
		"400 input":       {nil, user(`{"model":"docqa","messages":[{"role":"user","content":` + quoted(strings.Repeat("word ", 9000)) + `}]}`), "input_too_long", refusalLine + 300},
		"401 a token":     {nil, with("Authorization", "Bearer "+long), "invalid_token", refusalLine},
		"401 an old token": {func(g *rig) { g.freeze(time.Hour) }, func(g *rig) *http.Request {
			// Made by the real clock, which is an hour behind the handler's.
			token, err := g.issuer.Token(issuer.Claims{Subject: strings.Repeat("x", 128), TTL: time.Minute})
			check.OK(g.t, err)
			return g.request(http.MethodPost, "/v1/chat/completions", token, question)
		}, "token_expired", refusalLine},
		"403 a challenge": {fuse("challenge"), chat(question), "challenge_required", refusalLine + metricsLines},
		"403 a pass":      {nil, with("X-Challenge-Pass", long), "challenge_failed", refusalLine},
		"403 a solution": {nil, func(g *rig) *http.Request {
			return g.request(http.MethodPost, "/v1/challenge", "", `{"payload":`+quoted(long[:9000])+`}`)
		}, "challenge_failed", refusalLine},
		"403 a feature": {nil, chat(`{"model":"cv","messages":[{"role":"user","content":"Hi"}]}`), "feature_not_allowed", refusalLine},
		"403 an origin": {nil, with("Origin", "https://"+long), "origin_not_allowed", refusalLine},
		"404 a model":   {nil, chat(`{"model":` + quoted(long[:100]) + `,"messages":[{"role":"user","content":"Hi"}]}`), "model_not_found", refusalLine},
		"404 an address": {nil, func(g *rig) *http.Request {
			r := g.request(http.MethodGet, "/", "", "")
			r.URL.Path = "/v1/" + long
			return r
		}, "not_found", refusalLine},
		"405": {nil, func(g *rig) *http.Request {
			r := g.request(http.MethodPost, "/v1/models", "", "{}")
			r.Method = strings.Repeat("VERB", 4000)
			return r
		}, "method_not_allowed", refusalLine},
		"413":                          {nil, chat(strings.Repeat("x", 1<<20+1)), "body_too_large", refusalLine},
		"415":                          {nil, with("Content-Type", "text/"+long), "unsupported_media_type", refusalLine},
		"429 a limit":                  {use(20, chat(`{"model":"docqa","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`)), chat(`{"model":"docqa","max_tokens":1,"messages":[{"role":"user","content":"Hi"}]}`), "rate_limit_exceeded", refusalLine + metricsLines},
		"429 a quota":                  {use(3, cv), cv, "insufficient_quota", refusalLine + 300 + metricsLines},
		"503 the fuse":                 {fuse("open"), chat(question), "fuse_open", refusalLine + metricsLines},
		"503 the store":                {down, chat(question), "store_unavailable", refusalLine + metricsLines + causeLine},
		"503 the store, of the limits": {down, func(g *rig) *http.Request { return g.request(http.MethodGet, "/v1/limits", "", "") }, "store_unavailable", refusalLine + causeLine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setup{}
			s.bucket.ReserveTimeout, s.bucket.AttemptTimeout = 500*time.Millisecond, 20*time.Second
			if tt.code != "store_unavailable" {
				s.bucket.ReserveTimeout = time.Minute
			}
			g := s.newRig(t, siege, func(yaml string) string {
				return strings.Replace(yaml, "challenge_at: 0.5, ", "", 1)
			})
			g.freeze(0)
			var metrics buffer.Synced
			g.handler.Metrics = emf.New(&metrics, "tokenfuse", g.now)
			if tt.before != nil {
				tt.before(g)
			}
			logged, measured := len(g.log.String()), len(metrics.String())
			r := tt.request(g)
			r.Header.Set("User-Agent", long)
			r.Header.Set("X-Forwarded-For", long)
			r.Header.Set("X-Request-Id", long)
			r.URL.RawQuery = "q=" + long
			a := g.do(r)
			if code := g.codeOf(a); code != tt.code {
				t.Fatalf("%d %.300s, want %s", a.status, a.body, tt.code)
			}
			logged, measured = len(g.log.String())-logged, len(metrics.String())-measured
			check.That(t, logged+measured <= tt.most, "%d bytes of log and %d of metrics, at most %d are right:\n%.3000s", logged, measured, tt.most, g.log)
			t.Logf("%d bytes of log, %d of metrics", logged, measured)
		})
	}
}
