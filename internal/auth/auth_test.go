package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	known "github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	issuerURL = "https://issuer.example/pool"
	audience  = "tokenfuse"
	plan      = "https://example.com/plan"
)

// start is when every test begins.
var start = time.Unix(1_800_000_000, 0)

// keys are made once: RSA keys take long.
var keys = sync.OnceValue(func() (k struct {
	rsa, rsaOther, rsaWeak *rsa.PrivateKey
	p256, p384, p521       *ecdsa.PrivateKey
	ed                     ed25519.PrivateKey
}) {
	k.rsa = must(rsa.GenerateKey(rand.Reader, 2048))
	k.rsaOther = must(rsa.GenerateKey(rand.Reader, 2048))
	k.rsaWeak = must(rsa.GenerateKey(rand.Reader, 1024))
	k.p256 = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	k.p384 = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	k.p521 = must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader))
	_, k.ed, _ = ed25519.GenerateKey(rand.Reader)
	return k
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// jwk is the published form of a key; alg and use may be empty.
func jwk(kid string, private crypto.Signer, alg jwkset.ALG, use jwkset.USE) jwkset.JWKMarshal {
	key := must(jwkset.NewJWKFromKey(private.Public(), jwkset.JWKOptions{
		Metadata: jwkset.JWKMetadataOptions{KID: kid, ALG: alg, USE: use},
	}))
	return key.Marshal()
}

func keySet(keys ...jwkset.JWKMarshal) string {
	return string(must(json.Marshal(jwkset.JWKSMarshal{Keys: keys})))
}

// issuer is a real HTTP server of a key set, and a clock that stands still.
type issuer struct {
	*httptest.Server

	mu      sync.Mutex
	answer  http.HandlerFunc
	fetches int
	now     time.Time
}

func newIssuer(t testing.TB, set string) *issuer {
	i := &issuer{now: start}
	i.publish(set)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		i.fetches++
		answer := i.answer
		i.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) publish(set string) {
	i.serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(set)) })
}

func (i *issuer) fail() {
	i.serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
}

func (i *issuer) serve(answer http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = answer
}

func (i *issuer) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

func (i *issuer) clock() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now
}

func (i *issuer) advance(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = i.now.Add(d)
}

func (i *issuer) verifier(t testing.TB) *auth.Verifier {
	t.Helper()
	v, err := auth.New(t.Context(), auth.Config{
		Issuer: issuerURL, Audience: audience, JWKSURL: i.URL, PlanClaim: plan,
		HTTPClient: i.Client(), Now: i.clock,
	})
	check.OK(t, err)
	return v
}

// sign makes a token of exactly these two JSON texts.
func sign(method jwt.SigningMethod, key any, header, payload string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
	return text + "." + base64.RawURLEncoding.EncodeToString(must(method.Sign(text, key)))
}

func header(alg, kid string) string { return fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"JWT"}`, alg, kid) }

// payload is a good set of claims with some changed; nil leaves one out.
func payload(change map[string]any) string {
	claims := map[string]any{
		"iss": issuerURL, "aud": audience, "sub": "user-1",
		"iat": start.Unix(), "nbf": start.Unix(), "exp": start.Add(time.Hour).Unix(),
	}
	for name, value := range change {
		if value == nil {
			delete(claims, name)
		} else {
			claims[name] = value
		}
	}
	return string(must(json.Marshal(claims)))
}

// wrong checks that err is of the kind and repeats nothing of the token.
func wrong(t *testing.T, err, kind error, token string) {
	t.Helper()
	for _, other := range []error{auth.ErrInvalid, auth.ErrExpired, auth.ErrUnavailable} {
		check.Must(t, errors.Is(err, other) == (other == kind), "got error %v, want %v", err, kind)
	}
	for part := range strings.SplitSeq(token, ".") {
		check.That(t, len(part) <= 8 || !strings.Contains(err.Error(), part), "the error repeats the token: %v", err)
	}
}

func TestVerifyAlgorithms(t *testing.T) {
	k := keys()
	iss := newIssuer(t, keySet(
		jwk("rsa", k.rsa, "", ""), jwk("p256", k.p256, "", jwkset.UseSig), jwk("p384", k.p384, "ES384", "sig"),
		jwk("p521", k.p521, "", ""), jwk("ed", k.ed, "EdDSA", "sig"),
	))
	v := iss.verifier(t)
	for _, tt := range []struct {
		method jwt.SigningMethod
		kid    string
		key    any
	}{
		{jwt.SigningMethodRS256, "rsa", k.rsa},
		{jwt.SigningMethodRS384, "rsa", k.rsa},
		{jwt.SigningMethodRS512, "rsa", k.rsa},
		{jwt.SigningMethodPS256, "rsa", k.rsa},
		{jwt.SigningMethodPS384, "rsa", k.rsa},
		{jwt.SigningMethodPS512, "rsa", k.rsa},
		{jwt.SigningMethodES256, "p256", k.p256},
		{jwt.SigningMethodES384, "p384", k.p384},
		{jwt.SigningMethodES512, "p521", k.p521},
		{jwt.SigningMethodEdDSA, "ed", k.ed},
	} {
		t.Run(tt.method.Alg(), func(t *testing.T) {
			token := sign(tt.method, tt.key, header(tt.method.Alg(), tt.kid), payload(nil))
			if u, err := v.Verify(t.Context(), token); err != nil || u.Subject != "user-1" {
				t.Errorf("got %+v, %v", u, err)
			}
			// The same with a bit of the signature turned.
			cut := strings.LastIndexByte(token, '.') + 1
			sig := must(base64.RawURLEncoding.DecodeString(token[cut:]))
			sig[len(sig)/2] ^= 1
			_, err := v.Verify(t.Context(), token[:cut]+base64.RawURLEncoding.EncodeToString(sig))
			wrong(t, err, auth.ErrInvalid, token)
		})
	}
	check.Equal(t, iss.count(), 1, "the keys were fetched … times")
}

func TestVerifyUser(t *testing.T) {
	k := keys()
	v := newIssuer(t, keySet(jwk("ed", k.ed, "", ""))).verifier(t)
	cognito := map[string]any{"aud": nil, "client_id": audience, "token_use": "access"}
	with := func(base map[string]any, name string, value any) map[string]any {
		changed := map[string]any{name: value}
		for k, v := range base {
			if k != name {
				changed[k] = v
			}
		}
		return changed
	}
	user := auth.User{Subject: "user-1"}
	for _, tt := range []struct {
		name   string
		change map[string]any
		want   auth.User
	}{
		{"plain", nil, user},
		{"no nbf, no iat", map[string]any{"nbf": nil, "iat": nil}, user},
		{"fractions of a second", map[string]any{"exp": float64(start.Unix()) + 0.5}, user},
		{"one of several audiences", map[string]any{"aud": []string{"other", audience}}, user},
		{"clock of the issuer ahead", map[string]any{"nbf": start.Unix() + 30, "iat": start.Unix() + 30}, user},
		{"last second", map[string]any{"exp": start.Unix() + 1}, user},
		{"Cognito access token", cognito, user},
		{"longest subject", map[string]any{"sub": strings.Repeat("s", 128)}, auth.User{Subject: strings.Repeat("s", 128)}},
		{"subject of any printable characters", map[string]any{"sub": `auth0|o'Brien+a@b.c/"~!`}, auth.User{Subject: `auth0|o'Brien+a@b.c/"~!`}},
		{"plan", map[string]any{plan: "pro"}, auth.User{Subject: "user-1", Plans: []string{"pro"}}},
		{"plans", map[string]any{plan: []any{"basic", 7, nil, "pro", []string{"x"}, ""}}, auth.User{Subject: "user-1", Plans: []string{"basic", "pro", ""}}},
		{"plan of another type", map[string]any{plan: map[string]any{"name": "pro"}}, user},
		{"another claim called plan", map[string]any{"plan": "pro"}, user},
		{"verified e-mail", map[string]any{"email": "a@b.c", "email_verified": true}, auth.User{Subject: "user-1", Email: "a@b.c"}},
		{"verified as Cognito says it", map[string]any{"email": "a@b.c", "email_verified": "true"}, auth.User{Subject: "user-1", Email: "a@b.c"}},
		{"e-mail, nothing said", map[string]any{"email": "a@b.c"}, auth.User{Subject: "user-1", EmailUnsaid: true}},
		{"e-mail, null said", map[string]any{"email": "a@b.c", "email_verified": json.RawMessage("null")}, auth.User{Subject: "user-1", EmailUnsaid: true}},
		{"e-mail not verified", map[string]any{"email": "a@b.c", "email_verified": false}, user},
		{"verified is a number", map[string]any{"email": "a@b.c", "email_verified": 1}, user},
		{"verified in another case", map[string]any{"email": "a@b.c", "email_verified": "True"}, user},
		{"Verified in another case", map[string]any{"email": "a@b.c", "Email_verified": true}, auth.User{Subject: "user-1", EmailUnsaid: true}},
		{"e-mail of another type", map[string]any{"email": 7, "email_verified": true}, user},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := v.Verify(t.Context(), sign(jwt.SigningMethodEdDSA, k.ed, header("EdDSA", "ed"), payload(tt.change)))
			check.That(t, err == nil && cmp.Equal(got, tt.want), "got %+v, %v; want %+v", got, err, tt.want)
		})
	}

	for _, tt := range []struct {
		name   string
		change map[string]any
		want   auth.Reason
	}{
		{"expired now", map[string]any{"exp": start.Unix()}, auth.Expired},
		{"expired by a second", map[string]any{"exp": start.Unix() - 1}, auth.Expired},
		{"expired, of another issuer", map[string]any{"exp": start.Unix() - 1, "iss": "https://evil.example"}, auth.Issuer},
		{"expired, for another audience", map[string]any{"exp": start.Unix() - 1, "aud": "other"}, auth.Audience},
		{"no exp", map[string]any{"exp": nil}, auth.ExpiryNone},
		{"exp a string", map[string]any{"exp": "1900000000"}, auth.Malformed},
		{"exp null", map[string]any{"exp": json.RawMessage("null")}, auth.Malformed},
		{"exp 1e400", map[string]any{"exp": json.RawMessage("1e400")}, auth.Malformed},
		{"exp 1e300", map[string]any{"exp": json.RawMessage("1e300")}, auth.Malformed},
		{"exp in milliseconds", map[string]any{"exp": start.UnixMilli()}, auth.Malformed},
		{"exp negative", map[string]any{"exp": -1}, auth.Malformed},
		{"EXP", map[string]any{"exp": nil, "EXP": start.Unix() + 60}, auth.ExpiryNone},
		{"nbf ahead", map[string]any{"nbf": start.Unix() + 31}, auth.NotYet},
		{"nbf a string", map[string]any{"nbf": "0"}, auth.Malformed},
		{"iat ahead", map[string]any{"iat": start.Unix() + 31}, auth.IssuedLater},
		{"iat a boolean", map[string]any{"iat": true}, auth.Malformed},
		{"another iss", map[string]any{"iss": "https://evil.example"}, auth.Issuer},
		{"no iss", map[string]any{"iss": nil}, auth.Issuer},
		{"other iss", map[string]any{"iss": issuerURL + "/"}, auth.IssuerSlash},
		{"iss a list", map[string]any{"iss": []string{issuerURL}}, auth.Malformed},
		{"no aud", map[string]any{"aud": nil}, auth.AudienceNone},
		{"other aud", map[string]any{"aud": audience + "2"}, auth.Audience},
		{"other auds", map[string]any{"aud": []string{"a", "b"}}, auth.Audience},
		{"aud empty", map[string]any{"aud": []string{}}, auth.Audience},
		{"aud with a number in it", map[string]any{"aud": []any{audience, 1}}, auth.Malformed},
		{"aud an object", map[string]any{"aud": map[string]any{audience: 1}}, auth.Malformed},
		{"Cognito token of another client", with(cognito, "client_id", "other"), auth.Audience},
		{"Cognito token of another use", with(cognito, "token_use", "id"), auth.Audience},
		{"client_id beside another aud", with(cognito, "aud", "other"), auth.Audience},
		{"client_id beside a null aud", with(cognito, "aud", json.RawMessage("null")), auth.Audience},
		{"client_id beside no audience", with(cognito, "aud", []string{}), auth.Audience},
		{"client_id without token_use", with(cognito, "token_use", nil), auth.Audience},
		{"no sub", map[string]any{"sub": nil}, auth.Subject},
		{"sub empty", map[string]any{"sub": ""}, auth.Subject},
		{"sub a number", map[string]any{"sub": 123}, auth.Malformed},
		{"sub too long", map[string]any{"sub": strings.Repeat("s", 129)}, auth.Subject},
		{"sub with a space", map[string]any{"sub": "a b"}, auth.Subject},
		{"sub with a separator", map[string]any{"sub": "net#abc"}, auth.Subject},
		{"sub with a line break", map[string]any{"sub": "a\nb"}, auth.Subject},
		{"sub with NUL", map[string]any{"sub": "a\x00"}, auth.Subject},
		{"sub with DEL", map[string]any{"sub": "a\x7f"}, auth.Subject},
		{"sub beyond ASCII", map[string]any{"sub": "usér"}, auth.Subject},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token := sign(jwt.SigningMethodEdDSA, k.ed, header("EdDSA", "ed"), payload(tt.change))
			_, err := v.Verify(t.Context(), token)
			kind := auth.ErrInvalid
			if tt.want == auth.Expired {
				kind = auth.ErrExpired
			}
			if wrong(t, err, kind, token); auth.ReasonOf(err) != tt.want {
				t.Errorf("reason %q, want %q", auth.ReasonOf(err), tt.want)
			}
		})
	}
}

// verifierOf is a verifier of one key's tokens, with a changed configuration.
func verifierOf(t *testing.T, change func(*auth.Config)) *auth.Verifier {
	t.Helper()
	iss := newIssuer(t, keySet(jwk("ed", keys().ed, "", "")))
	cfg := auth.Config{Issuer: issuerURL, Audience: audience, JWKSURL: iss.URL, HTTPClient: iss.Client(), Now: iss.clock}
	change(&cfg)
	return must(auth.New(t.Context(), cfg))
}

// Plans may stand within other claims; names may have dots.
func TestPlanPaths(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, claims string
		want         []string // nil: none
	}{
		{"plan", `{"plan":"pro"}`, []string{"pro"}},
		{"realm_access.roles", `{"realm_access":{"roles":["a","pro"]}}`, []string{"a", "pro"}},
		{"https://example.com/plan", `{"https://example.com/plan":"pro","https://example":{"com/plan":"x"}}`, []string{"pro"}},
		{"https://example.com/claims.plan", `{"https://example.com/claims":{"plan":["pro"]}}`, []string{"pro"}},
		{"a.b.c", `{"a":{"b":{"c":"pro"}}}`, []string{"pro"}},
		{"a.b.c", `{"a.b":{"c":"pro"},"a":{"b":{"c":"x"}}}`, []string{"pro"}},
		{"a.b.c", `{"a.b":{"d":"x"},"a":{"b.c":"pro"}}`, []string{"pro"}},
		{"resource_access.my.app.roles", `{"resource_access":{"my.app":{"roles":["pro"]}}}`, []string{"pro"}},
		{"a.b", `{"a":"pro"}`, nil},
		{"a.b", `{"a":["pro"]}`, nil},
		{"a.b", `{"a":{"b":{"c":"pro"}}}`, nil},
		{"a.b", `{"a":{"B":"pro"}}`, nil},
		{"a.b", `{"a":{"b":null}}`, []string{""}},
		{"a..b.", `{"a":{"b":"pro"}}`, nil},
		{"", `{"":"pro"}`, nil},
	} {
		v := verifierOf(t, func(c *auth.Config) { c.PlanClaim = tt.path })
		claims := strings.TrimSuffix(payload(nil), "}") + "," + tt.claims[1:]
		user, err := v.Verify(t.Context(), sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", "ed"), claims))
		check.That(t, err == nil && cmp.Equal(user.Plans, tt.want), "%s of %s: %q, %v, want %q", tt.path, tt.claims, user.Plans, err, tt.want)
	}
	// What could be read in two ways is not read.
	v := verifierOf(t, func(c *auth.Config) { c.PlanClaim = "a.b" })
	twice := strings.TrimSuffix(payload(nil), "}") + `,"a":{"b":"user","\u0062":"pro"}}`
	if _, err := v.Verify(t.Context(), sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", "ed"), twice)); auth.ReasonOf(err) != auth.Malformed {
		t.Errorf("a plan that stands twice: %v", err)
	}
}

// Where it is assumed, an address counts unless the issuer says that it is not verified.
func TestAssumeEmailVerified(t *testing.T) {
	t.Parallel()
	v := verifierOf(t, func(c *auth.Config) { c.AssumeEmailVerified = true })
	for flag, want := range map[any]string{nil: "a@b.c", true: "a@b.c", "true": "a@b.c", false: "", "false": "", "": "", 1: "", "yes": ""} {
		user, err := v.Verify(t.Context(), sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", "ed"), payload(map[string]any{"email": "a@b.c", "email_verified": flag})))
		check.That(t, err == nil && user.Email == want, "%v: %q, %v, want %q", flag, user.Email, err, want)
	}
}

// Each reason says what it means.
func TestReasonsHelp(t *testing.T) {
	t.Parallel()
	source := string(must(os.ReadFile("reason.go")))
	reasons := regexp.MustCompile(`(?m)^\t\w+ +Reason += "(.*?)"`).FindAllStringSubmatch(source, -1)
	docs := string(must(os.ReadFile("../../docs/sign-in.md")))
	check.Must(t, len(reasons) >= 20, "only %d reasons were found", len(reasons))
	for _, r := range reasons {
		help := auth.Reason(r[1]).Help()
		check.That(t, help != "" && strings.Contains(docs, "| `"+r[1]+"` | "+help+" |"), "%s: %q is not in docs/sign-in.md", r[1], help)
	}
}

// TestVerifyRefusesToken holds what is wrong with a token as such.
func TestVerifyRefusesToken(t *testing.T) {
	k := keys()
	iss := newIssuer(t, keySet(
		jwk("rsa", k.rsa, "", ""), jwk("rs256", k.rsa, "RS256", ""), jwk("weak", k.rsaWeak, "", ""),
		jwk("p256", k.p256, "", ""), jwk("ed", k.ed, "", ""), jwk("enc", k.rsa, "", jwkset.UseEnc),
	))
	v := iss.verifier(t)

	good := sign(jwt.SigningMethodEdDSA, k.ed, header("EdDSA", "ed"), payload(nil))
	if _, err := v.Verify(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")

	publicDER := must(x509.MarshalPKIXPublicKey(k.rsa.Public()))
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: publicDER})
	ed := func(header, payload string) string { return sign(jwt.SigningMethodEdDSA, k.ed, header, payload) }
	claims := payload(nil)

	_, stranger, _ := ed25519.GenerateKey(rand.Reader)
	for reason, tokens := range map[auth.Reason]map[string]string{
		auth.TooLong: {
			"too long": ed(header("EdDSA", "ed"), payload(map[string]any{"x": strings.Repeat("x", 8<<10)})),
		},
		auth.Opaque: {
			"empty":      "",
			"two parts":  parts[0] + "." + parts[1],
			"four parts": good + ".x",
		},
		auth.Malformed: {
			"dots":                         "..",
			"padding":                      good + "==",
			"line break":                   good + "\n",
			"stray bits in the last digit": good[:len(good)-1] + string(good[len(good)-1]+1),
			"standard base64":              base64.StdEncoding.EncodeToString([]byte(header("EdDSA", "ed"))) + "." + parts[1] + "." + parts[2],
			"kid a number":                 ed(`{"alg":"EdDSA","kid":1}`, claims),
			"kid twice":                    ed(`{"alg":"EdDSA","kid":"x","kid":"ed"}`, claims),
			"alg twice":                    ed(`{"alg":"none","kid":"ed","alg":"EdDSA"}`, claims),
			"header a list":                ed(`["EdDSA"]`, claims),
			"header cut":                   ed(`{"alg":"EdDSA","kid":"ed"`, claims),
			"header and more":              ed(header("EdDSA", "ed")+"{}", claims),
			"sub twice":                    ed(header("EdDSA", "ed"), strings.Replace(claims, `"sub"`, `"sub":"admin","sub"`, 1)),
			"sub twice, escaped":           ed(header("EdDSA", "ed"), strings.Replace(claims, `"sub"`, `"s\u0075b":"admin","sub"`, 1)),
			"exp twice":                    ed(header("EdDSA", "ed"), strings.Replace(claims, `"exp"`, `"exp":1,"exp"`, 1)),
			"unread claim twice":           ed(header("EdDSA", "ed"), strings.Replace(claims, `"exp"`, `"x":1,"x":2,"exp"`, 1)),
			"claims a list":                ed(header("EdDSA", "ed"), `[]`),
			"claims a string":              ed(header("EdDSA", "ed"), `"x"`),
			"claims cut":                   ed(header("EdDSA", "ed"), claims[:len(claims)-1]),
			"claims and more":              ed(header("EdDSA", "ed"), claims+`{}`),
			"nested too deep":              ed(header("EdDSA", "ed"), strings.Repeat("[", 5000)),
		},
		auth.Algorithm: {
			"none":                       sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, header("none", "rsa"), claims),
			"None":                       base64.RawURLEncoding.EncodeToString([]byte(header("None", "rsa"))) + "." + parts[1] + ".",
			"HMAC with the public PEM":   sign(jwt.SigningMethodHS256, publicPEM, header("HS256", "rsa"), claims),
			"HMAC with the public DER":   sign(jwt.SigningMethodHS256, publicDER, header("HS256", "rsa"), claims),
			"HMAC with Ed25519's public": sign(jwt.SigningMethodHS512, []byte(k.ed.Public().(ed25519.PublicKey)), header("HS512", "ed"), claims),
			"no alg":                     ed(`{"kid":"ed"}`, claims),
			"alg a number":               ed(`{"alg":1,"kid":"ed"}`, claims),
			"ALG":                        ed(`{"ALG":"EdDSA","kid":"ed"}`, claims),
		},
		auth.CriticalHeader: {
			"crit":      ed(`{"alg":"EdDSA","kid":"ed","crit":["exp"]}`, claims),
			"crit null": ed(`{"alg":"EdDSA","kid":"ed","crit":null}`, claims),
		},
		auth.KidMissing: {
			"no kid, two keys that fit": sign(jwt.SigningMethodRS256, k.rsa, `{"alg":"RS256"}`, claims),
			"no kid, no key that fits":  sign(jwt.SigningMethodES384, k.p384, `{"alg":"ES384","kid":""}`, claims),
		},
		auth.KeyUnknown: {
			"key for encryption": sign(jwt.SigningMethodRS256, k.rsa, header("RS256", "enc"), claims),
			"unknown kid":        ed(header("EdDSA", "none"), claims),
		},
		auth.KeyUnfit: {
			"RSA under an EC key's name": sign(jwt.SigningMethodRS256, k.rsa, header("RS256", "p256"), claims),
			"EC under an RSA key's name": sign(jwt.SigningMethodES256, k.p256, header("ES256", "rsa"), claims),
			"Ed25519 under an EC key":    ed(header("EdDSA", "p256"), claims),
			"PS256 with a key for RS256": sign(jwt.SigningMethodPS256, k.rsa, header("PS256", "rs256"), claims),
			"1024 bits":                  sign(jwt.SigningMethodRS256, k.rsaWeak, header("RS256", "weak"), claims),
			"ES512 on the curve P-256":   es512OnP256(k.p256, claims),
		},
		auth.Signature: {
			"no signature":                 parts[0] + "." + parts[1] + ".",
			"signature of another token":   parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(payload(map[string]any{"sub": "admin"}))) + "." + parts[2],
			"HMAC called RS256":            hmacCalled("RS256", publicPEM, claims),
			"another key of the same kind": sign(jwt.SigningMethodRS256, k.rsaOther, header("RS256", "rsa"), claims),
			"own key in header":            sign(jwt.SigningMethodEdDSA, stranger, `{"alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"`+base64.RawURLEncoding.EncodeToString(stranger.Public().(ed25519.PublicKey))+`"}}`, claims),
		},
		auth.Issuer: {
			"claims null":  ed(header("EdDSA", "ed"), `null`),
			"claims empty": ed(header("EdDSA", "ed"), `{}`),
		},
	} {
		for name, token := range tokens {
			t.Run(name, func(t *testing.T) {
				_, err := v.Verify(t.Context(), token)
				wrong(t, err, auth.ErrInvalid, token)
				check.Equal(t, auth.ReasonOf(err), reason, "reason")
			})
		}
	}
	if _, err := v.Verify(t.Context(), good); err != nil {
		t.Errorf("the good token afterwards: %v", err)
	}
}

// hmacCalled is an HMAC signature under another algorithm's name.
func hmacCalled(alg string, secret []byte, claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header(alg, "rsa"))) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	return text + "." + base64.RawURLEncoding.EncodeToString(must(jwt.SigningMethodHS256.Sign(text, secret)))
}

// es512OnP256 is a signature that is right but for the curve: the smaller
// curve's numbers fit into the larger one's fields.
func es512OnP256(key *ecdsa.PrivateKey, claims string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(header("ES512", "p256"))) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	hash := sha512.Sum512([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, hash[:])
	if err != nil {
		panic(err)
	}
	sig := make([]byte, 132)
	r.FillBytes(sig[:66])
	s.FillBytes(sig[66:])
	if err := jwt.SigningMethodES512.Verify(text, sig, &key.PublicKey); err != nil {
		panic("the library has learnt to check the curve: " + err.Error())
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig)
}

func TestNew(t *testing.T) {
	t.Parallel()
	good := auth.Config{Issuer: issuerURL, Audience: audience, JWKSURL: "https://issuer.example/jwks"}
	for name, tt := range map[string]struct {
		change func(*auth.Config)
		ok     bool
	}{
		"good":                {func(*auth.Config) {}, true},
		"loopback":            {func(c *auth.Config) { c.JWKSURL = "http://127.0.0.1:8787/dev/jwks.json" }, true},
		"localhost":           {func(c *auth.Config) { c.JWKSURL = "http://localhost:8787/dev/jwks.json" }, true},
		"IPv6 loopback":       {func(c *auth.Config) { c.JWKSURL = "http://[::1]:8787/" }, true},
		"no issuer":           {func(c *auth.Config) { c.Issuer = "" }, false},
		"no audience":         {func(c *auth.Config) { c.Audience = "" }, false},
		"no URL":              {func(c *auth.Config) { c.JWKSURL = "" }, false},
		"relative URL":        {func(c *auth.Config) { c.JWKSURL = "/jwks" }, false},
		"plain HTTP":          {func(c *auth.Config) { c.JWKSURL = "http://issuer.example/jwks" }, false},
		"loopback as a label": {func(c *auth.Config) { c.JWKSURL = "http://127.0.0.1.evil.example/" }, false},
		"file":                {func(c *auth.Config) { c.JWKSURL = "file://localhost/etc/jwks" }, false},
		"credentials":         {func(c *auth.Config) { c.JWKSURL = "https://user:hunter2@issuer.example/jwks" }, false},
		"not a URL":           {func(c *auth.Config) { c.JWKSURL = "https://hunter2%zz" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.change(&cfg)
			_, err := auth.New(t.Context(), cfg)
			check.That(t, (err == nil) == tt.ok, "got %v", err)
			check.That(t, err == nil || !strings.Contains(err.Error(), "hunter2"), "the error repeats the URL: %v", err)
		})
	}
}

func FuzzVerify(f *testing.F) {
	k := keys()
	v := newIssuer(f, keySet(jwk("ed", k.ed, "", ""), jwk("rsa", k.rsa, "", ""))).verifier(f)
	good := sign(jwt.SigningMethodEdDSA, k.ed, header("EdDSA", "ed"), payload(nil))
	f.Add(good)
	f.Add(sign(jwt.SigningMethodHS256, []byte("x"), header("HS256", "rsa"), payload(nil)))
	f.Add(sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, header("none", "rsa"), `{"exp":1e400}`))
	f.Add("e30.bnVsbA.")
	f.Add("..")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		_, err := v.Verify(context.Background(), token)
		if token == good {
			check.OK(t, err)
			return
		}
		wrong(t, err, auth.ErrInvalid, token)
	})
}

// Whatever an issuer signs, it is a user of that issuer, for us, now, with an id that can be
// a key; else the error repeats none of it.
func FuzzClaims(f *testing.F) {
	k := keys()
	i := newIssuer(f, keySet(jwk("ed", k.ed, "", "")))
	v := i.verifier(f)
	for _, change := range []map[string]any{nil, {"aud": []string{"x", audience}}, {"aud": nil, "client_id": audience}, {"exp": 1e300}, {"sub": "a b"}, {"sub": "a#b"}, {plan: []any{"pro", 1, nil}}, {"email": "a@b.c", "email_verified": "true"}, {"nbf": "0"}} {
		f.Add(payload(change))
	}
	f.Add(`{"iss":"` + issuerURL + `","iss":"x"}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, claims string) {
		token := sign(jwt.SigningMethodEdDSA, k.ed, header("EdDSA", "ed"), claims)
		user, err := v.Verify(context.Background(), token)
		if err != nil {
			check.That(t, errors.Is(err, auth.ErrInvalid) || errors.Is(err, auth.ErrExpired), "%v", err)
			check.That(t, len(claims) <= 8 || !strings.Contains(err.Error(), claims), "the error repeats the claims: %v", err)
			return
		}
		var said map[string]any
		check.OK(t, json.Unmarshal([]byte(claims), &said))
		exp, _ := said["exp"].(float64)
		check.That(t, said["iss"] == issuerURL && said["sub"] == user.Subject && known.ValidSubject(user.Subject) && exp > float64(start.Unix()) && strings.Contains(claims, audience),
			"%s became %+v", claims, user)
		check.That(t, user.Email == "" || said["email"] == user.Email && said["email_verified"] != false, "%s has the address %s", claims, user.Email)
	})
}

// Whatever an issuer publishes, a token is good by a key of it alone.
func FuzzKeySet(f *testing.F) {
	k := keys()
	token := sign(jwt.SigningMethodEdDSA, k.ed, header("EdDSA", "ed"), payload(nil))
	own := jwk("ed", k.ed, "", "")
	for _, set := range []string{keySet(own), keySet(jwk("ed", k.rsa, "", ""), own), keySet(jwk("rsa", k.rsa, "RS256", "enc")), `{"keys":[{"kty":"oct","k":"eA","kid":"ed"},1,null]}`, `{"keys":{}}`, `[]`, ``, strings.Replace(keySet(own), "OKP", "EC", 1)} {
		f.Add(set)
	}
	i := newIssuer(f, "")
	f.Fuzz(func(t *testing.T, set string) {
		i.publish(set)
		_, err := i.verifier(t).Verify(context.Background(), token)
		check.That(t, err != nil || strings.Contains(set, strings.TrimRight(own.X, "=")[:40]), "good by %s", set)
		check.That(t, err == nil || errors.Is(err, auth.ErrInvalid) || errors.Is(err, auth.ErrUnavailable), "%v", err)
	})
}

func BenchmarkVerify(b *testing.B) {
	k := keys()
	v := newIssuer(b, keySet(jwk("rsa", k.rsa, "RS256", "sig"), jwk("p256", k.p256, "", ""), jwk("ed", k.ed, "", ""))).verifier(b)
	claims := payload(map[string]any{plan: "pro", "email": "a@b.c", "email_verified": true, "scope": "openid profile"})
	for _, bb := range []struct {
		method jwt.SigningMethod
		kid    string
		key    any
	}{{jwt.SigningMethodRS256, "rsa", k.rsa}, {jwt.SigningMethodES256, "p256", k.p256}, {jwt.SigningMethodEdDSA, "ed", k.ed}} {
		b.Run(bb.method.Alg(), func(b *testing.B) {
			token := sign(bb.method, bb.key, header(bb.method.Alg(), bb.kid), claims)
			b.Run("again", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := v.Verify(b.Context(), token); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("first", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					v.Forget()
					b.StartTimer()
					if _, err := v.Verify(b.Context(), token); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
