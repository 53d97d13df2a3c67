package provider

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Which error statuses are free, told by a provider that bills its errors (some) and
// by one that does not (never).
func TestMayBill(t *testing.T) {
	t.Parallel()
	type rule struct{ byOneThatBillsErrors, byAnother bool }
	free, some, always := rule{false, false}, rule{true, false}, rule{true, true}
	statuses := map[int]rule{}
	for status := 300; status < 400; status++ {
		statuses[status] = free
	}
	for status := 400; status < 1000; status++ {
		statuses[status] = always // whatever nobody has thought of
	}
	for _, status := range []int{401, 402, 403, 404, 405, 413, 415, 429, 503, 529} {
		statuses[status] = free
	}
	for _, status := range []int{400, 422, 500, 502} {
		statuses[status] = some
	}
	for status, want := range statuses {
		check.Equal(t, (rule{mayBill(status, "overloaded", true), mayBill(status, "", false)}), want, "status %d", status)
	}
	for _, status := range []int{400, 408, 424, 429, 500, 503} {
		check.That(t, mayBill(status, "ModelTimeoutException", false), "a model that timed out is free with status %d", status)
	}
}

// Every provider goes by that, and tells the status and the code.
func TestErrorStatuses(t *testing.T) {
	conform(t, func(t *testing.T, d dialect, stream bool) {
		for _, billsErrors := range []bool{false, true} {
			for status, failure := range map[int]Failure{
				302: Refused, 401: Refused, 403: Refused, 429: Refused, 503: Refused, 529: Refused,
				400: Refused, 422: Refused, 500: Refused, 502: Refused,
				408: Failed, 418: Failed, 424: Failed, 499: Failed, 504: Failed, 524: Failed,
			} {
				if billsErrors && (status == 400 || status == 422 || status == 500 || status == 502) {
					failure = Failed
				}
				url, calls := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					io.WriteString(w, d.refusal)
				})
				_, err := call(t.Context(), t, d.makeBilling(t, url, billsErrors), request(stream))
				wantFailure(t, err, failure, status)
				e := err.(*Error)
				if e.Billed() != (failure == Failed) || e.Begun || e.Code == "" || !strings.HasSuffix(e.Error(), "code "+e.Code) || calls.Load() != 1 {
					t.Errorf("billed %t, begun %t, code %s: %v after %d requests", e.Billed(), e.Begun, e.Code, e, calls.Load())
				}
			}
		}
	})
}

// Bedrock's model has worked until it was given up, whatever the status says.
func TestBedrockModelTimeout(t *testing.T) {
	d := bedrockDialect
	for _, stream := range []bool{false, true} {
		for _, status := range []int{408, 429, 503} {
			url, _ := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Amzn-Errortype", "ModelTimeoutException")
				w.WriteHeader(status)
				io.WriteString(w, `{"message":"PROMPT"}`)
			})
			_, err := call(t.Context(), t, d.make(t, url, nil), request(stream))
			wantFailure(t, err, Failed, status)
		}
	}
}
