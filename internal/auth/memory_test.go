package auth_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/internal/auth"
)

// A token is verified once for the keys of a fetch. That shows in what it allocates: to
// remember it takes a few objects, to take it apart about a hundred.
func cheap(t *testing.T, v *auth.Verifier, token string) bool {
	t.Helper()
	return testing.AllocsPerRun(1, func() { _, _ = v.Verify(t.Context(), token) }) < 10
}

func TestRememberedToken(t *testing.T) {
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	token := edToken("a")
	accepted(t, v, "a")
	if !cheap(t, v, token) {
		t.Error("it is verified again")
	}

	// Another signature makes another token.
	last := token[len(token)-2:]
	other := strings.TrimSuffix(token, last) + map[bool]string{true: "Aw", false: "AA"}[last == "AA"]
	_, err := v.Verify(t.Context(), other)
	wrong(t, err, auth.ErrInvalid, other)

	// What is meant for one audience is not for another, whatever the first remembers.
	elsewhere, err := auth.New(t.Context(), auth.Config{Issuer: issuerURL, Audience: "other", JWKSURL: iss.URL, HTTPClient: iss.Client(), Now: iss.clock})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		refused(t, elsewhere, "a", auth.ErrInvalid)
	}

	// Keys fetched again with the same content end it, too: it is verified once more.
	iss.advance(10 * time.Minute)
	accepted(t, v, "a") // starts the fetch
	for iss.count() < 3 {
		runtime.Gosched()
	}
	refused(t, v, "unknown", auth.ErrInvalid) // waits for it
	accepted(t, v, "a")
	if !cheap(t, v, token) {
		t.Error("it is not remembered again")
	}
}

func TestRememberedTokenOfKeys(t *testing.T) {
	k := keys()
	for name, test := range map[string]struct{ kid, next string }{
		"withdrawn":                   {`,"kid":"a"`, keySet(jwk("b", k.rsaOther, "", ""))},
		"replaced under the same kid": {`,"kid":"a"`, keySet(jwk("a", k.rsaOther, "", ""), jwk("b", k.rsaOther, "", ""))},
		"replaced without a name":     {``, keySet(jwk("b", k.rsaOther, "", ""))},
	} {
		t.Run(name, func(t *testing.T) {
			iss := newIssuer(t, keySet(jwk("a", k.rsa, "", "")))
			v := iss.verifier(t)
			token := sign(jwt.SigningMethodRS256, k.rsa, `{"alg":"RS256"`+test.kid+`}`, payload(nil))
			for range 3 {
				if _, err := v.Verify(t.Context(), token); err != nil {
					t.Fatal(err)
				}
			}
			fetched(t, iss, 1)
			iss.publish(test.next)
			b := sign(jwt.SigningMethodRS256, k.rsaOther, header("RS256", "b"), payload(nil))
			if _, err := v.Verify(t.Context(), b); err != nil { // its key is new, so the set is fetched
				t.Fatal(err)
			}
			for range 2 {
				_, err := v.Verify(t.Context(), token)
				wrong(t, err, auth.ErrInvalid, token)
			}
		})
	}
}

// Times are checked on each use, as those of a token that is not remembered.
func TestRememberedTokenOfTimes(t *testing.T) {
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	token := sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", "a"), payload(map[string]any{"nbf": start.Unix(), "exp": start.Add(5 * time.Minute).Unix()}))
	for _, step := range []struct {
		by   time.Duration
		want auth.Reason
	}{{0, ""}, {0, ""}, {-31 * time.Second, auth.NotYet}, {31 * time.Second, ""}, {5*time.Minute - 1, ""}, {1, auth.Expired}, {0, auth.Expired}, {-1, ""}} {
		iss.advance(step.by)
		if _, err := v.Verify(t.Context(), token); auth.ReasonOf(err) != step.want {
			t.Errorf("%v from the start: %v, want %q", iss.clock().Sub(start), err, step.want)
		}
	}
	fetched(t, iss, 1)
}

// While the issuer cannot be reached, a signature is checked again all the same.
func TestRememberedFor(t *testing.T) {
	iss := newIssuer(t, keySet(edKey("a")))
	v, token := iss.verifier(t), edToken("a")
	accepted(t, v, "a")
	iss.fail()
	iss.advance(10*time.Minute - 1)
	if !cheap(t, v, token) {
		t.Error("it is not remembered for ten minutes")
	}
	iss.advance(1)
	if before := allocations(func() { accepted(t, v, "a") }); before < 30 {
		t.Errorf("it is remembered after ten minutes: %d allocations", before)
	}
}

// allocations counts those of one call, and of what runs beside it.
func allocations(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

func TestMemoryIsBounded(t *testing.T) {
	iss := newIssuer(t, keySet(edKey("a")))
	v := iss.verifier(t)
	of := func(name string, plans int) string {
		list := make([]string, plans)
		for i := range list {
			list[i] = "p"
		}
		return sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", "a"), payload(map[string]any{"sub": name, plan: list}))
	}
	small, large := of("small", 59), of("large", 60)
	for _, token := range []string{small, large} {
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
	}
	if !cheap(t, v, small) || cheap(t, v, large) {
		t.Error("what a token may say to be remembered")
	}
	for i := range 4096 {
		_, _ = v.Verify(t.Context(), of(fmt.Sprint(i), 0))
	}
	if last := of("4095", 0); !cheap(t, v, last) {
		t.Error("the last of 4096 is not remembered")
	}
	if allocations(func() { _, _ = v.Verify(t.Context(), small) }) < 30 {
		t.Error("4097 are remembered")
	}
}

func TestConcurrentMemory(t *testing.T) {
	t.Parallel()
	iss := newIssuer(t, keySet(edKey("a"), jwk("r", keys().rsa, "", jwkset.UseSig)))
	v := iss.verifier(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				name := fmt.Sprint("user-", i%3)
				token := sign(jwt.SigningMethodEdDSA, keys().ed, header("EdDSA", "a"), payload(map[string]any{"sub": name}))
				if u, err := v.Verify(t.Context(), token); err != nil || u.Subject != name {
					t.Errorf("%s is %+v, %v", name, u, err)
				}
				if i == 0 {
					_, _ = v.Verify(t.Context(), edToken("unknown")) // other keys meanwhile
				}
			}
		})
	}
	wg.Wait()
}
