package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// dialect is a provider's protocol: what a server that speaks it says and how it
// judges requests. The tests in this file hold every provider to the same promises.
type dialect struct {
	name string
	make func(t *testing.T, url string, client *http.Client) Provider
	// makeBilling makes one that bills its errors, or does not.
	makeBilling func(t *testing.T, url string, billsErrors bool) Provider
	// judge reports what is wrong with a request.
	judge func(t *testing.T, r *http.Request, body []byte)

	wholeType, whole string // the answer ANSWER, stop, with 9 input and 5 output tokens
	streamType       string
	events           []string // the same answer, event by event
	complete         int      // so many of the events make a complete answer
	// failing is an event that reports an error, and the error that it makes.
	failing, failingText string
	// refusal is an error's body; refusedAs the error that it makes with status 529.
	refusal, refusedAs string
	// ended is the answer, event by event, with a finish reason that means failure,
	// the usage and whatever ends it.
	ended func(reason string) []string
}

var dialects = []dialect{
	{
		name: "openai",
		make: func(t *testing.T, url string, client *http.Client) Provider {
			return clientWith(t, OpenAIConfig{BaseURL: url + "/v1", APIKey: testKey, HTTPClient: client})
		},
		makeBilling: func(t *testing.T, url string, billsErrors bool) Provider {
			return clientWith(t, OpenAIConfig{BaseURL: url + "/v1", APIKey: testKey, BillsErrors: billsErrors})
		},
		judge:       judgeOpenAI,
		wholeType:   "application/json",
		whole:       wholeAnswer,
		streamType:  "text/event-stream",
		events:      splitAfter(stream1, "\n\n"),
		complete:    5, // all but [DONE]
		failing:     `data: {"error":{"message":"PROMPT","code":"boom"}}` + "\n\n",
		failingText: "provider broken (status 200): error instead of an answer, code boom",
		refusal:     `{"error":{"message":"PROMPT","type":"overloaded"}}`,
		refusedAs:   "provider refused (status 529): code overloaded",
		ended: func(reason string) []string {
			return []string{roleEvent, textEvents, event(`"delta":{},"finish_reason":"` + reason + `"`), usageEvent, doneEvent}
		},
	},
	anthropicDialect,
	bedrockDialect,
}

func splitAfter(s, sep string) []string {
	parts := strings.SplitAfter(s, sep)
	return parts[:len(parts)-1]
}

func judgeOpenAI(t *testing.T, r *http.Request, body []byte) {
	check.That(t, r.URL.Path == "/v1/chat/completions" && r.Header.Get("Authorization") == "Bearer "+testKey && bytes.Contains(body, []byte(`"max_completion_tokens":100`)),
		"strange request %s %s", r.URL, body)
}

// conform runs a test for each dialect, as a stream and not.
func conform(t *testing.T, test func(t *testing.T, d dialect, stream bool)) {
	for _, d := range dialects {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%t", d.name, stream), func(t *testing.T) { test(t, d, stream) })
		}
	}
}

// serve is a server that judges requests and then answers with h.
func (d dialect) serve(t *testing.T, h http.HandlerFunc) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		body, err := io.ReadAll(r.Body)
		check.That(t, err == nil, "%v", err)
		d.judge(t, r, body)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, calls
}

// answer sends events, or what there is of the buffered answer.
func (d dialect) answer(stream bool, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", d.wholeType)
		if stream {
			w.Header().Set("Content-Type", d.streamType)
		}
		io.WriteString(w, body)
	}
}

// all is the whole answer.
func (d dialect) all(stream bool) string {
	if stream {
		return strings.Join(d.events, "")
	}
	return d.whole
}

var usualAnswer = Part{Content: testAnswer, FinishReason: "stop", Usage: &price.Usage{Input: 9, Output: 5}}

func TestAnswers(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		url, calls := d.serve(t, d.answer(stream, d.all(stream)))
		got, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
		check.That(t, err == io.EOF, "%v", err)
		if diff := cmp.Diff(usualAnswer, got); diff != "" {
			t.Error(diff)
		}
		check.Equal(t, calls.Load(), 1, "requests for one call")
	})
}

// An answer that is cut is broken, and what came before is still delivered. Usage
// is told as soon as it is known to be all.
func TestCutAtEveryByte(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		all := d.all(stream)
		complete := len(all)
		if stream {
			complete = len(strings.Join(d.events[:d.complete], ""))
			if d.streamType == "text/event-stream" { // a whole event needs no blank line
				complete -= len("\n\n")
			}
		}
		var end atomic.Int64
		var abort atomic.Bool
		url, calls := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
			d.answer(stream, all[:end.Load()])(w, r)
			if abort.Load() {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		})
		p := d.make(t, url, nil)
		want := int64(0)
		for _, cut := range []bool{false, true} {
			abort.Store(cut)
			for n := range len(all) {
				end.Store(int64(n))
				want++
				got, err := call(t.Context(), t, p, request(stream))
				var e *Error
				check.Must(t, !errors.As(err, &e) || e.Begun == (n > 0), "%d bytes (cut %t): %v", n, cut, err)
				if n >= complete {
					check.Must(t, err == io.EOF && cmp.Equal(got, usualAnswer), "%d of %d bytes (cut %t): %+v, %v", n, complete, cut, got, err)
					continue
				}
				wantFailure(t, err, Broken, 200)
				check.Must(t, strings.HasPrefix(testAnswer, got.Content) && (got.Usage == nil || got.FinishReason != ""), "%d bytes (cut %t): %+v", n, cut, got)
				check.Must(t, !t.Failed(), "%d of %d bytes (cut %t): %+v, %v", n, complete, cut, got, err)
			}
		}
		if n := calls.Load(); n != want {
			t.Errorf("%d requests for %d calls", n, want)
		}
	})
}

func TestCutAtEveryEvent(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			for n := range d.events {
				url, _ := d.serve(t, d.answer(true, strings.Join(d.events[:n], "")))
				got, err := call(t.Context(), t, d.make(t, url, nil), request(true))
				if n >= d.complete {
					check.That(t, err == io.EOF && cmp.Equal(got, usualAnswer), "%d events: %+v, %v", n, got, err)
					continue
				}
				wantFailure(t, err, Broken, 200)
				if got.Usage != nil && (got.FinishReason == "" || got.Usage.Output != 5) {
					t.Errorf("%d events: usage %+v", n, *got.Usage)
				}
			}
		})
	}
}

func TestErrorInAStream(t *testing.T) {
	for _, d := range dialects {
		for n := range d.complete {
			t.Run(fmt.Sprintf("%s/after %d", d.name, n), func(t *testing.T) {
				url, calls := d.serve(t, d.answer(true, strings.Join(d.events[:n], "")+d.failing+strings.Join(d.events[n:], "")))
				got, err := call(t.Context(), t, d.make(t, url, nil), request(true))
				check.That(t, err != nil && err.Error() == d.failingText && calls.Load() == 1, "%v after %d requests, want %s", err, calls.Load(), d.failingText)
				var e *Error
				check.That(t, errors.As(err, &e) && e.Begun && strings.HasSuffix(d.failingText, "code "+e.Code), "%+v", e)
				check.That(t, strings.HasPrefix(testAnswer, got.Content) && (got.FinishReason == "" || n >= d.complete-2), "a failed answer goes on: %+v", got)
			})
		}
	}
}

// An answer whose finish reason means failure has failed. What was billed for it is
// told, even if that comes after.
func TestFinishReasonsThatMeanFailure(t *testing.T) {
	for _, d := range dialects {
		for _, reason := range []string{"error", "abort", "network_error", "insufficient_system_resource", "malformed_model_output"} {
			t.Run(d.name+"/"+reason, func(t *testing.T) {
				url, _ := d.serve(t, d.answer(true, strings.Join(d.ended(reason), "")))
				got, err := call(t.Context(), t, d.make(t, url, nil), request(true))
				wantFailure(t, err, Broken, 200)
				if e := err.(*Error); e.Code != reason || !e.Begun || !e.Billed() {
					t.Errorf("code %s, begun %t, billed %t", e.Code, e.Begun, e.Billed())
				}
				if diff := cmp.Diff(answered("", usualAnswer.Usage), got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestRefusals(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		for _, tt := range []struct {
			status int
			body   string
			want   string // "": as in the dialect
		}{
			{529, d.refusal, d.refusedAs},
			{429, d.refusal, strings.Replace(d.refusedAs, "529", "429", 1)},
			{400, d.refusal, strings.Replace(d.refusedAs, "529", "400", 1)},
			{500, "", "provider refused (status 500)"},
			{503, "<html>PROMPT</html>", "provider refused (status 503)"},
			{302, "", "provider refused (status 302)"},
		} {
			url, calls := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Retry-After", "0")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			_, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
			wantFailure(t, err, Refused, tt.status)
			check.That(t, err != nil && err.Error() == tt.want, "%v, want %s", err, tt.want)
			check.Equal(t, calls.Load(), 1, "requests on status %d", tt.status)
		}
	})
}

func TestWrongAnswers(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		for name, answer := range map[string]http.HandlerFunc{
			"empty":       d.answer(stream, ""),
			"prose":       d.answer(stream, testAnswer),
			"null":        d.answer(stream, "null"),
			"a list":      d.answer(stream, "[]"),
			"no fields":   d.answer(stream, "{}"),
			"another 2xx": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(204) },
			"a page": func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", d.wholeType)
				io.WriteString(w, "<html>"+d.all(stream))
			},
			"too large": d.answer(false, `{"pad":"`+strings.Repeat("a", maxJSON)+`",`+d.whole[1:]),
		} {
			t.Run(name, func(t *testing.T) {
				url, calls := d.serve(t, answer)
				_, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
				var e *Error
				check.That(t, errors.As(err, &e) && e.Failure == Broken && calls.Load() == 1, "%v after %d requests", err, calls.Load())
				check.That(t, name != "too large" || d.wholeType != "application/json" || stream || errors.Is(err, errTooLarge), "got %v, want %v", err, errTooLarge)
			})
		}
	})
}

func TestNothingIsSent(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		closed := httptest.NewServer(nil)
		closed.Close()
		_, err := call(t.Context(), t, d.make(t, closed.URL, nil), request(stream))
		wantFailure(t, err, Unreachable, 0)

		url, calls := d.serve(t, d.answer(stream, d.all(stream)))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = call(ctx, t, d.make(t, url, nil), request(stream))
		wantFailure(t, err, Unreachable, 0)
		check.That(t, errors.Is(err, context.Canceled), "%v hides its cause", err)
		for name, change := range map[string]func(*Request){
			"no model":    func(r *Request) { r.Model = "" },
			"no messages": func(r *Request) { r.Messages = nil },
			"no cap":      func(r *Request) { r.MaxOutputTokens = 0 },
		} {
			req := request(stream)
			change(&req)
			_, err := call(t.Context(), t, d.make(t, url, nil), req)
			if wantFailure(t, err, Unreachable, 0); t.Failed() {
				t.Error(name)
			}
		}
		check.Equal(t, calls.Load(), 0, "requests were sent")
	})
}

func TestDeadlines(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		t.Run("before the head", func(t *testing.T) {
			ctx := newDeadline(t)
			url, calls := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
				ctx.pass()
				<-r.Context().Done()
			})
			_, err := call(ctx, t, d.make(t, url, nil), request(stream))
			wantFailure(t, err, Timeout, 0)
			check.That(t, errors.Is(err, context.DeadlineExceeded) && calls.Load() == 1 && !err.(*Error).Begun, "%v, %d requests", err, calls.Load())
		})
		t.Run("after the head", func(t *testing.T) {
			ctx := newDeadline(t)
			url, _ := d.serve(t, hang(d.answer(stream, "")))
			_, err := call(ctx, t, d.make(t, url, ctx.passing(0)), request(stream))
			if wantFailure(t, err, Timeout, 200); err.(*Error).Begun {
				t.Error("a silent answer has begun")
			}
		})
		t.Run("in the answer", func(t *testing.T) {
			sent := d.whole[:len(d.whole)/2]
			if stream {
				sent = strings.Join(d.events[:d.complete-1], "")
			}
			ctx := newDeadline(t)
			url, _ := d.serve(t, hang(d.answer(stream, sent)))
			got, err := call(ctx, t, d.make(t, url, ctx.passing(len(sent))), request(stream))
			wantFailure(t, err, Timeout, 200)
			check.That(t, (!stream || got.Content == testAnswer) && err.(*Error).Begun, "%+v, %+v", got, err)
		})
	})
}

// An answer is judged by how it begins, not by its label, nor by which 2xx it is.
func TestLabelsDoNotMatter(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		for _, asked := range []bool{stream, !stream} { // some give the other form
			for _, label := range []string{"application/json", "text/event-stream", "text/html", "application/octet-stream", ""} {
				for _, status := range []int{200, 201, 206} {
					url, _ := d.serve(t, labelled(status, label, d.all(stream)))
					got, err := call(t.Context(), t, d.make(t, url, nil), request(asked))
					diff := cmp.Diff(usualAnswer, got)
					check.That(t, err == io.EOF && diff == "", "%d %s, asked for a stream %t: %v %s", status, label, asked, err, diff)
				}
			}
			url, _ := d.serve(t, labelled(200, d.wholeType, "<html>PROMPT</html>"))
			_, err := call(t.Context(), t, d.make(t, url, nil), request(asked))
			wantFailure(t, err, Broken, 200)
		}
	})
}

// Once the finish reason and the usage are here the answer is over, whatever the
// connection does; a finish reason alone is given two seconds for its usage.
func TestEndedAnswersAreNotWaitedFor(t *testing.T) {
	for _, d := range dialects {
		alone := d.events[:d.complete-1]
		if d.name == "anthropic" {
			alone = append(slices.Clone(d.events[1:d.complete-1]), claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`))
		}
		for name, tt := range map[string]struct {
			events         []string
			want           Part
			least, longest time.Duration
		}{
			"finish and usage": {d.events[:d.complete], usualAnswer, 0, usageWait},
			"a finish alone":   {alone, answered("stop", nil), usageWait, usageWait + 5*time.Second},
		} {
			t.Run(d.name+" "+name, func(t *testing.T) {
				t.Parallel()
				url, _ := d.serve(t, hang(d.answer(true, strings.Join(tt.events, ""))))
				begun := time.Now()
				got, err := call(t.Context(), t, d.make(t, url, nil), request(true))
				diff := cmp.Diff(tt.want, got)
				check.That(t, err == io.EOF && diff == "", "%v %s", err, diff)
				took := time.Since(begun)
				check.That(t, took >= tt.least && took <= tt.longest, "it took %s", took)
			})
		}
	}
}

// Nor does an answer that has failed, whose usage might follow.
func TestFailedAnswersAreNotWaitedFor(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			url, _ := d.serve(t, hang(d.answer(true, d.events[0]+d.failing)))
			_, err := call(t.Context(), t, d.make(t, url, nil), request(true))
			check.That(t, err != nil && err.Error() == d.failingText, "%v, want %s", err, d.failingText)
		})
	}
}

// The rest of an error holds nobody up.
func TestErrorsAreNotWaitedFor(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		t.Parallel()
		url, _ := d.serve(t, hang(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, "{")
		}))
		_, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
		wantFailure(t, err, Refused, 500)
	})
}

func TestCallersLeave(t *testing.T) {
	for _, d := range dialects {
		text := strings.Join(d.events[:d.complete-2], "")
		t.Run(d.name+"/cancel", func(t *testing.T) {
			url, _ := d.serve(t, hang(d.answer(true, text)))
			ctx, cancel := context.WithCancelCause(t.Context())
			a, err := d.make(t, url, nil).Call(ctx, request(true))
			check.OK(t, err)
			defer a.Close()
			if p, err := a.Next(); err != nil || p.Content == "" {
				t.Fatalf("%+v, %v", p, err)
			}
			cancel(errors.New(testPrompt))
			for err == nil {
				var p Part
				if p, err = a.Next(); p.Content != "" {
					t.Errorf("after the caller has left comes %+v", p)
				}
			}
			wantSafe(t, err)
			wantFailure(t, err, Cancelled, 200)
		})
		t.Run(d.name+"/close", func(t *testing.T) {
			left := make(chan struct{})
			url, _ := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
				hang(d.answer(true, text))(w, r)
				close(left)
			})
			a, err := d.make(t, url, nil).Call(t.Context(), request(true))
			check.OK(t, err)
			if _, err := a.Next(); err != nil {
				t.Fatal(err)
			}
			a.Close()
			a.Close()
			<-left
			_, err = a.Next()
			wantFailure(t, err, Cancelled, 200)
		})
	}
}

// The made client uses a connection again after every kind of answer that ends.
func TestConnectionsAreUsedAgain(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		var opened, requests atomic.Int64
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1)%2 == 0 {
				http.Error(w, "no", http.StatusTooManyRequests)
				return
			}
			d.answer(stream, d.all(stream))(w, r)
			http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond) // so that the end comes on its own
		}))
		s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		}
		s.Start()
		defer s.Close()
		p := d.make(t, s.URL, nil)
		for range 8 {
			call(t.Context(), t, p, request(stream))
		}
		check.Equal(t, opened.Load(), 1, "connections")
	})
}

// environment holds what redirects or charges the official SDKs.
var environment = map[string]string{
	"ANTHROPIC_API_KEY": "other", "ANTHROPIC_AUTH_TOKEN": "other", "ANTHROPIC_PROFILE": "other",
	"ANTHROPIC_CUSTOM_HEADERS": "X-Api-Key: other", "OPENAI_API_KEY": "other",
	"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "other", "AWS_SESSION_TOKEN": "other",
	"AWS_BEARER_TOKEN_BEDROCK": "other", "AWS_REGION": "xx-other-1", "AWS_PROFILE": "other", "AWS_MAX_ATTEMPTS": "7",
}

func TestNoVariableChangesACall(t *testing.T) {
	elsewhere, astray := server(t, func(w http.ResponseWriter, r *http.Request) {})
	for _, name := range []string{
		"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
	} {
		t.Setenv(name, elsewhere)
	}
	for name, value := range environment {
		t.Setenv(name, value)
	}
	conform(t, func(t *testing.T, d dialect, stream bool) {
		url, calls := d.serve(t, d.answer(stream, d.all(stream)))
		_, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
		check.That(t, err == io.EOF && calls.Load() == 1, "%v; %d calls", err, calls.Load())
		failing, calls := d.serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) })
		_, err = call(t.Context(), t, d.make(t, failing, nil), request(stream))
		if wantFailure(t, err, Refused, 503); calls.Load() != 1 {
			t.Errorf("%d requests for one call", calls.Load())
		}
	})
	check.Equal(t, astray.Load(), 0, "requests went astray")
}
