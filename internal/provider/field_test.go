package provider

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// labelled answers body with a status and a content type.
func labelled(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{contentType}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// An answer is what it begins with, whatever was asked for and whatever it is called.
func TestAnswersAreJudgedByTheirFirstBytes(t *testing.T) {
	usage := &price.Usage{Input: 9, Output: 5}
	page := "<!doctype html><p>" + wholeAnswer
	for name, body := range map[string]string{
		"JSON": wholeAnswer, "JSON after blanks": "\ufeff\n\n \r\n" + wholeAnswer,
		"events": stream1, "events after a comment": ": PROCESSING\n\n" + stream1, "events after blanks": "\ufeff\n\r\n" + stream1,
		"named events": strings.ReplaceAll(stream1, "data: ", "event: message\nid: 1\ndata: "),
		"a page":       page, "a page after blanks": "\n" + page, "prose": "ANSWER", "nothing": "", "blanks": " \n",
		"blanks without an end": strings.Repeat("\n", maxEvent+1) + wholeAnswer,
	} {
		for _, contentType := range []string{"application/json", "text/event-stream", "text/plain", "text/html", "application/octet-stream", ""} {
			for _, status := range []int{200, 201, 206} {
				url, calls := server(t, labelled(status, contentType, body))
				for _, stream := range []bool{false, true} {
					got, err := call(t.Context(), t, client(t, url), request(stream))
					if strings.Contains(name, "JSON") || strings.Contains(name, "events") {
						diff := cmp.Diff(answered("stop", usage), got)
						check.That(t, err == io.EOF && diff == "", "%s as %q, %d, stream %t: %v %s", name, contentType, status, stream, err, diff)
						continue
					}
					if wantFailure(t, err, Broken, status); t.Failed() {
						t.Fatalf("%s as %q", name, contentType)
					}
				}
				check.Equal(t, calls.Load(), 2, "requests for 2 calls")
			}
			if name == "blanks without an end" {
				break
			}
		}
	}
}

// told is a chunk with choice 0, and what else it has.
func told(choice, more string) string {
	return `data: {"choices":[{"index":0,` + choice + `}]` + more + "}\n\n"
}

// Servers that are called compatible are read, whatever they make of the format.
func TestShapesOfAnswers(t *testing.T) {
	billed := &price.Usage{Input: 20, Output: 7}
	const usage = `"usage":{"prompt_tokens":20,"completion_tokens":7,"total_tokens":27}`
	yes := func(reason string) Part { return Part{Content: "Yes.", FinishReason: reason, Usage: billed} }
	said := told(`"delta":{"content":"Yes."}`, "")
	ended := told(`"delta":{},"finish_reason":"stop"`, "")
	end := ended + "data: {" + usage + "}\n\n" + doneEvent
	// A stream, or what stands in the choice of an answer in one piece.
	for _, tt := range []struct {
		name, body string
		want       Part
		failed     string // the code of a failure; "-": it has none
	}{
		// Finish reasons.
		{"STOP", told(`"delta":{"content":"Yes."},"finish_reason":"STOP"`, ","+usage), yes("stop"), ""},
		{"MAX_TOKENS", told(`"delta":{"content":"Yes."},"finish_reason":"MAX_TOKENS"`, ","+usage), yes("length"), ""},
		{"MAX_TOKENS and no content", told(`"delta":{},"finish_reason":"MAX_TOKENS"`, ","+usage), Part{FinishReason: "length", Usage: billed}, ""},
		{"SAFETY", told(`"delta":{"content":"Yes."},"finish_reason":"SAFETY"`, ","+usage), yes("content_filter"), ""},
		{"null as text", told(`"delta":{"content":"Yes."},"finish_reason":"null"`, "") + end, yes("stop"), ""},
		{"a number", told(`"delta":{"content":"Yes."},"finish_reason":1`, ","+usage),
			Part{Content: "Yes.", FinishReason: "stop", UnknownReason: "1", Usage: billed}, ""},
		{"a failure inside the choice", said + told(`"delta":{},"finish_reason":"stop","error":{"code":"upstream","message":"PROMPT"}`, ","+usage),
			Part{Content: "Yes.", Usage: billed}, "upstream"},
		{"insufficient_system_resource", said + told(`"delta":{},"finish_reason":"insufficient_system_resource"`, ","+usage),
			Part{Content: "Yes.", Usage: billed}, "insufficient_system_resource"},

		// Text.
		{"a list of parts", told(`"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]},{"type":"text","text":"Yes"}]}`, "") +
			told(`"delta":{"content":"."}`, "") + end, Part{Content: "Yes.", Reasoning: "Hm.", FinishReason: "stop", Usage: billed}, ""},
		{"parts of all kinds", told(`"delta":{"content":["Y",{"text":"e"},{"type":"output_text","text":{"value":"s"}},{"type":"reasoning","summary":[],"text":"Hm."},{"type":"image_url"},7,null,{"type":"text","content":"."}]}`, "") + end,
			Part{Content: "Yes.", Reasoning: "Hm.", FinishReason: "stop", Usage: billed}, ""},
		{"a refusal among parts", told(`"delta":{"content":[{"type":"refusal","refusal":"No."}]}`, "") + end, Part{Refusal: "No.", FinishReason: "stop", Usage: billed}, ""},
		{"a number", told(`"delta":{"content":7}`, "") + end, Part{Content: "7", FinishReason: "stop", Usage: billed}, ""},
		{"text of older completions", told(`"text":"Yes."`, "") + end, yes("stop"), ""},
		{"text in the delta", told(`"delta":{"text":"Yes."}`, "") + end, yes("stop"), ""},
		{"a message in place of the delta", told(`"message":{"content":"Ye"}`, "") + told(`"message":{"content":"s."}`, "") + end, yes("stop"), ""},
		{"a message at the end that repeats the deltas", said + told(`"delta":{},"message":{"content":"Yes."},"text":"Yes."`, "") + end, yes("stop"), ""},
		{"thinking apart", told(`"delta":{"reasoning_content":"Hm.","reasoning":"Hm.","content":null}`, "") + said + end,
			Part{Content: "Yes.", Reasoning: "Hm.", FinishReason: "stop", Usage: billed}, ""},
		{"only thinking", told(`"delta":{"reasoning":"Hm."}`, "") + told(`"delta":{"content":""},"finish_reason":"length"`, ","+usage),
			Part{Reasoning: "Hm.", FinishReason: "length", Usage: billed}, ""},
		{"members of other kinds", `data: {"id":7,"object":[],"created":"now","model":null,"choices":[{"index":"0","logprobs":[],"delta":{"role":1,"content":"Yes.","refusal":false,"tool_calls":{}}}]}` + "\n\n" +
			end, yes("stop"), ""},
		{"another index", strings.ReplaceAll(said+ended, `"index":0`, `"index":3`) + "data: {" + usage + "}\n\n", yes("stop"), ""},

		// Events that say nothing.
		{"pings", said + "data: {\"type\":\"ping\"}\n\nevent: ping\ndata: {}\n\ndata: null\n\ndata: [PING]\n\ndata: keep-alive\n\ndata:  \n\ndata:\n\n: OPENROUTER PROCESSING\n\ndata: []\n\ndata: \"\"\n\n" + end, yes("stop"), ""},
		{"no choices yet", "data: {\"id\":\"x\",\"model\":\"m\"}\n\ndata: {\"choices\":null}\n\ndata: {\"choices\":[]}\n\ndata: {\"choices\":[{}]}\n\n" + said + end, yes("stop"), ""},
		{"no blank lines", strings.ReplaceAll(said+end, "\n\n", "\n"), yes("stop"), ""},

		// Usage.
		{"in the choice", said + told(`"delta":{},"finish_reason":"stop",`+usage, "") + doneEvent, yes("stop"), ""},
		{"in x_groq", said + told(`"delta":{},"finish_reason":"stop"`, `,"x_groq":{"id":"x",`+usage+`}`) + doneEvent, yes("stop"), ""},
		{"an empty one beside it", said + told(`"delta":{},"finish_reason":"stop",`+usage, `,"usage":{}`) + doneEvent, yes("stop"), ""},
		{"details of another kind", said + ended + `data: {"usage":{"prompt_tokens":20,"completion_tokens":7,"prompt_tokens_details":[],"completion_tokens_details":[]}}` + "\n\n" + doneEvent, yes("stop"), ""},
		{"repeated, and once less", said + ended + "data: {" + usage + "}\n\ndata: {\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":2}}\n\n", yes("stop"), ""},
		{"before the finish", said + "data: {" + usage + "}\n\n" + ended + doneEvent, yes("stop"), ""},
		{"without a finish", said + "data: {" + usage + "}\n\n" + doneEvent, Part{Content: "Yes.", Usage: billed}, "-"},

		// Errors.
		{"an empty error", told(`"delta":{"content":"Yes."},"error":""`, `,"error":{}`) + told(`"delta":{}`, `,"error":{"message":"","code":0,"type":null}`) + end, yes("stop"), ""},
		{"an event of an error", said + "event: error\ndata: {\"code\":\"busy\",\"message\":\"PROMPT\"}\n\n", Part{Content: "Yes."}, "busy"},
		{"an object error", said + `data: {"object":"error","code":"busy","message":"PROMPT"}` + "\n\n", Part{Content: "Yes."}, "busy"},
		{"a type error", said + `data: {"type":"error","code":"busy"}` + "\n\n", Part{Content: "Yes."}, "busy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := server(t, answerSSE(tt.body))
			got, err := call(t.Context(), t, client(t, url), request(true))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			var e *Error
			switch {
			case tt.failed == "" && err != io.EOF:
				t.Error(err)
			case tt.failed != "" && (!errors.As(err, &e) || e.Failure != Broken || strings.TrimPrefix(tt.failed, "-") != e.Code):
				t.Errorf("%v, want a failure with code %s", err, tt.failed)
			}
		})
	}
}

// A finish reason is known by its word, whatever stands around it.
func TestFinishReasons(t *testing.T) {
	for said, want := range map[any]string{
		nil: "", "": "", " ": "", "null": "", "None": "", false: "", 0.0: "", "FINISH_REASON_UNSPECIFIED": "",
		"stop": "stop", "Stop": "stop", "STOP": "stop", "eos": "stop", "end_turn": "stop", "FinishReason.STOP": "stop", "stop: eos": "stop", " stop ": "stop", "COMPLETE": "stop",
		"length": "length", "MAX_TOKENS": "length", "max tokens": "length", "max-tokens": "length", "length: max_tokens": "length", "model_length": "length", "model_context_window_exceeded": "length",
		"content_filter": "content_filter", "SAFETY": "content_filter", "content_filter: hate": "content_filter", "RECITATION": "content_filter", "sensitive": "content_filter", "PROHIBITED_CONTENT": "content_filter",
		"error": "!error", "ERROR": "!error", "error: overloaded": "!error", "abort": "!abort", "network_error": "!network_error", "network error": "!network_error", "upstream_error": "!upstream_error",
		"insufficient_system_resource": "!insufficient_system_resource", "MALFORMED_FUNCTION_CALL": "!malformed_function_call", "malformed_model_output": "!malformed_model_output",
		"tool_calls": "tool_calls", "TOOL_CALLS": "tool_calls", "tool_use": "tool_calls", "function_call": "tool_calls", "FinishReason.TOOL_CALL": "tool_calls", "OTHER": "stop other", "new_reason": "stop new_reason", 1.0: "stop 1", true: "stop other", "It was the ANSWER.": "stop other", "答": "stop other",
	} {
		reason, unknown, err := readReason(said)
		got := strings.TrimSpace(reason + " " + unknown)
		var failed saidFailure
		if errors.As(err, &failed) {
			got += "!" + failed.code
		}
		check.Equal(t, got, want, "%v is", said)
	}
	if reason, unknown, err := readReason([]any{"stop"}); reason != "stop" || unknown != "other" || err != nil {
		t.Errorf("a list is %s %s %v", reason, unknown, err)
	}
}

// The answer ends when all of it is here, not when its connection does.
func TestAnswersAreOverWhenTheyHaveEnded(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		want   Part
		within time.Duration
	}{
		{"finish and usage", answerSSE(textEvents + finishEvent + usageEvent), usualAnswer, usageWait},
		{"usage, then finish", answerSSE(textEvents + usageEvent + finishEvent), usualAnswer, usageWait},
		{"all in one", answerSSE(told(`"delta":{"content":"ANSWER"},"finish_reason":"stop"`, `,"usage":`+jsonUsage)), usualAnswer, usageWait},
		{"a finish alone", answerSSE(textEvents + finishEvent), answered("stop", nil), usageWait + 3*time.Second},
		{"in one piece", answerJSON(wholeAnswer), usualAnswer, usageWait},
		{"in one piece, and blanks", answerJSON(wholeAnswer + "\n\n"), usualAnswer, usageWait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url, _ := server(t, hang(tt.answer))
			begun := time.Now()
			got, err := call(t.Context(), t, client(t, url), request(true))
			took := time.Since(begun)
			diff := cmp.Diff(tt.want, got)
			check.That(t, err == io.EOF && diff == "", "%v %s", err, diff)
			check.That(t, took <= tt.within && (tt.want.Usage != nil || took >= usageWait), "it took %s", took)
		})
	}
	// What comes after all is part of the answer. Keep-alives do not prolong the wait.
	t.Run("more text", func(t *testing.T) {
		t.Parallel()
		url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			for _, word := range []string{"AN", "SW", "ER"} {
				answerSSE(told(`"delta":{"content":"`+word+`"},"finish_reason":"stop"`, `,"usage":`+jsonUsage))(w, r)
				http.NewResponseController(w).Flush()
				time.Sleep(briefly / 10)
			}
			for r.Context().Err() == nil {
				io.WriteString(w, "data: {\"type\":\"ping\"}\n\n")
				http.NewResponseController(w).Flush()
				time.Sleep(briefly / 10)
			}
		})
		got, err := call(t.Context(), t, client(t, url), request(true))
		diff := cmp.Diff(usualAnswer, got)
		check.That(t, err == io.EOF && diff == "", "%v %s", err, diff)
	})
}

// What comes after a pause belongs to an answer in one piece, even if what came before it
// is whole by itself.
func TestPiecesOfWholeAnswers(t *testing.T) {
	lines := strings.NewReplacer("data: ", "", "\n\n", "\n").Replace(textEvents + finishEvent + usageEvent)
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		for line := range strings.Lines(lines) {
			io.WriteString(w, line)
			http.NewResponseController(w).Flush()
			time.Sleep(briefly / 10)
		}
	})
	got, err := call(t.Context(), t, client(t, url), request(true))
	diff := cmp.Diff(usualAnswer, got)
	check.That(t, err == io.EOF && diff == "", "%v %s", err, diff)
}

// Events that say nothing do not go on for ever.
func TestEventsThatSayNothing(t *testing.T) {
	for n, want := range map[int]error{maxIdle - 10: io.EOF, maxIdle + 10: errIdle} {
		url, _ := server(t, answerSSE(textEvents+strings.Repeat("data: {}\n\n", n)+finishEvent+usageEvent))
		if got, err := call(t.Context(), t, client(t, url), request(true)); !errors.Is(err, want) || got.Content != testAnswer {
			t.Errorf("after %d: %+v, %v", n, got, err)
		}
	}
}

// Cache reads and writes are found wherever servers put them.
func TestCacheReads(t *testing.T) {
	for details, want := range map[string]price.Usage{
		`"prompt_tokens_details":{"cached_tokens":900}`:                {CachedInput: 900},
		`"prompt_cache_hit_tokens":900,"prompt_cache_miss_tokens":100`: {CachedInput: 900},
		`"cached_tokens":900`:           {CachedInput: 900},
		`"cache_read_input_tokens":900`: {CachedInput: 900},
		`"prompt_tokens_details":{"cached_tokens":0},"prompt_cache_hit_tokens":900`:           {CachedInput: 900},
		`"prompt_tokens_details":{"cache_read_input_tokens":900,"cache_write_tokens":50}`:     {CachedInput: 900, CacheWrite: 50},
		`"prompt_tokens_details":[],"cached_tokens":"900","cache_read_input_tokens":{}`:       {},
		`"input_tokens":100,"cache_read_input_tokens":900,"prompt_tokens_details":{"x":true}`: {CachedInput: 900},
	} {
		want.Input, want.Output = 1000, 10
		check.Equal(t, cmp.Diff(&want, readUsage(`{"prompt_tokens":1000,"completion_tokens":10,`+details+`}`, true)), "", "%s", details)
	}
	// By Anthropic's names input is what was neither read from a cache nor written to one.
	for usage, want := range map[string]*price.Usage{
		`{"input_tokens":90,"cache_read_input_tokens":900,"cache_creation_input_tokens":10,"output_tokens":10}`:     {Input: 1000, CachedInput: 900, CacheWrite: 10, Output: 10},
		`{"input_tokens":1000,"input_tokens_details":{"cached_tokens":900},"output_tokens":10,"total_tokens":1010}`: {Input: 1000, CachedInput: 900, Output: 10},
		`{"prompt_tokens":1000.0,"completion_tokens":1e1}`:                                                          {Input: 1000, Output: 10},
		`{"input_tokens":-1,"output_tokens":10}`:                                                                    nil,
		`{"input_tokens":9,"cache_read_input_tokens":-1,"output_tokens":10}`:                                        nil,
	} {
		check.Equal(t, cmp.Diff(want, readUsage(usage, true)), "", "%s", usage)
	}
}

// However an answer in one piece is wrong, it is read like one of a stream.
func TestShapesInOnePiece(t *testing.T) {
	for choice, want := range map[string]Part{
		`"message":{"content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"Yes."}],"reasoning_details":[]},"finish_reason":"STOP"`: {Content: "Yes.", Reasoning: "Hm."},
		`"delta":{"content":"Yes."},"finish_reason":"stop"`:                               {Content: "Yes."},
		`"text":"Yes.","message":null,"finish_reason":"eos"`:                              {Content: "Yes."},
		`"message":{"content":"","reasoning_content":"Hm."},"finish_reason":"MAX_TOKENS"`: {Reasoning: "Hm.", FinishReason: "length"},
	} {
		if want.FinishReason == "" {
			want.FinishReason = "stop"
		}
		got, err := parseCompletionWhole(fmt.Appendf(nil, `{"choices":[{%s}]}`, choice))
		diff := cmp.Diff(want, got)
		check.That(t, err == nil && diff == "", "%s: %v %s", choice, err, diff)
	}
	// Lines of JSON in place of events.
	lines := strings.NewReplacer("data: ", "", "\n\n", "\n").Replace(roleEvent + textEvents + finishEvent + usageEvent)
	first := strings.SplitAfter(lines, "\n")[1]
	for body, want := range map[string]error{
		lines: nil, lines + "[DONE]\n": nil, lines + "{": nil,
		roleEvent[len("data: "):]: errUnfinished, first: errUnfinished, first + first: errUnfinished, first + `{"choi`: errMalformed, first + "ANSWER": errMalformed,
		first + `{"error":{"code":"busy"}}` + lines: saidFailure{"busy"},
	} {
		got, err := parseCompletionWhole([]byte(body))
		check.That(t, err == want && (err != nil || cmp.Equal(got, usualAnswer)) && (err == nil || got.FinishReason == "") && !strings.Contains(body, "ANS") != strings.Contains(got.Content, "ANS"),
			"%s: %+v, %v, want %v", body, got, err, want)
	}
}
