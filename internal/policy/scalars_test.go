package policy

import (
	"bytes"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Money is read exactly, and in one spelling.
func FuzzMillionths(f *testing.F) {
	for _, seed := range []string{"0", "2.00", "0.000001", "999999999.999999", "1000000000", "1e3", "-1", "+1", "01", ".5", "5.", "0.0000001", "1_0", "٣", "0x1"} {
		f.Add(seed)
	}
	form := regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})?$`)
	f.Fuzz(func(t *testing.T, s string) {
		n, ok := millionths(s)
		check.Must(t, ok == form.MatchString(s), "%q: %t", s, ok)
		if exact, _ := new(big.Rat).SetString(s); ok {
			check.That(t, exact.Mul(exact, big.NewRat(1_000_000, 1)).Cmp(big.NewRat(n, 1)) == 0, "%q was read as %d millionths", s, n)
		}
	})
}

// What an editor lets pass is what is read, and a duration is shown as it may be written.
func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"30s", "1h", "1d", "1d12h", "0", "-1h", "+1h", "1.5h.5m", "1.h", ".5h", "1µs", "1μs", "1d1", "366d", "106752d", "1 h"} {
		f.Add(seed)
	}
	form := regexp.MustCompile(durationPattern)
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := parseDuration(s)
		check.Must(t, !ok || d >= 0 && (form.MatchString(s) || s == "0"), "%q is read as %s, against the schema", s, d)
		if ok && d%time.Second == 0 {
			again, ok := parseDuration(formatDuration(d))
			check.That(t, ok && again == d, "%s is shown as %s, which is read as %s", d, formatDuration(d), again)
		}
	})
}

// An origin is matched by itself or its pattern, within one label, and never by another
// scheme, port or domain.
func FuzzOrigin(f *testing.F) {
	for _, seed := range [][2]string{
		{"https://app.example.com", "https://app.example.com"}, {"https://*-team.vercel.app", "https://pr-1-team.vercel.app"}, {"https://*.example.com:8443", "https://a.b.example.com:8443"},
		{"http://localhost:3000", "http://localhost:3000"}, {"https://[::1]:8443", "null"}, {"moz-extension://*", "moz-extension://0-1"}, {"capacitor://localhost", "https://localhost"},
		{"https://*.com", "https://x.com"}, {"https://app.example.com:443", ""}, {"https://*.example.com", "https://.example.com"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, allowed, sent string) {
		o, ok := ParseOrigin(allowed)
		if !ok {
			return
		}
		before, after, pattern := strings.Cut(allowed, "*")
		check.That(t, pattern != o.Matches(allowed), "%q matches itself: %t", allowed, !pattern)
		if !o.Matches(sent) {
			return
		}
		label := strings.TrimSuffix(strings.TrimPrefix(sent, before), after)
		check.That(t, sent == allowed || pattern && before+label+after == sent && label != "" && !strings.ContainsAny(label, "./:@#?%"), "%q lets %q in", allowed, sent)
	})
}

// A file that is read has a tree that says the same, and a tree counts as it was written,
// beside its own file alone.
func FuzzTree(f *testing.F) {
	f.Add([]byte(good), []byte(nil), uint16(0))
	for _, change := range accepted {
		f.Add([]byte(strings.Replace(good, change[0], change[1], 1)), []byte("x"), uint16(9))
		break
	}
	f.Add([]byte("a: b"), []byte(treeForm), uint16(1))
	f.Fuzz(func(t *testing.T, file, other []byte, at uint16) {
		check.That(t, treeOf(other, file) == nil, "a forged tree counts")
		tree, err := Tree(file)
		want, parseErr := Parse(file)
		check.Must(t, (err == nil) == (parseErr == nil), "%v, %v", err, parseErr)
		if err != nil {
			check.That(t, tree == nil, "a file with mistakes has a tree")
			return
		}
		root := treeOf(tree, file)
		check.Must(t, root != nil, "its own tree is not read")
		got, err := parsed(nil, root, nil)
		check.OK(t, err)
		check.Diff(t, cmp.Diff(want, got), "by its tree")
		check.That(t, bytes.Equal(other, file) || treeOf(tree, other) == nil, "a tree counts beside another file")
		broken := bytes.Clone(tree)
		broken[int(at)%len(broken)] ^= 1
		check.That(t, treeOf(broken, file) == nil, "a broken tree counts")
	})
}
