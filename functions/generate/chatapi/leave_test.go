package chatapi

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// front is a rig behind a server, whose provider tells when a call of it begins
// and ends, and whose handler tells when it has returned. It is for one call.
type front struct {
	*rig
	token                   string
	path                    string // of the API
	called, ended, returned chan struct{}
}

// newFront makes a front; model nil is the built-in upstream, at a pace at which
// a long answer takes half a minute.
func newFront(t *testing.T, model http.HandlerFunc, edit ...func(string) string) *front {
	t.Helper()
	f := &front{path: chatPath, called: make(chan struct{}), ended: make(chan struct{}), returned: make(chan struct{})}
	s := setup{model: func(upstream http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(f.called)
			defer close(f.ended)
			if model != nil {
				upstream = model
			}
			upstream.ServeHTTP(w, r)
		})
	}}
	s.upstream.PerToken = 100 * time.Millisecond
	s.bucket = bucket.Options{AttemptTimeout: time.Second, ReserveTimeout: time.Minute}
	f.rig = s.newRig(t, edit...)
	f.freeze(0)
	f.token = f.rig.token("123", "")
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer close(f.returned)
	f.handler.ServeHTTP(w, r)
}

// post sends a call to a server.
func (f *front) post(ctx context.Context, url, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+f.path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+f.token)
	return http.DefaultTransport.RoundTrip(r)
}

// readUntil reads a stream up to the first event with a text.
func readUntil(t *testing.T, r *bufio.Reader, text string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		check.Must(t, err == nil, "%v before %s", err, text)
		if strings.Contains(line, text) {
			return
		}
	}
}

// wantLeft asserts that the call ended on both sides, and how it was settled.
func (f *front) wantLeft(want settled) {
	f.t.Helper()
	await(f.t, f.ended, "the provider's side of the call ends")
	await(f.t, f.returned, "the handler returns")
	f.wantSettled(f.token, want, price.Usage{Input: f.counted()})
	f.wantOutcome(string(openai.CallerLeft))
}

// wantOutcome asserts what the log says of the call.
func (f *front) wantOutcome(want string) {
	f.t.Helper()
	for _, line := range f.logged("request") {
		if strings.Contains(string(line), `"path":"`+f.path+`"`) {
			check.That(f.t, strings.Contains(string(line), `"outcome":"`+want+`"`), "want outcome %s in %s", want, line)
			return
		}
	}
	f.t.Error("the call is not in the log")
}

var (
	leftWithNothing = settled{paysWorst, 0, hasWorst, ledger.Left}
	leftWithSome    = settled{paysWorst, 1, hasWorst, ledger.Left}
)

// content is an event of a provider's stream.
const (
	contentEvent = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello there\"}}]}\n\n"
	finishEvent  = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
)

// hanging is a provider that sends a beginning, tells so, and never ends.
func hanging(sent chan<- struct{}, beginning string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, beginning)
		_ = http.NewResponseController(w).Flush()
		close(sent)
		<-r.Context().Done()
	}
}

// longTimeout keeps the provider's timeout out of the test.
func longTimeout(yaml string) string {
	return strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 60s")
}

// A client that leaves ends the provider's call and pays for the worst, whatever
// it has seen: else leaving early would be free. The quota is used if there was
// some answer, whatever was asked for.
func TestLeave(t *testing.T) {
	t.Parallel()
	for _, kind := range callKinds {
		t.Run(kind.name, kind.testLeave)
	}
}

func (kind callKind) testLeave(t *testing.T) {
	t.Parallel()
	t.Run("before the first byte", func(t *testing.T) {
		t.Parallel()
		eachWay(t, both, func(t *testing.T, stream bool) {
			f := kind.on(newFront(t, hanging(make(chan struct{}), ""), longTimeout, openToAll))
			server := httptest.NewServer(f)
			defer server.Close()
			ctx, leave := context.WithCancel(context.Background())
			go func() {
				<-f.called
				leave()
			}()
			if _, err := f.post(ctx, server.URL, kind.call("Hi.", stream)); err == nil {
				t.Fatal("there was an answer")
			}
			f.wantLeft(leftWithNothing)
		})
	})
	t.Run("while a whole answer is made", func(t *testing.T) {
		t.Parallel()
		f := kind.on(newFront(t, nil, longTimeout, openToAll))
		server := httptest.NewServer(f)
		defer server.Close()
		ctx, leave := context.WithCancel(context.Background())
		go func() {
			for {
				if _, billed := f.upstream.Totals(); billed.Output > 2 {
					leave()
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		if _, err := f.post(ctx, server.URL, kind.call("Hi.", false)); err == nil {
			t.Fatal("there was an answer")
		}
		f.wantLeft(leftWithNothing)
	})
	t.Run("after some content", func(t *testing.T) {
		t.Parallel()
		f := kind.on(newFront(t, nil, longTimeout, openToAll))
		server := httptest.NewServer(f)
		defer server.Close()
		answer, err := f.post(context.Background(), server.URL, kind.call("Hi.", true))
		check.OK(t, err)
		body := bufio.NewReader(answer.Body)
		readUntil(t, body, cmp.Or(kind.shows, kind.text("This")))
		readUntil(t, body, kind.delta())
		answer.Body.Close()
		f.wantLeft(leftWithSome)
	})
	t.Run("between the provider's finish and its usage", func(t *testing.T) {
		t.Parallel()
		sent := make(chan struct{})
		f := kind.on(newFront(t, hanging(sent, kind.event()+finishEvent), longTimeout, openToAll))
		server := httptest.NewServer(f)
		defer server.Close()
		answer, err := f.post(context.Background(), server.URL, kind.call("Hi.", true))
		check.OK(t, err)
		await(t, sent, "the finish_reason is sent")
		readUntil(t, bufio.NewReader(answer.Body), cmp.Or(kind.shows, "Hello there"))
		answer.Body.Close()
		await(t, f.ended, "the provider's side of the call ends")
		await(t, f.returned, "the handler returns")
		f.wantSettled(f.token, leftWithSome, price.Usage{Input: f.counted()})
	})
	t.Run("after the finish", func(t *testing.T) {
		t.Parallel()
		f := kind.on(newFront(t, answering(`{"prompt_tokens":40,"completion_tokens":2}`)(nil).ServeHTTP, openToAll))
		server := httptest.NewServer(f)
		defer server.Close()
		answer, err := f.post(context.Background(), server.URL, kind.call("Hi.", true))
		check.OK(t, err)
		readUntil(t, bufio.NewReader(answer.Body), kind.finish())
		answer.Body.Close()
		await(t, f.returned, "the handler returns")
		f.wantSettled(f.token, settled{paysBilled, 1, hasBilled, ledger.Completed}, price.Usage{Input: 40, Output: 2})
		f.wantOutcome("answered")
	})
}

// gateway hands a call to the handler as Lambda gets it.
func (f *front) gateway(ctx context.Context, body string) (*events.APIGatewayProxyStreamingResponse, error) {
	return lambdahttp.Stream(f)(ctx, &events.APIGatewayProxyRequest{
		HTTPMethod: http.MethodPost, Path: f.path, Body: body,
		Headers: map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + f.token},
		RequestContext: events.APIGatewayProxyRequestContext{
			RequestID: "from-the-gateway", Identity: events.APIGatewayRequestIdentity{SourceIP: "203.0.113.7"},
		},
	})
}

// In Lambda it is the body's reader that leaves: by Close, which returns only
// when all is settled.
func TestLeaveLambda(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		read string // up to which event
		want settled
	}{
		"before the content": {`"role":"assistant"`, leftWithNothing},
		"after some content": {`"delta":{"content":" is"}`, leftWithSome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, nil, longTimeout)
			answer, err := f.gateway(context.Background(), cvCall("Hi.", true))
			check.OK(t, err)
			readUntil(t, bufio.NewReaderSize(answer.Body, 16), tt.read)
			check.OK(t, answer.Body.(io.Closer).Close())
			select {
			case <-f.returned:
			default:
				t.Error("Close did not wait for the handler")
			}
			f.wantLeft(tt.want)
		})
	}
}

func shortTimeout(yaml string) string {
	return strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 1s")
}

// flood is a provider whose stream is larger than what fits between it and a
// client, though within the output cap: each event is one token of 128 blanks.
func flood(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, contentEvent)
	event := strings.Replace(contentEvent, "Hello there", strings.Repeat(" ", 128), 1)
	for range cvCap - 10 {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// floodTimeout is time enough for a flood to fill what lies between, also where every
// step is watched for races.
func floodTimeout(yaml string) string {
	return strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 6s")
}

// A client that stops reading cannot keep the handler: its time ends with that
// of the call. It pays as one that left.
func TestStall(t *testing.T) {
	t.Parallel()
	f := newFront(t, flood, floodTimeout)
	server := httptest.NewUnstartedServer(f)
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(4096)
		return ctx
	}
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	check.OK(t, err)
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	body := cvCall("Hi.", true)
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", f.token, len(body), body); err != nil {
		t.Fatal(err)
	}
	f.wantLeft(leftWithSome)
}

// Likewise in Lambda.
func TestStallLambda(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		read string
		want settled
	}{
		"before the content": {``, leftWithNothing},
		"after some content": {"Hello there", leftWithSome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, flood, floodTimeout)
			answer, err := f.gateway(context.Background(), cvCall("Hi.", true))
			check.OK(t, err)
			if tt.read != "" {
				readUntil(t, bufio.NewReaderSize(answer.Body, 16), tt.read)
			}
			f.wantLeft(tt.want)
		})
	}
}

// Whoever stalls until the call has run out of time and takes the rest then has
// not been failed by the provider.
func TestStallUntilTheEnd(t *testing.T) {
	t.Parallel()
	// Long enough that the reader stalls for more than stallMargin of it, however
	// long a busy machine takes to admit the call.
	f := newFront(t, hanging(make(chan struct{}), contentEvent), func(yaml string) string {
		return strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 5s")
	})
	answer, err := f.gateway(context.Background(), cvCall("Hi.", true))
	check.OK(t, err)
	await(t, f.ended, "the provider's side of the call ends")
	body, err := io.ReadAll(answer.Body)
	if err == nil { // else our reading came too late on a slow machine
		wantBrokenStream(t, string(body), openai.CallerLeft)
	}
	f.wantLeft(leftWithSome)
}

// A settle that takes its time does not cost the caller the rest of the answer.
func TestSlowSettle(t *testing.T) {
	t.Parallel()
	f := newFront(t, hanging(make(chan struct{}), ""), shortTimeout)
	var writes atomic.Int64
	f.net.Plan = func(target string, _ []byte) faults.Fault {
		if strings.HasSuffix(target, "UpdateItem") && writes.Add(1) == 2 {
			return faults.Hang // for as long as an attempt may take: longer than stallMargin
		}
		return faults.None
	}
	answer, err := f.gateway(context.Background(), cvCall("Hi.", true))
	check.OK(t, err)
	body, err := io.ReadAll(answer.Body)
	check.Must(t, err == nil, "%v after %q", err, body)
	await(t, f.returned, "the handler returns")
	f.wantAnswer(response(answer, body), false, openai.ProviderTimeout, 200)
	f.wantSettled(f.token, settled{paysNothing, 0, hasWorst, ledger.Failed}, price.Usage{Input: f.cvInput()})
}

func response(a *events.APIGatewayProxyStreamingResponse, body []byte) answer {
	return answer{a.StatusCode, http.Header(a.MultiValueHeaders), string(body)}
}

// deaf is a writer of answers that fails, before anybody knows that its reader
// has left.
type deaf struct {
	*httptest.ResponseRecorder
	writes int // how many succeed
}

func (d *deaf) Write(p []byte) (int, error) {
	if d.writes--; d.writes < 0 {
		return 0, io.ErrClosedPipe
	}
	return d.ResponseRecorder.Write(p)
}

func TestWriteFails(t *testing.T) {
	t.Parallel()
	for writes, want := range []settled{
		leftWithNothing,
		leftWithNothing, // the role alone is no content
		leftWithSome,
		leftWithSome,
	} {
		t.Run(strconv.Itoa(writes), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, nil, longTimeout)
			r := f.request(http.MethodPost, "/v1/chat/completions", f.token, cvCall("Hi.", true))
			f.ServeHTTP(&deaf{httptest.NewRecorder(), writes}, r)
			f.wantLeft(want)
		})
	}
}

// Whoever leaves while the store is asked is not called for. What was reserved
// comes back, but for the request.
func TestLeaveBeforeTheCall(t *testing.T) {
	t.Parallel()
	f := newFront(t, nil)
	arrived := make(chan struct{})
	var writes atomic.Int64
	f.net.Plan = func(target string, _ []byte) faults.Fault {
		if strings.HasSuffix(target, "UpdateItem") && writes.Add(1) == 1 {
			close(arrived)
			return faults.HangReply
		}
		return faults.None
	}
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		<-arrived
		for f.open("user#123") == 0 {
			time.Sleep(time.Millisecond)
		}
		leave()
	}()
	a := f.direct(f.request(http.MethodPost, "/v1/chat/completions", f.token, cvCall("Hi.", false)).WithContext(ctx))
	e := f.wireError(a)
	check.That(t, e.Code == string(openai.CallerLeft), "%+v", e)
	check.Equal(t, len(f.upstream.Calls()), 0, "calls upstream")
	f.wantSettled(f.token, settled{paysNothing, 0, hasNothing, ""}, price.Usage{})
}
