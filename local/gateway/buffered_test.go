package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestBuffered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer events.APIGatewayProxyResponse
		err    error
		status int
		body   string
	}{
		"text":      {events.APIGatewayProxyResponse{StatusCode: 201, Body: "grüße"}, nil, 201, "grüße"},
		"binary":    {events.APIGatewayProxyResponse{StatusCode: 200, Body: "/wA=", IsBase64Encoded: true}, nil, 200, "\xff\x00"},
		"no base64": {events.APIGatewayProxyResponse{StatusCode: 200, Body: "?", IsBase64Encoded: true}, nil, 502, ""},
		"an error":  {events.APIGatewayProxyResponse{StatusCode: 200}, errors.New("failed"), 502, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.answer.MultiValueHeaders = map[string][]string{"X-Several": {"1", "2"}}
			g := New(Options{}, Buffered(func(_ context.Context, e events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
				check.Equal(t, e.Path, "/admin/fuse", "path")
				return test.answer, test.err
			}))
			server := httptest.NewServer(g)
			defer server.Close()
			res, err := http.Get(server.URL + "/admin/fuse")
			check.OK(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			check.That(t, res.StatusCode == test.status && err == nil && (test.body == "" || string(body) == test.body), "%d %q, %v", res.StatusCode, body, err)
			check.That(t, test.status >= 500 || strings.Join(res.Header["X-Several"], " ") == "1 2", "headers %v", res.Header)
		})
	}
}
