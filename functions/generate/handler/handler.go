// Package handler is the generate function: an http.Handler that puts a fuse in
// front of an AI feature.
//
// A request is identified, parsed, capped and counted; its worst case is
// reserved in the caller's buckets; the provider is called once; the reservation
// is settled to what was used; all before the answer ends.
//
// Guarantees: no provider call without a reservation; a settle on every way out,
// a panic included; what fails before the limits changes and counts nothing; the
// request that goes upstream is made afresh from known fields. Errors have
// OpenAI's envelope and never an internal cause. Logs never hold prompt or
// answer text, tokens or secrets.
//
// Trusted: the policy, the source address that the gateway gives, and the
// store. Nothing else that a request or a provider says is.
package handler

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/auth"
	"github.com/tokenfuse/tokenfuse/internal/challenge"
	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// Config is what a Handler works with.
type Config struct {
	Policy    *policy.Policy
	Buckets   *bucket.Buckets
	Providers map[string]provider.Provider // by name in the policy
	Verifier  *auth.Verifier               // nil: tokens are refused
	Pools     map[string]*bucket.Pool      // by name in the policy
	Fuse      *fuse.Reader
	Emails    *emails.Index  // nil: users are found by id alone
	Ledger    *ledger.Ledger // nil: spend events are only logged

	// Of anonymous callers; nil without such a tier.
	Networks *fingerprint.Keyer
	Source   *fingerprint.Source

	// Of challenges; nil if there are none. Altcha is nil if a third party has them.
	Challenges challenge.Verifier
	Altcha     *challenge.Altcha
	Passes     *challenge.Passes
	Used       *challenge.Used

	// What a request may ask of the store before its call, and take back after that: see
	// allowance. 0: 2.5 s and 1.2 s.
	AskTime, TakeBackTime time.Duration

	Log     *slog.Logger
	Metrics *emf.Writer // nil: none
	Now     func() time.Time
}

// Handler serves the /v1 routes.
type Handler struct {
	Config
	offers map[audience]map[string]*offer // by feature
	routes map[string]map[string]route    // by path, by method
	wrong  *wrongs
	// started stands for the age of all models, which nobody asks for.
	started time.Time
}

// audience is a kind of callers of a tier: who has the same limits.
type audience struct {
	tier string
	kind limits.Kind
}

type route func(*Handler, http.ResponseWriter, *http.Request, *entry) *openai.Error

// New prepares all that requests have in common.
func New(cfg Config) (*Handler, error) {
	if cfg.Policy.Tiers[policy.Anonymous] != nil && cfg.Networks == nil {
		return nil, errors.New("handler: anonymous callers need Config.Networks")
	}
	cfg.AskTime, cfg.TakeBackTime = cmp.Or(cfg.AskTime, askTime), cmp.Or(cfg.TakeBackTime, takeBackTime)
	h := &Handler{Config: cfg, offers: map[audience]map[string]*offer{}, wrong: newWrongs(), started: cfg.Now()}
	for _, t := range cfg.Policy.Tiers {
		for _, k := range h.kinds(t) {
			offers := map[string]*offer{}
			h.offers[audience{t.Name, k}] = offers
			for _, name := range cfg.Policy.FeatureNames(t.Name) {
				o, err := newOffer(cfg.Policy.Features[name], t, k, cfg.Providers)
				if err != nil {
					return nil, fmt.Errorf("handler: feature %s: %w", name, err)
				}
				offers[name] = o
			}
		}
	}
	h.routes = map[string]map[string]route{
		"/v1/chat/completions": {http.MethodPost: (*Handler).chat},
		"/v1/models":           {http.MethodGet: (*Handler).models},
		"/v1/limits":           {http.MethodGet: (*Handler).limits},
		challengePath:          {http.MethodGet: (*Handler).newChallenge, http.MethodPost: (*Handler).solveChallenge},
	}
	return h, nil
}

// kinds are the kinds of callers of a tier.
func (h *Handler) kinds(t *policy.Tier) []limits.Kind {
	switch {
	case t.Name != policy.Anonymous:
		return []limits.Kind{limits.User}
	case h.Passes == nil:
		return []limits.Kind{limits.Network}
	}
	return []limits.Kind{limits.Network, limits.Pass}
}

// ServeHTTP answers a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r.Context())
	ctx := context.WithValue(r.Context(), loggerKey{}, h.Log.With("request_id", id))
	r = r.WithContext(ctx)
	e := &entry{outcome: "answered", start: h.Now()}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Cache-Control", "no-store")
	defer func() {
		e.log(ctx, lambdahttp.KnownMethod(r.Method), h.shown(r), h.Now())
		if h.Metrics != nil {
			h.Metrics.Write(e.metrics()...)
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			logger(ctx).Error("panic", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			failure := openai.Errorf(openai.InternalError, "", "Something went wrong on our side.")
			if e.admitted {
				failure.Message += " " + e.taken()
			}
			answerFailure(w, e, failure)
		}
	}()
	if err := h.route(w, r, e); err != nil {
		answerFailure(w, e, err)
	}
}

// answerFailure answers with an error, as an event if the answer is a stream.
func answerFailure(w http.ResponseWriter, e *entry, err *openai.Error) {
	e.outcome = string(err.Code)
	if err.Denied != nil {
		e.limit = err.Denied.Limit
	}
	if e.streaming {
		x := exchange{w: w, rc: http.NewResponseController(w)}
		x.event(err.Envelope())
		return
	}
	err.Write(w)
}

// route checks route, method and origin, and passes on.
func (h *Handler) route(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	originErr := h.cors(w, r) // its headers make the next errors readable, too
	methods, known := h.routes[r.URL.Path]
	serve := methods[r.Method]
	switch {
	case r.Method == http.MethodOptions:
	case r.URL.Path == "/v1/responses":
		return openai.Errorf(openai.NotFound, "", "The responses API is not served here. Use chat completions: POST /v1/chat/completions.")
	case !known:
		return openai.Errorf(openai.NotFound, "", "There is nothing at this address.")
	case serve == nil:
		w.Header().Set("Allow", allowed(methods))
		return openai.Errorf(openai.MethodNotAllowed, "", "The method must be %s.", allowed(methods))
	}
	if originErr != nil {
		return originErr
	}
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return serve(h, w, r, e)
}

// shown is the path of a request as the log has it: a route, or that it is none. What a
// caller chose would be as long as the caller likes, and the log costs what is written.
func (h *Handler) shown(r *http.Request) string {
	if _, known := h.routes[r.URL.Path]; known {
		return r.URL.Path
	}
	return "other"
}

func allowed(methods map[string]route) string {
	return strings.Join(append(slices.Sorted(maps.Keys(methods)), http.MethodOptions), ", ")
}

// requestID is the gateway's id of the request, or a new one.
func requestID(ctx context.Context) string {
	if c, ok := lambdahttp.RequestContext(ctx); ok && c.RequestID != "" {
		return c.RequestID
	}
	return rand.Text()
}
