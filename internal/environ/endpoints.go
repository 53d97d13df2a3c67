package environ

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// endpoints tells the SDK's clients of other addresses, as its package config does:
// AWS_ENDPOINT_URL_SERVICE is that of a service (AWS_ENDPOINT_URL that of all others,
// which AWS sets), AWS_IGNORE_CONFIGURED_ENDPOINT_URLS drops both, and
// AWS_USE_FIPS_ENDPOINT and AWS_USE_DUALSTACK_ENDPOINT choose among a region's own.
// The clients ask by the names of these methods.
type endpoints struct {
	ignored bool
	fips    aws.FIPSEndpointState
	dual    aws.DualStackEndpointState
}

func newEndpoints() (e endpoints, err error) {
	var errs [3]error
	e.ignored, errs[0] = flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", false, true, false)
	e.fips, errs[1] = flag("AWS_USE_FIPS_ENDPOINT", aws.FIPSEndpointStateUnset, aws.FIPSEndpointStateEnabled, aws.FIPSEndpointStateDisabled)
	e.dual, errs[2] = flag("AWS_USE_DUALSTACK_ENDPOINT", aws.DualStackEndpointStateUnset, aws.DualStackEndpointStateEnabled, aws.DualStackEndpointStateDisabled)
	return e, errors.Join(errs[:]...)
}

// flag reads a variable that is true, false or empty. What it might have meant otherwise
// is not guessed: who asks for FIPS must not get anything else.
func flag[T any](name string, unset, yes, no T) (T, error) {
	switch value := os.Getenv(name); strings.ToLower(value) {
	case "":
		return unset, nil
	case "true":
		return yes, nil
	case "false":
		return no, nil
	default:
		return unset, fmt.Errorf("%s is %q, neither true nor false", name, value)
	}
}

// GetServiceBaseEndpoint is the address of a service, by the SDK's name of it.
func (endpoints) GetServiceBaseEndpoint(_ context.Context, service string) (url string, found bool, err error) {
	url = os.Getenv("AWS_ENDPOINT_URL_" + strings.ToUpper(strings.ReplaceAll(service, " ", "_")))
	return url, url != "", nil
}

// GetIgnoreConfiguredEndpoints reports whether no such address counts.
func (e endpoints) GetIgnoreConfiguredEndpoints(context.Context) (ignored, found bool, err error) {
	return e.ignored, e.ignored, nil
}

// GetUseFIPSEndpoint reports whether FIPS endpoints are used.
func (e endpoints) GetUseFIPSEndpoint(context.Context) (state aws.FIPSEndpointState, found bool, err error) {
	return e.fips, e.fips != aws.FIPSEndpointStateUnset, nil
}

// GetUseDualStackEndpoint reports whether endpoints with IPv6 are used.
func (e endpoints) GetUseDualStackEndpoint(context.Context) (state aws.DualStackEndpointState, found bool, err error) {
	return e.dual, e.dual != aws.DualStackEndpointStateUnset, nil
}
