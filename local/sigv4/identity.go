package sigv4

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/events"
)

// Identity makes the hook by which a local gateway learns who signed a request, as
// API Gateway does for routes with IAM authorization. It reads the body.
func Identity(lookup func(accessKeyID string) (secret, arn string, ok bool), now func() time.Time) func(*http.Request) (events.APIGatewayRequestIdentity, error) {
	return func(r *http.Request) (events.APIGatewayRequestIdentity, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return events.APIGatewayRequestIdentity{}, errors.New("the body could not be read")
		}
		arn, err := Verify(r, body, lookup, now())
		return events.APIGatewayRequestIdentity{UserArn: arn}, err
	}
}
