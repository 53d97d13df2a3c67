package handler

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/local/issuer"
)

const hello = `{"role":"user","content":"Hi"}`

// with is a good request with more fields; extra begins without a comma.
func with(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"open","messages":[` + hello + `]` + extra + `}`
}

// said is a good request with other messages.
func said(messages ...string) string {
	return `{"model":"open","messages":[` + strings.Join(messages, ",") + `]}`
}

// parts is a good request whose only message has this array for content.
func parts(list ...string) string {
	return said(`{"role":"user","content":[` + strings.Join(list, ",") + `]}`)
}

func format(f string) string { return with(`"response_format":` + f) }

func nested(levels int, kind string) string {
	return strings.Repeat(kind[:len(kind)/2], levels) + strings.Repeat(kind[len(kind)/2:], levels)
}

func object20() string { return strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20) }

// wide has 2,000 characters and about 8,000 tokens.
var wide = strings.Repeat("\U0002A6A5\U00020BB7", 1000)

func TestBadBodies(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	if tokenizer, _ := tokens.New("o200k_base"); tokenizer.Count(wide) < 6_000 || utf8.RuneCountInString(wide) != 2_000 {
		t.Fatalf("wide has %d tokens", tokenizer.Count(wide))
	}
	for _, tc := range []struct {
		name, body string
		code       code
		param      string // "": null
	}{
		// Not a JSON object.
		{"blank body", " ", invalidJSON, ""},
		{"array", `[]`, invalidJSON, ""},
		{"array of a request", "[" + with("") + "]", invalidJSON, ""},
		{"string", `"hello"`, invalidJSON, ""},
		{"number", `1`, invalidJSON, ""},
		{"null", `null`, invalidJSON, ""},
		{"true", `true`, invalidJSON, ""},
		{"byte order mark", "\ufeff" + with(""), invalidJSON, ""},
		{"trailing garbage", with("") + "x", invalidJSON, ""},
		{"two objects", with("") + with(""), invalidJSON, ""},
		{"trailing comma", `{"model":"open",}`, invalidJSON, ""},
		{"comment", `{"model":"open"/* */}`, invalidJSON, ""},
		{"single quotes", `{'model':'open'}`, invalidJSON, ""},
		{"cut short", with("")[:20], invalidJSON, ""},
		{"NaN", with(`"temperature":NaN`), invalidJSON, ""},
		{"leading zero", with(`"max_tokens":010`), invalidJSON, ""},
		{"plus sign", with(`"max_tokens":+10`), invalidJSON, ""},
		{"line break in a string", said("{\"role\":\"user\",\"content\":\"a\nb\"}"), invalidJSON, ""},
		{"invalid UTF-8 in content", said("{\"role\":\"user\",\"content\":\"a\xff\"}"), invalidJSON, ""},
		{"invalid UTF-8 in a name", with("\"a\xc3\":1"), invalidJSON, ""},
		{"overlong UTF-8", said("{\"role\":\"user\",\"content\":\"\xc0\xaf\"}"), invalidJSON, ""},
		{"surrogate in UTF-8", said("{\"role\":\"user\",\"content\":\"\xed\xa0\x80\"}"), invalidJSON, ""},
		{"100,000 levels of arrays", nested(100_000, "[]"), invalidJSON, ""},
		{"100,000 levels in metadata", with(`"metadata":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat(`}`, 100_000)), invalidJSON, ""},
		{"100,000 levels left open", strings.Repeat(`{"a":`, 100_000), invalidJSON, ""},
		{"100,000 levels in content", said(`{"role":"user","content":` + nested(100_000, "[]") + `}`), invalidJSON, ""},

		// Names that stand twice.
		{"twice", with(`"n":1,"n":1`), invalidJSON, "n"},
		{"twice, escaped", with(`"n":1,"\u006e":1`), invalidJSON, "n"},
		{"twice, far apart", `{"model":"open","messages":[` + hello + `],"model":"docqa"}`, invalidJSON, "model"},
		{"twice, with null", with(`"max_tokens":null,"max_tokens":9`), invalidJSON, "max_tokens"},
		{"twice in a message", said(`{"role":"user","content":"a","content":"b"}`), invalidJSON, "messages[0].content"},
		{"twice in a later message", said(hello, `{"role":"user","role":"user","content":"a"}`), invalidJSON, "messages[1].role"},
		{"twice in a message, escaped", said(`{"role":"user","content":"a","c\u006fntent":"b"}`), invalidJSON, "messages[0].content"},
		{"twice in a part", parts(`{"type":"text","text":"a","text":"b"}`), invalidJSON, "messages[0].content[0].text"},
		{"twice in a part, escaped", parts(`{"type":"text","\u0074ype":"text","text":"b"}`), invalidJSON, "messages[0].content[0].type"},
		{"twice in stream_options", with(`"stream":true,"stream_options":{"include_usage":true,"include_usage":true}`), invalidJSON, "stream_options.include_usage"},
		{"twice in response_format", format(`{"type":"json_object","type":"json_object"}`), invalidJSON, "response_format.type"},
		{"twice in response_format, escaped", format(`{"type":"json_object","typ\u0065":"text"}`), invalidJSON, "response_format.type"},
		{"twice in a format's json_schema", format(`{"type":"json_schema","json_schema":{"name":"a","name":"b"}}`), invalidJSON, "response_format"},
		{"twice deep in a schema", format(`{"type":"json_schema","json_schema":{"name":"a","schema":{"properties":{"x":{},"x":{}}}}}`), invalidJSON, "response_format"},
		{"twice in metadata", with(`"metadata":{"a":"1","a":"2"}`), invalidJSON, "metadata.a"},
		{"twice deep in metadata", with(`"metadata":{"a":[{"b":1,"b":2}]}`), invalidJSON, "metadata"},

		// Names that differ by case alone.
		{"case", with(`"MAX_TOKENS":10`), unsupportedParameter, "MAX_TOKENS"},
		{"case beside the right one", with(`"max_tokens":999999,"Max_Tokens":10`), unsupportedParameter, "Max_Tokens"},
		{"case of null", with(`"Stream":null`), unsupportedParameter, "Stream"},
		{"case, by folding beyond ASCII", with(`"\u017ftop":"a"`), unsupportedParameter, "\u017ftop"},
		{"case in a message", said(`{"Role":"user","content":"a"}`), unsupportedParameter, "messages[0].Role"},
		{"case in a message beside the right one", said(`{"role":"user","content":"a","CONTENT":"b"}`), unsupportedParameter, "messages[0].CONTENT"},
		{"case in a part", parts(`{"type":"text","Text":"a"}`), unsupportedParameter, "messages[0].content[0].Text"},
		{"case in stream_options", with(`"stream":true,"stream_options":{"Include_Usage":true}`), unsupportedParameter, "stream_options.Include_Usage"},
		{"case in response_format", format(`{"type":"json_object","Type":"json_schema"}`), unsupportedParameter, "response_format.Type"},
		{"case in a format's json_schema", format(`{"type":"json_schema","json_schema":{"name":"a","Schema":{}}}`), unsupportedParameter, "response_format.json_schema.Schema"},

		// What is not known.
		{"unknown", with(`"top_k":5`), unsupportedParameter, "top_k"},
		{"unknown null", with(`"frobnicate":null`), unsupportedParameter, "frobnicate"},
		{"unknown, empty name", with(`"":1`), unsupportedParameter, ""},
		{"unknown in a message", said(`{"role":"user","content":"a","weight":1}`), unsupportedParameter, "messages[0].weight"},
		{"name in a message", said(`{"role":"user","content":"a","name":"bob"}`), unsupportedParameter, "messages[0].name"},
		{"unknown in a part", parts(`{"type":"text","text":"a","cache_control":{}}`), unsupportedParameter, "messages[0].content[0].cache_control"},
		{"unknown in stream_options", with(`"stream":true,"stream_options":{"every":1}`), unsupportedParameter, "stream_options.every"},
		{"unknown in response_format", format(`{"type":"json_object","strict":true}`), unsupportedParameter, "response_format.strict"},
		{"unknown in a format's json_schema", format(`{"type":"json_schema","json_schema":{"name":"a","url":"b"}}`), unsupportedParameter, "response_format.json_schema.url"},

		// What multiplies the cost or asks for more than text.
		{"n", with(`"n":2`), unsupportedParameter, "n"},
		{"n of 20", with(`"n":20`), unsupportedParameter, "n"},
		{"n of 0", with(`"n":0`), unsupportedParameter, "n"},
		{"n as a string", with(`"n":"1"`), unsupportedParameter, "n"},
		{"n of 1e0", with(`"n":1e0`), unsupportedParameter, "n"},
		{"best_of", with(`"best_of":3`), unsupportedParameter, "best_of"},
		{"tools", with(`"tools":[{"type":"function","function":{"name":"f"}}]`), unsupportedParameter, "tools"},
		{"functions", with(`"functions":[{"name":"f"}]`), unsupportedParameter, "functions"},
		{"tool_choice", with(`"tool_choice":"required"`), unsupportedParameter, "tool_choice"},
		{"tool_choice of a function", with(`"tool_choice":{"type":"function","function":{"name":"f"}}`), unsupportedParameter, "tool_choice"},
		{"function_call", with(`"function_call":{"name":"f"}`), unsupportedParameter, "function_call"},
		{"parallel_tool_calls", with(`"parallel_tool_calls":1`), unsupportedParameter, "parallel_tool_calls"},
		{"logprobs", with(`"logprobs":true`), unsupportedParameter, "logprobs"},
		{"top_logprobs", with(`"top_logprobs":5`), unsupportedParameter, "top_logprobs"},
		{"logit_bias", with(`"logit_bias":{"50256":-100}`), unsupportedParameter, "logit_bias"},
		{"store", with(`"store":true`), unsupportedParameter, "store"},
		{"service_tier priority", with(`"service_tier":"priority"`), unsupportedParameter, "service_tier"},
		{"service_tier flex", with(`"service_tier":"flex"`), unsupportedParameter, "service_tier"},
		{"modalities", with(`"modalities":["text","audio"]`), unsupportedParameter, "modalities"},
		{"audio", with(`"audio":{"voice":"alloy","format":"mp3"}`), unsupportedParameter, "audio"},
		{"prediction", with(`"prediction":{"type":"content","content":"a"}`), unsupportedParameter, "prediction"},
		{"reasoning_effort", with(`"reasoning_effort":"high"`), unsupportedParameter, "reasoning_effort"},
		{"web_search_options", with(`"web_search_options":{}`), unsupportedParameter, "web_search_options"},
		{"image part", parts(`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`), unsupportedParameter, "messages[0].content[0].type"},
		{"image part after text", parts(`{"type":"text","text":"a"}`, `{"type":"image_url","image_url":{"url":"data:image/png;base64,"}}`), unsupportedParameter, "messages[0].content[1].type"},
		{"audio part", parts(`{"type":"input_audio","input_audio":{"data":"","format":"wav"}}`), unsupportedParameter, "messages[0].content[0].type"},
		{"file part", parts(`{"type":"file","file":{"file_id":"a"}}`), unsupportedParameter, "messages[0].content[0].type"},
		{"refusal part", parts(`{"type":"refusal","refusal":"a"}`), unsupportedParameter, "messages[0].content[0].type"},
		{"echoed tool calls", said(hello, `{"role":"assistant","content":"a","tool_calls":[{"id":"1"}]}`), unsupportedParameter, "messages[1].tool_calls"},
		{"echoed audio", said(hello, `{"role":"assistant","content":"a","audio":{"id":"1"}}`), unsupportedParameter, "messages[1].audio"},
		{"tool_call_id", said(`{"role":"user","tool_call_id":"1","content":"a"}`), unsupportedParameter, "messages[0].tool_call_id"},

		// Numbers.
		{"max_tokens 0", with(`"max_tokens":0`), invalidValue, "max_tokens"},
		{"max_tokens -0", with(`"max_tokens":-0`), invalidValue, "max_tokens"},
		{"max_tokens -1", with(`"max_tokens":-1`), invalidValue, "max_tokens"},
		{"max_tokens 1e400", with(`"max_tokens":1e400`), invalidValue, "max_tokens"},
		{"max_tokens 1e2", with(`"max_tokens":1e2`), invalidValue, "max_tokens"},
		{"max_tokens 1.5", with(`"max_tokens":1.5`), invalidValue, "max_tokens"},
		{"max_tokens 10.0", with(`"max_tokens":10.0`), invalidValue, "max_tokens"},
		{"max_tokens as a string", with(`"max_tokens":"10"`), invalidValue, "max_tokens"},
		{"max_tokens true", with(`"max_tokens":true`), invalidValue, "max_tokens"},
		{"max_tokens []", with(`"max_tokens":[10]`), invalidValue, "max_tokens"},
		{"max_tokens {}", with(`"max_tokens":{}`), invalidValue, "max_tokens"},
		{"max_tokens 2^63", with(`"max_tokens":9223372036854775808`), invalidValue, "max_tokens"},
		{"max_tokens 2^64+10", with(`"max_tokens":18446744073709551626`), invalidValue, "max_tokens"},
		{"max_tokens of 400 digits", with(`"max_tokens":` + strings.Repeat("9", 400)), invalidValue, "max_tokens"},
		{"max_completion_tokens -1 beside a good one", with(`"max_tokens":10,"max_completion_tokens":-1`), invalidValue, "max_completion_tokens"},
		{"max_tokens 0 beside a good one", with(`"max_completion_tokens":10,"max_tokens":0`), invalidValue, "max_tokens"},
		{"temperature 2.1", with(`"temperature":2.1`), invalidValue, "temperature"},
		{"temperature -0.1", with(`"temperature":-0.1`), invalidValue, "temperature"},
		{"temperature 1e400", with(`"temperature":1e400`), invalidValue, "temperature"},
		{"temperature as a string", with(`"temperature":"1"`), invalidValue, "temperature"},
		{"temperature false", with(`"temperature":false`), invalidValue, "temperature"},
		{"top_p 1.01", with(`"top_p":1.01`), invalidValue, "top_p"},
		{"top_p -1", with(`"top_p":-1`), invalidValue, "top_p"},
		{"presence_penalty -2.5", with(`"presence_penalty":-2.5`), invalidValue, "presence_penalty"},
		{"frequency_penalty 2.5", with(`"frequency_penalty":2.5`), invalidValue, "frequency_penalty"},
		{"seed beyond int64", with(`"seed":9223372036854775808`), invalidValue, "seed"},
		{"seed below int64", with(`"seed":-9223372036854775809`), invalidValue, "seed"},
		{"seed 1.5", with(`"seed":1.5`), invalidValue, "seed"},
		{"seed as a string", with(`"seed":"1"`), invalidValue, "seed"},

		// Other values.
		{"stream as a string", with(`"stream":"true"`), invalidValue, "stream"},
		{"stream 1", with(`"stream":1`), invalidValue, "stream"},
		{"stream_options as a list", with(`"stream_options":[]`), invalidValue, "stream_options"},
		{"stream_options true", with(`"stream_options":true`), invalidValue, "stream_options"},
		{"include_usage 1", with(`"stream":true,"stream_options":{"include_usage":1}`), invalidValue, "stream_options.include_usage"},
		{"include_obfuscation as a string", with(`"stream":true,"stream_options":{"include_obfuscation":"no"}`), invalidValue, "stream_options.include_obfuscation"},
		{"stop as a number", with(`"stop":1`), invalidValue, "stop"},
		{"stop as an object", with(`"stop":{}`), invalidValue, "stop"},
		{"stop with a number", with(`"stop":["a",1]`), invalidValue, "stop"},
		{"stop with null", with(`"stop":[null]`), invalidValue, "stop"},
		{"stop with a list", with(`"stop":[["a"]]`), invalidValue, "stop"},
		{"stop empty", with(`"stop":""`), invalidValue, "stop"},
		{"stop with an empty one", with(`"stop":["a",""]`), invalidValue, "stop"},
		{"five stops", with(`"stop":["a","b","c","d","e"]`), invalidValue, "stop"},
		{"long stop", with(`"stop":"` + strings.Repeat("a", 257) + `"`), invalidValue, "stop"},
		{"user as a number", with(`"user":1`), invalidValue, "user"},
		{"long user", with(`"user":"` + strings.Repeat("a", 513) + `"`), invalidValue, "user"},
		{"metadata as a string", with(`"metadata":"a"`), invalidValue, "metadata"},
		{"metadata as a list", with(`"metadata":[]`), invalidValue, "metadata"},
		{"response_format as a string", format(`"json_object"`), invalidValue, "response_format"},
		{"response_format as a list", format(`[]`), invalidValue, "response_format"},
		{"response_format empty", format(`{}`), invalidValue, "response_format.type"},
		{"response_format unknown", format(`{"type":"xml"}`), invalidValue, "response_format.type"},
		{"response_format with a number", format(`{"type":1}`), invalidValue, "response_format.type"},
		{"response_format without its schema", format(`{"type":"json_schema"}`), invalidValue, "response_format"},
		{"response_format with a schema too much", format(`{"type":"json_object","json_schema":{"name":"a"}}`), invalidValue, "response_format"},
		{"response_format with a schema that is none", format(`{"type":"json_schema","json_schema":"a"}`), invalidValue, "response_format.json_schema"},
		{"response_format too long", format(`{"type":"json_schema","json_schema":{"name":"a","description":"` + strings.Repeat("a", 64<<10) + `"}}`), invalidValue, "response_format"},

		// Messages.
		{"no messages", `{"model":"open"}`, invalidValue, "messages"},
		{"messages null", `{"model":"open","messages":null}`, invalidValue, "messages"},
		{"messages empty", said(), invalidValue, "messages"},
		{"messages as an object", `{"model":"open","messages":` + hello + `}`, invalidValue, "messages"},
		{"messages as a string", `{"model":"open","messages":"Hi"}`, invalidValue, "messages"},
		{"message as a string", said(`"Hi"`), invalidValue, "messages[0]"},
		{"message null", said(hello, `null`), invalidValue, "messages[1]"},
		{"message as a list", said(`[]`), invalidValue, "messages[0]"},
		{"message empty", said(`{}`), invalidValue, "messages[0].role"},
		{"no role", said(`{"content":"a"}`), invalidValue, "messages[0].role"},
		{"no content", said(`{"role":"user"}`), invalidValue, "messages[0].content"},
		{"content null", said(`{"role":"user","content":null}`), invalidValue, "messages[0].content"},
		{"content as a number", said(`{"role":"user","content":1}`), invalidValue, "messages[0].content"},
		{"content as an object", said(`{"role":"user","content":{"type":"text","text":"a"}}`), invalidValue, "messages[0].content"},
		{"content an empty list", parts(), invalidValue, "messages[0].content"},
		{"content a list of strings", parts(`"a"`), invalidValue, "messages[0].content[0]"},
		{"content a list of lists", parts(`[]`), invalidValue, "messages[0].content[0]"},
		{"part without type", parts(`{"text":"a"}`), invalidValue, "messages[0].content[0].type"},
		{"part without text", parts(`{"type":"text"}`), invalidValue, "messages[0].content[0].text"},
		{"part with text null", parts(`{"type":"text","text":null}`), invalidValue, "messages[0].content[0].text"},
		{"part with a number for text", parts(`{"type":"text","text":1}`), invalidValue, "messages[0].content[0].text"},
		{"role tool", said(`{"role":"tool","content":"a"}`), invalidValue, "messages[0].role"},
		{"role function", said(`{"role":"function","content":"a"}`), invalidValue, "messages[0].role"},
		{"role USER", said(`{"role":"USER","content":"a"}`), invalidValue, "messages[0].role"},
		{"role null", said(`{"role":null,"content":"a"}`), invalidValue, "messages[0].role"},
		{"role as a number", said(`{"role":1,"content":"a"}`), invalidValue, "messages[0].role"},
		{"role system", strings.Replace(said(hello, `{"role":"system","content":"a"}`), "open", "docqa", 1), invalidValue, "messages[1].role"},
		{"role developer", strings.Replace(said(`{"role":"developer","content":"a"}`), "open", "docqa", 1), invalidValue, "messages[0].role"},
		{"response_format where it is not allowed", strings.Replace(format(`{"type":"json_object"}`), "open", "docqa", 1), unsupportedParameter, "response_format"},

		// Caps.
		{"65 messages", said(strings.Split(strings.Repeat(hello+";", 65), ";")[:65]...), inputTooLong, "messages"},
		{"200 messages", said(strings.Split(strings.Repeat(hello+";", 200), ";")[:200]...), inputTooLong, "messages"},
		{"2,000 characters with too many tokens", said(`{"role":"user","content":"` + wide + `"}`), inputTooLong, "messages"},
		{"too many tokens together", said(`{"role":"user","content":"`+wide[:len(wide)/2]+`"}`, `{"role":"assistant","content":"`+wide[:len(wide)/2]+`"}`), inputTooLong, "messages"},
		{"a word of 100,000 letters", said(`{"role":"user","content":"` + strings.Repeat("a", 100_000) + `"}`), inputTooLong, "messages"},
		{"a schema beyond the cap", format(`{"type":"json_schema","json_schema":{"name":"a","description":"` + strings.Repeat("a", 6_000) + `"}}`), inputTooLong, "messages"},

		// The model.
		{"no model", `{"messages":[` + hello + `]}`, invalidValue, "model"},
		{"model null", `{"model":null,"messages":[` + hello + `]}`, invalidValue, "model"},
		{"model empty", `{"model":"","messages":[` + hello + `]}`, invalidValue, "model"},
		{"model as a number", `{"model":1,"messages":[` + hello + `]}`, invalidValue, "model"},
		{"model as a list", `{"model":["open"],"messages":[` + hello + `]}`, invalidValue, "model"},
		{"unknown model", `{"model":"gpt-4.1-mini","messages":[` + hello + `]}`, modelNotFound, "model"},
		{"a model's own name", `{"model":"small","messages":[` + hello + `]}`, modelNotFound, "model"},
		{"model in another case", `{"model":"Open","messages":[` + hello + `]}`, modelNotFound, "model"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat(user, tc.body)
			g.refused(t, a, tc.code, tc.param)
		})
	}
	t.Run("feature of another tier", func(t *testing.T) {
		g.refused(t, g.chat("", `{"model":"cv","messages":[`+hello+`]}`), featureNotAllowed, "model")
	})
	g.untouched(t)
}

// refused checks an error that comes before the limits, its envelope and its
// headers; param "" is null.
func (g *rig) refused(t *testing.T, a answer, c code, param string) {
	t.Helper()
	e := g.wireError(a)
	if a.status != kinds[c].status || e.Code != string(c) {
		t.Fatalf("%d %s, want %d %s: %s", a.status, e.Code, kinds[c].status, c, e.Message)
	}
	if got := value(e.Param); got != param {
		t.Errorf("param %q, want %q", got, param)
	}
	if e.Type != "invalid_request_error" || e.Message == "" {
		t.Errorf("type %q, message %q", e.Type, e.Message)
	}
	if e.Limit != "" || a.header.Get("Retry-After") != "" || a.header.Get("RateLimit") != "" {
		t.Errorf("it speaks of limits: %v %s", a.header, a.body)
	}
	if got := a.header.Get("X-Should-Retry"); got != "false" {
		t.Errorf("x-should-retry %q", got)
	}
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	g.common(t, a)
}

// untouched checks that nothing was asked of the store or the provider.
func (g *rig) untouched(t *testing.T) {
	t.Helper()
	if n := g.sends.Load(); n != 0 {
		t.Errorf("%d requests to the store", n)
	}
	if s := g.sent.String(); s != "" {
		t.Errorf("the provider was called: %.200s", s)
	}
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	stranger, err := issuer.New(issuer.Options{URL: "https://elsewhere.example", Audience: "test"})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := stranger.Token(issuer.Claims{Subject: "123"})
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string) func() *http.Request {
		return func() *http.Request { return g.request(http.MethodPost, path, user, with("")) }
	}
	method := func(m, path string) func() *http.Request {
		return func() *http.Request { return g.request(m, path, user, "") }
	}
	header := func(name string, values ...string) func() *http.Request {
		return func() *http.Request {
			r := g.request(http.MethodPost, chatPath, user, with(""))
			r.Header.Del(name)
			for _, v := range values {
				r.Header.Add(name, v)
			}
			return r
		}
	}
	body := func(b string) func() *http.Request {
		return func() *http.Request {
			r := g.request(http.MethodPost, chatPath, user, b)
			r.Header.Set("Content-Type", "application/json")
			return r
		}
	}
	padded := func(size int) string { return with("") + strings.Repeat(" ", size-len(with(""))) }
	for _, tc := range []struct {
		name    string
		request func() *http.Request
		code    code
	}{
		{"root", post("/"), notFound},
		{"unknown route", post("/v1/completions"), notFound},
		{"unknown route, GET", method("GET", "/v1/embeddings"), notFound},
		{"without v1", post("/chat/completions"), notFound},
		{"trailing slash", post("/v1/chat/completions/"), notFound},
		{"case of the route", post("/v1/Chat/completions"), notFound},
		{"model by name", method("GET", "/v1/models/open"), notFound},
		{"admin", method("GET", "/admin/limits"), notFound},
		{"responses", post("/v1/responses"), notFound},
		{"GET chat", method("GET", chatPath), methodNotAllowed},
		{"PUT chat", method("PUT", chatPath), methodNotAllowed},
		{"DELETE chat", method("DELETE", chatPath), methodNotAllowed},
		{"HEAD chat", method("HEAD", chatPath), methodNotAllowed},
		{"lower-case post", method("post", chatPath), methodNotAllowed},
		{"POST models", post("/v1/models"), methodNotAllowed},
		{"POST limits", post("/v1/limits"), methodNotAllowed},

		{"no content type", header("Content-Type"), unsupportedMediaType},
		{"empty content type", header("Content-Type", ""), unsupportedMediaType},
		{"text", header("Content-Type", "text/plain"), unsupportedMediaType},
		{"text that holds JSON", header("Content-Type", "text/plain; a=application/json"), unsupportedMediaType},
		{"form", header("Content-Type", "application/x-www-form-urlencoded"), unsupportedMediaType},
		{"multipart", header("Content-Type", "multipart/form-data; boundary=x"), unsupportedMediaType},
		{"JSON of another kind", header("Content-Type", "application/json-patch+json"), unsupportedMediaType},
		{"two types in one", header("Content-Type", "text/plain, application/json"), unsupportedMediaType},
		{"malformed content type", header("Content-Type", "application/json; charset"), unsupportedMediaType},

		{"one byte over", body(padded(1<<20 + 1)), bodyTooLarge},
		{"10 MB", body(padded(10_000_000)), bodyTooLarge},
		{"10 MB of noise", body(strings.Repeat("x", 10_000_000)), bodyTooLarge},
		{"empty body", body(""), invalidJSON},

		{"not a token", header("Authorization", "Bearer abc"), invalidToken},
		{"two parts", header("Authorization", "Bearer a.b"), invalidToken},
		{"three empty parts", header("Authorization", "Bearer .."), invalidToken},
		{"an OpenAI key", header("Authorization", "Bearer sk-proj-0123456789"), invalidToken},
		{"no scheme", header("Authorization", user), invalidToken},
		{"Basic", header("Authorization", "Basic dXNlcjpwYXNz"), invalidToken},
		{"Anonymous", header("Authorization", "Bearer Anonymous"), invalidToken},
		{"two tokens", header("Authorization", "Bearer "+user, "Bearer "+user), invalidToken},
		{"a token and nothing", header("Authorization", "", "Bearer "+user), invalidToken},
		{"two in one", header("Authorization", "Bearer "+user+" "+user), invalidToken},
		{"another issuer's", header("Authorization", "Bearer "+foreign), invalidToken},
		{"signature cut", header("Authorization", "Bearer "+user[:len(user)-4]), invalidToken},
		{"no signature", header("Authorization", "Bearer "+user[:strings.LastIndex(user, ".")+1]), invalidToken},
		{"alg none", header("Authorization", "Bearer eyJhbGciOiJub25lIiwia2lkIjoiYSJ9."+strings.Split(user, ".")[1]+"."), invalidToken},
		{"very long", header("Authorization", "Bearer "+strings.Repeat("a", 20_000)), invalidToken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.do(tc.request())
			g.refused(t, a, tc.code, "")
			if tc.code == methodNotAllowed && !strings.Contains(a.header.Get("Allow"), "OPTIONS") {
				t.Errorf("Allow %q", a.header.Get("Allow"))
			}
		})
	}
	if a := g.do(post("/v1/responses")()); !strings.Contains(a.body, "/v1/chat/completions") {
		t.Errorf("/v1/responses does not name chat completions: %s", a.body)
	}
	g.freeze(2 * time.Hour)
	for _, r := range []*http.Request{post(chatPath)(), method("GET", "/v1/models")(), method("GET", "/v1/limits")()} {
		g.refused(t, g.do(r), tokenExpired, "")
	}
	g.untouched(t)
}

const chatPath = "/v1/chat/completions"

// A request that is wrong in several ways is refused for the first in the order
// of checks.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	stages := []code{notFound, methodNotAllowed, originNotAllowed, unsupportedMediaType, bodyTooLarge,
		invalidToken, invalidJSON, unsupportedParameter, modelNotFound, inputTooLong}
	for i, want := range stages {
		t.Run(string(want), func(t *testing.T) {
			wrong := map[code]bool{} // this stage and all after it
			for _, c := range stages[i:] {
				wrong[c] = true
			}
			pick := func(c code, bad, good string) string {
				if wrong[c] {
					return bad
				}
				return good
			}
			n := 1
			if wrong[inputTooLong] {
				n = 200
			}
			body := `{"model":"` + pick(modelNotFound, "nope", "open") + `"` + pick(unsupportedParameter, `,"n":2`, "") +
				`,"messages":[` + strings.Repeat(hello+",", n-1) + hello + `]` + pick(invalidJSON, "", "}")
			if wrong[bodyTooLarge] {
				body += strings.Repeat(" ", 2<<20)
			}
			r := httptest.NewRequest(pick(methodNotAllowed, "PATCH", "POST"), pick(notFound, "/v1/nope", chatPath), strings.NewReader(body))
			r.RemoteAddr = "203.0.113.7:4711"
			r.Header.Set("Content-Type", pick(unsupportedMediaType, "text/plain", "application/json"))
			if wrong[originNotAllowed] {
				r.Header.Set("Origin", "https://evil.example")
			}
			if wrong[invalidToken] {
				r.Header.Set("Authorization", "Bearer nonsense")
			}
			e := g.wireError(g.do(r))
			if e.Code != string(want) {
				t.Errorf("%s, want %s", e.Code, want)
			}
		})
	}
	tooMany := strings.Repeat(hello+",", 199) + hello
	g.refused(t, g.chat("", `{"model":"cv","messages":[`+tooMany+`]}`), featureNotAllowed, "model")
	g.untouched(t)
}

// What fails before the limits is answered as it is when the limits would deny,
// and does not count.
func TestCapsComeBeforeLimits(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		return strings.Replace(yaml, "requests: {capacity: 60, per: 1m}", "requests: {capacity: 1, per: 1h}", 1)
	})
	user := g.token("123", "")
	if a := g.chat(user, with("")); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := g.chat(user, with("")); a.status != http.StatusTooManyRequests {
		t.Fatalf("%d %s", a.status, a.body)
	}
	sends := g.sends.Load()
	g.refused(t, g.chat(user, said(`{"role":"user","content":"`+wide+`"}`)), inputTooLong, "messages")
	if g.sends.Load() != sends {
		t.Error("the store was asked")
	}
}

// roomy is a policy whose user tier never runs out in a test.
func roomy(yaml string) string {
	return strings.NewReplacer(
		"tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: \"2.00\", per: 24h}",
		"tokens: {capacity: 50000000, per: 1h}, requests: {capacity: 1000000, per: 1m}, spend: {usd: \"2000\", per: 24h}",
		"max_messages: 64", "max_messages: 4000").Replace(yaml)
}

// lastSent is the body of the last request to the provider.
func (g *rig) lastSent() string {
	lines := strings.Split(strings.TrimSuffix(g.sent.String(), "\n"), "\n")
	return lines[len(lines)-1]
}

// Values that clients set by themselves are accepted, and what goes upstream is
// as if they were absent.
func TestNeutralValues(t *testing.T) {
	t.Parallel()
	g := newRig(t, roomy)
	user := g.token("123", "")
	neutral := []string{
		`"n":1`, `"tools":[]`, `"tools":[ ]`, `"functions":[]`, `"tool_choice":"none"`, `"tool_choice":"auto"`,
		`"function_call":"none"`, `"function_call":"auto"`, `"parallel_tool_calls":true`, `"parallel_tool_calls":false`,
		`"logprobs":false`, `"top_logprobs":0`, `"logit_bias":{}`, `"store":false`, `"service_tier":"auto"`,
		`"service_tier":"default"`, `"modalities":["text"]`, `"modalities": [ "text" ] `, `"response_format":{"type":"text"}`,
		`"response_format": { "type" : "text" }`, `"safety_identifier":"abc"`, `"prompt_cache_key":"abc"`, `"user":"u-1"`,
		`"metadata":{}`, `"metadata":{"a":"1","b":"2"}`, `"metadata":` + object20(), `"stream":false`,
		`"stream_options":{"include_obfuscation":false}`, `"stream_options":{"include_usage":null}`, `"stream_options":{}`,
	}
	for name := range chatFields {
		if name != "model" && name != "messages" {
			neutral = append(neutral, `"`+name+`":null`)
		}
	}
	neutral = append(neutral, `"n":1,"tools":[],"tool_choice":"auto","logprobs":false,"store":false,"user":"u","stop":null,"max_tokens":null`)
	if a := g.chat(user, with("")); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	plain := g.lastSent()
	for _, extra := range neutral {
		if a := g.chat(user, with(extra)); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", extra, a.status, a.body)
		} else if sent := g.lastSent(); sent != plain {
			t.Errorf("%s: sent %s, want %s", extra, sent, plain)
		}
	}

	// docqa allows neither a response format nor system messages: text is neutral there, too.
	if a := g.chat(user, strings.Replace(format(`{"type":"text"}`), "open", "docqa", 1)); a.status != http.StatusOK {
		t.Errorf("response_format text: %d %s", a.status, a.body)
	}

	for _, extra := range []string{`"stream_options":{"include_obfuscation":true}`, `"stream_options":{"include_obfuscation":null,"include_usage":false}`,
		`"stream_options":{"include_usage":true}`, `"stream_options":null`} {
		if a := g.chat(user, with(`"stream":true`)); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		plain := g.lastSent()
		if a := g.chat(user, with(`"stream":true,`+extra)); a.status != http.StatusOK || g.lastSent() != plain {
			t.Errorf("%s: %d, sent %s, want %s", extra, a.status, g.lastSent(), plain)
		}
	}

	echo := func(extra string) string {
		return said(hello, `{"role":"assistant","content":"Hello."`+extra+`}`, hello)
	}
	if a := g.chat(user, echo("")); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	plain = g.lastSent()
	for _, name := range echoed {
		for _, v := range []string{`null`, `""`, `[]`, `{}`} {
			extra := `,"` + name + `":` + v
			if a := g.chat(user, echo(extra)); a.status != http.StatusOK || g.lastSent() != plain {
				t.Errorf("%s: %d, sent %s, want %s", extra, a.status, g.lastSent(), plain)
			}
		}
	}
}

// What a caller may say goes upstream, under the names and in the values that
// were given, and nothing else does.
func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	g := newRig(t, roomy)
	user := g.token("123", "")
	// Whatever the caller wants, the provider streams.
	const streamed = `"stream":true,"stream_options":{"include_usage":true},`
	for _, tc := range []struct{ name, body, want string }{
		{"least", with(""),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":800}`},
		{"most", with(`"max_tokens":50,"max_completion_tokens":60,"temperature":0.5,"top_p":0.9,"stop":["a","b"],"stream":true,
			"stream_options":{"include_usage":false},"seed":-7,"presence_penalty":-2,"frequency_penalty":2,
			"response_format":{"type":"json_object"},"user":"u","metadata":{"a":"b"},"n":1`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":50,"temperature":0.5,"top_p":0.9,
			"stop":["a","b"],"seed":-7,"presence_penalty":-2,"frequency_penalty":2,
			"response_format":{"type":"json_object"}}`},
		{"extremes", with(`"max_completion_tokens":9223372036854775807,"temperature":0,"top_p":0,"seed":9223372036854775807,"stop":"` + strings.Repeat("s", 256) + `"`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":800,"temperature":0,"top_p":0,
			"seed":9223372036854775807,"stop":["` + strings.Repeat("s", 256) + `"]}`},
		{"the system prompt first", `{"model":"docqa","messages":[` + hello + `]}`,
			`{"model":"test-model",` + streamed + `"messages":[{"role":"system","content":"You answer questions."},{"role":"user","content":"Hi"}],"max_completion_tokens":800}`},
		{"roles and parts", said(`{"role":"system","content":"S"}`, `{"role":"developer","content":[{"type":"text","text":"D"}]}`,
			`{"content":[{"text":"a","type":"text"},{"type":"text","text":"b"}],"role":"user"}`, `{"role":"assistant","content":""}`, hello),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"system","content":"S"},{"role":"developer","content":"D"},{"role":"user","content":"ab"},
			{"role":"assistant","content":""},{"role":"user","content":"Hi"}],"max_completion_tokens":800}`},
		{"a schema, as it is written", format(`{ "json_schema": {"strict":true,"name":"r","schema":{"type":"object","properties":{"b":{"TYPE":1},"a":{"type":2}}}}, "type":"json_schema"}`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":800,"response_format":
			{"type":"json_schema","json_schema":{"strict":true,"name":"r","schema":{"type":"object","properties":{"b":{"TYPE":1},"a":{"type":2}}}}}}`},
		{"escapes", said(`{"role":"user","content":"<b>&\u2028\ud83d\ude00\u0000\"\\ \u00e9</b><|endoftext|>"}`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"<b>&\u2028😀\u0000\"\\ é</b><|endoftext|>"}],"max_completion_tokens":800}`},
		{"lone surrogates", said(`{"role":"user","content":"a\ud800b\udc00\ud800"}`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"a` + "\ufffdb\ufffd\ufffd" + `"}],"max_completion_tokens":800}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if a := g.chat(user, tc.body); a.status != http.StatusOK {
				t.Fatalf("%d %s", a.status, a.body)
			}
			sent := g.lastSent()
			if diff := cmp.Diff(decodeJSON(t, tc.want), decodeJSON(t, sent)); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
			if strings.Contains(tc.name, "as it is written") && !strings.Contains(sent, `"properties":{"b":{"TYPE":1},"a":{"type":2}}`) {
				t.Errorf("the schema was changed: %s", sent)
			}
		})
	}
}

func decodeJSON(t *testing.T, s string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %.300s", err, s)
	}
	return v
}

// Repaired surrogates are counted as they are sent.
func TestSurrogatesAreCountedAsSent(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	user := g.token("123", "")
	a := g.chat(user, said(`{"role":"user","content":"`+strings.Repeat(`x\udfff\ud83d`, 50)+`"}`))
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	call := g.upstream.Calls()[0]
	if want := strings.Repeat("x\ufffd\ufffd", 50); call.Messages[0].Content != want {
		t.Errorf("sent %q", call.Messages[0].Content)
	}
	if counted := 50_000 - intHeader(t, a, "X-Ratelimit-Remaining-Tokens") - 800; counted != int64(call.PromptTokens) {
		t.Errorf("counted %d tokens, sent %d", counted, call.PromptTokens)
	}
}

func TestAcceptedForms(t *testing.T) {
	t.Parallel()
	g := newRig(t, roomy)
	user := g.token("123", "")
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8",
		"Application/JSON", `application/json; charset="utf-8"; x=y`, " application/json "} {
		r := g.request(http.MethodPost, chatPath, user, with(""))
		r.Header.Set("Content-Type", contentType)
		if a := g.do(r); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", contentType, a.status, a.body)
		}
	}
	for name, body := range map[string]string{
		"1 MiB":          with("") + strings.Repeat(" ", 1<<20-len(with(""))),
		"white space":    "\r\n\t " + strings.ReplaceAll(with(`"n":1`), ",", " \r\n,\t") + "\n",
		"escaped names":  `{"m\u006fdel":"\u006fpen","messages":[{"r\u006fle":"user","content":"a"}]}`,
		"two stops":      with(`"stop":["a","b"]`),
		"no stops":       with(`"stop":[]`),
		"empty content":  said(`{"role":"user","content":""}`),
		"500 messages":   said(strings.Split(strings.Repeat(hello+";", 500), ";")[:500]...),
		"tiny but legal": with(`"temperature":1e-400,"top_p":1E-9`),
	} {
		if a := g.chat(user, body); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	r := g.request(http.MethodPost, chatPath+"?api-version=1", user, with(""))
	if a := g.do(r); a.status != http.StatusOK {
		t.Errorf("with a query: %d %s", a.status, a.body)
	}
}

// Whatever a caller sends, what is accepted is within the bounds of each field.
func FuzzParseChat(f *testing.F) {
	for _, s := range []string{with(""), with(`"max_tokens":10,"seed":1,"temperature":0.5,"stop":"a"`), parts(`{"type":"text","text":"a"}`),
		format(`{"type":"json_schema","json_schema":{"name":"a","schema":{"a":{"b":1}}}}`), with(`"n":1,"N":2`),
		with(`"stream":true,"stream_options":{"include_usage":true},"metadata":` + object20())} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, apiErr := parseChat(body)
		if apiErr != nil {
			if apiErr.message == "" || !utf8.Valid(apiErr.envelope()) || apiErr.status() != http.StatusBadRequest {
				t.Errorf("%+v", apiErr)
			}
			return
		}
		if req.Model == "" || len(req.Messages) == 0 || req.MaxTokens < 0 || len(req.Stop) > maxStops {
			t.Errorf("%+v", req)
		}
		for _, m := range req.Messages {
			if !utf8.ValidString(m.Content) || !strings.Contains(" system developer user assistant ", fmt.Sprintf(" %s ", m.Role)) {
				t.Errorf("%+v", m)
			}
		}
		for _, n := range []*float64{req.Temperature, req.TopP, req.Presence, req.Frequency} {
			if n != nil && !(*n >= -2 && *n <= 2) {
				t.Errorf("%g", *n)
			}
		}
		if req.ResponseFormat != nil && !json.Valid(req.ResponseFormat) {
			t.Errorf("format %s", req.ResponseFormat)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(body, &fields); err != nil {
			t.Fatal(err)
		}
		for name := range fields {
			if chatFields[name] == nil {
				t.Errorf("accepted %q", name)
			}
		}
	})
}
