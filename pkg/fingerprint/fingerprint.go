// Package fingerprint names anonymous callers by keys that say nothing about
// them.
//
// It guarantees: a key cannot be computed, nor an address tested against one,
// without the secret; it holds no address; a network's keys of different days
// cannot be linked without the secret. All addresses of one network have the
// same key, so that what one caller can rotate for free (the host part of an
// address) does not open a fresh bucket.
//
// It is not an identity. A network is an IPv4 /24 or an IPv6 /48: it may hold
// one caller or thousands, and one caller may have many networks.
//
// Trusted: the secret, the clock, and that the address is the real source of
// the connection, not one that the caller wrote into a header.
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

// minSecretBytes is the least that cannot be guessed: the addresses can all be
// tried, so a key is as private as the secret is.
const minSecretBytes = 16

// day is how long a key lasts, in seconds.
const day = 24 * 60 * 60

// What the HMAC says is separated by what it is for.
const (
	forOffset = "tokenfuse network offset"
	forKey    = "tokenfuse network key"
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
		return "", errors.New("fingerprint: the address is not valid")
	}
	network := networkOf(addr)
	offset := binary.BigEndian.Uint64(k.mac(forOffset, network)) % day
	today := binary.BigEndian.AppendUint64(nil, (uint64(now.Unix())+offset)/day)
	return encoding.EncodeToString(k.mac(forKey, network, today)[:keyBytes]), nil
}

// mac is the HMAC-SHA256 of parts for one purpose. That the parts are taken
// apart in one way only is up to the caller; network and day are, since a
// network's first byte tells its length.
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
	addr = addr.Unmap().WithZone("")
	b := addr.As16()
	switch {
	case addr.Is4():
		return append([]byte{4}, b[12:15]...)
	case translated.Contains(addr):
		return append([]byte{4}, b[12:15]...)
	case sixToFour.Contains(addr):
		return append([]byte{4}, b[2:5]...)
	}
	return append([]byte{6}, b[:6]...)
}
