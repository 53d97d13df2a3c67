//go:build rie

package lambda

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// AWS's own runtime interface emulator takes the built program as Lambda does. It
// buffers what Lambda would stream.
func TestEmulator(t *testing.T) {
	t.Parallel()
	emulator, err := exec.LookPath("aws-lambda-rie")
	if err != nil {
		t.Fatalf("this test needs AWS's runtime interface emulator "+
			"(go install github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie): %v", err)
	}
	g := newRig(t)
	address := freeAddress(t)
	var log bytes.Buffer
	cmd := exec.Command(emulator, "--runtime-interface-emulator-address", address, "--runtime-api-address", freeAddress(t), program(t, "generate"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = g.dir, &log, &log
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=AKIALOCAL", "AWS_SECRET_ACCESS_KEY=local",
		"AWS_LAMBDA_FUNCTION_TIMEOUT=60"}, g.env...)
	check.OK(t, cmd.Start())
	t.Cleanup(func() { // it ends the function, too
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the emulator wrote:\n%s", &log)
		}
	})
	for n, stream := range []bool{false, true, false} {
		prelude, body, ok := bytes.Cut(invokeEmulator(t, address, event(t, "stage_prefix", "POST", "/v1/chat/completions", g.token("ann"), chat("ask", question, stream))),
			make([]byte, 8))
		check.Must(t, ok && bytes.HasPrefix(prelude, []byte(`{"statusCode":200,"multiValueHeaders":{`)), "call %d: the answer begins with %q", n, prelude)
		check.That(t, stream == strings.HasSuffix(string(body), "data: [DONE]\n\n") && (stream || decode(t, string(body)).Usage.Total != 0), "call %d: %s", n, body)
		state := g.peek("user#ann")
		check.That(t, state.InFlight == 0, "call %d: %d are open", n, state.InFlight)
	}
	a := invokeEmulator(t, address, event(t, "stage_prefix", "POST", "/v1/chat/completions", "", "{"))
	check.That(t, bytes.Contains(a, []byte(`"invalid_json"`)), "%s", a)
}

func invokeEmulator(t *testing.T, address string, event []byte) []byte {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(within(t), http.MethodPost, "http://"+address+"/2015-03-31/functions/function/invocations", bytes.NewReader(event))
		check.OK(t, err)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			check.Must(t, within(t).Err() == nil, "%v", err)
			time.Sleep(10 * time.Millisecond) // it does not listen yet
			continue
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		check.Must(t, err == nil && res.StatusCode == http.StatusOK, "%s, %v: %s", res.Status, err, answer)
		return answer
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer l.Close()
	return l.Addr().String()
}
