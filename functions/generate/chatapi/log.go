package chatapi

import (
	"context"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/trace"
)

// outcomeAnswered is that of a request that got what it asked for.
const outcomeAnswered = "answered"

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
	streaming form                 // of an answer that has begun as a stream; nil: it has not
	start     time.Time
	limit     string        // that denied
	asking    time.Duration // how long the admission took: store and pools
	calling   time.Duration // how long the provider took; 0: it was not called
	overran   string        // the model that ignored its output cap
	unusable  bool          // the model cannot be called: its key, its name or its address is wrong
	trace     trace.Context
	asked     *asked // nil: no model was
}

func (e *entry) identify(id identity) { e.identity, e.known = id, true }

// taken tells what an admitted call has taken from its caller.
func (e *entry) taken() string { return taken(e.admission.Call.Offer, e.bill) }

func (e *entry) log(ctx context.Context, method, path string, now time.Time) {
	attrs := append(make([]slog.Attr, 0, 24), // as many as a line can have
		slog.String("method", method), slog.String("path", path), slog.String("outcome", e.outcome),
		slog.Int64("ms", now.Sub(e.start).Milliseconds()))
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
		if call := e.admission.Call; len(call.Tools)+call.Images() > 0 {
			attrs = append(attrs, slog.Int("tools", len(call.Tools)), slog.Int("images", call.Images()))
		}
	}
	logger(ctx).LogAttrs(ctx, slog.LevelInfo, "request", e.span(attrs)...)
}

// metrics are what CloudWatch shows of a request: few dimensions, no ids. version is the
// function's; "" leaves out what is told by it.
func (e *entry) metrics(version string) []emf.Group {
	var offer, all, denied, refused, release, overran emf.Group
	one := func(name string) []emf.Metric { return []emf.Metric{{Name: name, Unit: emf.Count, Value: 1}} }
	if e.feature != "" {
		offer.Dimensions = []emf.Dimension{{Name: "Feature", Value: e.feature}, {Name: "Tier", Value: e.identity.Tier.Name}}
	}
	if e.asking > 0 {
		offer.Metrics = append(offer.Metrics, emf.Metric{Name: "AdmissionLatency", Unit: emf.Milliseconds, Value: milliseconds(e.asking)})
	}
	if e.overran != "" {
		overran = emf.Group{Dimensions: []emf.Dimension{{Name: "Model", Value: e.overran}}, Metrics: one("OutputCapIgnored")}
	}
	switch {
	case e.admission != nil:
		failed := emf.Metric{Name: "ProviderFailed", Unit: emf.Count, Value: oneIf(e.outcome == string(openai.ProviderError) || e.outcome == string(openai.ProviderTimeout))}
		offer.Metrics = append(append(offer.Metrics, one("Admitted")...),
			emf.Metric{Name: "ReservedUSD", Unit: emf.None, Value: dollars(e.admission.Call.Worst.Money)},
			emf.Metric{Name: "SettledUSD", Unit: emf.None, Value: dollars(e.bill.Cost)},
			emf.Metric{Name: "ProviderLatency", Unit: emf.Milliseconds, Value: milliseconds(e.calling)}, failed)
		all.Metrics = []emf.Metric{failed} // of all features together, for an alarm
	case e.outcome == outcomeAnswered:
	case e.outcome == string(openai.ChallengeRequired) && e.feature != "":
		offer.Metrics = append(offer.Metrics, one("Challenged")...)
	case e.limit != "":
		denied = emf.Group{Dimensions: []emf.Dimension{{Name: "Limit", Value: e.limit}}, Metrics: one("Denied")}
	case e.outcome == string(openai.SpendCeilingReached), e.outcome == string(openai.FuseOpen), e.outcome == string(openai.IdentityBlocked), e.outcome == string(openai.StoreUnavailable):
		denied = emf.Group{Dimensions: []emf.Dimension{{Name: "Limit", Value: e.outcome}}, Metrics: one("Denied")}
	default:
		// Also of a request that ends before its feature is known. There are as many
		// values as codes, whatever is sent.
		refused = emf.Group{Dimensions: []emf.Dimension{{Name: "Code", Value: e.outcome}}, Metrics: one("Refused")}
	}
	// A share, so 0 is told, too: of the calls that got as far as a model, and of those
	// that met a fault of ours on the way. What is refused rightly says nothing about a release.
	if version != "" && (e.admission != nil || e.ours()) {
		release = emf.Group{Dimensions: []emf.Dimension{{Name: "Version", Value: version}}, Metrics: []emf.Metric{{Name: "Failed", Unit: emf.Count, Value: oneIf(e.ours())}}}
	}
	return []emf.Group{offer, all, denied, refused, release, overran}
}

// ours reports whether a request failed for a reason that another release can have
// brought: a fault of the function, or a model that takes nobody's calls.
func (e *entry) ours() bool { return e.outcome == string(openai.InternalError) || e.unusable }

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
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
