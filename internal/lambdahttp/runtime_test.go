package lambdahttp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

// The tests below run a process with the true Lambda runtime loop against a
// small runtime API: they hold only if the loop treats a Body as we assume.

const childVar = "LAMBDAHTTP_TEST_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
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
		http.Post("http://"+os.Getenv("AWS_LAMBDA_RUNTIME_API")+"/settled", "", nil)
	default:
		io.WriteString(w, " and half")
	}
}

type runtimeResponse struct {
	contentType string
	body        string
	trailer     http.Header
}

type runtimeAPI struct {
	responses chan runtimeResponse
	settled   chan bool
	exited    chan error
}

// invoke starts the function for one event; path selects what it does.
func invoke(t *testing.T, path string, cut bool) runtimeAPI {
	t.Helper()
	api := runtimeAPI{make(chan runtimeResponse, 1), make(chan bool, 1), make(chan error, 1)}
	var served atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		if served.Swap(true) {
			<-r.Context().Done() // no second event
			return
		}
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", "id")
		w.Header().Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10))
		json.NewEncoder(w).Encode(events.APIGatewayProxyRequest{HTTPMethod: http.MethodGet, Path: path})
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/id/response", func(w http.ResponseWriter, r *http.Request) {
		if cut {
			io.CopyN(io.Discard, r.Body, 1)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		api.responses <- runtimeResponse{r.Header.Get("Content-Type"), string(body), r.Trailer}
	})
	mux.HandleFunc("POST /settled", func(http.ResponseWriter, *http.Request) { api.settled <- true })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVar+"=1", "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { api.exited <- cmd.Wait() }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		server.CloseClientConnections()
	})
	return api
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestRuntimeStreams(t *testing.T) {
	t.Parallel()
	got := await(t, "the response", invoke(t, "/", false).responses)
	prelude, body, ok := strings.Cut(got.body, "\x00\x00\x00\x00\x00\x00\x00\x00")
	if want := `{"statusCode":200,"multiValueHeaders":{"Content-Type":["text/plain; charset=utf-8"]}}`; !ok || prelude != want {
		t.Errorf("prelude %s, want %s", prelude, want)
	}
	if body != "half and half" || got.contentType != "application/vnd.awslambda.http-integration-response" {
		t.Errorf("body %q of type %q", body, got.contentType)
	}
	if got.trailer.Get("Lambda-Runtime-Function-Error-Type") != "" {
		t.Errorf("trailer %v", got.trailer)
	}
}

func TestRuntimePanicBecomesTrailer(t *testing.T) {
	t.Parallel()
	got := await(t, "the response", invoke(t, "/panic", false).responses)
	if !strings.HasSuffix(got.body, "\x00half") {
		t.Errorf("body %q", got.body)
	}
	detail, err := base64.StdEncoding.DecodeString(got.trailer.Get("Lambda-Runtime-Function-Error-Body"))
	if err != nil || !strings.Contains(string(detail), errPanicked.Error()) || strings.Contains(string(detail), "secret") {
		t.Errorf("error trailer %s, %v", detail, err)
	}
}

// The runtime ends the process when the response stream breaks. What the
// handler still has to do must be done by then.
func TestRuntimeCutStreamLetsHandlerSettle(t *testing.T) {
	t.Parallel()
	api := invoke(t, "/cut", true)
	await(t, "the end of the process", api.exited)
	select {
	case <-api.settled:
	default:
		t.Error("the process ended before the handler had settled")
	}
}
