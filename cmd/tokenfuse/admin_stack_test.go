package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// cloudFormation answers as CloudFormation does for the stacks of a region, and
// counts the requests.
func cloudFormation(t *testing.T, region string, stacks map[string]string) (address string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	scope := regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=` + adminKey + `/\d{8}/` + region + `/cloudformation/aws4_request, `)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		name := r.PostForm.Get("StackName")
		want := url.Values{"Action": {"DescribeStacks"}, "Version": {"2010-05-15"}, "StackName": {name}}
		if diff := cmp.Diff(want, r.Form); diff != "" || r.Method != http.MethodPost || r.URL.Path != "/" || !scope.MatchString(r.Header.Get("Authorization")) {
			t.Errorf("%s %s %s %s", r.Method, r.URL, r.Header.Get("Authorization"), diff)
		}
		w.Header().Set("Content-Type", "text/xml")
		if stack, found := stacks[name]; found {
			fmt.Fprintf(w, `<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks>%s</Stacks></DescribeStacksResult><ResponseMetadata><RequestId>b9b4b068-3a41-11e5-94eb-example</RequestId></ResponseMetadata></DescribeStacksResponse>`, stack)
			return
		}
		status, code, message := http.StatusBadRequest, "ValidationError", "Stack with id "+name+" does not exist"
		switch name {
		case "secret":
			status, code, message = http.StatusForbidden, "AccessDenied", "User: "+supportARN+" is not authorized to perform: cloudformation:DescribeStacks"
		case "-":
			message = "1 validation error detected: Value '-' at 'stackName' failed to satisfy constraint"
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>b9b4b068-3a41-11e5-94eb-example</RequestId></ErrorResponse>`, code, message)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// stackOf is a stack with outputs, as CloudFormation describes it.
func stackOf(status string, outputs ...string) string {
	var members strings.Builder
	for _, output := range outputs {
		key, value, _ := strings.Cut(output, "=")
		fmt.Fprintf(&members, "<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>", key, value)
	}
	return `<member><StackName>any</StackName><CreationTime>2026-11-30T12:00:00.000Z</CreationTime><StackStatus>` + status + `</StackStatus><Outputs>` + members.String() + `</Outputs></member>`
}

func TestStack(t *testing.T) {
	asAdmin(t, adminKey, adminSecret)
	d := deploy(t)
	gone := "http://127.0.0.1:1"
	address, asked := cloudFormation(t, "eu-central-1", map[string]string{
		"tokenfuse": stackOf("UPDATE_COMPLETE", "ApiEndpoint="+gone, "AdminEndpoint="+d.url+"/prod", "TopicArn=arn:aws:sns:eu-central-1:123456789012:page"),
		"public":    stackOf("CREATE_COMPLETE", "ApiEndpoint="+d.url+"/prod/v1"),
		"slash":     stackOf("CREATE_COMPLETE", "ApiEndpoint="+d.url+"/prod/"),
		"begun":     stackOf("CREATE_IN_PROGRESS"),
		"wrong":     stackOf("CREATE_COMPLETE", "AdminEndpoint=execute-api"),
		"two":       stackOf("CREATE_COMPLETE") + stackOf("CREATE_COMPLETE"),
	})
	t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", address)
	t.Setenv("AWS_REGION", "eu-central-1")
	for _, test := range []struct {
		args, endpoint, stack string // the last two are the environment's
		code                  int
		says                  string // on standard output, or of a failure on standard error
		lookUps               int32
	}{
		{"fuse show --stack tokenfuse", "", "", 0, "the fuse is closed", 1},
		{"fuse show --stack public", "", "", 0, "the fuse is closed", 1},
		{"fuse show --stack slash", "", "", 0, "the fuse is closed", 1},
		{"fuse set closed --stack tokenfuse", "", "", 0, "set by " + supportARN, 1},
		{"limits jane@example.com --stack tokenfuse", "", "", 0, "user 123: 1 calls in flight", 1},
		{"clear-limit 123 --type cv --stack tokenfuse", "", "", 0, "cleared cv of user 123", 1},
		{"fuse show", "", "tokenfuse", 0, "the fuse is closed", 1},
		{"fuse show", d.url, "", 0, "the fuse is closed", 0},
		{"fuse show --stack tokenfuse", gone, "nope", 0, "the fuse is closed", 1},
		{"fuse show --endpoint " + d.url, gone, "nope", 0, "the fuse is closed", 0},

		{"fuse show --stack nope", "", "", 1, "there is no stack nope in eu-central-1 in the account of these credentials: check the name, AWS_PROFILE and AWS_REGION", 1},
		{"fuse show --stack begun", "", "", 1, "stack begun in eu-central-1 (CREATE_IN_PROGRESS) has no output AdminEndpoint or ApiEndpoint: is it tokenfuse's, and has it been deployed?", 1},
		{"fuse show --stack wrong", "", "", 1, "the output of stack wrong must be an address such as https://", 1},
		{"fuse show --stack two", "", "", 1, "answered with 2 stacks for two", 1},
		{"fuse show --stack secret", "", "", 1, "is not authorized to perform: cloudformation:DescribeStacks): check the name and the region, allow them cloudformation:DescribeStacks, or use --endpoint", 1},
		{"fuse show --stack=-", "", "", 1, "refused to look up stack - (ValidationError: 1 validation error detected", 1},

		{"fuse show --stack tokenfuse --endpoint " + d.url, "", "", 2, "--endpoint and --stack can't be used together\nTry: tokenfuse fuse show --help", 0},
		{"fuse show", d.url, "tokenfuse", 2, "TOKENFUSE_ENDPOINT and TOKENFUSE_STACK are both set: unset one of them, or use --endpoint or --stack", 0},
		{"fuse show", "", "", 2, "missing flags: --endpoint=URL or --stack=NAME", 0},
		{"limits 123", "", "", 2, "missing flags: --endpoint=URL or --stack=NAME\nTry: tokenfuse limits --help", 0},
		{"clear-limit 123 --type cv", "", "", 2, "missing flags: --endpoint=URL or --stack=NAME\nTry: tokenfuse clear-limit --help", 0},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Setenv("TOKENFUSE_ENDPOINT", test.endpoint)
			t.Setenv("TOKENFUSE_STACK", test.stack)
			before := asked.Load()
			got := command(t, strings.Fields(test.args)...)
			said, silent := got.stdout, got.stderr
			if test.code != 0 {
				said, silent = silent, said
			}
			check.That(t, got.code == test.code && strings.Contains(said, test.says) && silent == "", "%+v", got)
			check.Equal(t, asked.Load()-before, test.lookUps, "questions to CloudFormation")
		})
	}

	for _, test := range []struct{ name, key, region, cloudFormation, says string }{
		{"no region", adminKey, "", address, "--stack: in which region? Set AWS_REGION"},
		{"no credentials", "", "eu-central-1", address, "no AWS credentials were found: set AWS_PROFILE"},
		{"nobody there", adminKey, "eu-central-1", gone, "no answer from CloudFormation in eu-central-1: is that the right region? Or use --endpoint (dial tcp 127.0.0.1:1: connect"},
	} {
		t.Run(test.name, func(t *testing.T) {
			asAdmin(t, test.key, adminSecret)
			t.Setenv("AWS_REGION", test.region)
			t.Setenv("AWS_MAX_ATTEMPTS", "1")
			t.Setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", test.cloudFormation)
			before := asked.Load()
			got := command(t, "fuse", "show", "--stack", "tokenfuse")
			check.That(t, got.code == 1 && got.stdout == "" && strings.Contains(got.stderr, test.says) && asked.Load() == before, "%+v", got)
		})
	}
}
