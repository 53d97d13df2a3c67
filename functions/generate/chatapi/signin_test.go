package chatapi

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The recipes of docs/sign-in.md, as they are printed: the claims that go with each give
// the tier and the address that they should, and one change makes of them a refusal.
func TestSignInRecipes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/sign-in.md")
	check.OK(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	check.OK(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.OK(t, err)
	keys := keySetOf(t, map[string]crypto.Signer{"r": rsaKey, "e": ecKey})
	recipes := regexp.MustCompile("(?s)\n### ([^\n]+)\n.*?```yaml\n(auth:\n.*?)```.*?```json\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	wants := map[string]struct {
		email  string
		name   string // of the claim that is changed
		value  any    // nil: it is taken away
		reason string
	}{
		"Auth0":              {"", "iss", "https://example.eu.auth0.com", "issuer, by the slash at its end"},
		"Clerk":              {"ann@example.com", "aud", nil, "audience missing"},
		"Supabase":           {"ann@example.com", "aud", "anon", "audience"},
		"Firebase":           {"ann@example.com", "iss", "https://securetoken.google.com/other", "issuer"},
		"Amazon Cognito":     {"", "client_id", "other", "audience"},
		"Microsoft Entra ID": {"", "iss", "https://sts.windows.net/aaaabbbb-0000-cccc-1111-dddd2222eeee/", "issuer"},
	}
	check.Must(t, len(recipes) == len(wants), "%d recipes, want %d", len(recipes), len(wants))
	for _, recipe := range recipes {
		name, auth, claims := recipe[1], recipe[2], jwt.MapClaims{}
		t.Run(name, func(t *testing.T) {
			want, ok := wants[name]
			if err := json.Unmarshal([]byte(recipe[3]), &claims); err != nil || !ok {
				t.Fatalf("%v, wanted: %v", err, ok)
			}
			g := newRig(t, func(yaml string) string {
				return regexp.MustCompile(`(?m)^auth: .*\n`).ReplaceAllLiteralString(yaml, auth)
			})
			// The issuer's keys are where the recipe says, and nothing else is asked of it.
			client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				check.That(t, strings.Contains(auth, "jwks_url: "+r.URL.String()+"\n"), "%s was asked", r.URL)
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(keys))}, nil
			})}
			check.OK(t, (Parts{Policy: g.policy, Keys: client, Now: g.now}).verifier(t.Context(), g.handler))
			token := func() string {
				claims["iat"], claims["nbf"], claims["exp"] = time.Now().Unix(), time.Now().Unix(), time.Now().Add(time.Hour).Unix()
				unsigned, key := jwt.NewWithClaims(jwt.SigningMethodRS256, claims), crypto.Signer(rsaKey)
				unsigned.Header["kid"] = "r"
				if name == "Supabase" {
					unsigned, key = jwt.NewWithClaims(jwt.SigningMethodES256, claims), ecKey
					unsigned.Header["kid"] = "e"
				}
				signed, err := unsigned.SignedString(key)
				check.OK(t, err)
				return signed
			}
			if a := g.chat(token(), chatBody("docqa", "Hi")); a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
			id, apiErr := g.handler.identify(g.request(http.MethodPost, chatPath, token(), ""))
			check.Must(t, apiErr == nil && id.ID == claims["sub"] && id.Tier.Name == "pro" && id.email == want.email,
				"%+v, e-mail %q: %+v", id.Caller, id.email, apiErr)
			// That an address cannot be taken is told once.
			unsaid := 0
			if claims["email"] != nil && want.email == "" {
				unsaid = 1
			}
			check.Equal(t, strings.Count(g.log.String(), "users cannot be found by e-mail address"), unsaid, "times it was told that addresses are not verified")
			if claims[want.name] = want.value; want.value == nil {
				delete(claims, want.name)
			}
			a := g.chat(token(), chatBody("docqa", "Hi"))
			g.refused(t, a, openai.InvalidToken, "")
			lines := g.logged("request")
			check.That(t, strings.Contains(string(lines[len(lines)-1]), `"reason":"`+want.reason+`"`), "%s", lines[len(lines)-1])
		})
	}
}

// keySetOf publishes keys by name.
func keySetOf(t *testing.T, keys map[string]crypto.Signer) string {
	t.Helper()
	var set jwkset.JWKSMarshal
	for kid, key := range keys {
		k, err := jwkset.NewJWKFromKey(key.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid, USE: jwkset.UseSig}})
		check.OK(t, err)
		set.Keys = append(set.Keys, k.Marshal())
	}
	text, err := json.Marshal(set)
	check.OK(t, err)
	return string(text)
}
