// Package admin is the clearlimit function: an http.Handler by which support
// clears people's limits, and operators set the fuse, block somebody or forgive a pool's
// debt.
//
// Guarantees: nobody gets in whom API Gateway has not named by an IAM identity
// that the policy allows, or, where there is no such gateway, who has no key. Nothing is changed of which no audit item says who
// changed what of whom, when and why. Clearing makes no item and leaves open calls
// open; what it answers was read after the write. No pool is made full: only what it
// owes beyond its burst can be cleared. Each request is logged with its
// caller's ARN, refusals too. Logs and audit hold no e-mail address.
//
// Trusted: the policy, the store, and requestContext in the gateway's event, which
// says who has signed the request. No header says so: the copy of the context that
// a client may send as a header is not looked at.
package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/tokenfuse/tokenfuse/internal/bearer"
	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Config is what a Handler works with.
type Config struct {
	Policy  *policy.Policy
	Buckets *bucket.Buckets
	Pools   map[string]*bucket.Pool // by name in the policy
	// Emails gives the index of e-mail addresses, which needs a secret. Nil: users cannot
	// be named by e-mail address.
	Emails func(context.Context) (*emails.Index, error)
	Fuse   *fuse.Writer
	Audit  *Audit
	Spend  Spend
	// Denials gives how many calls were denied from one time to another, by limit or by the
	// error's code. Nil: nobody knows.
	Denials func(ctx context.Context, from, to time.Time) (map[string]int64, error)
	Apart   bool // Denials knows those of this process alone
	// Keys let administrators in, in place of IAM's identities. Nil: those do.
	Keys  *bearer.Ring[string]
	DB    DynamoDB // and its table Limits: for the alarm's item
	Table string
	Log   *slog.Logger
	Now   func() time.Time
}

// Spend is the part of *ledger.Ledger that a Handler uses.
type Spend interface {
	Sum(ctx context.Context, from, to time.Time) (ledger.Summary, error)
}

// Handler serves the /admin routes.
type Handler struct {
	Config
	routes map[string]map[string]route // by path, by method
}

type route func(*Handler, http.ResponseWriter, *request) *openai.Error

// request is a request of an administrator.
type request struct {
	*http.Request
	arn string // of the caller; key:NAME of one with a key; "": nobody knows
	log *slog.Logger
}

// New makes a Handler.
func New(cfg Config) *Handler {
	return &Handler{cfg, map[string]map[string]route{
		"/admin/limits/clear": {http.MethodPost: (*Handler).clear},
		"/admin/limits":       {http.MethodGet: (*Handler).limits},
		"/admin/block":        {http.MethodPost: (*Handler).block},
		"/admin/unblock":      {http.MethodPost: (*Handler).unblock},
		"/admin/status":       {http.MethodGet: (*Handler).status},
		"/admin/audit":        {http.MethodGet: (*Handler).changes},
		"/admin/fuse":         {http.MethodGet: (*Handler).showFuse, http.MethodPut: (*Handler).setFuse},
	}}
}

// Lambda adapts h to a Lambda handler for REST API proxy events with IAM
// authorization. Every event is answered.
func Lambda(h *Handler) func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
	adapter := httpadapter.New(h)
	return func(ctx context.Context, e events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error) {
		// The adapter would take a '?' of the path for the query, and fail at a '%'.
		e.Path = lambdahttp.Path(&e)
		res, err := adapter.ProxyWithContext(ctx, e)
		if err == nil {
			return res, nil
		}
		// An event that is no request, as of a method with a blank, is the caller's fault.
		h.Log.Warn("admin request", "request_id", e.RequestContext.RequestID, "outcome", openai.InvalidJSON)
		w := core.NewProxyResponseWriter()
		w.Header().Set("X-Request-Id", e.RequestContext.RequestID)
		w.Header().Set("Cache-Control", "no-store")
		openai.Errorf(openai.InvalidJSON, "", "The request could not be read.").Write(w)
		return w.GetProxyResponse()
	}
}

// ServeHTTP answers a request. Without the gateway's context it is refused.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start, gateway := h.Now(), gatewayContext(r)
	id, caller := gateway.RequestID, gateway.Identity.UserArn
	if id == "" {
		id = rand.Text()
	}
	if h.Keys != nil {
		caller, _ = h.Keys.Of(r.Header)
	}
	req := &request{r, caller, h.Log.With("request_id", id, "arn", caller)}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("Cache-Control", "no-store")

	outcome := "answered"
	defer func() {
		level := slog.LevelInfo
		if outcome != "answered" {
			level = slog.LevelWarn
		}
		req.log.Log(r.Context(), level, "admin request", "method", lambdahttp.KnownMethod(r.Method), "path", h.shown(r), "outcome", outcome,
			"ms", h.Now().Sub(start).Milliseconds())
	}()
	defer func() {
		if v := recover(); v != nil {
			req.log.Error("panic", "value", fmt.Sprint(v), "stack", string(debug.Stack()))
			outcome = string(openai.InternalError)
			openai.Errorf(openai.InternalError, "", "Something went wrong on our side. Look for request_id %s in the log.", id).Write(w)
		}
	}()
	if err := h.route(w, req); err != nil {
		outcome = string(err.Code)
		err.Write(w)
	}
}

// shown is the path of a request as the log has it: a route, or that it is none. What a
// caller chose would be as long as the caller likes.
func (h *Handler) shown(r *http.Request) string {
	if _, known := h.routes[r.URL.EscapedPath()]; known {
		return r.URL.Path
	}
	return "other"
}

// gatewayContext is what API Gateway itself says of a request, empty if it did not
// come from there.
func gatewayContext(r *http.Request) events.APIGatewayProxyRequestContext {
	c, _ := core.GetAPIGatewayContextFromContext(r.Context())
	return c
}

// route checks route, method and caller, and passes on.
func (h *Handler) route(w http.ResponseWriter, r *request) *openai.Error {
	// As it was sent: IAM policies name paths, so another spelling of one must not do.
	methods, known := h.routes[r.URL.EscapedPath()]
	serve := methods[r.Method]
	if !known {
		return openai.Errorf(openai.NotFound, "", "There is nothing at this address: the routes must be one of %s.", strings.Join(slices.Sorted(maps.Keys(h.routes)), ", "))
	}
	if serve == nil {
		allowed := strings.Join(slices.Sorted(maps.Keys(methods)), ", ")
		w.Header().Set("Allow", allowed)
		return openai.Errorf(openai.MethodNotAllowed, "", "The method must be %s.", allowed)
	}
	if err := h.authorize(r); err != nil {
		return err
	}
	done, err := h.admit(r)
	if err != nil {
		return err
	}
	defer done()
	return serve(h, w, r)
}
