package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cwtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func serve(t *testing.T) (box *Inbox, url string) {
	t.Helper()
	box = New(func() time.Time { return noon })
	server := httptest.NewServer(box)
	t.Cleanup(server.Close)
	return box, server.URL
}

func credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
}

func snsClient(url string) *sns.Client {
	return sns.New(sns.Options{BaseEndpoint: &url, Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(credentials)})
}

func cloudwatchClient(url string) *cloudwatch.Client {
	return cloudwatch.New(cloudwatch.Options{BaseEndpoint: &url, Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(credentials)})
}

func TestPublishWithTheOfficialClient(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	out, err := snsClient(url).Publish(context.Background(), &sns.PublishInput{
		TopicArn: aws.String("arn:aws:sns:us-east-1:123456789012:alarm"), Subject: aws.String("Money & more"), Message: aws.String("line 1\nline 2 ünï"),
		MessageAttributes: map[string]snstypes.MessageAttributeValue{
			"event":  {DataType: aws.String("String"), StringValue: aws.String("opened")},
			"number": {DataType: aws.String("Number"), StringValue: aws.String("12.5")},
		},
	})
	check.OK(t, err)
	check.That(t, aws.ToString(out.MessageId) != "", "no message id")
	want := []Message{{noon, "Money & more", "line 1\nline 2 ünï", map[string]string{"event": "opened", "number": "12.5"}}}
	if diff := cmp.Diff(want, shown(t, url).SNS); diff != "" {
		t.Error(diff)
	}
}

func TestPublishRefusesAsTheServiceDoes(t *testing.T) {
	t.Parallel()
	box, url := serve(t)
	topic := "arn:aws:sns:us-east-1:123456789012:alarm"
	for name, in := range map[string]sns.PublishInput{
		"no topic":             {Subject: aws.String("s"), Message: aws.String("m")},
		"subject of 101":       {TopicArn: &topic, Subject: aws.String(strings.Repeat("s", 101)), Message: aws.String("m")},
		"subject not in ASCII": {TopicArn: &topic, Subject: aws.String("Geldbörse"), Message: aws.String("m")},
		"subject of two lines": {TopicArn: &topic, Subject: aws.String("a\nb"), Message: aws.String("m")},
		"no message":           {TopicArn: &topic, Subject: aws.String("s"), Message: aws.String("")},
		"message too long":     {TopicArn: &topic, Subject: aws.String("s"), Message: aws.String(strings.Repeat("m", maxMessage+1))},
	} {
		_, err := snsClient(url).Publish(context.Background(), &in)
		var invalid *snstypes.InvalidParameterException
		check.That(t, errors.As(err, &invalid), "%s: %v", name, err)
	}
	check.That(t, len(box.Messages()) == 0, "%d messages were kept", len(box.Messages()))
	in := sns.PublishInput{TopicArn: &topic, Subject: aws.String(strings.Repeat("s", 100)), Message: aws.String("m")}
	if _, err := snsClient(url).Publish(context.Background(), &in); err != nil {
		t.Errorf("a subject of 100: %v", err)
	}
	_, err := snsClient(url).ListTopics(context.Background(), &sns.ListTopicsInput{})
	var unknown smithy.APIError
	check.That(t, errors.As(err, &unknown) && unknown.ErrorCode() == "InvalidAction", "another action: %v", err)
}

func TestPutMetricDataWithTheOfficialClient(t *testing.T) {
	t.Parallel()
	_, url := serve(t)
	data := []cwtypes.MetricDatum{
		{MetricName: aws.String("Dollars"), Value: aws.Float64(12.25), Unit: cwtypes.StandardUnitNone,
			Dimensions: []cwtypes.Dimension{{Name: aws.String("Tier"), Value: aws.String("anonymous")}}},
		{MetricName: aws.String("Calls"), Value: aws.Float64(3), Unit: cwtypes.StandardUnitCount},
	}
	_, err := cloudwatchClient(url).PutMetricData(context.Background(), &cloudwatch.PutMetricDataInput{Namespace: aws.String("tokenfuse"), MetricData: data})
	check.OK(t, err)
	want := []Metric{
		{noon, "tokenfuse", "Dollars", 12.25, "None", map[string]string{"Tier": "anonymous"}},
		{noon, "tokenfuse", "Calls", 3, "Count", map[string]string{}},
	}
	if diff := cmp.Diff(want, shown(t, url).Metrics); diff != "" {
		t.Error(diff)
	}

	// So many that the client compresses them, and more than are kept.
	var many []cwtypes.MetricDatum
	for i := range keep {
		many = append(many, cwtypes.MetricDatum{MetricName: aws.String(fmt.Sprint("m", i)), Value: aws.Float64(0)})
	}
	if _, err := cloudwatchClient(url).PutMetricData(context.Background(), &cloudwatch.PutMetricDataInput{Namespace: aws.String("tokenfuse"), MetricData: many}); err != nil {
		t.Fatal(err)
	}
	got := shown(t, url).Metrics
	check.That(t, len(got) == keep && got[0].Name == "m0", "%d metrics, the first %s", len(got), got[0].Name)
}

func TestPutMetricDataRefuses(t *testing.T) {
	t.Parallel()
	box, url := serve(t)
	_, err := cloudwatchClient(url).PutMetricData(context.Background(), &cloudwatch.PutMetricDataInput{
		Namespace: aws.String("tokenfuse"), MetricData: []cwtypes.MetricDatum{{MetricName: aws.String("NoValue")}}})
	var refused smithy.APIError
	check.That(t, errors.As(err, &refused) && refused.ErrorCode() == "InvalidParameterValueException", "error %v", err)
	for _, body := range []string{"", "nonsense", "\xa0", "\xff"} {
		res, err := http.Post(url+"/service/GraniteServiceVersion20100801/operation/PutMetricData", "application/cbor", strings.NewReader(body))
		check.OK(t, err)
		res.Body.Close()
		check.Equal(t, res.StatusCode, http.StatusBadRequest, "%q: status", body)
	}
	if len(box.Metrics()) > 0 {
		t.Errorf("%d metrics were kept", len(box.Metrics()))
	}
}

func TestEmptyInbox(t *testing.T) {
	t.Parallel()
	box, _ := serve(t)
	w := httptest.NewRecorder()
	box.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/dev/inbox", nil))
	if got, want := strings.TrimSpace(w.Body.String()), `{"sns":[],"metrics":[]}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

type contents struct {
	SNS     []Message
	Metrics []Metric
}

func shown(t *testing.T, url string) contents {
	t.Helper()
	res, err := http.Get(url + "/dev/inbox")
	check.OK(t, err)
	defer res.Body.Close()
	var c contents
	check.OK(t, json.NewDecoder(res.Body).Decode(&c))
	return c
}
