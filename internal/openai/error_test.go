package openai

import (
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What the contract says of each code: status, type, and whether a client should try
// again by itself.
func TestErrors(t *testing.T) {
	t.Parallel()
	tested := map[Code]bool{}
	tokens, requests := &Denied{Limit: "l", Unit: "tokens"}, &Denied{Limit: "l", Unit: "requests"}
	for _, tt := range []struct {
		err    Error
		status int
		kind   string
		retry  string
		wait   string
	}{
		{Error{Code: InvalidJSON}, 400, "invalid_request_error", "false", ""},
		{Error{Code: UnsupportedParameter}, 400, "invalid_request_error", "false", ""},
		{Error{Code: InvalidValue}, 400, "invalid_request_error", "false", ""},
		{Error{Code: InputTooLong}, 400, "invalid_request_error", "false", ""},
		{Error{Code: ContentFilter}, 400, "invalid_request_error", "false", ""},
		{Error{Code: ContextLengthExceeded}, 400, "invalid_request_error", "false", ""},
		{Error{Code: InvalidPrompt}, 400, "invalid_request_error", "false", ""},
		{Error{Code: StringAboveMaxLength}, 400, "invalid_request_error", "false", ""},
		{Error{Code: UnsupportedValue}, 400, "invalid_request_error", "false", ""},
		{Error{Code: InvalidToken}, 401, "invalid_request_error", "false", ""},
		{Error{Code: TokenExpired}, 401, "invalid_request_error", "false", ""},
		{Error{Code: ChallengeRequired}, 403, "invalid_request_error", "false", ""},
		{Error{Code: ChallengeFailed}, 403, "invalid_request_error", "false", ""},
		{Error{Code: IdentityBlocked, BlockedUntil: time.Unix(1, 0)}, 403, "invalid_request_error", "false", ""},
		{Error{Code: FeatureNotAllowed}, 403, "invalid_request_error", "false", ""},
		{Error{Code: OriginNotAllowed}, 403, "invalid_request_error", "false", ""},
		{Error{Code: AdminNotAllowed}, 403, "invalid_request_error", "false", ""},
		{Error{Code: ModelNotFound}, 404, "invalid_request_error", "false", ""},
		{Error{Code: IdentityNotFound}, 404, "invalid_request_error", "false", ""},
		{Error{Code: NotFound}, 404, "invalid_request_error", "false", ""},
		{Error{Code: MethodNotAllowed}, 405, "invalid_request_error", "false", ""},
		{Error{Code: AmbiguousEmail}, 409, "invalid_request_error", "false", ""},
		{Error{Code: TooManyBlocks}, 409, "invalid_request_error", "false", ""},
		{Error{Code: BodyTooLarge}, 413, "invalid_request_error", "false", ""},
		{Error{Code: UnsupportedMediaType}, 415, "invalid_request_error", "false", ""},
		{Error{Code: RateLimitExceeded, RetryAfter: 1}, 429, "requests", "true", "1"},
		{Error{Code: RateLimitExceeded, RetryAfter: 10 * time.Second, Denied: requests}, 429, "requests", "true", "10"},
		{Error{Code: RateLimitExceeded, RetryAfter: 10*time.Second + 1, Denied: tokens}, 429, "tokens", "false", "11"},
		{Error{Code: RateLimitExceeded, Denied: tokens}, 429, "tokens", "true", "0"}, // a call that never fits
		{Error{Code: InsufficientQuota, RetryAfter: time.Second, Denied: requests}, 429, "insufficient_quota", "false", "1"},
		{Error{Code: CallerLeft}, 499, "invalid_request_error", "false", ""},
		{Error{Code: InternalError}, 500, "server_error", "false", ""},
		{Error{Code: ProviderError}, 502, "server_error", "false", ""},
		{Error{Code: SpendCeilingReached, RetryAfter: time.Minute}, 503, "server_error", "false", "60"},
		{Error{Code: FuseOpen, RetryAfter: math.MaxInt64}, 503, "server_error", "false", "9223372037"},
		{*Unavailable(ChallengeUnavailable, ""), 503, "server_error", "true", "1"},
		{*Unavailable(StoreUnavailable, ""), 503, "server_error", "true", "1"},
		{*Unavailable(KeysUnavailable, ""), 503, "server_error", "true", "1"},
		{Error{Code: SecretUnavailable}, 503, "server_error", "false", ""},
		{Error{Code: ProviderTimeout}, 504, "server_error", "false", ""},
	} {
		tested[tt.err.Code] = true
		w := httptest.NewRecorder()
		tt.err.Write(w)
		if h := w.Header(); w.Code != tt.status || tt.err.kind() != tt.kind || h.Get("X-Should-Retry") != tt.retry || h.Get("Retry-After") != tt.wait ||
			h.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s %v", tt.err.Code, w.Code, tt.err.kind(), h)
		}
	}
	for code := range codes {
		check.That(t, tested[code], "%s is not in this table", code)
	}
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	affordable := int64(7)
	for want, err := range map[string]*Error{
		`{"error":{"message":"n is 20.","type":"invalid_request_error","param":"n","code":"unsupported_parameter"}}`: Errorf(UnsupportedParameter, "n", "n is %d.", 20),
		`{"error":{"message":"Later.","type":"tokens","param":null,"code":"rate_limit_exceeded","limit":"tokens","unit":"tokens",` +
			`"requested":9,"remaining":8,"affordable_max_tokens":7,"retry_after_seconds":2}}`: {Code: RateLimitExceeded, Message: "Later.",
			RetryAfter: 1001 * time.Millisecond, Denied: &Denied{Limit: "tokens", Unit: "tokens", Requested: 9, Remaining: 8, Affordable: &affordable}},
		`{"error":{"message":"Later.","type":"requests","param":null,"code":"rate_limit_exceeded","limit":"cv","unit":"requests",` +
			`"requested":1,"remaining":0,"affordable_max_tokens":null,"retry_after_seconds":1}}`: {Code: RateLimitExceeded, Message: "Later.",
			RetryAfter: time.Second, Denied: &Denied{Limit: "cv", Unit: "requests", Requested: 1}},
		`{"error":{"message":"No.","type":"server_error","param":null,"code":"provider_error","upstream_status":500}}`:                           {Code: ProviderError, Message: "No.", Upstream: 500},
		`{"error":{"message":"No.","type":"invalid_request_error","param":null,"code":"challenge_required","challenge_url":"https://a.test/c"}}`: {Code: ChallengeRequired, Message: "No.", ChallengeURL: "https://a.test/c"},
	} {
		check.Equal(t, string(err.Envelope()), want, "string(err.Envelope())")
		w := httptest.NewRecorder()
		if err.Write(w); w.Body.String() != want || w.Code == http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}
