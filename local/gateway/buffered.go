package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/aws/aws-lambda-go/events"
)

// Buffered makes a Function of one that answers all at once, as behind an
// integration without streaming.
func Buffered(f func(context.Context, events.APIGatewayProxyRequest) (events.APIGatewayProxyResponse, error)) Function {
	return func(ctx context.Context, e *events.APIGatewayProxyRequest) (*events.APIGatewayProxyStreamingResponse, error) {
		answer, err := f(ctx, *e)
		if err != nil {
			return nil, err
		}
		body := answer.Body
		if answer.IsBase64Encoded {
			decoded, err := base64.StdEncoding.DecodeString(body)
			if err != nil {
				return nil, errors.New("the answer's body is not base64")
			}
			body = string(decoded)
		}
		return &events.APIGatewayProxyStreamingResponse{
			StatusCode: answer.StatusCode, Headers: answer.Headers, MultiValueHeaders: answer.MultiValueHeaders,
			Body: strings.NewReader(body),
		}, nil
	}
}
