// Package upstream is a built-in stand-in for a model provider. It speaks
// OpenAI's chat completions and embeddings, for running without a provider's key
// and for tests.
//
// It answers POST .../chat/completions, POST .../embeddings and GET .../models
// under any base path, with any key or none. Requests are checked as strictly as a
// strict provider would: unknown fields, two output caps or none, values out of
// range, and tools or pictures that OpenAI refuses are 400 in OpenAI's error
// envelope. The settings of the sampling are checked and otherwise ignored.
//
// The answer is a short text in which only numbers depend on the request. Where
// response_format asks for JSON, it is JSON that fits the schema; a schema that
// nothing fits, or nothing that the package can write, is 400. The answer is the
// same each time, is cut at the output cap with finish_reason "length", and is
// sent token by token. Usage is exact: the answer has as many pieces as it has tokens,
// and input is counted with o200k_base as OpenAI counts a chat; with tools that is
// what is known from real answers, within some tokens.
//
// The model calls a tool if tool_choice forces it to, or if the last message is a
// user's and has a tool's name in it, or a word of four letters or more of a
// tool's name ("weather" calls get_weather); of several tools, the first of these.
// Its arguments are JSON that fits the parameters, or {} if the package can write
// none. A call costs its name, its arguments and 4 tokens; a forced one only its
// arguments, and ends with "stop" as OpenAI's does. After the results of tools
// comes a text that tells the figures in them, so that an agent ends; or, where
// tool_choice is "required", a call of the next tool that was not called yet, and of
// the last one after all.
//
// Of each picture the answer tells the width and the height, which are read from the
// header of a data URL: "There was a picture of 640 x 480 pixels." An http URL is
// never fetched; it counts as a picture of 1024 x 1024. Tokens follow the rule that
// OpenAI has published for the model's family, and that of gpt-4o for all others.
//
// With reasoning_effort low, medium, high and xhigh, 8, 32, 128 and 512 output tokens
// are spent on reasoning first, or all; with none and minimal there are none.
//
// An embedding is a unit vector in which each word of the text has a direction, so
// that texts are near that share words. Its input is counted with cl100k_base, and
// bounded as OpenAI bounds it. Of the markers it knows fail: with a status, timeout,
// stall, cut, nousage and empty, and billed; usage:N tells of N input tokens. They
// are looked for in the last input.
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
//	[[rounds:N]]      after results the same is called again, until N times in all
//	[[aloud]]         a sentence comes before the calls
//	[[long]]          an answer as long as the output cap, to the token; of text,
//	                  also where JSON was asked for, or of arguments that do not end
//	[[cached:N]]      N input tokens, or all if they are fewer, come from a cache
//	[[reasoning:N]]   N output tokens, or all, are spent on reasoning first
//	[[think]]         the reasoning, of 8 tokens if nobody says how many, is shown
//	                  as reasoning_content, as DeepSeek shows it
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
	"net/http"
	"strconv"
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
	tokenizer *tokens.Tokenizer // of chats
	embedding *tokens.Tokenizer // of texts to embed
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
	return &Upstream{
		options: options, tokenizer: builtIn("o200k_base"), embedding: builtIn("cl100k_base"), log: callLog{keep: options.KeepCalls},
	}
}

func builtIn(name string) *tokens.Tokenizer {
	tokenizer, err := tokens.New(name)
	if err != nil {
		panic(err)
	}
	return tokenizer
}

func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, route := range []struct {
		path, method string
		serve        http.HandlerFunc
	}{
		{"/chat/completions", http.MethodPost, u.complete},
		{"/embeddings", http.MethodPost, u.embed},
		{"/models", http.MethodGet, listModels},
	} {
		if !strings.HasSuffix(r.URL.Path, route.path) {
			continue
		}
		if r.Method != route.method {
			refuse(w, methodNotAllowed)
			return
		}
		route.serve(w, r)
		return
	}
	refuse(w, notFound)
}

func listModels(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, encode(modelList))
}

// exchange is a valid request that is being answered.
type exchange struct {
	u     *Upstream
	w     http.ResponseWriter
	ctx   context.Context // the client's
	call  *Call
	marks markers
}

// begin bills the input, and fails as the markers say, if they do: then it is not ok, and
// there is nothing more to answer. output is what else an answer would cost.
func (x *exchange) begin(contentType string, input, output price.Usage) (ok bool) {
	if status := x.marks.status(); status != 0 {
		if x.marks.billed {
			x.u.log.bill(x.call, input)
			x.u.log.bill(x.call, output)
		}
		x.u.log.answered(x.call, status)
		if status == http.StatusTooManyRequests {
			x.w.Header().Set("Retry-After", "1")
		}
		refuse(x.w, failing(status))
		return false
	}
	x.u.log.bill(x.call, input)
	if x.marks.fail == "timeout" {
		<-x.ctx.Done()
		return false
	}
	x.u.log.answered(x.call, http.StatusOK)
	if x.marks.fail == "empty" {
		x.w.Header().Set("Content-Type", contentType)
		x.w.WriteHeader(http.StatusOK)
		return false
	}
	return pause(x.ctx, x.u.options.FirstToken) == nil
}

// spend makes tokens of the output, one after another.
func (x *exchange) spend(tokens int, each price.Usage) error {
	for range tokens {
		if err := pause(x.ctx, x.u.options.PerToken); err != nil {
			return err
		}
		x.u.log.bill(x.call, each)
	}
	return nil
}

// deliver sends an answer in one piece.
func (x *exchange) deliver(body []byte) error {
	switch x.marks.fail {
	case "stall":
		return x.stall()
	case "cut":
		x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		writeJSON(x.w, http.StatusOK, body[:len(body)/2])
		x.cut()
	}
	writeJSON(x.w, http.StatusOK, body)
	return nil
}

// stall sends nothing more until the client leaves.
func (x *exchange) stall() error {
	<-x.ctx.Done()
	return x.ctx.Err()
}

// cut sends what was written, and then breaks the connection.
func (x *exchange) cut() {
	_ = http.NewResponseController(x.w).Flush()
	panic(http.ErrAbortHandler)
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
