package lambdahttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func get(path string) *events.APIGatewayProxyRequest {
	return &events.APIGatewayProxyRequest{HTTPMethod: http.MethodGet, Path: path}
}

func stream(t *testing.T, ctx context.Context, h http.HandlerFunc, e *events.APIGatewayProxyRequest) *events.APIGatewayProxyStreamingResponse {
	t.Helper()
	resp, err := Stream(h)(ctx, e)
	check.OK(t, err)
	return resp
}

func readAll(t *testing.T, resp *events.APIGatewayProxyStreamingResponse) string {
	t.Helper()
	data, err := io.ReadAll(resp.Body)
	check.OK(t, err)
	check.OK(t, resp.Close())
	return string(data)
}

// A response must be what net/http users expect of the same handler.
func TestResponse(t *testing.T) {
	t.Parallel()
	const plain = "text/plain; charset=utf-8"
	type headers = map[string][]string
	tests := []struct {
		name    string
		method  string
		handler http.HandlerFunc
		status  int
		header  headers
		body    string
	}{
		{"nothing written", "GET", func(http.ResponseWriter, *http.Request) {}, 200, headers{}, ""},
		{"write alone", "GET", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "hello")
		}, 200, headers{"Content-Type": {plain}}, "hello"},
		{"type sniffed after WriteHeader", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(201)
			io.WriteString(w, "<!DOCTYPE html>")
		}, 201, headers{"Content-Type": {"text/html; charset=utf-8"}}, "<!DOCTYPE html>"},
		{"type given", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{}")
		}, 200, headers{"Content-Type": {"application/json"}}, "{}"},
		{"type suppressed", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "hello")
		}, 200, headers{}, "hello"},
		{"encoded body not sniffed", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "hello")
		}, 200, headers{"Content-Encoding": {"br"}}, "hello"},
		{"headers as of WriteHeader", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(429)
			w.Header().Set("X-Early", "2")
			w.Header().Set("X-Late", "1")
			w.WriteHeader(500)
		}, 429, headers{"X-Early": {"1"}}, ""},
		{"1xx ignored", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(202)
		}, 202, headers{}, ""},
		{"cookies kept apart", "GET", func(w http.ResponseWriter, r *http.Request) {
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
			http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
			w.WriteHeader(200)
		}, 200, headers{"Set-Cookie": {"a=1", "b=2"}}, ""},
		{"HEAD", "HEAD", func(w http.ResponseWriter, r *http.Request) {
			if n, err := io.WriteString(w, "hello"); n != 5 || err != nil {
				t.Errorf("Write = %d, %v", n, err)
			}
		}, 200, headers{"Content-Type": {plain}}, ""},
		{"204", "GET", noBody(t, 204), 204, headers{}, ""},
		{"304", "GET", noBody(t, 304), 304, headers{}, ""},
		{"empty write", "GET", func(w http.ResponseWriter, r *http.Request) {
			w.Write(nil)
			io.WriteString(w, "a")
		}, 200, headers{"Content-Type": {plain}}, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := get("/")
			e.HTTPMethod = tt.method
			resp := stream(t, t.Context(), tt.handler, e)
			check.Equal(t, resp.StatusCode, tt.status, "status")
			if diff := cmp.Diff(tt.header, resp.MultiValueHeaders); diff != "" {
				t.Error(diff)
			}
			check.Equal(t, readAll(t, resp), tt.body, "body")
		})
	}
}

func noBody(t *testing.T, status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
			t.Errorf("Write after %d: %v", status, err)
		}
	}
}

// Each chunk is read before the next may be written.
func TestChunksArriveAsWritten(t *testing.T) {
	t.Parallel()
	next := make(chan bool)
	resp := stream(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		for _, chunk := range []string{"one", "two"} {
			<-next
			io.WriteString(w, chunk)
		}
		<-next
	}, get("/"))
	buf := make([]byte, 16)
	for _, want := range []string{"one", "two"} {
		next <- true
		if n, err := resp.Body.Read(buf); string(buf[:n]) != want || err != nil {
			t.Fatalf("read %q, %v; want %q", buf[:n], err, want)
		}
	}
	next <- true
	if n, err := resp.Body.Read(buf); n != 0 || err != io.EOF {
		t.Fatalf("read %d bytes, %v; want the end", n, err)
	}
}

// In a bubble "still waiting" is a fact, not a guess: synctest.Wait returns
// when every goroutine is blocked, and a leaked one fails the test.

func TestEndWaitsForHandler(t *testing.T) {
	tests := map[string]func(*events.APIGatewayProxyStreamingResponse) error{
		"EOF": func(resp *events.APIGatewayProxyStreamingResponse) error {
			_, err := io.Copy(io.Discard, resp.Body)
			return err
		},
		"Close": func(resp *events.APIGatewayProxyStreamingResponse) error { return resp.Close() },
		"Close beside a Read": func(resp *events.APIGatewayProxyStreamingResponse) error {
			go io.Copy(io.Discard, resp.Body)
			time.Sleep(time.Nanosecond) // until that Read waits for more
			return resp.Close()
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settled := false
				settle := make(chan bool)
				resp := stream(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
					io.WriteString(w, "all there is")
					<-settle
					settled = true
				}, get("/"))
				ended := make(chan error)
				go func() { ended <- end(resp) }()
				synctest.Wait()
				select {
				case err := <-ended:
					t.Fatalf("the response ended (%v) before the handler had settled", err)
				default:
				}
				close(settle)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				check.That(t, settled, "the response ended before the handler had settled")
			})
		})
	}
}

// The write deadline fails Writes at once, but ends nothing.
func TestCutResponseWaitsForHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settle := make(chan bool)
		resp := stream(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Now())
			io.WriteString(w, "lost")
			<-settle
		}, get("/"))
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the response ended (%v) before the handler had settled", err)
		default:
		}
		close(settle)
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("end: %v", err)
		}
	})
}

func TestReaderGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var pending, later, settle error
		resp := stream(t, ctx, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "one")
			_, pending = io.WriteString(w, "two")
			<-r.Context().Done()
			_, later = io.WriteString(w, "three")
			settle = context.WithoutCancel(r.Context()).Err()
		}, get("/"))
		if _, err := io.ReadFull(resp.Body, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the second Write is under way
		if err := resp.Close(); err != nil {
			t.Error(err)
		}
		check.That(t, pending != nil && later != nil, "Writes to a reader that is gone: %v, %v", pending, later)
		check.That(t, settle == nil && ctx.Err() == nil, "more than the request was cancelled: %v, %v", settle, ctx.Err())
		if err := resp.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

// The wait for the handler ends with the invocation, never before.
func TestCloseBoundedByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		release := make(chan bool)
		start := time.Now()
		resp := stream(t, ctx, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "x")
			<-release
		}, get("/"))
		cancel() // no reason to give up a handler that may be settling
		err := resp.Close()
		check.That(t, err == context.DeadlineExceeded, "Close: %v", err)
		check.Equal(t, time.Since(start), time.Minute, "Close waited")
		close(release)
	})
}

func TestNoAnswerByDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		release := make(chan bool)
		wrote := make(chan error, 1)
		resp, err := Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, ok := r.Context().Deadline(); !ok || time.Until(d) != time.Minute {
				t.Errorf("the request's deadline is %v", d)
			}
			<-release
			_, err := io.WriteString(w, "too late")
			wrote <- err
		}))(ctx, get("/"))
		check.That(t, resp == nil && err == context.DeadlineExceeded, "got %v, %v", resp, err)
		close(release)
		check.That(t, <-wrote != nil, "a Write after the end succeeded")
	})
}

func TestWriteDeadline(t *testing.T) {
	at := func(d time.Duration) time.Time { return time.Now().Add(d) }
	tests := []struct {
		name     string
		deadline func(set func(time.Time))
		wait     time.Duration // how long the Write to a stalled reader blocks
	}{
		{"ahead", func(set func(time.Time)) { set(at(time.Second)) }, time.Second},
		{"past", func(set func(time.Time)) { set(at(-time.Second)) }, 0},
		{"moved", func(set func(time.Time)) { set(at(time.Second)); set(at(3 * time.Second)) }, 3 * time.Second},
		{"cleared and set", func(set func(time.Time)) { set(at(time.Second)); set(time.Time{}); set(at(5 * time.Second)) }, 5 * time.Second},
		{"set while the Write is pending", func(set func(time.Time)) {
			go func() { time.Sleep(time.Second); set(at(time.Second)) }()
		}, 2 * time.Second},
		{"cleared too late", func(set func(time.Time)) { set(at(-1)); set(time.Time{}) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handled := make(chan bool)
				resp := stream(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
					defer close(handled)
					rc := http.NewResponseController(w)
					rc.Flush()
					start := time.Now()
					tt.deadline(func(d time.Time) {
						if err := rc.SetWriteDeadline(d); err != nil {
							t.Error(err)
						}
					})
					for range 2 { // the pending Write and the next one
						if _, err := io.WriteString(w, "x"); !errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("Write: %v", err)
						}
						check.Equal(t, time.Since(start), tt.wait, "Write blocked")
					}
				}, get("/"))
				<-handled
				if _, err := io.ReadAll(resp.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a response cut short reads as complete: %v", err)
				}
			})
		})
	}
}

// A deadline that passes when all is written costs nothing.
func TestWriteDeadlineAfterLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := stream(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			io.WriteString(w, "all there is")
			time.Sleep(time.Minute)
		}, get("/"))
		check.Equal(t, readAll(t, resp), "all there is", "body")
	})
}

func TestFinishStopsTimer(t *testing.T) {
	t.Parallel()
	w := newResponseWriter(http.MethodGet)
	w.SetWriteDeadline(time.Now().Add(time.Hour))
	w.finish()
	check.That(t, !w.deadline.Stop(), "the deadline's timer outlived the response")
	check.That(t, w.SetWriteDeadline(time.Now().Add(time.Hour)) != nil, "a deadline was set on a finished response")
}

func TestRequestContextEndsWithHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ctx context.Context
		readAll(t, stream(t, t.Context(), func(w http.ResponseWriter, r *http.Request) { ctx = r.Context() }, get("/")))
		<-ctx.Done()
	})
}

// Not parallel: it replaces slog's default logger.
func TestPanic(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })

	tests := []struct {
		name    string
		handler http.HandlerFunc
		status  int
		body    string
		cut     bool
		logged  bool
	}{
		{"before headers", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5")
			w.Header().Set("Access-Control-Allow-Origin", "https://example.com")
			panic("secret text")
		}, 500, internalErrorBody, false, true},
		{"after WriteHeader", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(200)
			panic("secret text")
		}, 200, "", true, true},
		{"after a Write", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			panic("secret text")
		}, 200, "half", true, true},
		{"abort before headers", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500, internalErrorBody, false, false},
		{"abort after a Write", func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		}, 200, "half", true, false},
		{"invalid status", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(0) }, 500, internalErrorBody, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			log.Reset()
			e := get("/")
			e.RequestContext.RequestID = "gateway-id"
			resp := stream(t, t.Context(), tt.handler, e)
			body, err := io.ReadAll(resp.Body)
			resp.Close()
			check.That(t, resp.StatusCode == tt.status && string(body) == tt.body && (err != nil) == tt.cut, "got %d %q, %v", resp.StatusCode, body, err)
			check.That(t, err == nil || !strings.Contains(err.Error(), "secret"), "the error trailer would say %q", err)
			if tt.status == 500 {
				h := http.Header(resp.MultiValueHeaders)
				check.That(t, h.Get("Content-Type") == "application/json" && h.Get("Content-Length") == "" && h.Get("X-Request-Id") == "gateway-id", "headers %v", h)
				check.That(t, tt.name != "before headers" || h.Get("Access-Control-Allow-Origin") != "", "a browser could not read the answer")
			}
			logged := log.String()
			check.That(t, (logged != "") == tt.logged, "logged %q", logged)
			check.That(t, !tt.logged || strings.Contains(logged, "stream_test.go"), "no stack in %q", logged)
		})
	}
}

// The answers of the last net.
const (
	badRequestBody    = `{"error":{"message":"The request could not be read.","type":"invalid_request_error","param":null,"code":"invalid_json"}}`
	internalErrorBody = `{"error":{"message":"Internal error.","type":"server_error","param":null,"code":"internal_error"}}`
)

func TestUnreadableEvents(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]*events.APIGatewayProxyRequest{
		"null event": nil,
		"no method":  {Path: "/"},
		"bad base64": {Path: "/", HTTPMethod: "POST", Body: "%%%", IsBase64Encoded: true},
	} {
		resp := stream(t, t.Context(), func(http.ResponseWriter, *http.Request) {
			t.Errorf("%s reached the handler", name)
		}, e)
		got := readAll(t, resp)
		check.That(t, resp.StatusCode == 400 && got == badRequestBody, "%s: %d %s", name, resp.StatusCode, got)
	}
	for _, body := range []string{badRequestBody, internalErrorBody} {
		check.That(t, json.Valid([]byte(body)), "not JSON: %s", body)
	}
}

func FuzzStream(f *testing.F) {
	addEvents(f)
	old := slog.Default()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	f.Cleanup(func() { slog.SetDefault(old) })
	echo := Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Echo"] = r.Header["X-Echo"]
		if r.URL.Path == "/panic" {
			panic("asked for")
		}
		io.Copy(w, r.Body)
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e *events.APIGatewayProxyRequest
		if json.Unmarshal(data, &e) != nil {
			return
		}
		resp, err := echo(t.Context(), e)
		check.OK(t, err)
		if _, err := io.Copy(io.Discard, resp); err != nil { // prelude and body, as the runtime sends them
			t.Fatal(err)
		}
		check.OK(t, resp.Close())
	})
}
