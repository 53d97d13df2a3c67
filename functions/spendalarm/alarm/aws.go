package alarm

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/tokenfuse/tokenfuse/internal/awsjson"
	"github.com/tokenfuse/tokenfuse/internal/emf"
)

// tries is how often a page or the metrics are sent in one run: the next one is soon.
const tries = 3

// Topic is a topic of SNS, which takes pages.
type Topic struct {
	aws awsjson.Client
	arn string
}

// NewTopic makes a Topic that is reached with cfg.
func NewTopic(cfg aws.Config, arn string) Topic { return Topic{bounded(cfg), arn} }

func bounded(cfg aws.Config) awsjson.Client {
	cfg.RetryMaxAttempts = cmp.Or(cfg.RetryMaxAttempts, tries)
	return awsjson.New(cfg)
}

// Publish publishes a page. An attribute that is a number is one for subscriptions, too.
func (t Topic) Publish(ctx context.Context, subject, message string, attributes map[string]string) error {
	form := url.Values{"TopicArn": {t.arn}, "Subject": {subject}, "Message": {message}}
	for i, name := range slices.Sorted(maps.Keys(attributes)) {
		kind := "String"
		if _, err := strconv.ParseFloat(attributes[name], 64); err == nil {
			kind = "Number"
		}
		entry := fmt.Sprintf("MessageAttributes.entry.%d.", i+1)
		form.Set(entry+"Name", name)
		form.Set(entry+"Value.DataType", kind)
		form.Set(entry+"Value.StringValue", attributes[name])
	}
	if _, err := t.aws.Post(ctx, awsjson.Service{Host: "sns", ID: "SNS", Version: "2010-03-31"}, "Publish", form); err != nil {
		return fmt.Errorf("SNS, Publish: %w", err)
	}
	return nil
}

// CloudWatch takes metrics.
type CloudWatch struct {
	aws       awsjson.Client
	namespace string
}

// NewCloudWatch makes a CloudWatch that is reached with cfg, for a namespace.
func NewCloudWatch(cfg aws.Config, namespace string) CloudWatch {
	return CloudWatch{bounded(cfg), namespace}
}

// Put puts metrics as of a time.
func (c CloudWatch) Put(ctx context.Context, at time.Time, gauges []Gauge) error {
	type dimension struct{ Name, Value string }
	type datum struct {
		MetricName string
		Value      float64
		Unit       emf.Unit
		Timestamp  int64
		Dimensions []dimension `json:",omitempty"`
	}
	data := make([]datum, len(gauges))
	for i, g := range gauges {
		data[i] = datum{MetricName: g.Name, Value: g.Value, Unit: g.Unit, Timestamp: at.Unix()}
		if g.Dimension != "" {
			data[i].Dimensions = []dimension{{g.Dimension, g.Of}}
		}
	}
	in := map[string]any{"Namespace": c.namespace, "MetricData": data}
	if _, err := c.aws.Ask(ctx, awsjson.Service{Host: "monitoring", ID: "CloudWatch", Version: "1.0"}, "GraniteServiceVersion20100801.PutMetricData", in, &struct{}{}); err != nil {
		return fmt.Errorf("CloudWatch, PutMetricData: %w", err)
	}
	return nil
}
