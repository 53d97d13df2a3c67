// Package server serves the functions' handlers as a plain HTTP server, as a container, a
// virtual machine or a laptop would run them: what API Gateway and Lambda do for a
// function, and net/http alone does not.
//
// Guarantees:
//   - RemoteAddr is the caller's address: the peer's, or what a trusted proxy says of it;
//     never what a caller says of itself.
//   - Nobody holds a connection by sending slowly: headers, bodies and pauses between
//     requests have their times, and the number of connections is bounded.
//   - When it stops, it is no longer ready first; then it takes no new connection, and calls
//     in flight have their time. Those that have not ended by then are ended, with the cause
//     that Options give, and have the time to settle. Serve returns after the last of them.
//
// Trusted: the peer's address, the proxies in Options, and the handlers.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// The bounds of a connection.
const (
	headerTime     = 10 * time.Second  // to send the headers of a request
	bodyTime       = 30 * time.Second  // to send its body, from the end of its headers
	idleTime       = 120 * time.Second // between requests; longer than load balancers keep theirs
	maxHeaders     = 32 << 10          // bytes; net/http allows 4 KiB more
	maxConnections = 10_000
)

// Options of a server. Handler and Ready are required.
type Options struct {
	Handler http.Handler
	Ready   *Readiness
	TLS     *tls.Config // nil: plain HTTP, which may be HTTP/2 all the same
	Proxies Proxies
	// Public is the address by which callers know the server: scheme and host. Nil: what
	// each request says, and the scheme that a trusted proxy says.
	Public *url.URL
	// AnswerTime bounds a request from the end of its headers, its body's time apart.
	AnswerTime time.Duration
	// Notice is how long new calls are still taken when the server is told to stop, while it
	// says that it is not ready; Drain is how long the calls in flight then have, and
	// SettleTime how long after that those that were ended need for their settle.
	Notice, Drain, SettleTime time.Duration
	// Stopped is the cause with which calls are ended.
	Stopped error
	Log     *slog.Logger
}

// Serve serves until ctx ends and all that was under way is over. An error is one of
// serving, or says that calls had to be left.
func Serve(ctx context.Context, listener net.Listener, o Options) error {
	calls, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	s := &http.Server{
		Handler:           o.routes(),
		ReadHeaderTimeout: headerTime,
		// The handler of a call sets what it needs itself. This is also what takes back such a
		// deadline when the next request comes on the connection.
		WriteTimeout:   headerTime + bodyTime + o.AnswerTime + o.SettleTime,
		IdleTimeout:    idleTime,
		MaxHeaderBytes: maxHeaders,
		TLSConfig:      o.TLS,
		Protocols:      new(http.Protocols),
		BaseContext:    func(net.Listener) context.Context { return calls },
		ErrorLog:       log.New(complaints{o.Log}, "", 0),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	listener = netutil.LimitListener(listener, maxConnections)
	served := make(chan error, 1)
	go func() {
		if o.TLS != nil {
			served <- s.ServeTLS(listener, "", "")
		} else {
			served <- s.Serve(listener)
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	return o.stop(s, end)
}

// stop ends a server as the package says.
func (o Options) stop(s *http.Server, end context.CancelCauseFunc) error {
	o.Ready.Leave()
	pause(o.Notice)
	draining, cancel := context.WithTimeout(context.Background(), o.Drain)
	defer cancel()
	err := s.Shutdown(draining)
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	o.Log.Warn("calls in flight are ended: their time is up", "drain", o.Drain.String())
	end(o.Stopped)
	settling, cancel := context.WithTimeout(context.Background(), o.SettleTime)
	defer cancel()
	if err = s.Shutdown(settling); err != nil {
		_ = s.Close()
		return errors.New("calls were left that had not settled: their holds expire by themselves")
	}
	return nil
}

func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}

// routes are the routes of health, then the handler's.
func (o Options) routes() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if o.Ready.serve(w, r) {
			return
		}
		addr, proxied, err := o.Proxies.source(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.RemoteAddr = net.JoinHostPort(addr.String(), "0")
		o.address(r, proxied)
		w.Header().Set("X-Accel-Buffering", "no") // nginx would hold streams back
		rc := http.NewResponseController(w)
		if r.Body != http.NoBody {
			// Not the server's ReadTimeout: that would also end the wait for an answer.
			_ = rc.SetReadDeadline(time.Now().Add(bodyTime))
			r.Body = &body{r.Body, rc}
		}
		ctx, cancel := context.WithTimeout(r.Context(), bodyTime+o.AnswerTime)
		defer cancel()
		o.Handler.ServeHTTP(w, r.WithContext(ctx))
	})
}

// address sets by what address the caller has come, where the handler looks for it.
func (o Options) address(r *http.Request, proxied bool) {
	scheme := "http"
	if said := r.Header.Get("X-Forwarded-Proto"); r.TLS != nil || proxied && said == "https" {
		scheme = "https"
	}
	if o.Public != nil {
		scheme, r.Host = o.Public.Scheme, o.Public.Host
	}
	r.Header.Set("X-Forwarded-Proto", scheme)
}

// complaints are net/http's own lines. Most tell of a connection that somebody has broken,
// with its address: anybody could fill the log with them. That no connection can be taken
// is ours.
type complaints struct{ to *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	if strings.HasPrefix(string(line), "http: Accept error") {
		c.to.Error("connections cannot be taken", "error", strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

// body is the body of a request, whose deadline ends with it: from then on what is read
// from the connection only tells whether the caller is still there.
type body struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}
