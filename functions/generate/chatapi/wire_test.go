package chatapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// inOnePiece says of the provider or of the model that it cannot stream.
func inOnePiece(of string) func(string) string {
	return func(yaml string) string {
		return map[string]func() string{
			"nobody": func() string { return yaml },
			"the provider": func() string {
				return strings.Replace(yaml, "bills_errors: false", "bills_errors: false, stream: false", 1)
			},
			"the model": func() string { return strings.Replace(yaml, "{provider: main,", "{provider: main, stream: false,", 1) },
		}[of]()
	}
}

// Who can stream is asked to, whatever the caller wants, and the caller gets what they
// want whatever the provider can.
func TestStreamUpstream(t *testing.T) {
	t.Parallel()
	for of, streams := range map[string]bool{"nobody": true, "the provider": false, "the model": false} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			eachWay(t, both, func(t *testing.T, stream bool) {
				g := newRig(t, inOnePiece(of))
				g.freeze(0)
				token := g.token("123", "")
				a := g.chat(token, cvCall("Hi.", stream))
				g.wantAnswer(a, stream, "", 0)
				call := g.upstream.Calls()[0]
				if call.Stream != streams || strings.Contains(g.lastSent(), "stream_options") != streams {
					t.Errorf("sent %s", g.lastSent())
				}
				g.wantSettled(token, settled{paysBilled, 1, hasBilled, ledger.Completed}, call.Billed)
				const all = "This is the built-in upstream, which stands in for a model provider."
				switch chunks := strings.Count(a.body, `"delta":{"content":"`) - 1; { // the first one has a role
				case !stream:
					check.That(t, strings.Contains(a.body, all), "answered %s", a.body)
				case streams && chunks < 10, !streams && (chunks != 0 || !strings.Contains(a.body, `"delta":{"content":"`+all)):
					t.Errorf("%d chunks: %s", chunks+1, a.body)
				}
			})
		})
	}
}

// stalled is a provider that says "Hello there" and then nothing more, until the call
// is given up.
func stalled(calls *atomic.Int64) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			hanging(make(chan struct{}), contentEvent)(w, r)
		})
	}
}

func hasty(yaml string) string { return strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 300ms") }

// What was made until the time ran out is what the caller pays, streamed or not.
func TestTimeoutInAnAnswer(t *testing.T) {
	t.Parallel()
	eachWay(t, both, func(t *testing.T, stream bool) {
		g := setup{model: stalled(new(atomic.Int64))}.newRig(t, hasty)
		g.freeze(0)
		token := g.token("123", "")
		want := openai.ProviderTimeout
		if stream {
			want = inStream + want
		}
		g.wantAnswer(g.chat(token, cvCall("Hi.", stream)), stream, want, 200)
		g.wantSettled(token, settled{paysBilled, 0, hasWorst, ledger.Failed}, price.Usage{Input: g.cvInput(), Output: 2})
	})
}

// Answers that are still going on when their time is over are no sign of an outage:
// any caller can ask for a long one.
func TestLongAnswersOpenNoBreaker(t *testing.T) {
	t.Parallel()
	eachWay(t, both, func(t *testing.T, stream bool) {
		var calls atomic.Int64
		g := setup{model: stalled(&calls)}.newRig(t, hasty)
		token := g.token("123", "")
		var long sync.WaitGroup
		for range 7 {
			long.Go(func() { g.chat(token, strings.Replace(cvCall("Hi.", stream), `"cv"`, `"open"`, 1)) })
		}
		long.Wait()
		g.chat(token, cvCall("Hi.", stream))
		check.Equal(t, calls.Load(), 8, "of 8 calls were made")
	})
}

// A provider that says of its answer that it failed: no quota is used, and what it
// reports is billed.
func TestAnswersThatSayThatTheyFailed(t *testing.T) {
	t.Parallel()
	const usage = `{"prompt_tokens":40,"completion_tokens":5}`
	for _, choice := range []string{
		`"finish_reason":"error"`, `"finish_reason":"network_error"`, `"finish_reason":"stop","error":{"code":"boom","message":"x"}`,
	} {
		for text, begun := range map[string]bool{"Hello there": true, "": false} {
			t.Run(choice+text, func(t *testing.T) {
				t.Parallel()
				eachWay(t, both, func(t *testing.T, stream bool) {
					quoted, _ := json.Marshal(text)
					model := modelOf(200, "", "", fmt.Sprintf("data: {\"choices\":[{\"delta\":{\"content\":%s}}]}\n\n"+
						"data: {\"choices\":[{\"delta\":{},%s}]}\n\ndata: {\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", quoted, choice, usage))
					g := setup{model: model}.newRig(t)
					g.freeze(0)
					token := g.token("123", "")
					want := openai.ProviderError
					if stream && begun {
						want = inStream + want
					}
					g.wantAnswer(g.chat(token, cvCall("Hi.", stream)), stream, want, 200)
					g.wantSettled(token, settled{paysBilled, 0, hasBilled, ledger.Failed}, price.Usage{Input: 40, Output: 5})
				})
			})
		}
	}
}

// A server may answer in one piece although it was asked to stream.
func TestOnePieceForAStream(t *testing.T) {
	t.Parallel()
	model := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"Hello there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":40,"completion_tokens":2}}`)
		})
	}
	eachWay(t, both, func(t *testing.T, stream bool) {
		g := setup{model: model}.newRig(t)
		g.freeze(0)
		token := g.token("123", "")
		g.wantAnswer(g.chat(token, cvCall("Hi.", stream)), stream, "", 0)
		g.wantSettled(token, settled{paysBilled, 1, hasBilled, ledger.Completed}, price.Usage{Input: 40, Output: 2})
	})
}
