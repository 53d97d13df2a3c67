package environ

import (
	"crypto/tls"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
)

// AWS is what the SDK's clients need, as Lambda sets it in the environment: the region
// and the keys of the function's role, or where to get them. AWS's variables for other
// addresses hold, too (see endpoints). An error is of one that is neither true nor false.
//
// The SDK's own package config also knows files, profiles and sign-ins, which a
// function has not; the clients that these need are a good part of its start.
func AWS() (aws.Config, error) {
	at, err := newEndpoints()
	cfg := aws.Config{
		Region:                      os.Getenv("AWS_REGION"),
		Credentials:                 keys(),
		ConfigSources:               []any{at},
		HTTPClient:                  HTTPClient(),
		RequestMinCompressSizeBytes: 10 << 10, // as config sets it
	}
	if all := os.Getenv("AWS_ENDPOINT_URL"); all != "" && !at.ignored {
		cfg.BaseEndpoint = aws.String(all)
	}
	return cfg, err
}

// keys are those of the function's role. Where a process lives longer than they do (Lambda
// Managed Instances), they are asked for at an address, and again before they end.
func keys() aws.CredentialsProvider {
	at := os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	if at == "" {
		return credentials.NewStaticCredentialsProvider(os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY"), os.Getenv("AWS_SESSION_TOKEN"))
	}
	from := endpointcreds.New(at, func(o *endpointcreds.Options) { o.AuthorizationToken = os.Getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN") })
	return aws.NewCredentialsCache(from, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = 5 * time.Minute })
}

// HTTPClient is the SDK's own, but for connections: who comes back after a pause resumes the
// session, which is half the work of a TLS handshake and a trip less, and as many stay open
// as calls may be under way in one process.
func HTTPClient() aws.HTTPClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		if t.TLSClientConfig == nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 256, 64
	})
}
