package e2e

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
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
			check.OK(t, err)
			defer a.Body.Close()
			body := bufio.NewReader(a.Body)
			comment, err := body.ReadString('\n')
			took := time.Since(asked)
			check.That(t, err == nil && strings.HasPrefix(comment, ": ") && took >= 10*time.Second, "%v: %q after %s", err, comment, took)
			check.That(t, a.StatusCode == http.StatusOK && strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") && a.Header.Get("RateLimit") != "",
				"%d %v", a.StatusCode, a.Header)
			letGo()
			rest, err := io.ReadAll(body)
			check.That(t, err == nil && strings.Contains(string(rest), want.raw), "%v: %q", err, rest)
		})
		t.Run(script+" OpenAI's client", func(t *testing.T) {
			t.Parallel()
			_, letGo := s.hold(word + "2")
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { letGo() }))
			defer server.Close()
			got := run(t, []string{"URL=" + d.url, "TOKEN=" + d.token(t, word+"2"), "ASK=" + ask + "2", "LET_GO=" + server.URL},
				"node", "--input-type=module", "--eval", streamWithOpenAI)
			check.That(t, got.code == 0 && got.stderr == "" && got.stdout == want.openAI, "%+v", got)
		})
	}
}
