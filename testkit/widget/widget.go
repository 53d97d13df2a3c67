// Package widget solves challenges as ALTCHA's widget in a browser does. It shares no
// code with what makes and checks them.
package widget

import (
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Solve gives the payload of a solved challenge, which is the JSON that GET
// /v1/challenge answers.
func Solve(t testing.TB, challenge []byte) (payload string) {
	t.Helper()
	var c struct {
		Parameters struct {
			Cost, KeyLength        int
			KeyPrefix, Nonce, Salt string
		}
	}
	if err := json.Unmarshal(challenge, &c); err != nil {
		t.Fatalf("challenge: %v: %s", err, challenge)
	}
	nonce, salt := unhex(t, c.Parameters.Nonce), unhex(t, c.Parameters.Salt)
	for counter := uint32(0); ; counter++ {
		password := binary.BigEndian.AppendUint32(nonce[:len(nonce):len(nonce)], counter)
		key, err := pbkdf2.Key(sha256.New, string(password), salt, c.Parameters.Cost, c.Parameters.KeyLength)
		check.OK(t, err)
		derived := hex.EncodeToString(key)
		if !strings.HasPrefix(derived, c.Parameters.KeyPrefix) {
			continue
		}
		solved, err := json.Marshal(map[string]any{"challenge": json.RawMessage(challenge),
			"solution": map[string]any{"counter": counter, "derivedKey": derived, "time": 12.5}})
		check.OK(t, err)
		return base64.StdEncoding.EncodeToString(solved)
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	check.OK(t, err)
	return b
}
