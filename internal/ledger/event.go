package ledger

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Outcome says how a provider call ended.
type Outcome string

const (
	Completed Outcome = "completed" // the caller got an answer
	Failed    Outcome = "failed"    // the provider or we failed
	Left      Outcome = "left"      // the caller left or stalled
	Abandoned Outcome = "abandoned" // nobody knows: the process died
)

// Event is one priced provider call. It never holds prompt or answer text.
type Event struct {
	Reservation string    // id
	Time        time.Time // of the reservation; the ledger keeps its microseconds
	Identity    string    // key
	Tier        string    // empty when abandoned
	Feature     string
	Model       string
	Usage       price.Usage
	Cost        price.Pico
	Outcome     Outcome
	// Estimated: Usage and Cost are not what the provider reported, but the worst
	// case or, where that is more, what was seen.
	Estimated bool
	// ProviderRequest is what the provider calls the request, by which it finds the call: up
	// to 128 bytes, "" if it said nothing. It is kept beside the line, which sums read.
	ProviderRequest string
}

// validate refuses what the table cannot hold or a sum must not.
func (e Event) validate() error {
	switch year := e.Time.UTC().Year(); {
	case e.Reservation == "" || len(e.Reservation) > 1024: // a sort key's bounds
		return errors.New("ledger: Event.Reservation must be 1 to 1024 bytes")
	case e.Identity == "":
		return errors.New("ledger: Event.Identity is empty")
	case year < 1970 || year > 9999:
		return errors.New("ledger: Event.Time is not between 1970 and 9999")
	case len(e.ProviderRequest) > 128:
		return errors.New("ledger: Event.ProviderRequest has more than 128 bytes")
	case e.Cost < 0:
		return errors.New("ledger: Event.Cost is negative")
	}
	return nil
}

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("reservation", e.Reservation),
		slog.Time("time", e.Time.UTC()),
		slog.String("identity", e.Identity),
		slog.String("tier", e.Tier),
		slog.String("feature", e.Feature),
		slog.String("model", e.Model),
		slog.Int64("input", e.Usage.Input),
		slog.Int64("cached_input", e.Usage.CachedInput),
		slog.Int64("cache_write", e.Usage.CacheWrite),
		slog.Int64("output", e.Usage.Output),
		slog.Int64("reasoning", e.Usage.Reasoning),
		slog.Int64("pico_dollars", int64(e.Cost)),
		slog.String("outcome", string(e.Outcome)),
		slog.Bool("estimated", e.Estimated),
	}
	if e.ProviderRequest != "" {
		attrs = append(attrs, slog.String("provider_request_id", e.ProviderRequest))
	}
	return slog.GroupValue(attrs...)
}
