package chatapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// entry is what the log says of a request when it has ended: never prompt or
// answer text.
type entry struct {
	identity  identity
	known     bool
	feature   string
	admission *admission.Admission // nil: the call was not admitted
	outcome   string               // answered, or the code of an error
	reason    string               // of a 401: one of auth's
	bill      admission.Bill       // what it came to
	streaming bool                 // the answer has begun as a stream
	start     time.Time
	limit     string        // that denied
	asking    time.Duration // how long the admission took: store and pools
	calling   time.Duration // how long the provider took; 0: it was not called
	overran   string        // the model that ignored its output cap
}

func (e *entry) identify(id identity) { e.identity, e.known = id, true }

// taken tells what an admitted call has taken from its caller.
func (e *entry) taken() string { return taken(e.admission.Call.Offer, e.bill) }

func (e *entry) log(ctx context.Context, method, path string, now time.Time) {
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("path", path), slog.String("outcome", e.outcome),
		slog.Int64("ms", now.Sub(e.start).Milliseconds()),
	}
	if e.reason != "" {
		attrs = append(attrs, slog.String("reason", e.reason))
	}
	if e.known {
		attrs = append(attrs, slog.String("identity", e.identity.Key()), slog.String("tier", e.identity.Tier.Name))
	}
	if e.feature != "" {
		attrs = append(attrs, slog.String("feature", e.feature))
	}
	if e.admission != nil {
		reserved, used := e.admission.Call.Worst, e.bill.Caller
		attrs = append(attrs,
			slog.Group("reserved", slog.Int64("tokens", reserved.Tokens), slog.String("usd", reserved.Money.String())),
			slog.Group("settled", slog.Int64("tokens", used.Tokens), slog.String("usd", used.Money.String())))
	}
	logger(ctx).LogAttrs(ctx, slog.LevelInfo, "request", attrs...)
}

// metrics are what CloudWatch shows of a chat request: few dimensions, no ids.
func (e *entry) metrics() []emf.Group {
	if e.feature == "" {
		return nil
	}
	offer := emf.Group{Dimensions: []emf.Dimension{{Name: "Feature", Value: e.feature}, {Name: "Tier", Value: e.identity.Tier.Name}}}
	add := func(name string, unit emf.Unit, value float64) {
		offer.Metrics = append(offer.Metrics, emf.Metric{Name: name, Unit: unit, Value: value})
	}
	if e.asking > 0 {
		add("AdmissionLatency", emf.Milliseconds, milliseconds(e.asking))
	}
	var denied, overran emf.Group
	if e.overran != "" {
		overran = emf.Group{Dimensions: []emf.Dimension{{Name: "Model", Value: e.overran}}, Metrics: []emf.Metric{{Name: "OutputCapIgnored", Unit: emf.Count, Value: 1}}}
	}
	switch {
	case e.admission != nil:
		add("Admitted", emf.Count, 1)
		add("ReservedUSD", emf.None, dollars(e.admission.Call.Worst.Money))
		add("SettledUSD", emf.None, dollars(e.bill.Cost))
		add("ProviderLatency", emf.Milliseconds, milliseconds(e.calling))
		if e.outcome == string(openai.ProviderError) || e.outcome == string(openai.ProviderTimeout) {
			add("ProviderFailed", emf.Count, 1)
		}
	case e.outcome == string(openai.ChallengeRequired):
		add("Challenged", emf.Count, 1)
	case e.limit != "":
		denied = emf.Group{Dimensions: []emf.Dimension{{Name: "Limit", Value: e.limit}}, Metrics: []emf.Metric{{Name: "Denied", Unit: emf.Count, Value: 1}}}
	case e.outcome == string(openai.SpendCeilingReached), e.outcome == string(openai.FuseOpen), e.outcome == string(openai.IdentityBlocked), e.outcome == string(openai.StoreUnavailable):
		denied = emf.Group{Dimensions: []emf.Dimension{{Name: "Limit", Value: e.outcome}}, Metrics: []emf.Metric{{Name: "Denied", Unit: emf.Count, Value: 1}}}
	}
	return []emf.Group{offer, denied, overran}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// dollars is for a graph; sums of money are made of whole pico-dollars elsewhere.
func dollars(p price.Pico) float64 { return float64(p) / float64(price.Dollar) }

type loggerKey struct{}

// logger is the request's logger, which names the request in each line.
func logger(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.Default()
}
