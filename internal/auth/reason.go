package auth

import "errors"

// Reason is why a token is refused: fixed words, for the log. None says anything of the
// token that whoever made it could have put there.
type Reason string

// The reasons, in the order in which they are found.
const (
	SeveralHeaders Reason = "several Authorization headers"
	NotBearer      Reason = "not a bearer token"
	ProviderKey    Reason = "key of a model provider"
	TooLong        Reason = "too long"
	Opaque         Reason = "opaque"
	Malformed      Reason = "malformed"
	Algorithm      Reason = "algorithm"
	CriticalHeader Reason = "critical header"
	KidMissing     Reason = "kid missing"
	KeyUnknown     Reason = "key unknown"
	KeyUnfit       Reason = "key of another algorithm"
	Signature      Reason = "signature"
	Issuer         Reason = "issuer"
	IssuerSlash    Reason = "issuer, by the slash at its end"
	Audience       Reason = "audience"
	AudienceNone   Reason = "audience missing"
	Subject        Reason = "subject"
	NotYet         Reason = "not yet valid"
	IssuedLater    Reason = "issued in the future"
	ExpiryNone     Reason = "expiry missing"
	Expired        Reason = "expired"
	NotAccepted    Reason = "no tokens accepted" // there is no issuer in the configuration

	// Of requests without a token.

	NoToken       Reason = "token missing"
	SourceUnknown Reason = "source unknown"
	NoBackend     Reason = "backend not proven"
)

// help says what each reason means to whoever sets the sign-in up. It has all of them.
var help = map[Reason]string{
	SeveralHeaders: "The request has more than one Authorization header.",
	NotBearer:      "The Authorization header is not `Bearer` and a token.",
	ProviderKey:    "The client sends its key of a model provider, such as sk-… from OPENAI_API_KEY. Give it a user's token, or the key anonymous. Whoever saw that key may use it: renew it.",
	TooLong:        "The token has more than 8 KiB. Take claims out of it.",
	Opaque:         "The token is not a JWT: it has not three parts with dots between them. Many issuers give opaque access tokens unless an API (an audience) is asked for.",
	Malformed:      "The token is not a JWT as RFC 7519 has it: a part is no JSON, a name stands twice, or a registered claim is of another type.",
	Algorithm:      "The token is signed with a secret (HS256), or not at all. Only public keys are accepted: let the issuer sign with RS256, ES256 or EdDSA.",
	CriticalHeader: "The token's header has `crit`, which asks for an extension that is not known here.",
	KidMissing:     "The token does not name its key (kid), and not exactly one key at jwks_url fits its algorithm.",
	KeyUnknown:     "No key at jwks_url has the token's kid. Is it the key set of the same issuer?",
	KeyUnfit:       "The key of the token's kid is not one for the token's algorithm, or is too weak: RSA needs 2048 bits.",
	Signature:      "The signature is not by the issuer's key.",
	Issuer:         "The iss of the token is not auth.issuer, which is compared to the letter.",
	IssuerSlash:    "The iss of the token is auth.issuer but for a slash at the end. Write auth.issuer as the token has it.",
	Audience:       "The aud of the token has not auth.audience. An ID token has the client's id there, an access token the API's.",
	AudienceNone:   "The token has no aud. Let the issuer add one; of Amazon Cognito's access tokens the client_id is taken.",
	Subject:        "The sub of the token is missing, or cannot name a user: 1 to 128 printable ASCII characters without space and #.",
	NotYet:         "The nbf of the token is more than 30 s ahead.",
	IssuedLater:    "The iat of the token is more than 30 s ahead.",
	ExpiryNone:     "The token has no exp.",
	Expired:        "The exp of the token is over. Let the client get a new one before it calls.",
	NotAccepted:    "The configuration has no auth, or no tier user, so that nobody can sign in.",
	NoToken:        "The configuration has no tier anonymous, so every caller needs a token.",
	SourceUnknown:  "It is not known where the request comes from: CloudFront does not say who asks. The log has an error with the cause.",
	NoBackend:      "Somebody names a visitor, as only a backend may, without its secret or token in Authorization. Is the variable of the secret set where the server runs? See docs/backends.md.",
}

// Help says what the reason means to whoever sets the sign-in up, and what helps.
func (r Reason) Help() string { return help[r] }

// RefusedError is a refusal of a token. It is ErrExpired if its reason is Expired, else
// ErrInvalid.
type RefusedError struct{ Reason Reason }

func (e *RefusedError) Error() string { return "auth: the token is refused: " + string(e.Reason) }

// Is makes a refusal one of the two sentinels.
func (e *RefusedError) Is(target error) bool {
	return target == ErrExpired && e.Reason == Expired || target == ErrInvalid && e.Reason != Expired
}

func refuse(r Reason) error { return &RefusedError{r} }

// ReasonOf is the reason of a refusal, "" of any other error.
func ReasonOf(err error) Reason {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused.Reason
	}
	return ""
}
