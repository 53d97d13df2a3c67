package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	benchIssuer   = "https://issuer.example.com/"
	benchAudience = "bench"
)

// signer is an issuer of tokens with a key for each algorithm. Its RoundTrip
// answers with its key set.
type signer struct {
	ed   ed25519.PrivateKey
	rsa  *rsa.PrivateKey
	jwks []byte
}

func newSigner() (*signer, error) {
	public, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return &signer{ed: ed, rsa: key, jwks: fmt.Appendf(nil,
		`{"keys":[{"kid":"EdDSA","kty":"OKP","crv":"Ed25519","x":%q},{"kid":"RS256","kty":"RSA","n":%q,"e":%q}]}`,
		b64(public), b64(key.N.Bytes()), b64(big.NewInt(int64(key.E)).Bytes()))}, nil
}

func (s *signer) token(method jwt.SigningMethod, key any) (string, error) {
	now := time.Now()
	t := jwt.NewWithClaims(method, jwt.MapClaims{
		"iss": benchIssuer, "aud": benchAudience, "sub": "auth0|5f7c8ec7c33c6c004bbafe82",
		"iat": now.Unix(), "exp": now.Add(24 * time.Hour).Unix(), "email": "a@example.com", "email_verified": true,
	})
	t.Header["kid"] = method.Alg()
	return t.SignedString(key)
}

func (s *signer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(s.jwks)), Request: r}, nil
}
