package challenge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// provider answers siteverify calls and keeps the last form.
type provider struct {
	*httptest.Server
	form  atomic.Pointer[url.Values]
	calls atomic.Int64
}

func newProvider(t *testing.T, answer http.HandlerFunc) *provider {
	p := &provider{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.calls.Add(1)
		check.That(t, r.Method == http.MethodPost && r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" && r.URL.RawQuery == "",
			"%s %s, Content-Type %q", r.Method, r.URL, r.Header.Get("Content-Type"))
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		p.form.Store(&r.PostForm)
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// config is a production configuration against p.
func (p *provider) config(kind string) SiteverifyConfig {
	return SiteverifyConfig{
		Kind: kind, Secret: "s3cr3t&x", SiteKey: "site", Hostname: "app.example.com", URL: p.URL,
		Now: (&clock{start}).now,
	}
}

func says(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

func TestSiteverify(t *testing.T) {
	const solved = `{"success":true,"challenge_ts":"2026-11-30T11:59:00.096Z","hostname":"app.example.com"`
	failed := func(codes string) string { return `{"success":false,"error-codes":[` + codes + `]}` }
	for name, tc := range map[string]struct {
		kind    string // turnstile unless said
		status  int    // 200 unless said
		answer  string
		payload string
		want    error
	}{
		"solved":              {answer: solved + `,"action":"","cdata":"","error-codes":[]}`},
		"solved, hcaptcha":    {kind: "hcaptcha", answer: solved + `,"credit":false,"score":0.9}`},
		"solved, recaptcha":   {kind: "recaptcha", answer: solved + `}`},
		"recaptcha version 3": {kind: "recaptcha", answer: solved + `,"score":0.9,"action":"x"}`, want: ErrUnavailable},
		"host in capitals":    {answer: strings.Replace(solved, "app", "APP", 1) + `}`},
		"another host":        {answer: strings.Replace(solved, "app", "evil", 1) + `}`, want: ErrElsewhere},
		"no host":             {answer: `{"success":true,"challenge_ts":"2026-11-30T11:59:00Z"}`, want: ErrElsewhere},
		"oldest":              {answer: strings.Replace(solved, "11:59:00.096", "11:50:00", 1) + `}`},
		"too old":             {answer: strings.Replace(solved, "11:59:00.096", "11:49:59", 1) + `}`, want: ErrExpired},
		"far ahead":           {answer: strings.Replace(solved, "2026", "9999", 1) + `}`, want: ErrUnavailable},
		"no time":             {answer: `{"success":true,"hostname":"app.example.com"}`, want: ErrUnavailable},
		"unsolved":            {answer: failed(`"invalid-input-response"`), want: ErrUnsolved},
		"unsolved, said 400":  {status: 400, answer: failed(`"invalid-input-response"`), want: ErrUnsolved},
		"no reason":           {answer: `{"success":false}`, want: ErrUnsolved},
		"late or used":        {answer: failed(`"timeout-or-duplicate"`), want: ErrExpired},
		"late":                {answer: failed(`"expired-input-response"`), want: ErrExpired},
		"used":                {answer: failed(`"already-seen-response"`), want: ErrUsed},
		"used, older word":    {answer: failed(`"invalid-or-already-seen-response"`), want: ErrUsed},
		"wrong secret":        {answer: failed(`"invalid-input-response","invalid-input-secret"`), want: ErrUnavailable},
		"wrong site key":      {kind: "hcaptcha", answer: failed(`"sitekey-secret-mismatch"`), want: ErrUnavailable},
		"their error":         {answer: failed(`"internal-error"`), want: ErrUnavailable},
		"500 and unsolved":    {status: 500, answer: failed(`"invalid-input-response"`), want: ErrUnavailable},
		"500":                 {status: 500, answer: solved + `}`, want: ErrUnavailable},
		"400 and success":     {status: 400, answer: solved + `}`, want: ErrUnavailable},
		"no answer":           {answer: ``, want: ErrUnavailable},
		"a page":              {answer: `<html>success: true</html>`, want: ErrUnavailable},
		"null":                {answer: `null`, want: ErrUnavailable},
		"no verdict":          {answer: `{"hostname":"app.example.com"}`, want: ErrUnavailable},
		"verdict as text":     {answer: strings.Replace(solved, "true", `"true"`, 1) + `}`, want: ErrUnavailable},
		"verdict as a number": {answer: strings.Replace(solved, "true", `1`, 1) + `}`, want: ErrUnavailable},
		"cut":                 {answer: solved, want: ErrUnavailable},
		"huge":                {answer: solved + `,"x":"` + strings.Repeat("x", maxAnswerBytes) + `"}`, want: ErrUnavailable},
		"empty token":         {payload: "-", want: ErrMissing},
		"long token":          {payload: strings.Repeat("x", maxResponseBytes+1), want: ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, payload := tc.kind, tc.payload
			if kind == "" {
				kind = "turnstile"
			}
			switch payload {
			case "":
				payload = "tok&en"
			case "-":
				payload = ""
			}
			status := tc.status
			if status == 0 {
				status = http.StatusOK
			}
			p := newProvider(t, says(status, tc.answer))
			v := must(NewSiteverify(p.config(kind)))
			got, err := v.Verify(context.Background(), "net", "192.0.2.1", payload)
			check.That(t, errors.Is(err, tc.want), "%v, want %v", err, tc.want)
			if tc.want == nil {
				id := sha256.Sum256([]byte(payload))
				check.That(t, got.ID == hex.EncodeToString(id[:]) && got.Expires.After(start), "solution %v", got)
			} else if got != (Solution{}) {
				t.Errorf("solution %v", got)
			}
			check.That(t, err == nil || !strings.Contains(err.Error(), "s3cr3t"), "%v tells the secret", err)
			if tc.payload != "" {
				check.That(t, p.calls.Load() == 0, "the provider was asked")
				return
			}
			want := url.Values{"secret": {"s3cr3t&x"}, "response": {"tok&en"}, "remoteip": {"192.0.2.1"}}
			if kind == "hcaptcha" {
				want.Set("sitekey", "site")
			}
			diff := cmp.Diff(want, *p.form.Load())
			check.That(t, diff == "" && p.calls.Load() == 1, "%d calls, the form: %s", p.calls.Load(), diff)
		})
	}
}

func TestSiteverifyWithoutOptions(t *testing.T) {
	p := newProvider(t, says(200, `{"success":true,"challenge_ts":"2026-11-30T12:00:00Z","hostname":"anywhere"}`))
	cfg := p.config("turnstile")
	cfg.Hostname = ""
	if _, err := must(NewSiteverify(cfg)).Verify(context.Background(), "net", "", "token"); err != nil {
		t.Error(err)
	}
	check.That(t, !p.form.Load().Has("remoteip"), "an unknown address is told")
}

// The secret goes nowhere else, and another server's yes is none.
func TestSiteverifyFollowsNoRedirect(t *testing.T) {
	other := newProvider(t, says(200, `{"success":true,"challenge_ts":"2026-11-30T12:00:00Z","hostname":"app.example.com"}`))
	for _, status := range []int{301, 303, 307, 308} {
		p := newProvider(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, status) })
		if _, err := must(NewSiteverify(p.config("turnstile"))).Verify(context.Background(), "net", "", "token"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%d: %v", status, err)
		}
	}
	check.Equal(t, other.calls.Load(), 0, "redirects were followed")
}

func TestSiteverifyOutage(t *testing.T) {
	p := newProvider(t, says(200, ""))
	cfg := p.config("turnstile")
	p.Close()
	if _, err := must(NewSiteverify(cfg)).Verify(context.Background(), "net", "", "token"); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

// A provider that does not answer, or stops within its answer, is given up.
func TestSiteverifyTimeout(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, answer := range map[string]http.HandlerFunc{
		"no answer": func(w http.ResponseWriter, r *http.Request) { <-release },
		"stops": func(w http.ResponseWriter, r *http.Request) {
			says(200, `{"success":true,`)(w, r)
			w.(http.Flusher).Flush()
			<-release
		},
	} {
		p := newProvider(t, answer)
		t.Cleanup(p.CloseClientConnections)
		v := must(NewSiteverify(p.config("turnstile")))
		check.Equal(t, v.client.Timeout, 5*time.Second, "time-out")
		v.client.Timeout = 50 * time.Millisecond
		if _, err := v.Verify(context.Background(), "net", "", "token"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		n := p.calls.Load()
		check.That(t, n <= 1, "%s: %d calls", name, n)
	}
}

func TestSiteverifyTestSecrets(t *testing.T) {
	for kind, secret := range map[string]string{
		"turnstile": "1x0000000000000000000000000000000AA",
		"hcaptcha":  "0x0000000000000000000000000000000000000000",
		"recaptcha": "6LeIxAcTAAAAAGG-vFI1TnRWxMZNFuojJ4WifJWe",
	} {
		p := newProvider(t, says(200, `{"success":true,"challenge_ts":"2020-01-01T00:00:00Z","hostname":"example.com"}`))
		cfg := p.config(kind)
		cfg.Secret = secret
		if _, err := NewSiteverify(cfg); err == nil {
			t.Errorf("%s: the test secret is accepted in production", kind)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%v tells the secret", err)
		}
		cfg.AllowTestSecrets = true
		v := must(NewSiteverify(cfg))
		// Tests always send the same token: it has to serve more than once.
		first, err := v.Verify(context.Background(), "net", "", "XXXX.DUMMY.TOKEN.XXXX")
		check.That(t, err == nil && first.Expires.After(start), "%s: %v, %v", kind, first, err)
		second := must(v.Verify(context.Background(), "net", "", "XXXX.DUMMY.TOKEN.XXXX"))
		check.That(t, second.ID != first.ID, "%s: the same id twice", kind)
	}
	for name, cfg := range map[string]SiteverifyConfig{
		"no secret":    {Kind: "turnstile", Now: time.Now},
		"unknown kind": {Kind: "altcha", Secret: "s", Now: time.Now},
	} {
		if _, err := NewSiteverify(cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// roundTripper answers in a server's place.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Whatever a third party answers, nobody gets in without its plain yes to this host in this
// time; and what fails says which side is to blame.
func FuzzSiteverifyAnswer(f *testing.F) {
	yes := fmt.Sprintf(`{"success":true,"challenge_ts":%q,"hostname":"App.example.com"}`, start.Format(time.RFC3339))
	for _, body := range []string{
		yes, strings.Replace(yes, "true", `"true"`, 1), strings.Replace(yes, "App", "evil", 1), strings.Replace(yes, "}", `,"score":0.9}`, 1), strings.Replace(yes, "}", `,"success":false}`, 1),
		`{"success":false,"error-codes":["timeout-or-duplicate"]}`, `{"success":false,"error-codes":["invalid-input-secret"]}`, `{"success":false,"error-codes":{}}`, `{}`, `null`, `{"success":true,"challenge_ts":"9999-12-31T23:59:59Z","hostname":"app.example.com"}`,
	} {
		f.Add(200, body, "token")
	}
	f.Add(400, yes, "token")
	f.Add(302, yes, "token")
	var status int
	var body string
	verifiers := map[string]*Siteverify{}
	for kind := range siteverifyURLs {
		v := must(NewSiteverify(SiteverifyConfig{Kind: kind, Secret: "s3cr3t", Hostname: "app.example.com", URL: "http://127.0.0.1:1", Now: (&clock{start}).now}))
		v.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
		verifiers[kind] = v
	}
	f.Fuzz(func(t *testing.T, code int, answer, payload string) {
		status, body = code, answer
		for kind, v := range verifiers {
			s, err := v.Verify(context.Background(), "net", "", payload)
			var refusal Refusal
			if err != nil {
				check.That(t, (errors.As(err, &refusal) || errors.Is(err, ErrUnavailable)) && s == (Solution{}), "%s: %v, %+v", kind, err, s)
				check.That(t, !strings.Contains(err.Error(), "s3cr3t"), "%s: %v has the secret", kind, err)
				continue
			}
			var said map[string]json.RawMessage
			check.OK(t, json.Unmarshal([]byte(answer), &said))
			check.That(t, code == 200 && payload != "" && strings.Contains(answer, "true") && !s.Expires.Before(start) && len(s.ID) == 64, "%s: %d %s let in %+v", kind, code, answer, s)
			check.That(t, s.Expires.Before(start.Add(2*maxAge+clockSkew+time.Second)), "%s: a solution lasts until %s", kind, s.Expires)
		}
	})
}
