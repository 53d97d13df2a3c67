package handler

import (
	"context"
	"log/slog"
	"time"
)

// entry is what the log says of a request when it has ended: never prompt or
// answer text.
type entry struct {
	identity  identity
	known     bool
	feature   string
	outcome   string // answered, or the code of an error
	reserved  amount
	settled   bill
	streaming bool // the answer has begun as a stream
	start     time.Time
}

func (e *entry) identify(id identity) { e.identity, e.known = id, true }

func (e *entry) log(ctx context.Context, method, path string, now time.Time) {
	attrs := []slog.Attr{
		slog.String("method", method), slog.String("path", path), slog.String("outcome", e.outcome),
		slog.Int64("ms", now.Sub(e.start).Milliseconds()),
	}
	if e.known {
		attrs = append(attrs, slog.String("identity", e.identity.key()), slog.String("tier", e.identity.tier.Name))
	}
	if e.feature != "" {
		attrs = append(attrs, slog.String("feature", e.feature))
	}
	if e.reserved.tokens > 0 {
		attrs = append(attrs,
			slog.Group("reserved", slog.Int64("tokens", e.reserved.tokens), slog.String("usd", e.reserved.money.String())),
			slog.Group("settled", slog.Int64("tokens", e.settled.caller.tokens), slog.String("usd", e.settled.caller.money.String())))
	}
	logger(ctx).LogAttrs(ctx, slog.LevelInfo, "request", attrs...)
}

type loggerKey struct{}

// logger is the request's logger, which names the request in each line.
func logger(ctx context.Context) *slog.Logger {
	if l, ok := ctx.Value(loggerKey{}).(*slog.Logger); ok {
		return l
	}
	return slog.Default()
}
