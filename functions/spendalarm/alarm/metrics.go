package alarm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/emf"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// metricsTimeout bounds the reading of pools and the put together.
const metricsTimeout = 15 * time.Second

// measure puts the metrics. Each is a gauge as of now: a maximum over time makes
// sense, a sum does not. Dimensions are names of the policy alone, of which there are
// few: each combination costs money.
//
//	TrailingHourDollars         all, and by Tier
//	TrailingHourCalls
//	AlarmThresholdDollars       if there is an alarm
//	AlarmLevel                  0 while spending is normal
//	PoolUsedPercent             by Pool, of what may be spent at once; at 100 calls are denied
func (h *Handler) measure(ctx context.Context, sum ledger.Summary, r Result) error {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	var gauges []Gauge
	put := func(name string, value float64, unit emf.Unit, dimension ...string) {
		g := Gauge{Name: name, Value: value, Unit: unit}
		if len(dimension) == 2 {
			g.Dimension, g.Of = dimension[0], dimension[1]
		}
		gauges = append(gauges, g)
	}
	put("TrailingHourDollars", inDollars(sum.Total.Cost), emf.None)
	for _, tier := range slices.Sorted(maps.Keys(h.Policy.Tiers)) {
		put("TrailingHourDollars", inDollars(sum.Tiers[tier].Cost), emf.None, "Tier", tier)
	}
	put("TrailingHourCalls", float64(sum.Total.Calls), emf.Count)
	if r.threshold > 0 {
		put("AlarmThresholdDollars", inDollars(r.threshold), emf.None)
		put("AlarmLevel", float64(r.Level), emf.None)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(h.pools)) {
		used, err := h.pools[name].Refresh(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading pool %s: %w", name, err))
			continue
		}
		put("PoolUsedPercent", 100*used, emf.Percent, "Pool", name)
	}
	if err := h.Metrics.Put(ctx, r.Time, gauges); err != nil {
		errs = append(errs, fmt.Errorf("putting the metrics: %w", err))
	}
	return errors.Join(errs...)
}

func inDollars(p price.Pico) float64 { return float64(p) / float64(price.Dollar) }
