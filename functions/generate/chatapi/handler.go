// Package chatapi is the generate function: OpenAI's chat completions as an
// http.Handler, with a fuse in front of the model.
//
// It is an edge. A request is identified (identify.go) and parsed (internal/openai);
// internal/admission caps and counts it and reserves its worst case; the provider is
// called once (exchange.go); the admission is settled to what was used, and the rest of
// the answer is written (answer.go). outcome.go has the code and the sentence of each
// refusal. All of it is over before the answer ends, since Lambda freezes after that.
//
// Guarantees: no provider call without a reservation; a settle on every way out,
// a panic included; what fails before the limits changes and counts nothing; the
// request that goes upstream is made afresh from known fields. Errors have
// OpenAI's envelope and never an internal cause. Logs never hold prompt or
// answer text, tokens or secrets.
//
// Trusted: the policy, the source address that the gateway gives, and the
// store. Nothing else that a request or a provider says is.
package chatapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/bearer"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/trace"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// Handler serves the /v1 routes.
type Handler struct {
	Policy   *policy.Policy
	Verifier *auth.Verifier // nil: tokens are refused
	Emails   *emails.Index  // nil: users are found by id alone

	// Of anonymous callers; Networks is nil without such a tier.
	Networks *fingerprint.Keyer
	Source   *fingerprint.Source

	backends *bearer.Ring[*policy.Backend] // that call for their visitors, by their secrets

	// Of challenges; nil if there are none. Altcha is nil if a third party has them.
	Challenges challenge.Verifier
	Altcha     *challenge.Altcha
	Passes     *challenge.Passes
	Used       *challenge.Used

	// RefusedOrigin is told of each page that was refused; nil: nobody is.
	RefusedOrigin func(origin string)

	Log     *slog.Logger
	Metrics *emf.Writer // nil: none
	Version string      // of the function, as Lambda counts it; "": it has none
	Now     func() time.Time

	admission    *admission.Controller
	providers    map[string]provider.Provider // by name in the policy
	servers      map[string]string            // their hosts, by the same
	policies     map[*admission.Offer]string  // the RateLimit-Policy header
	wrong        *wrongs
	plans        *strangers
	unsaid       *atomic.Bool // it was told that addresses are not said to be verified
	refusedToken func(auth.Reason)
	silence      time.Duration // of a stream, after which a comment is sent
	mostBytes    int64         // of a request
	// started stands for the age of all models, which nobody asks for.
	started time.Time
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r.Context())
	ctx := context.WithValue(r.Context(), loggerKey{}, h.Log.With("request_id", id))
	r = r.WithContext(ctx)
	e := &entry{outcome: outcomeAnswered, start: h.Now(), trace: trace.Of(r)}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Cache-Control", "no-store")
	defer func() {
		e.log(ctx, lambdahttp.KnownMethod(r.Method), shown(r), h.Now())
		if h.Metrics != nil {
			h.Metrics.Write(e.metrics(h.Version)...)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			logger(ctx).Error("panic", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			failure := openai.Errorf(openai.InternalError, "", "Something went wrong on our side.")
			if e.admission != nil {
				failure.Message += " " + e.taken()
			}
			answerFailure(w, e, failure)
		}
	}()
	if err := h.route(w, r, e); err != nil {
		if h.refusedToken != nil && err.Reason != "" {
			h.refusedToken(auth.Reason(err.Reason))
		}
		answerFailure(w, e, err)
	}
}

// answerFailure answers with an error, in the form of the stream if the answer is one.
func answerFailure(w http.ResponseWriter, e *entry, err *openai.Error) {
	e.outcome, e.reason = string(err.Code), err.Reason
	if err.Denied != nil {
		e.limit = err.Denied.Limit
	}
	if e.streaming != nil {
		_, _ = w.Write(e.streaming.failure(err)) // a client that has gone needs no answer
		return
	}
	err.Write(w)
}

// requestID is the gateway's id of the request, or a new one.
func requestID(ctx context.Context) string {
	if c, ok := lambdahttp.RequestContext(ctx); ok && c.RequestID != "" {
		return c.RequestID
	}
	return rand.Text()
}
