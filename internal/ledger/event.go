// Package ledger describes what provider calls cost.
package ledger

import (
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
	Time        time.Time // of the reservation
	Identity    string    // key
	Tier        string    // empty when abandoned
	Feature     string
	Model       string
	Usage       price.Usage
	Cost        price.Pico
	Outcome     Outcome
	// Estimated: the provider reported no usage. Usage is the worst case then, and
	// Cost its price.
	Estimated bool
}

// LogValue implements slog.LogValuer.
func (e Event) LogValue() slog.Value {
	return slog.GroupValue(
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
	)
}
