//go:build curl

package sigv4

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Signatures that curl makes; it needs curl 7.75 or newer.
func TestSignedByCurl(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check.That(t, err == nil, "%v", err)
		arn, err := Verify(r, body, lookup, time.Now())
		if err != nil {
			arn = err.Error()
		}
		_, _ = io.WriteString(w, arn)
	}))
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		secret string
		args   []string
		want   string
	}{
		"get":          {testSecret, []string{server.URL + "/admin/limits?user=123"}, testARN},
		"encoded":      {testSecret, []string{server.URL + "/admin/limits?email=a%2Bb%40example.com"}, testARN},
		"post":         {testSecret, []string{server.URL + "/admin/limits/clear", "-H", "Content-Type: application/json", "-d", `{"user":"123"}`}, testARN},
		"put":          {testSecret, []string{server.URL + "/admin/fuse", "-X", "PUT", "-H", "Content-Type: application/json", "-d", `{"state":"open","for":"1h"}`}, testARN},
		"wrong secret": {"wrong", []string{server.URL + "/admin/fuse"}, ErrMismatch.Error() + ": is the secret key right?"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-sS", "--max-time", "20", "--aws-sigv4", "aws:amz:us-east-1:execute-api", "--user", testKey + ":" + test.secret}, test.args...)
			out, err := exec.CommandContext(t.Context(), "curl", args...).CombinedOutput()
			check.That(t, err == nil && string(out) == test.want, "%q, %v; want %q", out, err, test.want)
		})
	}
}
