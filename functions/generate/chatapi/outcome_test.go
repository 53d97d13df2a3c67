package chatapi

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
)

// Whatever an admission refuses for, the caller is told in a sentence and with a code of
// our own, which says whether to come back.
func TestEachRefusalHasAnAnswer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	r := g.request(http.MethodPost, "/v1/chat/completions", "", question)
	id, apiErr := g.handler.identify(r)
	if apiErr != nil {
		t.Fatal(apiErr.Message)
	}
	for _, k := range admission.Kinds {
		e := g.handler.refused(r, &admission.Refusal{Kind: k, Wait: 90 * time.Second}, id, "docqa")
		if e.Code.Status() < 400 || !strings.HasSuffix(e.Message, ".") || strings.Contains(e.Message, "%!") {
			t.Errorf("%s: %d %s %q", k, e.Code.Status(), e.Code, e.Message)
		}
		if comesBack := e.Code.Status() == http.StatusTooManyRequests || e.Code.Status() == http.StatusServiceUnavailable; comesBack != (e.RetryAfter > 0) {
			t.Errorf("%s: %d, come back in %s", k, e.Code.Status(), e.RetryAfter)
		}
	}
}
