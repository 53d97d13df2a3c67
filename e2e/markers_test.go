package e2e

import (
	"cmp"
	"fmt"
	"net/http"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Every way in which the built-in model can answer or fail, as a caller gets it
// and as the caller's limits feel it.
func TestMarkers(t *testing.T) {
	t.Parallel()
	eachWay(t, testConfig(t, markersCapacity), markers)
}

const markersCapacity = 1000

func markers(t *testing.T, d *dev) {
	const capacity, quota = markersCapacity, 3
	for _, test := range []struct {
		marker   string
		feature  string // cv if empty
		status   int
		code     string // of the error
		upstream int    // the provider's status, told with the error; 0: none came
		midway   bool   // the stream begins, and ends with the error
		free     bool   // nothing is taken of the tokens
		check    func(completion) bool
	}{
		{marker: "", status: http.StatusOK},
		{marker: "[[long]]", status: http.StatusOK, check: func(c completion) bool { return c.Usage.Output == 80 }},
		{marker: "[[cached:5]]", status: http.StatusOK, check: func(c completion) bool { return c.Usage.InputDetails.Cached == 5 }},
		{marker: "[[reasoning:7]]", status: http.StatusOK, check: func(c completion) bool { return c.Usage.OutputDetails.Reasoning == 7 }},
		{marker: "[[fail:nousage]]", status: http.StatusOK, check: func(c completion) bool { return c.Usage.Output > 50 && c.Usage.Output < 80 }},
		{marker: "[[fail:500]]", status: http.StatusBadGateway, code: "provider_error", upstream: 500, free: true},
		{marker: "[[fail:429]]", status: http.StatusBadGateway, code: "provider_error", upstream: 429, free: true},
		{marker: "[[fail:empty]]", status: http.StatusBadGateway, code: "provider_error", upstream: 200, free: true},
		{marker: "[[fail:503]]", status: http.StatusBadGateway, code: "provider_error", upstream: 503, free: true},
		{marker: "[[fail:408]]", status: http.StatusBadGateway, code: "provider_error", upstream: 408, free: true},
		{marker: "[[fail:error]]", status: http.StatusBadGateway, code: "provider_error", upstream: 200, midway: true},
		{marker: "[[fail:nofinish]]", status: http.StatusBadGateway, code: "provider_error", upstream: 200, midway: true},
		{marker: "[[fail:stall]]", feature: "hasty", status: http.StatusGatewayTimeout, code: "provider_timeout", upstream: 200, midway: true},
		{marker: "[[fail:cut]]", status: http.StatusBadGateway, code: "provider_error", upstream: 200, midway: true},
		{marker: "[[fail:timeout]]", feature: "hasty", status: http.StatusGatewayTimeout, code: "provider_timeout", free: true},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", cmp.Or(test.marker, "none"), stream), func(t *testing.T) {
				t.Parallel()
				q := question{feature: cmp.Or(test.feature, "cv"), text: "I am a welder. " + test.marker, most: 80, stream: stream}
				token := d.token(t, t.Name())
				a, err := d.ask(t.Context(), token, q)
				check.OK(t, err)
				c, err := a.completion()
				check.Must(t, err == nil, "%v: %s", err, a.body)
				midway := stream && test.midway
				want := test.status
				check.That(t, a.status == want || (midway && a.status == http.StatusOK), "status %d, want %d: %s", a.status, want, a.body)
				used := capacity - d.remaining(t, token, "tokens")
				left := quota
				if q.feature == "cv" {
					left = d.remaining(t, token, "cv")
				}
				if test.code == "" {
					check.That(t, c.Error == nil && c.done && (test.check == nil || test.check(c)), "answer: %s", a.body)
					check.That(t, used == c.Usage.Total && left == quota-1, "%d tokens taken, %d answers left; the usage is %d tokens", used, left, c.Usage.Total)
					return
				}
				check.Must(t, c.Error != nil && c.Error.Code == test.code && c.Error.Message != "" && (!c.done || !stream || !midway), "error: %s", a.body)
				check.Equal(t, value(c.Error.Upstream), test.upstream, "upstream_status")
				check.That(t, left == quota, "the failed call took an answer from the quota")
				// What was made is known, and paid for, whatever form was asked for.
				check.That(t, test.free == (used == 0), "%d tokens taken: %s", used, a.body)
			})
		}
	}
}

func value(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}
