package chatapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
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
		code       openai.Code
		param      string // "": null
	}{
		// Not a JSON object.
		{"blank body", " ", openai.InvalidJSON, ""},
		{"array", `[]`, openai.InvalidJSON, ""},
		{"array of a request", "[" + with("") + "]", openai.InvalidJSON, ""},
		{"string", `"hello"`, openai.InvalidJSON, ""},
		{"number", `1`, openai.InvalidJSON, ""},
		{"null", `null`, openai.InvalidJSON, ""},
		{"true", `true`, openai.InvalidJSON, ""},
		{"byte order mark", "\ufeff" + with(""), openai.InvalidJSON, ""},
		{"trailing garbage", with("") + "x", openai.InvalidJSON, ""},
		{"two objects", with("") + with(""), openai.InvalidJSON, ""},
		{"trailing comma", `{"model":"open",}`, openai.InvalidJSON, ""},
		{"comment", `{"model":"open"/* */}`, openai.InvalidJSON, ""},
		{"single quotes", `{'model':'open'}`, openai.InvalidJSON, ""},
		{"cut short", with("")[:20], openai.InvalidJSON, ""},
		{"NaN", with(`"temperature":NaN`), openai.InvalidJSON, ""},
		{"leading zero", with(`"max_tokens":010`), openai.InvalidJSON, ""},
		{"plus sign", with(`"max_tokens":+10`), openai.InvalidJSON, ""},
		{"line break in a string", said("{\"role\":\"user\",\"content\":\"a\nb\"}"), openai.InvalidJSON, ""},
		{"invalid UTF-8 in content", said("{\"role\":\"user\",\"content\":\"a\xff\"}"), openai.InvalidJSON, ""},
		{"invalid UTF-8 in a name", with("\"a\xc3\":1"), openai.InvalidJSON, ""},
		{"overlong UTF-8", said("{\"role\":\"user\",\"content\":\"\xc0\xaf\"}"), openai.InvalidJSON, ""},
		{"surrogate in UTF-8", said("{\"role\":\"user\",\"content\":\"\xed\xa0\x80\"}"), openai.InvalidJSON, ""},
		{"100,000 levels of arrays", nested(100_000, "[]"), openai.InvalidJSON, ""},
		{"100,000 levels in metadata", with(`"metadata":` + strings.Repeat(`{"a":`, 100_000) + `1` + strings.Repeat(`}`, 100_000)), openai.InvalidJSON, ""},
		{"100,000 levels left open", strings.Repeat(`{"a":`, 100_000), openai.InvalidJSON, ""},
		{"100,000 levels in content", said(`{"role":"user","content":` + nested(100_000, "[]") + `}`), openai.InvalidJSON, ""},

		// Names that stand twice.
		{"twice", with(`"n":1,"n":1`), openai.InvalidJSON, "n"},
		{"twice, escaped", with(`"n":1,"\u006e":1`), openai.InvalidJSON, "n"},
		{"twice, far apart", `{"model":"open","messages":[` + hello + `],"model":"docqa"}`, openai.InvalidJSON, "model"},
		{"twice, with null", with(`"max_tokens":null,"max_tokens":9`), openai.InvalidJSON, "max_tokens"},
		{"twice in a message", said(`{"role":"user","content":"a","content":"b"}`), openai.InvalidJSON, "messages[0].content"},
		{"twice in a later message", said(hello, `{"role":"user","role":"user","content":"a"}`), openai.InvalidJSON, "messages[1].role"},
		{"twice in a message, escaped", said(`{"role":"user","content":"a","c\u006fntent":"b"}`), openai.InvalidJSON, "messages[0].content"},
		{"twice in a part", parts(`{"type":"text","text":"a","text":"b"}`), openai.InvalidJSON, "messages[0].content[0].text"},
		{"twice in a part, escaped", parts(`{"type":"text","\u0074ype":"text","text":"b"}`), openai.InvalidJSON, "messages[0].content[0].type"},
		{"twice in stream_options", with(`"stream":true,"stream_options":{"include_usage":true,"include_usage":true}`), openai.InvalidJSON, "stream_options.include_usage"},
		{"twice in response_format", format(`{"type":"json_object","type":"json_object"}`), openai.InvalidJSON, "response_format.type"},
		{"twice in response_format, escaped", format(`{"type":"json_object","typ\u0065":"text"}`), openai.InvalidJSON, "response_format.type"},
		{"twice in a format's json_schema", format(`{"type":"json_schema","json_schema":{"name":"a","name":"b"}}`), openai.InvalidJSON, "response_format"},
		{"twice deep in a schema", format(`{"type":"json_schema","json_schema":{"name":"a","schema":{"properties":{"x":{},"x":{}}}}}`), openai.InvalidJSON, "response_format"},
		{"twice in metadata", with(`"metadata":{"a":"1","a":"2"}`), openai.InvalidJSON, "metadata.a"},
		{"twice deep in metadata", with(`"metadata":{"a":[{"b":1,"b":2}]}`), openai.InvalidJSON, "metadata"},

		// Names that differ by case alone.
		{"case", with(`"MAX_TOKENS":10`), openai.UnsupportedParameter, "MAX_TOKENS"},
		{"case beside the right one", with(`"max_tokens":999999,"Max_Tokens":10`), openai.UnsupportedParameter, "Max_Tokens"},
		{"case, by folding beyond ASCII", with(`"\u017ftop":"a"`), openai.UnsupportedParameter, "\u017ftop"},
		{"case in a message", said(`{"Role":"user","content":"a"}`), openai.UnsupportedParameter, "messages[0].Role"},
		{"case in a message beside the right one", said(`{"role":"user","content":"a","CONTENT":"b"}`), openai.UnsupportedParameter, "messages[0].CONTENT"},
		{"case in a part", parts(`{"type":"text","Text":"a"}`), openai.UnsupportedParameter, "messages[0].content[0].Text"},
		{"case in stream_options", with(`"stream":true,"stream_options":{"Include_Usage":true}`), openai.UnsupportedParameter, "stream_options.Include_Usage"},
		{"case in response_format", format(`{"type":"json_object","Type":"json_schema"}`), openai.UnsupportedParameter, "response_format.Type"},
		{"case in a format's json_schema", format(`{"type":"json_schema","json_schema":{"name":"a","Schema":{}}}`), openai.UnsupportedParameter, "response_format.json_schema.Schema"},

		// What is not known.
		{"unknown", with(`"top_k":5`), openai.UnsupportedParameter, "top_k"},
		{"unknown, empty name", with(`"":1`), openai.UnsupportedParameter, ""},
		{"unknown in a message", said(`{"role":"user","content":"a","weight":1}`), openai.UnsupportedParameter, "messages[0].weight"},
		{"case of what is dropped", said(`{"role":"user","content":"a","Name":"bob"}`), openai.UnsupportedParameter, "messages[0].Name"},
		{"unknown in a part", parts(`{"type":"text","text":"a","weight":1}`), openai.UnsupportedParameter, "messages[0].content[0].weight"},
		{"dropped in a message alone", with(`"name":"bob"`), openai.UnsupportedParameter, "name"},
		{"unknown in stream_options", with(`"stream":true,"stream_options":{"every":1}`), openai.UnsupportedParameter, "stream_options.every"},
		{"unknown in response_format", format(`{"type":"json_object","strict":true}`), openai.UnsupportedParameter, "response_format.strict"},
		{"unknown in a format's json_schema", format(`{"type":"json_schema","json_schema":{"name":"a","url":"b"}}`), openai.UnsupportedParameter, "response_format.json_schema.url"},

		// What multiplies the cost or asks for more than text.
		{"n", with(`"n":2`), openai.UnsupportedParameter, "n"},
		{"n of 20", with(`"n":20`), openai.UnsupportedParameter, "n"},
		{"n of 0", with(`"n":0`), openai.UnsupportedParameter, "n"},
		{"n as a string", with(`"n":"1"`), openai.UnsupportedParameter, "n"},
		{"n of 1e0", with(`"n":1e0`), openai.UnsupportedParameter, "n"},
		{"best_of", with(`"best_of":3`), openai.UnsupportedParameter, "best_of"},
		{"logprobs", with(`"logprobs":true`), openai.UnsupportedParameter, "logprobs"},
		{"top_logprobs", with(`"top_logprobs":5`), openai.UnsupportedParameter, "top_logprobs"},
		{"logit_bias", with(`"logit_bias":{"50256":-100}`), openai.UnsupportedParameter, "logit_bias"},
		{"store", with(`"store":true`), openai.UnsupportedParameter, "store"},
		{"service_tier priority", with(`"service_tier":"priority"`), openai.UnsupportedParameter, "service_tier"},
		{"service_tier flex", with(`"service_tier":"flex"`), openai.UnsupportedParameter, "service_tier"},
		{"modalities", with(`"modalities":["text","audio"]`), openai.UnsupportedParameter, "modalities"},
		{"audio", with(`"audio":{"voice":"alloy","format":"mp3"}`), openai.UnsupportedParameter, "audio"},
		{"prediction", with(`"prediction":{"type":"content","content":"a"}`), openai.UnsupportedParameter, "prediction"},
		{"reasoning_effort", with(`"reasoning_effort":"high"`), openai.UnsupportedParameter, "reasoning_effort"},
		{"web_search_options", with(`"web_search_options":{}`), openai.UnsupportedParameter, "web_search_options"},
		{"image part", parts(`{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`), openai.UnsupportedParameter, "messages[0].content[0].type"},
		{"image part after text", parts(`{"type":"text","text":"a"}`, `{"type":"image_url","image_url":{"url":"`+pixel+`"}}`), openai.UnsupportedParameter, "messages[0].content[1].type"},
		{"audio part", parts(`{"type":"input_audio","input_audio":{"data":"","format":"wav"}}`), openai.UnsupportedParameter, "messages[0].content[0].type"},
		{"file part", parts(`{"type":"file","file":{"file_id":"a"}}`), openai.UnsupportedParameter, "messages[0].content[0].type"},
		{"tool result part", parts(`{"type":"tool_result","text":"a"}`), openai.UnsupportedParameter, "messages[0].content[0].type"},
		{"echoed audio", said(hello, `{"role":"assistant","content":"a","audio":{"id":"1"}}`), openai.UnsupportedParameter, "messages[1].audio"},

		// Numbers.
		{"max_tokens 0", with(`"max_tokens":0`), openai.InvalidValue, "max_tokens"},
		{"max_tokens -0", with(`"max_tokens":-0`), openai.InvalidValue, "max_tokens"},
		{"max_tokens -1", with(`"max_tokens":-1`), openai.InvalidValue, "max_tokens"},
		{"max_tokens 1e400", with(`"max_tokens":1e400`), openai.InvalidValue, "max_tokens"},
		{"max_tokens 1e2", with(`"max_tokens":1e2`), openai.InvalidValue, "max_tokens"},
		{"max_tokens 1.5", with(`"max_tokens":1.5`), openai.InvalidValue, "max_tokens"},
		{"max_tokens 10.0", with(`"max_tokens":10.0`), openai.InvalidValue, "max_tokens"},
		{"max_tokens as a string", with(`"max_tokens":"10"`), openai.InvalidValue, "max_tokens"},
		{"max_tokens true", with(`"max_tokens":true`), openai.InvalidValue, "max_tokens"},
		{"max_tokens []", with(`"max_tokens":[10]`), openai.InvalidValue, "max_tokens"},
		{"max_tokens {}", with(`"max_tokens":{}`), openai.InvalidValue, "max_tokens"},
		{"max_tokens 2^63", with(`"max_tokens":9223372036854775808`), openai.InvalidValue, "max_tokens"},
		{"max_tokens 2^64+10", with(`"max_tokens":18446744073709551626`), openai.InvalidValue, "max_tokens"},
		{"max_tokens of 400 digits", with(`"max_tokens":` + strings.Repeat("9", 400)), openai.InvalidValue, "max_tokens"},
		{"max_completion_tokens -1 beside a good one", with(`"max_tokens":10,"max_completion_tokens":-1`), openai.InvalidValue, "max_completion_tokens"},
		{"max_tokens 0 beside a good one", with(`"max_completion_tokens":10,"max_tokens":0`), openai.InvalidValue, "max_tokens"},
		{"temperature 2.1", with(`"temperature":2.1`), openai.InvalidValue, "temperature"},
		{"temperature -0.1", with(`"temperature":-0.1`), openai.InvalidValue, "temperature"},
		{"temperature 1e400", with(`"temperature":1e400`), openai.InvalidValue, "temperature"},
		{"temperature as a string", with(`"temperature":"1"`), openai.InvalidValue, "temperature"},
		{"temperature false", with(`"temperature":false`), openai.InvalidValue, "temperature"},
		{"top_p 1.01", with(`"top_p":1.01`), openai.InvalidValue, "top_p"},
		{"top_p -1", with(`"top_p":-1`), openai.InvalidValue, "top_p"},
		{"presence_penalty -2.5", with(`"presence_penalty":-2.5`), openai.InvalidValue, "presence_penalty"},
		{"frequency_penalty 2.5", with(`"frequency_penalty":2.5`), openai.InvalidValue, "frequency_penalty"},
		{"seed beyond int64", with(`"seed":9223372036854775808`), openai.InvalidValue, "seed"},
		{"seed below int64", with(`"seed":-9223372036854775809`), openai.InvalidValue, "seed"},
		{"seed 1.5", with(`"seed":1.5`), openai.InvalidValue, "seed"},
		{"seed as a string", with(`"seed":"1"`), openai.InvalidValue, "seed"},

		// Other values.
		{"stream as a string", with(`"stream":"true"`), openai.InvalidValue, "stream"},
		{"stream 1", with(`"stream":1`), openai.InvalidValue, "stream"},
		{"stream_options as a list", with(`"stream_options":[]`), openai.InvalidValue, "stream_options"},
		{"stream_options true", with(`"stream_options":true`), openai.InvalidValue, "stream_options"},
		{"include_usage 1", with(`"stream":true,"stream_options":{"include_usage":1}`), openai.InvalidValue, "stream_options.include_usage"},
		{"include_obfuscation as a string", with(`"stream":true,"stream_options":{"include_obfuscation":"no"}`), openai.InvalidValue, "stream_options.include_obfuscation"},
		{"stop as a number", with(`"stop":1`), openai.InvalidValue, "stop"},
		{"stop as an object", with(`"stop":{}`), openai.InvalidValue, "stop"},
		{"stop with a number", with(`"stop":["a",1]`), openai.InvalidValue, "stop"},
		{"stop with null", with(`"stop":[null]`), openai.InvalidValue, "stop"},
		{"stop with a list", with(`"stop":[["a"]]`), openai.InvalidValue, "stop"},
		{"stop empty", with(`"stop":""`), openai.InvalidValue, "stop"},
		{"stop with an empty one", with(`"stop":["a",""]`), openai.InvalidValue, "stop"},
		{"five stops", with(`"stop":["a","b","c","d","e"]`), openai.InvalidValue, "stop"},
		{"long stop", with(`"stop":"` + strings.Repeat("a", 257) + `"`), openai.InvalidValue, "stop"},
		{"user as a number", with(`"user":1`), openai.InvalidValue, "user"},
		{"long user", with(`"user":"` + strings.Repeat("a", 513) + `"`), openai.InvalidValue, "user"},
		{"metadata as a string", with(`"metadata":"a"`), openai.InvalidValue, "metadata"},
		{"metadata as a list", with(`"metadata":[]`), openai.InvalidValue, "metadata"},
		{"response_format as a string", format(`"json_object"`), openai.InvalidValue, "response_format"},
		{"response_format as a list", format(`[]`), openai.InvalidValue, "response_format"},
		{"response_format empty", format(`{}`), openai.InvalidValue, "response_format.type"},
		{"response_format unknown", format(`{"type":"xml"}`), openai.InvalidValue, "response_format.type"},
		{"response_format with a number", format(`{"type":1}`), openai.InvalidValue, "response_format.type"},
		{"response_format without its schema", format(`{"type":"json_schema"}`), openai.InvalidValue, "response_format"},
		{"response_format with a schema too much", format(`{"type":"json_object","json_schema":{"name":"a"}}`), openai.InvalidValue, "response_format"},
		{"response_format with a schema that is none", format(`{"type":"json_schema","json_schema":"a"}`), openai.InvalidValue, "response_format.json_schema"},
		{"response_format too long", format(`{"type":"json_schema","json_schema":{"name":"a","description":"` + strings.Repeat("a", 64<<10) + `"}}`), openai.InvalidValue, "response_format"},

		// Messages.
		{"no messages", `{"model":"open"}`, openai.InvalidValue, "messages"},
		{"messages null", `{"model":"open","messages":null}`, openai.InvalidValue, "messages"},
		{"messages empty", said(), openai.InvalidValue, "messages"},
		{"messages as an object", `{"model":"open","messages":` + hello + `}`, openai.InvalidValue, "messages"},
		{"messages as a string", `{"model":"open","messages":"Hi"}`, openai.InvalidValue, "messages"},
		{"message as a string", said(`"Hi"`), openai.InvalidValue, "messages[0]"},
		{"message null", said(hello, `null`), openai.InvalidValue, "messages[1]"},
		{"message as a list", said(`[]`), openai.InvalidValue, "messages[0]"},
		{"message empty", said(`{}`), openai.InvalidValue, "messages[0].role"},
		{"no role", said(`{"content":"a"}`), openai.InvalidValue, "messages[0].role"},
		{"no content", said(`{"role":"user"}`), openai.InvalidValue, "messages[0].content"},
		{"content null", said(`{"role":"user","content":null}`), openai.InvalidValue, "messages[0].content"},
		{"content as a number", said(`{"role":"user","content":1}`), openai.InvalidValue, "messages[0].content"},
		{"content as an object", said(`{"role":"user","content":{"type":"text","text":"a"}}`), openai.InvalidValue, "messages[0].content"},
		{"content an empty list", parts(), openai.InvalidValue, "messages[0].content"},
		{"content a list of strings", parts(`"a"`), openai.InvalidValue, "messages[0].content[0]"},
		{"content a list of lists", parts(`[]`), openai.InvalidValue, "messages[0].content[0]"},
		{"part without type", parts(`{"text":"a"}`), openai.InvalidValue, "messages[0].content[0].type"},
		{"part without text", parts(`{"type":"text"}`), openai.InvalidValue, "messages[0].content[0].text"},
		{"part with text null", parts(`{"type":"text","text":null}`), openai.InvalidValue, "messages[0].content[0].text"},
		{"part with a number for text", parts(`{"type":"text","text":1}`), openai.InvalidValue, "messages[0].content[0].text"},
		{"refusal as a number", said(hello, `{"role":"assistant","content":"a","refusal":1}`), openai.InvalidValue, "messages[1].refusal"},
		{"refusal part without refusal", parts(`{"type":"refusal","text":"a"}`), openai.InvalidValue, "messages[0].content[0].refusal"},
		{"text part with a refusal for text", parts(`{"type":"text","refusal":"a"}`), openai.InvalidValue, "messages[0].content[0].text"},
		{"role USER", said(`{"role":"USER","content":"a"}`), openai.InvalidValue, "messages[0].role"},
		{"role null", said(`{"role":null,"content":"a"}`), openai.InvalidValue, "messages[0].role"},
		{"role as a number", said(`{"role":1,"content":"a"}`), openai.InvalidValue, "messages[0].role"},
		{"role system", strings.Replace(said(hello, `{"role":"system","content":"a"}`), "open", "docqa", 1), openai.InvalidValue, "messages[1].role"},
		{"role developer", strings.Replace(said(`{"role":"developer","content":"a"}`), "open", "docqa", 1), openai.InvalidValue, "messages[0].role"},
		{"response_format where it is not allowed", strings.Replace(format(`{"type":"json_object"}`), "open", "docqa", 1), openai.UnsupportedParameter, "response_format"},

		// Caps.
		{"65 messages", said(strings.Split(strings.Repeat(hello+";", 65), ";")[:65]...), openai.InputTooLong, "messages"},
		{"200 messages", said(strings.Split(strings.Repeat(hello+";", 200), ";")[:200]...), openai.InputTooLong, "messages"},
		{"2,000 characters with too many tokens", said(`{"role":"user","content":"` + wide + `"}`), openai.InputTooLong, "messages"},
		{"too many tokens together", said(`{"role":"user","content":"`+wide[:len(wide)/2]+`"}`, `{"role":"assistant","content":"`+wide[:len(wide)/2]+`"}`), openai.InputTooLong, "messages"},
		{"a word of 100,000 letters", said(`{"role":"user","content":"` + strings.Repeat("a", 100_000) + `"}`), openai.InputTooLong, "messages"},
		{"a schema beyond the cap", format(`{"type":"json_schema","json_schema":{"name":"a","description":"` + strings.Repeat("a", 6_000) + `"}}`), openai.InputTooLong, "messages"},

		// The model.
		{"no model", `{"messages":[` + hello + `]}`, openai.InvalidValue, "model"},
		{"model null", `{"model":null,"messages":[` + hello + `]}`, openai.InvalidValue, "model"},
		{"model empty", `{"model":"","messages":[` + hello + `]}`, openai.InvalidValue, "model"},
		{"model as a number", `{"model":1,"messages":[` + hello + `]}`, openai.InvalidValue, "model"},
		{"model as a list", `{"model":["open"],"messages":[` + hello + `]}`, openai.InvalidValue, "model"},
		{"unknown model", `{"model":"gpt-4.1-mini","messages":[` + hello + `]}`, openai.ModelNotFound, "model"},
		{"a model's own name", `{"model":"small","messages":[` + hello + `]}`, openai.ModelNotFound, "model"},
		{"model in another case", `{"model":"Open","messages":[` + hello + `]}`, openai.ModelNotFound, "model"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat(user, tc.body)
			g.refused(t, a, tc.code, tc.param)
		})
	}
	t.Run("feature of another tier", func(t *testing.T) {
		g.refused(t, g.chat("", `{"model":"cv","messages":[`+hello+`]}`), openai.FeatureNotAllowed, "model")
	})
	g.untouched(t)
}

// refused checks an error that comes before the limits, its envelope and its
// headers; param "" is null.
func (g *rig) refused(t *testing.T, a answer, c openai.Code, param string) {
	t.Helper()
	e := g.wireError(a)
	if a.status != c.Status() || e.Code != string(c) {
		t.Fatalf("%d %s, want %d %s: %s", a.status, e.Code, c.Status(), c, e.Message)
	}
	check.Equal(t, value(e.Param), param, "param")
	check.That(t, e.Type == "invalid_request_error" && e.Message != "", "type %q, message %q", e.Type, e.Message)
	check.That(t, e.Limit == "" && a.header.Get("Retry-After") == "" && a.header.Get("RateLimit") == "", "it speaks of limits: %v %s", a.header, a.body)
	check.Equal(t, a.header.Get("X-Should-Retry"), "false", "x-should-retry")
	check.Equal(t, a.header.Get("Content-Type"), "application/json", "Content-Type")
	g.common(t, a)
}

// untouched checks that nothing was asked of the store or the provider.
func (g *rig) untouched(t *testing.T) {
	t.Helper()
	check.Equal(t, g.sends.Load(), 0, "requests to the store")
	check.Equal(t, g.sent.String(), "", "the provider was called")
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
	check.OK(t, err)
	foreign, err := stranger.Token(issuer.Claims{Subject: "123"})
	check.OK(t, err)
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
		code    openai.Code
	}{
		{"root", post("/"), openai.NotFound},
		{"unknown route", post("/v1/completions"), openai.NotFound},
		{"unknown route, GET", method("GET", "/v1/files"), openai.NotFound},
		{"without v1", post("/chat/completions"), openai.NotFound},
		{"case of the route", post("/v1/Chat/completions"), openai.NotFound},
		{"v1 alone", method("GET", "/v1/"), openai.NotFound},
		{"a segment too much", post("/v1/chat/completions/x"), openai.NotFound},
		{"above v1", post("/v1/chat/../chat/completions"), openai.NotFound},
		{"admin", method("GET", "/admin/limits"), openai.NotFound},
		{"a response", method("GET", "/v1/responses/resp_1"), openai.NotFound},
		{"GET responses", method("GET", "/v1/responses"), openai.MethodNotAllowed},
		{"GET chat", method("GET", chatPath), openai.MethodNotAllowed},
		{"PUT chat", method("PUT", chatPath), openai.MethodNotAllowed},
		{"DELETE chat", method("DELETE", chatPath), openai.MethodNotAllowed},
		{"HEAD chat", method("HEAD", chatPath), openai.MethodNotAllowed},
		{"lower-case post", method("post", chatPath), openai.MethodNotAllowed},
		{"POST models", post("/v1/models"), openai.MethodNotAllowed},
		{"POST limits", post("/v1/limits"), openai.MethodNotAllowed},
		{"DELETE a model", method("DELETE", "/v1/models/open"), openai.MethodNotAllowed},

		{"no content type", header("Content-Type"), openai.UnsupportedMediaType},
		{"empty content type", header("Content-Type", ""), openai.UnsupportedMediaType},
		{"text", header("Content-Type", "text/plain"), openai.UnsupportedMediaType},
		{"text that holds JSON", header("Content-Type", "text/plain; a=application/json"), openai.UnsupportedMediaType},
		{"form", header("Content-Type", "application/x-www-form-urlencoded"), openai.UnsupportedMediaType},
		{"multipart", header("Content-Type", "multipart/form-data; boundary=x"), openai.UnsupportedMediaType},
		{"JSON of another kind", header("Content-Type", "application/json-patch+json"), openai.UnsupportedMediaType},
		{"two types in one", header("Content-Type", "text/plain, application/json"), openai.UnsupportedMediaType},
		{"malformed content type", header("Content-Type", "application/json; charset"), openai.UnsupportedMediaType},

		{"one byte over", body(padded(1<<20 + 1)), openai.BodyTooLarge},
		{"10 MB", body(padded(10_000_000)), openai.BodyTooLarge},
		{"10 MB of noise", body(strings.Repeat("x", 10_000_000)), openai.BodyTooLarge},
		{"empty body", body(""), openai.InvalidJSON},

		{"not a token", header("Authorization", "Bearer abc"), openai.InvalidToken},
		{"two parts", header("Authorization", "Bearer a.b"), openai.InvalidToken},
		{"three empty parts", header("Authorization", "Bearer .."), openai.InvalidToken},
		{"an OpenAI key", header("Authorization", "Bearer sk-proj-0123456789"), openai.InvalidToken},
		{"no scheme", header("Authorization", user), openai.InvalidToken},
		{"Basic", header("Authorization", "Basic dXNlcjpwYXNz"), openai.InvalidToken},
		{"Anonymous", header("Authorization", "Bearer Anonymous"), openai.InvalidToken},
		{"two tokens", header("Authorization", "Bearer "+user, "Bearer "+user), openai.InvalidToken},
		{"a token and nothing", header("Authorization", "", "Bearer "+user), openai.InvalidToken},
		{"two in one", header("Authorization", "Bearer "+user+" "+user), openai.InvalidToken},
		{"another issuer's", header("Authorization", "Bearer "+foreign), openai.InvalidToken},
		{"signature cut", header("Authorization", "Bearer "+user[:len(user)-4]), openai.InvalidToken},
		{"no signature", header("Authorization", "Bearer "+user[:strings.LastIndex(user, ".")+1]), openai.InvalidToken},
		{"alg none", header("Authorization", "Bearer eyJhbGciOiJub25lIiwia2lkIjoiYSJ9."+strings.Split(user, ".")[1]+"."), openai.InvalidToken},
		{"very long", header("Authorization", "Bearer "+strings.Repeat("a", 20_000)), openai.InvalidToken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.do(tc.request())
			g.refused(t, a, tc.code, "")
			check.That(t, tc.code != openai.MethodNotAllowed || strings.Contains(a.header.Get("Allow"), "OPTIONS"), "Allow %q", a.header.Get("Allow"))
		})
	}
	g.freeze(2 * time.Hour)
	for _, r := range []*http.Request{post(chatPath)(), method("GET", "/v1/models")(), method("GET", "/v1/limits")()} {
		g.refused(t, g.do(r), openai.TokenExpired, "")
	}
	g.untouched(t)
}

// Who asks for tools where there are none is told so, by one code and in the same words.
func TestNoTools(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for param, bodies := range map[string][]string{
		"tools":                  {with(`"tools":[` + aTool + `]`), with(`"tools":[` + aTool + `],"tool_choice":"none"`)},
		"tool_choice":            {with(`"tool_choice":"required"`), with(`"tool_choice":{"type":"function","function":{"name":"f"}}`)},
		"messages[1].tool_calls": {said(hello, `{"role":"assistant","content":null,"tool_calls":[`+aCall+`]}`, `{"role":"tool","content":"a","tool_call_id":"1"}`)},
	} {
		for _, body := range bodies {
			a := g.chat("", body)
			g.refused(t, a, openai.UnsupportedParameter, param)
			check.Equal(t, g.wireError(a).Message, "This endpoint has no tools: "+param+" is not supported.", "g.wireError(a).Message")
		}
	}
	g.untouched(t)
}

const chatPath = "/v1/chat/completions"

// A request that is wrong in several ways is refused for the first in the order
// of checks.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "") // an anonymous caller's input is never too long
	stages := []openai.Code{openai.NotFound, openai.MethodNotAllowed, openai.OriginNotAllowed, openai.UnsupportedMediaType, openai.BodyTooLarge,
		openai.InvalidToken, openai.InvalidJSON, openai.UnsupportedParameter, openai.ModelNotFound, openai.InputTooLong}
	for i, want := range stages {
		t.Run(string(want), func(t *testing.T) {
			wrong := map[openai.Code]bool{} // this stage and all after it
			for _, c := range stages[i:] {
				wrong[c] = true
			}
			pick := func(c openai.Code, bad, good string) string {
				if wrong[c] {
					return bad
				}
				return good
			}
			n := 1
			if wrong[openai.InputTooLong] {
				n = 200
			}
			body := `{"model":"` + pick(openai.ModelNotFound, "nope", "open") + `"` + pick(openai.UnsupportedParameter, `,"n":2`, "") +
				`,"messages":[` + strings.Repeat(hello+",", n-1) + hello + `]` + pick(openai.InvalidJSON, "", "}")
			if wrong[openai.BodyTooLarge] {
				body += strings.Repeat(" ", 2<<20)
			}
			r := httptest.NewRequest(pick(openai.MethodNotAllowed, "PATCH", "POST"), pick(openai.NotFound, "/v1/nope", chatPath), strings.NewReader(body))
			r.RemoteAddr = "203.0.113.7:4711"
			r.Header.Set("Content-Type", pick(openai.UnsupportedMediaType, "text/plain", "application/json"))
			if wrong[openai.OriginNotAllowed] {
				r.Header.Set("Origin", "https://evil.example")
			}
			r.Header.Set("Authorization", "Bearer "+pick(openai.InvalidToken, "nonsense", user))
			e := g.wireError(g.do(r))
			check.That(t, e.Code == string(want), "%s, want %s", e.Code, want)
		})
	}
	tooMany := strings.Repeat(hello+",", 199) + hello
	g.refused(t, g.chat("", `{"model":"cv","messages":[`+tooMany+`]}`), openai.FeatureNotAllowed, "model")
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
	g.refused(t, g.chat(user, said(`{"role":"user","content":"`+wide+`"}`)), openai.InputTooLong, "messages")
	check.That(t, g.sends.Load() == sends, "the store was asked")
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
	for _, name := range []string{"reasoning_effort", "verbosity", "prediction", "audio", "frobnicate", "Stream", "max_tokens", "max_completion_tokens", "temperature", "top_p", "presence_penalty", "frequency_penalty",
		"seed", "stop", "stream", "stream_options", "response_format", "user", "safety_identifier", "prompt_cache_key", "metadata", "n", "tools",
		"functions", "tool_choice", "function_call", "parallel_tool_calls", "logprobs", "top_logprobs", "logit_bias", "store", "service_tier", "modalities"} {
		neutral = append(neutral, `"`+name+`":null`)
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
	for names, values := range map[string][]string{
		"refusal annotations audio tool_calls function_call tool_call_id": {`null`, `""`, `[]`, `{}`},
		"parsed name cache_control reasoning_content annotations":         {`null`, `"a"`, `{"a":{"b":[1]}}`, `[{"type":"url_citation"}]`},
		"frobnicate Role image_url":                                       {`null`},
	} {
		for _, name := range strings.Fields(names) {
			for _, v := range values {
				extra := `,"` + name + `":` + v
				if a := g.chat(user, echo(extra)); a.status != http.StatusOK || g.lastSent() != plain {
					t.Errorf("%s: %d, sent %s, want %s", extra, a.status, g.lastSent(), plain)
				}
			}
		}
	}
}

// What the assistant said is taken back in all forms in which clients keep it: its text,
// or that of its refusal, goes upstream, and counts.
func TestAnswersComeBack(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	for message, want := range map[string]string{
		`{"role":"assistant","content":"","refusal":"No."}`:                                                      "No.",
		`{"refusal":"No.","content":null,"role":"assistant","parsed":null}`:                                      "No.",
		`{"role":"assistant","content":[],"refusal":"No."}`:                                                      "No.",
		`{"role":"assistant","refusal":"No."}`:                                                                   "No.",
		`{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`:                                    "No.",
		`{"role":"assistant","content":[{"refusal":"No.","text":null,"type":"refusal"}]}`:                        "No.",
		`{"role":"assistant","content":"Well. ","refusal":"No."}`:                                                "Well. No.",
		`{"role":"assistant","content":[{"type":"text","text":"Well. "}],"refusal":"No."}`:                       "Well. No.",
		`{"role":"assistant","content":[{"type":"text","text":"No.","cache_control":{"x":1}}]}`:                  "No.",
		`{"role":"assistant","content":[{"type":"text","text":"No.","image_url":null}]}`:                         "No.",
		`{"role":"assistant","content":null}`:                                                                    "",
		`{"role":"assistant","content":[]}`:                                                                      "",
		`{"role":"assistant","content":null,"refusal":null,"audio":null,"function_call":null,"tool_calls":null}`: "",
		`{"role":"assistant"}`: "",
		`{"role":"assistant","content":"{}","parsed":{"a":[1,null]},"annotations":[],"tool_calls":[]}`: "{}",
	} {
		a := g.chat(g.token(strconv.Itoa(len(g.upstream.Calls())), ""), said(hello, message, hello)) // each a new user
		if a.status != http.StatusOK {
			t.Errorf("%s: %d %s", message, a.status, a.body)
			continue
		}
		calls := g.upstream.Calls()
		call := calls[len(calls)-1]
		m := call.Messages[1]
		check.That(t, len(call.Messages) == 3 && m.Role == "assistant" && m.Content == want, "%s: sent %+v", message, call.Messages)
		check.Equal(t, g.reserved()-800, int64(call.PromptTokens), "%s: counted … tokens, the provider %d", message, call.PromptTokens)
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
		{"a schema, as it is written", format(`{ "json_schema": {"strict":true,"name":"r","schema":{"type":"object","properties":{"b":{"title":"TYPE"},"a":{"type":"null"}}}}, "type":"json_schema"}`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":800,"response_format":
			{"type":"json_schema","json_schema":{"strict":true,"name":"r","schema":{"type":"object","properties":{"b":{"title":"TYPE"},"a":{"type":"null"}}}}}}`},
		{"escapes", said(`{"role":"user","content":"<b>&\u2028\ud83d\ude00\u0000\"\\ \u00e9</b><|endoftext|>"}`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"<b>&\u2028😀\u0000\"\\ é</b><|endoftext|>"}],"max_completion_tokens":800}`},
		{"lone surrogates", said(`{"role":"user","content":"a\ud800b\udc00\ud800"}`),
			`{"model":"test-model",` + streamed + `"messages":[{"role":"user","content":"a` + "\ufffdb\ufffd\ufffd" + `"}],"max_completion_tokens":800}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat(user, tc.body)
			check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
			sent := g.lastSent()
			check.Diff(t, cmp.Diff(decodeJSON(t, tc.want), decodeJSON(t, sent)), "sent")
			check.That(t, !strings.Contains(tc.name, "as it is written") || strings.Contains(sent, `"properties":{"b":{"title":"TYPE"},"a":{"type":"null"}}`),
				"the schema was changed: %s", sent)
		})
	}
}

func decodeJSON(t *testing.T, s string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	check.Must(t, err == nil, "%v: %.300s", err, s)
	return v
}

// Repaired surrogates are counted as they are sent.
func TestSurrogatesAreCountedAsSent(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	user := g.token("123", "")
	a := g.chat(user, said(`{"role":"user","content":"`+strings.Repeat(`x\udfff\ud83d`, 50)+`"}`))
	check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	call := g.upstream.Calls()[0]
	want := strings.Repeat("x\ufffd\ufffd", 50)
	check.That(t, call.Messages[0].Content == want, "sent %q", call.Messages[0].Content)
	check.Equal(t, g.reserved()-800, int64(call.PromptTokens), "counted … tokens, sent %d", call.PromptTokens)
}

func TestAcceptedForms(t *testing.T) {
	t.Parallel()
	g := newRig(t, roomy)
	user := g.token("123", "")
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8",
		"Application/JSON", `application/json; charset="utf-8"; x=y`, " application/json "} {
		r := g.request(http.MethodPost, chatPath, user, with(""))
		r.Header.Set("Content-Type", contentType)
		a := g.do(r)
		check.That(t, a.status == http.StatusOK, "%s: %d %s", contentType, a.status, a.body)
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
		a := g.chat(user, body)
		check.That(t, a.status == http.StatusOK, "%s: %d %s", name, a.status, a.body)
	}
	r := g.request(http.MethodPost, chatPath+"?api-version=1", user, with(""))
	if a := g.do(r); a.status != http.StatusOK {
		t.Errorf("with a query: %d %s", a.status, a.body)
	}
}
