package issuer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/span"
)

const maxBodyBytes = 64 << 10

// JWKS serves the public key, for GET /dev/jwks.json.
func (i *Issuer) JWKS() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			refuseMethod(w, http.MethodGet)
			return
		}
		w.Header().Set("Content-Type", "application/jwk-set+json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(i.jwks)
	})
}

// tokenRequest is the body that Tokens takes.
type tokenRequest struct {
	Sub        string `json:"sub"`
	Email      string `json:"email"`
	Plan       string `json:"plan"`
	TTL        ttl    `json:"ttl"`
	Unverified bool   `json:"unverified"` // the e-mail address is marked as not verified
}

// ttl is a positive duration: as Go writes one, or a number of seconds.
type ttl time.Duration

func (t *ttl) UnmarshalJSON(raw []byte) error {
	var text string
	var seconds float64
	var d time.Duration
	var err error
	switch {
	case json.Unmarshal(raw, &seconds) == nil:
		seconds = min(seconds, 2*maxTTL.Seconds()) // issue refuses it; more would overflow
		d = time.Duration(seconds * float64(time.Second))
	case json.Unmarshal(raw, &text) == nil:
		d, err = span.Parse(text)
	default:
		err = errors.New("neither a number nor a string")
	}
	if err != nil || d <= 0 {
		return &fieldError{"ttl", `must be a positive duration such as "90m", or a number of seconds`}
	}
	*t = ttl(d)
	return nil
}

// Tokens signs tokens, for POST /dev/token. It takes a JSON object with "sub"
// and, if wanted, "email", "plan", "ttl" (a Go duration or seconds) and
// "unverified", and answers {"token":"...","expires_at":unix}. What is wrong is
// answered with 400 and an error that names the field.
func (i *Issuer) Tokens() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			refuseMethod(w, http.MethodPost)
			return
		}
		var req tokenRequest
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&req); err != nil {
			refuse(w, err)
			return
		}
		token, expires, err := i.issue(Claims{
			Subject: req.Sub, Email: req.Email, EmailVerified: !req.Unverified, Plan: req.Plan, TTL: time.Duration(req.TTL),
		})
		if err != nil {
			refuse(w, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		openai.Answer(w, map[string]any{"token": token, "expires_at": expires.Unix()})
	})
}

// refuse says what is wrong with the body, and with which field if that is
// known.
func refuse(w http.ResponseWriter, err error) {
	e := openai.Errorf(openai.InvalidValue, "", "%s", err)
	var wrongField *fieldError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongField):
		e.Param = wrongField.field
	case errors.As(err, &wrongType) && wrongType.Field != "":
		e.Param = wrongType.Field
		e.Message = fmt.Sprintf("%s must be a %s", e.Param, wrongType.Type)
	case strings.HasPrefix(e.Message, "json: unknown field "): // the decoder has no type for it
		e.Param = strings.Trim(strings.TrimPrefix(e.Message, "json: unknown field "), `"`)
		e.Code, e.Message = openai.UnsupportedParameter, e.Param+" is not supported"
	default:
		e.Code, e.Message = openai.InvalidJSON, "the body must be a JSON object"
	}
	answerError(w, e)
}

func refuseMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	answerError(w, openai.Errorf(openai.MethodNotAllowed, "", "this route takes %s only", allowed))
}

func answerError(w http.ResponseWriter, e *openai.Error) {
	w.Header().Set("Cache-Control", "no-store")
	e.Write(w)
}
