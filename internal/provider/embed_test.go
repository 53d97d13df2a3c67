package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// embedder is a client of a server that answers as the handler does.
func embedder(t *testing.T, serve http.HandlerFunc) Provider {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	p, err := NewOpenAI(OpenAIConfig{BaseURL: server.URL + "/v1?version=1", APIKey: "key", Headers: map[string]string{"X-Title": "app"}})
	check.OK(t, err)
	return WithBreaker(p)
}

func twoTexts() EmbedRequest {
	return EmbedRequest{EmbeddingRequest: openai.EmbeddingRequest{Model: "m", Input: []string{"a", "<b>"}, EncodingFormat: openai.Float}}
}

// The request is what was asked, at the place of embeddings, with the owner's settings.
func TestEmbedRequest(t *testing.T) {
	t.Parallel()
	var path, body, key string
	p := embedder(t, func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		path, body, key = r.URL.String(), string(raw), r.Header.Get("Authorization")+" "+r.Header.Get("X-Title")
		w.Header().Set("X-Request-Id", "req-1")
		_, _ = io.WriteString(w, `{"data":[{"embedding":[1,2]},{"embedding":[3,4]}],"usage":{"prompt_tokens":2}}`)
	})
	req, id := twoTexts(), ""
	req.Dimensions, req.Extra, req.Answered = 2, []byte(`{"input_type":"query"}`), func(s string) { id = s }
	got, err := Embed(t.Context(), p, req)
	check.OK(t, err)
	check.Diff(t, cmp.Diff(Embedded{[][]float32{{1, 2}, {3, 4}}, &price.Usage{Input: 2}}, got), "answer")
	check.Equal(t, path, "/v1/embeddings?version=1", "path")
	check.Equal(t, body, `{"model":"m","input":["a","<b>"],"encoding_format":"float","dimensions":2,"input_type":"query"}`, "body")
	check.Equal(t, key+" "+id, "Bearer key app req-1", "key, header, id")
}

// What servers answer, and what it comes to.
func TestEmbedAnswers(t *testing.T) {
	t.Parallel()
	const vectors = `{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[3,4]}]`
	for name, tt := range map[string]struct {
		status  int
		body    string
		vectors bool    // [[1 2] [3 4]]
		input   int64   // tokens as reported; 0: no report
		failure Failure // "": none
	}{
		"as OpenAI":                  {200, vectors + `,"object":"list","model":"x","usage":{"prompt_tokens":5,"total_tokens":5}}`, true, 5, ""},
		"in base64":                  {200, `{"data":[{"index":0,"embedding":"AACAPwAAAEA="},{"index":1,"embedding":"AABAQAAAgEA="}],"usage":{"prompt_tokens":5}}`, true, 5, ""},
		"one in base64":              {200, `{"data":[{"embedding":"AACAPwAAAEA="},{"embedding":[3.0,4e0]}]}`, true, 0, ""},
		"in another order":           {200, `{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2]}]}`, true, 0, ""},
		"all of index 0":             {200, `{"data":[{"index":0,"embedding":[1,2]},{"index":0,"embedding":[3,4]}]}`, true, 0, ""},
		"total tokens alone":         {200, vectors + `,"usage":{"total_tokens":6}}`, true, 6, ""},
		"tokens of output, too":      {200, vectors + `,"usage":{"prompt_tokens":5,"completion_tokens":0,"total_tokens":9}}`, true, 5, ""},
		"input tokens":               {200, vectors + `,"usage":{"input_tokens":4}}`, true, 4, ""},
		"no tokens":                  {200, vectors + `,"usage":{"prompt_tokens":0,"total_tokens":0}}`, true, 0, ""},
		"fewer than none":            {200, vectors + `,"usage":{"prompt_tokens":-5}}`, true, 0, ""},
		"usage that is none":         {200, vectors + `,"usage":null}`, true, 0, ""},
		"an error that is none":      {200, vectors + `,"error":{}}`, true, 0, ""},
		"an error":                   {200, `{"error":{"message":"no","code":"overloaded"},"usage":{"prompt_tokens":5}}`, false, 5, Broken},
		"one too few":                {200, `{"data":[{"index":0,"embedding":[1,2]}],"usage":{"prompt_tokens":5}}`, false, 5, Broken},
		"one too many":               {200, `{"data":[{"embedding":[1]},{"embedding":[1]},{"embedding":[1]}]}`, false, 0, Broken},
		"one twice":                  {200, `{"data":[{"index":1,"embedding":[1,2]},{"index":1,"embedding":[3,4]}]}`, false, 0, Broken},
		"an index beyond":            {200, `{"data":[{"index":2,"embedding":[1,2]},{"index":0,"embedding":[3,4]}]}`, false, 0, Broken},
		"an index below":             {200, `{"data":[{"index":-1,"embedding":[1,2]},{"index":0,"embedding":[3,4]}]}`, false, 0, Broken},
		"of two lengths":             {200, `{"data":[{"embedding":[1,2]},{"embedding":[3]}]}`, false, 0, Broken},
		"of no length":               {200, `{"data":[{"embedding":[]},{"embedding":[]}]}`, false, 0, Broken},
		"without a vector":           {200, `{"data":[{"index":0},{"index":1}]}`, false, 0, Broken},
		"with a number that is none": {200, `{"data":[{"embedding":[1,null]},{"embedding":[3,4]}]}`, false, 0, Broken},
		"an index of another type":   {200, `{"usage":{"prompt_tokens":5},"data":[{"index":"a","embedding":[1,2]},{"embedding":[3,4]}]}`, true, 5, ""},
		"cut":                        {200, vectors, false, 0, Broken},
		"empty":                      {200, ``, false, 0, Broken},
		"no JSON":                    {200, `<html>`, false, 0, Broken},
		"a list":                     {200, `[]`, false, 0, Broken},
		"refused":                    {400, `{"error":{"code":"context_length_exceeded"}}`, false, 0, Refused},
		"failed, and not billed":     {500, `oops`, false, 0, Refused},
		"a redirect":                 {302, ``, false, 0, Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := embedder(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			got, err := Embed(t.Context(), p, twoTexts())
			var e *Error
			check.That(t, (err != nil) == errors.As(err, &e) && (e == nil && tt.failure == "" || e != nil && e.Failure == tt.failure), "%v, want %q", err, tt.failure)
			var want Embedded
			if tt.vectors {
				want.Vectors = [][]float32{{1, 2}, {3, 4}}
			}
			if tt.input > 0 {
				want.Usage = &price.Usage{Input: tt.input}
			}
			check.Diff(t, cmp.Diff(want, got), "answer")
			if tt.status == 400 {
				check.Equal(t, e.Fault, TooLong, "fault")
			}
		})
	}
}

// An answer ends at its bounds: of size and of time.
func TestEmbedBounds(t *testing.T) {
	t.Parallel()
	large := embedder(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"embedding":[`)
		for range maxJSON >> 16 {
			if _, err := io.WriteString(w, strings.Repeat("0,", 1<<15)); err != nil {
				return
			}
		}
	})
	_, err := Embed(t.Context(), large, twoTexts())
	check.That(t, errors.Is(err, errTooLarge), "%v", err)

	begun := make(chan struct{})
	slow := embedder(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[`)
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = Embed(ctx, slow, twoTexts())
	<-begun
	var e *Error
	check.That(t, errors.As(err, &e) && e.Failure == Timeout && e.Billed(), "%v", err)

	// A whole answer is one, though the server keeps the connection open.
	open := embedder(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"embedding":[1]},{"embedding":[2]}]}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	got, err := Embed(t.Context(), open, twoTexts())
	check.That(t, err == nil && len(got.Vectors) == 2, "%v %v", got, err)
}

// Who makes no vectors is not asked, and a provider that is down is not either.
func TestEmbedOfNobody(t *testing.T) {
	t.Parallel()
	b, err := NewAnthropic(AnthropicConfig{APIKey: "key"})
	check.OK(t, err)
	_, err = Embed(t.Context(), WithBreaker(b), twoTexts())
	var e *Error
	check.That(t, errors.As(err, &e) && !e.Billed(), "%v", err)

	asked := 0
	down := embedder(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for range failuresToOpen + 3 {
		_, err = Embed(t.Context(), down, twoTexts())
	}
	check.That(t, errors.Is(err, ErrDown), "%v", err)
	check.Equal(t, asked, failuresToOpen, "calls to a server that is down")
}
