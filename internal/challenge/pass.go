package challenge

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

const (
	passIDBytes = 16
	passBytes   = passIDBytes + 8 + 2*tagBytes // id, expiry in Unix seconds, tags
)

// Strict: with the bits that the last character has to spare, one pass would have
// several spellings.
var passEncoding = base64.RawURLEncoding.Strict()

// Pass is what a solved challenge buys.
type Pass struct {
	ID      string    // random; names the pass's own bucket
	Expires time.Time // whole seconds; from then on it is refused
}

// Passes issues and checks passes. It is safe for concurrent use and keeps
// nothing: how often a pass may be used is up to its bucket.
type Passes struct {
	signer signer
	ttl    time.Duration
	now    func() time.Time
}

// NewPasses takes a secret of at least 16 bytes, which all processes share, and
// how long a pass is good, at least 1 s.
func NewPasses(secret []byte, ttl time.Duration, now func() time.Time) (*Passes, error) {
	if ttl < time.Second {
		return nil, errors.New("challenge: a pass must be good for at least 1 s")
	}
	s, err := newSigner(secret, "pass")
	if err != nil {
		return nil, err
	}
	return &Passes{s, ttl, now}, nil
}

// Issue makes a pass for a network. The token has 75 characters that are safe in
// URLs and headers. It does not show the network.
func (p *Passes) Issue(network string) (pass Pass, token string) {
	data := make([]byte, passIDBytes, passBytes)
	rand.Read(data) // never fails
	data = binary.BigEndian.AppendUint64(data, uint64(p.now().Add(p.ttl).Unix()))
	return readPass(data), passEncoding.EncodeToString(append(data, p.signer.sign(data, network)...))
}

// Check gives the pass that token stands for if it was issued to one of the
// networks: a network's key changes daily, and its former one is still good. The
// error is ErrPassMalformed, ErrPassForged, ErrPassExpired or ErrPassStolen.
func (p *Passes) Check(token string, networks ...string) (Pass, error) {
	if len(token) != passEncoding.EncodedLen(passBytes) {
		return Pass{}, ErrPassMalformed
	}
	raw, err := passEncoding.DecodeString(token)
	if err != nil || len(raw) != passBytes { // line breaks are skipped, and missing then
		return Pass{}, ErrPassMalformed
	}
	data, tags := raw[:passBytes-2*tagBytes], raw[passBytes-2*tagBytes:]
	ours, here := p.signer.check(data, tags, networks...)
	pass := readPass(data)
	switch {
	case !ours:
		return Pass{}, ErrPassForged
	case !p.now().Before(pass.Expires):
		return Pass{}, ErrPassExpired
	case !here:
		return Pass{}, ErrPassStolen
	}
	return pass, nil
}

// readPass reads the signed part of a token.
func readPass(data []byte) Pass {
	return Pass{
		ID:      base64.RawURLEncoding.EncodeToString(data[:passIDBytes]),
		Expires: time.Unix(int64(binary.BigEndian.Uint64(data[passIDBytes:])), 0),
	}
}
