package chatapi

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// furnished adds features that take more than text: tools takes those of callers, desk has
// its own, eyes takes images, links their addresses, too. Visitors may send two tools and an
// image, holders of the plan pro none.
func furnished(yaml string) string {
	return strings.NewReplacer(
		"context: 1000000,\n", "context: 1000000, image_tokens: {low: 85, high: 300},\n",
		"tiers:\n", `  tools: {model: small, max_output_tokens: 800, allow: [tools]}
  desk:  {model: small, max_output_tokens: 800, reasoning_effort: [low, medium], tools: [{name: look_up, parameters: {type: object, properties: {}}}]}
  lamp:  {model: small, max_output_tokens: 800, reasoning_effort: [high]}
  eyes:  {model: small, max_output_tokens: 800, allow: [images], max_images: 2}
  links: {model: small, max_output_tokens: 800, allow: [image_urls], max_images: 2}
tiers:
`,
		"max_messages: 16,", "max_messages: 16, max_tools: 2, max_images: 1,",
		"max_messages: 64,", "max_messages: 64, max_tools: 3,",
		"max_messages: 256,", "max_messages: 256, max_tools: 0, max_images: 0,").Replace(yaml)
}

// of is a request to another feature.
func of(feature, body string) string {
	return strings.Replace(body, `"model":"open"`, `"model":"`+feature+`"`, 1)
}

// What a feature does not take from a caller is refused by its name, before anything is
// asked of the store, and in a sentence that says what is open instead.
func TestNotTaken(t *testing.T) {
	t.Parallel()
	g := newRig(t, furnished)
	user, pro := g.token("123", ""), g.token("456", "pro")
	const unsupported, invalid, value, long = openai.UnsupportedParameter, openai.InvalidValue, openai.UnsupportedValue, openai.InputTooLong
	b, c, d := tool("b", ""), tool("c", ""), tool("d", "")
	effort := func(word string) string { return with(`"reasoning_effort":"` + word + `"`) }
	const link = "https://example.com/a.png"
	g.chat(user, with("")) // all keys are here
	for _, tc := range []struct {
		name, token, body string
		code              openai.Code
		param, message    string
	}{
		{"tools where there are none", user, tools(aTool), unsupported, "tools", "This endpoint has no tools: tools is not supported."},
		{"a choice where there are none", user, with(`"tool_choice":"required"`), unsupported, "tool_choice", "This endpoint has no tools: tool_choice is not supported."},
		{"a named choice where there are none", user, with(`"tool_choice":{"type":"function","function":{"name":"f"}}`), unsupported, "tool_choice", "This endpoint has no tools: tool_choice is not supported."},
		{"calls where there are none", user, called(aCall), unsupported, "messages[1].tool_calls", "This endpoint has no tools: messages[1].tool_calls is not supported."},
		{"tools of who may send none", pro, of("tools", tools(aTool)), unsupported, "tools", "tools takes no tools of pro callers: tools is not supported."},
		{"calls of who may send none", pro, of("tools", called(aCall)), unsupported, "messages[1].tool_calls", "tools takes no tools of pro callers: messages[1].tool_calls is not supported."},
		{"a choice of who may send none", pro, of("tools", with(`"tool_choice":"required"`)), unsupported, "tool_choice", "tools takes no tools of pro callers: tool_choice is not supported."},
		{"tools where there are others", user, of("desk", tools(aTool)), unsupported, "tools", "desk has its own tools, which cannot be changed: tools is not supported."},
		{"the same of a visitor", "", of("desk", tools(aTool)), unsupported, "tools", "desk has its own tools, which cannot be changed: tools is not supported."},
		{"the same tools, too", user, of("desk", tools(tool("look_up", `,"parameters":{"type":"object"}`))), unsupported, "tools", "desk has its own tools, which cannot be changed: tools is not supported."},
		{"a choice among others", user, of("desk", with(`"tool_choice":{"type":"function","function":{"name":"f"}}`)), invalid, "tool_choice", "tool_choice asks for a tool that the model is not offered."},
		{"a choice among none", user, of("tools", with(`"tool_choice":"required"`)), invalid, "tool_choice", "tool_choice asks for a tool that the model is not offered."},
		{"too many tools", user, of("tools", tools(aTool, b, c, d)), long, "tools", "There are 4 tools; at most 3 are allowed."},
		{"a visitor's choice of a tool that goes", "", of("tools", strings.Replace(tools(aTool, b, c), `"tools"`, `"tool_choice":{"type":"function","function":{"name":"c"}},"tools"`, 1)), invalid, "tool_choice", "tool_choice asks for a tool that the model is not offered."},
		{"tools that are too long", user, of("tools", tools(tool("f", `,"description":"`+strings.Repeat("a b ", 2_000)+`"`), tool("g", `,"description":"`+strings.Repeat("c d ", 2_000)+`"`))), long, "messages", ""},
		{"an image where none is taken", user, picture(pixel), unsupported, "messages[0].content[0].type", "open takes no images: messages[0].content[0].type is supported only as text."},
		{"its address", user, parts(`{"type":"text","text":"a"}`, `{"type":"image_url","image_url":{"url":"`+link+`"}}`), unsupported, "messages[0].content[1].type", "open takes no images: messages[0].content[1].type is supported only as text."},
		{"an image where tools are taken", user, of("tools", picture(pixel)), unsupported, "messages[0].content[0].type", "tools takes no images: messages[0].content[0].type is supported only as text."},
		{"an image of who may send none", pro, of("eyes", picture(pixel)), unsupported, "messages[0].content[0].type", "eyes takes no images of pro callers: messages[0].content[0].type is supported only as text."},
		{"an address where images are taken", user, of("eyes", picture(link)), value, "messages[0].content[0].image_url.url", "messages[0].content[0].image_url.url must be a data URL: eyes takes no addresses of images."},
		{"the same of a visitor", "", of("eyes", picture(link)), value, "messages[0].content[0].image_url.url", "messages[0].content[0].image_url.url must be a data URL: eyes takes no addresses of images."},
		{"too many images", user, of("eyes", parts(imagePart, imagePart, imagePart)), long, "messages", "There are 3 images; at most 2 are allowed."},
		{"too many in several messages", user, of("links", said(imageMessage(1), hello, imageMessage(2))), long, "messages", "There are 3 images; at most 2 are allowed."},
		{"an effort where none can be chosen", user, effort("low"), unsupported, "reasoning_effort", "reasoning_effort is not supported by open."},
		{"the same of a visitor", "", effort("low"), unsupported, "reasoning_effort", "reasoning_effort is not supported by open."},
		{"an effort where others can", user, of("desk", effort("high")), value, "reasoning_effort", "reasoning_effort must be low or medium."},
		{"an effort where one can", user, of("lamp", effort("minimal")), value, "reasoning_effort", "reasoning_effort must be high."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sends := g.sends.Load()
			a := g.chat(tc.token, tc.body)
			e := g.wireError(a)
			param := ""
			if e.Param != nil {
				param = *e.Param
			}
			check.That(t, a.status == http.StatusBadRequest && e.Code == string(tc.code) && param == tc.param && (tc.message == "" || e.Message == tc.message), "%d %s, want %s of %s: %s", a.status, a.body, tc.code, tc.param, tc.message)
			check.That(t, a.header.Get("X-Should-Retry") == "false" && a.header.Get("X-Input-Cut") == "", "%v", a.header)
			check.That(t, g.sends.Load() == sends, "%d writes for what is refused", g.sends.Load()-sends)
		})
	}
	check.Equal(t, len(g.upstream.Calls()), 1, "calls upstream")
}

const imagePart = `{"type":"image_url","image_url":{"url":"` + pixel + `","detail":"low"}}`

func imageMessage(n int) string {
	return `{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(imagePart+",", n), ",") + `]}`
}

// What a visitor's request loses goes no further, and one header says what it was.
func TestVisitorsLose(t *testing.T) {
	t.Parallel()
	g := newRig(t, furnished)
	b, c := tool("b", ""), tool("c", "")
	g.freeze(0)
	for _, tc := range []struct {
		name, body, cut string
		sent            []string // is in what goes upstream
		gone            string   // is not
	}{
		{"tools", of("tools", tools(aTool, b, c)), "tools=1", []string{`"name":"f"`, `"name":"b"`}, `"name":"c"`},
		{"no tools", of("tools", tools(aTool, b)), "", []string{`"name":"f"`, `"name":"b"`}, `"name":"c"`},
		{"the owner's tools", of("desk", with(`"tool_choice":"required","parallel_tool_calls":false`)), "", []string{`"name":"look_up"`, `"tool_choice":"required"`, `"parallel_tool_calls":false`}, `"reasoning_effort"`},
		{"the older image", of("eyes", said(imageMessage(1), hello, strings.Replace(imageMessage(1), "low", "auto", 1))), "images=1", []string{`"detail":"auto"`}, `"detail":"low"`},
		{"an effort", of("desk", with(`"reasoning_effort":"xhigh"`)), "reasoning_effort=medium", []string{`"reasoning_effort":"medium"`}, "xhigh"},
		{"an effort below all", of("lamp", with(`"reasoning_effort":"low"`)), "reasoning_effort=default", nil, "reasoning_effort"},
		{"an effort that can be chosen", of("desk", with(`"reasoning_effort":"low"`)), "", []string{`"reasoning_effort":"low"`}, "medium"},
		{"a call and its result", of("desk", said(hello, `{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"look_up","arguments":"{}"}}]}`, result("1"), `{"role":"user","content":"`+strings.Repeat("a ", 1_000)+`"}`)),
			"messages=3, characters=12", []string{"a a a "}, "tool_call_id"}, // "Hi", look_up, {}, and 4
		{"all of it", of("desk", strings.Replace(said(`{"role":"user","content":"`+strings.Repeat("b ", 900)+`"}`, `{"role":"user","content":"`+strings.Repeat("a ", 700)+`"}`), `"messages"`, `"reasoning_effort":"high","messages"`, 1)),
			"characters=1200, reasoning_effort=medium", []string{"a a a "}, `"high"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g.freeze(3600e9)
			before := len(g.sent.String())
			a := g.chat("", tc.body)
			check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
			check.Equal(t, a.header.Get("X-Input-Cut"), tc.cut, "x-input-cut")
			sent := g.sent.String()[before:]
			for _, text := range tc.sent {
				check.That(t, strings.Contains(sent, text), "%s is not in %s", text, sent)
			}
			check.That(t, !strings.Contains(sent, tc.gone), "%s is in %s", tc.gone, sent)
		})
	}
}
