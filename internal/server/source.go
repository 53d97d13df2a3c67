package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// Proxies are the networks of the proxies that stand in front and are believed when they
// say for whom they ask. Without any, nobody is.
type Proxies []netip.Prefix

// ParseProxies reads networks (10.0.0.0/8, 2001:db8::/32) and single addresses. One of all
// addresses is refused: every caller could then say where it comes from.
func ParseProxies(texts []string) (Proxies, error) {
	var all Proxies
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if addr, alone := netip.ParseAddr(text); alone == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if addr := prefix.Addr(); err == nil && addr.Is4In6() {
			if prefix.Bits() < 96 {
				return nil, fmt.Errorf("%q is a network of IPv4 in IPv6: write it as IPv4", text)
			}
			prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96) // as the addresses of requests are read
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is neither a network, such as 10.0.0.0/8, nor an IP address", text)
		case prefix.Bits() == 0:
			return nil, fmt.Errorf("%q is every address: each caller could then say where it comes from", text)
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// has reports whether an address is that of a trusted proxy.
func (p Proxies) has(addr netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// source is where a request comes from, and whether a trusted proxy has handed it on. That
// is the peer, unless the peer is trusted: each proxy adds the address of its own peer at
// the end of X-Forwarded-For, so the rightmost one that is not of a trusted proxy is the
// last that somebody trusted has seen. What stands left of it anybody can have written.
// An entry that is no address ends the search: the proxy that wrote it counts.
func (p Proxies) source(r *http.Request) (addr netip.Addr, proxied bool, err error) {
	addr, err = fingerprint.ParseSource(r.RemoteAddr)
	if err != nil {
		return addr, false, errors.New("the peer has no IP address")
	}
	if !p.has(addr) {
		return addr, false, nil
	}
	// Several lines are one list (RFC 9110, section 5.3).
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.has(addr); i-- {
		hop := strings.Trim(hops[i], " \t")
		if hop == "" {
			continue // an empty element of a list says nothing
		}
		seen, err := fingerprint.ParseSource(bare(hop))
		if err != nil {
			break
		}
		addr = seen
	}
	return addr, true, nil //nolint:nilerr // what is no address ends the search
}

// bare is an address without the brackets in which some proxies write IPv6.
func bare(hop string) string {
	if inner, ok := strings.CutPrefix(hop, "["); ok && strings.HasSuffix(inner, "]") {
		return strings.TrimSuffix(inner, "]")
	}
	return hop
}
