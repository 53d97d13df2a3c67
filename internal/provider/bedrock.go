package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// BedrockConfig says whose Bedrock is called, and where.
type BedrockConfig struct {
	Region      string
	Credentials aws.CredentialsProvider
	BaseURL     string // "" means the region's own endpoint
	BillsErrors bool   // as in OpenAIConfig
	// HTTPClient is as in OpenAIConfig.
	HTTPClient *http.Client
}

// Bedrock calls Amazon Bedrock's Converse and ConverseStream. It is safe for
// concurrent use.
//
// The AWS SDK finds the endpoint, signs, and decodes errors. It is told everything: no
// retries, and nothing from the environment or the shared configuration files but
// region and credentials, so that neither AWS_ENDPOINT_URL nor
// AWS_BEARER_TOKEN_BEDROCK redirects a call or lets somebody else pay.
type Bedrock struct {
	runtime     *bedrockruntime.Client
	client      http.Client
	billsErrors bool
}

// NewBedrock checks cfg. It does no I/O.
func NewBedrock(cfg BedrockConfig) (*Bedrock, error) {
	switch {
	case cfg.Region == "":
		return nil, errors.New("no AWS region")
	case cfg.Credentials == nil:
		return nil, errors.New("no AWS credentials")
	}
	o := bedrockruntime.Options{
		Region:      cfg.Region,
		Credentials: cfg.Credentials,
		Retryer:     aws.NopRetryer{},
	}
	if cfg.BaseURL != "" {
		u, err := parseBaseURL(cfg.BaseURL)
		if err == nil && (u.RawQuery != "" || u.ForceQuery) {
			err = errors.New("base URL has a query")
		}
		if err != nil {
			return nil, err
		}
		o.BaseEndpoint = aws.String(u.String())
	}
	runtime := bedrockruntime.New(o, func(o *bedrockruntime.Options) {
		// New has read AWS_BEARER_TOKEN_BEDROCK by now.
		o.AuthSchemePreference = []string{"sigv4"}
		o.BearerAuthTokenProvider = nil
	})
	return &Bedrock{runtime: runtime, client: withoutRedirects(cfg.HTTPClient), billsErrors: cfg.BillsErrors}, nil
}

// Call sends one request; ctx bounds the whole answer, to its last part. Without
// credentials nothing is sent.
func (b *Bedrock) Call(ctx context.Context, req Request) (Answer, error) {
	in, err := newConverse(req)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, unsent(err)
	}
	callCtx, cancel := context.WithCancel(ctx)
	wire := &bedrockWire{client: &b.client, cancel: cancel, request: req, billsErrors: b.billsErrors}
	overWire := func(o *bedrockruntime.Options) { o.HTTPClient = wire }
	if req.Stream {
		_, err = b.runtime.ConverseStream(callCtx, &bedrockruntime.ConverseStreamInput{
			ModelId: in.ModelId, InferenceConfig: in.InferenceConfig, System: in.System, Messages: in.Messages,
			ToolConfig: in.ToolConfig, AdditionalModelRequestFields: in.AdditionalModelRequestFields,
		}, overWire)
	} else {
		_, err = b.runtime.Converse(callCtx, in, overWire)
	}
	if wire.answer == nil {
		cancel()
		return nil, wire.failure(ctx, err)
	}
	answer, err := wire.open(ctx, callCtx)
	if err != nil {
		cancel()
		wire.answer.Body.Close()
		return nil, err
	}
	return answer, nil
}

// open chooses the reader of an answer by how it begins, whatever it is called.
func (w *bedrockWire) open(ctx, callCtx context.Context) (Answer, error) {
	frames := newEventReader(w.answer.Body, maxEvent, maxStream)
	first, err := frames.first()
	switch {
	case err != nil:
	case first == '{':
		text, wrong := readWhole(frames.r, w.cancel)
		if wrong != nil {
			err = wrong
			break
		}
		part, err := parseConverse(text)
		w.cancel()
		w.answer.Body.Close()
		return inOnePiece(ctx, w.status, w.begun.Load(), part, err)
	case first == 0, mediaType(w.answer) == "application/vnd.amazon.eventstream": // a frame begins with its length
		return &stream{
			ctx: ctx, callCtx: callCtx, cancel: w.cancel, body: w.answer.Body, begun: &w.begun, status: w.status,
			events: &converseEvents{frames: frames, decoder: eventstream.NewDecoder()},
			rest:   func() { readBriefly(frames.r, w.cancel) },
		}, nil
	default:
		err = errNoAnswer
	}
	return nil, failed(ctx, w.status, w.begun.Load(), err)
}

// bedrockWire is the SDK's HTTP client for one call. It sends at most one request, knows
// whether it did, and keeps the answer, of which the SDK gets to read errors alone: an
// answer it would read without bounds, and refuse for any member of another kind.
type bedrockWire struct {
	client  *http.Client
	cancel  context.CancelFunc
	request Request
	called  bool
	sent    atomic.Bool
	status  int            // 0: no answer
	begun   atomic.Bool    // some of the answer's body has arrived
	answer  *http.Response // if it is one

	refusal     []byte // the body of an error status
	billsErrors bool
}

func (w *bedrockWire) Do(r *http.Request) (*http.Response, error) {
	if w.called {
		return nil, errors.New("a second request for one call")
	}
	w.called = true
	// The SDK closes the body as soon as there is an answer, and its body then fails a
	// write that is just ending, which breaks the connection under the answer.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.WithContext(watchSent(r.Context(), &w.sent))
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.request.Trace.SetXRay(r.Header) // which a signature leaves out
	resp, err := w.client.Do(r)
	if err != nil {
		return nil, err
	}
	w.request.answered(resp)
	w.status = resp.StatusCode
	resp.Body = &arrival{resp.Body, &w.begun}
	switch {
	case resp.StatusCode >= 300:
		w.refusal = readBriefly(resp.Body, w.cancel)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(w.refusal))
		return resp, nil
	case resp.StatusCode < 200:
		resp.Body.Close()
		return nil, errStatus
	}
	w.answer = resp
	return nil, errTaken
}

// errTaken keeps the SDK from an answer: its readers of events, even of none, share a
// buffer among all calls of a client.
var errTaken = errors.New("the answer is read by the caller")

// failure is the *Error of a call without an answer.
func (w *bedrockWire) failure(ctx context.Context, err error) *Error {
	switch {
	case !w.sent.Load():
		return unsent(safeUnsent(ctx, err))
	case w.status >= 300:
		return refused(w.status, exceptionCode(err), w.billsErrors).blame(w.refusal)
	}
	return failed(ctx, w.status, w.begun.Load(), err)
}

// safeUnsent is err without what the SDK says around it, which may be long and
// tells nothing of the cause.
func safeUnsent(ctx context.Context, err error) error {
	var send *smithyhttp.RequestSendError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &send):
		return send.Err
	}
	return err
}

// exceptionCode is the name of an AWS exception, "" if it has none.
func exceptionCode(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) && isCode(api.ErrorCode()) && api.ErrorCode() != "UnknownError" {
		return api.ErrorCode()
	}
	return ""
}

// newConverse is the input of Converse, complete: what is not here is never sent.
// ConverseStream's has the same fields.
func newConverse(req Request) (*bedrockruntime.ConverseInput, error) {
	tools := len(req.Tools) > 0 && req.ToolChoice.Mode != "none" // which Converse does not know: the model is told of no tool
	instructions, turns, err := turnsOf(kind.Bedrock, req, tools)
	if err != nil {
		return nil, err
	}
	if req.MaxOutputTokens > math.MaxInt32 {
		return nil, unsent(errors.New("request with an output cap beyond 32 bits"))
	}
	in := &bedrockruntime.ConverseInput{
		ModelId: aws.String(req.Model),
		InferenceConfig: &types.InferenceConfiguration{
			MaxTokens:     aws.Int32(int32(req.MaxOutputTokens)),
			StopSequences: req.Stop,
		},
	}
	if len(req.Extra) > 0 {
		if extra := bytes.TrimSpace(req.Extra); !json.Valid(extra) || extra[0] != '{' {
			return nil, unsent(errors.New("extra fields are no object"))
		}
		in.AdditionalModelRequestFields = verbatim(req.Extra)
	}
	if req.Temperature != nil {
		in.InferenceConfig.Temperature = aws.Float32(float32(min(*req.Temperature, 1)))
	}
	if req.TopP != nil {
		in.InferenceConfig.TopP = aws.Float32(float32(*req.TopP))
	}
	for _, text := range instructions {
		in.System = append(in.System, &types.SystemContentBlockMemberText{Value: text})
	}
	for _, t := range turns {
		m := types.Message{Role: types.ConversationRole(t.role)}
		for _, b := range t.blocks {
			content, err := converseBlockOf(b)
			if err != nil {
				return nil, err
			}
			m.Content = append(m.Content, content)
		}
		in.Messages = append(in.Messages, m)
	}
	if tools {
		in.ToolConfig = toolConfig(req.Tooling)
	}
	return in, nil
}

func converseBlockOf(b block) (types.ContentBlock, error) {
	switch {
	case b.image != nil:
		image, err := bytesOf(b.image)
		return &types.ContentBlockMemberImage{Value: types.ImageBlock{
			Format: types.ImageFormat(strings.TrimPrefix(b.image.Type, "image/")), Source: &types.ImageSourceMemberBytes{Value: image}}}, err
	case b.call != nil:
		return &types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{
			ToolUseId: aws.String(b.call.ID), Name: aws.String(b.call.Name), Input: verbatim(object(b.call.Arguments))}}, nil
	case b.result != nil:
		text := b.result.text
		if isBlank(text) { // which is refused, and so may be none
			text = opening
		}
		return &types.ContentBlockMemberToolResult{Value: types.ToolResultBlock{
			ToolUseId: aws.String(b.result.id), Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: text}}}}, nil
	}
	return &types.ContentBlockMemberText{Value: b.text}, nil
}

// toolConfig says which tools there are, and whether one must be called.
func toolConfig(t openai.Tooling) *types.ToolConfiguration {
	config := new(types.ToolConfiguration)
	for _, tool := range t.Tools {
		spec := types.ToolSpecification{Name: aws.String(tool.Name), InputSchema: &types.ToolInputSchemaMemberJson{Value: verbatim(schema(tool.Parameters))}}
		if tool.Description != "" {
			spec.Description = aws.String(tool.Description)
		}
		if tool.Strict != nil && *tool.Strict {
			spec.Strict = tool.Strict
		}
		config.Tools = append(config.Tools, &types.ToolMemberToolSpec{Value: spec})
	}
	switch {
	case t.ToolChoice.Name != "":
		config.ToolChoice = &types.ToolChoiceMemberTool{Value: types.SpecificToolChoice{Name: aws.String(t.ToolChoice.Name)}}
	case t.ToolChoice.Mode == "required":
		config.ToolChoice = &types.ToolChoiceMemberAny{}
	}
	return config
}

// rawDocument is JSON as it was written. The SDK's own documents lose the order of members
// and the digits of large numbers.
type rawDocument struct {
	document.Interface
	json []byte
}

func (d rawDocument) MarshalSmithyDocument() ([]byte, error) { return d.json, nil }

func verbatim(raw json.RawMessage) document.Interface {
	return rawDocument{document.NewLazyDocument(nil), raw}
}
