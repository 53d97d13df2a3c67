package auth_test

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// edToken is a good token signed with the Ed25519 key under some name.
func edToken(kid string) string {
	return sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", kid), payload(map[string]any{"exp": start.Add(24 * time.Hour).Unix()}))
}

func edKey(kid string) jwkset.JWKMarshal { return jwk(kid, keys().ed, "", "") }

func accepted(t *testing.T, v *auth.Verifier, kid string) {
	t.Helper()
	if _, err := v.Verify(t.Context(), edToken(kid)); err != nil {
		t.Fatalf("key %s: %v", kid, err)
	}
}

func refused(t *testing.T, v *auth.Verifier, kid string, kind error) {
	t.Helper()
	token := edToken(kid)
	_, err := v.Verify(t.Context(), token)
	wrong(t, err, kind, token)
}

func fetched(t *testing.T, iss *issuer, want int) {
	t.Helper()
	n := iss.count()
	check.Must(t, n == want, "the keys were fetched %d times, want %d", n, want)
}

func TestNoFetchBeforeTheFirstToken(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	fetched(t, iss, 0)
	// What is malformed or of a forbidden algorithm never asks.
	_, _ = v.Verify(t.Context(), "x.y.z")
	_, _ = v.Verify(t.Context(), sign(jwt.SigningMethodHS256, []byte("x"), header("HS256", "a"), payload(nil)))
	fetched(t, iss, 0)
	accepted(t, v, "a")
	accepted(t, v, "a")
	fetched(t, iss, 1)
}

// A token that names no key is served by the only key that fits, and by the next one when
// that is replaced; what it costs is bounded.
func TestWithoutKid(t *testing.T) {
	t.Parallel()
	k := keys()
	for name, set := range map[string]string{
		"one key":                         keySet(edKey("a")),
		"a key without a name":            keySet(edKey("")),
		"keys of other algorithms beside": keySet(jwk("r", k.rsa, "", ""), edKey("a"), jwk("p", k.p256, "ES256", "sig")),
	} {
		t.Run(name, func(t *testing.T) {
			iss := newIssuer(t, set)
			v := iss.verifier(t)
			accepted(t, v, "")
			accepted(t, v, "")
			fetched(t, iss, 1)
		})
	}

	iss := newIssuer(t, keySet(jwk("old", k.rsaOther, "", "")))
	v := iss.verifier(t)
	token := sign(jwt.SigningMethodRS256, k.rsa, `{"alg":"RS256"}`, payload(nil))
	verify := func(want auth.Reason) {
		t.Helper()
		if _, err := v.Verify(t.Context(), token); auth.ReasonOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	verify(auth.Signature)
	fetched(t, iss, 2)
	iss.publish(keySet(jwk("new", k.rsa, "", "")))
	verify("")
	verify("")
	fetched(t, iss, 3)
	iss.publish(keySet(jwk("new", k.rsa, "", ""), jwk("other", k.rsaOther, "", "")))
	iss.advance(11 * time.Minute)
	verify("") // of the keys at hand; new ones are on their way
	iss.publish(keySet(jwk("old", k.rsaOther, "", "")))
	for range 50 {
		_, _ = v.Verify(t.Context(), token)
	}
	if n := iss.count(); n > 3+4 { // all fetches come from one budget
		t.Errorf("the keys were fetched %d times", n)
	}
}

// Keys are taken as issuers publish them, certificates and members of their own beside.
func TestPublishedForms(t *testing.T) {
	t.Parallel()
	k := keys()
	number := base64.RawURLEncoding.EncodeToString
	n, point := number(k.rsa.N.Bytes()), must(k.p256.PublicKey.Bytes())
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: start, NotAfter: start.Add(time.Hour), Subject: pkix.Name{CommonName: "accounts.accesscontrol.windows.net"}}
	der := must(x509.CreateCertificate(rand.Reader, cert, cert, k.rsa.Public(), k.rsa))
	thumb := sha1.Sum(der)
	for name, tt := range map[string]struct {
		key    string
		method jwt.SigningMethod
		with   any
	}{
		"Auth0": {fmt.Sprintf(`{"kty":"RSA","use":"sig","n":%q,"e":"AQAB","kid":"k","x5t":%q,"x5c":[%q],"alg":"RS256"}`,
			n, number([]byte(fmt.Sprintf("%X", thumb))), base64.StdEncoding.EncodeToString(der)), jwt.SigningMethodRS256, k.rsa},
		"Entra": {fmt.Sprintf(`{"kty":"RSA","use":"sig","kid":"k","x5t":%q,"n":%q,"e":"AQAB","x5c":[%q],"cloud_instance_name":"microsoftonline.com","issuer":"https://login.microsoftonline.com/x/v2.0"}`,
			number(thumb[:]), n, base64.StdEncoding.EncodeToString(der)), jwt.SigningMethodRS256, k.rsa},
		"Firebase": {fmt.Sprintf(`{"e":"AQAB","kty":"RSA","n":%q,"alg":"RS256","kid":"k","use":"sig"}`, n), jwt.SigningMethodRS256, k.rsa},
		"Supabase": {fmt.Sprintf(`{"alg":"ES256","crv":"P-256","ext":true,"key_ops":["verify"],"kid":"k","kty":"EC","use":"sig","x":%q,"y":%q}`,
			number(point[1:33]), number(point[33:])), jwt.SigningMethodES256, k.p256},
	} {
		v := newIssuer(t, `{"keys":[`+tt.key+`]}`).verifier(t)
		for _, kid := range []string{"k", ""} {
			if _, err := v.Verify(t.Context(), sign(tt.method, tt.with, header(tt.method.Alg(), kid), payload(nil))); err != nil {
				t.Errorf("%s, kid %q: %v", name, kid, err)
			}
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	accepted(t, v, "a")

	// A new key is accepted at once, for one fetch.
	iss.publish(keySet(edKey("a"), edKey("b")))
	accepted(t, v, "b")
	accepted(t, v, "a")
	fetched(t, iss, 2)

	// A withdrawn key is refused once its absence is seen.
	iss.publish(keySet(edKey("b"), edKey("c")))
	accepted(t, v, "c")
	fetched(t, iss, 3)
	refused(t, v, "a", auth.ErrInvalid)
	accepted(t, v, "b")
}

func TestRandomKeyIDs(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	accepted(t, v, "a")
	for i := range 30 {
		refused(t, v, fmt.Sprintf("random-%d", i), auth.ErrInvalid)
	}
	fetched(t, iss, 4) // the first, and the rest of the burst
	accepted(t, v, "a")

	// The flood delays a rotation, but by no more than the budget's interval.
	iss.publish(keySet(edKey("a"), edKey("b")))
	refused(t, v, "b", auth.ErrInvalid)
	iss.advance(15 * time.Second)
	accepted(t, v, "b")
	fetched(t, iss, 5)
}

func TestRefreshInTheBackground(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	accepted(t, v, "a")
	iss.advance(10*time.Minute - time.Second)
	accepted(t, v, "a")
	fetched(t, iss, 1)

	// The next fetch hangs: tokens of a key at hand do not wait for it.
	asked, release := make(chan struct{}, 9), make(chan struct{})
	iss.serve(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		text(keySet(edKey("b")))(w, r)
	})
	iss.advance(time.Second)
	accepted(t, v, "a")
	select {
	case <-asked:
	case <-time.After(10 * time.Second):
		t.Fatal("no fetch in the background")
	}
	accepted(t, v, "a")
	close(release)

	accepted(t, v, "b") // waits for the running fetch
	fetched(t, iss, 2)
	refused(t, v, "a", auth.ErrInvalid)
}

// TestBrokenAnswer: whatever the issuer answers, the keys at hand stay good.
func TestBrokenAnswer(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"status":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"not JSON":   text("<html>"),
		"no keys":    text(`{"keys":[]}`),
		"other JSON": text(`{}`),
		"null":       text(`null`),
		"no use":     text(`{"keys":[{"kty":"oct","kid":"b","k":"c2VjcmV0"},{"kty":"new"},7]}`),
		"too long":   text(keySet(edKey("b")) + strings.Repeat(" ", 256<<10)),
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"keys":[`))
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/moved" {
				text(keySet(edKey("b")))(w, r)
				return
			}
			http.Redirect(w, r, "/moved", http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			iss := newIssuer(t, keySet(edKey("a")))
			v := iss.verifier(t)
			accepted(t, v, "a")
			iss.serve(answer)
			// A key not at hand may be good: the caller shall try again.
			refused(t, v, "b", auth.ErrUnavailable)
			fetched(t, iss, 2)
			accepted(t, v, "a")
		})
	}
}

func TestOutage(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	accepted(t, v, "a")

	// However long it lasts and whoever asks, the fetches are bounded.
	iss.fail()
	iss.advance(12 * time.Hour)
	for i := range 30 {
		accepted(t, v, "a")
		refused(t, v, fmt.Sprintf("random-%d", i), auth.ErrUnavailable)
	}
	fetched(t, iss, 1+4)

	iss.publish(keySet(edKey("b")))
	refused(t, v, "b", auth.ErrUnavailable) // nothing is left of the budget
	iss.advance(15 * time.Second)
	accepted(t, v, "b")
	fetched(t, iss, 1+4+1)
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
}

func TestOutageFromTheStart(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, "")
	iss.fail()
	v := iss.verifier(t)
	for range 30 {
		refused(t, v, "a", auth.ErrUnavailable)
	}
	fetched(t, iss, 4)
	iss.publish(keySet(edKey("a")))
	iss.advance(15 * time.Second)
	accepted(t, v, "a")
}

// TestOneBadKey: a key that the library does not take must not cost the others.
func TestOneBadKey(t *testing.T) {
	t.Parallel()
	good := strings.TrimPrefix(keySet(edKey("a")), `{"keys":[`)
	iss := newIssuer(t, `{"keys":[{"kty":"RSA","kid":"bad"},{"kty":"EC","crv":"P-256","kid":"off","x":"AQ","y":"AQ"},{"kty":"OKP","crv":"Ed448","kid":"new","x":"AQ"},null,`+good)
	accepted(t, iss.verifier(t), "a")
}

func TestHangingIssuer(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, "")
	asked := make(chan struct{}, 1)
	release := make(chan struct{})
	iss.serve(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		text(keySet(edKey("a")))(w, r)
	})
	v := iss.verifier(t)

	// A caller who leaves does not end the fetch that others wait for.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, err := v.Verify(ctx, edToken("a"))
	wrong(t, err, auth.ErrUnavailable, edToken("a"))
	check.That(t, errors.Is(err, context.Canceled), "got %v", err)
	close(release)
	accepted(t, v, "a")
	fetched(t, iss, 1)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFetchIsBoundedInTime(t *testing.T) {
	t.Parallel()
	var left time.Duration
	client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if deadline, ok := r.Context().Deadline(); ok {
			left = time.Until(deadline)
		}
		rec := httptest.NewRecorder()
		_, _ = rec.WriteString(keySet(edKey("a")))
		return rec.Result(), nil
	})}
	v, err := auth.New(t.Context(), auth.Config{
		Issuer: issuerURL, Audience: audience, JWKSURL: "https://issuer.example/jwks",
		HTTPClient: client, Now: func() time.Time { return start },
	})
	check.OK(t, err)
	accepted(t, v, "a")
	check.That(t, left > 0 && left <= 3*time.Second, "a fetch may take %v", left)
}

func TestConcurrentVerify(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	all := func(kid string) {
		t.Helper()
		token := edToken(kid)
		errs := make([]error, 64)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = v.Verify(t.Context(), token) })
		}
		wg.Wait()
		check.OK(t, errors.Join(errs...))
	}
	all("a") // on a cold start
	fetched(t, iss, 1)
	iss.publish(keySet(edKey("a"), edKey("b")))
	all("b") // all meet the new key together
	fetched(t, iss, 2)
	iss.advance(10 * time.Minute)
	all("a") // all meet the refresh together
	accepted(t, v, "b")
	n := iss.count()
	check.That(t, n <= 3, "%d fetches", n)
}
