package issuer_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const audience = "tokenfuse"

var start = time.Unix(1_800_000_000, 250_000_000)

// laptop is an issuer on a real server, and the real verifier of its tokens.
type laptop struct {
	*httptest.Server
	issuer *issuer.Issuer
	verify *auth.Verifier
	now    atomic.Int64 // the clock of both, in ns
}

func newLaptop(t *testing.T, planClaim string) *laptop {
	t.Helper()
	l := &laptop{}
	l.now.Store(start.UnixNano())
	clock := func() time.Time { return time.Unix(0, l.now.Load()) }
	mux := http.NewServeMux()
	l.Server = httptest.NewServer(mux)
	t.Cleanup(l.Close)
	var err error
	l.issuer, err = issuer.New(issuer.Options{URL: l.URL, Audience: audience, PlanClaim: planClaim, Now: clock})
	check.OK(t, err)
	mux.Handle("/dev/jwks.json", l.issuer.JWKS())
	mux.Handle("/dev/token", l.issuer.Tokens())
	if planClaim == "" {
		planClaim = "plan"
	}
	l.verify, err = auth.New(t.Context(), auth.Config{
		Issuer: l.URL, Audience: audience, JWKSURL: l.URL + "/dev/jwks.json", PlanClaim: planClaim,
		HTTPClient: l.Client(), Now: clock,
	})
	check.OK(t, err)
	return l
}

func TestNewNeedsItsOptions(t *testing.T) {
	t.Parallel()
	for _, opts := range []issuer.Options{{}, {URL: "http://127.0.0.1"}, {Audience: audience}, {URL: "http://127.0.0.1", Audience: audience, Seed: []byte("short")}} {
		if _, err := issuer.New(opts); err == nil {
			t.Errorf("%+v was accepted", opts)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, planClaim string
		claims          issuer.Claims
		want            auth.User
		life            time.Duration
	}{
		{"subject alone", "", issuer.Claims{Subject: "123"}, auth.User{Subject: "123"}, time.Hour},
		{"everything", "", issuer.Claims{Subject: "123", Email: "a@b.example", EmailVerified: true, Plan: "pro", TTL: time.Minute},
			auth.User{Subject: "123", Email: "a@b.example", Plans: []string{"pro"}}, time.Minute},
		{"not verified", "", issuer.Claims{Subject: "123", Email: "a@b.example"}, auth.User{Subject: "123"}, time.Hour},
		{"another claim for the plan", "https://example.com/plan", issuer.Claims{Subject: "123", Plan: "pro"},
			auth.User{Subject: "123", Plans: []string{"pro"}}, time.Hour},
		{"longest", "", issuer.Claims{Subject: "123", TTL: 30 * 24 * time.Hour}, auth.User{Subject: "123"}, 30 * 24 * time.Hour},
		{"shortest", "", issuer.Claims{Subject: "123", TTL: 1}, auth.User{Subject: "123"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLaptop(t, tt.planClaim)
			token, err := l.issuer.Token(tt.claims)
			check.OK(t, err)
			for _, at := range []time.Duration{0, tt.life - 1} { // good for all of its life
				l.now.Store(start.Add(at).UnixNano())
				if user, err := l.verify.Verify(t.Context(), token); err != nil || !cmp.Equal(user, tt.want) {
					t.Fatalf("after %v: %+v, %v", at, user, err)
				}
			}
			l.now.Store(start.Add(tt.life + time.Second).UnixNano())
			if _, err := l.verify.Verify(t.Context(), token); !errors.Is(err, auth.ErrExpired) {
				t.Errorf("a second after its life: %v", err)
			}
		})
	}
}

func TestTokenNamesTheWrongClaim(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	for field, claims := range map[string]issuer.Claims{
		"sub":   {Subject: "a b"},
		"email": {Subject: "123", Email: "A <a@b.example>"},
		"ttl":   {Subject: "123", TTL: -time.Second},
	} {
		if _, err := l.issuer.Token(claims); err == nil || !strings.HasPrefix(err.Error(), field+" ") {
			t.Errorf("%+v: got %v", claims, err)
		}
	}
}

func TestClaimNames(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	var ids []any
	for range 2 {
		token, err := l.issuer.Token(issuer.Claims{Subject: "123", Email: "a@b.example", EmailVerified: true, Plan: "pro"})
		check.OK(t, err)
		raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		check.OK(t, err)
		var claims map[string]any
		check.OK(t, json.Unmarshal(raw, &claims))
		ids = append(ids, claims["jti"])
		delete(claims, "jti")
		want := fmt.Sprint(map[string]any{
			"iss": l.URL, "aud": audience, "sub": "123", "email": "a@b.example", "email_verified": true, "plan": "pro",
			"iat": float64(start.Unix()), "nbf": float64(start.Unix()), "exp": float64(start.Unix() + 3601),
		})
		check.Equal(t, fmt.Sprint(claims), want, "fmt.Sprint(claims)")
	}
	check.That(t, ids[0] != nil && ids[0] != ids[1], "the tokens' ids: %v", ids)
}

// The token of a seed is good for whoever has the seed.
func TestSeed(t *testing.T) {
	t.Parallel()
	seed := bytes.Repeat([]byte{7}, 32)
	sets := map[string]bool{}
	for range 2 {
		i, err := issuer.New(issuer.Options{URL: "http://127.0.0.1", Audience: audience, Seed: seed})
		check.OK(t, err)
		w := httptest.NewRecorder()
		i.JWKS().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		sets[w.Body.String()] = true
	}
	check.That(t, len(sets) == 1, "key sets of one seed: %v", sets)
}

// TestOtherIssuersToken: without a seed each start makes a key of its own.
func TestOtherIssuersToken(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	other, err := issuer.New(issuer.Options{URL: l.URL, Audience: audience, Now: func() time.Time { return start }})
	check.OK(t, err)
	token, err := other.Token(issuer.Claims{Subject: "123"})
	check.OK(t, err)
	if _, err := l.verify.Verify(t.Context(), token); !errors.Is(err, auth.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestPostToken(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	for _, tt := range []struct {
		body string
		want auth.User
		life time.Duration
	}{
		{`{"sub":"123"}`, auth.User{Subject: "123"}, time.Hour},
		{`{"sub":"123","email":"a@b.example","plan":"pro","ttl":"90m"}`, auth.User{Subject: "123", Email: "a@b.example", Plans: []string{"pro"}}, 90 * time.Minute},
		{`{"sub":"123","email":"a@b.example","unverified":true}`, auth.User{Subject: "123"}, time.Hour},
		{`{"sub":"123","ttl":60}`, auth.User{Subject: "123"}, time.Minute},
		{`{"sub":"123","ttl":"1s"}`, auth.User{Subject: "123"}, time.Second},
		{`{"sub":"123","email":null,"plan":"","ttl":0.75}`, auth.User{Subject: "123"}, 750 * time.Millisecond},
	} {
		t.Run(tt.body, func(t *testing.T) {
			resp, err := l.Client().Post(l.URL+"/dev/token", "application/json", strings.NewReader(tt.body))
			check.OK(t, err)
			defer resp.Body.Close()
			var answer struct {
				Token     string `json:"token"`
				ExpiresAt int64  `json:"expires_at"`
			}
			if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("status %d, %v", resp.StatusCode, err)
			}
			if user, err := l.verify.Verify(t.Context(), answer.Token); err != nil || !cmp.Equal(user, tt.want) {
				t.Errorf("got %+v, %v", user, err)
			}
			life := time.Unix(answer.ExpiresAt, 0).Sub(start)
			check.That(t, life >= tt.life && life < tt.life+time.Second, "it lives for %v", life)
		})
	}
}

func TestPostTokenRefuses(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	for _, tt := range []struct{ body, param string }{
		{``, ""},
		{`x`, ""},
		{`null`, "sub"},
		{`[]`, ""},
		{`"123"`, ""},
		{`{"sub":"123"`, ""},
		{`{}`, "sub"},
		{`{"sub":""}`, "sub"},
		{`{"sub":"a b"}`, "sub"},
		{`{"sub":"net#abc"}`, "sub"},
		{`{"sub":"` + strings.Repeat("s", 129) + `"}`, "sub"},
		{`{"sub":123}`, "sub"},
		{`{"sub":"123","email":"nobody"}`, "email"},
		{`{"sub":"123","email":"A <a@b.example>"}`, "email"},
		{`{"sub":"123","email":1}`, "email"},
		{`{"sub":"123","plan":["pro"]}`, "plan"},
		{`{"sub":"123","ttl":"1 hour"}`, "ttl"},
		{`{"sub":"123","ttl":"-1s"}`, "ttl"},
		{`{"sub":"123","ttl":"0s"}`, "ttl"},
		{`{"sub":"123","ttl":0}`, "ttl"},
		{`{"sub":"123","ttl":-1}`, "ttl"},
		{`{"sub":"123","ttl":true}`, "ttl"},
		{`{"sub":"123","ttl":1e300}`, "ttl"},
		{`{"sub":"123","ttl":1e400}`, "ttl"},
		{`{"sub":"123","ttl":"721h"}`, "ttl"},
		{`{"sub":"123","unverified":"yes"}`, "unverified"},
		{`{"sub":"123","admin":true}`, "admin"},
		{`{"sub":"123","plan":"` + strings.Repeat("p", 64<<10) + `"}`, ""},
	} {
		name := tt.body[:min(len(tt.body), 50)]
		t.Run(name, func(t *testing.T) {
			resp, err := l.Client().Post(l.URL+"/dev/token", "application/json", strings.NewReader(tt.body))
			check.OK(t, err)
			defer resp.Body.Close()
			var answer struct {
				Error struct {
					Message, Type, Code string
					Param               *string
				}
			}
			check.OK(t, json.NewDecoder(resp.Body).Decode(&answer))
			e := answer.Error
			param := ""
			if e.Param != nil {
				param = *e.Param
			}
			check.That(t, resp.StatusCode == http.StatusBadRequest && param == tt.param && strings.Contains(e.Message, tt.param) && e.Message != "" && e.Type == "invalid_request_error" && e.Code != "",
				"status %d, %+v (param %q)", resp.StatusCode, e, param)
		})
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/dev/jwks.json", 200, ""},
		{"POST", "/dev/jwks.json", 405, "GET"},
		{"GET", "/dev/token", 405, "POST"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, l.URL+tt.path, nil)
		check.OK(t, err)
		resp, err := l.Client().Do(req)
		check.OK(t, err)
		resp.Body.Close()
		check.That(t, resp.StatusCode == tt.status && resp.Header.Get("Allow") == tt.allow,
			"%s %s: %d, Allow %q", tt.method, tt.path, resp.StatusCode, resp.Header.Get("Allow"))
	}
}

func TestJWKSHoldsNoPrivateKey(t *testing.T) {
	t.Parallel()
	l := newLaptop(t, "")
	rec := httptest.NewRecorder()
	l.issuer.JWKS().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/dev/jwks.json", nil))
	var set struct{ Keys []map[string]string }
	check.OK(t, json.Unmarshal(rec.Body.Bytes(), &set))
	check.Must(t, len(set.Keys) == 1, "got %s", rec.Body)
	for _, name := range []string{"crv", "kty", "x", "kid", "alg", "use"} {
		delete(set.Keys[0], name)
	}
	check.That(t, len(set.Keys[0]) == 0, "published beside the public key: %v", set.Keys[0])
}
