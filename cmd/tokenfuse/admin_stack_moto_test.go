//go:build moto

package main

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/mototest"
)

// A stack that was created, not one that we describe ourselves.
func TestStackOnMoto(t *testing.T) {
	asAdmin(t, adminKey, adminSecret)
	d := deploy(t)
	moto := mototest.Start(t)
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", moto)
	t.Setenv("AWS_REGION", "eu-central-1")
	cfg, err := awsConfig(t.Context())
	check.OK(t, err)
	client := cloudformation.NewFromConfig(cfg)
	for name, outputs := range map[string]string{
		"both":  `"ApiEndpoint": {"Value": "http://127.0.0.1:1"}, "AdminEndpoint": {"Value": {"Fn::Sub": "` + d.url + `/${Stage}"}}`,
		"api":   `"ApiEndpoint": {"Value": {"Fn::Sub": "` + d.url + `/${Stage}/v1"}}, "TopicArn": {"Value": {"Ref": "Page"}}`,
		"other": `"TopicArn": {"Value": {"Ref": "Page"}}`,
	} {
		_, err := client.CreateStack(t.Context(), &cloudformation.CreateStackInput{StackName: &name, TemplateBody: aws.String(`{
			"Parameters": {"Stage": {"Type": "String", "Default": "prod"}},
			"Resources": {"Page": {"Type": "AWS::SNS::Topic"}}, "Outputs": {` + outputs + `}}`)})
		check.OK(t, err)
	}
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"clear-limit jane@example.com --type cv --stack both", 0, "cleared cv of user 123"},
		{"limits 123 --stack api", 0, "user 123: 1 calls in flight"},
		{"fuse show --stack other", 1, "stack other in eu-central-1 (CREATE_COMPLETE) has no output AdminEndpoint or ApiEndpoint"},
		{"fuse show --stack nope", 1, "there is no stack nope in eu-central-1"},
	} {
		got := command(t, strings.Fields(test.args)...)
		check.That(t, got.code == test.code && strings.Contains(got.stdout+got.stderr, test.says), "%s: %+v", test.args, got)
	}
}
