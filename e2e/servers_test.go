package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// told is what a caller makes of an answer of either kind.
type told struct {
	text, finish, notice string
	calls                []toldCall
	failed               *wireError
}

// toldCall is a call of a tool. Its pieces are put together as OpenAI's client does.
type toldCall struct {
	Index    int          `json:"index"`
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function toldFunction `json:"function"`
}

type toldFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func (a answer) told(t *testing.T) told {
	t.Helper()
	var all told
	for line := range strings.Lines(strings.TrimSpace(a.body)) {
		data := strings.TrimPrefix(strings.TrimSpace(line), "data: ")
		if data == "" || data == "[DONE]" || data[0] == ':' {
			continue
		}
		type message struct {
			Content *string
			Calls   []toldCall `json:"tool_calls"`
		}
		var c struct {
			Choices []struct {
				Delta, Message message
				FinishReason   string `json:"finish_reason"`
			}
			Notice string
			Error  *wireError
		}
		err := json.Unmarshal([]byte(data), &c)
		check.Must(t, err == nil, "%v: %s", err, a.body)
		for _, choice := range c.Choices {
			for _, m := range []message{choice.Delta, choice.Message} {
				if m.Content != nil {
					all.text += *m.Content
				}
				for i, c := range m.Calls {
					if c.Index = max(c.Index, i); c.Index == len(all.calls) {
						all.calls = append(all.calls, c)
						continue
					}
					check.Must(t, c.Index < len(all.calls) && c.ID+c.Type+c.Function.Name == "", "a call out of its order: %s", a.body)
					all.calls[c.Index].Function.Arguments += c.Function.Arguments
				}
			}
			all.finish += choice.FinishReason
		}
		all.notice += c.Notice
		if c.Error != nil {
			all.failed = c.Error
		}
	}
	return all
}

// sse is an answer of events.
func sse(events ...string) string { return "data: " + strings.Join(events, "\n\ndata: ") + "\n\n" }

// piece is a chunk with the members of its choice, and what else it has.
func piece(choice, more string) string {
	return `{"id":"x","object":"chat.completion.chunk","choices":[{"index":0,` + choice + `}]` + more + `}`
}

const (
	used      = `,"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27}`
	inOne     = `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}]` + used + `}`
	jsonLabel = "application/json"
	sseLabel  = "text/event-stream"
)

var (
	yes    = piece(`"delta":{"role":"assistant","content":"Yes."},"finish_reason":null`, "")
	stop   = piece(`"delta":{},"finish_reason":"stop"`, used)
	finish = func(reason string) string {
		return sse(yes, piece(`"delta":{},"finish_reason":`+reason, used), "[DONE]")
	}
)

// A shape is how some server answers, and what is right. Where nothing else is said
// that is 200, the text "Yes." and stop, 27 tokens and 90 micro-dollars.
type shape struct {
	name, feature, label, body string
	status                     int  // of the provider; 0: 200
	hangs                      bool // the connection stays open

	failed       bool // an error, or an error event
	refused      bool // an error before anything was delivered
	text, finish string
	calls        bool // the calls of two tools, and no text unless some is given
	tokens, cost int
	says         string // in the body
}

var shapes = []shape{
	{name: "STOP", body: finish(`"STOP"`)},
	{name: "MAX_TOKENS", body: finish(`"MAX_TOKENS"`), finish: "length"},
	{name: "MAX_TOKENS without content", body: sse(piece(`"delta":{},"finish_reason":"MAX_TOKENS"`, used)), text: "-", finish: "length", says: "used up the 100 tokens"},
	{name: "SAFETY", body: finish(`"SAFETY"`), finish: "content_filter"},
	{name: "a colon and a blank", body: finish(`"stop: eos token"`)},
	{name: "a reason that nobody knows", body: finish(`"quite_new"`)},
	{name: "null as text until the end", body: sse(piece(`"delta":{"content":"Yes."},"finish_reason":"null"`, ""), stop, "[DONE]")},
	{name: "a list of parts", body: sse(piece(`"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]}]}`, ""),
		piece(`"delta":{"content":[{"type":"text","text":"Ye"}]}`, ""), piece(`"delta":{"content":"s."}`, ""), stop, "[DONE]")},
	{name: "parts in one piece", label: jsonLabel, body: strings.Replace(inOne, `"Yes."`, `[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Yes."}]`, 1)},
	{name: "content a number", body: sse(piece(`"delta":{"content":7}`, ""), stop), text: "7"},
	{name: "a finish reason a number", body: finish(`1`)},
	{name: "usage details a list", body: sse(yes, strings.Replace(stop, `"total_tokens"`, `"prompt_tokens_details":[],"completion_tokens_details":[],"total_tokens"`, 1))},
	{name: "events that say nothing", body: sse(`{"type":"ping"}`, `{}`, `{"choices":null}`, `{"id":"x","model":"m"}`, yes, `{"type":"ping"}`, stop, "[DONE]")},
	{name: "comments and CRLF", body: strings.ReplaceAll(": PROCESSING\n\n"+sse(yes, stop, "[DONE]"), "\n", "\r\n")},
	{name: "silence after the end", body: sse(yes, stop), hangs: true},
	{name: "silence after a finish alone", body: sse(yes, piece(`"delta":{},"finish_reason":"stop"`, "")), hangs: true, tokens: -1},
	{name: "error", body: finish(`"error"`), failed: true},
	{name: "abort", body: finish(`"abort"`), failed: true},
	{name: "network error", body: finish(`"network_error"`), failed: true},
	{name: "no resources", body: finish(`"insufficient_system_resource"`), failed: true},
	{name: "an error in the choice", body: sse(yes, piece(`"delta":{},"finish_reason":"stop","error":{"code":502,"message":"no"}`, used)), failed: true},
	{name: "all of it reasoning", body: sse(piece(`"delta":{"reasoning_content":"Hm."}`, ""), piece(`"delta":{"content":"\n\n"},"finish_reason":null`, ""), piece(`"delta":{},"finish_reason":"length"`, used)),
		text: "\n\n", finish: "length", says: "used up the 100 tokens of its output for reasoning"},
	{name: "prompt_cache_hit_tokens", body: cached(`"prompt_cache_hit_tokens":900`), tokens: 1010, cost: 290},
	{name: "cached_tokens", body: cached(`"cached_tokens":900`), tokens: 1010, cost: 290},
	{name: "cache_read_input_tokens", body: cached(`"cache_read_input_tokens":900`), tokens: 1010, cost: 290},
	{name: "usage in the choice", body: sse(yes, piece(`"delta":{},"finish_reason":"stop"`+used, ""), "[DONE]")},
	{name: "events labelled JSON", label: jsonLabel, body: sse(yes, stop, "[DONE]")},
	{name: "events labelled text", label: "text/plain", body: sse(yes, stop, "[DONE]")},
	{name: "events that were not asked for", feature: "whole", body: sse(yes, stop, "[DONE]")},
	{name: "JSON labelled text", feature: "whole", label: "text/plain; charset=utf-8", body: inOne},
	{name: "JSON though events were asked for", label: jsonLabel, body: "\n\n" + inOne},
	{name: "another 2xx", status: 201, label: jsonLabel, body: inOne},
	{name: "a page", label: "text/html", body: "<!doctype html><title>Hello</title>", failed: true, refused: true, tokens: -1},
	{name: "no finish reason", body: sse(yes, `{"choices":[]`+used+`}`, "[DONE]"), failed: true},
	{name: "an empty error", body: sse(piece(`"delta":{"content":"Yes."},"error":""`, `,"error":{}`), stop)},
	{name: "an empty error in one piece", label: jsonLabel, body: strings.Replace(inOne, `"object"`, `"error":{},"object"`, 1)},
	{name: "garbage after all", body: sse(yes, stop, "{{{")},

	{name: "calls in pieces", calls: true, body: sse(piece(`"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}`, ""),
		calling(`{"index":0,"function":{"arguments":"{\"city\":"}}`), calling(`{"index":0,"function":{"arguments":"\"Paris\"}"}}`),
		calling(`{"index":1,"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}`), piece(`"delta":{},"finish_reason":"tool_calls"`, usedToCall), "[DONE]")},
	{name: "calls of Ollama", calls: true, body: sse(calling(`{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}}`),
		calling(`{"index":0,"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}`), piece(`"delta":{"content":""},"finish_reason":"stop"`, usedToCall), "[DONE]")},
	{name: "calls without index or id", calls: true, body: sse(calling(`{"function":{"name":"weather","arguments":{"city":"Paris"}}},{"function":{"name":"time","arguments":{}}}`), stopToCall)},
	{name: "an id for each piece", calls: true, body: sse(calling(`{"index":0,"id":"call_1","function":{"name":"weather","arguments":"{\"city\":"}}`), calling(`{"index":0,"id":"call_9","function":{"arguments":"\"Paris\"}"}}`),
		calling(`{"index":1,"id":"call_2","function":{"name":"time"}}`), stopToCall)},
	{name: "calls repeated at the end", calls: true, body: sse(calling(bothCalls), piece(`"delta":{},"message":{"content":null,"tool_calls":[`+bothCalls+`]},"finish_reason":"tool_calls"`, usedToCall))},
	{name: "text, then calls", calls: true, text: "Yes.", body: sse(yes, calling(bothCalls), stopToCall, "[DONE]")},
	{name: "calls in one piece", calls: true, feature: "whole", label: jsonLabel, body: strings.Replace(inOneToCall, `"content":"Yes."`, `"content":null,"tool_calls":[`+bothCalls+`]`, 1)},
	{name: "calls of Mistral", calls: true, label: jsonLabel, body: strings.Replace(strings.Replace(inOneToCall, `"content":"Yes."`, `"content":"","tool_calls":[`+bothCalls+`]`, 1), `"stop"`, `"tool_calls"`, 1)},
	{name: "an end for calls, and none", body: finish(`"tool_calls"`)},
	{name: "an empty list of calls", body: sse(yes, calling(""), piece(`"delta":{"tool_calls":null,"function_call":null},"finish_reason":"stop"`, used))},
	{name: "calls that are cut off", calls: true, body: sse(calling(bothCalls)), failed: true, tokens: -1},
}

// calling is a chunk with pieces of calls.
func calling(pieces string) string {
	return piece(`"delta":{"tool_calls":[`+pieces+`]},"finish_reason":null`, "")
}

// What calls are billed at: more than they are seen to have.
var (
	usedToCall  = strings.Replace(used, `"completion_tokens":7,"total_tokens":27`, `"completion_tokens":17,"total_tokens":37`, 1)
	stopToCall  = piece(`"delta":{},"finish_reason":"stop"`, usedToCall)
	inOneToCall = strings.Replace(inOne, used, usedToCall, 1)
)

const bothCalls = `{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Paris\"}"}},{"id":"call_2","type":"function","function":{"name":"time","arguments":"{}"}}`

// cached is an answer of which 900 of 1,000 tokens of input came from a cache.
func cached(details string) string {
	return sse(yes, piece(`"delta":{},"finish_reason":"stop"`, `,"usage":{"prompt_tokens":1000,"completion_tokens":10,`+details+`}`), "[DONE]")
}

func init() {
	for _, s := range shapes {
		scripts[s.name] = func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Content-Type", sseLabel)
			if s.label != "" {
				w.Header().Set("Content-Type", s.label)
			}
			w.WriteHeader(max(200, s.status))
			_, _ = io.WriteString(w, s.body)
			if s.hangs {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		}
	}
}

// checkCalls holds an answer to the two calls of shapes: each with an id and a type, and
// without text if there is none.
func (a told) checkCalls(t *testing.T) {
	t.Helper()
	check.Must(t, len(a.calls) == 2, "calls %+v", a.calls)
	for i, want := range []toldCall{{ID: "call_1", Function: toldFunction{"weather", `{"city":"Paris"}`}}, {ID: "call_2", Function: toldFunction{"time", "{}"}}} {
		got := a.calls[i]
		check.That(t, got.Function == want.Function && got.Type == "function" && (got.ID == want.ID || len(got.ID) == 9), "call %+v, want %+v", got, want)
	}
}

// Whatever servers make of OpenAI's format, the caller has the text, and what they
// reported is what is counted, to the token and the micro-dollar.
func TestShapesOfServers(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	d := startDev(t, writeConfig(t, fmt.Sprintf(`
providers: {main: {kind: openai, base_url: %q, timeout: 60s}}
models:
  stream: {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "1", cached_input: "0.10", output: "10"}}
  whole:  {provider: main, id: m, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, stream: false, price_per_mtok: {input: "1", cached_input: "0.10", output: "10"}}
features:
  stream: {model: stream, max_output_tokens: 100, quota: {capacity: 3, per: 366d}}
  whole:  {model: whole, max_output_tokens: 100, quota: {capacity: 3, per: 366d}}
tiers:
  user: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 100, limits: {tokens: {capacity: 1000000, per: 366d}, spend: {usd: "1.00", per: 366d}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
`, s.url)), "--verbose")
	t.Run("shapes", func(t *testing.T) {
		for i, row := range shapes {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/stream=%t", row.name, stream), func(t *testing.T) {
					t.Parallel()
					user, row := fmt.Sprintf("u%d%t", i, stream), row
					row.feature = cmp.Or(row.feature, "stream")
					if row.calls {
						row.text, row.finish = cmp.Or(row.text, "-"), "tool_calls"
						row.tokens, row.cost = cmp.Or(row.tokens, 37), 190
					}
					row.text, row.finish = strings.TrimPrefix(cmp.Or(row.text, "Yes."), "-"), cmp.Or(row.finish, "stop")
					row.tokens, row.cost = cmp.Or(row.tokens, 27), cmp.Or(row.cost, 90)
					asked, token := time.Now(), d.token(t, user)
					a := d.mustAsk(t, token, question{feature: row.feature, text: "<" + row.name + ">", most: 100, stream: stream})
					if took := time.Since(asked); row.hangs && took > 20*time.Second {
						t.Errorf("the end came after %s", took)
					}
					got := a.told(t)
					quota := 1
					switch late := stream && row.failed && !row.refused; {
					case row.failed:
						quota = 0
						check.That(t, (a.status == http.StatusBadGateway || (late && a.status == http.StatusOK)) && got.failed != nil && got.failed.Code == "provider_error" && got.finish == "" && (!late || got.text == row.text),
							"%d %s, want an error", a.status, a.body)
					case a.status != http.StatusOK || got.text != row.text || got.finish != row.finish || got.failed != nil:
						t.Errorf("%d %s, want %q and %s", a.status, a.body, row.text, row.finish)
					case row.calls:
						got.checkCalls(t)
					case strings.TrimSpace(row.text) == "":
						quota = 0
						check.That(t, strings.Contains(got.notice, row.says) && strings.Contains(got.notice, "Nothing was taken from your quota"),
							"notice %q", got.notice)
					}
					left := d.limits(t, token)
					check.Equal(t, 3-left[row.feature], quota, "of the quota")
					if row.tokens < 0 { // nothing was reported, nor seen
						return
					}
					if tokens, cost := 1_000_000-left["tokens"], 1_000_000-left["spend"]; tokens != row.tokens || cost != row.cost {
						t.Errorf("%d tokens and %d micro-dollars, want %d and %d: %s", tokens, cost, row.tokens, row.cost, a.body)
					}
				})
			}
		}
	})
	for _, line := range []string{`"finish_reason":"quite_new"`, `"msg":"the model gave no text"`} {
		await(t, "the log has "+line, func() bool { return strings.Contains(d.output(), line) })
	}
}
