package chatapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	aTool = `{"type":"function","function":{"name":"f"}}`
	aCall = `{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}`
	// pixel is a PNG of one pixel, and wideGIF the header of an image that is too wide.
	pixel   = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	wideGIF = "data:image/gif;base64,R0lGODlhAUABAAAAACwAAAAAAQABAAAC"
)

func tools(list ...string) string { return with(`"tools":[` + strings.Join(list, ",") + `]`) }

// tool is a function of this name that has more members.
func tool(name, more string) string {
	return `{"type":"function","function":{"name":"` + name + `"` + more + `}}`
}

func toolChoice(c string) string { return with(`"tools":[` + aTool + `],"tool_choice":` + c) }

func calling(calls ...string) string {
	return `{"role":"assistant","tool_calls":[` + strings.Join(calls, ",") + `]}`
}

func result(id string) string {
	return `{"role":"tool","tool_call_id":"` + id + `","content":"4"}`
}

// called is a conversation in which this call has its result.
func called(call string) string { return said(hello, calling(call), result("1")) }

func picture(url string) string {
	return parts(`{"type":"image_url","image_url":{"url":"` + url + `"}}`)
}

// levels is a schema with so many others within each other.
func levels(n int) string {
	return strings.Repeat(`{"properties":{"a":`, n) + `{}` + strings.Repeat(`}}`, n)
}

// open takes of users whatever there is.
func open(yaml string) string {
	return strings.Replace(seeing(yaml), "response_format, images]", "response_format, tools, image_urls], reasoning_effort: [low, high]", 1)
}

// Tools, calls and their results, images and the effort go upstream as they were said,
// without what clients keep for themselves.
func TestToolsAndImagesAreSent(t *testing.T) {
	t.Parallel()
	g := newRig(t, roomy, open)
	user := g.token("123", "")
	const streamed, least = `"model":"test-model","stream":true,"stream_options":{"include_usage":true},`, `"max_completion_tokens":800`
	const schema = `{"type":"object","properties":{"b":{"enum":["<",1e0]},"a":{"$ref":"#"}}}`
	const remote = `{"type":"image_url","image_url":{"url":"https://example.com/a.png?a=1&b=2"}}`
	for _, tc := range []struct{ name, body, want string }{
		{"tools", with(`"tools":[{"type":"function","function":{"name":"f","description":"<D>","parameters": ` + schema + ` ,"strict":false}},{"function":{"name":"g","parameters":null,"strict":null},"cache_control":{}}],
			"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"reasoning_effort":"low"`),
			`"messages":[` + hello + `],` + least + `,"tools":[{"type":"function","function":{"name":"f","description":"<D>","parameters":` + schema + `,"strict":false}},{"type":"function","function":{"name":"g"}}],
			"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"reasoning_effort":"low"`},
		{"neutral without tools", with(`"tools":[],"tool_choice":"auto","parallel_tool_calls":true,"reasoning_effort":null`), `"messages":[` + hello + `],` + least},
		{"a round of calls", said(hello,
			`{"role":"assistant","content":"","refusal":null,"parsed":null,"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}","parsed_arguments":{"a":1}}},`+strings.Replace(aCall, "1", "2", 1)+`]}`,
			`{"role":"tool","name":"f","tool_call_id":"2","content":[{"type":"text","text":"4"},{"type":"text","text":"2"}]}`, `{"role":"tool","tool_call_id":"1","content":""}`),
			`"messages":[` + hello + `,{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},` + strings.Replace(aCall, "1", "2", 1) + `]},
			{"role":"tool","tool_call_id":"2","content":"42"},{"role":"tool","tool_call_id":"1","content":""}],` + least},
		{"images", parts(`{"type":"text","text":"a"}`, `{"type":"text","text":"b","cache_control":{}}`, `{"type":"image_url","image_url":{"url":"`+strings.Replace(pixel, "image/png", "image/*", 1)+`","detail":"low"}}`, remote, `{"type":"text","text":"c"}`),
			`"messages":[{"role":"user","content":[{"type":"text","text":"ab"},{"type":"image_url","image_url":{"url":"` + pixel + `","detail":"low"}},` + remote + `,{"type":"text","text":"c"}]}],` + least},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat(user, tc.body)
			check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
			sent := g.lastSent()
			check.Diff(t, cmp.Diff(decodeJSON(t, `{`+streamed+tc.want+`}`), decodeJSON(t, sent)), "sent")
			check.That(t, tc.name != "tools" || strings.Contains(sent, schema), "the schema was changed: %s", sent)
		})
	}
}

func TestBadToolsAndImages(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	many := func(n int, one func(i int) string) []string {
		var list []string
		for i := range n {
			list = append(list, one(i))
		}
		return list
	}
	const unsupported, invalid, twice = openai.UnsupportedParameter, openai.InvalidValue, openai.InvalidJSON
	const fn, call, url = "tools[0].function", "messages[1].tool_calls[0]", "messages[0].content[0].image_url.url"
	for _, tc := range []struct {
		name, body string
		code       openai.Code
		param      string
	}{
		// Tools.
		{"tools as an object", with(`"tools":` + aTool), invalid, "tools"},
		{"tools as a string", with(`"tools":"f"`), invalid, "tools"},
		{"a tool as a string", tools(`"f"`), invalid, "tools[0]"},
		{"a tool that is null", tools(aTool, `null`), invalid, "tools[1]"},
		{"a tool without its function", tools(`{"type":"function"}`), invalid, fn},
		{"a tool in the form of responses", tools(`{"type":"function","name":"f","parameters":{}}`), unsupported, "tools[0].name"},
		{"a function as a string", tools(`{"type":"function","function":"f"}`), invalid, fn},
		{"a tool with a type that is a number", tools(`{"type":1,"function":{"name":"f"}}`), invalid, "tools[0].type"},
		{"a tool twice its function", tools(`{"function":{"name":"f"},"function":{"name":"g"}}`), twice, fn},
		{"web search", tools(`{"type":"web_search"}`), unsupported, "tools[0].type"},
		{"web search, dated", tools(`{"type":"web_search_preview_2025_03_11","search_context_size":"high"}`), unsupported, "tools[0].type"},
		{"code interpreter", tools(aTool, `{"type":"code_interpreter","container":{"type":"auto"}}`), unsupported, "tools[1].type"},
		{"file search", tools(`{"type":"file_search","vector_store_ids":["a"]}`), unsupported, "tools[0].type"},
		{"computer", tools(`{"type":"computer_use_preview","display_width":1}`), unsupported, "tools[0].type"},
		{"image generation", tools(`{"type":"image_generation"}`), unsupported, "tools[0].type"},
		{"mcp", tools(`{"type":"mcp","server_url":"https://example.com"}`), unsupported, "tools[0].type"},
		{"local shell", tools(`{"type":"local_shell"}`), unsupported, "tools[0].type"},
		{"custom", tools(`{"type":"custom","custom":{"name":"f"}}`), unsupported, "tools[0].type"},
		{"the options of a search", with(`"web_search_options":{"search_context_size":"low"}`), unsupported, "web_search_options"},
		{"functions", with(`"functions":[{"name":"f"}]`), unsupported, "functions"},
		{"function_call", with(`"function_call":{"name":"f"}`), unsupported, "function_call"},
		{"a name that is missing", tools(`{"type":"function","function":{"description":"a"}}`), invalid, fn + ".name"},
		{"a name that is null", tools(`{"type":"function","function":{"name":null}}`), invalid, fn + ".name"},
		{"an empty name", tools(tool("", "")), invalid, fn + ".name"},
		{"a name with a blank", tools(tool("a b", "")), invalid, fn + ".name"},
		{"a name with a dot", tools(tool("a.b", "")), invalid, fn + ".name"},
		{"a name beyond ASCII", tools(tool("é", "")), invalid, fn + ".name"},
		{"a long name", tools(tool(strings.Repeat("a", 65), "")), invalid, fn + ".name"},
		{"two of one name", tools(aTool, tool("g", ""), aTool), invalid, "tools[2].function.name"},
		{"129 tools", tools(many(129, func(i int) string { return tool(fmt.Sprint("f", i), "") })...), invalid, "tools"},
		{"more than all may have", tools(many(17, func(i int) string {
			return tool(fmt.Sprint("f", i), `,"description":"`+strings.Repeat("a", 8<<10)+`"`)
		})...), invalid, "tools"},
		{"description as a number", tools(tool("f", `,"description":1`)), invalid, fn + ".description"},
		{"a long description", tools(tool("f", `,"description":"`+strings.Repeat("a", 8<<10+1)+`"`)), invalid, fn + ".description"},
		{"strict as a string", tools(tool("f", `,"strict":"true"`)), invalid, fn + ".strict"},
		{"parameters as a list", tools(tool("f", `,"parameters":[]`)), invalid, fn + ".parameters"},
		{"parameters as a string of JSON", tools(tool("f", `,"parameters":"{}"`)), invalid, fn + ".parameters"},
		{"long parameters", tools(tool("f", `,"parameters":{"a":"`+strings.Repeat("a", 32<<10)+`"}`)), invalid, fn + ".parameters"},
		{"deep parameters", tools(tool("f", `,"parameters":`+levels(11))), invalid, fn + ".parameters"},
		{"deep lists", tools(tool("f", `,"parameters":{"a":`+nested(22, "[]")+`}`)), invalid, fn + ".parameters"},
		{"twice deep in parameters", tools(tool("f", `,"parameters":{"properties":{"a":{},"\u0061":{}}}`)), twice, fn + ".parameters"},
		{"twice a name", tools(tool("f", `,"name":"g"`)), twice, fn + ".name"},
		{"case in a function", tools(tool("f", `,"Parameters":{}`)), unsupported, fn + ".Parameters"},
		{"unknown in a function", tools(tool("f", `,"returns":{}`)), unsupported, fn + ".returns"},
		{"case in a tool", tools(`{"Type":"function","function":{"name":"f"}}`), unsupported, "tools[0].Type"},

		// The choice of a tool.
		{"an empty choice", with(`"tool_choice":""`), invalid, "tool_choice"},
		{"another word", toolChoice(`"any"`), invalid, "tool_choice"},
		{"a choice as a list", toolChoice(`["f"]`), invalid, "tool_choice"},
		{"a choice that is empty", toolChoice(`{}`), invalid, "tool_choice.function"},
		{"a choice without a name", toolChoice(`{"type":"function","function":{}}`), invalid, "tool_choice.function.name"},
		{"a choice in the form of responses", toolChoice(`{"type":"function","name":"f"}`), unsupported, "tool_choice.name"},
		{"allowed_tools", toolChoice(`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}`), unsupported, "tool_choice.type"},
		{"a choice of a search", toolChoice(`{"type":"web_search_preview"}`), unsupported, "tool_choice.type"},
		{"a tool that is none", toolChoice(`{"type":"function","function":{"name":"g"}}`), invalid, "tool_choice.function.name"},
		{"more of a name", toolChoice(`{"function":{"name":"f","strict":true}}`), unsupported, "tool_choice.function.strict"},
		{"parallel_tool_calls 1", with(`"parallel_tool_calls":1`), invalid, "parallel_tool_calls"},

		// Calls and their results.
		{"calls of a user", said(`{"role":"user","content":"a","tool_calls":[` + aCall + `]}`), invalid, "messages[0].tool_calls"},
		{"calls as a string", said(hello, `{"role":"assistant","tool_calls":"f"}`), invalid, "messages[1].tool_calls"},
		{"a call as a string", called(`"f"`), invalid, call},
		{"a call without an id", called(`{"function":{"name":"f","arguments":""}}`), invalid, call + ".id"},
		{"a call with an empty id", called(`{"id":"","function":{"name":"f","arguments":""}}`), invalid, call + ".id"},
		{"a call with a long id", called(`{"id":"` + strings.Repeat("1", 129) + `","function":{"name":"f"}}`), invalid, call + ".id"},
		{"a call with a number for an id", called(`{"id":1,"function":{"name":"f"}}`), invalid, call + ".id"},
		{"a call without a function", called(`{"id":"1","type":"function"}`), invalid, call + ".function"},
		{"a call without a name", called(`{"id":"1","function":{"arguments":"{}"}}`), invalid, call + ".function.name"},
		{"a call with a bad name", called(`{"id":"1","function":{"name":"f()","arguments":"{}"}}`), invalid, call + ".function.name"},
		{"arguments as an object", called(`{"id":"1","function":{"name":"f","arguments":{}}}`), invalid, call + ".function.arguments"},
		{"arguments twice", called(`{"id":"1","function":{"name":"f","arguments":"","arguments":""}}`), twice, call + ".function.arguments"},
		{"a custom call", called(`{"id":"1","type":"custom","custom":{"name":"f","input":""}}`), unsupported, call + ".type"},
		{"unknown in a call", called(`{"id":"1","function":{"name":"f"},"weight":1}`), unsupported, call + ".weight"},
		{"unknown in a call's function", called(`{"id":"1","function":{"name":"f","output":"a"}}`), unsupported, call + ".function.output"},
		{"129 calls", said(hello, calling(many(129, func(i int) string { return fmt.Sprintf(`{"id":"%d","function":{"name":"f"}}`, i) })...)), invalid, "messages[1].tool_calls"},
		{"two calls of one id", said(hello, calling(aCall, aCall), result("1"), result("1")), invalid, "messages[1].tool_calls[1].id"},
		{"an older call", said(hello, `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`), unsupported, "messages[1].function_call"},
		{"an older result", said(hello, `{"role":"function","name":"f","content":"a"}`), unsupported, "messages[1].role"},
		{"a call without a result", said(hello, calling(aCall)), invalid, "messages[1].tool_calls"},
		{"a call without a result before what comes next", said(hello, calling(aCall), hello, result("1")), invalid, "messages[1].tool_calls"},
		{"one call of two without a result", said(hello, calling(aCall, strings.Replace(aCall, "1", "2", 1)), result("2")), invalid, "messages[1].tool_calls"},
		{"a result without a call", said(hello, result("1")), invalid, "messages[1].tool_call_id"},
		{"a result of another call", said(hello, calling(aCall), result("2")), invalid, "messages[2].tool_call_id"},
		{"a result twice", said(hello, calling(aCall), result("1"), result("1")), invalid, "messages[3].tool_call_id"},
		{"a result of a call long ago", said(hello, calling(aCall), result("1"), hello, result("1")), invalid, "messages[4].tool_call_id"},
		{"a result without an id", said(hello, calling(aCall), `{"role":"tool","content":"4"}`), invalid, "messages[2].tool_call_id"},
		{"a result without content", said(hello, calling(aCall), `{"role":"tool","tool_call_id":"1","content":null}`), invalid, "messages[2].content"},
		{"a result as an object", said(hello, calling(aCall), `{"role":"tool","tool_call_id":"1","content":{"sum":4}}`), invalid, "messages[2].content"},
		{"a result with an image", said(hello, calling(aCall), `{"role":"tool","tool_call_id":"1","content":[{"type":"image_url","image_url":{"url":"`+pixel+`"}}]}`), unsupported, "messages[2].content[0].type"},
		{"the id of a call in another message", said(hello, `{"role":"user","content":"a","tool_call_id":"1"}`), invalid, "messages[1].tool_call_id"},

		// Images.
		{"an image of the assistant", said(hello, `{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"`+pixel+`"}}]}`), unsupported, "messages[1].content[0].type"},
		{"an image of the system", said(`{"role":"system","content":[{"type":"image_url","image_url":{"url":"`+pixel+`"}}]}`, hello), unsupported, "messages[0].content[0].type"},
		{"a video", parts(`{"type":"video_url","video_url":{"url":"https://example.com/a.mp4"}}`), unsupported, "messages[0].content[0].type"},
		{"an image in the form of responses", parts(`{"type":"input_image","image_url":"` + pixel + `"}`), unsupported, "messages[0].content[0].type"},
		{"an image in a text", parts(`{"type":"text","text":"a","image_url":{"url":"` + pixel + `"}}`), invalid, "messages[0].content[0].image_url"},
		{"an image that is missing", parts(`{"type":"image_url"}`), invalid, "messages[0].content[0].image_url"},
		{"an image as a string", parts(`{"type":"image_url","image_url":"` + pixel + `"}`), invalid, "messages[0].content[0].image_url"},
		{"an image without a URL", parts(`{"type":"image_url","image_url":{"detail":"low"}}`), invalid, url},
		{"an image with an empty URL", picture(""), invalid, url},
		{"an image of another scheme", picture("ftp://example.com/a.png"), invalid, url},
		{"an image of this machine", picture("file:///etc/passwd"), invalid, url},
		{"an image without a scheme", picture("example.com/a.png"), invalid, url},
		{"an image without a host", picture("https:///a.png"), invalid, url},
		{"an image for a user", picture("https://me:secret@example.com/a.png"), invalid, url},
		{"a long URL", picture("https://example.com/" + strings.Repeat("a", 2<<10)), invalid, url},
		{"an image that is not in base64", picture("data:image/png,abcd"), invalid, url},
		{"an image that is nothing", picture("data:image/png;base64,"), invalid, url},
		{"base64 for URLs", picture(strings.Replace(pixel, "+", "-", 1)), invalid, url},
		{"base64 with line breaks", picture(pixel[:80] + `\n` + pixel[80:]), invalid, url},
		{"base64 without padding", picture(strings.TrimRight(pixel, "=")), invalid, url},
		{"base64 with bits too many", picture(strings.Replace(pixel, "gg==", "gh==", 1)), invalid, url},
		{"base64 with what follows", picture(pixel + "AAAA"), invalid, url},
		{"text for an image", picture("data:image/png;base64,SGVsbG8gdGhlcmUsIGhlbGxv"), invalid, url},
		{"SVG", picture("data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="), invalid, url},
		{"the beginning of an image", picture("data:image/png;base64,iVBORw0KGgoAAAAN"), invalid, url},
		{"too wide", picture(wideGIF), invalid, url},
		{"detail original", parts(`{"type":"image_url","image_url":{"url":"` + pixel + `","detail":"original"}}`), invalid, "messages[0].content[0].image_url.detail"},
		{"detail as a number", parts(`{"type":"image_url","image_url":{"url":"` + pixel + `","detail":1}}`), invalid, "messages[0].content[0].image_url.detail"},
		{"unknown in an image", parts(`{"type":"image_url","image_url":{"url":"` + pixel + `","format":"png"}}`), unsupported, "messages[0].content[0].image_url.format"},
		{"twice in an image", parts(`{"type":"image_url","image_url":{"url":"` + pixel + `","url":"` + pixel + `"}}`), twice, url},

		// Reasoning.
		{"another effort", with(`"reasoning_effort":"maximal"`), invalid, "reasoning_effort"},
		{"an empty effort", with(`"reasoning_effort":""`), invalid, "reasoning_effort"},
		{"effort as a number", with(`"reasoning_effort":3`), invalid, "reasoning_effort"},
		{"reasoning", with(`"reasoning":{"effort":"high"}`), unsupported, "reasoning"},
		{"verbosity", with(`"verbosity":"high"`), unsupported, "verbosity"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat(user, tc.body)
			g.refused(t, a, tc.code, tc.param)
			message := g.wireError(a).Message
			check.That(t, strings.HasPrefix(message, tc.param) && len(message) < 300, "it does not name the field: %s", message)
		})
	}
	g.untouched(t)
}

// What a feature or a tier does not take is refused by its name, too; a sentence tells what
// it takes.
func TestNotTakenByFeature(t *testing.T) {
	t.Parallel()
	g := newRig(t, seeing, func(yaml string) string {
		return strings.NewReplacer("response_format, images]", "response_format, tools, images], max_images: 2, reasoning_effort: [high, low]",
			`system: "You answer questions.",`, `system: "You answer questions.", tools: [{name: own}],`,
			"user:      {", "user:      {max_tools: 2, ").Replace(yaml)
	})
	user := g.token("123", "")
	of := func(feature, body string) string { return strings.Replace(body, `"open"`, `"`+feature+`"`, 1) }
	image := `{"type":"image_url","image_url":{"url":"` + pixel + `"}}`
	round := said(hello, calling(aCall), result("1"))
	for _, tc := range []struct {
		name, token, body string
		code              openai.Code
		param, says       string
	}{
		{"tools beside the owner's", user, of("docqa", tools(aTool)), openai.UnsupportedParameter, "tools", "its own tools"},
		{"a tool that the owner has not", user, of("docqa", with(`"tool_choice":{"type":"function","function":{"name":"f"}}`)), openai.InvalidValue, "tool_choice", "not offered"},
		{"a tool of none", user, with(`"tool_choice":"required"`), openai.InvalidValue, "tool_choice", "not offered"},
		{"three tools of two", user, tools(tool("a", ""), tool("b", ""), tool("c", "")), openai.InputTooLong, "tools", "3 tools; at most 2"},
		{"tools of a visitor", "", tools(aTool), openai.UnsupportedParameter, "tools", "no tools of anonymous callers"},
		{"calls of a visitor", "", round, openai.UnsupportedParameter, "messages[1].tool_calls", "no tools of anonymous callers"},
		{"calls where there are no tools", user, of("cv", round), openai.UnsupportedParameter, "messages[1].tool_calls", "This endpoint has no tools"},
		{"images of a visitor", "", parts(image), openai.UnsupportedParameter, "messages[0].content[0].type", "no images of anonymous callers"},
		{"three images of two", user, parts(image, image, image), openai.InputTooLong, "messages", "3 images; at most 2"},
		{"the address of an image", user, parts(image, `{"type":"image_url","image_url":{"url":"https://example.com/a"}}`), openai.UnsupportedValue, "messages[0].content[1].image_url.url", "must be a data URL"},
		{"images where there are none", user, of("cv", parts(`{"type":"text","text":"a"}`, image)), openai.UnsupportedParameter, "messages[0].content[1].type", "no images"},
		{"an effort between", user, with(`"reasoning_effort":"medium"`), openai.UnsupportedValue, "reasoning_effort", "must be low or high"},
		{"an effort where there is none", user, of("cv", with(`"reasoning_effort":"low"`)), openai.UnsupportedParameter, "reasoning_effort", "not supported by cv"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat(tc.token, tc.body)
			g.refused(t, a, tc.code, tc.param)
			check.That(t, strings.Contains(g.wireError(a).Message, tc.says), "%s", g.wireError(a).Message)
		})
	}
	g.untouched(t)
	for _, body := range []string{of("docqa", with(`"tool_choice":"none"`)), of("docqa", round), tools(tool("a", ""), tool("b", "")), parts(image, image), with(`"reasoning_effort":"high"`)} {
		a := g.chat(user, body)
		check.That(t, a.status == http.StatusOK, "%.300s: %d %s", body, a.status, a.body)
	}
}
