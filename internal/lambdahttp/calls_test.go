package lambdahttp

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// A call is under way until its answer is closed, however it ends; who waits is told, or
// waits no longer than it wants.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Calls{}
		check.OK(t, c.Wait(t.Context()))
		call := c.Watch(Stream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })))
		var open []*events.APIGatewayProxyStreamingResponse
		for _, e := range []*events.APIGatewayProxyRequest{get("/"), get("/"), nil} {
			resp, err := call(t.Context(), e)
			check.OK(t, err)
			open = append(open, resp)
		}
		// One that is not answered by its deadline is over.
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		never := make(chan bool)
		_, err := c.Watch(Stream(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-never })))(late, get("/"))
		check.That(t, err == context.DeadlineExceeded, "%v", err)
		close(never)

		for i, resp := range open {
			brief, cancel := context.WithTimeout(t.Context(), time.Second)
			check.That(t, c.Wait(brief) == context.DeadlineExceeded, "with %d open nobody waits", len(open)-i)
			cancel()
			readAll(t, resp)
			check.OK(t, resp.Close()) // once more counts once
		}
		check.OK(t, c.Wait(t.Context()))
	})
}
