// Package auth turns a bearer token into a user.
//
// Guarantees: a User comes only from a JWT that the configured issuer signed
// for the configured audience with an asymmetric algorithm, by the key that it names,
// or by the only one that fits, and whose times hold. A token in which a name stands
// twice, or a registered claim has another type than expected, is refused rather than
// interpreted. A token costs at most one signature check, two if it names no key, and
// waits at most for one bounded fetch of the issuer's keys; the number of fetches is
// bounded whatever the tokens say. A token whose signature was found good is remembered
// for some minutes at most, and no longer than the keys that it was checked with; its times
// are checked on each use. Errors never contain a token or anything that a token
// said: a refusal has a Reason of a closed set.
//
// Trusted: the issuer, the key set at its URL (fetched over TLS, except from
// loopback), and the clock. Nothing in a token is trusted before its signature.
// Keys once fetched are kept while the issuer cannot be reached, so a key that
// the issuer withdraws is honoured until the next fetch that succeeds.
package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var (
	// ErrExpired: the token was good, but its time is over.
	ErrExpired = errors.New("auth: the token has expired")
	// ErrInvalid: the token, or the Authorization header, is not valid.
	ErrInvalid = errors.New("auth: the token is invalid")
	// ErrUnavailable: the issuer's keys could not be fetched, so that nothing
	// can be said about the token. Trying again later may help.
	ErrUnavailable = errors.New("auth: the issuer's keys are unavailable")
)

// maxTokenBytes bounds what is parsed at all; API Gateway allows about 10 KB
// for all headers together.
const maxTokenBytes = 8 << 10

// leeway is how far nbf and iat may lie in the future, for an issuer whose
// clock is ahead of ours. exp has none: a token's last second is the issuer's
// decision.
const leeway = 30 * time.Second

// algorithms are those accepted: signatures with a public key only. With HMAC
// among them, the issuer's public key would do as the secret.
var algorithms = []string{
	"RS256", "RS384", "RS512", "PS256", "PS384", "PS512",
	"ES256", "ES384", "ES512", "EdDSA",
}

// Config says whose tokens are accepted.
type Config struct {
	Issuer   string // the exact iss claim
	Audience string // must be among the aud claim; see Verifier.Verify
	JWKSURL  string // https, or http on loopback
	// PlanClaim is the claim that names the user's plans; empty if none does. It is a
	// claim's whole name or, if there is none such, a path to one within others, with dots
	// between the names, which may have dots themselves.
	PlanClaim string
	// AssumeEmailVerified takes the address of a token that says nothing of whether it is
	// verified. One that is said not to be is never taken.
	AssumeEmailVerified bool
	// Backends are the servers that the issuer gives tokens, too.
	Backends []Backend
	// HTTPClient fetches the keys, without following redirects and within 3 s
	// whatever it allows itself. Nil means a client with default transport.
	HTTPClient *http.Client
	Now        func() time.Time // called concurrently; nil means time.Now
}

// Backend is a server whose tokens have a claim that is one of the values, or a list with
// one of them. Claim is a path as PlanClaim is. An owner names a claim that no user can set.
type Backend struct {
	Name, Claim string
	Values      []string
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	parser *jwt.Parser
	keys   *keySet
	memory memory
}

// New checks cfg. It makes no call: the keys are fetched for the first token.
// Fetches end with ctx, which must live as long as the Verifier is used.
func New(ctx context.Context, cfg Config) (*Verifier, error) {
	if cfg.Issuer == "" {
		return nil, errors.New("auth: an issuer is required")
	}
	if cfg.Audience == "" {
		return nil, errors.New("auth: an audience is required")
	}
	if err := checkKeysURL(cfg.JWKSURL); err != nil {
		return nil, err
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{
		cfg: cfg,
		// claims.user checks the claims: the library has one leeway for all
		// times, and cannot accept client_id for a missing aud.
		parser: jwt.NewParser(jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()),
		keys:   newKeySet(ctx, cfg),
		memory: newMemory(),
	}, nil
}

// Warm fetches the issuer's keys, so that the first token need not wait for them. If that
// fails, or ctx ends first, the first token does.
func (v *Verifier) Warm(ctx context.Context) { _, _ = v.keys.later(ctx, 0) }

// checkKeysURL refuses a URL from which keys could be swapped on their way.
func checkKeysURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return errors.New("auth: the key set's address must be an absolute URL")
	}
	if u.User != nil {
		return errors.New("auth: the key set's URL must not contain credentials")
	}
	if u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()) {
		return nil
	}
	return errors.New("auth: the key set's URL must be https (http only on loopback)")
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// User is whom a token speaks for.
type User struct {
	Subject string   // satisfies keys.ValidSubject
	Plans   []string // the strings of the plan claim, be it one or a list
	Email   string   // "" unless the issuer verified the address
	// EmailUnsaid: there is an address, and nothing is said of whether it is verified.
	EmailUnsaid bool
	// Backend of Config.Backends, whose token it is; "": a user's.
	Backend string
}

// Verify checks a token and says whose it is. The error is a *RefusedError, which is one
// of ErrInvalid and ErrExpired (in all else the token is good), or is ErrUnavailable.
//
// The audience must be among aud. An access token of Amazon Cognito (token_use
// is "access") has no aud: there client_id must equal the audience.
func (v *Verifier) Verify(ctx context.Context, token string) (User, error) {
	if len(token) > maxTokenBytes {
		return User{}, refuse(TooLong)
	}
	if strings.Count(token, ".") != 2 || !jwtCharacters(token) {
		return User{}, noJWT(token)
	}
	hash := tokenHash(sha256.Sum256([]byte(token)))
	// Whoever is remembered lets the keys be fetched in time, too.
	if keys, generation := v.keys.cached(); keys != nil {
		if user, ok := v.memory.of(hash, generation, v.cfg.Now()); ok {
			return user, nil
		}
	}
	var c claims
	var used found
	err := v.parse(token, &c, func(t *jwt.Token) (found, error) {
		var err error
		used, err = v.key(ctx, t)
		return used, err
	})
	if ReasonOf(err) == Signature && used.unnamed {
		// The issuer may have replaced its only key. A token that names its key is not
		// found then, and waits for a fetch.
		err = v.parse(token, &c, func(t *jwt.Token) (found, error) {
			var err error
			used, err = v.keys.replaced(ctx, used, t.Method.Alg())
			return used, err
		})
	}
	if err != nil {
		return User{}, err
	}
	user, err := c.user(v.cfg)
	if err == nil {
		v.memory.put(hash, remembered{user, c.times(), used.of.generation, v.cfg.Now()})
	}
	return user, err
}

// parse reads a token into c, signed with the key that find gives.
func (v *Verifier) parse(token string, c *claims, find func(*jwt.Token) (found, error)) error {
	var asked bool
	var keyErr error
	_, err := v.parser.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		key, err := find(t)
		asked, keyErr = true, err
		return key.key, err
	})
	// The library's own messages quote the token, so none of them is passed on.
	switch {
	case err == nil:
		return nil
	case keyErr != nil:
		return keyErr
	case errors.Is(err, jwt.ErrTokenMalformed):
		return refuse(Malformed)
	case !asked:
		return refuse(Algorithm)
	}
	return refuse(Signature)
}

// key finds the key that t must be signed with. The algorithm is one of ours.
func (v *Verifier) key(ctx context.Context, t *jwt.Token) (found, error) {
	// The library's view of the header hides members that stand twice.
	encoded, _, _ := strings.Cut(t.Raw, ".")
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return found{}, refuse(Malformed)
	}
	header, err := parseObject(raw)
	if err != nil {
		return found{}, refuse(Malformed)
	}
	// crit lists extensions that must be understood; we understand none.
	if _, ok := header["crit"]; ok {
		return found{}, refuse(CriticalHeader)
	}
	if kid, ok := header.text("kid"); !ok {
		return found{}, refuse(Malformed)
	} else if kid == "" {
		return v.keys.only(ctx, t.Method.Alg())
	}
	key, err := v.keys.find(ctx, t)
	if err != nil {
		return found{}, err
	}
	if !fits(key.key, t.Method.Alg()) {
		return found{}, refuse(KeyUnfit)
	}
	return key, nil
}

// fits says whether key is of the kind that RFC 7518 (section 3) and RFC 8037
// demand for the algorithm. The library checks the kind but neither the curve
// nor the size.
func fits(key any, alg string) bool {
	switch key := key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")) && key.N.BitLen() >= 2048
	case *ecdsa.PublicKey:
		return alg == "ES256" && key.Curve == elliptic.P256() ||
			alg == "ES384" && key.Curve == elliptic.P384() ||
			alg == "ES512" && key.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}
