package upstream

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func serve(t *testing.T, options Options) (*Upstream, string) {
	t.Helper()
	options.Now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	u := New(options)
	s := httptest.NewServer(u)
	t.Cleanup(s.Close)
	return u, s.URL
}

func client(t *testing.T, url string) *provider.OpenAI {
	t.Helper()
	o, err := provider.NewOpenAI(provider.OpenAIConfig{BaseURL: url + "/v1"})
	check.OK(t, err)
	return o
}

func request1(text string, most int, stream bool) provider.Request {
	return provider.Request{
		Model:           "small",
		Messages:        []openai.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: text}},
		MaxOutputTokens: most,
		MaxTokensField:  "max_tokens",
		Stream:          stream,
	}
}

// result is an answer as a caller sees it.
type result struct {
	text, finish string
	parts        int // with text
	usage        *price.Usage
	err          error // nil if it ended properly
}

func call(ctx context.Context, t *testing.T, o *provider.OpenAI, req provider.Request) (r result) {
	t.Helper()
	a, err := o.Call(ctx, req)
	if err != nil {
		return result{err: err}
	}
	defer a.Close()
	for {
		p, err := a.Next()
		if err == io.EOF {
			return r
		}
		if err != nil {
			r.err = err
			return r
		}
		r.text += p.Content
		r.finish += p.FinishReason
		if p.Content != "" {
			r.parts++
		}
		if p.Usage != nil {
			r.usage = p.Usage
		}
	}
}

func failure(err error) provider.Failure {
	var e *provider.Error
	if errors.As(err, &e) {
		return e.Failure
	}
	return ""
}

func tokenizer(t *testing.T) *tokens.Tokenizer {
	t.Helper()
	tokenizer, err := tokens.New("o200k_base")
	check.OK(t, err)
	return tokenizer
}

func promptTokens(t *testing.T, req provider.Request) int64 {
	t.Helper()
	o200k := tokenizer(t)
	n := o200k.PerReply()
	for _, m := range req.Messages {
		n += o200k.PerMessage() + o200k.Count(m.Content)
	}
	return int64(n)
}

func messages(req provider.Request) (list []Message) {
	for _, m := range req.Messages {
		list = append(list, Message{m.Role, m.Content})
	}
	return list
}

func post(t *testing.T, url, body string) (status int, header http.Header, answer string) {
	t.Helper()
	return postTo(t, url+"/v1/chat/completions", body)
}

func postTo(t *testing.T, url, body string) (status int, header http.Header, answer string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	check.OK(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	check.OK(t, err)
	return resp.StatusCode, resp.Header, string(b)
}

func TestOnTheWire(t *testing.T) {
	_, url := serve(t, Options{})
	const (
		input = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2`
		head  = `"created":1700000000,"model":"m","choices":[`
		usage = `{"prompt_tokens":8,"completion_tokens":2,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`
	)
	events := func(null string) string {
		const delta = `{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}`
		var b strings.Builder
		for _, choice := range []string{
			fmt.Sprintf(delta, `{"role":"assistant","content":""}`, "null"),
			fmt.Sprintf(delta, `{"content":"This"}`, "null"),
			fmt.Sprintf(delta, `{"content":" is"}`, "null"),
			fmt.Sprintf(delta, `{}`, `"length"`),
		} {
			fmt.Fprintf(&b, `data: {"id":"ID","object":"chat.completion.chunk",%s%s]%s}`+"\n\n", head, choice, null)
		}
		return b.String()
	}
	for _, tt := range []struct{ name, body, contentType, want string }{
		{"whole", input + "}", "application/json",
			`{"id":"ID","object":"chat.completion",` + head +
				`{"index":0,"message":{"role":"assistant","content":"This is"},"logprobs":null,"finish_reason":"length"}],"usage":` + usage + `}`},
		{"stream", input + `,"stream":true}`, "text/event-stream; charset=utf-8",
			events("") + "data: [DONE]\n\n"},
		{"stream with usage", input + `,"stream":true,"stream_options":{"include_usage":true}}`, "text/event-stream; charset=utf-8",
			events(`,"usage":null`) +
				`data: {"id":"ID","object":"chat.completion.chunk",` + head + `],"usage":` + usage + "}\n\ndata: [DONE]\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, header, got := post(t, url, tt.body)
			check.That(t, status == 200 && header.Get("Content-Type") == tt.contentType, "status %d, %s", status, header.Get("Content-Type"))
			digest := sha256.Sum256([]byte(tt.body))
			id := fmt.Sprintf("chatcmpl-%x", digest[:12])
			if diff := cmp.Diff(strings.ReplaceAll(tt.want, "ID", id), got); diff != "" {
				t.Error(diff)
			}
			if _, _, again := post(t, url, tt.body); again != got {
				t.Error("not the same the second time")
			}
		})
	}
}

func TestRequestsAreChecked(t *testing.T) {
	u, url := serve(t, Options{})
	with := func(fields string) string {
		return `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9` + fields + `}`
	}
	const messages = `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct{ body, param, code string }{
		{"", "", "invalid_json"},
		{"[]", "", "invalid_json"},
		{with("") + "{}", "", "invalid_json"},
		{`{` + messages + `,"max_tokens":9}`, "model", "missing_required_parameter"},
		{`{"model":"m","max_tokens":9}`, "messages", "missing_required_parameter"},
		{`{"model":"m","messages":[],"max_tokens":9}`, "messages", "missing_required_parameter"},
		{`{"model":"m",` + messages + `}`, "max_tokens", "invalid_value"},
		{`{"model":"m",` + messages + `,"max_tokens":null}`, "max_tokens", "invalid_value"},
		{`{"model":"m",` + messages + `,"max_tokens":0}`, "max_tokens", "invalid_value"},
		{`{"model":"m",` + messages + `,"max_completion_tokens":-1}`, "max_tokens", "invalid_value"},
		{`{"model":"m",` + messages + `,"max_tokens":131073}`, "max_tokens", "invalid_value"},
		{`{"model":"m",` + messages + `,"max_tokens":"9"}`, "max_tokens", "invalid_type"},
		{`{"model":"m",` + messages + `,"max_tokens":9.5}`, "max_tokens", "invalid_type"},
		{`{"model":"m",` + messages + `,"MAX_TOKENS":9}`, "MAX_TOKENS", "unknown_parameter"},
		{with(`,"max_completion_tokens":9`), "max_tokens", "invalid_value"},
		{with(`,"n":2`), "n", "unknown_parameter"},
		{with(`,"tools":[]`), "tools", "empty_array"},
		{with(`,"stream_options":{"include_usage":true}`), "stream_options", "invalid_value"},
		{with(`,"stream":false,"stream_options":{"include_usage":true}`), "stream_options", "invalid_value"},
		{with(`,"stream":true,"stream_options":{"x":true}`), "", "invalid_value"},
		{with(`,"temperature":2.1`), "temperature", "invalid_value"},
		{with(`,"top_p":-0.1`), "top_p", "invalid_value"},
		{with(`,"presence_penalty":-3`), "presence_penalty", "invalid_value"},
		{with(`,"frequency_penalty":3`), "frequency_penalty", "invalid_value"},
		{with(`,"seed":0.5`), "seed", "invalid_type"},
		{with(`,"stop":["a","b","c","d","e"]`), "stop", "invalid_value"},
		{with(`,"reasoning_effort":"most"`), "reasoning_effort", "invalid_value"},
		{with(`,"response_format":{"type":"xml"}`), "response_format.type", "invalid_value"},
		{with(`,"response_format":{"type":"json_schema"}`), "response_format.json_schema", "invalid_value"},
		{with(`,"response_format":{"type":"text","json_schema":{}}`), "response_format.json_schema", "invalid_value"},
		{with(`,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"colour"}}}`), "response_format", "invalid_json_schema"},
		{`{"model":"m","messages":[{"role":"function","content":"hi"}],"max_tokens":9}`, "messages[0].role", "invalid_value"},
		{`{"model":"m","messages":[{"role":"tool","content":"hi"}],"max_tokens":9}`, "messages[0].tool_call_id", "missing_required_parameter"},
		{`{"model":"m","messages":[{"role":"user"}],"max_tokens":9}`, "messages[0].content", "missing_required_parameter"},
		{`{"model":"m","messages":[{"role":"user","content":[]}],"max_tokens":9}`, "messages[0].content", "empty_array"},
		{`{"model":"m","messages":[{"role":"user","content":"hi","name":"x"}],"max_tokens":9}`, "", "invalid_value"},
	} {
		status, _, answer := post(t, url, tt.body)
		param := "null"
		if tt.param != "" {
			param = `"` + tt.param + `"`
		}
		rest := fmt.Sprintf(`"type":"invalid_request_error","param":%s,"code":%q}}`, param, tt.code)
		check.That(t, status == 400 && strings.HasPrefix(answer, `{"error":{"message":"`) && strings.HasSuffix(answer, rest),
			"%s: status %d, %s", tt.body, status, answer)
	}
	if calls, usage := u.Totals(); calls != 0 || usage != (price.Usage{}) || len(u.Calls()) != 0 {
		t.Errorf("invalid requests are logged: %d, %+v", calls, usage)
	}
	for _, body := range []string{
		with(`,"temperature":2,"top_p":0,"presence_penalty":-2,"frequency_penalty":2,"seed":-5,"stop":["a","b","c","d"]`),
		with(`,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}`),
		with(`,"response_format":{"type":"json_object"},"temperature":null`),
		`{"model":"m","messages":[{"role":"developer","content":""},{"role":"assistant","content":""}],"max_completion_tokens":131072}`,
	} {
		if status, _, answer := post(t, url, body); status != 200 {
			t.Errorf("%s: status %d, %s", body, status, answer)
		}
	}
}

func TestRoutes(t *testing.T) {
	u := New(Options{})
	const valid = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9}`
	for _, tt := range []struct {
		method, path, contentType, body string
		status                          int
		part                            string
	}{
		{"POST", "/chat/completions", "application/json", valid, 200, `"chat.completion"`},
		{"POST", "/any/base/v1/chat/completions", "application/json; charset=utf-8", valid, 200, `"chat.completion"`},
		{"GET", "/v1/models", "", "", 200, `{"object":"list","data":[{"id":"built-in","object":"model","created":0,"owned_by":"tokenfuse"}]}`},
		{"GET", "/v1/chat/completions", "", "", 405, "method_not_allowed"},
		{"POST", "/v1/models", "application/json", valid, 405, "method_not_allowed"},
		{"GET", "/v1/embeddings", "", "", 405, "method_not_allowed"},
		{"POST", "/v1/responses", "application/json", valid, 404, "not_found"},
		{"POST", "/v1/chat/completions", "text/plain", valid, 415, "unsupported_media_type"},
		{"POST", "/v1/chat/completions", "", valid, 415, "unsupported_media_type"},
		{"POST", "/v1/chat/completions", "application/json", strings.Repeat(" ", maxBody) + valid, 413, "body_too_large"},
	} {
		r := httptest.NewRequest(tt.method, tt.path, strings.NewReader(tt.body))
		if tt.contentType != "" {
			r.Header.Set("Content-Type", tt.contentType)
		}
		w := httptest.NewRecorder()
		u.ServeHTTP(w, r)
		check.That(t, w.Code == tt.status && strings.Contains(w.Body.String(), tt.part), "%s %s: status %d, %s", tt.method, tt.path, w.Code, w.Body)
	}
}

// Every token of an answer is one token of o200k_base, and stays one in front of
// any other.
func TestAnswersAreCountedExactly(t *testing.T) {
	o200k := tokenizer(t)
	_, url := serve(t, Options{})
	o := client(t, url)
	all := call(t.Context(), t, o, request1("hi", 999, true))
	check.Must(t, all.err == nil && all.finish == "stop", "%+v", all)
	for _, text := range []string{"hi", "[[long]]"} {
		for most := 1; most <= 150; most++ {
			req := request1(text, most, most%2 == 0)
			got := call(t.Context(), t, o, req)
			want := most
			finish := "length"
			if text == "hi" && most >= int(all.usage.Output) {
				want, finish = int(all.usage.Output), "stop"
			}
			if got.err != nil || got.finish != finish || got.usage == nil || o200k.Count(got.text) != want ||
				*got.usage != (price.Usage{Input: promptTokens(t, req), Output: int64(want)}) {
				t.Fatalf("%s, cap %d: %+v with %+v, %d tokens", text, most, got, got.usage, o200k.Count(got.text))
			}
			check.Must(t, !req.Stream || got.parts == want, "%s, cap %d: %d parts", text, most, got.parts)
		}
	}
	got := call(t.Context(), t, o, request1("[[long]]", maxOutput, false))
	n := o200k.Count(got.text)
	check.That(t, n == maxOutput && got.usage.Output == maxOutput, "the longest answer has %d tokens, billed %+v", n, got.usage)
	for i := range 1000 {
		text := fmt.Sprint(i)
		check.That(t, o200k.Count(text) == 1, "%s is not one token", text)
	}
}

func TestMarkers(t *testing.T) {
	const most = 40 // fewer than the answer has
	for _, tt := range []struct {
		text   string
		stream bool
		want   provider.Failure
		status int
		parts  int         // with text
		usage  price.Usage // as told to the client, less Input; zero for none
		billed price.Usage // less Input; Output -1 for nothing at all
	}{
		{"[[fail:500]]", false, provider.Refused, 500, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:500]]", true, provider.Refused, 500, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:429]]", false, provider.Refused, 429, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:429]]", true, provider.Refused, 429, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:503]]", true, provider.Refused, 503, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:408]]", true, provider.Failed, 408, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:400]] [[billed]]", false, provider.Refused, 400, 0, price.Usage{}, price.Usage{Output: 40}},
		{"[[fail:504]] [[billed]] [[cached:3]]", true, provider.Failed, 504, 0, price.Usage{}, price.Usage{Output: 40, CachedInput: 3}},
		{"[[fail:error]]", false, provider.Broken, 200, 1, price.Usage{Output: 20}, price.Usage{Output: 20}},
		{"[[fail:error]]", true, provider.Broken, 200, 20, price.Usage{Output: 20}, price.Usage{Output: 20}},
		{"[[fail:nofinish]]", false, "", 200, 1, price.Usage{Output: 40}, price.Usage{Output: 40}},
		{"[[fail:nofinish]]", true, provider.Broken, 200, 40, price.Usage{Output: 40}, price.Usage{Output: 40}},
		{"[[over:90]]", true, "", 200, 90, price.Usage{Output: 90}, price.Usage{Output: 90}},
		{"[[over:90]]", false, "", 200, 1, price.Usage{Output: 90}, price.Usage{Output: 90}},
		{"[[usage:7]]", true, "", 200, 40, price.Usage{Output: 7}, price.Usage{Output: 40}},
		{"[[usage:2000000]]", false, "", 200, 1, price.Usage{Output: 2_000_000}, price.Usage{Output: 40}},
		{"[[fail:cut]]", false, provider.Broken, 200, 0, price.Usage{}, price.Usage{Output: 40}},
		{"[[fail:cut]]", true, provider.Broken, 200, 20, price.Usage{}, price.Usage{Output: 20}},
		{"[[fail:cut]] [[reasoning:37]]", true, provider.Broken, 200, 3, price.Usage{}, price.Usage{Output: 40, Reasoning: 37}},
		{"[[fail:cut]] [[reasoning:36]]", true, provider.Broken, 200, 3, price.Usage{}, price.Usage{Output: 39, Reasoning: 36}},
		{"[[fail:cut]] [[reasoning:38]]", true, provider.Broken, 200, 2, price.Usage{}, price.Usage{Output: 40, Reasoning: 38}},
		{"[[fail:nousage]]", false, "", 200, 1, price.Usage{}, price.Usage{Output: 40}},
		{"[[fail:nousage]]", true, "", 200, 40, price.Usage{}, price.Usage{Output: 40}},
		{"[[fail:empty]]", false, provider.Broken, 200, 0, price.Usage{}, price.Usage{}},
		{"[[fail:empty]]", true, provider.Broken, 200, 0, price.Usage{}, price.Usage{}},
		{"before [[cached:5]] after", false, "", 200, 1, price.Usage{Output: 40, CachedInput: 5}, price.Usage{Output: 40, CachedInput: 5}},
		{"[[reasoning:30]]", true, "", 200, 10, price.Usage{Output: 40, Reasoning: 30}, price.Usage{Output: 40, Reasoning: 30}},
		{"[[reasoning:30]]", false, "", 200, 1, price.Usage{Output: 40, Reasoning: 30}, price.Usage{Output: 40, Reasoning: 30}},
		{"[[reasoning:999999999]]", true, "", 200, 0, price.Usage{Output: 40, Reasoning: 40}, price.Usage{Output: 40, Reasoning: 40}},
		{"[[long]][[cached:1]][[reasoning:2]]", true, "", 200, 38, price.Usage{Output: 40, CachedInput: 1, Reasoning: 2},
			price.Usage{Output: 40, CachedInput: 1, Reasoning: 2}},
		{"[[fail:cut]][[fail:500]]", true, provider.Refused, 500, 0, price.Usage{}, price.Usage{Output: -1}},
		{"[[fail:teapot]] [fail:500] [[FAIL:500]] [[cached:-1]]", true, "", 200, 40, price.Usage{Output: 40}, price.Usage{Output: 40}},
	} {
		t.Run(fmt.Sprintf("%s,stream=%t", tt.text, tt.stream), func(t *testing.T) {
			u, url := serve(t, Options{})
			req := request1(tt.text, most, tt.stream)
			input := promptTokens(t, req)
			got := call(t.Context(), t, client(t, url), req)
			f := failure(got.err)
			check.That(t, f == tt.want && got.parts == tt.parts, "%v, %d parts", got.err, got.parts)
			if tt.usage == (price.Usage{}) {
				check.That(t, got.usage == nil, "usage %+v", got.usage)
			} else {
				tt.usage.Input = input
				if diff := cmp.Diff(&tt.usage, got.usage); diff != "" {
					t.Error(diff)
				}
			}
			if tt.billed.Output < 0 {
				tt.billed.Output = 0
			} else {
				tt.billed.Input = input
			}
			want := Call{
				Model: "small", Messages: messages(req), MaxOutputTokens: most, MaxTokensField: "max_tokens", Stream: tt.stream,
				PromptTokens: int(input), Status: tt.status, Billed: tt.billed,
			}
			calls := u.Calls()
			calls[0].Body = nil
			if diff := cmp.Diff([]Call{want}, calls); diff != "" {
				t.Error(diff)
			}
			if calls, usage := u.Totals(); calls != 1 || usage != tt.billed {
				t.Errorf("totals %d, %+v", calls, usage)
			}
		})
	}
}

func TestOnlyTheLastUserMessageHasMarkers(t *testing.T) {
	_, url := serve(t, Options{})
	req := request1("[[fail:500]]", 100, false)
	req.Messages = append(req.Messages, openai.Message{Role: "user", Content: "hi"}, openai.Message{Role: "assistant", Content: "[[fail:500]]"})
	if got := call(t.Context(), t, client(t, url), req); got.err != nil {
		t.Error(got.err)
	}
	req.Messages[1], req.Messages[2] = req.Messages[2], req.Messages[1]
	if got := call(t.Context(), t, client(t, url), req); failure(got.err) != provider.Refused {
		t.Error(got.err)
	}
}

func TestNoMoreIsCachedThanSent(t *testing.T) {
	_, url := serve(t, Options{})
	got := call(t.Context(), t, client(t, url), request1("[[cached:999999999]]", 100, false))
	check.That(t, got.usage != nil && got.usage.CachedInput == got.usage.Input, "%+v", got.usage)
}

func TestErrorsOnTheWire(t *testing.T) {
	_, url := serve(t, Options{})
	for marker, want := range map[string]string{
		"500": `500 "" {"error":{"message":"The server had an error while processing your request.","type":"server_error","param":null,"code":"server_error"}}`,
		"413": `413 "" {"error":{"message":"The request was made to fail.","type":"invalid_request_error","param":null,"code":"made_to_fail"}}`,
		"524": `524 "" {"error":{"message":"The request was made to fail.","type":"server_error","param":null,"code":"made_to_fail"}}`,
		"429": `429 "1" {"error":{"message":"Rate limit reached. Please try again in 1s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`,
	} {
		status, header, answer := post(t, url, `{"model":"m","messages":[{"role":"user","content":"[[fail:`+marker+`]]"}],"max_tokens":9}`)
		if got := fmt.Sprintf("%d %q %s", status, header.Get("Retry-After"), answer); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// Reasoning is spent as it is asked for, within the cap, and shown only to who asks.
func TestReasoning(t *testing.T) {
	o200k := tokenizer(t)
	for _, tt := range []struct {
		text, effort string
		most         int
		want         int64
	}{
		{"hi", "", 900, 0},
		{"hi", "none", 900, 0},
		{"hi", "minimal", 900, 0},
		{"hi", "low", 900, 8},
		{"hi", "medium", 900, 32},
		{"hi", "high", 900, 128},
		{"hi", "xhigh", 900, 512},
		{"hi", "high", 100, 100},
		{"[[reasoning:5]]", "high", 900, 5},
		{"[[reasoning:0]]", "high", 900, 0},
		{"[[think]]", "", 900, 8},
		{"[[think]]", "none", 900, 0},
		{"[[think]]", "medium", 900, 32},
		{"[[think]][[reasoning:20]]", "", 15, 15},
	} {
		for _, stream := range []bool{false, true} {
			u, url := serve(t, Options{})
			fields := fmt.Sprintf(`"max_tokens":%d,"messages":[{"role":"user","content":%q}]`, tt.most, tt.text)
			if tt.effort != "" {
				fields += `,"reasoning_effort":"` + tt.effort + `"`
			}
			got := complete(t, url, fields, stream)
			_, billed := u.Totals()
			check.Equal(t, billed, price.Usage{Input: got.input, Output: got.output, Reasoning: tt.want}, "%+v", tt)
			check.That(t, got.output == tt.want+int64(o200k.Count(got.text)) && (got.text == "") == (tt.want == int64(tt.most)), "%+v: %+v", tt, got)
			shown := int64(0)
			if strings.Contains(tt.text, "think") {
				shown = tt.want
			}
			check.That(t, int64(o200k.Count(got.thoughts)) == shown && (!stream || int64(got.thoughtParts) == shown), "%+v: thought %q in %d parts", tt, got.thoughts, got.thoughtParts)
		}
	}
}

// A client that leaves ends the call, wherever it stands, and pays for what was
// made until then.
func TestTheClientLeaves(t *testing.T) {
	const never = time.Hour
	for _, tt := range []struct {
		name, text string
		options    Options
		stream     bool
	}{
		{"no answer", "[[fail:timeout]]", Options{}, false},
		{"no answer to a stream", "[[fail:timeout]]", Options{}, true},
		{"before the first token", "hi", Options{FirstToken: never}, true},
		{"between tokens", "hi", Options{PerToken: never}, true},
		{"between tokens that are not seen", "hi", Options{PerToken: never}, false},
		{"while reasoning", "[[reasoning:9]]", Options{PerToken: never}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := New(tt.options)
			read, ended := make(chan struct{}), make(chan struct{})
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Body = &readThrough{r.Body, read}
				u.ServeHTTP(w, r)
				close(ended)
			}))
			defer s.Close()
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-read
				cancel()
			}()
			req := request1(tt.text, 100, tt.stream)
			if got := call(ctx, t, client(t, s.URL), req); failure(got.err) != provider.Cancelled {
				t.Error(got.err)
			}
			<-ended
			if calls, usage := u.Totals(); calls != 1 || usage != (price.Usage{Input: promptTokens(t, req)}) {
				t.Errorf("%d calls, billed %+v", calls, usage)
			}
		})
	}
}

// A stalled stream has told half of its tokens, and bills them.
func TestStall(t *testing.T) {
	u, url := serve(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	req := request1("[[fail:stall]]", 40, true)
	a, err := client(t, url).Call(ctx, req)
	check.OK(t, err)
	defer a.Close()
	for range 20 {
		if p, err := a.Next(); err != nil || p.Content == "" {
			t.Fatalf("%+v, %v", p, err)
		}
	}
	time.AfterFunc(50*time.Millisecond, cancel) // nothing more comes until then
	if p, err := a.Next(); failure(err) != provider.Cancelled {
		t.Errorf("%+v, %v", p, err)
	}
	if _, usage := u.Totals(); usage != (price.Usage{Input: promptTokens(t, req), Output: 20}) {
		t.Errorf("billed %+v", usage)
	}
}

// readThrough tells when a body was read to its end.
type readThrough struct {
	io.ReadCloser
	done chan<- struct{}
}

func (b *readThrough) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		close(b.done)
	}
	return n, err
}

func TestPace(t *testing.T) {
	const first, each = 30 * time.Millisecond, 2 * time.Millisecond
	_, url := serve(t, Options{FirstToken: first, PerToken: each})
	for _, stream := range []bool{false, true} {
		start := time.Now()
		got := call(t.Context(), t, client(t, url), request1("[[reasoning:4]]", 10, stream))
		took := time.Since(start)
		check.That(t, got.err == nil && took >= first+10*each, "took %v: %v", took, got.err)
	}
}

func TestTheLogIsBounded(t *testing.T) {
	u, url := serve(t, Options{KeepCalls: 3})
	o := client(t, url)
	var want price.Usage
	for i := range 10 {
		got := call(t.Context(), t, o, request1(fmt.Sprint(i), 5, false))
		check.OK(t, got.err)
		want.Input += got.usage.Input
		want.Output += got.usage.Output
	}
	var texts []string
	for _, c := range u.Calls() {
		texts = append(texts, c.Messages[1].Content)
	}
	if diff := cmp.Diff([]string{"7", "8", "9"}, texts); diff != "" {
		t.Error(diff)
	}
	if calls, usage := u.Totals(); calls != 10 || usage != want {
		t.Errorf("totals %d, %+v; want 10, %+v", calls, usage, want)
	}
	check.Equal(t, New(Options{}).log.keep, 1000, "keeps")
}

func TestManyAtOnce(t *testing.T) {
	u, url := serve(t, Options{})
	o := client(t, url)
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			got := call(t.Context(), t, o, request1("hi", 10, i%2 == 0))
			check.That(t, got.err == nil && got.usage.Output == 10, "%+v", got)
			u.Calls()
			u.Totals()
		})
	}
	wg.Wait()
	input := promptTokens(t, request1("hi", 10, false))
	if calls, usage := u.Totals(); calls != 32 || usage != (price.Usage{Input: 32 * input, Output: 320}) {
		t.Errorf("%d calls, %+v", calls, usage)
	}
}

// JSON comes whole and in pieces, one for each token that is billed, and ends at the cap.
func TestJSON(t *testing.T) {
	u, url := serve(t, Options{})
	const schema = `{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"ä😀":{"type":"array","items":{"type":"integer"},"minItems":9}},"required":["ä😀"]}}}`
	const list = `{"ä😀":[1,1,1,1,1,1,1,1,1]}`
	o200k := tokenizer(t)
	for _, stream := range []bool{false, true} {
		for _, tt := range []struct {
			format       string
			most         int
			want, finish string
		}{
			{schema, 100, list, "stop"},
			{`{"type":"json_object"}`, 100, anObject, "stop"},
			{`{"type":"json_schema","json_schema":{"name":"x"}}`, 100, anObject, "stop"},
			{schema, 10, o200k.Cut(list, 10), "length"},
		} {
			req := request1("Go on.", tt.most, stream)
			req.ResponseFormat = []byte(tt.format)
			got := call(t.Context(), t, client(t, url), req)
			check.That(t, got.err == nil && got.text == tt.want && got.finish == tt.finish, "%s: %+v", tt.format, got)
			if n := o200k.Count(tt.want); got.usage.Output != int64(n) || stream && (got.parts < n/2 || got.parts > n) {
				t.Errorf("%s: %d tokens in %d parts, want %d", tt.format, got.usage.Output, got.parts, n)
			}
		}
	}
	if _, usage := u.Totals(); usage.Output == 0 {
		t.Error("nothing was billed")
	}
}
