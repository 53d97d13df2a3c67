package responses

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// with is a good request with more members; extra begins without a comma.
func with(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"open","input":"Hi"` + extra + `}`
}

// items is a good request with other items.
func items(list ...string) string {
	return `{"model":"open","input":[` + strings.Join(list, ",") + `]}`
}

const (
	user       = `{"role":"user","content":"Hi"}`
	call       = `{"type":"function_call","id":"fc_1","call_id":"call_a","name":"f","arguments":"{}","status":"completed"}`
	secondOne  = `{"type":"function_call","call_id":"call_b","name":"g","arguments":"{\"a\":1}","parsed_arguments":{"a":1}}`
	result     = `{"type":"function_call_output","call_id":"call_a","output":"1"}`
	chatCall   = `{"id":"call_a","type":"function","function":{"name":"f","arguments":"{}"}}`
	chatSecond = `{"id":"call_b","type":"function","function":{"name":"g","arguments":"{\"a\":1}"}}`
	// pixel is a picture of one.
	pixel   = "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="
	another = `{"type":"function_call_output","call_id":"call_b","output":[{"type":"input_text","text":"2"},{"type":"input_text","text":"3"}]}`
)

func parts(list ...string) string {
	return items(`{"role":"user","content":[` + strings.Join(list, ",") + `]}`)
}

// A request asks for what the same request for a chat completion asks for.
func TestRespelled(t *testing.T) {
	t.Parallel()
	chat := func(messages, extra string) string {
		return `{"model":"open","messages":[` + messages + `]` + extra + `}`
	}
	const hi = `{"role":"user","content":"Hi"}`
	for _, tt := range []struct{ response, chat string }{
		{with(""), chat(hi, "")},
		{with(`"stream":true,"temperature":0.5,"top_p":1,"max_output_tokens":50`), chat(hi, `,"stream":true,"temperature":0.5,"top_p":1,"max_completion_tokens":50`)},
		{with(`"instructions":"Be <b>brief</b>."`), chat(`{"role":"system","content":"Be <b>brief</b>."},`+hi, "")},
		{`{"instructions":"Be brief.","model":"open","input":[{"role":"developer","content":"D"},` + user + `]}`,
			chat(`{"role":"system","content":"Be brief."},{"role":"developer","content":"D"},`+hi, "")},
		{with(`"instructions":""`), chat(hi, "")},
		{with(`"text":{"format":{"type":"text"},"verbosity":"medium"}`), chat(hi, "")},
		{with(`"text":{"format":{"type":"json_object"}}`), chat(hi, `,"response_format":{"type":"json_object"}`)},
		{with(`"text":{"format":{"name":"a","strict":true,"type":"json_schema","schema":{"b":1,"a":"<"},"description":"d"}}`),
			chat(hi, `,"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":{"b":1,"a":"<"},"description":"d"}}`)},
		// What official clients send by themselves, or get back from us and send again.
		{with(`"store":true,"include":["reasoning.encrypted_content"],"truncation":"disabled","service_tier":"auto","background":false,"top_logprobs":0,
			"metadata":{"a":"b"},"user":"u","safety_identifier":"s","prompt_cache_key":"k","stream_options":{"include_obfuscation":false},"text":{},"reasoning":{"summary":"detailed"}`), chat(hi, "")},
		{with(`"store":false,"include":[],"service_tier":"default","previous_response_id":null,"conversation":null,"prompt":null,"tools":[],"reasoning":{}`), chat(hi, "")},
		{items(`{"type":"message","role":"user","content":[{"type":"input_text","text":"H","prompt_cache_breakpoint":{"mode":"explicit"}},{"type":"input_text","text":"i"}]}`), chat(hi, "")},
		{items(user, `{"id":"msg_1","type":"message","status":"completed","role":"assistant","phase":"final_answer","content":[
			{"type":"output_text","text":"Hello","annotations":[],"logprobs":[],"parsed":null},{"type":"refusal","refusal":" no"}]}`,
			`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm"}],"encrypted_content":null}`, `{"role":"user","content":"More"}`),
			chat(hi+`,{"role":"assistant","content":"Hello no"},{"role":"user","content":"More"}`, "")},
		// Calls stand within the message of the assistant's that they follow.
		{items(user, `{"role":"assistant","content":"Let me see."}`, `{"type":"reasoning","summary":[]}`, call, secondOne, another, result, `{"role":"assistant","content":"Done."}`),
			chat(hi+`,{"role":"assistant","content":"Let me see.","tool_calls":[`+chatCall+`,`+chatSecond+`]},
				{"role":"tool","tool_call_id":"call_b","content":"23"},{"role":"tool","tool_call_id":"call_a","content":"1"},{"role":"assistant","content":"Done."}`, "")},
		{items(user, call, result, secondOne, another),
			chat(hi+`,{"role":"assistant","tool_calls":[`+chatCall+`]},{"role":"tool","tool_call_id":"call_a","content":"1"},
				{"role":"assistant","tool_calls":[`+chatSecond+`]},{"role":"tool","tool_call_id":"call_b","content":"23"}`, "")},
		{items(user, call, `{"role":"assistant","content":"I am calling."}`, `{"type":"function_call_output","call_id":"call_a","output":[]}`),
			chat(hi+`,{"role":"assistant","content":"I am calling.","tool_calls":[`+chatCall+`]},{"role":"tool","tool_call_id":"call_a","content":""}`, "")},
		{with(`"parallel_tool_calls":false,"tool_choice":"required","tools":[{"type":"function","name":"f","description":"<d>","strict":true,"parameters":{"type":"object","properties":{"b":{},"a":{}}}},
			{"type":"function","name":"g","parameters":null,"strict":null,"defer_loading":false,"allowed_callers":["direct"]}]`),
			chat(hi, `,"parallel_tool_calls":false,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f","description":"<d>","strict":true,"parameters":{"type":"object","properties":{"b":{},"a":{}}}}},
			{"type":"function","function":{"name":"g"}}]`)},
		{with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"name":"f","type":"function"}`),
			chat(hi, `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`)},
		{parts(`{"type":"input_text","text":"What is this?"}`, `{"type":"input_image","detail":"low","image_url":"`+pixel+`"}`, `{"type":"input_image","image_url":"https://a.example/a.png","file_id":null}`),
			chat(`{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"`+pixel+`","detail":"low"}},{"type":"image_url","image_url":{"url":"https://a.example/a.png"}}]}`, "")},
		{with(`"reasoning":{"effort":"low","summary":"auto"}`), chat(hi, `,"reasoning_effort":"low"`)},
		{items(user, `{"role":"assistant","content":[]}`, user), chat(hi+`,{"role":"assistant","content":""},`+hi, "")},
	} {
		want, apiErr := openai.ParseChat([]byte(tt.chat))
		check.Must(t, apiErr == nil, "%+v: %s", apiErr, tt.chat)
		got, apiErr := Parse([]byte(tt.response))
		check.Must(t, apiErr == nil, "%+v: %s", apiErr, tt.response)
		check.Diff(t, cmp.Diff(want, got.ChatRequest), "%s", tt.response)
	}
}

// What is wrong is named as it was written.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 600)
	for _, tt := range []struct {
		body  string
		code  openai.Code
		param string // "": null
	}{
		{`[]`, openai.InvalidJSON, ""},
		{`{"model":"open"`, openai.InvalidJSON, ""},
		{"{\"model\":\"open\",\"input\":\"\xff\"}", openai.InvalidJSON, ""},
		{with(`"input":"Hi"`), openai.InvalidJSON, "input"},
		{items(`{"role":"user","role":"user","content":"a"}`), openai.InvalidJSON, "input[0].role"},
		{parts(`{"type":"input_text","text":"a","t\u0065xt":"b"}`), openai.InvalidJSON, "input[0].content[0].text"},
		{with(`"text":{"format":{"type":"text","type":"text"}}`), openai.InvalidJSON, "text.format.type"},
		{with(`"text":{"format":{"type":"json_schema","name":"a","schema":{"a":{"b":1,"b":1}}}}`), openai.InvalidJSON, "text.format"},
		{with(`"reasoning":{"summary":"auto","summary":"auto"}`), openai.InvalidJSON, "reasoning.summary"},

		{`{"input":"Hi"}`, openai.InvalidValue, "model"},
		{`{"model":"open"}`, openai.InvalidValue, "input"},
		{`{"model":"open","input":null}`, openai.InvalidValue, "input"},
		{`{"model":"open","input":[]}`, openai.InvalidValue, "input"},
		{`{"model":"open","input":1}`, openai.InvalidValue, "input"},
		{`{"model":"open","input":{"role":"user","content":"a"}}`, openai.InvalidValue, "input"},
		{`{"model":"open","input":[],"instructions":"a"}`, openai.InvalidValue, "input"},
		{items(`"Hi"`), openai.InvalidValue, "input[0]"},
		{items(`null`), openai.InvalidValue, "input[0]"},
		{items(user, `{"content":"a"}`), openai.InvalidValue, "input[1].role"},
		{items(`{"role":"user"}`), openai.InvalidValue, "input[0].content"},
		{items(`{"role":"tool","content":"a"}`), openai.InvalidValue, "input[0].role"},
		{items(`{"role":"User","content":"a"}`), openai.InvalidValue, "input[0].role"},
		{items(`{"role":1,"content":"a"}`), openai.InvalidValue, "input[0].role"},
		{items(`{"type":1,"role":"user","content":"a"}`), openai.InvalidValue, "input[0].type"},
		{items(`{"role":"user","content":1}`), openai.InvalidValue, "input[0].content"},
		{items(`{"role":"user","content":{"type":"input_text","text":"a"}}`), openai.InvalidValue, "input[0].content"},
		{items(`{"role":"user","content":[]}`), openai.InvalidValue, "input[0].content"},
		{parts(`"a"`), openai.InvalidValue, "input[0].content[0]"},
		{parts(`{"text":"a"}`), openai.InvalidValue, "input[0].content[0].type"},
		{parts(`{"type":"input_text"}`), openai.InvalidValue, "input[0].content[0].text"},
		{parts(`{"type":"input_text","text":"a"}`, `{"type":"input_text","text":1}`), openai.InvalidValue, "input[0].content[1].text"},
		{with(`"instructions":["a"]`), openai.InvalidValue, "instructions"},
		{with(`"max_output_tokens":0`), openai.InvalidValue, "max_output_tokens"},
		{with(`"max_output_tokens":"10"`), openai.InvalidValue, "max_output_tokens"},
		{with(`"max_output_tokens":1e2`), openai.InvalidValue, "max_output_tokens"},
		{with(`"temperature":2.1`), openai.InvalidValue, "temperature"},
		{with(`"top_p":-1`), openai.InvalidValue, "top_p"},
		{with(`"stream":"yes"`), openai.InvalidValue, "stream"},
		{with(`"stream_options":true`), openai.InvalidValue, "stream_options"},
		{with(`"text":"plain"`), openai.InvalidValue, "text"},
		{with(`"text":{"format":"json_object"}`), openai.InvalidValue, "text.format"},
		{with(`"text":{"format":{"type":"xml"}}`), openai.InvalidValue, "text.format.type"},
		{with(`"text":{"format":{"name":"a","schema":{}}}`), openai.UnsupportedParameter, "text.format.name"},
		{with(`"text":{"format":{"type":"json_schema","schema":"` + strings.Repeat("a", 70_000) + `"}}`), openai.InvalidValue, "text.format"},
		{with(`"user":"` + long + `"`), openai.InvalidValue, "user"},
		{with(`"metadata":{"a":1}`), openai.InvalidValue, "metadata"},
		{with(`"metadata":{"a":"` + long + `"}`), openai.InvalidValue, "metadata"},
		{with(`"metadata":[]`), openai.InvalidValue, "metadata"},
		{with(`"reasoning":"high"`), openai.InvalidValue, "reasoning"},
		{items(user, `{"type":"function_call","name":"f","arguments":"{}"}`), openai.InvalidValue, "input[1].call_id"},
		{items(user, `{"type":"function_call","call_id":"a","arguments":"{}"}`), openai.InvalidValue, "input[1].name"},
		{items(user, `{"type":"function_call","call_id":"a","name":"f","arguments":{}}`), openai.InvalidValue, "input[1].arguments"},
		{items(user, call, `{"type":"function_call_output","call_id":"call_a"}`), openai.InvalidValue, "input[2].output"},
		{items(user, call, `{"type":"function_call_output","output":"1"}`), openai.InvalidValue, "input[2].call_id"},
		{with(`"tools":[{"name":"f"}]`), openai.InvalidValue, "tools[0].type"},
		{with(`"tools":["f"]`), openai.InvalidValue, "tools[0]"},
		{with(`"tools":{}`), openai.InvalidValue, "tools"},
		{with(`"tools":[{"type":"function"}]`), openai.InvalidValue, "tools[0].name"},
		{with(`"tools":[{"type":"function","name":"a b"}]`), openai.InvalidValue, "tools[0].name"},
		{with(`"tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]`), openai.InvalidValue, "tools[1].name"},
		{with(`"tools":[{"type":"function","name":"f","parameters":[]}]`), openai.InvalidValue, "tools[0].parameters"},
		{with(`"tools":[{"type":"function","name":"f","strict":1}]`), openai.InvalidValue, "tools[0].strict"},
		{with(`"tools":[{"type":"function","name":"f","name":"g"}]`), openai.InvalidJSON, "tools[0].name"},
		{with(`"tools":[{"type":"function","name":"f","parameters":{"a":{"b":1,"b":2}}}]`), openai.InvalidJSON, "tools[0].parameters"},
		{with(`"tools":[{"type":"function","name":"f"}],"tool_choice":"any"`), openai.InvalidValue, "tool_choice"},
		{with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function"}`), openai.InvalidValue, "tool_choice.name"},
		{with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}`), openai.InvalidValue, "tool_choice.name"},
		{with(`"parallel_tool_calls":1`), openai.InvalidValue, "parallel_tool_calls"},
		{with(`"reasoning":{"effort":"hard"}`), openai.InvalidValue, "reasoning.effort"},
		{parts(`{"type":"input_image","image_url":{"url":"https://a.example/a.png"}}`), openai.InvalidValue, "input[0].content[0].image_url"},
		{parts(`{"type":"input_image"}`), openai.InvalidValue, "input[0].content[0].image_url"},
		{parts(`{"type":"input_text","text":"a"}`, `{"type":"input_image","image_url":"ftp://a.example/a.png"}`), openai.InvalidValue, "input[0].content[1].image_url"},
		{parts(`{"type":"input_image","image_url":"data:image/png;base64,AAAA"}`), openai.InvalidValue, "input[0].content[0].image_url"},
		{parts(`{"type":"input_image","image_url":"https://a.example/a.png","detail":"original"}`), openai.InvalidValue, "input[0].content[0].detail"},
		{items(user, call), openai.InvalidValue, "input[1]"},
		{items(user, call, user), openai.InvalidValue, "input[1]"},
		{items(user, call, secondOne, result, user), openai.InvalidValue, "input[1]"},
		{items(user, result), openai.InvalidValue, "input[1].call_id"},
		{items(user, call, result, result), openai.InvalidValue, "input[3].call_id"},
		{items(user, call, call, result), openai.InvalidValue, "input[2].call_id"},
		{items(user, `{"type":"function_call","call_id":"`+long+`","name":"f","arguments":"{}"}`), openai.InvalidValue, "input[1].call_id"},
		{items(user, `{"type":"function_call","call_id":"a","name":"f g","arguments":"{}"}`), openai.InvalidValue, "input[1].name"},

		{with(`"messages":[]`), openai.UnsupportedParameter, "messages"},
		{with(`"Stream":true`), openai.UnsupportedParameter, "Stream"},
		{with(`"max_tokens":10`), openai.UnsupportedParameter, "max_tokens"},
		{with(`"n":1`), openai.UnsupportedParameter, "n"},
		{with(`"stop":"a"`), openai.UnsupportedParameter, "stop"},
		{with(`"prompt":{"id":"p"}`), openai.UnsupportedParameter, "prompt"},
		{with(`"previous_response_id":"resp_1"`), openai.UnsupportedParameter, "previous_response_id"},
		{with(`"conversation":"conv_1"`), openai.UnsupportedParameter, "conversation"},
		{with(`"background":true`), openai.UnsupportedParameter, "background"},
		{with(`"store":"no"`), openai.UnsupportedParameter, "store"},
		{with(`"truncation":"auto"`), openai.UnsupportedParameter, "truncation"},
		{with(`"service_tier":"priority"`), openai.UnsupportedParameter, "service_tier"},
		{with(`"top_logprobs":5`), openai.UnsupportedParameter, "top_logprobs"},
		{with(`"include":["message.output_text.logprobs"]`), openai.UnsupportedParameter, "include"},
		{with(`"stream_options":{"include_usage":true}`), openai.UnsupportedParameter, "stream_options.include_usage"},
		{with(`"text":{"verbosity":"high"}`), openai.UnsupportedParameter, "text.verbosity"},
		{with(`"text":{"Format":{}}`), openai.UnsupportedParameter, "text.Format"},
		{with(`"text":{"format":{"type":"json_schema","name":"a","schema":{},"url":"b"}}`), openai.UnsupportedParameter, "text.format.url"},
		{with(`"text":{"format":{"type":"json_object","Type":"text"}}`), openai.UnsupportedParameter, "text.format.Type"},
		{with(`"reasoning":{"mode":"pro"}`), openai.UnsupportedParameter, "reasoning.mode"},
		{with(`"reasoning":{"budget":1}`), openai.UnsupportedParameter, "reasoning.budget"},
		{items(`{"role":"user","content":"a","name":"bob"}`), openai.UnsupportedParameter, "input[0].name"},
		{items(`{"role":"user","Content":"a"}`), openai.UnsupportedParameter, "input[0].Content"},
		{parts(`{"type":"input_file","file_id":"f"}`), openai.UnsupportedParameter, "input[0].content[0].type"},
		{parts(`{"type":"input_audio","input_audio":{}}`), openai.UnsupportedParameter, "input[0].content[0].type"},
		{parts(`{"type":"text","text":"a"}`), openai.UnsupportedParameter, "input[0].content[0].type"},
		{parts(`{"type":"output_text","text":"a"}`), openai.UnsupportedParameter, "input[0].content[0].type"},
		{parts(`{"type":"input_image","file_id":"f"}`), openai.UnsupportedParameter, "input[0].content[0].file_id"},
		{items(`{"role":"system","content":[{"type":"input_image","image_url":"https://a.example/a.png"}]}`), openai.UnsupportedParameter, "input[0].content[0].type"},
		{items(user, call, `{"type":"function_call_output","call_id":"call_a","output":[{"type":"input_image","image_url":"https://a.example/a.png"}]}`), openai.UnsupportedParameter, "input[2].output[0].type"},
		{items(user, `{"type":"item_reference","id":"msg_1"}`), openai.UnsupportedParameter, "input[1]"},
		{items(user, `{"id":"msg_1"}`), openai.UnsupportedParameter, "input[1]"},
		{items(user, `{"type":"web_search_call","id":"ws_1","status":"completed"}`), openai.UnsupportedParameter, "input[1].type"},
		{items(user, `{"type":"custom_tool_call","call_id":"a","name":"f","input":"x"}`), openai.UnsupportedParameter, "input[1].type"},
		{items(user, `{"type":"function_call","call_id":"a","name":"f","arguments":"{}","namespace":"n"}`), openai.UnsupportedParameter, "input[1].namespace"},
		{with(`"tools":[{"type":"web_search"}]`), openai.UnsupportedParameter, "tools[0].type"},
		{with(`"tools":[{"type":"function","name":"f"},{"type":"code_interpreter","container":{"type":"auto"}}]`), openai.UnsupportedParameter, "tools[1].type"},
		{with(`"tools":[{"type":"custom","name":"f"}]`), openai.UnsupportedParameter, "tools[0].type"},
		{with(`"tools":[{"type":"function","function":{"name":"f"}}]`), openai.UnsupportedParameter, "tools[0].function"},
		{with(`"tools":[{"type":"function","name":"f","output_schema":{}}]`), openai.UnsupportedParameter, "tools[0].output_schema"},
		{with(`"tool_choice":{"type":"web_search_preview"}`), openai.UnsupportedParameter, "tool_choice.type"},
		{with(`"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}`), openai.UnsupportedParameter, "tool_choice.type"},
		{with(`"tools":[{"type":"function","name":"f","defer_loading":true}]`), openai.UnsupportedParameter, "tools[0].defer_loading"},
	} {
		req, apiErr := Parse([]byte(tt.body))
		if apiErr == nil {
			t.Errorf("%s was taken: %+v", openai.Clip(tt.body), req.ChatRequest)
			continue
		}
		check.Equal(t, fmt.Sprint(apiErr.Code, " ", apiErr.Param), fmt.Sprint(tt.code, " ", tt.param), "%s", openai.Clip(tt.body))
		check.That(t, tt.param == "" || strings.Contains(apiErr.Message, tt.param), "%q does not name %s", apiErr.Message, tt.param)
	}
}

// The sentences that people meet most.
func TestRefusalsInWords(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		items(user, `{"type":"item_reference","id":"msg_1"}`): "input[1]: nothing is stored here, so items cannot be referred to. Set store to false in your client, so that it sends them whole.",
		with(`"previous_response_id":"resp_1"`):               "previous_response_id is not supported: nothing is stored here. Send the whole conversation as input.",
		with(`"tools":[{"type":"web_search"}]`):               "tools[0].type: web_search costs by itself and is not supported: only function is.",
		items(user, call, secondOne, result):                  `input[1]: the call "call_b" has no result. Items of the type function_call_output must follow at once, one for each call.`,
		items(user, `{"type":"mcp_call","id":"mcp_1"}`):       "input[1].type: mcp_call is not supported: only message, function_call, function_call_output and reasoning are.",
		parts(`{"type":"input_file","file_id":"f"}`):          "input[0].content[0].type: input_file is not supported here: only input_text, input_image.",
	} {
		_, apiErr := Parse([]byte(body))
		check.Must(t, apiErr != nil, "%s was taken", body)
		check.Equal(t, apiErr.Message, want, "%s", body)
	}
}

// What is found wrong later is named as it was written, too.
func TestRespell(t *testing.T) {
	t.Parallel()
	req, apiErr := Parse([]byte(`{"model":"open","instructions":"I","input":[` + user + `,{"type":"reasoning","summary":[]},{"role":"system","content":"S"}]}`))
	check.Must(t, apiErr == nil, "%+v", apiErr)
	for _, tt := range []struct{ param, message, want, says string }{
		{"messages", "The messages have 9 characters; at most 5 are allowed.", "input", "The messages have 9 characters; at most 5 are allowed."},
		{"messages[2].role", "messages[2].role must be user or assistant: cv has its own instructions.", "input[2].role", "input[2].role must be user or assistant: cv has its own instructions."},
		{"messages[0].role", "messages[0].role must be user or assistant: cv has its own instructions.", "instructions", "instructions cannot be given: cv has its own instructions."},
		{"messages[9].role", "messages[9] is none.", "messages[9].role", "messages[9] is none."},
		{"max_completion_tokens", "The model does not take max_completion_tokens.", "max_output_tokens", "The model does not take max_output_tokens."},
		{"response_format", "response_format is supported by cv only as text.", "text.format", "text.format is supported by cv only as text."},
		{"reasoning_effort", "reasoning_effort is not supported.", "reasoning.effort", "reasoning.effort is not supported."},
		{"", "An affordable_max_tokens of 5 would fit.", "", "An affordable_max_tokens of 5 would fit."},
	} {
		got := req.Respell(openai.Errorf(openai.InvalidValue, tt.param, "%s", tt.message))
		check.Equal(t, got.Param, tt.want, "%s: the param", tt.param)
		check.Equal(t, got.Message, tt.says, "%s: the message", tt.param)
	}
	check.Equal(t, req.Spell("A larger max_tokens may help: at most 80."), "A larger max_output_tokens may help: at most 80.", "a notice")
}

// Whatever a caller sends, what is accepted is a chat request that is accepted again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{with(""), items(user, call, result), parts(`{"type":"input_text","text":"a"}`),
		with(`"instructions":"I","text":{"format":{"type":"json_schema","name":"a","schema":{}}},"metadata":{"a":"b"},"reasoning":{"effort":"low"},"tools":[{"type":"function","name":"f"}]`)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, apiErr := Parse(body)
		if apiErr != nil {
			check.That(t, apiErr.Message != "" && apiErr.Code.Status() == 400, "%+v", apiErr)
			return
		}
		again, apiErr := openai.ParseChat(openai.Encode(req.ChatRequest))
		check.That(t, apiErr == nil && cmp.Equal(req.ChatRequest, again), "encoded and read again: %+v: %s", apiErr, cmp.Diff(req.ChatRequest, again))
		openai.Encode(req.Answer(Head{}).Response())
	})
}

// An error is told in the words of this API: no path of the other one is left.
func FuzzErrors(f *testing.F) {
	for _, s := range []string{
		with(`"max_output_tokens":-1`), items(user, `{"type":"function_call","call_id":"a","name":"f g","arguments":"{}"}`), items(user, call, `{"type":"function_call_output","call_id":"call_a"}`),
		parts(`{"type":"input_text","text":"a"}`, `{"type":"input_image","image_url":"ftp://a.example/a.png"}`), with(`"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}`),
		with(`"text":{"format":{"type":"json_schema","name":"","schema":[]}}`), with(`"reasoning":{"effort":"hard"}`), with(`"max_tokens":1`),
	} {
		f.Add([]byte(s))
	}
	chat := regexp.MustCompile(`^(messages|max_tokens|max_completion_tokens|response_format|reasoning_effort)\b`)
	f.Fuzz(func(t *testing.T, body []byte) {
		_, apiErr := Parse(body)
		if apiErr == nil || apiErr.Code == openai.UnsupportedParameter {
			return // else the name is the caller's own
		}
		check.That(t, !chat.MatchString(apiErr.Param) || strings.Contains(string(body), apiErr.Param), "%q: %s", apiErr.Param, apiErr.Message)
		check.That(t, apiErr.Code != openai.InvalidValue || apiErr.Param != "", "no field: %s", apiErr.Message)
	})
}
