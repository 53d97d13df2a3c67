package openai

import "net/http"

// Code names what went wrong, for programs.
type Code string

// The codes of all functions.
const (
	InvalidJSON          Code = "invalid_json"
	UnsupportedParameter Code = "unsupported_parameter"
	InvalidValue         Code = "invalid_value"
	InputTooLong         Code = "input_too_long"

	// What a provider finds wrong with a request; unsupported_parameter and invalid_value
	// may be, too.
	ContentFilter         Code = "content_filter"
	ContextLengthExceeded Code = "context_length_exceeded"
	InvalidPrompt         Code = "invalid_prompt"
	StringAboveMaxLength  Code = "string_above_max_length"
	UnsupportedValue      Code = "unsupported_value"

	InvalidToken         Code = "invalid_token"
	TokenExpired         Code = "token_expired"
	ChallengeRequired    Code = "challenge_required"
	ChallengeFailed      Code = "challenge_failed"
	IdentityBlocked      Code = "identity_blocked"
	FeatureNotAllowed    Code = "feature_not_allowed"
	OriginNotAllowed     Code = "origin_not_allowed"
	AdminNotAllowed      Code = "admin_not_allowed"
	ModelNotFound        Code = "model_not_found"
	IdentityNotFound     Code = "identity_not_found"
	NotFound             Code = "not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	AmbiguousEmail       Code = "ambiguous_email"
	TooManyBlocks        Code = "too_many_blocks"
	BodyTooLarge         Code = "body_too_large"
	UnsupportedMediaType Code = "unsupported_media_type"
	RateLimitExceeded    Code = "rate_limit_exceeded"
	InsufficientQuota    Code = "insufficient_quota"
	CallerLeft           Code = "caller_left"
	InternalError        Code = "internal_error"
	ProviderError        Code = "provider_error"
	SpendCeilingReached  Code = "spend_ceiling_reached"
	FuseOpen             Code = "fuse_open"
	ChallengeUnavailable Code = "challenge_unavailable"
	StoreUnavailable     Code = "store_unavailable"
	KeysUnavailable      Code = "keys_unavailable"
	SecretUnavailable    Code = "secret_unavailable"
	ProviderTimeout      Code = "provider_timeout"
)

// codes maps each code to its HTTP status and to whether a client should try the same
// again by itself. It is the only place that does.
var codes = map[Code]struct {
	status int
	retry  bool
}{
	InvalidJSON:           {http.StatusBadRequest, false},
	UnsupportedParameter:  {http.StatusBadRequest, false},
	InvalidValue:          {http.StatusBadRequest, false},
	InputTooLong:          {http.StatusBadRequest, false},
	ContentFilter:         {http.StatusBadRequest, false},
	ContextLengthExceeded: {http.StatusBadRequest, false},
	InvalidPrompt:         {http.StatusBadRequest, false},
	StringAboveMaxLength:  {http.StatusBadRequest, false},
	UnsupportedValue:      {http.StatusBadRequest, false},
	InvalidToken:          {http.StatusUnauthorized, false},
	TokenExpired:          {http.StatusUnauthorized, false},
	ChallengeRequired:     {http.StatusForbidden, false},
	ChallengeFailed:       {http.StatusForbidden, false},
	IdentityBlocked:       {http.StatusForbidden, false},
	FeatureNotAllowed:     {http.StatusForbidden, false},
	OriginNotAllowed:      {http.StatusForbidden, false},
	AdminNotAllowed:       {http.StatusForbidden, false},
	ModelNotFound:         {http.StatusNotFound, false},
	IdentityNotFound:      {http.StatusNotFound, false},
	NotFound:              {http.StatusNotFound, false},
	MethodNotAllowed:      {http.StatusMethodNotAllowed, false},
	AmbiguousEmail:        {http.StatusConflict, false},
	TooManyBlocks:         {http.StatusConflict, false},
	BodyTooLarge:          {http.StatusRequestEntityTooLarge, false},
	UnsupportedMediaType:  {http.StatusUnsupportedMediaType, false},
	RateLimitExceeded:     {http.StatusTooManyRequests, true}, // if the wait is short
	InsufficientQuota:     {http.StatusTooManyRequests, false},
	CallerLeft:            {499, false}, // nginx's "client closed request"; hardly ever seen by a client
	InternalError:         {http.StatusInternalServerError, false},
	ProviderError:         {http.StatusBadGateway, false},
	SpendCeilingReached:   {http.StatusServiceUnavailable, false},
	FuseOpen:              {http.StatusServiceUnavailable, false},
	ChallengeUnavailable:  {http.StatusServiceUnavailable, true},
	StoreUnavailable:      {http.StatusServiceUnavailable, true},
	KeysUnavailable:       {http.StatusServiceUnavailable, true},
	SecretUnavailable:     {http.StatusServiceUnavailable, false}, // it was tried again already, for seconds
	ProviderTimeout:       {http.StatusGatewayTimeout, false},
}

// Status is the HTTP status of an answer with this code.
func (c Code) Status() int { return codes[c].status }
