package e2e

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A block reaches every process within seconds, takes nothing from whom it keeps out, is
// ended by hand or by itself, and outlives a change of the fuse.
func TestBlock(t *testing.T) {
	t.Parallel()
	const instances = 2
	d := startDev(t, supportConfig(t), "--instances", "2")
	ann, bob := d.tokenOf(t, "--sub", "auth0|ann", "--email", "ann@example.com"), d.tokenOf(t, "--sub", "bob")
	q := question{feature: "ask", text: "Hello", most: 5}
	for range instances {
		d.complete(t, ann, q)
	}
	// until asks as often as it takes until each instance answers with a status.
	until := func(status int) (last answer) {
		t.Helper()
		for begun, inARow := time.Now(), 0; inARow < instances; inARow++ {
			if last = d.mustAsk(t, ann, q); last.status != status {
				inARow = -1
			}
			check.Must(t, time.Since(begun) < patience, "still %d %s, want %d", last.status, last.body, status)
		}
		return last
	}
	said := d.must(t, "block", "ann@example.com", "--for", "1d", "--reason", "a leaked token")
	check.That(t, strings.HasPrefix(said, "user auth0|ann is blocked until "), "%s", said)
	begun := time.Now()
	refused := until(http.StatusForbidden)
	t.Logf("all instances know after %s", time.Since(begun).Round(time.Millisecond))
	check.That(t, strings.Contains(refused.body, `"code":"identity_blocked"`) && strings.Contains(refused.body, `"blocked_until":`) && !strings.Contains(refused.body, "leaked"), "%s", refused.body)
	d.complete(t, bob, q)

	left := d.left(t, "auth0|ann")
	for range 2 * instances {
		check.Equal(t, d.mustAsk(t, ann, q).status, http.StatusForbidden, "a call")
	}
	for name, n := range d.left(t, "auth0|ann") {
		check.Equal(t, n, left[name], "what is left of %s", name)
	}
	d.must(t, "fuse", "set", "challenge", "--for", "1h")
	shown := d.must(t, "limits", "auth0|ann")
	check.That(t, strings.Contains(shown, "\nblocked until ") && strings.Contains(shown, "the fuse is challenge"), "%s", shown)

	status := d.must(t, "status")
	for _, part := range []string{` in \d+ calls\n`, `(?m)^fuse +the fuse is challenge until `, `\nuser#auth0\|ann +20\S+ \S+ UTC +arn:`, `\nidentity_blocked +\d+\n`, `(?s)Who spent most.*user#bob +\$0\.00`} {
		check.That(t, regexp.MustCompile(part).MatchString(status), "no %s in\n%s", part, status)
	}
	check.Equal(t, d.must(t, "unblock", "auth0|ann"), "user auth0|ann is not blocked any more\n", "unblock")
	until(http.StatusOK)
	d.must(t, "block", "auth0|ann", "--for", "5s")
	until(http.StatusForbidden)
	until(http.StatusOK)
}
