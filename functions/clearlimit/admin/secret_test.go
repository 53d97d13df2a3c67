package admin

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
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
	check.OK(t, g.emails.Learn(t.Context(), "ann@example.com", "ann"))
	for _, a := range []answer{
		g.do("GET", "/admin/fuse", ""), g.do("PUT", "/admin/fuse", `{"state":"open"}`),
		g.do("GET", "/admin/limits?user=ann", ""), g.do("POST", "/admin/limits/clear", `{"user":"ann","type":"all"}`),
	} {
		check.Equal(t, a.status, 200, "%s", a.body)
	}
	check.Equal(t, reads.Load(), 0, "the secret was read … times for nothing")
	for range 3 {
		a := g.do("GET", "/admin/limits?email=ann@example.com", "")
		check.That(t, a.status == 200, "%d %s", a.status, a.body)
	}
	check.Equal(t, reads.Load(), 1, "the secret was read … times")
}

// Without the secret all but addresses works; once it can be read, they do too.
func TestSecretCannotBeRead(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.spend(user("ann"), "user", "", map[string]int64{"requests": 1})
	check.OK(t, g.emails.Learn(t.Context(), "ann@example.com", "ann"))
	for cause, secret := range map[string]func() (string, error){
		"ThrottlingException": func() (string, error) { return "", errors.New("ThrottlingException: Rate exceeded") },
		"at least 16 bytes":   func() (string, error) { return "short", nil },
	} {
		g.secret = secret
		a := g.do("GET", "/admin/limits?email=ann@example.com", "")
		message := g.refused(a, 503, "secret_unavailable", "email")
		check.That(t, strings.Contains(message, "by id") && !strings.Contains(a.body, cause) && strings.Contains(g.log.String(), cause),
			"%s, logged %s", a.body, g.log)
		for _, a := range []answer{g.do("PUT", "/admin/fuse", `{"state":"open"}`), g.do("GET", "/admin/limits?user=ann", "")} {
			check.Equal(t, a.status, 200, "%s", a.body)
		}
		g.Advance(5 * time.Second)
	}
	g.secret = func() (string, error) { return testSecret, nil }
	if a := g.do("GET", "/admin/limits?email=ann@example.com", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}
