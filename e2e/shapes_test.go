package e2e

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/jpeg"
	"math/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// large is a JPEG of noise, in base64, of more than 3 MiB.
func large(t *testing.T, width, height int) string {
	t.Helper()
	noise := image.NewRGBA(image.Rect(0, 0, width, height))
	rand.New(rand.NewSource(1)).Read(noise.Pix)
	var b bytes.Buffer
	check.OK(t, jpeg.Encode(&b, noise, &jpeg.Options{Quality: 90}))
	s := base64.StdEncoding.EncodeToString(b.Bytes())
	check.Must(t, len(s) > 3<<20 && len(s) < 4<<20-1000, "%d bytes", len(s))
	return s
}

// The shapes of requests, up to the largest, get from a caller to the model and back; what is
// wrong is refused by its name, and takes nothing.
func TestShapesOfRequests(t *testing.T) {
	t.Parallel()
	d := startDev(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://provider.example/v1", api_key: {env: E2E_NO_SUCH_KEY}}}`,
		`models: {m: {provider: main, id: gpt-4o, tokenizer: o200k_base, context: 100000, image_tokens: {rule: gpt-4o}, max_tokens_field: max_completion_tokens, price_per_mtok: {input: "1", output: "1"}}}`,
		`features:`,
		`  ask: {model: m, max_output_tokens: 1000, allow: [tools, images], reasoning_effort: [low]}`,
		`  text: {model: m, max_output_tokens: 1000}`,
		`tiers: {user: {max_input_tokens: 20000, max_output_tokens: 1000, limits: {tokens: {capacity: 100000, per: 30d}}}}`,
		`auth: {issuer: "https://issuer.example/", audience: a, jwks_url: "https://issuer.example/keys"}`,
	}, "\n")))
	token := d.token(t, "shapes")
	const (
		call   = `{"index":0,"id":"call_1","type":"function","function":{"name":"sum","arguments":"{\"of\":[40,2]}","parsed_arguments":{"of":[40,2]}}}`
		result = `{"role":"tool","name":"sum","tool_call_id":"call_1","content":[{"type":"text","text":"42"}]}`
		tools  = `"tools":[{"type":"function","function":{"name":"sum","description":"Adds.","parameters":{"type":"object","properties":{"of":{"type":"array","items":{"type":"number"}}}},"strict":null},"cache_control":{"type":"ephemeral"}}]`
		hi     = `{"role":"user","content":"Please sum."}`
	)
	said := func(more string, messages ...string) string {
		return `{"model":"ask","messages":[` + strings.Join(messages, ",") + `]` + more + `}`
	}
	picture := func(url string) string {
		return `{"role":"user","content":[{"type":"text","text":"Look: "},{"type":"image_url","image_url":{"url":"` + url + `","detail":"low"}}]}`
	}
	photo := picture("data:image/png;base64," + large(t, 1800, 1700)) // of another type than it says
	for _, tc := range []struct {
		name, body string
		status     int
		want       string
	}{
		{"a tool is called", said(","+tools+`,"tool_choice":"auto","parallel_tool_calls":false`, hi), 200, `"finish_reason":"tool_calls"`},
		{"its result comes back", said(","+tools, hi, `{"role":"assistant","content":null,"tool_calls":[`+call+`]}`, result), 200, `"finish_reason":"stop"`},
		{"a photo of 3 MiB", said("", photo), 200, "1800 x 1700 pixels"},
		{"an effort", said(`,"reasoning_effort":"low"`, hi), 200, `"reasoning_tokens":8`},

		{"a photo where there are none", strings.Replace(said("", photo), `"ask"`, `"text"`, 1), 413, "at most 1048576 bytes"},
		{"two photos", said("", photo, photo), 413, "at most 4194304 bytes"},
		{"a tool where there are none", strings.Replace(said(","+tools, hi), `"ask"`, `"text"`, 1), 400, "This endpoint has no tools: tools is not supported."},
		{"a tool that costs by itself", said(`,"tools":[{"type":"web_search"}]`, hi), 400, "tools[0].type: web_search costs by itself and is not supported: only function is."},
		{"a call without a result", said("", hi, `{"role":"assistant","tool_calls":[`+call+`]}`, hi), 400, `messages[1].tool_calls: the call \"call_1\" has no result.`},
		{"a picture that is none", said("", picture("data:image/png;base64,SGVsbG8gdGhlcmUsIGhlbGxv")), 400, "messages[0].content[1].image_url.url is no PNG, JPEG, GIF or WebP."},
		{"an address of a picture", said("", picture("https://example.com/a.png")), 400, "messages[0].content[1].image_url.url must be a data URL"},
		{"another effort", said(`,"reasoning_effort":"high"`, hi), 400, "reasoning_effort must be low."},
	} {
		before := d.remaining(t, token, "tokens")
		a, err := read(post(t.Context(), d.url+"/v1/chat/completions", token, tc.body))
		check.OK(t, err)
		check.That(t, a.status == tc.status && strings.Contains(a.body, tc.want), "%s: %d %.500s, want %d %s", tc.name, a.status, a.body, tc.status, tc.want)
		took := before - d.remaining(t, token, "tokens")
		check.That(t, (took > 0) == (tc.status == http.StatusOK), "%s: it took %d tokens", tc.name, took)
	}
}

// Visitors are offered the owner's tools, which they cannot change, and one header says what
// their request lost to fit the caps.
func TestWhatVisitorsLose(t *testing.T) {
	t.Parallel()
	d := startDev(t, writeConfig(t, strings.Join([]string{
		`providers: {main: {kind: openai, base_url: "https://provider.example/v1", api_key: {env: E2E_NO_SUCH_KEY}}}`,
		`models: {m: {provider: main, id: gpt-4o, tokenizer: o200k_base, context: 100000, image_tokens: {rule: gpt-4o}, max_tokens_field: max_completion_tokens, price_per_mtok: {input: "1", output: "1"}}}`,
		`features:`,
		`  desk: {model: m, max_output_tokens: 200, allow: [images], reasoning_effort: [low], tools: [{name: weather, parameters: {type: object, properties: {city: {type: string}}}}]}`,
		`  box: {model: m, max_output_tokens: 200, allow: [tools]}`,
		`tiers: {anonymous: {max_input_chars: 100, max_input_tokens: 4000, max_messages: 4, max_tools: 1, max_images: 1, max_output_tokens: 200, limits: {tokens: {capacity: 100000, per: 30d}}}}`,
		`fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}`,
	}, "\n")))
	const (
		picture = `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAAC"}}]}`
		called  = `{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"Rain."}`
		tool    = `{"type":"function","function":{"name":"sum"}},{"type":"function","function":{"name":"add"}}`
	)
	asks := func(text string) string { return `{"role":"user","content":"` + text + `"}` }
	said := func(feature, more string, messages ...string) string {
		return `{"model":"` + feature + `","messages":[` + strings.Join(messages, ",") + `]` + more + `}`
	}
	for _, tc := range []struct {
		name, body string
		status     int
		want, cut  string
	}{
		{"nothing", said("desk", "", asks("How is the weather?")), 200, `"name":"weather"`, ""},
		{"a call goes with its result", said("desk", `,"reasoning_effort":"high"`, asks("Hi."), called, asks("Now?"), asks(strings.Repeat("a ", 20))), 200, `"finish_reason":"stop"`, "messages=3, characters=17, reasoning_effort=low"}, // Hi., weather, {} and Rain.
		{"the older picture", said("desk", "", picture, picture), 200, "1 x 1 pixels", "images=1"},
		{"a tool", said("box", `,"tools":[`+tool+`]`, asks("Please sum.")), 200, `"name":"sum"`, "tools=1"},
		{"other tools than the owner's", said("desk", `,"tools":[`+tool+`]`, asks("Hi.")), 400, "desk has its own tools, which cannot be changed: tools is not supported.", ""},
	} {
		a, err := read(post(t.Context(), d.url+"/v1/chat/completions", "", tc.body))
		check.OK(t, err)
		check.That(t, a.status == tc.status && strings.Contains(a.body, tc.want), "%s: %d %.500s, want %d %s", tc.name, a.status, a.body, tc.status, tc.want)
		check.Equal(t, a.header.Get("X-Input-Cut"), tc.cut, "%s: cut", tc.name)
	}
}
