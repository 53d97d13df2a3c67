package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/smithy-go"
)

// AfterApply says which deployment is meant: the one that a flag names, or else the
// environment.
func (a *adminFlags) AfterApply() error {
	switch {
	case a.Endpoint != "" && a.Stack != "":
		return errors.New("--endpoint and --stack can't be used together")
	case a.Endpoint != "" || a.Stack != "":
		return nil
	}
	a.Endpoint, a.Stack = environmentEndpoint(), os.Getenv("TOKENFUSE_STACK")
	switch {
	case a.Stack != "" && os.Getenv("TOKENFUSE_ENDPOINT") == "":
		a.Endpoint = "" // TOKENFUSE_URL was never about stacks
	case a.Endpoint != "" && a.Stack != "":
		return errors.New("TOKENFUSE_ENDPOINT and TOKENFUSE_STACK are both set: unset one of them, or use --endpoint or --stack")
	case a.Endpoint == "" && a.Stack == "":
		return errors.New("missing flags: --endpoint=URL or --stack=NAME")
	}
	return nil
}

// The outputs of a stack that tell where its admin routes are, the first that is
// there. ApiEndpoint is what clients call, and may end in their /v1.
var endpointOutputs = []string{"AdminEndpoint", "ApiEndpoint"}

// stackEndpoint is the address that the outputs of a CloudFormation stack tell.
func stackEndpoint(ctx context.Context, cfg aws.Config, stack string) (string, error) {
	if cfg.Region == "" {
		return "", errors.New("--stack: in which region? Set AWS_REGION, or a region in your AWS profile")
	}
	found, err := cloudformation.NewFromConfig(cfg).DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &stack})
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		return "", stackError(stack, cfg.Region, refused)
	}
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // the rest of it tells of the SDK
		}
		return "", fmt.Errorf("--stack: no answer from CloudFormation in %s: is that the right region? Or use --endpoint (%w)", cfg.Region, err)
	}
	if len(found.Stacks) != 1 {
		return "", fmt.Errorf("--stack: CloudFormation in %s answered with %d stacks for %s", cfg.Region, len(found.Stacks), stack)
	}
	for _, name := range endpointOutputs {
		for _, output := range found.Stacks[0].Outputs {
			if aws.ToString(output.OutputKey) == name {
				return aws.ToString(output.OutputValue), nil
			}
		}
	}
	return "", fmt.Errorf("--stack: stack %s in %s (%s) has no output %s: is it tokenfuse's, and has it been deployed? Or use --endpoint",
		stack, cfg.Region, found.Stacks[0].StackStatus, strings.Join(endpointOutputs, " or "))
}

// stackError says what to do about a refusal of CloudFormation.
func stackError(stack, region string, refused smithy.APIError) error {
	said := printable(refused.ErrorMessage())
	switch code := refused.ErrorCode(); {
	case code == "ValidationError" && strings.Contains(said, "does not exist"):
		return fmt.Errorf("--stack: there is no stack %s in %s in the account of these credentials: check the name, AWS_PROFILE and AWS_REGION", stack, region)
	case strings.HasPrefix(code, "AccessDenied"):
		return fmt.Errorf("--stack: these credentials may not look up stack %s in %s (%s): check the name and the region, allow them cloudformation:DescribeStacks, or use --endpoint", stack, region, said)
	default:
		return fmt.Errorf("--stack: CloudFormation in %s refused to look up stack %s (%s: %s): check the name and the credentials, or use --endpoint", region, stack, printable(code), said)
	}
}
