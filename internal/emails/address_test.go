package emails

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for name, same := range map[string][]string{
		"a@example.com":           {"A@Example.COM", "a@example.com.", "a@\uff45xample.com", "a@example\u3002com", "a@example\uff61com"},
		"j\u00f6rg@example.com":   {"J\u00d6RG@example.com", "jo\u0308rg@example.com"},
		"a@xn--bcher-kva.example": {"a@b\u00fccher.example", "a@B\u00dcCHER.example", "a@bu\u0308cher.example", "a@XN--BCHER-KVA.example"},
		"a@xn--strae-oqa.de":      {"a@stra\u00dfe.de"},
		"strasse@example.com":     {"stra\u00dfe@example.com"},
		"a.b+c@example.com":       {"A.B+C@example.com"},
		"ab@example.com":          nil,
		"ab+c@example.com":        nil,
		`"a@b"@example.com`:       {`"A@B"@example.com`},
	} {
		for _, spelling := range append(same, name) {
			if got, err := canonical(spelling); got != name || err != nil {
				t.Errorf("%s: %q, %v; want %q", spelling, got, err, name)
			}
		}
	}
	for _, bad := range []string{"", "a", "@", "a@", "@example.com", "a@example..com", "a@.", "a b@example.com", "a@example.com\n", "a\x00@example.com",
		"a@\u02d9.com", "\xff@example.com", strings.Repeat("a", 250) + "@b.de"} {
		if got, err := canonical(bad); err != ErrAddress {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add("J\u00f6rg@B\u00fccher.example")
	f.Add("\u1e9e\u03a3@\u03a3\u03c2.\u0130\u3002")
	f.Fuzz(func(t *testing.T, email string) {
		once, err := canonical(email)
		if err != nil {
			return
		}
		check.That(t, utf8.ValidString(once) && len(once) <= 40*maxAddressBytes, "%q became %q", email, once)
		if twice, err := canonical(once); len(once) <= maxAddressBytes && (twice != once || err != nil) {
			t.Errorf("%q became %q, then %q, %v", email, once, twice, err)
		}
	})
}
