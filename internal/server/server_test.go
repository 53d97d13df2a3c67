package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var errStopped = errors.New("stopped")

// running is a server of a test.
type running struct {
	url  string
	http *http.Client
	stop context.CancelFunc // as SIGTERM does
	done chan error         // what Serve gave
}

func start(t *testing.T, o Options) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	if o.Ready == nil {
		o.Ready = &Readiness{Check: func(context.Context) error { return nil }}
	}
	o.Log, o.Stopped = slog.New(slog.DiscardHandler), errStopped
	if o.AnswerTime == 0 {
		o.AnswerTime = time.Minute
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{"http://" + listener.Addr().String(), &http.Client{Transport: &http.Transport{}}, cancel, make(chan error, 1)}
	go func() { r.done <- Serve(ctx, listener, o) }()
	t.Cleanup(cancel)
	return r
}

func (r *running) get(t *testing.T, path string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+path, nil)
	check.OK(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.http.Do(req)
	check.OK(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	check.OK(t, err)
	return res.StatusCode, string(text)
}

// What the handler is told of a request is what it looks at in a function, too.
func TestRequests(t *testing.T) {
	t.Parallel()
	said := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s://%s%s", r.RemoteAddr, r.Header.Get("X-Forwarded-Proto"), r.Host, r.URL.Path)
	})
	proxies, err := ParseProxies([]string{"127.0.0.1"})
	check.OK(t, err)
	public := &url.URL{Scheme: "https", Host: "ai.example.com"}
	for name, tt := range map[string]struct {
		o    Options
		want string
	}{
		"plain":   {Options{}, "127.0.0.1:0 http://HOST/v1//models/"},
		"proxied": {Options{Proxies: proxies}, "203.0.113.9:0 https://HOST/v1//models/"},
		"public":  {Options{Public: public}, "127.0.0.1:0 https://ai.example.com/v1//models/"},
	} {
		tt.o.Handler = said
		r := start(t, tt.o)
		_, body := r.get(t, "/v1//models/", "X-Forwarded-For", "198.51.100.1, 203.0.113.9", "X-Forwarded-Proto", "https")
		check.Equal(t, body, strings.Replace(tt.want, "HOST", strings.TrimPrefix(r.url, "http://"), 1), "%s", name)
	}
}

// HTTP/2 is served with TLS and without.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	proto := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.Header.Get("X-Forwarded-Proto"))
	})
	with := httptest.NewTLSServer(nil) // for its certificate
	defer with.Close()
	transport := with.Client().Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = true
	secure := start(t, Options{Handler: proto, TLS: &tls.Config{Certificates: with.TLS.Certificates, MinVersion: tls.VersionTLS12}})
	plain := start(t, Options{Handler: proto})
	h2c := &http.Transport{Protocols: new(http.Protocols)}
	h2c.Protocols.SetUnencryptedHTTP2(true)
	for url, client := range map[string]*http.Transport{strings.Replace(secure.url, "http:", "https:", 1): transport, plain.url: h2c} {
		res, err := (&http.Client{Transport: client}).Get(url)
		check.OK(t, err)
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		check.OK(t, err)
		scheme, _, _ := strings.Cut(url, ":")
		check.Equal(t, string(body), "HTTP/2.0 "+scheme, "%s", url)
		client.CloseIdleConnections()
	}
}

// Health counts nothing, and looks at the store now and then however often it is asked.
func TestHealth(t *testing.T) {
	t.Parallel()
	var looks atomic.Int64
	failing := atomic.Bool{}
	ready := &Readiness{Check: func(context.Context) error {
		looks.Add(1)
		if failing.Load() {
			return errors.New("down")
		}
		return nil
	}}
	r := start(t, Options{Ready: ready, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was asked") })})
	want := func(path string, status int) {
		t.Helper()
		got, body := r.get(t, path)
		check.That(t, got == status, "%s: %d %s, want %d", path, got, body, status)
	}
	for range 20 {
		want("/readyz", 200)
	}
	check.Equal(t, looks.Load(), 1, "looks at the store for 20 requests")
	failing.Store(true)
	ready.mu.Lock()
	ready.checked = ready.checked.Add(-knownFor)
	ready.mu.Unlock()
	want("/readyz", 503)
	want("/healthz", 200)
	ready.Leave()
	want("/readyz", 503)
	want("/healthz", 200)
}

// held is a handler whose calls say that they are here and wait to be let go, or for the
// end of their context, and tell the cause of that.
type held struct {
	here, letGo chan struct{}
	settle      time.Duration
	cause       chan error
}

func newHeld(settle time.Duration) *held {
	return &held{make(chan struct{}), make(chan struct{}), settle, make(chan error, 10)}
}

func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.here <- struct{}{}
	select {
	case <-h.letGo:
		fmt.Fprint(w, "whole")
	case <-r.Context().Done():
		time.Sleep(h.settle)
		h.cause <- context.Cause(r.Context())
		fmt.Fprint(w, "ended")
	}
}

// ask asks without waiting for the answer.
func (r *running) ask(t *testing.T) <-chan string {
	answer := make(chan string, 1)
	go func() { _, body := r.get(t, "/"); answer <- body }()
	return answer
}

// callsEnd stops a server that has a call, and lets the call end.
func callsEnd(t *testing.T, http2 bool) {
	h := newHeld(0)
	ready := &Readiness{Check: func(context.Context) error { return nil }}
	r := start(t, Options{Handler: h, Ready: ready, Drain: time.Minute, SettleTime: time.Minute})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	r.http.Transport = &http.Transport{Protocols: protocols}
	answer := r.ask(t)
	<-h.here
	r.stop()
	for !ready.leaving.Load() {
		time.Sleep(time.Millisecond)
	}
	for { // until it takes no new connections
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			break
		}
		c.Close()
	}
	close(h.letGo)
	check.Equal(t, <-answer, "whole", "the call in flight")
	check.OK(t, <-r.done)
}

func TestStop(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("calls end in their time, HTTP/2 %t", http2), func(t *testing.T) {
			t.Parallel()
			callsEnd(t, http2)
		})
	}
	t.Run("what has not ended is ended, and settles", func(t *testing.T) {
		t.Parallel()
		h := newHeld(50 * time.Millisecond)
		r := start(t, Options{Handler: h, Drain: 10 * time.Millisecond, SettleTime: time.Minute})
		answer := r.ask(t)
		<-h.here
		r.stop()
		check.Equal(t, <-answer, "ended", "the call in flight")
		check.That(t, errors.Is(<-h.cause, errStopped), "the call ended for another cause")
		check.OK(t, <-r.done)
	})
	t.Run("what does not end is left, and told of", func(t *testing.T) {
		t.Parallel()
		h := newHeld(0)
		stuck := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { h.here <- struct{}{}; <-h.letGo })
		r := start(t, Options{Handler: stuck, Drain: 10 * time.Millisecond, SettleTime: 10 * time.Millisecond})
		go func() { _, _ = http.Get(r.url) }()
		<-h.here
		r.stop()
		if err := <-r.done; err == nil || !strings.Contains(err.Error(), "left") {
			t.Error(err)
		}
		close(h.letGo)
	})
	t.Run("new calls are taken for a while", func(t *testing.T) {
		t.Parallel()
		ready := &Readiness{Check: func(context.Context) error { return nil }}
		r := start(t, Options{Ready: ready, Handler: http.NotFoundHandler(), Notice: 2 * time.Second})
		r.get(t, "/healthz")
		r.stop()
		for !ready.leaving.Load() {
			time.Sleep(time.Millisecond)
		}
		status, _ := r.get(t, "/readyz")
		check.Equal(t, status, http.StatusServiceUnavailable, "ready while it stops")
		status, _ = r.get(t, "/v1/models")
		check.Equal(t, status, http.StatusNotFound, "a new call")
		check.OK(t, <-r.done)
	})
}

// A caller who leaves ends the request, and that is another cause than the server's. A
// body that was read leaves no deadline behind which would end a long answer.
func TestCallerLeaves(t *testing.T) {
	t.Parallel()
	h := newHeld(0)
	r := start(t, Options{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h.ServeHTTP(w, r)
	})})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	check.OK(t, err)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	<-h.here
	c.Close()
	if cause := <-h.cause; errors.Is(cause, errStopped) || !errors.Is(cause, context.Canceled) {
		t.Errorf("the cause is %v", cause)
	}
}

// deadlines notes the deadlines that are set on a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = append(d.read, t); return nil }

// A body has a time of its own, and only a body: a deadline of the connection would end
// the wait for the answer, too.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	o := Options{Ready: &Readiness{}, AnswerTime: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })}
	d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	o.routes().ServeHTTP(d, httptest.NewRequest("POST", "/", strings.NewReader("{}")))
	if len(d.read) < 2 || time.Until(d.read[0]) > bodyTime || time.Until(d.read[0]) < bodyTime-10*time.Second || !d.read[len(d.read)-1].IsZero() {
		t.Errorf("deadlines %v", d.read)
	}
	d = &deadlines{ResponseRecorder: httptest.NewRecorder()}
	o.routes().ServeHTTP(d, httptest.NewRequest("GET", "/", nil))
	check.Equal(t, len(d.read), 0, "deadlines without a body")
}

// Headers that are too long are refused, and the connection closed.
func TestLongHeaders(t *testing.T) {
	t.Parallel()
	r := start(t, Options{Handler: http.NotFoundHandler()})
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	check.OK(t, err)
	defer c.Close()
	go fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", 2*maxHeaders))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	check.OK(t, err)
	res.Body.Close()
	check.Equal(t, res.StatusCode, http.StatusRequestHeaderFieldsTooLarge, "status")
}

// The log tells that no connections can be taken, but not who has broken one.
func TestComplaints(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	own := log.New(complaints{slog.New(slog.NewTextHandler(&out, nil))}, "", 0)
	own.Printf("http: TLS handshake error from %s: EOF", "203.0.113.9:1000")
	check.Equal(t, out.Len(), 0, "bytes in the log")
	own.Printf("http: Accept error: %v; retrying in %v", "too many open files", time.Second)
	check.That(t, strings.Contains(out.String(), "too many open files") && strings.Contains(out.String(), "ERROR"), "%s", &out)
}
