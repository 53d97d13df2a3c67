package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/aws/aws-lambda-go/events"
)

// maxPrelude: the real gateway looks for the end of the prelude only so far.
const maxPrelude = 16 << 10

type prelude struct {
	StatusCode        int                 `json:"statusCode"`
	Headers           map[string]string   `json:"headers"`
	MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	Cookies           []string            `json:"cookies"`
}

// relay passes resp on to the client and reads it to its end, whether the
// client is still there or not.
func relay(ctx context.Context, w http.ResponseWriter, resp *events.APIGatewayProxyStreamingResponse) {
	in := bufio.NewReaderSize(resp, maxPrelude)
	p, err := readPrelude(in)
	switch {
	case err != nil && timedOut(ctx):
		answer(w, http.StatusGatewayTimeout, "Endpoint request timed out")
		return
	case err != nil:
		slog.Error("function answered no HTTP response", "error", err)
		answer(w, http.StatusBadGateway, "Internal server error")
		return
	}

	client := http.NewResponseController(w)
	if deadline, ok := ctx.Deadline(); ok {
		_ = client.SetWriteDeadline(deadline) // a stalled client does not outlast the invocation
	}
	writeHeader(w, p)
	gone := client.Flush() != nil
	chunk := make([]byte, 32<<10)
	for {
		n, err := in.Read(chunk)
		if n > 0 && !gone {
			_, writeErr := w.Write(chunk[:n])
			gone = writeErr != nil || client.Flush() != nil
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the client must not take half an answer for a whole one
		}
	}
}

// readPrelude reads a JSON object and the eight zero bytes that end it.
func readPrelude(in *bufio.Reader) (prelude, error) {
	p := prelude{StatusCode: http.StatusOK}
	text, err := in.ReadSlice(0)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(text[:len(text)-1], &p); err != nil {
		return p, err
	}
	for range 7 {
		if b, err := in.ReadByte(); err != nil || b != 0 {
			return p, errors.New("prelude without its delimiter")
		}
	}
	if p.StatusCode < 200 || p.StatusCode > 599 {
		return p, errors.New("status code out of range")
	}
	return p, nil
}

// writeHeader merges the three kinds of headers, as the real gateway does.
func writeHeader(w http.ResponseWriter, p prelude) {
	h := w.Header()
	for k, vs := range p.MultiValueHeaders {
		for _, v := range vs {
			h.Add(k, v)
		}
	}
	for k, v := range p.Headers {
		if !slices.Contains(h.Values(k), v) {
			h.Add(k, v)
		}
	}
	for _, c := range p.Cookies {
		h.Add("Set-Cookie", c)
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	w.WriteHeader(p.StatusCode)
}
