package server

import (
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Nobody but a trusted proxy moves a caller's address, which is one that a proxy has
// written; and what a caller writes in front of that changes nothing.
func FuzzForwarded(f *testing.F) {
	for _, seed := range [][3]string{
		{"10.0.0.1:1", "203.0.113.9", "198.51.100.1"}, {"203.0.113.9:1", "10.0.0.1", "1.2.3.4"}, {"10.0.0.1:1", "203.0.113.9, 10.0.0.2, , 192.0.2.7\t", ""},
		{"[2001:db8:1::1]:1", "[2001:db8:2::9]:4711,[2001:db8:1::2]", "unknown"}, {"[::ffff:10.0.0.1]:1", "::ffff:203.0.113.9", "::1"}, {"10.0.0.1:1", "fe80::1%z, _hidden", ","},
		{"@", "203.0.113.9", ""}, {"10.0.0.1:1", "10.0.0.3,10.0.0.2", "10.0.0.9"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	proxies, err := ParseProxies([]string{"10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48"})
	check.OK(f, err)
	source := func(peer string, forward ...string) (netip.Addr, bool, error) {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = peer, forward
		return proxies.source(r)
	}
	f.Fuzz(func(t *testing.T, peer, forward, forged string) {
		from, fromErr := fingerprint.ParseSource(peer)
		addr, proxied, err := source(peer, forward)
		if fromErr != nil || err != nil {
			check.That(t, fromErr != nil && err != nil && !proxied, "a peer %q: %v, %v, %t", peer, fromErr, err, proxied)
			return
		}
		check.Equal(t, proxied, proxies.has(from), "handed on by a proxy")
		check.That(t, proxied || addr == from, "the stranger %v is taken for %v", from, addr)
		if addr == from || !proxied {
			return
		}
		written := false
		for hop := range strings.SplitSeq(forward, ",") {
			seen, err := fingerprint.ParseSource(bare(strings.Trim(hop, " \t")))
			written = written || err == nil && seen == addr
		}
		check.That(t, written, "nobody wrote %v: %q", addr, forward)
		if again, _, _ := source(peer, forged, forward); !proxies.has(addr) {
			check.Equal(t, again, addr, "with %q in front of %q", forged, forward)
		}
	})
}

// What is trusted is what was written, in any spelling, and never everybody.
func FuzzParseProxies(f *testing.F) {
	for _, seed := range []string{"10.0.0.0/8", "10.1.2.3/8", "2001:db8::/32", "192.0.2.7", "::ffff:172.16.0.0/108", "::ffff:1.2.3.4", "0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96", "fe80::1%z"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParseProxies([]string{text})
		if err != nil {
			check.That(t, p == nil && strings.HasPrefix(err.Error(), strconv.Quote(text)), "%v: the error does not name it", err)
			return
		}
		check.Must(t, len(p) == 1 && p[0].IsValid() && p[0].Bits() > 0 && !p[0].Addr().Is4In6() && p[0] == p[0].Masked(), "%q became %v", text, p)
		again, err := ParseProxies([]string{p[0].String()})
		check.That(t, err == nil && again[0] == p[0] && p.has(p[0].Addr()), "%v was read as %v, %v", p, again, err)
	})
}
