package lambdahttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// responseWriter behaves as net/http's: headers are fixed by WriteHeader and
// sent by the first Write or Flush. Each Write waits for the reader. All but
// SetWriteDeadline is for one goroutine at a time.
type responseWriter struct {
	isHead    bool
	header    http.Header
	status    int         // 0 before WriteHeader
	sent      http.Header // as of WriteHeader
	commit    sync.Once
	committed chan struct{} // closed once status and sent are final
	failed    error         // why the response is incomplete

	reader *io.PipeReader
	writer *io.PipeWriter

	mu       sync.Mutex
	finished bool
	deadline *time.Timer
}

func newResponseWriter(method string) *responseWriter {
	w := &responseWriter{
		isHead:    method == http.MethodHead,
		header:    http.Header{},
		committed: make(chan struct{}),
	}
	w.reader, w.writer = io.Pipe()
	return w
}

func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader ignores 1xx, which the gateway cannot send.
func (w *responseWriter) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	}
	if status < 200 || w.status != 0 {
		return
	}
	w.status = status
	w.sent = w.header.Clone()
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if len(p) == 0 {
		return 0, nil
	}
	w.send(p)
	if w.isHead {
		return len(p), nil
	}
	n, err := w.writer.Write(p)
	if err != nil {
		w.failed = fmt.Errorf("response cut short: %w", err)
	}
	return n, err
}

// Flush sends the headers. The body needs none: nothing of it is buffered.
func (w *responseWriter) Flush() {
	w.WriteHeader(http.StatusOK)
	w.send(nil)
}

// SetWriteDeadline is called by http.ResponseController. As in net/http, a
// deadline that has passed cannot be extended.
func (w *responseWriter) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return http.ErrBodyNotAllowed
	}
	if w.deadline != nil {
		w.deadline.Stop()
		w.deadline = nil
	}
	expire := func() { w.reader.CloseWithError(os.ErrDeadlineExceeded) }
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		expire()
	default:
		w.deadline = time.AfterFunc(left, expire)
	}
	return nil
}

// send makes the headers final; start is the beginning of the body, if known.
func (w *responseWriter) send(start []byte) {
	w.commit.Do(func() {
		_, typed := w.sent["Content-Type"] // a nil value asks for none
		if !typed && len(start) > 0 && w.sent.Get("Content-Encoding") == "" {
			w.sent.Set("Content-Type", http.DetectContentType(start))
		}
		for k, vs := range w.sent {
			if len(vs) == 0 {
				delete(w.sent, k)
			}
		}
		close(w.committed)
	})
}

// finish ends the response after the handler has returned. It returns io.EOF
// if the response is complete.
func (w *responseWriter) finish() error {
	w.Flush()
	w.mu.Lock()
	w.finished = true
	if w.deadline != nil {
		w.deadline.Stop()
	}
	w.mu.Unlock()
	w.writer.Close()
	if w.failed != nil {
		return w.failed
	}
	return io.EOF
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// body is the reader's side of a response. Read and Close may run at the same
// time: the Lambda runtime closes a body that its HTTP transport still reads.
type body struct {
	pipe   *io.PipeReader
	cancel context.CancelFunc // of the request's context
	ended  context.Context    // done when the handler has returned, or at the deadline
}

// Read returns an error, io.EOF included, only when the handler has returned
// or the deadline has passed.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.pipe.Read(p)
	if err == nil {
		return n, nil
	}
	<-b.ended.Done()
	return n, context.Cause(b.ended)
}

// Close makes the handler see its client gone and waits until it has returned.
// The runtime ends the process soon after a broken response; Close, which it
// calls first, is what lets the handler settle.
func (b *body) Close() error {
	b.cancel()
	b.pipe.Close()
	<-b.ended.Done()
	if err := b.ended.Err(); err == context.DeadlineExceeded {
		return err
	}
	return nil
}
