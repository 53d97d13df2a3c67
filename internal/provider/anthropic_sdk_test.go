package provider

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The server of these tests speaks the true protocol: Anthropic's own client reads
// it, and its requests pass the judge. The client is a program in a module of its own.
func TestServerSpeaksAsAnthropicDoes(t *testing.T) {
	d := anthropicDialect
	program := filepath.Join(t.TempDir(), "anthropicsdk")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "anthropicsdk", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	type result struct {
		Texts      []string
		Calls      [][3]string
		StopReason string `json:"stop_reason"`
		Input      int64  `json:"input_tokens"`
		Output     int64  `json:"output_tokens"`
		Events     int
		Error      json.RawMessage
	}
	official := func(t *testing.T, url string, stream bool, more ...string) (read result) {
		t.Helper()
		form := "whole"
		if stream {
			form = "stream"
		}
		out, err := exec.CommandContext(t.Context(), program, append([]string{form, url, testKey, testPrompt}, more...)...).Output()
		if err == nil {
			err = json.Unmarshal(out, &read)
		}
		check.Must(t, err == nil, "%v: %s", err, out)
		return read
	}
	same := func(t *testing.T, read result) {
		t.Helper()
		check.That(t, read.Error == nil && len(read.Texts) == 1 && read.Texts[0] == testAnswer && read.StopReason == "end_turn" && read.Input == 9 && read.Output == 5,
			"read %+v", read)
	}
	t.Run("buffered", func(t *testing.T) {
		url, _ := d.serve(t, d.answer(false, d.whole))
		same(t, official(t, url, false))
	})
	t.Run("stream", func(t *testing.T) {
		url, _ := d.serve(t, d.answer(true, strings.Join(d.events, "")))
		read := official(t, url, true)
		if read.Events != len(d.events)-1 { // all but the ping
			t.Errorf("%d events", read.Events)
		}
		same(t, read)
	})
	t.Run("error", func(t *testing.T) {
		url, _ := d.serve(t, d.answer(true, d.events[0]+d.failing))
		read := official(t, url, true)
		check.That(t, strings.Contains(string(read.Error), "overloaded_error"), "read %+v", read)
	})
	// What the SDK reads of calls is what we read.
	for _, r := range recordings(t, "calls") {
		if r.dialect() != "anthropic" {
			continue
		}
		url, _ := d.serve(t, d.answer(r.stream, r.body))
		read := official(t, url, r.stream)
		got, err := r.read(t)
		got = joined(t, got)
		check.That(t, err == io.EOF && read.Error == nil && len(read.Calls) == 2 && len(got.ToolCalls) == 2 && read.StopReason == "tool_use" && got.FinishReason == toolCalls, "%s: the SDK read %+v, we %+v", r.name, read, got)
		for i, c := range got.ToolCalls {
			check.Equal(t, [3]string{c.ID, c.Name, c.Arguments}, read.Calls[i], "%s: a call", r.name)
		}
	}
	// What we send is what the SDK would send.
	plain := request(true)
	plain.Messages = []openai.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: testPrompt}}
	plain.Stop = []string{"END"}
	full := plain
	full.Messages = []openai.Message{
		plain.Messages[0],
		{Role: "user", Content: testPrompt, Images: []openai.Image{
			{At: len(testPrompt), URL: "data:image/gif;base64," + pixel, Type: "image/gif"}, {At: len(testPrompt), URL: "https://example.com/a.png"}}},
		{Role: "assistant", Content: "Wait.", ToolCalls: openai.ToolCalls{{ID: "call_1", Name: "weather", Arguments: `{"city":"Paris"}`}, {ID: "call_2", Name: "time"}}},
		{Role: "tool", ToolCallID: "call_1", Content: "warm"},
		{Role: "tool", ToolCallID: "call_2"},
		{Role: "user", Content: "And now?"},
	}
	full.Tooling = openai.Tooling{
		Tools: []openai.Tool{
			{Name: "weather", Description: "Tells it.", Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`), Strict: ptr(true)},
			{Name: "time"}},
		ToolChoice: openai.ToolChoice{Mode: "required"}, ParallelToolCalls: ptr(false),
	}
	full.ReasoningEffort = "low"
	for name, req := range map[string]Request{"": plain, "tools": full} {
		t.Run("ours/"+name, func(t *testing.T) {
			var sent [2]any
			recording := d
			for i, ask := range []func(url string){
				func(url string) { official(t, url, true, strings.Fields(name)...) },
				func(url string) {
					_, err := call(t.Context(), t, newAnthropic(t, AnthropicConfig{BaseURL: url, APIKey: testKey}), req)
					check.Equal(t, err, io.EOF, "our call ended")
				},
			} {
				recording.judge = func(t *testing.T, r *http.Request, body []byte) {
					d.judge(t, r, body)
					check.OK(t, json.Unmarshal(body, &sent[i]))
				}
				url, _ := recording.serve(t, d.answer(true, strings.Join(d.events, "")))
				ask(url)
			}
			check.Equal(t, cmp.Diff(sent[0], sent[1]), "", "what is sent")
		})
	}
}
