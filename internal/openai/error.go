package openai

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Error is a refusal or failure as the caller sees it: OpenAI's envelope, so that
// official clients make their own error classes of it. It is an answer, not an error
// of Go's: it never holds an internal cause.
type Error struct {
	Code    Code
	Message string // for a person
	Param   string // the request field at fault; "" is null
	// RetryAfter is how long to wait, never below 0. Without Denied, 0 means that there is
	// no saying, and nothing is told.
	RetryAfter time.Duration
	Denied     *Denied // of a limit that denied
	// ChallengeURL is where the challenge is, of a 403 that asks for one.
	ChallengeURL string
	// BlockedUntil is when the block of the caller ends, of a 403 that says so.
	BlockedUntil time.Time
	Reason       string // for the log alone: fixed words on which of several faults it is, never told
	Upstream     int    // the provider's status, of a 502 or 504; 0: it has sent none
}

// Denied tells a caller which limit denied and what would fit.
type Denied struct {
	Limit      string `json:"limit"`
	Unit       string `json:"unit"`
	Requested  int64  `json:"requested"`
	Remaining  int64  `json:"remaining"`
	Affordable *int64 `json:"affordable_max_tokens"` // nil when lowering it cannot help
}

// Errorf makes an error whose message is for a person. param is the request field at
// fault, "" for none.
func Errorf(c Code, param, format string, args ...any) *Error {
	return &Error{Code: c, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Unavailable is a failure of a part that we need, worth another try in a second.
func Unavailable(c Code, message string) *Error {
	return &Error{Code: c, Message: message, RetryAfter: time.Second}
}

// longestRetry is the longest wait for which clients are told to retry by
// themselves; beyond it a person should decide.
const longestRetry = 10 * time.Second

func (e *Error) shouldRetry() bool {
	return codes[e.Code].retry && (e.Code != RateLimitExceeded || e.RetryAfter <= longestRetry)
}

// wait is RetryAfter as it is told, in seconds, or nil.
func (e *Error) wait() *int64 {
	if e.RetryAfter <= 0 && e.Denied == nil {
		return nil
	}
	return new(Seconds(e.RetryAfter))
}

// kind is the type by which OpenAI's clients tell errors apart.
func (e *Error) kind() string {
	switch {
	case e.Code == InsufficientQuota:
		return "insufficient_quota"
	case e.Code == RateLimitExceeded && e.Denied != nil && e.Denied.Unit == "tokens":
		return "tokens"
	case e.Code == RateLimitExceeded:
		return "requests"
	case e.Code.Status() >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// Envelope is the body of an answer, or the data of an event, that is an error.
func (e *Error) Envelope() []byte {
	type body struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    Code    `json:"code"`
		*Denied
		Wait     *int64 `json:"retry_after_seconds,omitempty"`
		Upstream int    `json:"upstream_status,omitempty"`
		URL      string `json:"challenge_url,omitempty"`
		Blocked  *int64 `json:"blocked_until,omitempty"` // Unix seconds
	}
	b := body{Message: e.Message, Type: e.kind(), Code: e.Code, Denied: e.Denied,
		Wait: e.wait(), Upstream: e.Upstream, URL: e.ChallengeURL}
	if !e.BlockedUntil.IsZero() {
		b.Blocked = new(e.BlockedUntil.Unix())
	}
	if e.Param != "" {
		b.Param = &e.Param
	}
	return Encode(map[string]body{"error": b})
}

// SetHeader sets the headers of an answer that is e.
func (e *Error) SetHeader(h http.Header) {
	h.Set("Content-Type", "application/json")
	h.Set("X-Should-Retry", strconv.FormatBool(e.shouldRetry()))
	if wait := e.wait(); wait != nil {
		h.Set("Retry-After", strconv.FormatInt(*wait, 10))
	}
}

// Write answers with e.
func (e *Error) Write(w http.ResponseWriter) {
	e.SetHeader(w.Header())
	w.WriteHeader(e.Code.Status())
	_, _ = w.Write(e.Envelope()) // a client that has gone needs no answer
}

// Seconds rounds up. d may be the longest Duration that there is.
func Seconds(d time.Duration) int64 {
	whole := d / time.Second
	if d%time.Second > 0 {
		whole++
	}
	return int64(whole)
}
