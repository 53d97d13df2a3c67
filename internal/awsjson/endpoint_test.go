package awsjson

import (
	"context"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	smithy "github.com/aws/smithy-go/endpoints"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The addresses of a region are those that the SDK has.
func TestRegional(t *testing.T) {
	for service, sdk := range map[string]func(context.Context, string, bool, bool) (smithy.Endpoint, error){
		"ssm": func(ctx context.Context, region string, fips, dual bool) (smithy.Endpoint, error) {
			return ssm.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, ssm.EndpointParameters{Region: &region, UseFIPS: &fips, UseDualStack: &dual})
		},
		"secretsmanager": func(ctx context.Context, region string, fips, dual bool) (smithy.Endpoint, error) {
			return secretsmanager.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, secretsmanager.EndpointParameters{Region: &region, UseFIPS: &fips, UseDualStack: &dual})
		},
		"monitoring": func(ctx context.Context, region string, fips, dual bool) (smithy.Endpoint, error) {
			return cloudwatch.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, cloudwatch.EndpointParameters{Region: &region, UseFIPS: &fips, UseDualStack: &dual})
		},
	} {
		for _, region := range []string{"us-east-1", "eu-central-1", "cn-north-1", "us-gov-west-1", "us-gov-east-1", "eusc-de-east-1"} {
			for way := range 4 {
				fips, dual := way&1 != 0, way&2 != 0
				want, err := sdk(t.Context(), region, fips, dual)
				check.OK(t, err)
				c := New(aws.Config{Region: region})
				check.Equal(t, c.regional(Service{Host: service}, fips, dual), want.URI.String()+"/", "%s in %s, FIPS %t, dual-stack %t", service, region, fips, dual)
			}
		}
	}
}
