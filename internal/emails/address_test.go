package emails

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// The samples of RFC 3492, section 7.1, in lower case, that are one label.
func TestPunycode(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"\u0644\u064a\u0647\u0645\u0627\u0628\u062a\u0643\u0644\u0645\u0648\u0634\u0639\u0631\u0628\u064a\u061f": "egbpdaj6bu4bxfgehfvwxn",
		"\u4ed6\u4eec\u4e3a\u4ec0\u4e48\u4e0d\u8bf4\u4e2d\u6587":                                                 "ihqwcrb4cv8a8dqg056pqjye",
		"3\u5e74b\u7d44\u91d1\u516b\u5148\u751f":                                                                 "3b-ww4c5e180e575a65lsy2b",
		"\u5b89\u5ba4\u5948\u7f8e\u6075-with-super-monkeys":                                                      "-with-super-monkeys-pc58ag80a8qai00g7n9n",
		"maji\u3067koi\u3059\u308b5\u79d2\u524d":                                                                 "majikoi5-783gue6qz075azm5e",
		"\u305d\u306e\u30b9\u30d4\u30fc\u30c9\u3067":                                                             "d9juau41awczczp",
		"b\u00fccher": "bcher-kva",
	} {
		if got := punycode([]rune(label)); got != want {
			t.Errorf("%s: %s, want %s", label, got, want)
		}
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	for name, same := range map[string][]string{
		"a@example.com":           {"A@Example.COM", "a@example.com.", "a@\uff45xample.com", "a@example\u3002com", "a@example\uff61com"},
		"j\u00f6rg@example.com":   {"J\u00d6RG@example.com", "jo\u0308rg@example.com"},
		"a@xn--bcher-kva.example": {"a@b\u00fccher.example", "a@B\u00dcCHER.example", "a@bu\u0308cher.example", "a@XN--BCHER-KVA.example"},
		"a@xn--strae-oqa.de":      {"a@stra\u00dfe.de", "a@STRA\u1e9eE.de"},
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
		"\xff@example.com", strings.Repeat("a", 250) + "@b.de"} {
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
		if !utf8.ValidString(once) || len(once) > 40*maxAddressBytes {
			t.Errorf("%q became %q", email, once)
		}
		if twice, err := canonical(once); len(once) <= maxAddressBytes && (twice != once || err != nil) {
			t.Errorf("%q became %q, then %q, %v", email, once, twice, err)
		}
	})
}
