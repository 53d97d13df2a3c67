package server

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestSource(t *testing.T) {
	t.Parallel()
	proxies, err := ParseProxies([]string{"10.0.0.0/8", "192.0.2.7", "2001:db8:1::/48", "::ffff:172.16.0.0/108"})
	check.OK(t, err)
	for name, tt := range map[string]struct {
		peer    string
		forward []string // lines
		want    string
		proxied bool
	}{
		"no proxy":                     {"203.0.113.9:1000", nil, "203.0.113.9", false},
		"forged by a caller":           {"203.0.113.9:1000", []string{"198.51.100.1"}, "203.0.113.9", false},
		"forged, as if by a proxy":     {"203.0.113.9:1000", []string{"198.51.100.1, 10.0.0.1"}, "203.0.113.9", false},
		"a proxy that says nothing":    {"10.0.0.1:1000", nil, "10.0.0.1", true},
		"one hop":                      {"10.0.0.1:1000", []string{"203.0.113.9"}, "203.0.113.9", true},
		"forged before the hop":        {"10.0.0.1:1000", []string{"198.51.100.1, 10.9.9.9, 203.0.113.9"}, "203.0.113.9", true},
		"several proxies":              {"10.0.0.1:1000", []string{"198.51.100.1, 203.0.113.9, 192.0.2.7,10.2.0.1"}, "203.0.113.9", true},
		"several lines":                {"10.0.0.1:1000", []string{"198.51.100.1", "203.0.113.9", "10.2.0.1"}, "203.0.113.9", true},
		"an empty last line":           {"10.0.0.1:1000", []string{"203.0.113.9", ""}, "203.0.113.9", true},
		"only proxies":                 {"10.0.0.1:1000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3", true},
		"no address":                   {"10.0.0.1:1000", []string{"203.0.113.9, unknown"}, "10.0.0.1", true},
		"no address behind a proxy":    {"10.0.0.1:1000", []string{"203.0.113.9, <script>, 10.0.0.2"}, "10.0.0.2", true},
		"with a port":                  {"10.0.0.1:1000", []string{"203.0.113.9:4711"}, "203.0.113.9", true},
		"IPv6":                         {"[2001:db8:1::1]:1000", []string{"2001:db8:2::9"}, "2001:db8:2::9", true},
		"IPv6 in brackets":             {"[2001:db8:1::1]:1000", []string{"[2001:db8:2::9]"}, "2001:db8:2::9", true},
		"IPv6 with a port":             {"[2001:db8:1::1]:1000", []string{"[2001:db8:2::9]:4711"}, "2001:db8:2::9", true},
		"IPv6 that is no proxy":        {"[2001:db8:2::1]:1000", []string{"198.51.100.1"}, "2001:db8:2::1", false},
		"a zone":                       {"[fe80::1%eth0]:1000", []string{"198.51.100.1"}, "fe80::1", false},
		"a proxy as IPv4 in IPv6":      {"[::ffff:10.0.0.1]:1000", []string{"::ffff:203.0.113.9"}, "203.0.113.9", true},
		"a network as IPv4 in IPv6":    {"172.16.0.1:1000", []string{"203.0.113.9"}, "203.0.113.9", true},
		"beside a network":             {"11.0.0.1:1000", []string{"198.51.100.1"}, "11.0.0.1", false},
		"beside a single address":      {"192.0.2.8:1000", []string{"198.51.100.1"}, "192.0.2.8", false},
		"very many forged hops":        {"10.0.0.1:1000", []string{strings.Repeat("10.0.0.1,", 2000) + "203.0.113.9"}, "203.0.113.9", true},
		"a header of another spelling": {"10.0.0.1:1000", []string{" 203.0.113.9\t"}, "203.0.113.9", true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = tt.peer, tt.forward
		r.Header.Set("Forwarded", "for=198.51.100.1")
		r.Header.Set("X-Real-Ip", "198.51.100.1")
		addr, proxied, err := proxies.source(r)
		check.That(t, err == nil && addr.String() == tt.want && proxied == tt.proxied, "%s: %v, %v, %v", name, addr, proxied, err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "@"
	if _, _, err := proxies.source(r); err == nil {
		t.Error("a peer without an address has one")
	}
	r.RemoteAddr, r.Header["X-Forwarded-For"] = "10.0.0.1:1", []string{"203.0.113.9"}
	if addr, _, err := (Proxies)(nil).source(r); err != nil || addr.String() != "10.0.0.1" {
		t.Errorf("without proxies: %v, %v", addr, err)
	}
}

func TestParseProxies(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"", "10.0.0.0/33", "proxy.example.com", "10.0.0.0-10.0.0.9", "0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96", "::ffff:0.0.0.0/90", "fe80::1%eth0", "10.0.0.0/8 "} {
		if p, err := ParseProxies([]string{"10.0.0.1", wrong}); err == nil || !strings.Contains(err.Error(), `"`+wrong+`"`) {
			t.Errorf("%q: %v, %v", wrong, p, err)
		}
	}
}
