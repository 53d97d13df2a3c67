package provider

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What must never be in an error. The servers below answer with the last two.
const (
	testKey    = "sk-KEY"
	testPrompt = "PROMPT"
	testAnswer = "ANSWER"
)

func ptr[T any](v T) *T { return &v }

func request(stream bool) Request {
	return Request{
		Model:           "m-1",
		Messages:        []openai.Message{{Role: "user", Content: testPrompt}},
		MaxOutputTokens: 100,
		MaxTokensField:  "max_completion_tokens",
		Stream:          stream,
	}
}

// server runs h and counts its requests.
func server(t *testing.T, h http.HandlerFunc) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1", calls
}

func client(t *testing.T, url string) *OpenAI {
	t.Helper()
	return clientWith(t, OpenAIConfig{BaseURL: url, APIKey: testKey})
}

func clientWith(t *testing.T, cfg OpenAIConfig) *OpenAI {
	t.Helper()
	o, err := NewOpenAI(cfg)
	check.OK(t, err)
	if cfg.HTTPClient == nil {
		t.Cleanup(o.client.CloseIdleConnections)
	}
	return o
}

// call reads a whole answer. Its parts are merged into one.
func call(ctx context.Context, t *testing.T, p Provider, req Request) (Part, error) {
	t.Helper()
	a, err := p.Call(ctx, req)
	if err != nil {
		wantSafe(t, err)
		return Part{}, err
	}
	defer a.Close()
	var all Part
	for {
		p, err := a.Next()
		if err != nil {
			if _, again := a.Next(); again != err {
				t.Errorf("after %v comes %v", err, again)
			}
			check.That(t, p.isZero(), "%v together with %+v", err, p)
			wantSafe(t, err)
			return all, err
		}
		check.That(t, !p.isZero(), "empty part")
		check.That(t, all.Usage == nil && all.AtLeast == nil, "after the usage comes %+v", p)
		all.Content += p.Content
		all.Refusal += p.Refusal
		all.Reasoning += p.Reasoning
		all.ToolCalls = append(all.ToolCalls, p.ToolCalls...)
		all.FinishReason += p.FinishReason
		all.UnknownReason += p.UnknownReason
		all.Usage, all.AtLeast = p.Usage, p.AtLeast
	}
}

// wantSafe holds err to the package's promise: io.EOF or an *Error without secrets.
func wantSafe(t *testing.T, err error) {
	t.Helper()
	var e *Error
	check.That(t, err == io.EOF || errors.As(err, &e), "%v is no *Error", err)
	for _, secret := range []string{testKey, testPrompt, testAnswer} {
		check.That(t, !strings.Contains(err.Error(), secret), "%q contains %s", err, secret)
	}
}

// answered is the answer ANSWER.
func answered(reason string, usage *price.Usage) Part {
	return Part{Content: testAnswer, FinishReason: reason, Usage: usage}
}

// unknown is the answer ANSWER that ends for a reason that nobody knows.
func unknown(reason string, usage *price.Usage) Part {
	return Part{Content: testAnswer, FinishReason: "stop", UnknownReason: reason, Usage: usage}
}

func wantFailure(t *testing.T, err error, failure Failure, status int) {
	t.Helper()
	var e *Error
	check.That(t, errors.As(err, &e) && e.Failure == failure && e.Status == status, "got %v, want %s (status %d)", err, failure, status)
}

func TestRequestOnTheWire(t *testing.T) {
	full := Request{
		Model:           "gpt",
		Messages:        []openai.Message{{Role: "system", Content: "a < b & c"}, {Role: "user", Content: "\"hé\"\n"}, {Role: "assistant", Content: ""}},
		MaxOutputTokens: 7,
		MaxTokensField:  "max_completion_tokens",
		Stream:          true,
		Sampling: openai.Sampling{
			Temperature:      ptr(0.0),
			TopP:             ptr(0.5),
			PresencePenalty:  ptr(-1.5),
			FrequencyPenalty: ptr(2.0),
			Seed:             ptr(int64(9007199254740993)),
			Stop:             []string{"<|end|>"},
		},
		ResponseFormat: json.RawMessage(`{"type":"json_schema","json_schema":{"name":"x","schema":{"const":1e400}}}`),
	}
	minimal := Request{
		Model: "llama", Messages: []openai.Message{{Role: "user", Content: "hi"}}, MaxOutputTokens: 1, MaxTokensField: "max_tokens",
	}
	for _, tt := range []struct {
		name         string
		req          Request
		base, key    string
		path, accept string
		auth         []string
		body         string
	}{
		{"full", full, "/v1", testKey, "/v1/chat/completions", "text/event-stream", []string{"Bearer " + testKey},
			`{"model":"gpt","messages":[{"role":"system","content":"a < b & c"},{"role":"user","content":"\"hé\"\n"},` +
				`{"role":"assistant","content":""}],"max_completion_tokens":7,"stream":true,"stream_options":{"include_usage":true},` +
				`"temperature":0,"top_p":0.5,"presence_penalty":-1.5,"frequency_penalty":2,"seed":9007199254740993,` +
				`"stop":["<|end|>"],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"const":1e400}}}}`},
		{"minimal", minimal, "/api/v1/", "", "/api/v1/chat/completions", "application/json", nil,
			`{"model":"llama","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`},
		{"no base path", minimal, "", "", "/chat/completions", "application/json", nil,
			`{"model":"llama","messages":[{"role":"user","content":"hi"}],"max_tokens":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			type seen struct {
				method, uri, contentType, accept, body string
				auth                                   []string
				length                                 int64
			}
			var got seen
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = seen{r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.Header.Get("Accept"), string(body),
					r.Header["Authorization"], r.ContentLength}
				w.WriteHeader(http.StatusTeapot)
			}))
			defer s.Close()
			_, err := call(t.Context(), t, clientWith(t, OpenAIConfig{BaseURL: s.URL + tt.base, APIKey: tt.key}), tt.req)
			wantFailure(t, err, Failed, http.StatusTeapot)
			want := seen{"POST", tt.path, "application/json", tt.accept, tt.body, tt.auth, int64(len(tt.body))}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(seen{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestImpossibleRequestsAreNotSent(t *testing.T) {
	url, calls := server(t, func(w http.ResponseWriter, r *http.Request) {})
	o := client(t, url)
	for name, change := range map[string]func(*Request){
		"no model":             func(r *Request) { r.Model = "" },
		"no messages":          func(r *Request) { r.Messages = nil },
		"no cap":               func(r *Request) { r.MaxOutputTokens = 0 },
		"no field for the cap": func(r *Request) { r.MaxTokensField = "" },
		"an unknown field":     func(r *Request) { r.MaxTokensField = "n" },
		"bad response format":  func(r *Request) { r.ResponseFormat = json.RawMessage(testPrompt) },
	} {
		t.Run(name, func(t *testing.T) {
			req := request(false)
			change(&req)
			_, err := call(t.Context(), t, o, req)
			wantFailure(t, err, Unreachable, 0)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := call(ctx, t, o, request(false))
	wantFailure(t, err, Unreachable, 0)
	check.That(t, errors.Is(err, context.Canceled), "%v hides its cause", err)
	check.Equal(t, calls.Load(), 0, "requests were sent")
}

func TestNoVariableRedirectsTheCall(t *testing.T) {
	url, calls := server(t, answerJSON(wholeAnswer))
	elsewhere, astray := server(t, answerJSON(wholeAnswer))
	for _, name := range []string{"OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_HOST"} {
		t.Setenv(name, elsewhere)
	}
	t.Setenv("OPENAI_API_KEY", "other")
	_, err := call(t.Context(), t, client(t, url), request(false))
	check.That(t, err == io.EOF && calls.Load() == 1 && astray.Load() == 0, "%v; %d calls, %d astray", err, calls.Load(), astray.Load())
}

func TestNewOpenAIRefuses(t *testing.T) {
	for _, cfg := range []OpenAIConfig{
		{},
		{BaseURL: "api.openai.com/v1"},
		{BaseURL: "ftp://h/v1"},
		{BaseURL: "https:///v1"},
		{BaseURL: "https://:443/v1"},
		{BaseURL: "https://user:" + testKey + "@h/v1"},
		{BaseURL: "https://h/v1", Headers: map[string]string{"a": testKey + "\r\nb: c"}},
		{BaseURL: "https://h/v1", Headers: map[string]string{"a b": testKey}},
		{BaseURL: "https://h/v1#" + testKey},
		{BaseURL: "https://h/%zz" + testKey},
		{BaseURL: "https://h/v1", APIKey: testKey + "\n"},
		{BaseURL: "https://h/v1", APIKey: testKey + " b"},
		{BaseURL: "https://h/v1", APIKey: testKey + "é"},
	} {
		_, err := NewOpenAI(cfg)
		if err == nil {
			t.Errorf("%+v is accepted", cfg)
		} else if strings.Contains(err.Error(), testKey) {
			t.Errorf("%q contains the key", err)
		}
	}
}

const (
	jsonUsage   = `{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14}`
	wholeAnswer = `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ANSWER",` +
		`"refusal":null},"logprobs":null,"finish_reason":"stop"}],"usage":` + jsonUsage + `}`
)

func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		io.WriteString(w, body)
	}
}

func answerSSE(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, body)
	}
}

func TestWholeAnswers(t *testing.T) {
	usage := &price.Usage{Input: 9, Output: 5}
	body := func(choice string) string { return `{"choices":[` + choice + `],"usage":` + jsonUsage + `}` }
	for _, tt := range []struct {
		name, body string
		want       Part
		failure    Failure // "" if it succeeds
	}{
		{"usual", wholeAnswer, Part{Content: testAnswer, FinishReason: "stop", Usage: usage}, ""},
		{"at its cap", body(`{"message":{"content":"ANSWER"},"finish_reason":"length"}`),
			Part{Content: testAnswer, FinishReason: "length", Usage: usage}, ""},
		{"refusal", body(`{"message":{"content":null,"refusal":"no"},"finish_reason":"stop"}`),
			Part{Refusal: "no", FinishReason: "stop", Usage: usage}, ""},
		{"nothing said", body(`{"message":{"content":""},"finish_reason":"content_filter"}`),
			Part{FinishReason: "content_filter", Usage: usage}, ""},
		{"finish reason of its own", body(`{"message":{"content":"a"},"finish_reason":"model_context_window_exceeded"}`),
			Part{Content: "a", FinishReason: "length", Usage: usage}, ""},
		{"only choice 0", body(`{"index":1,"message":{"content":"b"},"finish_reason":"length"},{"index":0,"message":{"content":"a"},"finish_reason":"stop"}`),
			Part{Content: "a", FinishReason: "stop", Usage: usage}, ""},
		{"no usage", `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`, Part{Content: "a", FinishReason: "stop"}, ""},
		{"error null", `{"error":null,"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}`, Part{Content: "a", FinishReason: "stop"}, ""},
		{"empty", "", Part{}, Broken},
		{"not JSON", testAnswer, Part{}, Broken},
		{"null", "null", Part{}, Broken},
		{"a list", "[]", Part{}, Broken},
		{"cut", wholeAnswer[:100], Part{}, Broken},
		{"more behind it", wholeAnswer + "{}", answered("stop", usage), ""},
		{"in a list", "[" + wholeAnswer + "]", answered("stop", usage), ""},
		{"no choices", `{"usage":` + jsonUsage + `}`, Part{Usage: usage}, Broken},
		{"empty choices", body(""), Part{Usage: usage}, Broken},
		{"another choice than 0", body(`{"index":1,"message":{"content":"b"},"finish_reason":"stop"}`), Part{Content: "b", FinishReason: "stop", Usage: usage}, ""},
		{"no message", body(`{"finish_reason":"stop"}`), Part{FinishReason: "stop", Usage: usage}, ""},
		{"no message and no finish reason", body(`{}`), Part{Usage: usage}, Broken},
		{"no list of choices", `{"choices":{"message":{"content":"ANSWER"},"finish_reason":"stop"},"usage":` + jsonUsage + `}`, answered("stop", usage), ""},
		// Its JSON is whole, so the answer is.
		{"no finish reason", body(`{"message":{"content":"ANSWER"}}`), unknown("none", usage), ""},
		{"finish reason null", body(`{"message":{"content":"ANSWER"},"finish_reason":null}`), unknown("none", usage), ""},
		{"finish reason is prose", body(`{"message":{"content":"ANSWER"},"finish_reason":"ANSWER it is"}`), unknown("other", usage), ""},
		{"error", `{"error":{"message":"PROMPT","code":"boom"}}`, Part{}, Broken},
		{"error beside an answer", `{"error":{"message":"PROMPT","code":"boom"},` + wholeAnswer[1:], answered("", usage), Broken},
		{"error in the choice", body(`{"message":{"content":"ANSWER"},"finish_reason":"stop","error":{"message":"PROMPT","code":502}}`), answered("", usage), Broken},
		{"no error in the choice", body(`{"message":{"content":"ANSWER"},"finish_reason":"stop","error":{}}`), answered("stop", usage), ""},
		{"a finish reason that is a failure", body(`{"message":{"content":""},"finish_reason":"network_error"}`), Part{Usage: usage}, Broken},
		{"too large", `{"pad":"` + strings.Repeat("a", maxJSON) + `",` + wholeAnswer[1:], Part{}, Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, calls := server(t, answerJSON(tt.body))
			// Some servers answer JSON although a stream was asked for.
			for _, stream := range []bool{false, true} {
				got, err := call(t.Context(), t, client(t, url), request(stream))
				if tt.failure != "" {
					wantFailure(t, err, tt.failure, 200)
				} else if err != io.EOF {
					t.Error(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}
			check.Equal(t, calls.Load(), 2, "requests for 2 calls")
		})
	}
}

// event is a chunk with choice 0.
func event(choice string) string {
	return `data: {"object":"chat.completion.chunk","choices":[{"index":0,` + choice + `}],"usage":null}` + "\n\n"
}

const (
	usageEvent = `data: {"object":"chat.completion.chunk","choices":[],"usage":` + jsonUsage + `}` + "\n\n"
	doneEvent  = "data: [DONE]\n\n"
)

var (
	roleEvent   = event(`"delta":{"role":"assistant","content":"","refusal":null},"finish_reason":null`)
	textEvents  = event(`"delta":{"content":"ANS"},"finish_reason":null`) + event(`"delta":{"content":"WER"},"finish_reason":null`)
	finishEvent = event(`"delta":{},"finish_reason":"stop"`)
	stream1     = roleEvent + textEvents + finishEvent + usageEvent + doneEvent
)

func TestStreams(t *testing.T) {
	usage := &price.Usage{Input: 9, Output: 5}
	answer := Part{Content: testAnswer, FinishReason: "stop", Usage: usage}
	withUsage := func(choices, usage string) string {
		return `data: {"choices":[` + choices + `],"usage":` + usage + "}\n\n"
	}
	failing := func(data string) string {
		return textEvents + "data: " + data + "\n\n" + finishEvent + usageEvent + doneEvent
	}
	for _, tt := range []struct {
		name, body string
		want       Part
		failure    Failure
	}{
		{"usual", stream1, answer, ""},
		{"CRLF", strings.ReplaceAll(stream1, "\n", "\r\n"), answer, ""},
		{"BOM and comments", "\ufeff: PING\n\n" + strings.ReplaceAll(stream1, "data", ": PING\n\nid: 1\ndata"), answer, ""},
		{"data of several lines", strings.ReplaceAll(stream1, `,"choices"`, ",\ndata:\"choices\""), answer, ""},
		{"no DONE", textEvents + finishEvent + usageEvent, answer, ""},
		{"usage with the finish", textEvents + withUsage(`{"delta":{},"finish_reason":"stop"}`, jsonUsage), answer, ""},
		{"usage in every chunk", withUsage(`{"delta":{"content":"ANS"}}`, `{"prompt_tokens":9,"completion_tokens":2}`) +
			withUsage(`{"delta":{"content":"WER"},"finish_reason":"stop"}`, jsonUsage) + doneEvent, answer, ""},
		{"the last valid usage counts", textEvents + finishEvent + withUsage("", `{"prompt_tokens":1,"completion_tokens":1}`) +
			usageEvent + withUsage("", `{"prompt_tokens":-1,"completion_tokens":0}`) + doneEvent, answer, ""},
		{"no error in the choice", event(`"delta":{"content":"ANSWER"},"error":""`) + finishEvent + usageEvent + doneEvent, answer, ""},
		{"usage that text outran", withUsage(`{"delta":{"content":"ANS"}}`, `{"prompt_tokens":9,"completion_tokens":2}`) +
			event(`"delta":{"content":"WER"},"finish_reason":"stop"`) + doneEvent, Part{Content: testAnswer, FinishReason: "stop", AtLeast: &price.Usage{Input: 9, Output: 2}}, ""},
		{"no usage", textEvents + finishEvent + doneEvent, Part{Content: testAnswer, FinishReason: "stop"}, ""},
		{"refusal", event(`"delta":{"refusal":"no"}`) + finishEvent + doneEvent, Part{Refusal: "no", FinishReason: "stop"}, ""},
		{"only choice 0", `data: {"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"},{"index":0,"delta":{"content":"a"}}]}` + "\n\n" +
			finishEvent + doneEvent, Part{Content: "a", FinishReason: "stop"}, ""},
		{"finish reason once", textEvents + finishEvent + finishEvent + usageEvent + doneEvent, answer, ""},
		{"choices empty at first", `data: {"choices":[],"prompt_filter_results":[]}` + "\n\n" + stream1, answer, ""},
		{"finish reason empty until the end", event(`"delta":{"content":"ANSWER"},"finish_reason":""`) + finishEvent + usageEvent, answer, ""},
		{"unknown fields", event(`"delta":{"content":"ANSWER","reasoning_content":"hm","tool_calls":null},"x":[1]`) + finishEvent + usageEvent,
			Part{Content: testAnswer, Reasoning: "hm", FinishReason: "stop", Usage: usage}, ""},
		{"delta null", event(`"delta":null`) + stream1, answer, ""},
		{"after DONE comes nothing", stream1 + textEvents, answer, ""},

		{"no event", "", Part{}, Broken},
		{"only DONE", doneEvent, Part{}, Broken},
		{"only comments", ": hi\n\n", Part{}, Broken},
		// Usage that came counts, whatever else is wrong.
		{"DONE without a finish", textEvents + usageEvent + doneEvent, answered("", usage), Broken},
		{"usage, then garbage", textEvents + usageEvent + "data: ?\n\n", answered("", usage), Broken},
		{"text beside a finish in prose", withUsage(`{"delta":{"content":"ANSWER"},"finish_reason":"It was the ANSWER."}`, jsonUsage), unknown("other", usage), ""},
		{"text beside an error", withUsage(`{"delta":{"content":"ANSWER"},"finish_reason":"error"}`, jsonUsage), answered("", usage), Broken},
		{"usage beside garbage", textEvents + withUsage(`7`, jsonUsage), answered("", usage), Broken},
		{"usage that came with the text", withUsage(`{"delta":{"content":"ANSWER"}}`, jsonUsage), answered("", usage), Broken},
		{"usage grown to the end", withUsage(`{"delta":{"content":"ANSWER"}}`, jsonUsage) + doneEvent, answered("", usage), Broken},
		// But one that was still growing, or that text outran, is a part of the bill.
		{"garbage while usage grows", withUsage(`{"delta":{"content":"ANSWER"}}`, jsonUsage) + "data: ?\n\n", Part{Content: testAnswer, AtLeast: usage}, Broken},
		{"usage before any text", withUsage("", `{"prompt_tokens":9,"completion_tokens":0}`) + "data: ?\n\n", Part{AtLeast: &price.Usage{Input: 9}}, Broken},
		{"cut after usage that text outran", withUsage("", `{"prompt_tokens":9,"completion_tokens":0}`) + textEvents,
			Part{Content: testAnswer, AtLeast: &price.Usage{Input: 9}}, Broken},
		// The answer failed, as the provider says: its usage may follow, nothing else.
		{"a finish reason that is a failure", textEvents + event(`"delta":{},"finish_reason":"error"`) + usageEvent + doneEvent, answered("", usage), Broken},
		{"a failure with usage", textEvents + withUsage(`{"delta":{},"finish_reason":"insufficient_system_resource"}`, jsonUsage), answered("", usage), Broken},
		{"a failure without usage", textEvents + event(`"delta":{},"finish_reason":"abort"`) + textEvents + finishEvent + doneEvent, answered("", nil), Broken},
		{"error in the choice", textEvents + event(`"delta":{"content":""},"finish_reason":"stop","error":{"message":"PROMPT","code":502}`) + usageEvent, answered("", usage), Broken},
		{"no DONE and no usage", textEvents + finishEvent, Part{Content: testAnswer, FinishReason: "stop"}, Broken},
		{"no DONE and no finish", textEvents + usageEvent, answered("", usage), Broken},
		{"not JSON", failing("ANSWER"), Part{Content: testAnswer}, Broken},
		{"cut JSON", failing(`{"choices":[{"delta":{"content":"ANSWER`), Part{Content: testAnswer}, Broken},
		{"error", failing(`{"error":{"message":"PROMPT","code":null,"type":"server_error"}}`), answered("", usage), Broken},
		{"error after all", textEvents + finishEvent + usageEvent + "data: {\"error\":\"PROMPT\"}\n\n" + doneEvent,
			Part{Content: testAnswer, FinishReason: "stop", Usage: usage}, Broken},
		{"line too long", textEvents + "data: " + strings.Repeat("a", maxEvent), Part{Content: testAnswer}, Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, calls := server(t, answerSSE(tt.body))
			got, err := call(t.Context(), t, client(t, url), request(true))
			if tt.failure != "" {
				wantFailure(t, err, tt.failure, 200)
			} else if err != io.EOF {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			check.Equal(t, calls.Load(), 1, "requests for one call")
		})
	}
}

func TestStatuses(t *testing.T) {
	envelope := `{"error":{"message":"Incorrect key sk-KEY for PROMPT","type":"invalid_request_error","code":"invalid_api_key"}}`
	for _, tt := range []struct {
		status  int
		body    string
		failure Failure
		text    string
	}{
		{400, envelope, Refused, "provider refused (status 400): code invalid_api_key"},
		{401, `{"error":{"code":null,"type":"auth"}}`, Refused, "provider refused (status 401): code auth"},
		{404, "<html>PROMPT</html>", Refused, "provider refused (status 404)"},
		{429, `{"error":{"code":"PROMPT in prose"}}`, Refused, "provider refused (status 429)"},
		{429, `{"error":{"code":429}}`, Refused, "provider refused (status 429): code 429"},
		{429, `[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}]`, Refused, "provider refused (status 429): code 429"},
		{429, `{"object":"error","message":"PROMPT","code":"busy"}`, Refused, "provider refused (status 429): code busy"},
		{500, "", Refused, "provider refused (status 500)"},
		{500, strings.Repeat(" ", maxLeftover) + envelope, Refused, "provider refused (status 500)"},
		{503, `{"error":"PROMPT"}`, Refused, "provider refused (status 503)"},
		{204, "", Broken, "provider broken (status 204): answer ended early"},
		{201, "", Broken, "provider broken (status 201): answer ended early"},
	} {
		for _, stream := range []bool{false, true} {
			url, calls := server(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(tt.status)
				if tt.body != "" {
					io.WriteString(w, tt.body)
				}
			})
			_, err := call(t.Context(), t, client(t, url), request(stream))
			wantFailure(t, err, tt.failure, tt.status)
			check.That(t, err != nil && err.Error() == tt.text, "%v, want %s", err, tt.text)
			check.Equal(t, calls.Load(), 1, "requests on status %d", tt.status)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	target, followed := server(t, answerJSON(wholeAnswer))
	for _, status := range []int{301, 302, 303, 307, 308} {
		url, calls := server(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, target+"/chat/completions", status)
		})
		_, err := call(t.Context(), t, clientWith(t, OpenAIConfig{BaseURL: url, HTTPClient: &http.Client{}}), request(false))
		wantFailure(t, err, Refused, status)
		_, err = call(t.Context(), t, client(t, url), request(false))
		wantFailure(t, err, Refused, status)
		check.That(t, calls.Load() == 2 && followed.Load() == 0, "status %d: %d requests for 2 calls, %d elsewhere", status, calls.Load(), followed.Load())
	}
}

func TestUnreachable(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	strange := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a server that is not trusted got the request")
	}))
	strange.Config.ErrorLog = log.New(io.Discard, "", 0)
	strange.StartTLS()
	defer strange.Close()
	plain, sent := server(t, func(http.ResponseWriter, *http.Request) {})

	dialling := func(dial func(ctx context.Context) error) *http.Client {
		return &http.Client{Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return nil, dial(ctx) },
		}}
	}
	for _, tt := range []struct {
		name, url string
		client    *http.Client
	}{
		{"nobody listens", closed.URL, nil},
		{"certificate of an unknown authority", strange.URL, nil},
		{"no TLS", strings.Replace(plain, "http:", "https:", 1), nil},
		{"no such name", "http://provider.test", dialling(func(context.Context) error {
			return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "provider.test", IsNotFound: true}}
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := call(t.Context(), t, clientWith(t, OpenAIConfig{BaseURL: tt.url, APIKey: testKey, HTTPClient: tt.client}), request(true))
			wantFailure(t, err, Unreachable, 0)
		})
	}
	t.Run("deadline while connecting", func(t *testing.T) {
		ctx := newDeadline(t)
		silent := dialling(func(dialCtx context.Context) error { ctx.pass(); <-dialCtx.Done(); return dialCtx.Err() })
		_, err := call(ctx, t, clientWith(t, OpenAIConfig{BaseURL: "http://provider.test", HTTPClient: silent}), request(true))
		wantFailure(t, err, Unreachable, 0)
		check.That(t, errors.Is(err, context.DeadlineExceeded), "%v hides its cause", err)
	})
	check.Equal(t, sent.Load(), 0, "requests were sent")
}

// Whatever goes wrong once there is a connection may have been billed.
func TestConnectionLost(t *testing.T) {
	for name, answer := range map[string]string{
		"no answer":       "",
		"not HTTP":        testAnswer + "\r\n\r\n",
		"bad header":      "HTTP/1.1 200 OK\r\n" + testAnswer + "\r\n\r\n",
		"cut header":      "HTTP/1.1 200 OK\r\nContent-Type: text/",
		"huge header":     "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 1<<20),
		"cut body":        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + wholeAnswer[:50],
		"bad chunk":       "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + testAnswer,
		"switched":        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"bad redirection": "HTTP/1.1 302 Found\r\nLocation: http://%zzANSWER\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url, calls := server(t, func(w http.ResponseWriter, r *http.Request) {
				io.ReadAll(r.Body)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.WriteString(conn, answer)
			})
			_, err := call(t.Context(), t, client(t, url), request(false))
			var e *Error
			check.That(t, errors.As(err, &e) && e.Failure == Broken && e.Billed(), "got %v, want %s", err, Broken)
			check.Equal(t, calls.Load(), 1, "requests for one call")
		})
	}
}

// hang answers with head, then nothing until the client is gone.
func hang(head http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		head(w, r)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// deadline is a context whose deadline passes when a test says so.
type deadline struct {
	context.Context
	passed chan struct{}
}

func newDeadline(t *testing.T) deadline { return deadline{t.Context(), make(chan struct{})} }

func (d deadline) pass() { close(d.passed) }

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// passing is a client in which the deadline passes when n bytes of the answer
// have been read and more are asked for.
func (d deadline) passing(n int) *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			resp.Body = &passingBody{resp.Body, d, n}
		}
		return resp, err
	})}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type passingBody struct {
	io.ReadCloser
	deadline deadline
	left     int
}

func (b *passingBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.deadline.pass()
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= n
	return n, err
}

func TestDeadlineBeforeTheHead(t *testing.T) {
	ctx := newDeadline(t)
	url, calls := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		ctx.pass()
		<-r.Context().Done()
	})
	_, err := call(ctx, t, client(t, url), request(true))
	wantFailure(t, err, Timeout, 0)
	check.That(t, errors.Is(err, context.DeadlineExceeded) && calls.Load() == 1, "%v, %d requests", err, calls.Load())
}

func TestDeadlineInAnAnswer(t *testing.T) {
	usage := &price.Usage{Input: 9, Output: 5}
	for _, tt := range []struct {
		name   string
		answer func(string) http.HandlerFunc
		sent   string
		want   Part
	}{
		{"half a JSON", answerJSON, wholeAnswer[:100], Part{}},
		{"no event", answerSSE, "", Part{}},
		{"some events", answerSSE, textEvents, Part{Content: testAnswer}},
		{"half an event", answerSSE, textEvents + "data: {", Part{Content: testAnswer}},
		{"no usage", answerSSE, textEvents + finishEvent, Part{Content: testAnswer, FinishReason: "stop"}},
		// Time ran out while the model may have gone on.
		{"usage that grows", answerSSE, strings.Replace(textEvents, `"usage":null`, `"usage":`+jsonUsage, 2), Part{Content: testAnswer, AtLeast: usage}},
		{"usage and no finish", answerSSE, textEvents + usageEvent, answered("", usage)},
		{"all but DONE", answerSSE, textEvents + finishEvent + usageEvent,
			Part{Content: testAnswer, FinishReason: "stop", Usage: usage}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := newDeadline(t)
			url, _ := server(t, hang(tt.answer(tt.sent)))
			o := clientWith(t, OpenAIConfig{BaseURL: url, HTTPClient: ctx.passing(len(tt.sent))})
			got, err := call(ctx, t, o, request(true))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if tt.want.Usage == nil || tt.want.FinishReason == "" {
				wantFailure(t, err, Timeout, 200)
			} else if err != io.EOF {
				t.Error(err)
			}
		})
	}
}

func TestTimeLimitOfTheClient(t *testing.T) {
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		<-r.Context().Done()
	})
	o := clientWith(t, OpenAIConfig{BaseURL: url, HTTPClient: &http.Client{Timeout: 200 * time.Millisecond}})
	_, err := call(t.Context(), t, o, request(true))
	wantFailure(t, err, Timeout, 0)
}

// What is left of a body when all that matters is known holds nobody up.
func TestLeftoversAreNotWaitedFor(t *testing.T) {
	for name, head := range map[string]http.HandlerFunc{
		"error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, "{")
		},
		"after DONE": answerSSE(stream1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := server(t, hang(head))
			start := time.Now()
			got, err := call(t.Context(), t, client(t, url), request(true))
			took := time.Since(start)
			check.That(t, took <= 10*briefly, "took %v", took)
			if name == "error" {
				wantFailure(t, err, Refused, 500)
			} else if err != io.EOF || got.Usage == nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	url, _ := server(t, hang(answerSSE(textEvents)))
	ctx, cancel := context.WithCancelCause(t.Context())
	a, err := client(t, url).Call(ctx, request(true))
	check.OK(t, err)
	defer a.Close()
	for _, want := range []string{"ANS", "WER"} {
		if p, err := a.Next(); err != nil || p.Content != want {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	cancel(errors.New(testPrompt))
	_, err = a.Next()
	wantSafe(t, err)
	wantFailure(t, err, Cancelled, 200)
}

func TestCancelledBeforeTheHead(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		cancel()
		<-r.Context().Done()
	})
	_, err := call(ctx, t, client(t, url), request(true))
	wantFailure(t, err, Cancelled, 0)
}

func TestCloseLeavesTheProvider(t *testing.T) {
	left := make(chan struct{})
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		hang(answerSSE(textEvents))(w, r)
		close(left)
	})
	a, err := client(t, url).Call(t.Context(), request(true))
	check.OK(t, err)
	if _, err := a.Next(); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.Close()
	<-left
	_, err = a.Next() // although another part has arrived
	wantFailure(t, err, Cancelled, 200)
}

// The bounds hold for what is decoded: a few kilobytes here become gigabytes.
func TestCompressionBombs(t *testing.T) {
	filler := strings.Repeat(" ", 1<<14)
	for _, contentType := range []string{"application/json", "text/event-stream"} {
		url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for {
				if _, err := io.WriteString(z, filler); err != nil {
					return
				}
			}
		})
		zipping := &http.Transport{} // which asks for gzip
		defer zipping.CloseIdleConnections()
		_, err := call(t.Context(), t, clientWith(t, OpenAIConfig{BaseURL: url, HTTPClient: &http.Client{Transport: zipping}}), request(true))
		wantFailure(t, err, Broken, 200)
		check.That(t, errors.Is(err, errTooLarge), "got %v, want %v", err, errTooLarge)
	}
}

func TestParseUsage(t *testing.T) {
	for _, tt := range []struct {
		name, usage string
		want        *price.Usage
	}{
		{"plain", jsonUsage, &price.Usage{Input: 9, Output: 5}},
		{"no total", `{"prompt_tokens":9,"completion_tokens":5}`, &price.Usage{Input: 9, Output: 5}},
		{"all kinds", `{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150,` +
			`"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30,"audio_tokens":0},` +
			`"completion_tokens_details":{"reasoning_tokens":40,"audio_tokens":0}}`,
			&price.Usage{Input: 100, CachedInput: 60, CacheWrite: 30, Output: 50, Reasoning: 40}},
		{"details null", `{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":null,"completion_tokens_details":null}`,
			&price.Usage{Input: 9, Output: 5}},
		{"cached null", `{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":null}}`,
			&price.Usage{Input: 9, Output: 5}},
		{"cache write of Qwen", `{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cache_creation_input_tokens":8}}`,
			&price.Usage{Input: 9, CacheWrite: 8, Output: 5}},
		{"cache write of LiteLLM", `{"prompt_tokens":9,"completion_tokens":5,"cache_creation_input_tokens":8}`,
			&price.Usage{Input: 9, CacheWrite: 8, Output: 5}},
		{"reasoning beside the completion", `{"prompt_tokens":32,"completion_tokens":9,"total_tokens":135,"completion_tokens_details":{"reasoning_tokens":94}}`,
			&price.Usage{Input: 32, Output: 103, Reasoning: 94}},
		{"reasoning hidden in the total", `{"prompt_tokens":12,"completion_tokens":2,"total_tokens":331}`,
			&price.Usage{Input: 12, Output: 319}},
		{"total too small", `{"prompt_tokens":9,"completion_tokens":5,"total_tokens":3}`, &price.Usage{Input: 9, Output: 5}},
		{"null", "null", nil},
		{"none", "", nil},
		{"empty", "{}", nil},
		{"a list", "[]", nil},
		{"zeros", `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`, nil},
		{"no input", `{"completion_tokens":5}`, nil},
		{"no output for text", `{"prompt_tokens":9,"completion_tokens":0,"total_tokens":9}`, nil},
		{"negative input", `{"prompt_tokens":-9,"completion_tokens":5}`, nil},
		{"negative output", `{"prompt_tokens":9,"completion_tokens":-5,"total_tokens":14}`, nil},
		{"negative cached", `{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}`, nil},
		{"more cached than input", `{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":10}}`, nil},
		{"more reasoning than output", `{"prompt_tokens":9,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":6}}`, nil},
		{"absurd", `{"prompt_tokens":9,"completion_tokens":9007199254740993}`, nil},
		{"absurd total", `{"prompt_tokens":-9223372036854775808,"completion_tokens":1,"total_tokens":9223372036854775807}`, nil},
		{"negative total", `{"prompt_tokens":9,"completion_tokens":5,"total_tokens":-9223372036854775808}`, nil},
		{"total of -1", `{"prompt_tokens":9,"completion_tokens":5,"total_tokens":-1}`, nil},
		{"two near 2^63", `{"prompt_tokens":9223372036854775807,"completion_tokens":9223372036854775807,"total_tokens":9223372036854775807}`, nil},
		{"two near 2^63 of a cache", `{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":9223372036854775807,"cache_write_tokens":9223372036854775807}}`, nil},
		{"fractions", `{"prompt_tokens":9.5,"completion_tokens":5}`, nil},
		{"text", `{"prompt_tokens":"9","completion_tokens":5}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, readUsage(tt.usage, true)); diff != "" {
				t.Error(diff)
			}
		})
	}
	silent := readUsage(`{"prompt_tokens":9,"completion_tokens":0}`, false)
	if diff := cmp.Diff(&price.Usage{Input: 9}, silent); diff != "" {
		t.Error(diff)
	}
}

// checkReason holds the finish reasons of p to the words that they may be.
func checkReason(t *testing.T, p Part) {
	t.Helper()
	if r := p.FinishReason; r != "" && r != stopped && r != cutShort && r != toolCalls && r != filtered || p.UnknownReason != "" && (!isReason(p.UnknownReason) || r != stopped) {
		t.Fatalf("finish reason %q, in its own word %q", r, p.UnknownReason)
	}
}

// readUsage reads a usage object as an answer has it, with text or without.
func readUsage(usage string, text bool) *price.Usage {
	var c completion
	if usage != "" && c.parse([]byte(`{"usage":`+usage+`}`)) != nil {
		return nil
	}
	return c.usage(nil, text)
}

func FuzzAnswer(f *testing.F) {
	f.Add(wholeAnswer)
	for _, s := range strings.Split(stream1, "\n\n") {
		f.Add(strings.TrimPrefix(s, "data: "))
	}
	for _, r := range recordings(f, "servers") {
		f.Add(r.body)
	}
	f.Add(`{"error":{"code":"x","type":[]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		checkPart := func(p Part, err error) {
			var wire wireError
			var said saidFailure
			check.Must(t, err == nil || errors.As(err, &wire) || errors.As(err, &said), "unsafe failure %v", err)
			check.Must(t, err == nil || p.FinishReason == "", "%v with finish reason %s", err, p.FinishReason)
			if p.AtLeast != nil && (!p.AtLeast.Valid() || p.AtLeast.Input == 0) {
				t.Fatalf("at least %+v", *p.AtLeast)
			}
			if p.Usage != nil && (!p.Usage.Valid() || p.Usage.Input == 0) {
				t.Fatalf("usage %+v", *p.Usage)
			}
			checkReason(t, p)
		}
		p, err := parseCompletionWhole([]byte(body))
		checkPart(p, err)
		check.Must(t, err != nil || p.FinishReason != "", "a whole answer without a finish reason")
		var c completionChunks
		for range 2 {
			checkPart(c.read([]byte(body)))
		}
		errorCode([]byte(body))
	})
}

func ExampleOpenAI() {
	s := httptest.NewServer(answerSSE(stream1))
	defer s.Close()
	o, err := NewOpenAI(OpenAIConfig{BaseURL: s.URL})
	if err != nil {
		panic(err)
	}
	answer, err := o.Call(context.Background(), request(true))
	if err != nil {
		panic(err)
	}
	defer answer.Close()
	for {
		part, err := answer.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(err)
		}
		fmt.Print(part.Content)
		if part.Usage != nil {
			fmt.Printf(" (%d tokens)", part.Usage.Total())
		}
	}
	// Output: ANSWER (14 tokens)
}
