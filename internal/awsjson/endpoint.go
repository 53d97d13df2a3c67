package awsjson

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// What the sources of a configuration may say of addresses; the SDK asks by the same names.
type (
	ignoresEndpoints interface {
		GetIgnoreConfiguredEndpoints(context.Context) (ignored, found bool, err error)
	}
	hasEndpoint interface {
		GetServiceBaseEndpoint(context.Context, string) (url string, found bool, err error)
	}
	usesFIPS interface {
		GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error)
	}
	usesDualStack interface {
		GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error)
	}
)

// Endpoint is where a service is: its own address or that of all as the configuration
// says, else the region's, with FIPS or IPv6 as the configuration says.
func (c Client) Endpoint(ctx context.Context, to Service) string {
	ignored, _ := first(c.aws.ConfigSources, func(s ignoresEndpoints) (bool, bool, error) { return s.GetIgnoreConfiguredEndpoints(ctx) })
	if !ignored {
		if url, found := first(c.aws.ConfigSources, func(s hasEndpoint) (string, bool, error) { return s.GetServiceBaseEndpoint(ctx, to.ID) }); found {
			return url
		}
	}
	if url := aws.ToString(c.aws.BaseEndpoint); url != "" {
		return url
	}
	fips, _ := first(c.aws.ConfigSources, func(s usesFIPS) (aws.FIPSEndpointState, bool, error) { return s.GetUseFIPSEndpoint(ctx) })
	dual, _ := first(c.aws.ConfigSources, func(s usesDualStack) (aws.DualStackEndpointState, bool, error) { return s.GetUseDualStackEndpoint(ctx) })
	return c.regional(to, fips == aws.FIPSEndpointStateEnabled, dual == aws.DualStackEndpointStateEnabled)
}

// first asks the sources that can say it; found is false if none does.
func first[Source, T any](sources []any, ask func(Source) (T, bool, error)) (value T, found bool) {
	for _, source := range sources {
		if s, ok := source.(Source); ok {
			if value, found, err := ask(s); found && err == nil {
				return value, true
			}
		}
	}
	return value, false
}

// regional is the address of a service in the region.
func (c Client) regional(to Service, fips, dual bool) string {
	suffix, dualSuffix := "amazonaws.com", "api.aws"
	switch {
	case strings.HasPrefix(c.aws.Region, "cn-"):
		suffix, dualSuffix = "amazonaws.com.cn", "api.amazonwebservices.com.cn"
	case strings.HasPrefix(c.aws.Region, "eusc-"):
		suffix, dualSuffix = "amazonaws.eu", "api.amazonwebservices.eu"
	}
	host, gov := to.Host, strings.HasPrefix(c.aws.Region, "us-gov-")
	// In GovCloud the usual addresses are FIPS already, but not all of them.
	if fips && (!gov || to.Host == "secretsmanager" || to.Host == "ssm" && dual) {
		host += "-fips"
	}
	// Secrets Manager's usual addresses have IPv6, too.
	if dual && (to.Host != "secretsmanager" || strings.HasPrefix(c.aws.Region, "eusc-") || fips && strings.HasPrefix(c.aws.Region, "cn-")) {
		suffix = dualSuffix
	}
	return "https://" + host + "." + c.aws.Region + "." + suffix + "/"
}
