package chatapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	aMoment = 20 * time.Millisecond // of silence
	forever = time.Hour
)

// newQuietFront is a front whose streams have a comment after so much silence.
func newQuietFront(t *testing.T, silence time.Duration, model http.HandlerFunc, edit ...func(string) string) *front {
	t.Helper()
	f := newFront(t, model, append(edit, longTimeout)...)
	f.handler.silence = silence
	return f
}

// pausing is a provider that sends pieces, each when there is something in next.
func pausing(next <-chan struct{}, pieces ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i, piece := range pieces {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			if i == 0 {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

const usageEvent = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":40,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n"

// While the model thinks, a stream has a comment now and then, its headers first; before
// the text and within it. All else is as without.
func TestSilence(t *testing.T) {
	t.Parallel()
	for where, ask := range map[string]func(*front) (int, http.Header, io.Reader){
		"a server": func(f *front) (int, http.Header, io.Reader) {
			server := httptest.NewServer(f)
			f.t.Cleanup(server.Close)
			a, err := f.post(context.Background(), server.URL, cvCall("Hi.", true))
			check.OK(f.t, err)
			return a.StatusCode, a.Header, a.Body
		},
		"Lambda": func(f *front) (int, http.Header, io.Reader) {
			a, err := f.gateway(context.Background(), cvCall("Hi.", true))
			check.OK(f.t, err)
			return a.StatusCode, a.MultiValueHeaders, a.Body
		},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			f := newQuietFront(t, aMoment, pausing(next, contentEvent, finishEvent+usageEvent))
			status, header, body := ask(f)
			check.That(t, status == 200 && header.Get("Content-Type") == "text/event-stream; charset=utf-8" && header.Get("RateLimit") != "" && header.Get("X-Max-Output-Tokens") == fmt.Sprint(cvCap) && header.Get("X-Request-Id") != "",
				"%d %v", status, header)
			var all strings.Builder
			r := bufio.NewReader(io.TeeReader(body, &all))
			for range 3 {
				readUntil(t, r, ": waiting")
			}
			check.That(t, !strings.Contains(all.String(), "data:"), "before the model's first word: %q", all.String())
			next <- struct{}{}
			readUntil(t, r, "Hello there")
			readUntil(t, r, ": waiting")
			next <- struct{}{}
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Fatal(err)
			}
			wantWholeStream(t, all.String())
			data := streamed(all.String())
			check.That(t, strings.Contains(data[0], `"role":"assistant"`) && strings.Contains(data[1], "Hello there"), "%q", data)
			await(t, f.returned, "the handler returns")
			f.wantSettled(f.token, settled{paysBilled, 1, hasBilled, ledger.Completed}, price.Usage{Input: 40, Output: 2})
			f.wantOutcome("answered")
		})
	}
}

// Who speaks in time, or to somebody who waits for the whole answer, has no comments.
func TestNoSilence(t *testing.T) {
	t.Parallel()
	eachWay(t, both, func(t *testing.T, stream bool) {
		f := newQuietFront(t, map[bool]time.Duration{true: forever, false: aMoment}[stream], nil)
		a := f.do(f.request(http.MethodPost, "/v1/chat/completions", f.token, cvCall("Hi.", stream)))
		f.wantAnswer(a, stream, "", 0)
		if strings.Contains(a.body, ": waiting") {
			t.Error(a.body)
		}
	})
}

// A failure is a plain error until something was sent, and an event from then on. What
// it takes is the same.
func TestFailureAfterSilence(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fail     func(w http.ResponseWriter)
		code     openai.Code
		upstream int
		want     settled
	}{
		"refused": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, openai.ProviderError, 429, settled{paysNothing, 0, hasNothing, ""}},
		"broken":  {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, openai.ProviderError, 0, settled{paysNothing, 0, hasWorst, ledger.Failed}},
		"no end":  {nil, openai.ProviderTimeout, 0, settled{paysNothing, 0, hasWorst, ledger.Failed}},
	} {
		for _, silence := range []time.Duration{aMoment, forever} {
			t.Run(fmt.Sprint(name, " after ", silence), func(t *testing.T) {
				t.Parallel()
				fail := make(chan struct{})
				f := newQuietFront(t, silence, func(w http.ResponseWriter, r *http.Request) {
					select {
					case <-fail:
						tt.fail(w)
					case <-r.Context().Done():
					}
				}, func(yaml string) string {
					if tt.fail == nil {
						return shortTimeout(yaml)
					}
					return yaml
				})
				server := httptest.NewServer(f)
				defer server.Close()
				if silence == forever && tt.fail != nil {
					close(fail)
				}
				resp, err := f.post(context.Background(), server.URL, cvCall("Hi.", true))
				check.OK(t, err)
				var all strings.Builder
				r := bufio.NewReader(io.TeeReader(resp.Body, &all))
				if silence != forever {
					readUntil(t, r, ": waiting")
					if tt.fail != nil {
						close(fail)
					}
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					t.Fatal(err)
				}
				await(t, f.returned, "the handler returns")
				a := answer{resp.StatusCode, resp.Header, all.String()}
				if silence == forever {
					f.wantAnswer(a, true, tt.code, tt.upstream)
				} else if data := streamed(a.body); a.status != 200 || len(data) != 1 || f.wireError(answer{body: data[0]}).Code != string(tt.code) {
					t.Errorf("%d %q, want one event: %s", a.status, a.body, tt.code)
				}
				f.wantSettled(f.token, tt.want, price.Usage{Input: f.cvInput()})
				f.wantOutcome(string(tt.code))
			})
		}
	}
}

// Who leaves or stalls in the silence is charged as ever. Where nobody tells that a
// caller has left, the comment that fails does, and ends the call.
func TestLeaveInSilence(t *testing.T) {
	t.Parallel()
	silent := func() http.HandlerFunc { return pausing(nil, "") }
	t.Run("a server's", func(t *testing.T) {
		t.Parallel()
		f := newQuietFront(t, aMoment, silent())
		server := httptest.NewServer(f)
		defer server.Close()
		a, err := f.post(context.Background(), server.URL, cvCall("Hi.", true))
		check.OK(t, err)
		a.Body.Close()
		f.wantLeft(leftWithNothing)
	})
	t.Run("Lambda's", func(t *testing.T) {
		t.Parallel()
		f := newQuietFront(t, aMoment, silent())
		a, err := f.gateway(context.Background(), cvCall("Hi.", true))
		check.OK(t, err)
		readUntil(t, bufio.NewReader(a.Body), ": waiting")
		check.OK(t, a.Body.(io.Closer).Close())
		f.wantLeft(leftWithNothing)
	})
	for writes := range 2 {
		t.Run(fmt.Sprintf("after %d comments, unnoticed", writes), func(t *testing.T) {
			t.Parallel()
			f := newQuietFront(t, aMoment, silent())
			f.ServeHTTP(&deaf{httptest.NewRecorder(), writes}, f.request(http.MethodPost, "/v1/chat/completions", f.token, cvCall("Hi.", true)))
			f.wantLeft(leftWithNothing)
		})
	}
	t.Run("stalled", func(t *testing.T) {
		t.Parallel()
		f := newQuietFront(t, aMoment, silent(), shortTimeout)
		if _, err := f.gateway(context.Background(), cvCall("Hi.", true)); err != nil {
			t.Fatal(err)
		}
		f.wantLeft(leftWithNothing)
	})
}
