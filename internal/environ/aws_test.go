package environ

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/tokenfuse/tokenfuse/internal/awsjson"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func ours(t *testing.T) aws.Config {
	t.Helper()
	cfg, err := AWS()
	check.OK(t, err)
	return cfg
}

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
		"DYNAMODB":        func() { _, _ = dynamodb.NewFromConfig(ours(t)).ListTables(ctx, nil) },
		"SNS":             func() { _, _ = sns.NewFromConfig(ours(t)).ListTopics(ctx, nil) },
		"CLOUDWATCH":      func() { _, _ = cloudwatch.NewFromConfig(ours(t)).ListMetrics(ctx, nil) },
		"SSM":             func() { _, _ = ssm.NewFromConfig(ours(t)).DescribeParameters(ctx, nil) },
		"SECRETS_MANAGER": func() { _, _ = secretsmanager.NewFromConfig(ours(t)).ListSecrets(ctx, nil) },
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

// AWS's variables for other addresses do for the SDK's clients, and for our own, what
// the SDK's package config makes of them.
func TestAWSEndpoints(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", "none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for name, test := range map[string]struct{ env, db, secrets string }{
		"nothing":                 {"", "dynamodb.eu-central-1.amazonaws.com", "secretsmanager.eu-central-1.amazonaws.com"},
		"all":                     {"AWS_ENDPOINT_URL=http://all", "all", "all"},
		"one":                     {"AWS_ENDPOINT_URL_DYNAMODB=http://db", "db", "secretsmanager.eu-central-1.amazonaws.com"},
		"one before all":          {"AWS_ENDPOINT_URL=http://all AWS_ENDPOINT_URL_SECRETS_MANAGER=http://sm", "all", "sm"},
		"neither counts":          {"AWS_ENDPOINT_URL=http://all AWS_ENDPOINT_URL_SECRETS_MANAGER=http://sm AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true", "dynamodb.eu-central-1.amazonaws.com", "secretsmanager.eu-central-1.amazonaws.com"},
		"both count":              {"AWS_ENDPOINT_URL=http://all AWS_ENDPOINT_URL_DYNAMODB=http://db AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=False", "db", "all"},
		"FIPS":                    {"AWS_USE_FIPS_ENDPOINT=true AWS_REGION=us-east-1", "dynamodb-fips.us-east-1.amazonaws.com", "secretsmanager-fips.us-east-1.amazonaws.com"},
		"no FIPS":                 {"AWS_USE_FIPS_ENDPOINT=FALSE", "dynamodb.eu-central-1.amazonaws.com", "secretsmanager.eu-central-1.amazonaws.com"},
		"dual-stack":              {"AWS_USE_DUALSTACK_ENDPOINT=true", "dynamodb.eu-central-1.api.aws", "secretsmanager.eu-central-1.amazonaws.com"},
		"FIPS by IPv6":            {"AWS_USE_FIPS_ENDPOINT=true AWS_USE_DUALSTACK_ENDPOINT=true AWS_REGION=us-east-1", "dynamodb-fips.us-east-1.api.aws", "secretsmanager-fips.us-east-1.amazonaws.com"},
		"an address, IPv6 or not": {"AWS_ENDPOINT_URL_SECRETS_MANAGER=http://sm AWS_USE_DUALSTACK_ENDPOINT=false", "dynamodb.eu-central-1.amazonaws.com", "sm"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_REGION", "eu-central-1")
			for _, one := range strings.Fields(test.env) {
				name, value, _ := strings.Cut(one, "=")
				t.Setenv(name, value)
			}
			theirs, err := config.LoadDefaultConfig(t.Context())
			check.OK(t, err)
			for whose, cfg := range map[string]aws.Config{"ours": ours(t), "the SDK's": theirs} {
				var host string
				cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					host = r.URL.Host
					return &http.Response{StatusCode: http.StatusBadRequest, Body: http.NoBody}, nil
				})}
				_, _ = dynamodb.NewFromConfig(cfg).ListTables(t.Context(), nil)
				check.Equal(t, host, test.db, "DynamoDB with %s", whose)
				_, _ = secretsmanager.NewFromConfig(cfg).ListSecrets(t.Context(), nil)
				check.Equal(t, host, test.secrets, "Secrets Manager with %s", whose)
				url, err := url.Parse(awsjson.New(cfg).Endpoint(t.Context(), awsjson.Service{Host: "secretsmanager", ID: "Secrets Manager"}))
				check.OK(t, err)
				check.Equal(t, url.Host, test.secrets, "our own client with %s", whose)
			}
		})
	}
}

// What is neither true nor false is told, by its name.
func TestAWSEndpointsUnclear(t *testing.T) {
	for _, name := range []string{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "yes")
			_, err := AWS()
			check.That(t, err != nil && err.Error() == name+` is "yes", neither true nor false`, "%v", err)
		})
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
	keys := ours(t).Credentials
	for _, want := range []string{"AKIA1", "AKIA2", "AKIA2"} {
		got, err := keys.Retrieve(t.Context())
		check.OK(t, err)
		check.That(t, got.AccessKeyID == want && got.SessionToken == "session", "%+v, want %s", got.AccessKeyID, want)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
