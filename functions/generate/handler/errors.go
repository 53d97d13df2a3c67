package handler

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// apiError is a refusal or failure as the caller sees it: OpenAI's envelope, so
// that official clients make their own error classes of it.
type apiError struct {
	code    code
	message string // for a person
	param   string // the request field at fault; "" is null
	// retryAfter is when to come back; below 0: there is no saying.
	retryAfter time.Duration
	limit      *limitError // of a 429
	// challengeURL is where the challenge is, of a 403 that asks for one.
	challengeURL string
	upstream     int // the provider's status, of a 502 or 504
}

// limitError tells a caller what denied and what would fit.
type limitError struct {
	Limit      string `json:"limit"`
	Unit       string `json:"unit"`
	RetryAfter int64  `json:"retry_after_seconds"`
	Requested  int64  `json:"requested"`
	Remaining  int64  `json:"remaining"`
	Affordable *int64 `json:"affordable_max_tokens"` // nil when lowering it cannot help
}

type code string

const (
	invalidJSON          code = "invalid_json"
	unsupportedParameter code = "unsupported_parameter"
	invalidValue         code = "invalid_value"
	inputTooLong         code = "input_too_long"
	invalidToken         code = "invalid_token"
	tokenExpired         code = "token_expired"
	challengeRequired    code = "challenge_required"
	challengeFailed      code = "challenge_failed"
	featureNotAllowed    code = "feature_not_allowed"
	originNotAllowed     code = "origin_not_allowed"
	modelNotFound        code = "model_not_found"
	notFound             code = "not_found"
	methodNotAllowed     code = "method_not_allowed"
	bodyTooLarge         code = "body_too_large"
	unsupportedMediaType code = "unsupported_media_type"
	rateLimitExceeded    code = "rate_limit_exceeded"
	insufficientQuota    code = "insufficient_quota"
	spendCeilingReached  code = "spend_ceiling_reached"
	fuseOpen             code = "fuse_open"
	challengeUnavailable code = "challenge_unavailable"
	storeUnavailable     code = "store_unavailable"
	keysUnavailable      code = "keys_unavailable"
	providerError        code = "provider_error"
	providerTimeout      code = "provider_timeout"
	callerLeft           code = "caller_left"
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
	inputTooLong:         {http.StatusBadRequest, false},
	invalidToken:         {http.StatusUnauthorized, false},
	tokenExpired:         {http.StatusUnauthorized, false},
	challengeRequired:    {http.StatusForbidden, false},
	challengeFailed:      {http.StatusForbidden, false},
	featureNotAllowed:    {http.StatusForbidden, false},
	originNotAllowed:     {http.StatusForbidden, false},
	modelNotFound:        {http.StatusNotFound, false},
	notFound:             {http.StatusNotFound, false},
	methodNotAllowed:     {http.StatusMethodNotAllowed, false},
	bodyTooLarge:         {http.StatusRequestEntityTooLarge, false},
	unsupportedMediaType: {http.StatusUnsupportedMediaType, false},
	rateLimitExceeded:    {http.StatusTooManyRequests, true}, // if the wait is short
	insufficientQuota:    {http.StatusTooManyRequests, false},
	spendCeilingReached:  {http.StatusServiceUnavailable, false},
	fuseOpen:             {http.StatusServiceUnavailable, false},
	challengeUnavailable: {http.StatusServiceUnavailable, true},
	storeUnavailable:     {http.StatusServiceUnavailable, true},
	keysUnavailable:      {http.StatusServiceUnavailable, true},
	providerError:        {http.StatusBadGateway, false},
	providerTimeout:      {http.StatusGatewayTimeout, false},
	callerLeft:           {499, false}, // nginx's "client closed request"; hardly ever seen by a client
	internalFailure:      {http.StatusInternalServerError, false},
}

// longestRetry is the longest wait for which clients are told to retry by
// themselves; beyond it a person should decide.
const longestRetry = 10 * time.Second

func refuse(c code, param, format string, args ...any) *apiError {
	return &apiError{code: c, param: param, message: fmt.Sprintf(format, args...), retryAfter: -1}
}

// unavailable is a failure of a part that we need, worth another try in a second.
func unavailable(c code, message string) *apiError {
	return &apiError{code: c, message: message, retryAfter: time.Second}
}

func (e *apiError) status() int { return kinds[e.code].status }

func (e *apiError) shouldRetry() bool {
	if e.code == rateLimitExceeded {
		return e.retryAfter <= longestRetry
	}
	return kinds[e.code].retry
}

// errorType is the type by which OpenAI's clients tell errors apart.
func (e *apiError) errorType() string {
	switch status := e.status(); {
	case e.code == insufficientQuota:
		return "insufficient_quota"
	case e.code == rateLimitExceeded && e.limit.Unit == "tokens":
		return "tokens"
	case e.code == rateLimitExceeded:
		return "requests"
	case status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

// envelope is the body of an error.
func (e *apiError) envelope() []byte {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    code    `json:"code"`
		*limitError
		Wait     *int64 `json:"retry_after_seconds,omitempty"`
		Upstream *int   `json:"upstream_status,omitempty"`
		URL      string `json:"challenge_url,omitempty"`
	}
	b := body{Message: e.message, Type: e.errorType(), Code: e.code, limitError: e.limit, URL: e.challengeURL}
	if e.param != "" {
		b.Param = &e.param
	}
	if e.retryAfter >= 0 {
		s := ceilSeconds(e.retryAfter)
		b.Wait = &s
	}
	if e.upstream != 0 {
		b.Upstream = &e.upstream
	}
	return encode(map[string]body{"error": b})
}

// write answers with e.
func (e *apiError) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", strconv.FormatBool(e.shouldRetry()))
	if e.retryAfter >= 0 {
		h.Set("Retry-After", strconv.FormatInt(ceilSeconds(e.retryAfter), 10))
	}
	w.WriteHeader(e.status())
	_, _ = w.Write(e.envelope()) // a client that has gone needs no answer
}

// ceilSeconds rounds up. d may be the longest Duration that there is.
func ceilSeconds(d time.Duration) int64 {
	whole := d / time.Second
	if d%time.Second > 0 {
		whole++
	}
	return int64(whole)
}

// inWords gives a wait as a person says it, rounded up.
func inWords(d time.Duration) string {
	s := ceilSeconds(d)
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		// 90 minutes say more than 2 hours.
		if s >= 2*unit.seconds || s == unit.seconds {
			n := int64(math.Ceil(float64(s) / float64(unit.seconds)))
			if n == 1 {
				return "1 " + unit.name
			}
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return "a moment"
}

// encode makes JSON of our own types, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
