package challenge

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestPass(t *testing.T) {
	c := &clock{start}
	p := must(NewPasses(secret, 30*time.Minute, c.now))
	pass, token := p.Issue("today")
	check.That(t, regexp.MustCompile(`^[A-Za-z0-9_-]{75}$`).MatchString(token), "token %q", token)
	check.That(t, regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`).MatchString(pass.ID), "id %q", pass.ID)
	_, forged := must(NewPasses(otherSecret, 30*time.Minute, c.now)).Issue("today")
	// The same secret signs challenges, with other keys.
	challenge := must(must(NewAltcha(secret, c.now)).Create("today", 0))

	for name, tc := range map[string]struct {
		token    string
		networks []string
		at       time.Duration
		want     error
	}{
		"good":                 {token: token, networks: []string{"today"}},
		"yesterday's network":  {token: token, networks: []string{"tomorrow", "today"}},
		"last moment":          {token: token, networks: []string{"today"}, at: 30*time.Minute - 1},
		"expired":              {token: token, networks: []string{"today"}, at: 30 * time.Minute, want: ErrPassExpired},
		"another network":      {token: token, networks: []string{"other", "toda", "today2", ""}, want: ErrPassStolen},
		"no network":           {token: token, want: ErrPassStolen},
		"another secret":       {token: forged, networks: []string{"today"}, want: ErrPassForged},
		"made up":              {token: strings.Repeat("A", 75), networks: []string{"today"}, want: ErrPassForged},
		"a challenge":          {token: challenge.Signature, networks: []string{"today"}, want: ErrPassMalformed},
		"a challenge, as long": {token: (challenge.Signature + challenge.Signature)[:74] + "A", networks: []string{"today"}, want: ErrPassForged},
		"empty":                {token: "", networks: []string{"today"}, want: ErrPassMalformed},
		"padded":               {token: token + "=", networks: []string{"today"}, want: ErrPassMalformed},
		"standard base64":      {token: strings.Repeat("+/", 37) + "A", networks: []string{"today"}, want: ErrPassMalformed},
		"line break":           {token: token[:74] + "\n", networks: []string{"today"}, want: ErrPassMalformed},
		"line break more":      {token: token + "\n", networks: []string{"today"}, want: ErrPassMalformed},
		"only line breaks":     {token: strings.Repeat("\n", 75), networks: []string{"today"}, want: ErrPassMalformed},
		"huge":                 {token: strings.Repeat(token, 1<<14), networks: []string{"today"}, want: ErrPassMalformed},
	} {
		c.t = start.Add(tc.at)
		got, err := p.Check(tc.token, tc.networks...)
		check.That(t, errors.Is(err, tc.want), "%s: %v, want %v", name, err, tc.want)
		want := Pass{}
		if tc.want == nil {
			want = pass
		}
		check.Equal(t, got, want, "%s", name)
	}
	if want := start.Add(30 * time.Minute); !pass.Expires.Equal(want) {
		t.Errorf("expires %v, want %v", pass.Expires, want)
	}
}

// No token but the one that was issued is accepted, however near.
func TestPassWithAnyBitFlipped(t *testing.T) {
	c := &clock{start}
	p := must(NewPasses(secret, time.Minute, c.now))
	_, token := p.Issue("net")
	for i := range token {
		if _, err := p.Check(token[:i], "net"); err != ErrPassMalformed {
			t.Errorf("cut to %d: %v", i, err)
		}
		for bit := range 8 {
			flipped := []byte(token)
			flipped[i] ^= 1 << bit
			if pass, err := p.Check(string(flipped), "net"); err == nil {
				t.Errorf("character %d, bit %d: accepted as %v", i, bit, pass)
			}
		}
	}
	// The characters hide whole bytes: all of these are in some tag or signed.
	raw := must(passEncoding.DecodeString(token))
	for i := range len(raw) * 8 {
		raw[i/8] ^= 1 << (i % 8)
		if pass, err := p.Check(passEncoding.EncodeToString(raw), "net"); err == nil {
			t.Errorf("bit %d: accepted as %v", i, pass)
		}
		raw[i/8] ^= 1 << (i % 8)
	}
}

func TestPassesDiffer(t *testing.T) {
	p := must(NewPasses(secret, time.Minute, time.Now))
	ids := map[string]bool{}
	for range 1000 {
		pass, _ := p.Issue("net")
		ids[pass.ID] = true
	}
	check.Equal(t, len(ids), 1000, "ids of 1000 passes")
	if _, err := NewPasses(secret, time.Second-1, time.Now); err == nil {
		t.Error("a pass that expires at once is accepted")
	}
}

// issuedBefore was issued at start for "net", for a minute. Processes of another
// version issued what we check, so it must stay good.
const issuedBefore = "DlRUYX1u-ll3P4Kknz6qugAAAABrDWV8q6si-K_Dt6gVlyz2RyG70amAS2a5cJU1N9bRg1vwFz4"

func FuzzCheck(f *testing.F) {
	c := &clock{start}
	p := must(NewPasses(secret, time.Minute, c.now))
	pass, err := p.Check(issuedBefore, "net")
	if err != nil || pass.ID != "DlRUYX1u-ll3P4Kknz6qug" || !pass.Expires.Equal(start.Add(time.Minute)) {
		f.Fatal(pass, err)
	}
	f.Add(issuedBefore)
	f.Add(issuedBefore[:74] + "\r")
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		_, err := p.Check(token, "net", "other")
		var refusal Refusal
		check.That(t, err == nil || errors.As(err, &refusal), "%v is no refusal", err)
		check.That(t, err != nil || token == issuedBefore, "accepted %q", token)
	})
}

func BenchmarkCheck(b *testing.B) {
	p := must(NewPasses(secret, time.Hour, time.Now))
	_, token := p.Issue("net")
	for b.Loop() {
		must(p.Check(token, "tomorrow", "net"))
	}
}
