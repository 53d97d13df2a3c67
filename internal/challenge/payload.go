package challenge

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// maxPayloadBytes bounds what is parsed at all; the widget sends under 1 KB.
const maxPayloadBytes = 16 << 10

// solved is a payload that has the right shape. Nothing more is known of it.
type solved struct {
	parameters Parameters
	signature  []byte
	derivedKey []byte
}

// parsePayload reads {"challenge", "solution"} from base64, standard or for URLs,
// padded or not. Unknown names are ignored: nothing is done with them.
func parsePayload(payload string) (solved, error) {
	if payload == "" {
		return solved{}, ErrMissing
	}
	if len(payload) > maxPayloadBytes {
		return solved{}, ErrMalformed
	}
	std := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(payload, "="))
	raw, err := base64.RawStdEncoding.DecodeString(std)
	if err != nil {
		return solved{}, ErrMalformed
	}

	var challenge, solution, parameters json.RawMessage
	if !read(raw, map[string]any{"challenge": &challenge, "solution": &solution}) {
		return solved{}, ErrMalformed
	}
	if string(challenge) == "null" { // the widget in its test mode
		return solved{}, ErrMissing
	}
	var s solved
	var signature, derivedKey string
	var counter uint32 // the key proves the work; the counter only has to be one
	p := &s.parameters
	ok := read(challenge, map[string]any{"parameters": &parameters, "signature": &signature}) &&
		read(parameters, map[string]any{
			"algorithm": &p.Algorithm, "cost": &p.Cost, "expiresAt": &p.ExpiresAt, "keyLength": &p.KeyLength,
			"keyPrefix": &p.KeyPrefix, "keySignature": &p.KeySignature, "nonce": &p.Nonce, "salt": &p.Salt,
		}) &&
		read(solution, map[string]any{"counter": &counter, "derivedKey": &derivedKey})
	if !ok || p.Algorithm != algorithm || p.Cost != cost || p.KeyLength != keyBytes {
		return solved{}, ErrMalformed
	}
	if s.signature, err = hex.DecodeString(signature); err != nil {
		return solved{}, ErrMalformed
	}
	if s.derivedKey, err = hex.DecodeString(derivedKey); err != nil || len(s.derivedKey) != keyBytes {
		return solved{}, ErrMalformed
	}
	return s, nil
}

// read reads the named members of an object. It reports whether each is there and
// of its type. null, which json.Unmarshal takes for anything, is so only for a
// json.RawMessage.
func read(raw []byte, into map[string]any) bool {
	members, err := strictjson.Object(raw)
	if err != nil {
		return false
	}
	found := 0
	for _, m := range members {
		target, ok := into[m.Name]
		if !ok {
			continue
		}
		_, anything := target.(*json.RawMessage)
		if !anything && string(m.Value) == "null" || json.Unmarshal(m.Value, target) != nil {
			return false
		}
		found++
	}
	return found == len(into)
}
