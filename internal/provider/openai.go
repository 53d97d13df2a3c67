package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Bounds on what a provider may send, in decoded bytes.
const (
	maxJSON     = 8 << 20  // a buffered answer
	maxStream   = 64 << 20 // a whole stream
	maxEvent    = 1 << 20  // one line or one event of a stream
	maxLeftover = 64 << 10 // an error body, or what follows [DONE]
)

// briefly is how long the rest of a body is waited for when all that matters is
// known. It is read at all because only a finished connection is used again.
const briefly = 500 * time.Millisecond

// OpenAIConfig says where an OpenAI-compatible provider is.
type OpenAIConfig struct {
	BaseURL string // without /chat/completions, such as https://api.openai.com/v1
	APIKey  string // sent as a bearer token; "" sends no Authorization header
	// HTTPClient is copied and never follows redirects. Nil means one that is
	// made for this provider: HTTP/1.1, so that no layer below ever sends a
	// request again, and no time limit but the context's once connected.
	HTTPClient *http.Client
}

// OpenAI calls a server that speaks OpenAI's chat completions. It is safe for
// concurrent use.
type OpenAI struct {
	endpoint string
	apiKey   string
	client   http.Client
}

// NewOpenAI checks cfg. Its errors do not quote the key or the URL, which may
// hold a secret where it should not.
func NewOpenAI(cfg OpenAIConfig) (*OpenAI, error) {
	u, err := url.Parse(cfg.BaseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("base URL is not an absolute http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, errors.New("base URL has a user, a query or a fragment")
	}
	for _, c := range []byte(cfg.APIKey) {
		if c <= ' ' || c > '~' {
			return nil, errors.New("API key has a character that is not printable ASCII")
		}
	}
	client := cfg.HTTPClient
	if client == nil {
		client = newHTTPClient()
	}
	o := &OpenAI{
		endpoint: u.JoinPath("chat/completions").String(),
		apiKey:   cfg.APIKey,
		client:   *client,
	}
	// A redirect may send the request, and with it the bill, a second time.
	o.client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	return o, nil
}

func newHTTPClient() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        30 * time.Second, // less than servers', so that few calls meet a dead one
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // it would hold tokens back
		Protocols:              protocols,
	}}
}

// Call sends one request; ctx bounds the whole answer, to its last part. A call
// that never got a connection is Unreachable, whatever ended it: nothing was
// billed. In every other case that leaves doubt the request counts as sent.
func (o *OpenAI) Call(ctx context.Context, req Request) (Answer, error) {
	body, err := encodeOpenAI(req)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, &Error{Failure: Unreachable, Err: err}
	}

	var dialling atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { dialling.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { dialling.Store(false) },
	}
	callCtx, cancel := context.WithCancel(httptrace.WithClientTrace(ctx, trace))
	httpReq, err := http.NewRequestWithContext(callCtx, http.MethodPost, o.endpoint, bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, &Error{Failure: Unreachable, Err: errors.New("cannot make the request")}
	}
	httpReq.Header.Set("Content-Type", "application/json")
	httpReq.Header.Set("User-Agent", "tokenfuse")
	if req.Stream {
		httpReq.Header.Set("Accept", "text/event-stream")
	} else {
		httpReq.Header.Set("Accept", "application/json")
	}
	if o.apiKey != "" {
		httpReq.Header.Set("Authorization", "Bearer "+o.apiKey)
	}

	resp, err := o.client.Do(httpReq)
	if err != nil {
		cancel()
		if dialling.Load() {
			return nil, &Error{Failure: Unreachable, Err: err}
		}
		return nil, failed(ctx, 0, err)
	}
	answer, err := open(ctx, callCtx, cancel, resp, req.Stream)
	if err != nil {
		cancel()
		resp.Body.Close()
		return nil, err
	}
	return answer, nil
}

// open checks the head of resp and chooses the reader of its body. ctx is the
// caller's; callCtx and cancel are those of the request.
func open(ctx, callCtx context.Context, cancel context.CancelFunc, resp *http.Response, stream bool) (Answer, error) {
	status := resp.StatusCode
	if status >= 300 {
		e := &Error{Failure: Refused, Status: status}
		if code := errorCode(readBriefly(resp.Body, cancel)); code != "" {
			e.Err = wireError("code " + code)
		}
		return nil, e
	}
	if status != http.StatusOK {
		return nil, failed(ctx, status, errStatus)
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case mediaType == "text/event-stream" && stream:
		return newStream(ctx, callCtx, cancel, resp), nil
	case mediaType == "application/json":
		// Some servers answer so although a stream was asked for.
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxJSON+1))
		if err == nil && len(body) > maxJSON {
			err = errTooLarge
		}
		if err != nil {
			return nil, failed(ctx, status, err)
		}
		part, err := parseWhole(body)
		if err != nil {
			return nil, failed(ctx, status, err)
		}
		cancel()
		resp.Body.Close()
		return &whole{part: part}, nil
	}
	return nil, failed(ctx, status, errContentType)
}

// readBriefly reads what is left of body, within maxLeftover and briefly.
func readBriefly(body io.Reader, cancel context.CancelFunc) []byte {
	timer := time.AfterFunc(briefly, cancel)
	defer timer.Stop()
	b, _ := io.ReadAll(io.LimitReader(body, maxLeftover))
	return b
}

// openAIRequest is the body of a request, complete: what is not here is never
// sent.
type openAIRequest struct {
	Model               string               `json:"model"`
	Messages            []openAIMessage      `json:"messages"`
	MaxTokens           int                  `json:"max_tokens,omitempty"`
	MaxCompletionTokens int                  `json:"max_completion_tokens,omitempty"`
	Stream              bool                 `json:"stream,omitempty"`
	StreamOptions       *openAIStreamOptions `json:"stream_options,omitempty"`
	Temperature         *float64             `json:"temperature,omitempty"`
	TopP                *float64             `json:"top_p,omitempty"`
	PresencePenalty     *float64             `json:"presence_penalty,omitempty"`
	FrequencyPenalty    *float64             `json:"frequency_penalty,omitempty"`
	Seed                *int64               `json:"seed,omitempty"`
	Stop                []string             `json:"stop,omitempty"`
	ResponseFormat      json.RawMessage      `json:"response_format,omitempty"`
}

type openAIMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type openAIStreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

func encodeOpenAI(req Request) ([]byte, error) {
	if req.Model == "" || len(req.Messages) == 0 || req.MaxOutputTokens < 1 {
		return nil, errors.New("request without model, messages or output cap")
	}
	out := openAIRequest{
		Model:            req.Model,
		Stream:           req.Stream,
		Temperature:      req.Temperature,
		TopP:             req.TopP,
		PresencePenalty:  req.PresencePenalty,
		FrequencyPenalty: req.FrequencyPenalty,
		Seed:             req.Seed,
		Stop:             req.Stop,
		ResponseFormat:   req.ResponseFormat,
	}
	for _, m := range req.Messages {
		out.Messages = append(out.Messages, openAIMessage(m))
	}
	// A server ignores the field that it does not know, and with it the cap: so
	// there is no default.
	switch req.MaxTokensField {
	case "max_tokens":
		out.MaxTokens = req.MaxOutputTokens
	case "max_completion_tokens":
		out.MaxCompletionTokens = req.MaxOutputTokens
	default:
		return nil, errors.New("request with an unknown field for the output cap")
	}
	if req.Stream {
		out.StreamOptions = &openAIStreamOptions{IncludeUsage: true}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, errors.New("request cannot be encoded as JSON")
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// wireError is a failure in our own words, so it is safe to show.
type wireError string

func (e wireError) Error() string { return string(e) }

const (
	errStatus      = wireError("unexpected status")
	errContentType = wireError("unexpected content type")
	errMalformed   = wireError("malformed answer")
	errTooLarge    = wireError("answer too large")
	errUnfinished  = wireError("answer ended early")
	errConnection  = wireError("connection failed")
)

// failed is the *Error of a request that may have been billed.
func failed(ctx context.Context, status int, err error) *Error {
	e := &Error{Failure: Broken, Status: status}
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Failure, e.Err = Timeout, ctx.Err()
	case ctx.Err() != nil:
		e.Failure, e.Err = Cancelled, ctx.Err()
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Failure, e.Err = Timeout, errConnection
	default:
		e.Err = safe(err)
	}
	return e
}

// safe drops errors whose text may quote the answer, as net/http's own do when
// they meet a malformed head.
func safe(err error) error {
	var wire wireError
	var op *net.OpError
	switch {
	case errors.As(err, &wire):
		return wire
	case errors.As(err, &op):
		return op
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errUnfinished
	}
	return errConnection
}

// errorCode finds the code, or else the type, in OpenAI's error envelope. Only a
// plain word is believed to be one; messages are never read, since they may
// quote the prompt.
func errorCode(body []byte) string {
	var envelope struct {
		Error struct{ Code, Type json.RawMessage }
	}
	if json.Unmarshal(body, &envelope) != nil {
		return ""
	}
	for _, raw := range []json.RawMessage{envelope.Error.Code, envelope.Error.Type} {
		word := strings.Trim(string(raw), `"`)
		if word != "null" && isWord(word, 64, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-") {
			return word
		}
	}
	return ""
}

func isWord(s string, longest int, alphabet string) bool {
	return s != "" && len(s) <= longest && strings.Trim(s, alphabet) == ""
}
