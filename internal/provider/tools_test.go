package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// sent is what each kind of provider is sent of a request, without what is not said of
// tools, images and effort.
func sent(t *testing.T, d dialect, req Request) (body map[string]any, err error) {
	t.Helper()
	s, calls := server(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		if d.name != "openai" {
			d.judge(t, r, raw)
		}
		body = decoded(t, string(raw))
		check.That(t, !strings.Contains(string(raw), "required\":[") || strings.Contains(string(raw), parameters[1:]), "the schema is another: %s", raw)
		w.WriteHeader(http.StatusTeapot)
	})
	_, err = call(t.Context(), t, d.make(t, strings.TrimSuffix(s, "/v1"), nil), req)
	check.Equal(t, calls.Load() == 1, body != nil, "a request was sent")
	for _, name := range []string{"model", "max_tokens", "max_completion_tokens", "inferenceConfig"} {
		delete(body, name)
	}
	return body, err
}

const (
	pixel = "R0lGODlhAQABAAAAADs="
	// A schema whose members must keep their order, and a number its digits.
	parameters = `{"properties":{"zip":{"const":12345678901234567890},"at":{"type":"string"}},"required":["zip"]}`
)

// talk is a conversation in which an assistant calls tools, told as text, too.
var talk = []openai.Message{
	{Role: "system", Content: "Be brief."},
	{Role: "user", Content: "Look:and:", Images: []openai.Image{{At: 5, URL: "data:image/gif;base64," + pixel, Type: "image/gif", Width: 1, Height: 1}}},
	{Role: "user", Content: " ", Images: []openai.Image{{URL: "data:image/gif;base64," + pixel, Type: "image/gif", Detail: "low"}}},
	{Role: "assistant", ToolCalls: openai.ToolCalls{
		{ID: "call_1", Name: "weather", Arguments: ` {"zip":12345678901234567890,"at":"<now>"}`}, {ID: "functions.time:0", Name: "time"}}},
	{Role: "tool", ToolCallID: "call_1", Content: "warm"},
	{Role: "tool", ToolCallID: "functions.time:0", Content: "\n"},
	{Role: "user", Content: "And now?"},
	{Role: "assistant", Content: "Wait.", ToolCalls: openai.ToolCalls{{ID: "call_2", Name: "time", Arguments: `now`}}},
	{Role: "tool", ToolCallID: "call_2", Content: "noon"},
}

var tools = []openai.Tool{
	{Name: "weather", Description: "Tells <it>.", Parameters: json.RawMessage(parameters), Strict: ptr(true)},
	{Name: "time", Strict: ptr(false)},
}

func TestToolsAndImagesOnTheWire(t *testing.T) {
	plain := func(r *Request) {}
	choose := func(mode, name string, parallel *bool) func(*Request) {
		return func(r *Request) {
			r.ToolChoice, r.ParallelToolCalls = openai.ToolChoice{Mode: mode, Name: name}, parallel
		}
	}
	type wants map[string]string // for a dialect, of the fields beside the messages
	var (
		openAITools = `"tools":[{"type":"function","function":{"name":"weather","description":"Tells <it>.","parameters":` + parameters + `,"strict":true}},` +
			`{"type":"function","function":{"name":"time","strict":false}}]`
		claudeTools = `"tools":[{"name":"weather","description":"Tells <it>.","strict":true,"input_schema":{"type":"object",` + parameters[1:] + `},` +
			`{"name":"time","input_schema":{"type":"object","properties":{}}}]`
		converseTools = `"tools":[{"toolSpec":{"name":"weather","description":"Tells <it>.","strict":true,"inputSchema":{"json":{"type":"object",` + parameters[1:] + `}}},` +
			`{"toolSpec":{"name":"time","inputSchema":{"json":{"type":"object","properties":{}}}}}]`
	)
	for _, tt := range []struct {
		name   string
		change func(*Request)
		want   wants
	}{
		{"nothing said", plain, wants{"openai": openAITools, "anthropic": claudeTools, "bedrock": `"toolConfig":{` + converseTools + `}`}},
		{"auto", choose("auto", "", ptr(true)), wants{"openai": openAITools + `,"tool_choice":"auto","parallel_tool_calls":true`,
			"anthropic": claudeTools + `,"tool_choice":{"type":"auto"}`, "bedrock": `"toolConfig":{` + converseTools + `}`}},
		{"required", choose("required", "", nil), wants{"openai": openAITools + `,"tool_choice":"required"`,
			"anthropic": claudeTools + `,"tool_choice":{"type":"any"}`, "bedrock": `"toolConfig":{` + converseTools + `,"toolChoice":{"any":{}}}`}},
		{"this one", choose("", "time", nil), wants{"openai": openAITools + `,"tool_choice":{"type":"function","function":{"name":"time"}}`,
			"anthropic": claudeTools + `,"tool_choice":{"type":"tool","name":"time"}`, "bedrock": `"toolConfig":{` + converseTools + `,"toolChoice":{"tool":{"name":"time"}}}`}},
		{"one at a time", choose("", "", ptr(false)), wants{"openai": openAITools + `,"parallel_tool_calls":false`,
			"anthropic": claudeTools + `,"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`}},
		{"this one alone", choose("", "time", ptr(false)), wants{"openai": openAITools + `,"tool_choice":{"type":"function","function":{"name":"time"}},"parallel_tool_calls":false`,
			"anthropic": claudeTools + `,"tool_choice":{"type":"tool","name":"time","disable_parallel_tool_use":true}`}},
		{"none", choose("none", "", ptr(false)), wants{"openai": openAITools + `,"tool_choice":"none","parallel_tool_calls":false`,
			"anthropic": claudeTools + `,"tool_choice":{"type":"none"}`, "bedrock": ""}},
		// Nothing is said of a choice among none, which is refused.
		{"no tools", func(r *Request) {
			r.Tools, r.ToolChoice, r.ParallelToolCalls = nil, openai.ToolChoice{Mode: "auto"}, ptr(false)
		}, wants{"openai": "", "anthropic": "", "bedrock": ""}},
		{"effort", func(r *Request) { r.Tooling, r.ReasoningEffort = openai.Tooling{}, "high" },
			wants{"openai": `"reasoning_effort":"high"`, "anthropic": `"output_config":{"effort":"high"}`, "bedrock": ""}},
		{"effort that only some know", func(r *Request) { r.Tooling, r.ReasoningEffort = openai.Tooling{}, "none" },
			wants{"openai": `"reasoning_effort":"none"`, "anthropic": "", "bedrock": ""}},
		{"effort in place of the owner's", func(r *Request) {
			r.Tooling, r.ReasoningEffort = openai.Tooling{}, "low"
			r.Extra = json.RawMessage(`{"reasoning_effort":"high"}`)
		}, wants{"openai": `"reasoning_effort":"low"`}},
		{"effort beside what the owner says", func(r *Request) {
			r.Tooling, r.ReasoningEffort = openai.Tooling{}, "low"
			r.Extra = json.RawMessage(` {"top_k": 5, "output_config": {"effort":"high"}}`)
		}, wants{"anthropic": `"output_config":{"effort":"low"},"top_k":5`}},
	} {
		for _, d := range dialects {
			if d.name == "anthropic" && strings.Contains(tt.want["anthropic"], "top_k") {
				d.judge = func(*testing.T, *http.Request, []byte) {} // who knows no such field
			}
			want, possible := tt.want[d.name]
			if !possible && strings.HasPrefix(tt.name, "effort") {
				continue
			}
			t.Run(tt.name+"/"+d.name, func(t *testing.T) {
				req := request(false)
				req.Tools = tools
				tt.change(&req)
				got, err := sent(t, d, req)
				if !possible {
					wantFailure(t, err, Refused, 0)
					return
				}
				delete(got, "messages")
				check.Equal(t, cmp.Diff(decoded(t, "{"+want+"}"), got), "", "%s", d.name)
			})
		}
	}
}

// decoded is JSON whose numbers keep their digits.
func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	check.OK(t, d.Decode(&v))
	return v
}

func TestConversationsWithToolsOnTheWire(t *testing.T) {
	withID := strings.NewReplacer("TIME", "N3TC3SQR4").Replace // for functions.time:0
	told := map[string]string{
		"openai": `{"messages":[{"role":"system","content":"Be brief."},` +
			`{"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image_url","image_url":{"url":"data:image/gif;base64,` + pixel + `"}},{"type":"text","text":"and:"}]},` +
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/gif;base64,` + pixel + `","detail":"low"}},{"type":"text","text":" "}]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":" {\"zip\":12345678901234567890,\"at\":\"<now>\"}"}},` +
			`{"id":"functions.time:0","type":"function","function":{"name":"time","arguments":""}}]},` +
			`{"role":"tool","content":"warm","tool_call_id":"call_1"},{"role":"tool","content":"\n","tool_call_id":"functions.time:0"},{"role":"user","content":"And now?"},` +
			`{"role":"assistant","content":"Wait.","tool_calls":[{"id":"call_2","type":"function","function":{"name":"time","arguments":"now"}}]},` +
			`{"role":"tool","content":"noon","tool_call_id":"call_2"}]}`,
		"anthropic": `{"system":[{"type":"text","text":"Be brief."}],"messages":[` +
			`{"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"` + pixel + `"}},{"type":"text","text":"and:"},` +
			`{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"` + pixel + `"}}]},` +
			`{"role":"assistant","content":[{"type":"tool_use","id":"call_1","name":"weather","input":{"zip":12345678901234567890,"at":"<now>"}},{"type":"tool_use","id":"TIME","name":"time","input":{}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":[{"type":"text","text":"warm"}]},{"type":"tool_result","tool_use_id":"TIME"},{"type":"text","text":"And now?"}]},` +
			`{"role":"assistant","content":[{"type":"text","text":"Wait."},{"type":"tool_use","id":"call_2","name":"time","input":{"arguments":"now"}}]},` +
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_2","content":[{"type":"text","text":"noon"}]}]}]}`,
		"bedrock": `{"system":[{"text":"Be brief."}],"messages":[` +
			`{"role":"user","content":[{"text":"Look:"},{"image":{"format":"gif","source":{"bytes":"` + pixel + `"}}},{"text":"and:"},{"image":{"format":"gif","source":{"bytes":"` + pixel + `"}}}]},` +
			`{"role":"assistant","content":[{"toolUse":{"toolUseId":"call_1","name":"weather","input":{"zip":12345678901234567890,"at":"<now>"}}},{"toolUse":{"toolUseId":"TIME","name":"time","input":{}}}]},` +
			`{"role":"user","content":[{"toolResult":{"toolUseId":"call_1","content":[{"text":"warm"}]}},{"toolResult":{"toolUseId":"TIME","content":[{"text":"..."}]}},{"text":"And now?"}]},` +
			`{"role":"assistant","content":[{"text":"Wait."},{"toolUse":{"toolUseId":"call_2","name":"time","input":{"arguments":"now"}}}]},` +
			`{"role":"user","content":[{"toolResult":{"toolUseId":"call_2","content":[{"text":"noon"}]}}]}]}`,
	}
	// Those who know no calls without tools are told of them as of what else was said.
	asText := map[string]string{
		"openai": told["openai"],
		"anthropic": `{"system":[{"type":"text","text":"Be brief."}],"messages":[` +
			`{"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"` + pixel + `"}},{"type":"text","text":"and:"},` +
			`{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"` + pixel + `"}}]},` +
			`{"role":"assistant","content":[{"type":"text","text":"weather  {\"zip\":12345678901234567890,\"at\":\"<now>\"}"},{"type":"text","text":"time "}]},` +
			`{"role":"user","content":[{"type":"text","text":"warm"},{"type":"text","text":"And now?"}]},` +
			`{"role":"assistant","content":[{"type":"text","text":"Wait."},{"type":"text","text":"time now"}]},{"role":"user","content":[{"type":"text","text":"noon"}]}]}`,
		"bedrock": `{"system":[{"text":"Be brief."}],"messages":[` +
			`{"role":"user","content":[{"text":"Look:"},{"image":{"format":"gif","source":{"bytes":"` + pixel + `"}}},{"text":"and:"},{"image":{"format":"gif","source":{"bytes":"` + pixel + `"}}}]},` +
			`{"role":"assistant","content":[{"text":"weather  {\"zip\":12345678901234567890,\"at\":\"<now>\"}"},{"text":"time "}]},` +
			`{"role":"user","content":[{"text":"warm"},{"text":"And now?"}]},{"role":"assistant","content":[{"text":"Wait."},{"text":"time now"}]},{"role":"user","content":[{"text":"noon"}]}]}`,
	}
	remote := []openai.Message{{Role: "user", Images: []openai.Image{{URL: "https://example.com/a.png"}}}}
	for _, tt := range []struct {
		name     string
		messages []openai.Message
		tools    openai.Tooling
		want     map[string]string
	}{
		{"with tools", talk, openai.Tooling{Tools: tools}, told},
		{"without", talk, openai.Tooling{}, asText},
		{"with none to choose from", talk, openai.Tooling{Tools: tools, ToolChoice: openai.ToolChoice{Mode: "none"}},
			map[string]string{"openai": told["openai"], "anthropic": told["anthropic"], "bedrock": asText["bedrock"]}},
		{"an image elsewhere", remote, openai.Tooling{}, map[string]string{
			"openai":    `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]}`,
			"anthropic": `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]}`}},
		{"an image that is none", []openai.Message{{Role: "user", Images: []openai.Image{{URL: "data:image/png;base64,?", Type: "image/png"}}}}, openai.Tooling{}, map[string]string{
			"openai":    `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}]}]}`,
			"anthropic": `{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"?"}}]}]}`}},
		{"parameters that are no object", talk[:2], openai.Tooling{Tools: []openai.Tool{{Name: "f", Parameters: json.RawMessage(`{"type":"string"}`)}}}, map[string]string{
			"openai": `{"messages":[{"role":"system","content":"Be brief."},` +
				`{"role":"user","content":[{"type":"text","text":"Look:"},{"type":"image_url","image_url":{"url":"data:image/gif;base64,` + pixel + `"}},{"type":"text","text":"and:"}]}]}`}},
	} {
		for _, d := range dialects {
			t.Run(tt.name+"/"+d.name, func(t *testing.T) {
				req := request(false)
				req.Messages, req.Tooling = tt.messages, tt.tools
				got, err := sent(t, d, req)
				want, possible := tt.want[d.name]
				if !possible {
					if wantFailure(t, err, Refused, 0); got != nil {
						t.Errorf("sent %v", got)
					}
					return
				}
				for _, name := range []string{"tools", "tool_choice", "toolConfig"} {
					delete(got, name)
				}
				check.Equal(t, cmp.Diff(decoded(t, withID(want)), got), "", "%s", d.name)
			})
		}
	}
}

// Some hosts want more of calls than others: Gemini a signature beside the first of each
// message, Mistral ids of nine letters and digits.
func TestHostsWithWishes(t *testing.T) {
	const signature = `"extra_content":{"google":{"thought_signature":"skip_thought_signature_validator"}}`
	for base, want := range map[string]struct {
		signatures int
		ids        string
	}{
		"https://generativelanguage.googleapis.com/v1beta/openai":                                    {3, "call_1 functions.time:0"},
		"https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/l/endpoints/openapi": {3, "call_1 functions.time:0"},
		"https://api.mistral.ai/v1":             {0, "OQMW7ZZOJ N3TC3SQR4"},
		"https://api.openai.com/v1":             {0, "call_1 functions.time:0"},
		"https://googleapis.com.example.com/v1": {0, "call_1 functions.time:0"},
		"https://notmistral.ai/v1":              {0, "call_1 functions.time:0"},
	} {
		var body string
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			raw, _ := io.ReadAll(r.Body)
			body = string(raw)
			return nil, errors.New("no route")
		})}
		req := request(false)
		req.Messages, req.Tools = append(talk, openai.Message{Role: "assistant", ToolCalls: openai.ToolCalls{{ID: "D681PevKs", Name: "time"}}}, openai.Message{Role: "tool", ToolCallID: "D681PevKs"}), tools
		_, err := call(t.Context(), t, clientWith(t, OpenAIConfig{BaseURL: base, HTTPClient: client}), req)
		wantFailure(t, err, Broken, 0)
		check.Equal(t, strings.Count(body, signature), want.signatures, "%s: signatures", base)
		check.That(t, want.signatures == 0 || strings.Contains(body, `"name":"weather","arguments":" {\"zip\":12345678901234567890,\"at\":\"<now>\"}"},`+signature+`}`), "%s", body)
		for _, id := range append(strings.Fields(want.ids), "D681PevKs") {
			check.That(t, strings.Contains(body, `[{"id":"`+id+`"`) || strings.Contains(body, `},{"id":"`+id+`"`), "%s: no call %s: %s", base, id, body)
			check.That(t, strings.Contains(body, `"tool_call_id":"`+id+`"`), "%s: no result of %s: %s", base, id, body)
		}
		check.That(t, talk[3].ToolCalls[0].Signature == "" && talk[3].ToolCalls[0].ID == "call_1", "the request itself has changed: %+v", talk[3])
	}
}

// called is the answer that calls tools, each as id, name and arguments.
func called(calls ...[3]string) Part {
	p := Part{FinishReason: "tool_calls"}
	for i, c := range calls {
		p.ToolCalls = append(p.ToolCalls, openai.ToolCall{Index: i, ID: c[0], Name: c[1], Arguments: c[2]})
	}
	return p
}

// joined puts the pieces of each call together, and "made" for an id that no server gave.
func joined(t testing.TB, p Part) Part {
	t.Helper()
	var whole []openai.ToolCall
	for _, piece := range p.ToolCalls {
		switch i := piece.Index; {
		case i == len(whole):
			check.That(t, isPrintable(piece.ID) && isWord(piece.Name, 64, nameAlphabet), "a call begins without its id or name: %+v", piece)
			if isWord(piece.ID, 9, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") && len(piece.ID) == 9 {
				piece.ID = "made"
			}
			whole = append(whole, piece)
		case i >= 0 && i < len(whole):
			check.That(t, piece.ID == "" && piece.Name == "", "a call begins twice: %+v", piece)
			whole[i].Arguments += piece.Arguments
		default:
			t.Errorf("a call out of order: %+v", piece)
		}
	}
	p.ToolCalls = whole
	return p
}

// However servers tell of calls, each is told once, under the next index, with an id and
// the name of its tool first.
func TestToolCalls(t *testing.T) {
	delta := func(calls string) string { return told(`"delta":{"tool_calls":`+calls+`},"finish_reason":null`, "") }
	end := func(reason string) string {
		return told(`"delta":{},"finish_reason":"`+reason+`"`, `,"usage":`+jsonUsage) + doneEvent
	}
	f := [3]string{"call_1", "f", `{"a":1}`}
	g := [3]string{"call_2", "g", `{}`}
	long := strings.Repeat("x", 300)
	for _, tt := range []struct {
		name, body string
		want       Part
	}{
		{"OpenAI", told(`"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]}`, "") +
			delta(`[{"index":0,"function":{"arguments":"{\"a\""}}]`) + delta(`[{"index":0,"function":{"arguments":":1}"}}]`) +
			delta(`[{"index":1,"id":"call_2","type":"function","function":{"name":"g","arguments":""}}]`) + delta(`[{"index":1,"function":{"arguments":"{}"}}]`) + end("tool_calls"), called(f, g)},
		{"interleaved", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\""}},{"index":1,"id":"call_2","function":{"name":"g","arguments":"{"}}]`) +
			delta(`[{"index":0,"function":{"arguments":":1}"}},{"index":1,"function":{"arguments":"}"}}]`) + end("tool_calls"), called(f, g)},
		{"no index", delta(`[{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + delta(`[{"id":"call_2","function":{"name":"g","arguments":"{}"}}]`) + end("tool_calls"), called(f, g)},
		{"no index, in pieces", delta(`[{"id":"call_1","function":{"name":"f","arguments":""}}]`) + delta(`[{"function":{"arguments":"{\"a\":"}}]`) + delta(`[{"id":"call_1","function":{"arguments":"1}"}}]`) +
			delta(`[{"id":"call_2","function":{"name":"g"}}]`) + delta(`[{"function":{"arguments":"{}"}}]`) + end("tool_calls"), called(f, g)},
		{"the index as text", delta(`[{"index":"0","id":"call_1","function":{"name":"f","arguments":"{\"a\""}}]`) + delta(`[{"index":0,"function":{"arguments":":1}"}}]`) + end("tool_calls"), called(f)},
		{"one index for all", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + delta(`[{"index":0,"id":"call_2","function":{"name":"g","arguments":"{}"}}]`) + end("tool_calls"), called(f, g)},
		{"one index and one name for all", delta(`[{"index":0,"id":"0","function":{"name":"f","arguments":""}}]`) + delta(`[{"index":0,"id":"0","function":{"name":null,"arguments":"{\"a\":1}"}}]`) +
			delta(`[{"index":0,"id":"1","function":{"name":"f","arguments":""}}]`) + delta(`[{"index":0,"id":"1","function":{"arguments":"{}"}}]`) + end("tool_calls"),
			called([3]string{"0", "f", `{"a":1}`}, [3]string{"1", "f", `{}`})},
		{"one index and no ids", delta(`[{"index":0,"id":"","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + delta(`[{"index":0,"id":"","function":{"name":"f","arguments":"{\"a\":2}"}}]`) + end("stop"),
			called([3]string{"made", "f", `{"a":1}`}, [3]string{"made", "f", `{"a":2}`})},
		{"indices from 1", delta(`[{"index":1,"id":"call_1","function":{"name":"f","arguments":"{\"a\""}}]`) + delta(`[{"index":1,"function":{"arguments":":1}"}}]`) + end("tool_calls"), called(f)},
		{"an id for each piece", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\""}}]`) + delta(`[{"index":0,"id":"call_9","function":{"arguments":":1}"}}]`) + end("tool_calls"), called(f)},
		{"id and name for each piece", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\""}}]`) + delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":":1}"}}]`) +
			delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":""}}]`) + end("tool_calls"), called(f)},
		{"a name for each piece, and nothing else", delta(`[{"function":{"name":"f","arguments":"{\"a\""}}]`) + delta(`[{"function":{"name":"f","arguments":":1}"}}]`) + end("tool_calls"), called([3]string{"made", "f", `{"a":1}`})},
		{"the name late", delta(`[{"index":0,"id":"call_1","function":{"arguments":"{\"a\""}}]`) + delta(`[{"index":1,"id":"call_2","function":{"name":"g","arguments":"{}"}}]`) +
			delta(`[{"index":0,"function":{"name":"f","arguments":":1}"}}]`) + end("tool_calls"), called(g, f)},
		{"the same id twice", delta(`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}},{"index":1,"id":"x","function":{"name":"g","arguments":"{}"}}]`) + end("tool_calls"),
			called([3]string{"x", "f", `{"a":1}`}, [3]string{"made", "g", `{}`})},
		{"one id and one index for all", delta(`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + delta(`[{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\":2}"}}]`) + end("tool_calls"),
			called([3]string{"x", "f", `{"a":1}`}, [3]string{"made", "f", `{"a":2}`})},
		{"a call told again", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\""}}]`) + delta(`[{"index":0,"id":"call_1","function":{"arguments":":1}"}}]`) +
			delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + end("tool_calls"), called(f)},
		{"arguments as an object", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":{"a":1}}},{"index":0,"id":"call_2","function":{"name":"g","arguments":{}}}]`) + end("tool_calls"), called(f, g)},
		{"two calls without arguments", delta(`[{"id":"call_1","function":{"name":"g","arguments":{}}},{"id":"call_2","function":{"name":"g","arguments":{}}}]`) + end("tool_calls"),
			called([3]string{"call_1", "g", "{}"}, [3]string{"call_2", "g", "{}"})},
		{"no arguments", delta(`[{"index":0,"id":"call_2","function":{"name":"g","arguments":""}}]`) + delta(`[{"index":0,"id":"call_2","function":{"name":"g","arguments":null}}]`) + end("tool_calls"), called(g)},
		{"a number for an id", delta(`[{"index":0,"id":7,"function":{"name":"f","arguments":"{\"a\":1}"}}]`) + end("tool_calls"), called([3]string{"7", "f", `{"a":1}`})},
		{"an id that is too much", delta(`[{"index":0,"id":"`+long+`","function":{"name":"f","arguments":"{\"a\":1}"}},{"index":1,"id":"a b","function":{"name":"g"}}]`) + end("tool_calls"),
			called([3]string{"made", "f", `{"a":1}`}, [3]string{"made", "g", "{}"})},
		{"names that no tool has", delta(`[{"index":0,"id":"call_1","function":{"name":"functions.f:0 é","arguments":"{\"a\":1}"}},{"index":1,"id":"call_2","function":{"name":"`+long+`"}}]`) + end("tool_calls"),
			called([3]string{"call_1", "functions_f_0__", `{"a":1}`}, [3]string{"call_2", long[:64], "{}"})},
		{"one call in place of the list", delta(`{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}`) + end("tool_calls"), called(f)},
		{"a level left out", delta(`[{"id":"call_1","name":"f","arguments":{"a":1}}]`) + end("tool_calls"), called(f)},
		{"things that are no calls", delta(`[7,null,"f",[],{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}},{"function":7}]`) + end("tool_calls"), called(f)},
		{"the older form", told(`"delta":{"function_call":{"name":"f","arguments":""}}`, "") + told(`"delta":{"function_call":{"arguments":"{\"a\":1}"}}`, "") + end("function_call"), called([3]string{"made", "f", `{"a":1}`})},
		{"both forms", told(`"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}],"function_call":{"name":"f","arguments":"{\"a\":1}"}}`, "") + end("tool_calls"), called(f)},
		{"a message at the end that repeats them", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) +
			told(`"delta":{},"message":{"content":null,"tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"`, `,"usage":`+jsonUsage), called(f)},
		{"a message at the end that has them alone", told(`"delta":{"content":"Hm."}`, "") +
			told(`"delta":{},"message":{"content":"Hm.","tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"`, `,"usage":`+jsonUsage),
			Part{Content: "Hm.", ToolCalls: called(f).ToolCalls, FinishReason: "tool_calls"}},
		{"a message at the end that has text alone", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) +
			told(`"delta":{},"message":{"content":"Hm."},"finish_reason":"tool_calls"`, `,"usage":`+jsonUsage), Part{Content: "Hm.", ToolCalls: called(f).ToolCalls, FinishReason: "tool_calls"}},
		{"no list", told(`"delta":{"content":"Yes.","tool_calls":null,"function_call":null}`, "") + delta("[]") + delta("{}") + delta("7") + end("stop"), Part{Content: "Yes.", FinishReason: "stop"}},
		{"an end for calls, and none", told(`"delta":{"content":"Yes."}`, "") + end("tool_calls"), Part{Content: "Yes.", FinishReason: "stop"}},
		{"an end like any other", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + end("stop"), called(f)},
		{"an end that nobody knows", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + end("quite_new"), called(f)},
		{"an end in capitals", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`) + end("TOOL_CALLS"), called(f)},
		{"cut at its cap", delta(`[{"index":0,"id":"call_1","function":{"name":"f","arguments":""}}]`) + end("length"),
			Part{ToolCalls: called([3]string{"call_1", "f", ""}).ToolCalls, FinishReason: "length"}},
		{"a call without a name", told(`"delta":{"content":"Yes."}`, "") + delta(`[{"index":0,"id":"call_1","function":{"arguments":"{}"}}]`) + end("tool_calls"), Part{Content: "Yes.", FinishReason: "stop"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, _ := server(t, answerSSE(tt.body))
			got, err := call(t.Context(), t, client(t, url), request(true))
			check.Equal(t, err, io.EOF, "it ended")
			tt.want.Usage = usualAnswer.Usage
			check.Equal(t, cmp.Diff(tt.want, joined(t, got)), "", "it is read")
		})
	}
}

// In one piece, and by the protocols of the others, calls are told alike.
func TestToolCallsOfEveryKind(t *testing.T) {
	f, g := [3]string{"call_1", "f", `{"a":1}`}, [3]string{"call_2", "g", `{}`}
	completion := func(message, reason string) string {
		return `{"choices":[{"message":{"role":"assistant",` + message + `},"finish_reason":` + reason + `}],"usage":` + jsonUsage + `}`
	}
	claude := func(content, reason string) string {
		return `{"type":"message","content":` + content + `,"stop_reason":` + reason + `,"usage":` + claudeUsageJSON + `}`
	}
	claudeEnd := func(reason string) string {
		return claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"`+reason+`"},"usage":{"output_tokens":5}}`) + claudeStream[7]
	}
	converse := func(content, reason string) string {
		return `{"output":{"message":{"content":` + content + `}},"stopReason":` + reason + `,"usage":{"inputTokens":9,"outputTokens":5}}`
	}
	block := func(event, payload string) string { return frame("event", event, payload) }
	text := Part{Content: "Hm.", ToolCalls: called(f, g).ToolCalls, FinishReason: "tool_calls"}
	for _, tt := range []struct {
		name, dialect string
		stream        bool
		body          string
		want          Part
	}{
		{"usual", "openai", false, completion(`"content":"Hm.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"call_2","type":"function","function":{"name":"g","arguments":"{}"}}]`, `"tool_calls"`), text},
		{"objects, and no ids", "openai", false, completion(`"content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g"}},{"function":{"name":"g"}}]`, `"stop"`),
			called([3]string{"made", "f", `{"a":1}`}, [3]string{"made", "f", `{"a":1}`}, [3]string{"made", "g", "{}"}, [3]string{"made", "g", "{}"})},
		{"one index for all", "openai", false, completion(`"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":{"a":1}}},{"index":0,"id":"call_2","function":{"name":"g","arguments":{}}}]`, `"stop"`), called(f, g)},
		{"the older form", "openai", false, completion(`"function_call":{"name":"f","arguments":"{\"a\":1}"}`, `"function_call"`), called([3]string{"made", "f", `{"a":1}`})},
		{"no reason", "openai", false, completion(`"content":"","tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]`, `null`), called(f)},
		{"no list", "openai", false, completion(`"content":"Yes.","tool_calls":[],"function_call":null`, `"tool_calls"`), Part{Content: "Yes.", FinishReason: "stop"}},
		{"in the delta", "openai", false, `{"choices":[{"delta":{"tool_calls":[{"id":"call_1","function":{"name":"f","arguments":"{\"a\":1}"}}]},"finish_reason":"tool_calls"}],"usage":` + jsonUsage + `}`, called(f)},
		{"chunks in a row", "openai", false, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{\"a\""}}]}}]}` + "\n" +
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"}],"usage":` + jsonUsage + `}`, called(f)},

		{"usual", "anthropic", false, claude(`[{"type":"text","text":"Hm."},{"type":"tool_use","id":"call_1","name":"f","input":{"a":1}},{"type":"tool_use","id":"call_2","name":"g","input":{}}]`, `"tool_use"`), text},
		{"tools of the provider's own", "anthropic", false, claude(`[{"type":"server_tool_use","id":"x","name":"web_search","input":{"q":1}},{"type":"web_search_tool_result","tool_use_id":"x","content":[{"type":"text","text":"no"}]},{"type":"text","text":"Yes."}]`, `"end_turn"`),
			Part{Content: "Yes.", FinishReason: "stop"}},
		{"usual", "anthropic", true, claudeStream[0] + claudeEvent(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`) + claudeEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hm."}}`) + claudeStream[5] +
			claudeEvent(`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call_1","name":"f","input":{}}}`) +
			claudeEvent(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}`) + claudeEvent(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}`) +
			claudeEvent(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":":1}"}}`) + claudeEvent(`{"type":"content_block_stop","index":1}`) +
			claudeEvent(`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_2","name":"g","input":{}}}`) + claudeEvent(`{"type":"content_block_stop","index":2}`) + claudeEnd("tool_use"), text},
		{"inputs in one piece", "anthropic", true, claudeStream[0] + claudeEvent(`{"type":"content_block_start","content_block":{"type":"tool_use","id":"call_1","name":"f","input":{"a":1}}}`) +
			claudeEvent(`{"type":"content_block_start","content_block":{"type":"tool_use","id":"call_2","name":"g","input":{}}}`) + claudeEnd("end_turn"), called(f, g)},
		{"tools of the provider's own", "anthropic", true, claudeStream[0] + claudeEvent(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"call_1","name":"f","input":{}}}`) +
			claudeEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}}`) +
			claudeEvent(`{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"x","name":"web_search","input":{}}}`) +
			claudeEvent(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"no\":1}"}}`) + claudeEnd("tool_use"), called(f)},
		{"all in one event", "anthropic", true, "data: " + claude(`[{"type":"text","text":"Hm."},{"type":"tool_use","id":"call_1","name":"f","input":{"a":1}},{"type":"tool_use","id":"call_2","name":"g","input":{}}]`, `"tool_use"`) + "\n\n", text},

		{"usual", "bedrock", false, converse(`[{"text":"Hm."},{"toolUse":{"toolUseId":"call_1","name":"f","input":{"a":1}}},{"toolUse":{"toolUseId":"call_2","name":"g","input":{}}}]`, `"tool_use"`), text},
		{"tools of the provider's own", "bedrock", false, converse(`[{"text":"Yes."},{"toolUse":{"toolUseId":"x","name":"nova_grounding","type":"server_tool_use","input":{"q":1}}}]`, `"end_turn"`), Part{Content: "Yes.", FinishReason: "stop"}},
		{"usual", "bedrock", true, converseStream1[0] + block("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"Hm."}}`) +
			block("contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"call_1","name":"f"}}}`) + block("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{\"a\""}}}`) +
			block("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":":1}"}}}`) + block("contentBlockStop", `{"contentBlockIndex":1}`) +
			block("contentBlockStart", `{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"call_2","name":"g"}}}`) + block("contentBlockDelta", `{"contentBlockIndex":2,"delta":{"toolUse":{"input":""}}}`) +
			block("messageStop", `{"stopReason":"tool_use"}`) + converseStream1[5], text},
		{"an input as an object", "bedrock", true, block("contentBlockStart", `{"start":{"toolUse":{"toolUseId":"call_1","name":"f"}}}`) + block("contentBlockDelta", `{"delta":{"toolUse":{"input":{"a":1}}}}`) +
			block("messageStop", `{"stopReason":"end_turn"}`) + converseStream1[5], called(f)},
		{"tools of the provider's own", "bedrock", true, block("contentBlockStart", `{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"call_1","name":"f"}}}`) + block("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"a\":1}"}}}`) +
			block("contentBlockStart", `{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"x","name":"nova_grounding","type":"server_tool_use"}}}`) + block("contentBlockDelta", `{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{}"}}}`) +
			block("messageStop", `{"stopReason":"tool_use"}`) + converseStream1[5], called(f)},
	} {
		i := slices.IndexFunc(dialects, func(d dialect) bool { return d.name == tt.dialect })
		t.Run(fmt.Sprintf("%s/stream=%t/%s", tt.dialect, tt.stream, tt.name), func(t *testing.T) {
			d := dialects[i]
			url, _ := d.serve(t, d.answer(tt.stream, tt.body))
			got, err := call(t.Context(), t, d.make(t, url, nil), request(tt.stream))
			check.Equal(t, err, io.EOF, "it ended")
			tt.want.Usage = usualAnswer.Usage
			check.Equal(t, cmp.Diff(tt.want, joined(t, got)), "", "it is read")
		})
	}
}

// Calls are something said: usage without output is none, and more of them than there may
// be are passed over.
func TestManyToolCalls(t *testing.T) {
	var list []string
	for i := range maxCalls + 2 {
		list = append(list, fmt.Sprintf(`{"index":%d,"id":"c%d","function":{"name":"f","arguments":"{}"}}`, i, i))
	}
	list = append(list, `{"index":129,"function":{"arguments":"no"}}`, `{"function":{"arguments":"no"}}`, `{"index":127,"function":{"arguments":" "}}`)
	body := told(`"delta":{"tool_calls":[`+strings.Join(list, ",")+`]},"finish_reason":"tool_calls"`, `,"usage":{"prompt_tokens":9,"completion_tokens":0}`)
	url, _ := server(t, answerSSE(body+doneEvent))
	got, err := call(t.Context(), t, client(t, url), request(true))
	got = joined(t, got)
	check.That(t, err == io.EOF && len(got.ToolCalls) == 128 && got.ToolCalls[127].ID == "c127" && got.ToolCalls[127].Arguments == "{} " && got.Usage == nil && got.FinishReason == "tool_calls",
		"%v; %d calls, usage %+v, %s, the last of them %+v", err, len(got.ToolCalls), got.Usage, got.FinishReason, got.ToolCalls[len(got.ToolCalls)-1])
}
