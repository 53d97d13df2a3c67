// Package upstream is a built-in stand-in for a model provider. It speaks
// OpenAI's chat completions, for running without a provider's key and for tests.
//
// It answers POST .../chat/completions and GET .../models under any base path,
// with any key or none. Requests are checked as strictly as a strict provider
// would: unknown fields, two output caps or none, and values out of range are
// 400 in OpenAI's error envelope. The settings of the sampling are checked and
// otherwise ignored.
//
// The answer is a short text in which only numbers depend on the request. Where
// response_format asks for JSON, it is JSON that fits the schema; a schema that
// nothing fits, or nothing that the package can write, is 400. The answer is the
// same each time, is cut at the output cap with finish_reason "length", and is
// sent token by token. Usage is exact: input is counted with o200k_base as OpenAI
// counts a chat with its tools, and the answer has as many pieces as it has tokens.
//
// The model calls a tool if tool_choice forces it to, or if the last message is a
// user's and has a tool's name in it, or a word of four letters or more of a
// tool's name ("weather" calls get_weather); of several tools, the first of these.
// Its arguments are JSON that fits the parameters, or {} if the package can write
// none. A call costs its name, its arguments and 4 tokens; a forced one only its
// arguments, and ends with "stop" as OpenAI's does. After the results of tools
// comes a text that tells the figures in them, so that an agent ends.
//
// Of each picture the answer tells the width and the height, which are read from the
// header of a data URL: "There was a picture of 640 x 480 pixels." An http URL is
// never fetched; it counts as a picture of 1024 x 1024. Tokens follow the rule that
// OpenAI has published for the model's family, and that of gpt-4o for all others.
//
// Markers in the last user message change what happens:
//
//	[[fail:500]]      status 500; any other error status likewise
//	[[fail:429]]      status 429 with Retry-After
//	[[fail:timeout]]  no answer until the client leaves or the server closes
//	[[fail:stall]]    half of the stream's tokens, but at least 3, then as timeout
//	[[fail:cut]]      the connection is cut: in half of the body, or of the
//	                  stream's tokens, but not before 3 of them
//	[[fail:error]]    finish_reason "error" after as many tokens, with their usage
//	[[fail:nofinish]] a complete answer without finish_reason: a stream fails by it
//	[[fail:nousage]]  a complete answer without usage
//	[[fail:empty]]    status 200 and an empty body or stream
//	[[tool:NAME]]     the tool NAME is called, if it is offered; each of several
//	[[tools:N]]       N tools are called at once, in their order and again
//	[[long]]          an answer as long as the output cap, to the token; of text,
//	                  also where JSON was asked for, or of arguments that do not end
//	[[cached:N]]      N input tokens, or all if they are fewer, come from a cache
//	[[reasoning:N]]   N output tokens, or all, are spent on reasoning first
//	[[over:N]]        a long answer of N tokens, whatever the output cap
//	[[usage:N]]       usage that tells of N output tokens, whatever was made
//	[[billed]]        what is refused with an error status is billed like an answer
//
// Every valid request is logged together with what a provider would bill for it:
// nothing if it is refused; else its input, and its output as far as it was
// made. That is all of a buffered answer that is then cut, and what was sent of
// a stream. Nothing is sent before it is billed.
//
// The package trusts its caller: it is not meant to face a network.
package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
)

// Options may be left empty.
type Options struct {
	FirstToken time.Duration    // wait before any output
	PerToken   time.Duration    // wait before each output token
	KeepCalls  int              // how many calls Calls remembers; 0 means 1000
	Now        func() time.Time // nil means time.Now
}

// Upstream is the stand-in. It is safe for concurrent use.
type Upstream struct {
	options   Options
	tokenizer *tokens.Tokenizer
	log       callLog
}

// New makes an Upstream.
func New(options Options) *Upstream {
	if options.KeepCalls == 0 {
		options.KeepCalls = 1000
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	tokenizer, err := tokens.New("o200k_base")
	if err != nil {
		panic(err) // it is built in
	}
	return &Upstream{options: options, tokenizer: tokenizer, log: callLog{keep: options.KeepCalls}}
}

func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		if r.Method != http.MethodPost {
			refuse(w, methodNotAllowed)
			return
		}
		u.complete(w, r)
	case strings.HasSuffix(r.URL.Path, "/models"):
		if r.Method != http.MethodGet {
			refuse(w, methodNotAllowed)
			return
		}
		writeJSON(w, http.StatusOK, encode(modelList))
	default:
		refuse(w, notFound)
	}
}

func (u *Upstream) complete(w http.ResponseWriter, r *http.Request) {
	req, body, problem := parse(w, r)
	if problem != nil {
		refuse(w, problem)
		return
	}
	prompt := countPrompt(u.tokenizer, req)
	marks := readMarkers(req.lastUserText())
	call := u.log.add(req, body, prompt)
	digest := sha256.Sum256(body)
	id := hex.EncodeToString(digest[:12])

	ctx := r.Context()
	answer := u.compose(req, prompt, marks, id)
	usage := price.Usage{Input: int64(prompt), CachedInput: int64(min(marks.cached, prompt))}
	output := price.Usage{Reasoning: int64(answer.reasoning), Output: answer.output()}
	if status := marks.status(); status != 0 {
		if marks.billed {
			u.log.bill(call, usage)
			u.log.bill(call, output)
		}
		u.log.answered(call, status)
		if status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		refuse(w, failing(status))
		return
	}

	u.log.bill(call, usage)
	if marks.fail == "timeout" {
		<-ctx.Done()
		return
	}
	u.log.answered(call, http.StatusOK)
	if marks.fail == "empty" {
		w.Header().Set("Content-Type", contentType(req.Stream))
		w.WriteHeader(http.StatusOK)
		return
	}

	usage.Reasoning, usage.Output = output.Reasoning, output.Output
	if marks.report > 0 {
		usage.Output = int64(marks.report)
	}
	if pause(ctx, u.options.FirstToken) != nil {
		return
	}
	spend := func(token price.Usage) error {
		if err := pause(ctx, u.options.PerToken); err != nil {
			return err
		}
		u.log.bill(call, token)
		return nil
	}
	for range answer.reasoning {
		if spend(price.Usage{Output: 1, Reasoning: 1}) != nil {
			return
		}
	}
	reply := reply{
		w:   w,
		ctx: ctx,
		envelope: envelope{
			ID:      "chatcmpl-" + id,
			Created: u.options.Now().Unix(),
			Model:   req.Model,
		},
		answer: answer,
		usage:  usage,
		fail:   marks.fail,
		spend: func(tokens int) error {
			for range tokens {
				if err := spend(price.Usage{Output: 1}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	// Either fails only because the client has left.
	if req.Stream {
		_ = reply.stream(req.StreamOptions != nil && req.StreamOptions.IncludeUsage)
	} else {
		_ = reply.whole()
	}
}

// pause waits for d, or until the client is gone.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
