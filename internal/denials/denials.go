// Package denials asks CloudWatch how many calls generate has denied. Denials leave no
// trace in a table, since they are free: they are a metric alone, which CloudWatch makes
// of the log a minute or two later.
//
// # Permissions
//
// cloudwatch:GetMetricData, which IAM cannot narrow down to a namespace.
package denials

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenfuse/tokenfuse/internal/awsjson"
)

// Reader reads the metric Denied of a namespace.
type Reader struct {
	aws       awsjson.Client
	namespace string
}

// NewReader makes a Reader that asks AWS with cfg.
func NewReader(cfg aws.Config, namespace string) *Reader { return &Reader{awsjson.New(cfg), namespace} }

var cloudWatch = awsjson.Service{Host: "monitoring", ID: "CloudWatch", Version: "1.0"}

// maxPages bounds what is read: a page has 100,000 values, and a limit 60 of an hour.
const maxPages = 5

// Count gives the denials from from to to by what denied: the name of a limit, or the
// code of an error such as fuse_open. CloudWatch has whole minutes: the first one counts
// in full.
func (r *Reader) Count(ctx context.Context, from, to time.Time) (map[string]int64, error) {
	type query struct {
		ID         string `json:"Id"`
		Expression string
		Label      string
	}
	ask := map[string]any{
		"StartTime": from.Truncate(time.Minute).Unix(), "EndTime": to.Unix(),
		"MetricDataQueries": []query{{"denied", fmt.Sprintf(`SEARCH('{"%s",Limit} MetricName="Denied"', 'Sum', 60)`, strings.NewReplacer(`"`, "", `'`, "").Replace(r.namespace)), "${PROP('Dim.Limit')}"}},
	}
	counts := map[string]int64{}
	for range maxPages {
		var page struct {
			MetricDataResults []struct {
				Label  string
				Values []float64
			}
			NextToken string
		}
		if _, err := r.aws.Ask(ctx, cloudWatch, "GraniteServiceVersion20100801.GetMetricData", ask, &page); err != nil {
			return nil, fmt.Errorf("GetMetricData: %w", err)
		}
		for _, limit := range page.MetricDataResults {
			for _, n := range limit.Values {
				counts[limit.Label] += int64(n)
			}
		}
		if page.NextToken == "" {
			return counts, nil
		}
		ask["NextToken"] = page.NextToken
	}
	return nil, fmt.Errorf("GetMetricData: more than %d pages", maxPages)
}
