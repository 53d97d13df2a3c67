package alarm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

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
	var data []types.MetricDatum
	put := func(name string, value float64, unit types.StandardUnit, dimension ...string) {
		d := types.MetricDatum{MetricName: &name, Value: &value, Unit: unit, Timestamp: &r.Time}
		if len(dimension) == 2 {
			d.Dimensions = []types.Dimension{{Name: &dimension[0], Value: &dimension[1]}}
		}
		data = append(data, d)
	}
	put("TrailingHourDollars", inDollars(sum.Total.Cost), types.StandardUnitNone)
	for _, tier := range slices.Sorted(maps.Keys(h.Policy.Tiers)) {
		put("TrailingHourDollars", inDollars(sum.Tiers[tier].Cost), types.StandardUnitNone, "Tier", tier)
	}
	put("TrailingHourCalls", float64(sum.Total.Calls), types.StandardUnitCount)
	if r.threshold > 0 {
		put("AlarmThresholdDollars", inDollars(r.threshold), types.StandardUnitNone)
		put("AlarmLevel", float64(r.Level), types.StandardUnitNone)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(h.pools)) {
		used, err := h.pools[name].Refresh(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading pool %s: %w", name, err))
			continue
		}
		put("PoolUsedPercent", 100*used, types.StandardUnitPercent, "Pool", name)
	}
	_, err := h.CloudWatch.PutMetricData(ctx, &cloudwatch.PutMetricDataInput{Namespace: aws.String(h.Namespace), MetricData: data})
	if err != nil {
		errs = append(errs, fmt.Errorf("putting the metrics: %w", err))
	}
	return errors.Join(errs...)
}

func inDollars(p price.Pico) float64 { return float64(p) / float64(price.Dollar) }
