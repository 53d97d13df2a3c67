package admin

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Secrets are read when the first address is looked up and not before: who must cut
// off an attack needs none.
func TestSecretIsReadForAddressesAlone(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	var reads atomic.Int64
	g.secret = func() (string, error) {
		reads.Add(1)
		return testSecret, nil
	}
	g.spend(user("ann"), "user", "", map[string]int64{"requests": 1})
	if err := g.emails.Learn(t.Context(), "ann@example.com", "ann"); err != nil {
		t.Fatal(err)
	}
	for _, a := range []answer{
		g.do("GET", "/admin/fuse", ""), g.do("PUT", "/admin/fuse", `{"state":"open"}`),
		g.do("GET", "/admin/limits?user=ann", ""), g.do("POST", "/admin/limits/clear", `{"user":"ann","type":"all"}`),
	} {
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := reads.Load(); n != 0 {
		t.Errorf("the secret was read %d times for nothing", n)
	}
	for range 3 {
		if a := g.do("GET", "/admin/limits?email=ann@example.com", ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("the secret was read %d times, want once", n)
	}
}

// Without the secret all but addresses works; once it can be read, they do too.
func TestSecretCannotBeRead(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("ann"), "user", "", map[string]int64{"requests": 1})
	if err := g.emails.Learn(t.Context(), "ann@example.com", "ann"); err != nil {
		t.Fatal(err)
	}
	for cause, secret := range map[string]func() (string, error){
		"ThrottlingException": func() (string, error) { return "", errors.New("ThrottlingException: Rate exceeded") },
		"at least 16 bytes":   func() (string, error) { return "short", nil },
	} {
		g.secret = secret
		a := g.do("GET", "/admin/limits?email=ann@example.com", "")
		message := g.refused(a, 503, "secret_unavailable", "email")
		if !strings.Contains(message, "by id") || strings.Contains(a.body, cause) || !strings.Contains(g.log.String(), cause) {
			t.Errorf("%s, logged %s", a.body, g.log)
		}
		for _, a := range []answer{g.do("PUT", "/admin/fuse", `{"state":"open"}`), g.do("GET", "/admin/limits?user=ann", "")} {
			if a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		g.Advance(5 * time.Second)
	}
	g.secret = func() (string, error) { return testSecret, nil }
	if a := g.do("GET", "/admin/limits?email=ann@example.com", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
