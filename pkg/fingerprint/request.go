package fingerprint

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// OriginSecretHeader is the request header by which our CloudFront distribution
// proves itself. Set it as a custom header of the distribution's origin:
// CloudFront then replaces one of that name that a caller sends.
const OriginSecretHeader = "X-Origin-Secret"

// What CloudFront says of the viewer. The origin request policy must list these
// and User-Agent: CloudFront sets the listed headers, also over a caller's own.
const (
	viewerAddress = "CloudFront-Viewer-Address"
	viewerJA3     = "CloudFront-Viewer-JA3-Fingerprint"
	viewerJA4     = "CloudFront-Viewer-JA4-Fingerprint"
	viewerTLS     = "CloudFront-Viewer-TLS"
)

// The most bytes of a signal that count. Real signals are shorter; the bound is for
// those that somebody made up.
const (
	maxUserAgent = 512
	maxTLSSignal = 128
)

// Source decides what of a request is believed. It is safe for concurrent use.
type Source struct {
	secrets [][sha256.Size]byte // hashes, since the comparison tells the length
}

// NewSource makes a Source that believes the CloudFront-* headers of requests
// with one of originSecrets: the current one and, while it is rotated, the other.
// Without any secret it believes none. A secret must have at least 16 characters, all of
// them visible ASCII: whoever guesses a secret can pretend to come from anywhere, and with
// a secret that no header can carry, all callers of one CloudFront location would be a
// single network.
func NewSource(originSecrets ...[]byte) (*Source, error) {
	s := &Source{}
	for _, secret := range originSecrets {
		if len(secret) < minSecretBytes {
			return nil, fmt.Errorf("fingerprint: an origin secret must have at least %d characters", minSecretBytes)
		}
		for _, c := range secret {
			if c <= ' ' || c > '~' {
				return nil, errors.New("fingerprint: an origin secret must be visible ASCII characters, without spaces or line ends")
			}
		}
		s.secrets = append(s.secrets, sha256.Sum256(secret))
	}
	return s, nil
}

// Signals reads what r says of its sender. The address is that of the connection,
// r.RemoteAddr, or, if CloudFront has proven itself, the viewer's. X-Forwarded-For
// and its kin are not looked at, nor is any CloudFront-* header without the proof.
//
// It fails if the address cannot be read. It does not fall back from CloudFront's
// to the connection's, which is CloudFront's own: all callers would share the
// bucket of one network, and nobody would know. The error repeats nothing of the
// request.
func (s *Source) Signals(r *http.Request) (Signals, error) {
	signals := Signals{UserAgent: UserAgent(r.UserAgent())}
	var err error
	if !s.Proven(r) {
		signals.Addr, err = ParseSource(r.RemoteAddr)
		return signals, err
	}
	signals.Addr, err = parseViewer(only(r.Header, viewerAddress))
	signals.JA3 = atMost(maxTLSSignal, only(r.Header, viewerJA3))
	signals.JA4 = atMost(maxTLSSignal, only(r.Header, viewerJA4))
	signals.TLS = atMost(maxTLSSignal, withoutHandshake(only(r.Header, viewerTLS)))
	return signals, err
}

// Proven reports whether r came through our CloudFront distribution, that is, whether r
// carries one of the origin secrets. It always compares all of them, so that the time
// which this takes tells nothing.
func (s *Source) Proven(r *http.Request) bool {
	given := sha256.Sum256([]byte(only(r.Header, OriginSecretHeader)))
	proven := 0
	for _, secret := range s.secrets {
		proven |= subtle.ConstantTimeCompare(given[:], secret[:])
	}
	return proven == 1
}

// parseViewer reads address:port as CloudFront writes it: IPv6 without brackets,
// so the last colon is what divides.
func parseViewer(viewer string) (netip.Addr, error) {
	if i := strings.LastIndexByte(viewer, ':'); i >= 0 {
		addr, err := netip.ParseAddr(viewer[:i])
		if _, badPort := strconv.ParseUint(viewer[i+1:], 10, 16); err == nil && badPort == nil {
			return addr.Unmap().WithZone(""), nil
		}
	}
	return netip.Addr{}, errors.New("fingerprint: " + viewerAddress + " has no address:port; does the origin request policy send it?")
}

// withoutHandshake is version:cipher of version:cipher:handshake. The last part
// (fullHandshake, sessionResumed or connectionReused) is about the connection's
// history and differs between two requests of the same client.
func withoutHandshake(tls string) string {
	version, rest, _ := strings.Cut(tls, ":")
	cipher, _, ok := strings.Cut(rest, ":")
	if !ok {
		return tls
	}
	return version + ":" + cipher
}

// only is the header's value, or "" unless there is exactly one.
func only(h http.Header, name string) string {
	if values := h.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}

// UserAgent is the part of a user agent that counts.
func UserAgent(s string) string { return atMost(maxUserAgent, s) }

func atMost(n int, s string) string { return s[:min(n, len(s))] }
