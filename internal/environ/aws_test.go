package environ

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Each client signs as the function's role, in its region, and asks the address that
// the environment names.
func TestAWS(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	var asked *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(server.Close)
	ctx := t.Context()
	for service, ask := range map[string]func(){
		"DYNAMODB":        func() { _, _ = dynamodb.NewFromConfig(AWS()).ListTables(ctx, nil) },
		"SNS":             func() { _, _ = sns.NewFromConfig(AWS()).ListTopics(ctx, nil) },
		"CLOUDWATCH":      func() { _, _ = cloudwatch.NewFromConfig(AWS()).ListMetrics(ctx, nil) },
		"SSM":             func() { _, _ = ssm.NewFromConfig(AWS()).DescribeParameters(ctx, nil) },
		"SECRETS_MANAGER": func() { _, _ = secretsmanager.NewFromConfig(AWS()).ListSecrets(ctx, nil) },
	} {
		t.Run(service, func(t *testing.T) {
			t.Setenv("AWS_ENDPOINT_URL_"+service, server.URL)
			asked = nil
			ask()
			check.Must(t, asked != nil, "another address was asked")
			signed := asked.Header.Get("Authorization")
			check.That(t, strings.Contains(signed, "Credential=AKIATEST/") && strings.Contains(signed, "/eu-central-1/") && asked.Header.Get("X-Amz-Security-Token") == "session",
				"signed %q with token %q", signed, asked.Header.Get("X-Amz-Security-Token"))
		})
	}
}

// Without another address it is the service's own.
func TestAWSOwnAddress(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	var host string
	cfg := AWS()
	cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		host = r.URL.Host
		return &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody}, nil
	})}
	if _, _ = dynamodb.NewFromConfig(cfg).ListTables(t.Context(), nil); host != "dynamodb.eu-central-1.amazonaws.com" {
		t.Errorf("%q was asked", host)
	}
}

// A process that lives for days asks for its keys, and again before they end.
func TestAWSKeysRenew(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIASTATIC")
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		check.That(t, r.URL.Path == "/2021-04-23/credentials" && r.Header.Get("Authorization") == "the-token", "asked %s with %q", r.URL, r.Header.Get("Authorization"))
		ends := time.Now().Add(time.Hour)
		if asked == 1 {
			ends = time.Now().Add(4 * time.Minute) // within 5 minutes of its end a key is renewed
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"AccessKeyId":"AKIA%d","SecretAccessKey":"secret","Token":"session","Expiration":%q}`, asked, ends.UTC().Format(time.RFC3339))
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL+"/2021-04-23/credentials")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "the-token")
	keys := AWS().Credentials
	for _, want := range []string{"AKIA1", "AKIA2", "AKIA2"} {
		got, err := keys.Retrieve(t.Context())
		check.OK(t, err)
		check.That(t, got.AccessKeyID == want && got.SessionToken == "session", "%+v, want %s", got.AccessKeyID, want)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
