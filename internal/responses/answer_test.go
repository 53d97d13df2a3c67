package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func content(text string) *openai.Delta   { return &openai.Delta{Content: &text} }
func refusal(text string) *openai.Delta   { return &openai.Delta{Refusal: &text} }
func reasoning(text string) *openai.Delta { return &openai.Delta{Reasoning: text} }

func piece(index int, id, name, arguments string) *openai.Delta {
	return &openai.Delta{ToolCalls: []openai.ToolCallDelta{{Index: index, ID: id, Name: name, Arguments: arguments}}}
}

// received are the events of a stream, as a client reads them. Each must have the number of
// its place and be named as its data is.
func received(t *testing.T, stream string) (events []map[string]any) {
	t.Helper()
	check.Must(t, strings.HasSuffix(stream, "\n\n"), "the last event has no end: %q", stream)
	for i, text := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(text, "\ndata: ")
		var e map[string]any
		err := json.Unmarshal([]byte(data), &e)
		check.Must(t, ok && err == nil && name == "event: "+e["type"].(string) && e["sequence_number"] == float64(i), "%v: event %d is %q", err, i, text)
		events = append(events, e)
	}
	return events
}

// line is an event in short: its type, its place, its text.
func line(e map[string]any) string {
	s := strings.TrimPrefix(e["type"].(string), "response.")
	for _, name := range []string{"output_index", "content_index", "summary_index"} {
		if at, ok := e[name]; ok {
			s += fmt.Sprint(" ", at)
		}
	}
	for _, name := range []string{"delta", "text", "refusal", "arguments", "item", "part"} {
		if v, ok := e[name]; ok {
			s += " " + string(openai.Encode(v))
		}
	}
	return s
}

// The events of a stream, in the order in which OpenAI sends them. Its own streams are
// shown in its reference and in the recorded ones with which its clients and the AI SDK are
// tested.
func TestEvents(t *testing.T) {
	t.Parallel()
	const message = `{"content":[],"id":"msg_x_0","role":"assistant","status":"in_progress","type":"message"}`
	text := func(s string) string {
		return fmt.Sprintf(`{"annotations":[],"logprobs":[],"text":%q,"type":"output_text"}`, s)
	}
	said := func(status string, parts ...string) string {
		return `{"content":[` + strings.Join(parts, ",") + `],"id":"msg_x_0","role":"assistant","status":"` + status + `","type":"message"}`
	}
	called := func(status string, at int, id, name, arguments string) string {
		return fmt.Sprintf(`{"arguments":%q,"call_id":%q,"id":"fc_x_%d","name":%q,"status":%q,"type":"function_call"}`, arguments, id, at, name, status)
	}
	for name, tt := range map[string]struct {
		deltas []*openai.Delta
		finish string
		want   []string // without response.created and response.in_progress
	}{
		"text": {[]*openai.Delta{content("Hel"), content("lo")}, "stop", []string{
			`output_item.added 0 ` + message, `content_part.added 0 0 ` + text(""),
			`output_text.delta 0 0 "Hel"`, `output_text.delta 0 0 "lo"`,
			`output_text.done 0 0 "Hello"`, `content_part.done 0 0 ` + text("Hello"), `output_item.done 0 ` + said("completed", text("Hello")),
			`completed`,
		}},
		"cut short": {[]*openai.Delta{content("Hel")}, "length", []string{
			`output_item.added 0 ` + message, `content_part.added 0 0 ` + text(""), `output_text.delta 0 0 "Hel"`,
			`output_text.done 0 0 "Hel"`, `content_part.done 0 0 ` + text("Hel"), `output_item.done 0 ` + said("incomplete", text("Hel")),
			`incomplete`,
		}},
		"a refusal after a text": {[]*openai.Delta{content("Well"), refusal("No"), refusal(".")}, "content_filter", []string{
			`output_item.added 0 ` + message, `content_part.added 0 0 ` + text(""), `output_text.delta 0 0 "Well"`,
			`output_text.done 0 0 "Well"`, `content_part.done 0 0 ` + text("Well"),
			`content_part.added 0 1 {"refusal":"","type":"refusal"}`, `refusal.delta 0 1 "No"`, `refusal.delta 0 1 "."`,
			`refusal.done 0 1 "No."`, `content_part.done 0 1 {"refusal":"No.","type":"refusal"}`,
			`output_item.done 0 ` + said("incomplete", text("Well"), `{"refusal":"No.","type":"refusal"}`),
			`incomplete`,
		}},
		"calls": {[]*openai.Delta{piece(0, "call_a", "f", ""), piece(0, "", "", `{"a"`), piece(0, "", "", `:1}`), piece(1, "call_b", "g", `{}`)}, "tool_calls", []string{
			`output_item.added 0 ` + called("in_progress", 0, "call_a", "f", ""),
			`function_call_arguments.delta 0 "{\"a\""`, `function_call_arguments.delta 0 ":1}"`,
			`function_call_arguments.done 0 "{\"a\":1}"`, `output_item.done 0 ` + called("completed", 0, "call_a", "f", `{"a":1}`),
			`output_item.added 1 ` + called("in_progress", 1, "call_b", "g", ""),
			`function_call_arguments.delta 1 "{}"`,
			`function_call_arguments.done 1 "{}"`, `output_item.done 1 ` + called("completed", 1, "call_b", "g", `{}`),
			`completed`,
		}},
		"calls whose pieces are mixed": {[]*openai.Delta{piece(0, "call_a", "f", `{"a"`), piece(1, "call_b", "g", `{`), piece(0, "", "", `:1}`), piece(1, "", "", `}`)}, "tool_calls", []string{
			`output_item.added 0 ` + called("in_progress", 0, "call_a", "f", ""), `function_call_arguments.delta 0 "{\"a\""`,
			`output_item.added 1 ` + called("in_progress", 1, "call_b", "g", ""), `function_call_arguments.delta 1 "{"`,
			`function_call_arguments.delta 0 ":1}"`, `function_call_arguments.delta 1 "}"`,
			`function_call_arguments.done 0 "{\"a\":1}"`, `output_item.done 0 ` + called("completed", 0, "call_a", "f", `{"a":1}`),
			`function_call_arguments.done 1 "{}"`, `output_item.done 1 ` + called("completed", 1, "call_b", "g", `{}`),
			`completed`,
		}},
		"a call without an id, cut short": {[]*openai.Delta{piece(0, "", "f", `{"a`)}, "length", []string{
			`output_item.added 0 ` + called("in_progress", 0, "call_x_0", "f", ""), `function_call_arguments.delta 0 "{\"a"`,
			`function_call_arguments.done 0 "{\"a"`, `output_item.done 0 ` + called("incomplete", 0, "call_x_0", "f", `{"a`),
			`incomplete`,
		}},
		"reasoning before a call": {[]*openai.Delta{reasoning("H"), reasoning("m"), piece(0, "call_a", "f", "{}")}, "tool_calls", []string{
			`output_item.added 0 {"id":"rs_x_0","summary":[],"type":"reasoning"}`,
			`reasoning_summary_part.added 0 0 {"text":"","type":"summary_text"}`,
			`reasoning_summary_text.delta 0 0 "H"`, `reasoning_summary_text.delta 0 0 "m"`,
			`reasoning_summary_text.done 0 0 "Hm"`, `reasoning_summary_part.done 0 0 {"text":"Hm","type":"summary_text"}`,
			`output_item.done 0 {"id":"rs_x_0","summary":[{"text":"Hm","type":"summary_text"}],"type":"reasoning"}`,
			`output_item.added 1 ` + called("in_progress", 1, "call_a", "f", ""), `function_call_arguments.delta 1 "{}"`,
			`function_call_arguments.done 1 "{}"`, `output_item.done 1 ` + called("completed", 1, "call_a", "f", "{}"),
			`completed`,
		}},
		"nothing": {nil, "stop", []string{`completed`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := answerTo(t, with(""))
			stream := string(a.Begin())
			for _, d := range tt.deltas {
				stream += string(a.Add(d))
			}
			stream += string(a.End(Last{FinishReason: tt.finish}))
			events := received(t, stream)
			var got []string
			for _, e := range events {
				got = append(got, line(e))
			}
			check.Diff(t, cmp.Diff(append([]string{"created", "in_progress"}, tt.want...), got), "events")

			// The response at the end has the items as they were told, and so has an answer in one piece.
			var items []any
			for _, e := range events {
				if e["type"] == "response.output_item.done" {
					items = append(items, e["item"])
				}
			}
			last := events[len(events)-1]["response"].(map[string]any)
			check.Diff(t, cmp.Diff(items, last["output"], cmp.Transformer("none", func(list []any) string { return string(openai.Encode(append([]any{}, list...))) })), "output")
		})
	}
}

func answerTo(t *testing.T, body string) *Answer {
	t.Helper()
	req, apiErr := Parse([]byte(body))
	check.Must(t, apiErr == nil, "%+v", apiErr)
	return req.Answer(Head{ID: "x", Created: 7, Model: "open", MaxOutput: 400})
}

// A response has every member that official clients insist on, and repeats its request.
func TestResponse(t *testing.T) {
	t.Parallel()
	a := answerTo(t, with(`"instructions":"Be brief.","metadata":{"a":"b"},"temperature":0.5,"store":true,"text":{"format":{"type":"json_object"}},
		"parallel_tool_calls":false,"tool_choice":{"type":"function","name":"f"},"reasoning":{"effort":"low"},
		"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g"}]`))
	a.Add(content("Hi"))
	a.End(Last{FinishReason: "length", Usage: price.Usage{Input: 20, CachedInput: 4, CacheWrite: 2, Output: 7, Reasoning: 3}, Notice: "None."})
	var got any
	check.OK(t, json.Unmarshal(openai.Encode(a.Response()), &got))
	var want any
	check.OK(t, json.Unmarshal([]byte(`{"id":"resp_x","object":"response","created_at":7,"status":"incomplete","background":false,"completed_at":null,
		"error":null,"incomplete_details":{"reason":"max_output_tokens"},"instructions":"Be brief.","max_output_tokens":400,"max_tool_calls":null,
		"metadata":{"a":"b"},"model":"open","output":[{"id":"msg_x_0","type":"message","status":"incomplete","role":"assistant",
			"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hi"}]}],
		"parallel_tool_calls":false,"previous_response_id":null,"reasoning":{"effort":"low","summary":null},"service_tier":"default","store":false,
		"temperature":0.5,"text":{"format":{"type":"json_object"},"verbosity":"medium"},"tool_choice":{"type":"function","name":"f"},
		"tools":[{"type":"function","name":"f","description":"d","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g","parameters":null,"strict":false}],"top_logprobs":0,"top_p":null,
		"truncation":"disabled","usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"output_tokens":7,
			"output_tokens_details":{"reasoning_tokens":3},"total_tokens":27},"user":null,"notice":"None."}`), &want))
	check.Diff(t, cmp.Diff(want, got), "response")

	// A request is not repeated at any length.
	for _, long := range []string{`"instructions":"` + strings.Repeat("a", 9000) + `"`, `"metadata":{"a":null,"b":"c"}`, `"text":{"format":{"type":"text","none":null}}`} {
		encoded := string(openai.Encode(answerTo(t, with(long)).Response()))
		check.That(t, len(encoded) < 1000 && !strings.Contains(encoded, `"a":null`) && !strings.Contains(encoded, "none"), "%.50s: %s", long, encoded)
	}

	// The owner's tools, which go upstream where a caller sends none, are not told.
	req, apiErr := Parse([]byte(with("")))
	check.Must(t, apiErr == nil, "%+v", apiErr)
	req.Tooling = openai.Tooling{Tools: []openai.Tool{{Name: "own"}}, ToolChoice: openai.ToolChoice{Mode: "required"}}
	plain := req.Answer(Head{}).Response()
	check.That(t, len(plain.Tools) == 0 && plain.ToolChoice == "auto", "%+v", plain)

	done := answerTo(t, with(""))
	done.End(Last{FinishReason: "stop", Completed: 9, Limits: []string{"a"}})
	r := done.Response()
	check.That(t, r.Status == "completed" && r.Completed != nil && *r.Completed == 9 && r.Incomplete == nil && r.Limits != nil, "%+v", r)
}

// A stream that fails tells of it as OpenAI does, whether or not it has begun, and with what
// had come by then.
func TestFail(t *testing.T) {
	t.Parallel()
	failed := openai.Errorf(openai.ProviderError, "", "The model failed to answer.")
	failed.Upstream = 500
	for _, begun := range []bool{false, true} {
		a, stream := answerTo(t, with("")), ""
		want := []string{"created", "in_progress", "error", "failed"}
		if begun {
			stream = string(a.Begin()) + string(a.Add(content("Hel")))
			want = []string{"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "error", "failed"}
		}
		stream += string(a.Fail(failed))
		events := received(t, stream)
		var got []string
		for _, e := range events {
			got = append(got, strings.TrimPrefix(e["type"].(string), "response."))
		}
		check.Diff(t, cmp.Diff(want, got), "events")
		check.Diff(t, cmp.Diff(map[string]any{
			"type": "error", "sequence_number": float64(len(events) - 2), "code": "provider_error", "message": "The model failed to answer.", "param": nil,
			"error": map[string]any{"message": "The model failed to answer.", "type": "server_error", "param": nil, "code": "provider_error", "upstream_status": 500.0},
		}, events[len(events)-2]), "the error")
		r := events[len(events)-1]["response"].(map[string]any)
		check.Diff(t, cmp.Diff(map[string]any{"code": "server_error", "message": "The model failed to answer."}, r["error"]), "the response's error")
		output := string(openai.Encode(r["output"]))
		check.That(t, r["status"] == "failed" && strings.Contains(output, `"status":"incomplete"`) == begun && strings.Contains(output, "Hel") == begun, "%v %s", r["status"], output)
	}
}
