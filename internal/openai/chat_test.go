package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// with is a good request with more members; extra begins without a comma.
func with(extra string) string {
	if extra != "" {
		extra = "," + extra
	}
	return `{"model":"open","messages":[{"role":"user","content":"Hi"}]` + extra + `}`
}

const everything = `"max_tokens":50,"max_completion_tokens":60,"stream":true,"stream_options":{"include_usage":true},"temperature":0,"top_p":0.9,
	"presence_penalty":-2,"frequency_penalty":2,"seed":-9007199254740993,"stop":["a","b"],"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"b":1,"a":2}}}`

// What is encoded is what was read, and nothing else: a request that goes on says what
// its caller said.
func TestEncodedAsRead(t *testing.T) {
	t.Parallel()
	for _, extra := range []string{"", everything} {
		req, apiErr := ParseChat([]byte(with(extra + strings.Repeat(`,"user":"u","n":1,"store":null`, min(1, len(extra))))))
		check.Must(t, apiErr == nil, "%+v", apiErr)
		encoded := Encode(req)
		check.Diff(t, cmp.Diff(decoded(t, with(extra)), decoded(t, string(encoded))), "encoded")
		again, apiErr := ParseChat(encoded)
		if diff := cmp.Diff(req, again); apiErr != nil || diff != "" {
			t.Errorf("%+v, read again (-want +got):\n%s", apiErr, diff)
		}
	}
}

func decoded(t *testing.T, s string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	check.Must(t, err == nil, "%v: %s", err, s)
	return v
}

// A null says nothing, whatever the field and wherever it stands.
func TestNullIsAbsent(t *testing.T) {
	t.Parallel()
	members := func(name string) string { return with(`"` + name + `":null`) }
	for _, tt := range []struct {
		plain string
		with  func(name string) string
		names []string // beside those of chatFields
	}{
		{with(""), members, []string{"reasoning_effort", "frobnicate", "Stream", ""}},
		{with(`"stream_options":{}`), func(name string) string { return with(`"stream_options":{"` + name + `":null}`) }, []string{"include_usage", "include_obfuscation"}},
		{with(""), func(name string) string {
			return `{"model":"open","messages":[{"role":"user","content":"Hi","` + name + `":null}]}`
		}, []string{"tool_call_id", "name", "refusal", "parsed"}},
		{with(""), func(name string) string {
			return `{"model":"open","messages":[{"role":"user","content":[{"type":"text","text":"Hi","` + name + `":null}]}]}`
		}, []string{"image_url", "refusal", "file"}},
		{with(`"response_format":{"type":"json_object"}`), func(name string) string { return with(`"response_format":{"type":"json_object","` + name + `":null}`) }, []string{"json_schema", "schema"}},
		{with(`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"default":null}}}`), func(name string) string {
			return with(`"response_format":{"type":"json_schema","json_schema":{"` + name + `":null,"name":"a","schema":{"default":null}}}`)
		}, []string{"strict", "description"}},
	} {
		plain, apiErr := ParseChat([]byte(tt.plain))
		if apiErr != nil {
			t.Fatal(apiErr)
		}
		for _, name := range append(tt.names, chatNames...) {
			if name == "model" || name == "messages" {
				continue
			}
			req, apiErr := ParseChat([]byte(tt.with(name)))
			if diff := cmp.Diff(plain, req); apiErr != nil || diff != "" {
				t.Errorf("%s: %+v %s", tt.with(name), apiErr, diff)
			}
		}
	}
}

func TestMaxOutput(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]int64{
		"":                0,
		`"max_tokens":50`: 50, `"max_completion_tokens":60`: 60,
		`"max_tokens":50,"max_completion_tokens":60`:   50,
		`"max_completion_tokens":50,"max_tokens":60`:   50,
		`"max_completion_tokens":null,"max_tokens":60`: 60,
	} {
		req, apiErr := ParseChat([]byte(with(extra)))
		check.That(t, apiErr == nil && req.MaxOutput() == want, "%s: %+v %+v, want %d", extra, req, apiErr, want)
	}
}

// Whatever a caller sends, what is accepted is within the bounds of each field.
func FuzzParseChat(f *testing.F) {
	for _, s := range []string{with(""), with(`"max_tokens":10,"seed":1,"temperature":0.5,"stop":"a"`), `{"model":"open","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"refusal","refusal":null}]},{"role":"assistant","content":null,"refusal":"a","parsed":{}}]}`,
		with(everything), with(`"n":1,"N":2`),
		with(`"tools":[{"type":"function","function":{"name":"f","description":"<d>","parameters":{"a": [1, {"b":"\u003c"}]},"strict":true}}],"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"reasoning_effort":"low"`),
		with(`"tools":[],"tool_choice":"required"`),
		`{"model":"open","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"2","function":{"name":"g"}}]},
			{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"b"}]},{"role":"tool","tool_call_id":"1","content":"a","name":"f"}]}`,
		`{"model":"open","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://example.com/a.png","detail":"low"}},{"type":"text","text":"b"}]}]}`,
		withImage(dataURL("image/png", animated(3, 2, 1, 1, 4, 4))), withImage(dataURL("", riff("VP8L", 0x2f, 0x1f, 0xc3, 0x77, 0))), withImage(dataURL("a", []byte("\xff\xd8\xff\xc0\x00\x0b\x08\x00\x10\x00\x10\x01\x01\x11\x00"))),
		with(`"stream":true,"stream_options":{"include_usage":true},"metadata":` + strings.Repeat(`{"a":`, 20) + `1` + strings.Repeat(`}`, 20))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, apiErr := ParseChat(body)
		if apiErr != nil {
			check.That(t, apiErr.Message != "" && utf8.Valid(apiErr.Envelope()) && apiErr.Code.Status() == http.StatusBadRequest, "%+v", apiErr)
			return
		}
		check.That(t, req.Model != "" && len(req.Messages) != 0 && req.MaxTokens >= 0 && req.MaxCompletionTokens >= 0 && len(req.Stop) <= maxStops, "%+v", req)
		for _, m := range req.Messages {
			check.That(t, utf8.ValidString(m.Content) && strings.Contains(" system developer user assistant tool ", fmt.Sprintf(" %s ", m.Role)), "%+v", m)
			check.That(t, (m.Role == "tool") == (m.ToolCallID != "") && (m.Role == "assistant" || m.ToolCalls == nil) && len(m.ToolCalls) <= maxCalls, "%+v", m)
			for _, i := range m.Images {
				check.That(t, m.Role == "user" && i.At <= len(m.Content) && (i.Remote() || strings.HasPrefix(i.URL, "data:"+i.Type+";base64,") && i.Width > 0 && i.Height > 0 && i.Width*i.Height <= maxPixels), "%+v", m)
			}
		}
		for _, n := range []*float64{req.Temperature, req.TopP, req.PresencePenalty, req.FrequencyPenalty} {
			if n != nil && !(*n >= -2 && *n <= 2) {
				t.Errorf("%g", *n)
			}
		}
		for _, tool := range req.Tools {
			check.That(t, tool.Name != "" && (tool.Parameters == nil || json.Valid(tool.Parameters)), "%+v", tool)
		}
		check.That(t, req.ResponseFormat == nil || json.Valid(req.ResponseFormat), "format %s", req.ResponseFormat)
		parsed(t, string(body))
		var fields map[string]json.RawMessage
		check.OK(t, json.Unmarshal(body, &fields))
		for name, value := range fields {
			check.That(t, chatFields[name] != nil || string(value) == "null", "accepted %q", name)
		}
	})
}
