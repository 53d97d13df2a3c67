package upstream

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	weather = `{"type":"function","function":{"name":"get_weather","description":"The weather.","parameters":{"type":"object",` +
		`"properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":2}},"required":["city","days"]}}}`
	clock = `{"type":"function","function":{"name":"clock"}}`
	both  = `"tools":[` + weather + "," + clock + "]"
	asked = `{"role":"user","content":"How is it?"}`
	made  = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"clock","arguments":"{}"}},` +
		`{"id":"b","type":"function","function":{"name":"get_weather","arguments":"{}"}}]}`
)

// What a provider refuses of tools, in the provider's words.
func TestToolsAreChecked(t *testing.T) {
	u, url := serve(t, Options{})
	chat := func(messages ...string) string { return `"messages":[` + strings.Join(messages, ",") + `]` }
	tools := func(list string) string { return chat(asked) + `,"tools":[` + list + `]` }
	with := func(parameters, more string) string {
		return tools(`{"type":"function","function":{"name":"f","parameters":` + parameters + more + `}}`)
	}
	result := func(id string) string { return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":"1"}`, id) }
	calls := func(list string) string { return chat(asked, `{"role":"assistant","tool_calls":`+list+`}`) }
	long := strings.Repeat("x", 65)
	const schema = "tools[0].function.parameters"
	for _, tt := range []struct{ fields, param, code, message string }{
		{tools(""), "tools", "empty_array", "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead."},
		{tools(strings.Repeat(clock+",", 128) + clock), "tools", "array_above_max_length", "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 129 instead."},
		{tools(`{"type":"web_search"}`), "tools[0].type", "invalid_value", "Invalid value: 'web_search'. Supported values are: 'function'."},
		{tools(`{"function":{"name":"f"}}`), "tools[0].type", "missing_required_parameter", "Missing required parameter: 'tools[0].type'."},
		{tools(clock + `,{"type":"function"}`), "tools[1].function.name", "missing_required_parameter", "Missing required parameter: 'tools[1].function.name'."},
		{tools(`{"type":"function","function":{"name":"a.b"}}`), "tools[0].function.name", "invalid_value",
			"Invalid 'tools[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
		{tools(`{"type":"function","function":{"name":"` + long + `"}}`), "tools[0].function.name", "string_above_max_length",
			"Invalid 'tools[0].function.name': string too long. Expected a string with maximum length 64, but got a string with length 65 instead."},
		{tools(`{"type":"function","function":{"name":"f","strict":"yes"}}`), "tools.function.strict", "invalid_type", "Invalid type for 'tools.function.strict'."},
		{tools(`{"type":"function","function":{"name":"f","cache":1}}`), "", "invalid_value", `json: unknown field "cache".`},
		{with(`[]`, ""), schema, "invalid_function_parameters", "Invalid schema for function 'f': schema must be a JSON Schema object."},
		{with(`{}`, ""), schema, "invalid_function_parameters", `Invalid schema for function 'f': schema must be a JSON Schema of 'type: "object"', got 'type: "None"'.`},
		{with(`{"type":"string"}`, ""), schema, "invalid_function_parameters", `Invalid schema for function 'f': schema must be a JSON Schema of 'type: "object"', got 'type: "string"'.`},
		{with(`{"type":"object"}`, ""), schema, "invalid_function_parameters", "Invalid schema for function 'f': In context=(), object schema missing properties."},
		{with(`{"type":"object","properties":{"a":{"type":"colour"}}}`, ""), schema, "invalid_function_parameters",
			"Invalid schema for function 'f': In context=('properties', 'a'), 'colour' is not valid under any of the given schemas."},
		{with(`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"type":"array"}]}}}`, ""), schema, "invalid_function_parameters",
			"Invalid schema for function 'f': In context=('properties', 'a', 'anyOf', '1'), array schema missing items."},
		{with(`{"type":"object","properties":{}}`, `,"strict":true`), schema, "invalid_function_parameters",
			"Invalid schema for function 'f': In context=(), 'additionalProperties' is required to be supplied and to be false."},
		{with(`{"type":"object","properties":{"a":{"type":"array","items":{"properties":{"b":{}},"additionalProperties":false}}},"required":["a"],"additionalProperties":false}`, `,"strict":true`),
			schema, "invalid_function_parameters", "Invalid schema for function 'f': In context=('properties', 'a', 'items'), " +
				"'required' is required to be supplied and to be an array including every key in properties. Missing 'b'."},
		{chat(asked) + `,"tool_choice":"auto"`, "tool_choice", "", "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."},
		{chat(asked) + `,"parallel_tool_calls":true`, "parallel_tool_calls", "", "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified."},
		{tools(clock) + `,"tool_choice":"any"`, "tool_choice", "invalid_value", "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'."},
		{tools(clock) + `,"tool_choice":{"type":"allowed_tools"}`, "tool_choice.type", "invalid_value", "Invalid value: 'allowed_tools'. Supported values are: 'function'."},
		{tools(clock) + `,"tool_choice":{"type":"function"}`, "tool_choice.function.name", "missing_required_parameter", "Missing required parameter: 'tool_choice.function.name'."},
		{tools(clock) + `,"tool_choice":{"type":"function","function":{"name":"f"}}`, "tool_choice", "", "Invalid value for 'tool_choice': no function named 'f' was specified in the 'tools' parameter."},
		{calls(`null`), "messages[1].tool_calls", "invalid_type", "Invalid type for 'messages[1].tool_calls': expected an array of objects, but got null instead."},
		{calls(`[]`), "messages[1].tool_calls", "empty_array", "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead."},
		{calls(`[{"type":"function","function":{"name":"clock","arguments":"{}"}}]`), "messages[1].tool_calls[0].id", "missing_required_parameter", "Missing required parameter: 'messages[1].tool_calls[0].id'."},
		{calls(`[{"id":"` + long + `","type":"function","function":{"name":"clock","arguments":"{}"}}]`), "messages[1].tool_calls[0].id", "string_above_max_length",
			"Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 65 instead."},
		{calls(`[{"id":"a","type":"function","function":{"name":"a b","arguments":"{}"}}]`), "messages[1].tool_calls[0].function.name", "invalid_value",
			"Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."},
		{calls(`[{"id":"a","type":"function","function":{"name":"f","arguments":{}}}]`), "messages[1].tool_calls.function.arguments", "invalid_type", "Invalid type for 'messages[1].tool_calls.function.arguments'."},
		{chat(`{"role":"user","content":"hi","tool_calls":[]}`), "messages[0].tool_calls", "unknown_parameter", "Unknown parameter: 'messages[0].tool_calls'."},
		{chat(`{"role":"user","content":"hi","tool_call_id":"a"}`), "messages[0].tool_call_id", "unknown_parameter", "Unknown parameter: 'messages[0].tool_call_id'."},
		{chat(`{"role":"assistant","content":null}`), "messages[0].content", "", "Invalid value for 'content': expected a string, got null."},
		{chat(asked, made, `{"role":"tool","tool_call_id":"a"}`), "messages[2].content", "missing_required_parameter", "Missing required parameter: 'messages[2].content'."},
		{chat(asked, result("a")), "messages.[1].role", "", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."},
		{chat(asked, made, result("a"), result("b"), asked, result("a")), "messages.[5].role", "", "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."},
		{chat(asked, made, result("c")), "messages.[2].tool_call_id", "", "Invalid parameter: 'tool_call_id' of 'c' not found in 'tool_calls' of previous message."},
		{chat(asked, made), "messages.[1].role", "", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: a, b"},
		{chat(asked, made, result("b"), asked), "messages.[3].role", "", "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: a"},
	} {
		status, _, answer := post(t, url, `{"model":"m","max_tokens":9,`+tt.fields+`}`)
		var got struct {
			Error struct{ Message, Type, Param, Code string }
		}
		check.OK(t, json.Unmarshal([]byte(answer), &got))
		check.That(t, status == 400, "%s: status %d", tt.fields, status)
		want := got
		want.Error.Message, want.Error.Type, want.Error.Param, want.Error.Code = tt.message, "invalid_request_error", tt.param, tt.code
		check.Equal(t, got, want, "%s", tt.fields)
		check.That(t, (tt.code == "") == strings.Contains(answer, `"code":null`), "%s", answer)
	}
	calls1, _ := u.Totals()
	check.Equal(t, calls1, int64(0), "calls logged")
	for _, fields := range []string{
		tools(clock) + `,"tool_choice":null,"parallel_tool_calls":null`,
		tools(strings.Repeat(clock+",", 127) + clock),
		tools(strings.Replace(clock, "clock", long[:64], 1)),
		with(`null`, `,"description":null,"strict":null`),
		with(`{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"],"additionalProperties":false}`, `,"strict":true`),
		with(`{"type":"object","properties":{"a":{"type":"array","items":{},"minItems":3,"uniqueItems":true}}}`, ""), // what nothing is written for
		chat(asked, made, result("b"), `{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"1"},{"type":"text","text":""}]}`, asked),
		chat(asked, strings.Replace(made, "null", `[{"type":"text","text":"I look."}]`, 1), result("b"), result("a")),
	} {
		status, _, answer := post(t, url, `{"model":"m","max_tokens":9,`+fields+`}`)
		check.That(t, status == 200, "%s: status %d, %s", fields, status, answer)
	}
}

// completed is an answer, of one piece or of a stream.
type completed struct {
	text, finish string
	calls        []functionCall
	ids          []string
	input        int64
	output       int64
	parts        int // of a stream: chunks with text or arguments
	thoughts     string
	thoughtParts int // of a stream: chunks with thoughts
}

func complete(t *testing.T, url, fields string, stream bool) (c completed) {
	t.Helper()
	body := `{"model":"m",` + fields + `}`
	if stream {
		body = strings.TrimSuffix(body, "}") + `,"stream":true,"stream_options":{"include_usage":true}}`
	}
	status, _, answer := post(t, url, body)
	check.Must(t, status == 200, "%s: status %d, %s", body, status, answer)
	if stream {
		check.Must(t, strings.HasSuffix(answer, "data: [DONE]\n\n"), "%s", answer)
	}
	lines := bufio.NewScanner(strings.NewReader(answer))
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		line := strings.TrimPrefix(lines.Text(), "data: ")
		if line == "" || line == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Message, Delta struct {
					Content   string
					Thoughts  string     `json:"reasoning_content"`
					ToolCalls []toolCall `json:"tool_calls"`
				}
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
			}
		}
		check.OK(t, json.Unmarshal([]byte(line), &chunk))
		c.input, c.output = c.input+chunk.Usage.Prompt, c.output+chunk.Usage.Completion
		for _, choice := range chunk.Choices {
			if choice.Delta.Thoughts != "" {
				c.thoughtParts++
			}
			c.thoughts += choice.Message.Thoughts + choice.Delta.Thoughts
			c.text += choice.Message.Content + choice.Delta.Content
			c.finish += choice.FinishReason
			if choice.Delta.Content != "" {
				c.parts++
			}
			for _, call := range append(choice.Message.ToolCalls, choice.Delta.ToolCalls...) {
				if call.ID != "" {
					check.That(t, call.Type == "function" && (call.Index == nil || *call.Index == len(c.calls) && call.Function.Arguments == ""), "%+v", call)
					c.calls, c.ids = append(c.calls, call.Function), append(c.ids, call.ID)
					continue
				}
				check.Must(t, call.Index != nil && *call.Index == len(c.calls)-1 && call.Function.Name == "", "%+v", call)
				c.calls[*call.Index].Arguments += call.Function.Arguments
				c.parts++
			}
		}
	}
	return c
}

// The model calls what it is told to, or what the text is about, and answers the results.
func TestToolCalls(t *testing.T) {
	o200k := tokenizer(t)
	const (
		forecast = `{"city":"text","days":2}`
		results  = `{"role":"tool","tool_call_id":"a","content":"12.5 degrees, -3 at night"},{"role":"tool","tool_call_id":"b","content":[{"type":"text","text":"1024 hPa"}]}`
	)
	say := func(text string) string { return `"messages":[{"role":"user","content":"` + text + `"}]` }
	choose := func(choice string) string { return say("Hi.") + `,"tool_choice":` + choice }
	type calls = []functionCall
	for _, tt := range []struct {
		fields string
		want   calls
		finish string
	}{
		{say("Hi."), nil, "stop"},
		{say("How is the Weather?"), calls{{"get_weather", forecast}}, "tool_calls"},
		{say("Call clock for the weather: [[tool:clock]]"), calls{{"clock", "{}"}}, "tool_calls"},
		{say("It is get_weather()."), calls{{"get_weather", forecast}}, "tool_calls"},
		{say("What do we get?"), nil, "stop"},
		{say("[[tool:clock]][[tool:nobody]][[tool:get_weather]]"), calls{{"clock", "{}"}, {"get_weather", forecast}}, "tool_calls"},
		{say("[[tools:3]]"), calls{{"get_weather", forecast}, {"clock", "{}"}, {"get_weather", forecast}}, "tool_calls"},
		{say("[[tools:2]][[aloud]]"), calls{{"get_weather", forecast}, {"clock", "{}"}}, "tool_calls"},
		{say("[[tools:3]]") + `,"parallel_tool_calls":false`, calls{{"get_weather", forecast}}, "tool_calls"},
		{say("[[tools:3]]") + `,"tool_choice":"none"`, nil, "stop"},
		{choose(`"required"`), calls{{"get_weather", forecast}}, "tool_calls"},
		{say("[[tool:clock]]") + `,"tool_choice":"required"`, calls{{"clock", "{}"}}, "tool_calls"},
		{choose(`{"type":"function","function":{"name":"clock"}}`), calls{{"clock", "{}"}}, "stop"},
		{`"messages":[` + strings.Replace(asked, "it", "the weather", 1) + `,` + made + `,` + results + `]`, nil, "stop"},
		{`"messages":[` + asked + `,` + made + `,` + results + `],"tool_choice":"required"`, calls{{"clock", "{}"}}, "tool_calls"},
		{`"messages":[` + asked + `,` + made + `,` + results + `,{"role":"user","content":"And the weather?"}]`, calls{{"get_weather", forecast}}, "tool_calls"},
		{`"messages":[` + asked + `,` + strings.Split(made, `},{`)[0] + `}]},` + strings.Split(results, `},{`)[0] + `}],"tool_choice":"required"`, calls{{"get_weather", forecast}}, "tool_calls"},
		{`"messages":[` + strings.Replace(asked, "it", "the weather? [[rounds:2]]", 1) + `,` + made + `,` + results + `]`, calls{{"get_weather", forecast}}, "tool_calls"},
		{`"messages":[` + strings.Replace(asked, "it", "the weather? [[rounds:1]]", 1) + `,` + made + `,` + results + `]`, nil, "stop"},
		{say("the weather") + `,"response_format":{"type":"json_object"}`, calls{{"get_weather", forecast}}, "tool_calls"},
	} {
		for _, stream := range []bool{false, true} {
			u, url := serve(t, Options{})
			got := complete(t, url, both+`,"max_tokens":200,`+tt.fields, stream)
			check.Equal(t, fmt.Sprint(got.calls), fmt.Sprint(tt.want), "%s", tt.fields)
			check.Equal(t, got.finish, tt.finish, "%s", tt.fields)
			check.That(t, (got.text == "") == (tt.want != nil && !strings.Contains(tt.fields, "[[aloud]]")), "%s: %q", tt.fields, got.text)
			cost := o200k.Count(got.text)
			for _, c := range tt.want {
				if cost += o200k.Count(c.Arguments); !strings.Contains(tt.fields, `"name":"clock"}}`) || tt.finish != "stop" {
					cost += 4 + o200k.Count(c.Name)
				}
			}
			_, billed := u.Totals()
			check.That(t, got.output == int64(cost) && billed.Output == got.output && billed.Input == got.input, "%s: output %d, want %d, billed %+v", tt.fields, got.output, cost, billed)
			if strings.Contains(tt.fields, "hPa") && tt.want == nil {
				check.That(t, strings.Contains(got.text, "The tools answered with these figures: 12.5, 3, 1024. "), "%s", got.text)
			}
			for i, id := range got.ids {
				check.That(t, strings.HasPrefix(id, "call_") && len(id) <= maxCallID && (i == 0 || id != got.ids[i-1]), "ids %s", got.ids)
			}
		}
	}
}

// A cap cuts a call wherever it stands, and a long call is cut by nothing else.
func TestToolCallsAreCut(t *testing.T) {
	o200k := tokenizer(t)
	for _, tt := range []struct{ text, arguments string }{
		{"weather", `{"city":"text","days":2}`}, {"weather [[long]]", `{"city":"text","days":2,"more":" It goes on, since`}, {"[[tool:clock]][[long]]", `{"more":" It goes on, since`},
	} {
		long, whole := strings.Contains(tt.text, "long"), o200k.Count(tt.arguments)
		for most := 1; most <= 60; most++ {
			u, url := serve(t, Options{})
			got := complete(t, url, fmt.Sprintf(`%s,"max_tokens":%d,"messages":[{"role":"user","content":%q}]`, both, most, tt.text), most%2 == 0)
			_, billed := u.Totals()
			check.Must(t, billed.Output == got.output && got.output <= int64(most), "cap %d: %+v, billed %+v", most, got, billed)
			if len(got.calls) == 0 {
				check.That(t, got.finish == "length" && got.text == "" && got.output == int64(most) && most < 8, "cap %d: %+v", most, got)
				continue
			}
			arguments, head := got.calls[0].Arguments, 4+o200k.Count(got.calls[0].Name)
			check.Must(t, got.output == int64(head+o200k.Count(arguments)), "cap %d: %+v", most, got)
			check.That(t, most%2 == 1 || got.parts == o200k.Count(arguments), "cap %d: %d parts", most, got.parts)
			switch {
			case !long && most >= head+whole:
				check.That(t, got.finish == "tool_calls" && arguments == tt.arguments, "cap %d: %+v", most, got)
			default:
				check.That(t, got.finish == "length", "cap %d: %+v", most, got)
				check.That(t, strings.HasPrefix(arguments, tt.arguments) || strings.HasPrefix(tt.arguments, arguments), "cap %d: %s", most, arguments)
				check.That(t, most < head+whole || got.output == int64(most), "cap %d: %d", most, got.output)
			}
		}
	}
}

// A stream that breaks in a call has billed what it told.
func TestBrokenToolCalls(t *testing.T) {
	u, url := serve(t, Options{})
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(
		`{"model":"m","max_tokens":200,"stream":true,`+both+`,"messages":[{"role":"user","content":"The weather? [[fail:cut]]"}]}`))
	check.OK(t, err)
	got, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	check.That(t, errors.Is(err, io.ErrUnexpectedEOF) && strings.Contains(string(got), `"name":"get_weather"`) && !strings.Contains(string(got), `"tool_calls"}`), "%v: %s", err, got)
	pieces := strings.Count(string(got), `"arguments":"`) - 1
	_, billed := u.Totals()
	check.Equal(t, billed.Output, int64(4+tokenizer(t).Count("get_weather")+pieces), "billed, with %d pieces", pieces)
}

// A stream tells a call as OpenAI does.
func TestToolCallOnTheWire(t *testing.T) {
	_, url := serve(t, Options{})
	_, _, got := post(t, url, `{"model":"m","max_tokens":99,"stream":true,`+both+`,"messages":[{"role":"user","content":"[[tool:clock]]"}]}`)
	var choices []string
	for line := range strings.SplitSeq(got, "\n\n") {
		if _, choice, ok := strings.Cut(line, `"choices":[`); ok {
			choices = append(choices, strings.TrimSuffix(choice, "]}"))
		}
	}
	const shape = `{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}`
	_, id, _ := strings.Cut(got, `"id":"call_`)
	id, _, _ = strings.Cut(id, `"`)
	check.Equal(t, strings.Join(choices, "\n"), strings.Join([]string{
		fmt.Sprintf(shape, `{"role":"assistant","content":null}`, "null"),
		fmt.Sprintf(shape, `{"tool_calls":[{"index":0,"id":"call_`+id+`","type":"function","function":{"name":"clock","arguments":""}}]}`, "null"),
		fmt.Sprintf(shape, `{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`, "null"),
		fmt.Sprintf(shape, `{}`, `"tool_calls"`),
	}, "\n"), "choices")
	_, _, got = post(t, url, `{"model":"m","max_tokens":99,`+both+`,"messages":[{"role":"user","content":"[[tool:clock]]"}]}`)
	check.That(t, strings.Contains(got, `"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_`) &&
		strings.Contains(got, `","type":"function","function":{"name":"clock","arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls"}`), "%s", got)
}
