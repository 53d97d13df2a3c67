package lambdahttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// The tests below run a process with the true Lambda runtime loop: they hold only if
// the loop treats a Body as we assume.

// settledVar is set in that process: where to tell that the handler has settled.
const settledVar = "LAMBDAHTTP_TEST_SETTLED"

func TestMain(m *testing.M) {
	if os.Getenv(settledVar) != "" {
		lambda.Start(Stream(http.HandlerFunc(function)))
	}
	os.Exit(m.Run())
}

// function runs in the child process.
func function(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "half")
	switch r.URL.Path {
	case "/panic":
		panic("secret text")
	case "/cut":
		for r.Context().Err() == nil { // the runtime notices the cut when it sends on
			io.WriteString(w, "more")
		}
		time.Sleep(200 * time.Millisecond) // a settle takes its time, more than the 50 ms that the runtime gives
		http.Post(os.Getenv(settledVar), "", nil)
	default:
		io.WriteString(w, " and half")
	}
}

// invoke starts the function and gives its answer to a request for path. settled gets
// a value when the handler says so.
func invoke(t *testing.T, path string) (f *runtimeapi.Function, answer *runtimeapi.Answer, settled <-chan bool) {
	t.Helper()
	told := make(chan bool, 1)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { told <- true }))
	t.Cleanup(server.Close)
	f, err := runtimeapi.Start(t.Context(), os.Args[0], t.TempDir(), settledVar+"="+server.URL)
	check.OK(t, err)
	t.Cleanup(func() {
		f.Close()
		refused := f.Refused()
		check.That(t, len(refused) == 0, "refused: %q", refused)
	})
	event, err := json.Marshal(events.APIGatewayProxyRequest{HTTPMethod: http.MethodGet, Path: path})
	check.OK(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if answer, err = f.Invoke(event, time.Minute).Answer(ctx); err != nil {
		t.Fatalf("%v: %s", err, f.Log())
	}
	return f, answer, told
}

func readAnswer(t *testing.T, answer *runtimeapi.Answer) string {
	t.Helper()
	body, err := io.ReadAll(answer.Body)
	check.OK(t, err)
	return string(body)
}

func TestRuntimeStreams(t *testing.T) {
	t.Parallel()
	_, answer, _ := invoke(t, "/")
	prelude, body, ok := strings.Cut(readAnswer(t, answer), "\x00\x00\x00\x00\x00\x00\x00\x00")
	want := `{"statusCode":200,"multiValueHeaders":{"Content-Type":["text/plain; charset=utf-8"]}}`
	check.That(t, ok && prelude == want, "prelude %s, want %s", prelude, want)
	check.That(t, body == "half and half" && answer.ContentType == runtimeapi.Streamed && answer.Error == nil,
		"body %q of type %q, %v", body, answer.ContentType, answer.Error)
}

func TestRuntimePanicBecomesTrailer(t *testing.T) {
	t.Parallel()
	_, answer, _ := invoke(t, "/panic")
	body := readAnswer(t, answer)
	check.That(t, strings.HasSuffix(body, "\x00half"), "body %q", body)
	check.That(t, answer.Error != nil && answer.Error.Message == errPanicked.Error(), "error trailer %v", answer.Error)
}

// The runtime ends the process when the response stream breaks. What the
// handler still has to do must be done by then.
func TestRuntimeCutStreamLetsHandlerSettle(t *testing.T) {
	t.Parallel()
	f, answer, settled := invoke(t, "/cut")
	answer.Body.Close()
	select {
	case <-f.Exited():
	case <-time.After(30 * time.Second):
		t.Fatal("the process does not end")
	}
	select {
	case <-settled:
	default:
		t.Error("the process ended before the handler had settled")
	}
}
