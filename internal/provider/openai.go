package provider

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// OpenAIConfig says where an OpenAI-compatible provider is.
type OpenAIConfig struct {
	BaseURL string // without /chat/completions and the like, such as https://api.openai.com/v1; its query goes with each call
	APIKey  string // "": none is sent
	// KeyHeader is the header that the key is sent in, as it is; "" means Authorization, as
	// a bearer token.
	KeyHeader string
	Headers   map[string]string // sent with each request
	// NoStreamOptions leaves out stream_options, which some servers refuse. Their streams
	// may then tell of no usage.
	NoStreamOptions bool
	// BillsErrors says that calls may be charged which are answered with 400, 422, 500
	// or 502. It decides whether such an error is Failed or Refused.
	BillsErrors bool
	// HTTPClient is copied and never follows redirects. Nil means one that is
	// made for this provider: HTTP/1.1, so that no layer below ever sends a
	// request again, and no time limit but the context's once connected.
	HTTPClient *http.Client
}

// OpenAI calls a server that speaks OpenAI's chat completions and embeddings. It is safe for
// concurrent use.
type OpenAI struct {
	api
	embeddings      string // where vectors are asked for
	noStreamOptions bool
}

// NewOpenAI checks cfg. Its errors do not quote the key or the URL, which may
// hold a secret where it should not.
func NewOpenAI(cfg OpenAIConfig) (*OpenAI, error) {
	a, err := newAPI(cfg.BaseURL, "chat/completions", cfg.HTTPClient, cfg.BillsErrors)
	if err == nil {
		err = checkKey(cfg.APIKey)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.APIKey == "":
	case cfg.KeyHeader != "":
		a.header.Set(cfg.KeyHeader, cfg.APIKey)
	default:
		a.header.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	if err := setHeaders(a.header, cfg.Headers); err != nil {
		return nil, err
	}
	a.whole = parseCompletionWhole
	a.events = func(r *eventReader) events { return &completionChunks{events: r} }
	base, err := parseBaseURL(cfg.BaseURL)
	return &OpenAI{a, base.JoinPath("embeddings").String(), cfg.NoStreamOptions}, err
}

// Call sends one request; ctx bounds the whole answer, to its last part.
func (o *OpenAI) Call(ctx context.Context, req Request) (Answer, error) {
	r, err := newOpenAIRequest(req)
	if err != nil {
		return nil, unsent(err)
	}
	switch host := "." + o.server(); {
	case strings.HasSuffix(host, ".googleapis.com"):
		r.Messages = signed(r.Messages)
	case strings.HasSuffix(host, ".mistral.ai"):
		r.Messages = withShortIDs(r.Messages)
	}
	if o.noStreamOptions {
		r.StreamOptions = openai.StreamOptions{}
	}
	return o.call(ctx, withExtra(r, without(req.Extra, "reasoning_effort", r.ReasoningEffort != "")), req)
}

// unknownSignature is what Google has for calls without the signature of the thoughts behind
// them. Gemini 3 and later refuse a conversation with a call that has neither, and most
// clients keep no signature.
const unknownSignature = "skip_thought_signature_validator"

// signed gives the first call of each message a signature, as Gemini does.
func signed(messages []openai.Message) []openai.Message {
	messages = slices.Clone(messages)
	for i := range messages {
		if calls := &messages[i].ToolCalls; len(*calls) > 0 {
			*calls = slices.Clone(*calls)
			(*calls)[0].Signature = unknownSignature
		}
	}
	return messages
}

// withShortIDs gives calls ids of nine letters and digits, where they have others. Mistral
// takes no other.
func withShortIDs(messages []openai.Message) []openai.Message {
	short := func(id string) string {
		if id == "" || len(id) == shortID && !strings.ContainsAny(id, "_-") && isWord(id, shortID, nameAlphabet) {
			return id
		}
		return derivedID(id)
	}
	messages = slices.Clone(messages)
	for i := range messages {
		m := &messages[i]
		m.ToolCallID, m.ToolCalls = short(m.ToolCallID), slices.Clone(m.ToolCalls)
		for j := range m.ToolCalls {
			m.ToolCalls[j].ID = short(m.ToolCalls[j].ID)
		}
	}
	return messages
}

// newOpenAIRequest is the body of a request, complete but for the owner's extra fields:
// what is not there is never sent.
func newOpenAIRequest(req Request) (*openai.ChatRequest, error) {
	if err := req.check(); err != nil {
		return nil, err
	}
	out := &openai.ChatRequest{
		Model:          req.Model,
		Messages:       req.Messages,
		Stream:         req.Stream,
		StreamOptions:  openai.StreamOptions{IncludeUsage: req.Stream},
		Sampling:       req.Sampling,
		Tooling:        req.tooling(),
		ResponseFormat: req.ResponseFormat,

		ReasoningEffort: req.ReasoningEffort,
	}
	// A server ignores the field that it does not know, and with it the cap: so
	// there is no default.
	switch req.MaxTokensField {
	case "max_tokens":
		out.MaxTokens = int64(req.MaxOutputTokens)
	case "max_completion_tokens":
		out.MaxCompletionTokens = int64(req.MaxOutputTokens)
	default:
		return nil, errors.New("request with an unknown field for the output cap")
	}
	return out, nil
}
