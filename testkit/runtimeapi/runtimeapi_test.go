package runtimeapi

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// process speaks to an API as a function's process does.
type process struct {
	t   *testing.T
	api *API
	url string
}

func newProcess(t *testing.T) *process {
	t.Helper()
	p := &process{t: t, api: New()}
	server := httptest.NewServer(p.api)
	t.Cleanup(server.Close)
	p.url = server.URL + prefix
	return p
}

// send sends a request; path is what follows /runtime/.
func (p *process) send(method, path, contentType string, body io.Reader, trailer http.Header) *http.Response {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	p.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, body)
	check.OK(p.t, err)
	r.Header.Set("Content-Type", contentType)
	r.Trailer = trailer
	res, err := http.DefaultClient.Do(r)
	check.OK(p.t, err)
	p.t.Cleanup(func() { res.Body.Close() })
	return res
}

// take asks for work and gives its id.
func (p *process) take() string {
	p.t.Helper()
	res := p.send("GET", "invocation/next", "", nil, nil)
	check.Must(p.t, res.StatusCode == 200, "next: %s", res.Status)
	return res.Header.Get("Lambda-Runtime-Aws-Request-Id")
}

func (p *process) answer(id, contentType, body string) int {
	p.t.Helper()
	return p.send("POST", "invocation/"+id+"/response", contentType, strings.NewReader(body), nil).StatusCode
}

// received is an answer that has arrived.
type received struct {
	*Answer
	body string
}

// receive reads the answer beside the process that gives it.
func receive(t *testing.T, i *Invocation) <-chan received {
	c := make(chan received, 1)
	go func() {
		defer close(c)
		answer, err := i.Answer(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(answer.Body)
		check.That(t, err == nil, "%v", err)
		c <- received{answer, string(body)}
	}()
	return c
}

func TestInvocations(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	for _, event := range []string{`{"n":1}`, `{"n":2}`} {
		i := p.api.Invoke([]byte(event), time.Minute)
		before := time.Now()
		res := p.send("GET", "invocation/next", "", nil, nil)
		body, err := io.ReadAll(res.Body)
		check.Must(t, err == nil && string(body) == event, "the event is %s, %v", body, err)
		h := res.Header
		check.That(t, h.Get("Lambda-Runtime-Invoked-Function-Arn") != "" && h.Get("Lambda-Runtime-Trace-Id") != "" && h.Get("Lambda-Runtime-Deadline-Ms") != "",
			"headers %v", h)
		arriving := receive(t, i)
		check.Equal(t, p.answer(h.Get("Lambda-Runtime-Aws-Request-Id"), "text/plain", "answer to "+event), 202, "status")
		answer := <-arriving
		check.That(t, answer.body == "answer to "+event && answer.ContentType == "text/plain" && answer.Error == nil, "%+v", answer)
		left := answer.Deadline.Sub(before)
		check.That(t, left >= time.Minute-time.Millisecond && left <= time.Minute+20*time.Second, "the deadline is in %v", left)
	}
	<-p.api.Ready()
	if refused := p.api.Refused(); len(refused) > 0 {
		t.Error(refused)
	}
}

// A process with many invocations at a time asks for as many, and no more; they end in any
// order. It has SIGTERM sent by an extension without events.
func TestManyInvocations(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.api.most = 2
	extension := func(events string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(p.url, prefix)+"/2020-01-01/extension/register", strings.NewReader(`{"events":`+events+`}`))
		check.OK(t, err)
		r.Header.Set("Lambda-Extension-Name", "term")
		res, err := http.DefaultClient.Do(r)
		check.OK(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	check.Equal(t, extension(`["INVOKE"]`), 403, "an extension with events")
	check.Equal(t, extension(`null`), 200, "one without")
	<-p.api.Registered()

	first, second := p.api.Invoke([]byte(`1`), time.Minute), p.api.Invoke([]byte(`2`), time.Minute)
	firstID, secondID := p.take(), p.take()
	<-p.api.Ready()
	check.Equal(t, p.send("GET", "invocation/next", "", nil, nil).StatusCode, 403, "a third question")
	for id, i := range map[string]*Invocation{secondID: second, firstID: first} {
		arriving := receive(t, i)
		check.Equal(t, p.answer(id, "text/plain", "to "+id), 202, "status")
		check.Equal(t, (<-arriving).body, "to "+i.ID, "the answer")
		<-i.Done()
		check.Equal(t, p.answer(id, "text/plain", ""), 400, "a second answer")
		third := p.api.Invoke([]byte(`3`), time.Minute)
		check.Equal(t, p.take(), third.ID, "the next")
		again := receive(t, third)
		check.Equal(t, p.answer(third.ID, "text/plain", ""), 202, "status")
		<-again
	}
}

// An answer that broke on its way says so after its last byte.
func TestErrorTrailer(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	i := p.api.Invoke([]byte(`{}`), time.Minute)
	trailer := http.Header{errorType: {"errorString"}, errorBody: {base64.StdEncoding.EncodeToString([]byte(`{"errorType":"errorString","errorMessage":"cut"}`))}}
	arriving := receive(t, i)
	p.send("POST", "invocation/"+p.take()+"/response", Streamed, io.MultiReader(strings.NewReader("half")), trailer)
	a := <-arriving
	check.That(t, a.body == "half" && a.Error != nil && a.Error.Error() == "errorString: cut", "%q, %v", a.body, a.Error)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	arriving := receive(t, p.api.Invoke([]byte(`{}`), time.Minute))
	if res := p.send("POST", "invocation/"+p.take()+"/error", "application/json", strings.NewReader(`{"errorType":"T","errorMessage":"m"}`), nil); res.StatusCode != 202 {
		t.Error(res.Status)
	}
	a := <-arriving
	check.That(t, a.Error != nil && a.Error.Error() == "T: m", "%+v", a)

	p = newProcess(t)
	if res := p.send("POST", "init/error", "application/json", strings.NewReader(`{"errorType":"T","errorMessage":"m"}`), nil); res.StatusCode != 202 {
		t.Error(res.Status)
	}
	e := p.api.InitError()
	check.That(t, e != nil && e.Error() == "T: m", "%v", e)
}

// Each process does one thing that Lambda would not let it do.
func TestRefused(t *testing.T) {
	t.Parallel()
	const fault = `{"errorType":"T","errorMessage":"m"}`
	for name, test := range map[string]struct {
		do     func(p *process) int
		status int
	}{
		"asks twice":              {func(p *process) int { p.take(); return p.send("GET", "invocation/next", "", nil, nil).StatusCode }, 403},
		"answers what it has not": {func(p *process) int { p.take(); return p.answer("other", "text/plain", "x") }, 400},
		"answers before it asks":  {func(p *process) int { return p.answer("00000001-0000-4000-8000-000000000000", "text/plain", "x") }, 400},
		"answers twice": {func(p *process) int {
			id := p.take()
			p.answer(id, "text/plain", "")
			return p.answer(id, "text/plain", "")
		}, 403},
		"answers more than 6 MB": {func(p *process) int { return p.answer(p.take(), "text/plain", strings.Repeat("x", maxPayload+1)) }, 413},
		"fails without saying how": {func(p *process) int {
			return p.send("POST", "invocation/"+p.take()+"/error", "", strings.NewReader("oh"), nil).StatusCode
		}, 400},
		"cannot start, but asked": {func(p *process) int {
			p.take()
			return p.send("POST", "init/error", "", strings.NewReader(fault), nil).StatusCode
		}, 403},
		"cannot start, says no how": {func(p *process) int { return p.send("POST", "init/error", "", strings.NewReader("{}"), nil).StatusCode }, 400},
		"asks elsewhere":            {func(p *process) int { return p.send("GET", "invocation/last", "", nil, nil).StatusCode }, 404},
		"a trailer that is no error": {func(p *process) int {
			trailer := http.Header{errorType: {"T"}, errorBody: {"!"}}
			return p.send("POST", "invocation/"+p.take()+"/response", Streamed, io.MultiReader(strings.NewReader("x")), trailer).StatusCode
		}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProcess(t)
			i := p.api.Invoke([]byte(`{}`), time.Minute)
			go func() {
				if answer, err := i.Answer(t.Context()); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
				}
			}()
			status := test.do(p)
			check.That(t, status == test.status, "status %d, want %d", status, test.status)
			refused := p.api.Refused()
			check.That(t, len(refused) == 1, "refused: %q", refused)
		})
	}
}
