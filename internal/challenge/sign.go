package challenge

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
)

const (
	minSecretBytes = 16
	// tagBytes is half of a SHA-256: as short as RFC 2104 (section 5) advises to
	// cut it.
	tagBytes = sha256.Size / 2
)

// deriveKey makes a key for one purpose of a secret that serves several (HKDF,
// RFC 5869), so that what was signed for one is worth nothing for another.
func deriveKey(secret []byte, purpose string) ([]byte, error) {
	if len(secret) < minSecretBytes {
		return nil, errors.New("challenge: the secret must have at least 16 bytes")
	}
	return hkdf.Key(sha256.New, secret, nil, "tokenfuse "+purpose, sha256.Size)
}

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)
}

// signer signs data for a network. It gives two tags, one of the data alone and
// one of the data and the network, so that what another network was given can be
// told from what we never signed.
type signer struct{ key, networkKey []byte }

func newSigner(secret []byte, purpose string) (signer, error) {
	key, err := deriveKey(secret, purpose)
	if err != nil {
		return signer{}, err
	}
	networkKey, err := deriveKey(secret, purpose+" network")
	return signer{key, networkKey}, err
}

// sign gives 2*tagBytes bytes.
func (s signer) sign(data []byte, network string) []byte {
	own := mac(s.key, data)
	return append(own[:tagBytes:tagBytes], s.networkTag(own, network)...)
}

// networkTag signs the mac of the data, which has a fixed length, instead of the
// data: there is one way to read it.
func (s signer) networkTag(own []byte, network string) []byte {
	return mac(s.networkKey, own, []byte(network))[:tagBytes]
}

// check says whether tags are ours for data, and if so whether for one of the
// networks.
func (s signer) check(data, tags []byte, networks ...string) (ours, here bool) {
	own := mac(s.key, data)
	if len(tags) != 2*tagBytes || !hmac.Equal(tags[:tagBytes], own[:tagBytes]) {
		return false, false
	}
	for _, network := range networks {
		if hmac.Equal(tags[tagBytes:], s.networkTag(own, network)) {
			return true, true
		}
	}
	return true, false
}
