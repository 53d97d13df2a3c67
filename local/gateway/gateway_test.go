package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// serve starts a server with h behind a gateway, as `tokenfuse dev` has it.
func serve(t *testing.T, opts Options, h http.HandlerFunc) (*Gateway, string) {
	t.Helper()
	g := New(opts, lambdahttp.Stream(h))
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	return g, server.URL
}

func await[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
	}
	return v
}

func closeInTime(t *testing.T, g *Gateway) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := g.Close(ctx)
	check.That(t, err == nil, "Close: %v", err)
}

// The handler sends the next event only when the client has the last one.
func TestEventsArriveOneByOne(t *testing.T) {
	t.Parallel()
	received := make(chan bool)
	_, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			<-received
		}
		io.WriteString(w, "data: [DONE]\n\n")
	})
	client := http.Client{Timeout: 20 * time.Second} // an event that is held back fails the test
	resp, err := client.Get(url + "/v1/stream")
	check.OK(t, err)
	defer resp.Body.Close()
	check.Equal(t, resp.Header.Get("Content-Type"), "text/event-stream", "Content-Type")
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if lines.Scan(); lines.Text() != fmt.Sprintf("data: %d", i) {
			t.Fatalf("event %d is %q, %v", i, lines.Text(), lines.Err())
		}
		lines.Scan()
		received <- true
	}
	if lines.Scan(); lines.Text() != "data: [DONE]" {
		t.Errorf("last event %q", lines.Text())
	}
	if lines.Scan(); lines.Scan() || lines.Err() != nil {
		t.Errorf("no clean end: %q, %v", lines.Text(), lines.Err())
	}
}

func TestHeadersArriveBeforeBody(t *testing.T) {
	t.Parallel()
	received := make(chan bool)
	_, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
		http.SetCookie(w, &http.Cookie{Name: "b", Value: "2"})
		w.WriteHeader(http.StatusTeapot)
		http.NewResponseController(w).Flush()
		<-received
	})
	resp, err := http.Get(url)
	check.OK(t, err)
	close(received)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTeapot || len(resp.Cookies()) != 2 {
		t.Errorf("%s, cookies %v", resp.Status, resp.Cookies())
	}
	if body, err := io.ReadAll(resp.Body); len(body) != 0 || err != nil {
		t.Errorf("body %q, %v", body, err)
	}
}

func TestClientLeaves(t *testing.T) {
	t.Parallel()
	goOn, settled := make(chan bool), make(chan error, 1)
	g := New(Options{}, lambdahttp.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: 0\n\n")
		<-goOn
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				settled <- err
				return
			}
		}
		settled <- r.Context().Err()
	})))
	gone := make(chan (<-chan struct{}), 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gone <- r.Context().Done()
		g.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	resp, err := http.Get(server.URL)
	check.OK(t, err)
	if _, err := io.ReadFull(resp.Body, make([]byte, 9)); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	await(t, "the server to see its client gone", await(t, "the request", gone))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Close(ctx); err != context.Canceled {
		t.Errorf("Close beside an open invocation: %v", err)
	}
	close(goOn)
	if err := await(t, "the handler", settled); err != nil {
		t.Errorf("the handler noticed that its client left: %v", err)
	}
	closeInTime(t, g)
}

// stall sends a request and never reads the answer.
func stall(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	check.OK(t, err)
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return conn
}

func TestStalledClientMeetsWriteDeadline(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	g, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				failed <- err
				return
			}
		}
	})
	conn := stall(t, url)
	if err := await(t, "the write deadline", failed); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Write: %v", err)
	}
	conn.Close()
	closeInTime(t, g)
}

func TestStalledClientDoesNotOutlastInvocation(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 1)
	g, url := serve(t, Options{Timeout: 200 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				failed <- err
				return
			}
		}
	})
	stall(t, url)
	await(t, "the deadline", failed)
	closeInTime(t, g)
}

func TestPanics(t *testing.T) {
	t.Parallel()
	_, url := serve(t, Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			io.WriteString(w, "half")
		}
		panic(http.ErrAbortHandler)
	})
	resp, err := http.Get(url + "/early")
	check.OK(t, err)
	defer resp.Body.Close()
	var envelope struct {
		Error struct{ Code string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&envelope); err != nil || resp.StatusCode != 500 || envelope.Error.Code != "internal_error" {
		t.Errorf("before headers: %s, %+v, %v", resp.Status, envelope, err)
	}

	resp, err = http.Get(url + "/late")
	check.OK(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); string(body) != "half" || err != io.ErrUnexpectedEOF {
		t.Errorf("after headers: %q, %v; want a cut answer", body, err)
	}
}

// The deadlines run in a bubble, where a minute takes no time.

func TestTimeoutBeforeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		g := New(Options{Timeout: time.Minute}, lambdahttp.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, ok := r.Context().Deadline(); !ok || time.Until(d) != time.Minute {
				t.Errorf("deadline %v", d)
			}
			<-release
		})))
		start := time.Now()
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != 504 || w.Body.String() != `{"message":"Endpoint request timed out"}`+"\n" || time.Since(start) != time.Minute {
			t.Errorf("%d %s after %v", w.Code, w.Body, time.Since(start))
		}
		closeInTime(t, g)
		close(release)
	})
}

func TestTimeoutCutsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		g := New(Options{Timeout: time.Minute}, lambdahttp.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half")
			<-release // deaf to its deadline
		})))
		w := httptest.NewRecorder()
		func() {
			defer func() {
				v := recover()
				check.That(t, v == http.ErrAbortHandler, "the answer was not cut: %v", v)
			}()
			g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		}()
		check.That(t, w.Code == 200 && w.Body.String() == "half", "%d %s", w.Code, w.Body)
		closeInTime(t, g)
		close(release)
	})
}

// A function that returns a response too late still has it closed.
func TestLateResponseIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &closer{Reader: strings.NewReader("")}
		g := New(Options{Timeout: time.Minute}, func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
			time.Sleep(2 * time.Minute)
			return &events.APIGatewayProxyStreamingResponse{Body: late}, nil
		})
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		check.Equal(t, w.Code, 504, "status")
		if err := g.Close(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		check.That(t, late.closed, "the late response was left open")
	})
}

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestCloseWaitsAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan bool)
		g := New(Options{}, lambdahttp.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-release })))
		served := make(chan int, 1)
		go func() {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			served <- w.Code
		}()
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- g.Close(context.Background()) }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Fatalf("Close did not wait: %v", err)
		default:
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		check.Equal(t, w.Code, 503, "a request after Close")
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		check.Equal(t, <-served, 200, "the open request")
	})
}

func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	g := New(Options{}, lambdahttp.Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})))
	for size, want := range map[int]int{maxPayload: 200, maxPayload + 1: 413} {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", size))))
		check.Equal(t, w.Code, want, "%d bytes", size)
		check.That(t, want != 413 || w.Body.String() == `{"message":"Request Too Long"}`+"\n", "body %s", w.Body)
	}
}

func TestBrokenFunctions(t *testing.T) {
	t.Parallel()
	type response = events.APIGatewayProxyStreamingResponse
	for name, f := range map[string]func() (*response, error){
		"error":   func() (*response, error) { return nil, errors.New("no") },
		"nothing": func() (*response, error) { return nil, nil },
		"panic":   func() (*response, error) { panic("no") },
		"status":  func() (*response, error) { return &response{StatusCode: 99}, nil },
		"prelude too long": func() (*response, error) {
			return &response{Headers: map[string]string{"X": strings.Repeat("x", maxPrelude)}}, nil
		},
	} {
		g := New(Options{}, func(context.Context, *events.APIGatewayProxyRequest) (*response, error) { return f() })
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		check.That(t, w.Code == 502 && w.Body.String() == `{"message":"Internal server error"}`+"\n", "%s: %d %s", name, w.Code, w.Body)
	}
}

func TestInstancesTakeTurns(t *testing.T) {
	t.Parallel()
	var got []string
	instance := func(name string) Function {
		return func(ctx context.Context, _ *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
			if lc, ok := lambdacontext.FromContext(ctx); !ok || lc.AwsRequestID == "" {
				t.Error("no Lambda context")
			}
			got = append(got, name)
			return &events.APIGatewayProxyStreamingResponse{StatusCode: 204}, nil
		}
	}
	g := New(Options{}, instance("a"), instance("b"), instance("c"))
	for range 5 {
		g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	check.Equal(t, strings.Join(got, ""), "abcab", "served by")
}

func TestResponseHeadersMerged(t *testing.T) {
	t.Parallel()
	g := New(Options{}, func(context.Context, *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
		return &events.APIGatewayProxyStreamingResponse{
			Headers:           map[string]string{"X-A": "1", "X-B": "1"},
			MultiValueHeaders: map[string][]string{"X-A": {"1", "2"}},
			Cookies:           []string{"a=1", "b=2"},
			Body:              strings.NewReader("{}"),
		}, nil
	})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	want := http.Header{"X-A": {"1", "2"}, "X-B": {"1"}, "Set-Cookie": {"a=1", "b=2"}, "Content-Type": {"application/json"}}
	if fmt.Sprint(w.Header()) != fmt.Sprint(want) || w.Code != 200 || w.Body.String() != "{}" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
