package e2e

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// streamWithOpenAI prints what OpenAI's client makes of a stream. The stream is there
// when its headers are; then the model may speak.
const streamWithOpenAI = `
import OpenAI from 'openai';
const client = new OpenAI({ baseURL: process.env.URL + '/v1', apiKey: process.env.TOKEN });
const stream = await client.chat.completions.create({ model: 'bills', stream: true, messages: [{ role: 'user', content: process.env.ASK }] });
await fetch(process.env.LET_GO);
try {
  for await (const chunk of stream) console.log(chunk.choices[0].delta.content ?? '', chunk.choices[0].finish_reason ?? '');
} catch (error) {
  console.log(error.constructor.name, error.code);
}`

// A model that thinks: the stream's headers and a comment come after 10 s, and what
// follows is an ordinary stream, or an event that is an error. OpenAI's client does not
// notice.
func TestSilentModel(t *testing.T) {
	t.Parallel()
	s := newScripted(t)
	d := startDev(t, truthConfig(t, s))
	for script, want := range map[string]struct{ raw, openAI string }{
		"answer":     {"data: [DONE]", " \nYes, it is. \n stop\n"},
		"status 500": {`"code":"provider_error"`, "APIError provider_error\n"},
	} {
		word := strings.Fields(script)[0]
		ask := "<" + script + ">" + word
		t.Run(script+" raw", func(t *testing.T) {
			t.Parallel()
			_, letGo := s.hold(word)
			asked := time.Now()
			a, err := d.open(t.Context(), d.token(t, word), question{feature: "bills", text: ask, most: 100, stream: true})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			body := bufio.NewReader(a.Body)
			comment, err := body.ReadString('\n')
			if took := time.Since(asked); err != nil || !strings.HasPrefix(comment, ": ") || took < 10*time.Second {
				t.Errorf("%v: %q after %s", err, comment, took)
			}
			if a.StatusCode != http.StatusOK || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") || a.Header.Get("RateLimit") == "" {
				t.Errorf("%d %v", a.StatusCode, a.Header)
			}
			letGo()
			rest, err := io.ReadAll(body)
			if err != nil || !strings.Contains(string(rest), want.raw) {
				t.Errorf("%v: %q", err, rest)
			}
		})
		t.Run(script+" OpenAI's client", func(t *testing.T) {
			t.Parallel()
			_, letGo := s.hold(word + "2")
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { letGo() }))
			defer server.Close()
			got := run(t, []string{"URL=" + d.url, "TOKEN=" + d.token(t, word+"2"), "ASK=" + ask + "2", "LET_GO=" + server.URL},
				"node", "--input-type=module", "--eval", streamWithOpenAI)
			if got.code != 0 || got.stderr != "" || got.stdout != want.openAI {
				t.Errorf("%+v", got)
			}
		})
	}
}
