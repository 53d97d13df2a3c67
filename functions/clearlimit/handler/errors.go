package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// apiError is a refusal or failure as the caller sees it, in OpenAI's envelope as
// on all routes.
type apiError struct {
	code       code
	message    string // for a person
	param      string // the field at fault; "" is null
	retryAfter int64  // seconds; 0: there is no saying
}

type code string

const (
	invalidJSON          code = "invalid_json"
	unsupportedParameter code = "unsupported_parameter"
	invalidValue         code = "invalid_value"
	adminNotAllowed      code = "admin_not_allowed"
	notFound             code = "not_found"
	identityNotFound     code = "identity_not_found"
	methodNotAllowed     code = "method_not_allowed"
	ambiguousEmail       code = "ambiguous_email"
	bodyTooLarge         code = "body_too_large"
	unsupportedMediaType code = "unsupported_media_type"
	rateLimitExceeded    code = "rate_limit_exceeded"
	storeUnavailable     code = "store_unavailable"
	secretUnavailable    code = "secret_unavailable"
	internalFailure      code = "internal_error"
)

// kinds maps each outcome to its HTTP status and to whether a client should try
// the same again by itself. It is the only place that does.
var kinds = map[code]struct {
	status int
	retry  bool
}{
	invalidJSON:          {http.StatusBadRequest, false},
	unsupportedParameter: {http.StatusBadRequest, false},
	invalidValue:         {http.StatusBadRequest, false},
	adminNotAllowed:      {http.StatusForbidden, false},
	notFound:             {http.StatusNotFound, false},
	identityNotFound:     {http.StatusNotFound, false},
	methodNotAllowed:     {http.StatusMethodNotAllowed, false},
	ambiguousEmail:       {http.StatusConflict, false},
	bodyTooLarge:         {http.StatusRequestEntityTooLarge, false},
	unsupportedMediaType: {http.StatusUnsupportedMediaType, false},
	rateLimitExceeded:    {http.StatusTooManyRequests, true},
	storeUnavailable:     {http.StatusServiceUnavailable, true},
	secretUnavailable:    {http.StatusServiceUnavailable, false}, // it was tried again already, for seconds
	internalFailure:      {http.StatusInternalServerError, false},
}

func refuse(c code, param, format string, args ...any) *apiError {
	return &apiError{code: c, param: param, message: fmt.Sprintf(format, args...)}
}

// unavailable is a failure of the store, worth another try in a second.
func unavailable(r *request, cause error) *apiError {
	r.log.Error("the store failed", "error", cause)
	return &apiError{code: storeUnavailable, message: "The store cannot be reached at the moment. Try again.", retryAfter: 1}
}

// write answers with e.
func (e *apiError) write(w http.ResponseWriter) {
	kind := kinds[e.code]
	errorType := "invalid_request_error"
	switch {
	case kind.status >= 500:
		errorType = "server_error"
	case e.code == rateLimitExceeded:
		errorType = "requests"
	}
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    code    `json:"code"`
		Wait    int64   `json:"retry_after_seconds,omitempty"`
	}
	b := body{Message: e.message, Type: errorType, Code: e.code, Wait: e.retryAfter}
	if e.param != "" {
		b.Param = &e.param
	}
	w.Header().Set("X-Should-Retry", strconv.FormatBool(kind.retry))
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(e.retryAfter, 10))
	}
	answerJSON(w, kind.status, map[string]body{"error": b})
}

// answerJSON answers with JSON of our own types, which cannot fail.
func answerJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}
