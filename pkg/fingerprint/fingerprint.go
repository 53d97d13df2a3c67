// Package fingerprint names anonymous callers by keys that say nothing about
// them: one for the network that a request comes from, and a finer one for the
// client within it.
//
// It guarantees: without the secret nobody can compute a key, test an address or a user
// agent against a key, or link the keys of different days. A key holds no address and no
// user agent. All addresses of one network have the same network key, so that what one
// caller can rotate for free (the host part of an address) does not open a fresh bucket.
//
// Neither key is an identity. A network is an IPv4 /24 or an IPv6 /48: it may
// hold one caller or thousands, and one caller may have many networks. A client
// is whatever looks like one piece of software in one network: callers with the
// same browser are one client, and whoever changes the user agent is another. So
// a client's limit is for fairness; the network's is the one that holds.
//
// Trusted: the secret, the clock, http.Request.RemoteAddr, and the headers of our
// own CloudFront distribution where it proves itself by the origin secret (see
// Source). No other header says where a request comes from.
package fingerprint

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// minSecretBytes is the least that cannot be guessed. All addresses can be tried one
// after the other, so a key is only as private as the secret.
const minSecretBytes = 16

// day is how long a key lasts, in seconds.
const day = 24 * 60 * 60

// Purposes of the HMAC: equal input for two of them gives different keys.
const (
	forOffset = "tokenfuse network offset"
	forKey    = "tokenfuse network key"
	forClient = "tokenfuse client key"
	forJitter = "tokenfuse client jitter"
	forSource = "tokenfuse source key"

	forAccount = "tokenfuse account key"
)

// keyBytes of the HMAC are kept: 80 bits, 16 characters. Among all 2^24 IPv4
// networks on one day the chance that any two share a key is about 2^-33.
const keyBytes = 10

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Keyer makes keys. It is safe for concurrent use.
type Keyer struct {
	secret []byte
}

// New makes a Keyer from a random secret of at least 16 bytes. Whoever has the
// same secret makes the same keys.
func New(secret []byte) (*Keyer, error) {
	if len(secret) < minSecretBytes {
		return nil, fmt.Errorf("fingerprint: the secret must have at least %d bytes", minSecretBytes)
	}
	return &Keyer{secret: bytes.Clone(secret)}, nil
}

// Network returns the key of addr's network at the time now (after 1970): 16
// characters a-z and 2-7. It fails only if addr is not valid.
//
// A key lasts 24 hours. Each network's day starts at a time of its own, which
// the secret decides, so that the buckets of all callers do not become full at
// once, and nobody knows when a network's will. In any 24 hours a network
// meets at most one fresh key. The key depends on nothing but the arguments:
// while clocks differ around a network's hour, its callers meet yesterday's key
// or today's, never a third.
//
// Some IPv6 addresses stand for an IPv4 address: mapped (::ffff:0:0/96),
// translated (64:ff9b::/96, RFC 6052) and 6to4 (2002::/16, RFC 3056). They
// count as that address, or the owner of an IPv4 network could go by another
// key for each. A zone counts for nothing.
func (k *Keyer) Network(addr netip.Addr, now time.Time) (string, error) {
	if !addr.IsValid() {
		return "", errNoAddress
	}
	network := networkOf(addr)
	return k.networkKey(network, k.dayOf(network, now)), nil
}

// Networks returns the keys that addr's network may have had in the time d
// before now, d from 0 to 24 hours: the present one first, then, if that is
// younger than d, the one before. Whatever was bound to a network at most d ago
// is bound to one of them. It fails only if addr is not valid.
func (k *Keyer) Networks(addr netip.Addr, now time.Time, d time.Duration) ([]string, error) {
	if !addr.IsValid() {
		return nil, errNoAddress
	}
	return k.networks(networkOf(addr), now, d), nil
}

func (k *Keyer) networks(network []byte, now time.Time, d time.Duration) []string {
	today := k.dayOf(network, now)
	keys := []string{k.networkKey(network, today)}
	if k.dayOf(network, now.Add(-d)) < today {
		keys = append(keys, k.networkKey(network, today-1))
	}
	return keys
}

var errNoAddress = errors.New("fingerprint: the address is not valid")

// dayOf numbers the days of a network.
func (k *Keyer) dayOf(network []byte, now time.Time) uint64 {
	offset := binary.BigEndian.Uint64(k.mac(forOffset, network)) % day
	return (uint64(now.Unix()) + offset) / day
}

func (k *Keyer) networkKey(network []byte, n uint64) string {
	return encoding.EncodeToString(k.mac(forKey, network, dayBytes(n))[:keyBytes])
}

func dayBytes(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// mac is the HMAC-SHA256 of parts for one purpose. The parts are joined without
// separators: the caller must see to it that no other parts give the same bytes. A network
// followed by a day never does, since the first byte of a network tells its length.
func (k *Keyer) mac(purpose string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(purpose))
	h.Write([]byte{0})
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)
}

var (
	translated = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// networkOf is the network of a valid addr: the IP version, then the prefix.
func networkOf(addr netip.Addr) []byte {
	source := sourceOf(addr)
	if source[0] == 4 {
		return source[:4:4]
	}
	return source[:7:7]
}

// sourceOf is the IP version, then the IPv4 address that a valid addr is or stands for, or
// the first 64 bits of an IPv6 address.
func sourceOf(addr netip.Addr) []byte {
	addr = addr.Unmap().WithZone("")
	b := addr.As16()
	switch {
	case addr.Is4(), translated.Contains(addr):
		return append([]byte{4}, b[12:16]...)
	case sixToFour.Contains(addr):
		return append([]byte{4}, b[2:6]...)
	}
	return append([]byte{6}, b[:8]...)
}
