package fingerprint

import (
	"encoding/base32"
	"encoding/binary"
	"net/netip"
	"time"
)

// clientKeyBytes of the HMAC are kept: 40 bits, 8 characters. Among 1,000 clients of one
// network the chance that any two have the same key is about 2^-21. Two that do share a
// bucket, and nothing worse.
const clientKeyBytes = 5

// Signals is what tells the clients of one network apart: what the connection
// and the request say of the caller's software. Source.Signals builds it. It
// holds personal data: do not log or store it.
type Signals struct {
	Addr      netip.Addr // the source of the connection
	UserAgent string
	// What CloudFront saw of the caller's TLS; empty without CloudFront.
	JA3, JA4 string
	TLS      string // version and cipher, as TLSv1.3:TLS_AES_128_GCM_SHA256
}

// Client returns the key of the client that s describes, within the network of
// s.Addr, at the time now: 8 characters A-Z and 2-7. It changes together with the
// network's key, and the same software has another key in another network. It
// fails only if s.Addr is not valid.
//
// Signals count byte by byte: no version is taken off a user agent and no case is
// folded. Two users with one browser look alike anyway, so a coarser key would
// put still more strangers into one bucket; a finer one gains a script nothing,
// since it stays within the network's limit. JA3 counts only where there is no
// JA4: browsers put the TLS extensions into a new order on each connection, which
// changes JA3 each time, while JA4 sorts them.
func (k *Keyer) Client(s Signals, now time.Time) (string, error) {
	if !s.Addr.IsValid() {
		return "", errNoAddress
	}
	hello := s.JA4
	if hello == "" {
		hello = s.JA3
	}
	network := networkOf(s.Addr)
	var software []byte
	for _, signal := range [...]string{s.UserAgent, hello, s.TLS} {
		software = binary.BigEndian.AppendUint64(software, uint64(len(signal)))
		software = append(software, signal...)
	}
	key := k.mac(forClient, network, dayBytes(k.dayOf(network, now)), software)
	return base32.StdEncoding.EncodeToString(key[:clientKeyBytes]), nil
}

// SourceKey returns the key of an address within its network at the time now, 8
// characters A-Z and 2-7 like a client's: one IPv4 address, or 64 bits of an IPv6
// address, which are one household's or one machine's. It changes together with the
// network's key. It fails only if addr is not valid.
//
// It is for what must be bounded before anything is known about the caller. A user agent
// would be of no use there, because a script can choose another one each time.
func (k *Keyer) SourceKey(addr netip.Addr, now time.Time) (string, error) {
	if !addr.IsValid() {
		return "", errNoAddress
	}
	network := networkOf(addr)
	key := k.mac(forSource, network, dayBytes(k.dayOf(network, now)), sourceOf(addr))
	return base32.StdEncoding.EncodeToString(key[:clientKeyBytes]), nil
}

// Jitter is a factor from 0.8 to 1.2 that blurs a bound for one client, so that whoever
// finds the bound by probing knows nothing about the bound of other clients, or about
// tomorrow's. It is constant for a client key, which lasts a day, and evenly spread over
// all keys. It cannot be computed without the secret.
func (k *Keyer) Jitter(client string) float64 {
	const bits = 53 // as many as a float64 holds
	n := binary.BigEndian.Uint64(k.mac(forJitter, []byte(client))) >> (64 - bits)
	return 0.8 + 0.4*float64(n)/(1<<bits)
}
