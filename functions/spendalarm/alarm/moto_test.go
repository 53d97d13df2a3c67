//go:build moto

package alarm

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/schemas"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go/transport/http/protocol/awsjson"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/mototest"
)

// moto is SNS, SQS and CloudWatch as others wrote them, in a process of their own.
type moto struct {
	sns        *sns.Client
	sqs        *sqs.Client
	cloudwatch *cloudwatch.Client
}

func startMoto(t *testing.T) moto {
	t.Helper()
	url := mototest.Start(t)
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &url, Credentials: engine.Credentials,
		RequestMinCompressSizeBytes: 10240} // config's default; moto unzips twice
	return moto{
		sns: sns.NewFromConfig(cfg),
		sqs: sqs.NewFromConfig(cfg),
		// moto does not read the CBOR that the client writes by default. CloudWatch takes
		// JSON, too, and so do both of these. (What reads CBOR is local/inbox.)
		cloudwatch: cloudwatch.NewFromConfig(cfg, func(o *cloudwatch.Options) {
			o.Protocol = awsjson.New10(schemas.GraniteServiceVersion20100801)
		}),
	}
}

// notification is what SNS puts into a queue.
type notification struct {
	Type, TopicArn, Subject, Message string
	MessageAttributes                map[string]struct{ Type, Value string }
}

// topic makes a topic, and a queue that gets what is published to it.
func (m moto) topic(t *testing.T, name string) (arn, queue string) {
	t.Helper()
	topic, err := m.sns.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: &name})
	check.OK(t, err)
	made, err := m.sqs.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name})
	check.OK(t, err)
	is, err := m.sqs.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: made.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{sqstypes.QueueAttributeNameQueueArn}})
	check.OK(t, err)
	_, err = m.sns.Subscribe(t.Context(), &sns.SubscribeInput{TopicArn: topic.TopicArn, Protocol: aws.String("sqs"),
		Endpoint: aws.String(is.Attributes[string(sqstypes.QueueAttributeNameQueueArn)])})
	check.OK(t, err)
	return *topic.TopicArn, *made.QueueUrl
}

// received takes what is in a queue.
func (m moto) received(t *testing.T, queue string) []notification {
	t.Helper()
	out, err := m.sqs.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10})
	check.OK(t, err)
	all := make([]notification, len(out.Messages))
	for i, message := range out.Messages {
		if err := json.Unmarshal([]byte(*message.Body), &all[i]); err != nil {
			t.Fatalf("%v: %s", err, *message.Body)
		}
		if _, err := m.sqs.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &queue, ReceiptHandle: message.ReceiptHandle}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// metrics are the greatest values that were put within the minute from noon, by name
// and dimensions.
func (m moto) metrics(t *testing.T, namespace string) map[string]float64 {
	t.Helper()
	all, err := m.cloudwatch.ListMetrics(t.Context(), &cloudwatch.ListMetricsInput{Namespace: &namespace})
	check.OK(t, err)
	values := map[string]float64{}
	for _, metric := range all.Metrics {
		name := *metric.MetricName
		for _, d := range metric.Dimensions {
			name += " " + *d.Name + "=" + *d.Value
		}
		out, err := m.cloudwatch.GetMetricData(t.Context(), &cloudwatch.GetMetricDataInput{
			StartTime: &noon, EndTime: aws.Time(noon.Add(time.Minute)),
			MetricDataQueries: []cwtypes.MetricDataQuery{{Id: aws.String("one"), MetricStat: &cwtypes.MetricStat{
				// moto answers a metric without dimensions from those with, too: of ours it is the
				// greatest.
				Metric: &metric, Period: aws.Int32(60), Stat: aws.String("Maximum")}}},
		})
		check.OK(t, err)
		check.Must(t, len(out.MetricDataResults) == 1 && len(out.MetricDataResults[0].Values) == 1, "%s: not one value: %+v", name, out.MetricDataResults)
		values[name] = math.Round(out.MetricDataResults[0].Values[0]*1e9) / 1e9
	}
	return values
}

func TestMoto(t *testing.T) {
	t.Parallel()
	m := startMoto(t)
	t.Run("page and metrics", func(t *testing.T) {
		t.Parallel()
		arn, queue := m.topic(t, "page")
		g := beforeIncident(t)
		g.handler.SNS, g.handler.TopicARN, g.handler.CloudWatch = m.sns, arn, m.cloudwatch
		g.commit(price.Dollar)
		r := g.tick()
		g.at(5)
		g.tick() // tells nobody again

		pages := m.received(t, queue)
		check.Must(t, len(pages) == 1, "%d pages", len(pages))
		page := pages[0]
		check.That(t, page.Type == "Notification" && page.TopicArn == arn, "%s of %s", page.Type, page.TopicArn)
		wantMessage(t, page.Subject, page.Message)
		types, attributes := map[string]string{}, map[string]string{}
		for name, a := range page.MessageAttributes {
			types[name], attributes[name] = a.Type, a.Value
		}
		wantAttributes(t, attributes, r)
		// Of these a subscription can filter by comparing numbers.
		if diff := cmp.Diff(map[string]string{"event": "String", "level": "Number", "spend_usd": "Number", "threshold_usd": "Number", "report": "String"}, types); diff != "" {
			t.Error(diff)
		}

		want := map[string]float64{
			"TrailingHourDollars": 12.4, "TrailingHourDollars Tier=anonymous": 11.37, "TrailingHourDollars Tier=user": 1.03,
			"TrailingHourCalls": 6, "AlarmThresholdDollars": 7.6, "AlarmLevel": 1, "PoolUsedPercent Pool=all": 20,
		}
		if diff := cmp.Diff(want, m.metrics(t, "tokenfuse")); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("topic that does not exist", func(t *testing.T) {
		t.Parallel()
		const name = "forgotten"
		g := beforeIncident(t)
		g.handler.SNS, g.handler.CloudWatch, g.handler.Namespace = m.sns, m.cloudwatch, name
		g.handler.TopicARN = "arn:aws:sns:us-east-1:123456789012:" + name
		r, err := g.handler.Run(context.Background())
		missing := new(snstypes.NotFoundException)
		check.That(t, errors.As(err, &missing) && r.Paged == "" && r.State == "alarm", "%+v, %v", r, err)
		arn, queue := m.topic(t, name)
		check.Must(t, arn == g.handler.TopicARN, "the topic is %s", arn)
		g.at(5)
		if r := g.tick(); r.Paged != "opened" || !r.Since.Equal(noon) {
			t.Errorf("%+v", r)
		}
		pages := m.received(t, queue)
		check.That(t, len(pages) == 1 && pages[0].MessageAttributes["event"].Value == "opened", "%+v", pages)
	})
}
