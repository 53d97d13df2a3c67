package issuer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
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
		d, err = time.ParseDuration(text)
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
		answer(w, http.StatusOK, map[string]any{"token": token, "expires_at": expires.Unix()})
	})
}

// refuse says what is wrong with the body, and with which field if that is
// known.
func refuse(w http.ResponseWriter, err error) {
	field, code, message := "", "invalid_value", err.Error()
	var wrongField *fieldError
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongField):
		field = wrongField.field
	case errors.As(err, &wrongType) && wrongType.Field != "":
		field = wrongType.Field
		message = fmt.Sprintf("%s must be a %s", field, wrongType.Type)
	case strings.HasPrefix(message, "json: unknown field "): // the decoder has no type for it
		field = strings.Trim(strings.TrimPrefix(message, "json: unknown field "), `"`)
		code, message = "unsupported_parameter", field+" is not supported"
	default:
		code, message = "invalid_json", "the body must be a JSON object"
	}
	var param any
	if field != "" {
		param = field
	}
	answerError(w, http.StatusBadRequest, message, param, code)
}

func refuseMethod(w http.ResponseWriter, allowed string) {
	w.Header().Set("Allow", allowed)
	answerError(w, http.StatusMethodNotAllowed, "this route takes "+allowed+" only", nil, "method_not_allowed")
}

// answerError answers in the envelope of the API.
func answerError(w http.ResponseWriter, status int, message string, param any, code string) {
	answer(w, status, map[string]any{"error": map[string]any{
		"message": message, "type": "invalid_request_error", "param": param, "code": code,
	}})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
