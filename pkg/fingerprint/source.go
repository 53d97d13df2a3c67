package fingerprint

import (
	"errors"
	"net/netip"
)

// ParseSource reads the source address of a connection: an address alone, as
// API Gateway gives it, or address:port with IPv6 in brackets, as net/http
// does. IPv4 mapped into IPv6 becomes IPv4 and a zone is dropped, so that an
// address is always written in the same way. The error does not repeat the
// input, which may be personal data.
//
// It is not for CloudFront-Viewer-Address, which has IPv6 with a port and
// without brackets: that reads as an address too.
func ParseSource(remoteAddr string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(remoteAddr)
	if err != nil {
		withPort, err := netip.ParseAddrPort(remoteAddr)
		if err != nil {
			return netip.Addr{}, errors.New("fingerprint: the source is neither an IP address nor address:port")
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), nil
}
