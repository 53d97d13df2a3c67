package challenge

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"time"
)

// The proof of work: the client derives keys for the counters 0, 1, 2... until
// one begins with the given prefix. We derived that one key ourselves, for a
// counter drawn evenly from [0, n), so nobody can skip any and the work is n/2
// derivations on average, n at most. Lucky draws do not help whoever throws
// challenges away: k tries in each cost n derivations for every one solved.
const (
	algorithm = "PBKDF2/SHA-256"
	// cost is the iterations of one derivation: about 0.5 ms, here and in a browser.
	// A challenge costs us one.
	cost = 1000
	// n for hardness 0: about 0.3 s on average on one core of a laptop.
	easiest = 1 << 10
	// n for hardness 1: eight times that.
	hardest = 8 * easiest

	keyBytes    = 32
	prefixBytes = keyBytes / 2 // the other half proves that the key was derived
	nonceBytes  = 16

	altchaLifetime = 5 * time.Minute
)

// Challenge is an ALTCHA proof of work, version 2. As JSON it is what the
// widget and altcha-lib take.
type Challenge struct {
	Parameters Parameters `json:"parameters"`
	// Signature is of Parameters and the network.
	Signature string `json:"signature"`
}

// Parameters say what is to be solved. What is bytes is in hex.
type Parameters struct { // names in alphabetical order, as ALTCHA signs them
	Algorithm string `json:"algorithm"`
	Cost      int64  `json:"cost"`
	ExpiresAt int64  `json:"expiresAt"` // Unix seconds
	KeyLength int64  `json:"keyLength"` // bytes
	KeyPrefix string `json:"keyPrefix"`
	// KeySignature is of the derived key: checking a solution derives nothing.
	KeySignature string `json:"keySignature"`
	Nonce        string `json:"nonce"`
	Salt         string `json:"salt"`
}

// Altcha makes and verifies challenges without a third party and without a
// store. It is safe for concurrent use.
type Altcha struct {
	signer signer
	keyKey []byte
	now    func() time.Time
}

// NewAltcha takes a secret of at least 16 bytes. All processes share it.
func NewAltcha(secret []byte, now func() time.Time) (*Altcha, error) {
	s, err := newSigner(secret, "altcha challenge")
	if err != nil {
		return nil, err
	}
	keyKey, err := deriveKey(secret, "altcha key")
	if err != nil {
		return nil, err
	}
	return &Altcha{s, keyKey, now}, nil
}

// Create makes a challenge for a network, good for 5 minutes. A hardness of 1
// means eight times the work of 0; what lies outside counts as the nearer end.
func (a *Altcha) Create(network string, hardness float64) (Challenge, error) {
	return a.create(network, drawCounter(hardness))
}

func drawCounter(hardness float64) uint32 {
	n := uint64(easiest)
	if hardness > 0 { // not for NaN
		n += uint64(min(hardness, 1) * (hardest - easiest))
	}
	var random [8]byte // so many that the remainder favours no counter by much
	rand.Read(random[:])
	return uint32(binary.BigEndian.Uint64(random[:]) % n)
}

// create makes a challenge whose solution is counter.
func (a *Altcha) create(network string, counter uint32) (Challenge, error) {
	random := make([]byte, 2*nonceBytes)
	rand.Read(random)
	nonce, salt := random[:nonceBytes:nonceBytes], random[nonceBytes:]
	key, err := pbkdf2.Key(sha256.New, string(binary.BigEndian.AppendUint32(nonce, counter)), salt, cost, keyBytes)
	if err != nil {
		return Challenge{}, err
	}
	p := Parameters{
		Algorithm:    algorithm,
		Cost:         cost,
		ExpiresAt:    a.now().Add(altchaLifetime).Unix(),
		KeyLength:    keyBytes,
		KeyPrefix:    hex.EncodeToString(key[:prefixBytes]),
		KeySignature: hex.EncodeToString(mac(a.keyKey, key)),
		Nonce:        hex.EncodeToString(nonce),
		Salt:         hex.EncodeToString(salt),
	}
	signed, err := json.Marshal(p)
	if err != nil {
		return Challenge{}, err
	}
	return Challenge{p, hex.EncodeToString(a.signer.sign(signed, network))}, nil
}

// Verify implements Verifier. The payload is the JSON {"challenge", "solution"}
// in base64, as the widget makes it. A network whose key has changed since it was
// given the challenge gets ErrStolen, and may be tried again with its former key.
func (a *Altcha) Verify(_ context.Context, network, _, payload string) (Solution, error) {
	p, err := parsePayload(payload)
	if err != nil {
		return Solution{}, err
	}
	signed, err := json.Marshal(p.parameters)
	if err != nil {
		return Solution{}, err
	}
	ours, here := a.signer.check(signed, p.signature, network)
	expires := time.Unix(p.parameters.ExpiresAt, 0)
	switch {
	case !ours:
		return Solution{}, ErrForged
	case a.now().After(expires.Add(clockSkew)):
		return Solution{}, ErrExpired
	case !here:
		return Solution{}, ErrStolen
	case !hmac.Equal([]byte(hex.EncodeToString(mac(a.keyKey, p.derivedKey))), []byte(p.parameters.KeySignature)):
		return Solution{}, ErrUnsolved
	}
	return Solution{
		ID: p.parameters.Nonce,
		// A process whose clock is behind by clockSkew accepts it for that long
		// after one whose clock is right.
		Expires: expires.Add(2 * clockSkew),
	}, nil
}
