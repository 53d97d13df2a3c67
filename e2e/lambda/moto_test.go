//go:build moto

package lambda

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/mototest"
)

// startMoto starts services of AWS as others wrote them.
func startMoto(t *testing.T) aws.Config {
	t.Helper()
	url := mototest.Start(t)
	return aws.Config{Region: "us-east-1", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider("AKIALOCAL", "local", "")}
}

// A page that the program publishes arrives where somebody has subscribed.
func TestPageArrives(t *testing.T) {
	t.Parallel()
	cfg := startMoto(t)
	topics, queues := sns.NewFromConfig(cfg), sqs.NewFromConfig(cfg)
	topic, err := topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("pages")})
	check.OK(t, err)
	queue, err := queues.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("pager")})
	check.OK(t, err)
	made, err := queues.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue.QueueUrl,
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	check.OK(t, err)
	if _, err := topics.Subscribe(t.Context(), &sns.SubscribeInput{TopicArn: topic.TopicArn, Protocol: aws.String("sqs"),
		Endpoint: aws.String(made.Attributes["QueueArn"])}); err != nil {
		t.Fatal(err)
	}

	g := newRig(t)
	a := whole(t, g.ask(g.warm("generate"), g.token("ann"), chat("ask", question, false), timeout))
	check.Must(t, a.status == 200, "%d %s", a.status, a.body)
	r, failure := tick(t, g.warm("spendalarm", "AWS_ENDPOINT_URL_SNS="+*cfg.BaseEndpoint, "TOPIC_ARN="+*topic.TopicArn))
	check.Must(t, failure == nil && r["paged"] == "opened", "%v, %v", r, failure)
	got, err := queues.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, WaitTimeSeconds: 10})
	check.Must(t, err == nil && len(got.Messages) == 1, "%v, %v", got, err)
	var page struct{ TopicArn, Subject, Message string }
	check.OK(t, json.Unmarshal([]byte(*got.Messages[0].Body), &page))
	check.That(t, page.TopicArn == *topic.TopicArn && strings.HasPrefix(page.Subject, "tokenfuse ALARM") && strings.Contains(page.Message, "user#ann"), "%+v", page)
}

// Secrets are read where the configuration says.
func TestSecretsOfMoto(t *testing.T) {
	t.Parallel()
	cfg := startMoto(t)
	if _, err := ssm.NewFromConfig(cfg).PutParameter(t.Context(), &ssm.PutParameterInput{Name: aws.String("/app/model-key"),
		Value: aws.String(modelKey), Type: ssmtypes.ParameterTypeSecureString}); err != nil {
		t.Fatal(err)
	}
	if _, err := secretsmanager.NewFromConfig(cfg).CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{Name: aws.String("app/fingerprint"),
		SecretString: aws.String(fingerprintSecret)}); err != nil {
		t.Fatal(err)
	}
	g := newRig(t, func(g *rig) {
		g.edit = func(yaml string) string {
			return strings.NewReplacer("{env: MODEL_KEY}", "{ssm: /app/model-key}", "{env: FINGERPRINT_SECRET}", "{secret: app/fingerprint}").Replace(yaml)
		}
	})
	g.env = append(g.env, "AWS_ENDPOINT_URL_SSM="+*cfg.BaseEndpoint, "AWS_ENDPOINT_URL_SECRETS_MANAGER="+*cfg.BaseEndpoint)
	for range 2 { // two instances tell callers apart by the same secret
		a := whole(t, g.ask(g.warm("generate"), "", chat("ask", question, false), timeout))
		check.Must(t, a.status == 200, "%d %s", a.status, a.body)
	}
	top := g.spent().Top
	check.That(t, len(top) == 1 && top[0].Calls == 2, "%+v", top)
}
