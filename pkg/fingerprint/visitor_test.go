package fingerprint_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var networkShape = regexp.MustCompile(`^[a-z2-7]{16}$`)

// A visitor has the keys of a network with one client, nobody else's, and for a day; an
// account has one key for good.
func TestVisitor(t *testing.T) {
	t.Parallel()
	k, other := keyer(t, secret), keyer(t, []byte("another secret of enough bytes"))
	seen := map[string]string{}
	for _, id := range []string{"", "123", "1234", "12", "web#123", "shop#123", "203.0.113.7", "\x04\xcb\x00\x71", "ann@example.com", "123\x00\x00\x00\x00\x00\x00\x00\x01"} {
		keys, client := k.Visitor(id, noon, 0)
		if len(keys) != 1 || !networkShape.MatchString(keys[0]) || !clientShape.MatchString(client) || !networkShape.MatchString(k.Account(id)) {
			t.Fatalf("%q: %q, %q, %q", id, keys, client, k.Account(id))
		}
		for _, key := range []string{keys[0], client, k.Account(id)} {
			check.Equal(t, seen[key], "", "%q and … have the key %s", id, key)
			seen[key] = fmt.Sprintf("id %s", id)
		}
		if theirs, _ := other.Visitor(id, noon, 0); theirs[0] == keys[0] || other.Account(id) == k.Account(id) {
			t.Errorf("%q has the same key with two secrets", id)
		}
		// Somewhere in the next day both keys turn, together, and a day later not again.
		turns := 0
		for at := noon; at.Before(noon.Add(24 * time.Hour)); at = at.Add(time.Minute) {
			before, b := k.Visitor(id, at, 0)
			after, a := k.Visitor(id, at.Add(time.Minute), time.Minute)
			check.Must(t, (before[0] == after[0]) == (b == a), "%q: only one of its keys turns", id)
			if before[0] != after[0] {
				turns++
				check.That(t, slices.Equal(after[1:], before), "%q: after %q come %q", id, before, after)
			}
		}
		check.Equal(t, turns, 1, "%q: its keys turn … times a day", id)
	}
	if key := network(t, k, at("203.0.113.7").Addr, noon); seen[key] != "" {
		t.Errorf("a network has the key of %s", seen[key])
	}
}
