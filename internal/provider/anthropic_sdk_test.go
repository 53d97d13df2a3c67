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
		StopReason string `json:"stop_reason"`
		Input      int64  `json:"input_tokens"`
		Output     int64  `json:"output_tokens"`
		Events     int
		Error      json.RawMessage
	}
	official := func(t *testing.T, url string, stream bool) (read result) {
		t.Helper()
		form := "whole"
		if stream {
			form = "stream"
		}
		out, err := exec.CommandContext(t.Context(), program, form, url, testKey, testPrompt).Output()
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
	t.Run("ours", func(t *testing.T) {
		// What we send is what the SDK would send.
		var sent [2]string
		record := func(i int) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				sent[i] = string(body)
				d.answer(true, strings.Join(d.events, ""))(w, r)
			}
		}
		url, _ := server(t, record(0))
		official(t, strings.TrimSuffix(url, "/v1"), true)
		url, _ = server(t, record(1))
		req := request(true)
		req.Messages = []openai.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: testPrompt}}
		req.Stop = []string{"END"}
		if _, err := call(t.Context(), t, newAnthropic(t, AnthropicConfig{BaseURL: strings.TrimSuffix(url, "/v1"), APIKey: testKey}), req); err != io.EOF {
			t.Error(err)
		}
		var bodies [2]any
		for i := range sent {
			check.OK(t, json.Unmarshal([]byte(sent[i]), &bodies[i]))
		}
		if diff := cmp.Diff(bodies[0], bodies[1]); diff != "" {
			t.Error(diff)
		}
	})
}
