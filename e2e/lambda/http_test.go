package lambda

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// event is a request as API Gateway delivers it. path is what follows the stage; a
// token "" is anonymous.
func event(t *testing.T, fixture, method, path, token, body string) []byte {
	t.Helper()
	raw, err := os.ReadFile("../../internal/lambdahttp/testdata/" + fixture + ".json")
	check.OK(t, err)
	var e events.APIGatewayProxyRequest
	check.OK(t, json.Unmarshal(raw, &e))
	e.HTTPMethod, e.Path, e.Body = method, path, body
	e.RequestContext.HTTPMethod, e.RequestContext.Path = method, "/prod"+path
	if token != "" {
		e.Headers["Authorization"] = "Bearer " + token
		e.MultiValueHeaders["Authorization"] = []string{"Bearer " + token}
	}
	if raw, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	return raw
}

// response is an answer over HTTP that has begun to arrive.
type response struct {
	*runtimeapi.Answer
	status  int
	header  http.Header
	body    *bufio.Reader
	prelude string
}

// open waits for a streamed answer and reads the part before its body: a JSON object
// with status and headers, and eight zero bytes.
func open(t *testing.T, i *runtimeapi.Invocation) *response {
	t.Helper()
	answer, err := i.Answer(within(t))
	check.OK(t, err)
	if answer.ContentType != runtimeapi.Streamed || answer.Error != nil {
		body, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s, %v: %s", answer.ContentType, answer.Error, body)
	}
	r := &response{Answer: answer, header: http.Header{}, body: bufio.NewReaderSize(answer.Body, 16<<10)}
	text, err := r.body.ReadSlice(0) // the gateway looks no further than 16 KB for it
	check.Must(t, err == nil, "no prelude: %v in %q", err, text)
	r.prelude = string(text[:len(text)-1])
	if zeros, err := r.body.Peek(7); err != nil || string(zeros) != "\x00\x00\x00\x00\x00\x00\x00" {
		t.Fatalf("the prelude ends in %q, %v", zeros, err)
	}
	_, _ = r.body.Discard(7)
	var p struct {
		StatusCode        int                 `json:"statusCode"`
		MultiValueHeaders map[string][]string `json:"multiValueHeaders"`
	}
	d := json.NewDecoder(strings.NewReader(r.prelude))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || d.More() {
		t.Fatalf("the prelude is %s: %v", r.prelude, err)
	}
	r.status = p.StatusCode
	for k, vs := range p.MultiValueHeaders {
		for _, v := range vs {
			r.header.Add(k, v)
		}
	}
	return r
}

// rest reads the body to its end.
func (r *response) rest(t *testing.T) string {
	t.Helper()
	body, err := io.ReadAll(r.body)
	check.Must(t, err == nil, "%v after %q", err, body)
	return string(body)
}

// event reads the next server-sent event.
func (r *response) event(t *testing.T) string {
	t.Helper()
	line, err := r.body.ReadString('\n')
	check.Must(t, err == nil, "%v after %q", err, line)
	if blank, err := r.body.ReadString('\n'); err != nil || blank != "\n" {
		t.Fatalf("an event ends in %q, %v", blank, err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(line, "data: "), "\n")
}

// answered is an answer that has arrived.
type answered struct {
	status int
	header http.Header
	body   string
}

// whole waits for an answer and reads all of it. The function must then ask for
// more, before its deadline.
func whole(t *testing.T, i *runtimeapi.Invocation) answered {
	t.Helper()
	r := open(t, i)
	a := answered{r.status, r.header, r.rest(t)}
	late := time.Until(r.Deadline)
	check.That(t, late >= 0, "the answer ended %v after the deadline: Lambda would have killed the process", -late)
	check.That(t, r.Error == nil, "the answer ended in an error: %v", r.Error)
	select {
	case <-i.Done():
	case <-within(t).Done():
		t.Error("the function does not ask for more")
	}
	return a
}

// completion is a chat completion, or an error.
type completion struct {
	Object  string
	Choices []struct {
		Message, Delta struct{ Content string }
		FinishReason   *string `json:"finish_reason"`
	}
	Usage struct {
		Total int64 `json:"total_tokens"`
	}
	Error *struct{ Message, Type, Code string }
}

func decode(t *testing.T, body string) completion {
	t.Helper()
	var c completion
	err := json.Unmarshal([]byte(body), &c)
	check.Must(t, err == nil, "%v: %s", err, body)
	return c
}

// refused checks an answer in the error envelope.
func (a answered) refused(t *testing.T, status int, code string) {
	t.Helper()
	c := decode(t, a.body)
	check.That(t, a.status == status && c.Error != nil && c.Error.Code == code && c.Error.Message != "" && c.Error.Type != "",
		"%d %s; want %d with code %s", a.status, a.body, status, code)
	check.That(t, a.header.Get("X-Should-Retry") != "" && a.header.Get("X-Request-Id") != "", "headers %v", a.header)
}

func decodeBody(r *http.Request, into any) {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
