//go:build sam

// Package deploy tests what template.yaml deploys: the template as the SAM translator
// makes it, the permissions against the calls that the functions make, and what `sam
// build` builds. It needs the AWS SAM CLI, but no AWS account.
package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const file = "../template.yaml"

// problems collects what is wrong.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// equal adds a problem unless got prints as want.
func (p *problems) equal(what string, got, want any) {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		p.add("%s is %v, not %v", what, got, want)
	}
}

// checks are what must be true of the template, each of a stack with the parameters
// that it names.
var checks = map[string]struct {
	parameters []string
	check      func(*stack, *problems)
}{
	"streaming":         {nil, streaming},
	"admin":             {nil, adminRoutes},
	"gateway responses": {nil, gatewayResponses},
	"stage":             {nil, apiStage},
	"tables":            {nil, tables},
	"functions":         {nil, functions},
	"canary":            {nil, canary},
	"schedule":          {nil, schedule},
	"alarms":            {nil, alarms},
	"pages":             {[]string{"AlarmEmail", "ops@example.com"}, pages},
	"logs":              {nil, logs},
	"permissions":       {[]string{"SecretsKeyArn", "arn:aws:kms:eu-central-1:123456789012:key/k"}, permissions},
	"no options":        {nil, noOptions},
	"options":           {[]string{"BedrockModelArns", "arn:aws:bedrock:a,arn:aws:bedrock:b", "WebAclArn", "arn:acl", "GenerateConcurrency", "50", "OperatorConcurrency", "5", "Tracing", "true"}, options},
	"web ACL":           {[]string{"WebAclRateLimit", "2000", "WarmWritesPerSecond", "10000"}, webACL},
	"cloudfront":        {[]string{"CloudFront", "true", "OriginSecret", "b", "CloudFrontWebAclArn", "arn:acl"}, cloudFront},
	"dashboard":         {nil, dashboard},
	"parameters":        {nil, parameters},
	"outputs":           {nil, outputs},
	"configuration":     {nil, configuration},
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	template := template(t)
	for name, c := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p problems
			c.check(newStack(template, c.parameters...), &p)
			for _, problem := range p {
				t.Error(problem)
			}
		})
	}
}

// paths are the API's methods by path, without the parts that OpenAPI has beside them.
func paths(s *stack) map[string]map[string]any {
	all := map[string]map[string]any{}
	for path, methods := range s.get("Api", "Body", "paths").(object) {
		all[path] = methods.(object)
	}
	return all
}

// streaming: API Gateway passes an answer on as it comes, OPTIONS goes to the handler
// too, and the function's own timeout comes first.
func streaming(s *stack, p *problems) {
	longest := at(s.template, "Parameters", "GenerateTimeout", "MaxValue").(float64)
	for _, path := range generates {
		routes := paths(s)[path]
		p.equal("methods of "+path, slices.Sorted(maps.Keys(routes)), "[x-amazon-apigateway-any-method]")
		route := routes["x-amazon-apigateway-any-method"]
		integration, _ := at(route, "x-amazon-apigateway-integration").(object)
		p.equal("type", integration["type"], "aws_proxy")
		p.equal("responseTransferMode", integration["responseTransferMode"], "STREAM")
		p.equal("uri", integration["uri"], "arn:aws:apigateway:eu-central-1:lambda:path/2021-11-15/functions/<GenerateAliaslive>/response-streaming-invocations")
		if at(route, "security") != nil {
			p.add("generate's route wants a signature")
		}
		if wait, _ := integration["timeoutInMillis"].(float64); wait < 1000*longest || wait > 900_000 {
			p.add("timeoutInMillis is %v", integration["timeoutInMillis"])
		}
	}
	p.equal("endpoint", s.get("Api", "EndpointConfiguration", "Types"), "[REGIONAL]")
}

// generates are the paths that generate serves: its own, and all that nobody else does,
// so that it can tell where to go.
var generates = []string{"/v1/{proxy+}", "/{proxy+}"}

// adminRoutes: every other route wants a signature, and none but clearlimit's are there.
func adminRoutes(s *stack, p *problems) {
	var routes []string
	for path, methods := range paths(s) {
		for method, route := range methods {
			if slices.Contains(generates, path) {
				continue
			}
			name := strings.ToUpper(method) + " " + path
			routes = append(routes, name)
			p.equal("security of "+name, at(route, "security"), "[map[AWS_IAM:[]]]")
			p.equal("uri of "+name, at(route, "x-amazon-apigateway-integration", "uri"),
				"arn:aws:apigateway:eu-central-1:lambda:path/2015-03-31/functions/<ClearLimit.Arn>/invocations")
			if at(route, "x-amazon-apigateway-integration", "credentials") != nil {
				p.add("%s is invoked in the caller's name", name)
			}
		}
	}
	slices.Sort(routes)
	p.equal("admin routes", strings.Join(routes, ", "), "GET /admin/audit, GET /admin/fuse, GET /admin/limits, GET /admin/status, POST /admin/block, POST /admin/limits/clear, POST /admin/unblock, PUT /admin/fuse")
	p.equal("AWS_IAM", at(s.get("Api", "Body"), "components", "securitySchemes", "AWS_IAM", "x-amazon-apigateway-authtype"), "awsSigv4")
	// Who has the policy may call just these.
	var granted []string
	for _, statement := range list(s.get("SupportPolicy", "PolicyDocument", "Statement")) {
		for _, g := range grantsOf(statement) {
			if g.action == "execute-api:Invoke" {
				route, ok := strings.CutPrefix(g.resource, "arn:aws:execute-api:eu-central-1:123456789012:<Api>/prod/")
				if !ok {
					p.add("the support policy is of %s", g.resource)
				}
				granted = append(granted, strings.Replace(route, "/", " /", 1))
			} else {
				p.equal("what else support may do", g, grant{"cloudformation:DescribeStacks", "<AWS::StackId>", ""})
			}
		}
	}
	slices.Sort(granted)
	p.equal("granted", granted, fmt.Sprint(routes))
}

// envelope is the body of an error as generate writes it.
type envelope struct {
	Error struct {
		Message    string  `json:"message"`
		Type       string  `json:"type"`
		Param      *string `json:"param"`
		Code       string  `json:"code"`
		Limit      string  `json:"limit"`
		Unit       string  `json:"unit"`
		RetryAfter int64   `json:"retry_after_seconds"`
		Requested  int64   `json:"requested"`
		Remaining  int64   `json:"remaining"`
		Affordable *int64  `json:"affordable_max_tokens"`
		Blocked    int64   `json:"blocked_until"`
	} `json:"error"`
}

// gatewayResponses: what API Gateway refuses by itself is in our envelope, can be read
// by pages, and says whether to try again.
func gatewayResponses(s *stack, p *problems) {
	responses, _ := at(s.get("Api", "Body"), "x-amazon-apigateway-gateway-responses").(object)
	for _, needed := range []string{"DEFAULT_4XX", "DEFAULT_5XX", "THROTTLED", "MISSING_AUTHENTICATION_TOKEN", "REQUEST_TOO_LARGE"} {
		if responses[needed] == nil {
			p.add("no gateway response %s", needed)
		}
	}
	for kind, r := range responses {
		body, _ := at(r, "responseTemplates", "application/json").(string)
		var e envelope
		d := json.NewDecoder(strings.NewReader(strings.ReplaceAll(body, "$context.error.messageString", `"A reason"`)))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil || d.More() || strings.Contains(body, "$context.error.message\"") {
			p.add("%s: %s: %v", kind, body, err)
			continue
		}
		want := map[string]string{"DEFAULT_5XX": "server_error", "THROTTLED": "requests"}[kind]
		if want == "" {
			want = "invalid_request_error"
		}
		p.equal("type of "+kind, e.Error.Type, want)
		if e.Error.Message == "" || e.Error.Code == "" || !strings.Contains(body, `"param":null`) {
			p.add("%s lacks a message, a code or a param: %s", kind, body)
		}
		header := func(name string) any { return at(r, "responseParameters", "gatewayresponse.header."+name) }
		p.equal("allow-origin of "+kind, header("Access-Control-Allow-Origin"), "'*'")
		p.equal("x-should-retry of "+kind, header("x-should-retry"), fmt.Sprintf("'%t'", kind == "THROTTLED"))
		p.equal("request id of "+kind, header("x-request-id"), "context.requestId")
		p.equal("cache of "+kind, header("Cache-Control"), "'no-store'")
		if exposed := fmt.Sprint(header("Access-Control-Expose-Headers")); !strings.Contains(exposed, "x-should-retry") {
			p.add("%s exposes %s", kind, exposed)
		}
		if kind == "THROTTLED" {
			p.equal("Retry-After", header("Retry-After"), fmt.Sprintf("'%d'", e.Error.RetryAfter))
			if e.Error.RetryAfter < 1 || e.Error.Limit == "" || e.Error.Code != "rate_limit_exceeded" {
				p.add("THROTTLED says %s", body)
			}
		}
	}
}

// apiStage: a limit on requests that one script does not reach alone, and an access log
// that holds nothing about callers.
func apiStage(s *stack, p *problems) {
	p.equal("default of RequestsPerSecond", at(s.template, "Parameters", "RequestsPerSecond", "Default"), 1000)
	settings := list(s.get("ApiStage", "MethodSettings"))
	if len(settings) != 1 {
		p.add("%d method settings", len(settings))
		return
	}
	p.equal("rate", at(settings[0], "ThrottlingRateLimit"), s.parameters["RequestsPerSecond"])
	p.equal("burst", at(settings[0], "ThrottlingBurstLimit"), s.parameters["RequestBurst"])
	p.equal("methods", fmt.Sprint(at(settings[0], "HttpMethod"), at(settings[0], "ResourcePath")), "*/*")
	p.equal("execution log", fmt.Sprint(at(settings[0], "LoggingLevel"), at(settings[0], "DataTraceEnabled")), "OFFfalse")
	p.equal("log", s.get("ApiStage", "AccessLogSetting", "DestinationArn"), "<ApiLogs.Arn>")
	format, _ := s.get("ApiStage", "AccessLogSetting", "Format").(string)
	var line map[string]string
	if err := json.Unmarshal([]byte(format), &line); err != nil || strings.Contains(format, "\n") {
		p.add("the access log's format is no line of JSON: %v", err)
	}
	harmless := regexp.MustCompile(`^\$context\.(requestId|requestTime|httpMethod|resourcePath|status|responseLength|responseLatency|` +
		`integration\.(latency|status|responseTransferMode)|error\.responseType|waf\.status|identity\.userArn)$`)
	for name, variable := range line {
		if !harmless.MatchString(variable) {
			p.add("the access log has %s: %s", name, variable)
		}
	}
	if description := fmt.Sprint(s.get("Api", "Description")); !strings.Contains(description, "<LogAccount>") {
		p.add("the API does not wait for the account's role: %s", description)
	}
	p.equal("log account", s.resources["LogAccount"]["DeletionPolicy"], "Retain")
}

// tables: both survive the stack and expire items; that of money can be brought back.
// Their keys are compared with those of local/engine in TestLife.
func tables(s *stack, p *problems) {
	p.equal("tables", s.ofType("AWS::DynamoDB::Table"), "[Limits Spend]")
	for _, name := range s.ofType("AWS::DynamoDB::Table") {
		p.equal("DeletionPolicy of "+name, s.resources[name]["DeletionPolicy"], "Retain")
		p.equal("UpdateReplacePolicy of "+name, s.resources[name]["UpdateReplacePolicy"], "Retain")
		p.equal("protection of "+name, s.get(name, "DeletionProtectionEnabled"), true)
		p.equal("billing of "+name, s.get(name, "BillingMode"), "PAY_PER_REQUEST")
		p.equal("warm throughput of "+name, s.get(name, "WarmThroughput"), nil)
		p.equal("TTL of "+name, s.get(name, "TimeToLiveSpecification"), "map[AttributeName:expires Enabled:true]")
		p.equal("encryption of "+name, s.get(name, "SSESpecification", "SSEEnabled"), true)
		p.equal("recovery of "+name, s.get(name, "PointInTimeRecoverySpecification", "PointInTimeRecoveryEnabled") == true, name == "Spend")
	}
}

// functions: how they run.
func functions(s *stack, p *problems) {
	environment := map[string]string{
		"Generate":   "[LIMITS_TABLE METRICS_NAMESPACE SECRETS_REVISION SPEND_TABLE TOKENFUSE_CONFIG]",
		"ClearLimit": "[LIMITS_TABLE METRICS_NAMESPACE SECRETS_REVISION SPEND_TABLE TOKENFUSE_CONFIG]",
		"SpendAlarm": "[LIMITS_TABLE METRICS_NAMESPACE SPEND_TABLE TOKENFUSE_CONFIG TOKENFUSE_ENDPOINT TOPIC_ARN]",
	}
	p.equal("functions", s.ofType("AWS::Lambda::Function"), "[ClearLimit Generate SpendAlarm]")
	for name, names := range environment {
		p.equal("runtime of "+name, fmt.Sprint(s.get(name, "Runtime"), s.get(name, "Handler"), s.get(name, "Architectures")), "provided.al2023bootstrap[arm64]")
		variables, _ := s.get(name, "Environment", "Variables").(object)
		p.equal("environment of "+name, slices.Sorted(maps.Keys(variables)), names)
		for variable, want := range map[string]string{"LIMITS_TABLE": "<Limits>", "SPEND_TABLE": "<Spend>", "TOPIC_ARN": "<Topic>", "TOKENFUSE_CONFIG": "tokenfuse.yaml", "METRICS_NAMESPACE": stackName,
			"TOKENFUSE_ENDPOINT": s.outputs["AdminEndpoint"], "SECRETS_REVISION": "1"} {
			if got := variables[variable]; got != nil {
				p.equal(variable+" of "+name, got, want)
			}
		}
	}
	p.equal("memory", fmt.Sprint(s.get("Generate", "MemorySize"), s.get("ClearLimit", "MemorySize"), s.get("SpendAlarm", "MemorySize")), "256 512 512")
	p.equal("timeouts", fmt.Sprint(s.get("Generate", "Timeout"), s.get("ClearLimit", "Timeout"), s.get("SpendAlarm", "Timeout")), "120 29 120")
	for _, name := range s.ofType("AWS::Lambda::Function") {
		p.equal("concurrency of "+name, s.get(name, "ReservedConcurrentExecutions"), nil)
	}
}

// canary: a new version gets some callers first, and is taken back if it fails.
func canary(s *stack, p *problems) {
	groups := s.ofType("AWS::CodeDeploy::DeploymentGroup")
	if len(groups) != 1 {
		p.add("%d deployment groups", len(groups))
		return
	}
	p.equal("strategy", s.get(groups[0], "DeploymentConfigName"), "CodeDeployDefault.LambdaCanary10Percent5Minutes")
	p.equal("rollback", s.get(groups[0], "AutoRollbackConfiguration", "Enabled"), true)
	p.equal("rollback on", strings.Contains(fmt.Sprint(s.get(groups[0], "AutoRollbackConfiguration", "Events")), "DEPLOYMENT_STOP_ON_ALARM"), true)
	p.equal("alarms", s.get(groups[0], "AlarmConfiguration"), "map[Alarms:[map[Name:<NewVersionErrors>] map[Name:<NewVersionFailed>]] Enabled:true]")
	p.equal("alias", s.resources["GenerateAliaslive"]["UpdatePolicy"],
		"map[CodeDeployLambdaAliasUpdate:map[ApplicationName:<ServerlessDeploymentApplication> DeploymentGroupName:<"+groups[0]+">]]")
	// A version is published when a parameter has another value: a version's description
	// cannot be changed, so CloudFormation makes another version.
	version, _ := s.get("GenerateAliaslive", "FunctionVersion").(string)
	description := fmt.Sprint(at(s.template, "Resources", strings.TrimSuffix(strings.Trim(version, "<>"), ".Version"), "Properties", "Description"))
	walk(at(s.template, "Resources", "Generate", "Properties"), func(o object) {
		name, _ := o["Ref"].(string)
		if _, ok := s.parameters[name]; ok && name != "GenerateConcurrency" && !strings.Contains(description, "${"+name+"}") {
			p.add("another %s makes no version of generate: %s", name, description)
		}
	})
	// The alarm is of the version that the alias moves to, and of no other: the share of its
	// calls that fail.
	metrics := map[any]object{}
	for _, m := range list(s.get("NewVersionErrors", "Metrics")) {
		metrics[at(m, "Id")] = m.(object)
	}
	p.equal("metrics of NewVersionErrors", len(metrics), 3)
	p.equal("share", at(metrics["share"], "Expression"), "100 * errors / calls")
	for id, name := range map[string]string{"errors": "Errors", "calls": "Invocations"} {
		stat := at(metrics[id], "MetricStat")
		p.equal(id, fmt.Sprint(at(metrics[id], "ReturnData"), at(stat, "Metric", "Namespace"), at(stat, "Metric", "MetricName"), at(stat, "Stat"), at(stat, "Period")),
			"falseAWS/Lambda"+name+"Sum60")
		p.equal("dimensions of "+id, at(stat, "Metric", "Dimensions"),
			"[map[Name:FunctionName Value:<Generate>] map[Name:Resource Value:<Generate>:live] map[Name:ExecutedVersion Value:"+version+"]]")
	}
	p.equal("dimensions of Failed", s.get("NewVersionFailed", "Dimensions"), "[map[Name:Version Value:"+version+"]]")
	takesBack(s, p)
}

// minute is what a version did in a minute: calls, those that ended in an error of Lambda's,
// and of those that got as far as a model, or met a fault on the way, how many were at fault.
type minute struct{ errors, calls, failed, made float64 }

// takesBack: a broken version is taken back within the five minutes of the canary, a good
// one through a burst of starts is not.
func takesBack(s *stack, p *problems) {
	// An alarm of a share is raised when so many of the last minutes are above the
	// threshold; a minute without calls has no share, and breaches nothing.
	raised := func(alarm string, minutes []minute, share func(minute) (of, all float64)) bool {
		threshold, _ := s.get(alarm, "Threshold").(float64)
		window, _ := s.get(alarm, "EvaluationPeriods").(float64)
		needed, _ := s.get(alarm, "DatapointsToAlarm").(float64)
		for end := range minutes {
			bad := 0.0
			for _, m := range minutes[max(0, end+1-int(window)) : end+1] {
				if of, all := share(m); all > 0 && of/all >= threshold {
					bad++
				}
			}
			if bad >= needed {
				return true
			}
		}
		return false
	}
	const none = 0
	for name, test := range map[string]struct {
		minutes []minute
		want    bool
	}{
		"it never starts":          {[]minute{{40, 40, none, none}, {38, 38, none, none}, {41, 41, none, none}}, true},
		"it never starts, seldom":  {[]minute{{1, 1, none, none}, {}, {}, {1, 1, none, none}}, true},
		"a third of its calls die": {[]minute{{33, 100, none, 60}, {35, 100, none, 60}, {31, 100, none, 60}}, true},
		"all is well":              {[]minute{{none, 100, none, 90}, {none, 100, none, 90}, {none, 100, none, 90}, {none, 100, none, 90}, {none, 100, none, 90}}, false},
		"one call died":            {[]minute{{none, 2, none, 2}, {1, 1, none, none}, {none, 3, none, 3}, {none, 2, none, 2}, {none, 1, none, 1}}, false},
		"one in a hundred dies":    {[]minute{{1, 100, none, 99}, {1, 100, none, 99}, {1, 100, none, 99}, {1, 100, none, 99}, {1, 100, none, 99}}, false},
		// What panics is answered, with 500; so is, with 502, what meets a wrong key.
		"it panics":                     {[]minute{{none, 40, 40, 40}, {none, 38, 38, 38}}, true},
		"a wrong key, in a flood":       {[]minute{{none, 5000, 30, 30}, {none, 5000, 28, 28}}, true},
		"a third of its models":         {[]minute{{none, 90, 30, 90}, {none, 100, 35, 90}, {none, 80, 29, 80}}, true},
		"one call panicked":             {[]minute{{none, 2, none, 2}, {none, 1, 1, 1}, {none, 3, none, 3}, {none, 2, none, 2}, {none, 1, none, 1}}, false},
		"everybody is refused, rightly": {[]minute{{none, 5000, none, none}, {none, 5000, none, none}}, false},
		// A flood starts 1,000 containers, 100 of the new version, at 40 a second: for 25 s,
		// which may lie in two minutes, those that wait for more than 9 s fail. Then all serve.
		"a burst of starts":                {[]minute{{none, 100, none, 90}, {64, 500, none, 400}, {none, 1500, none, 1200}, {none, 1500, none, 1200}, {none, 100, none, 90}}, false},
		"a burst between two minutes":      {[]minute{{none, 100, none, 90}, {30, 60, none, 30}, {34, 1100, none, 1000}, {none, 1500, none, 1200}, {none, 100, none, 90}}, false},
		"a burst as the deployment begins": {[]minute{{64, 80, none, 16}, {none, 1500, none, 1200}, {none, 1500, none, 1200}, {none, 1500, none, 1200}, {none, 100, none, 90}}, false},
	} {
		got := raised("NewVersionErrors", test.minutes, func(m minute) (of, all float64) { return 100 * m.errors, m.calls }) ||
			raised("NewVersionFailed", test.minutes, func(m minute) (of, all float64) { return m.failed, m.made })
		p.equal("taking a version back: "+name, got, test.want)
	}
}

// schedule: every 5 minutes; what fails is tried again, then kept.
func schedule(s *stack, p *problems) {
	schedules := s.ofType("AWS::Scheduler::Schedule")
	if len(schedules) != 1 {
		p.add("%d schedules", len(schedules))
		return
	}
	tick := schedules[0]
	p.equal("expression", s.get(tick, "ScheduleExpression"), "rate(5 minutes)")
	p.equal("window", s.get(tick, "FlexibleTimeWindow", "Mode"), "OFF")
	if state := s.get(tick, "State"); state != nil && state != "ENABLED" {
		p.add("the schedule is %v", state)
	}
	p.equal("name", s.get(tick, "Name"), "fuse-spendalarm")
	p.equal("target", s.get(tick, "Target", "Arn"), "<SpendAlarm.Arn>")
	if retries, _ := s.get(tick, "Target", "RetryPolicy", "MaximumRetryAttempts").(float64); retries < 1 {
		p.add("a start that fails is not tried again")
	}
	p.equal("dead letters", s.get(tick, "Target", "DeadLetterConfig", "Arn"), "<DeadLetters.Arn>")
	p.equal("failed runs", s.get("SpendAlarmEventInvokeConfig", "DestinationConfig", "OnFailure", "Destination"), "<DeadLetters.Arn>")
	p.equal("encryption", s.get("DeadLetters", "SqsManagedSseEnabled"), true)
}

// alarms: what each watches; all page.
func alarms(s *stack, p *problems) {
	for name, want := range map[string]string{
		"SpendHigh":          "fuse TrailingHourDollars Maximum 300 x 1 GreaterThanThreshold 16 notBreaching",
		"SpendAlarmStopped":  "fuse TrailingHourDollars SampleCount 300 x 3 LessThanThreshold 1 breaching",
		"SpendAlarmErrors":   "AWS/Lambda Errors Sum 300 x 2 GreaterThanOrEqualToThreshold 1 notBreaching",
		"GenerateErrors":     "AWS/Lambda Errors Sum 300 x 1 GreaterThanOrEqualToThreshold 5 notBreaching",
		"NewVersionErrors":   "<nil> <nil> <nil> <nil> x 5 GreaterThanOrEqualToThreshold 25 notBreaching",
		"NewVersionFailed":   "fuse Failed Average 60 x 5 GreaterThanOrEqualToThreshold 0.25 notBreaching",
		"ApiErrors":          "AWS/ApiGateway 5XXError Average 300 x 2 GreaterThanOrEqualToThreshold 0.2 notBreaching",
		"ProviderFailed":     "fuse ProviderFailed Average 300 x 2 GreaterThanOrEqualToThreshold 0.5 notBreaching",
		"ClearLimitErrors":   "AWS/Lambda Errors Sum 300 x 1 GreaterThanOrEqualToThreshold 1 notBreaching",
		"DeadLettersWaiting": "AWS/SQS ApproximateNumberOfMessagesVisible Maximum 300 x 1 GreaterThanOrEqualToThreshold 1 notBreaching",
		"StoreUnavailable":   "fuse Denied Sum 60 x 3 GreaterThanOrEqualToThreshold 5 notBreaching",
		"CeilingDenies":      "fuse Denied Sum 300 x 2 GreaterThanOrEqualToThreshold 5 notBreaching",
		"StoreSlow":          "AWS/DynamoDB SuccessfulRequestLatency Average 300 x 3 GreaterThanThreshold 50 notBreaching",
		"Throttles":          "<nil> <nil> <nil> <nil> x 1 GreaterThanOrEqualToThreshold 1 notBreaching",
	} {
		get := func(property string) any { return s.get(name, property) }
		p.equal(name, fmt.Sprint(get("Namespace"), " ", get("MetricName"), " ", get("Statistic"), " ", get("Period"), " x ", get("EvaluationPeriods"),
			" ", get("ComparisonOperator"), " ", get("Threshold"), " ", get("TreatMissingData")), want)
	}
	for name, want := range map[string]string{
		"SpendHigh": "<nil>", "SpendAlarmStopped": "<nil>", "ProviderFailed": "<nil>",
		"ApiErrors":          "[map[Name:ApiName Value:fuse] map[Name:Stage Value:prod]]",
		"SpendAlarmErrors":   "[map[Name:FunctionName Value:<SpendAlarm>]]",
		"GenerateErrors":     "[map[Name:FunctionName Value:<Generate>]]",
		"ClearLimitErrors":   "[map[Name:FunctionName Value:<ClearLimit>]]",
		"DeadLettersWaiting": "[map[Name:QueueName Value:<DeadLetters.QueueName>]]",
		"StoreUnavailable":   "[map[Name:Limit Value:store_unavailable]]",
		"CeilingDenies":      "[map[Name:Limit Value:spend_ceiling_reached]]",
		"StoreSlow":          "[map[Name:TableName Value:<Limits>] map[Name:Operation Value:UpdateItem]]",
	} {
		p.equal("dimensions of "+name, s.get(name, "Dimensions"), want)
	}
	p.equal("alarms", len(s.ofType("AWS::CloudWatch::Alarm")), 14)
	for _, name := range s.ofType("AWS::CloudWatch::Alarm") {
		p.equal("actions of "+name, s.get(name, "AlarmActions"), "[<Topic>]")
		p.equal("enabled "+name, s.get(name, "ActionsEnabled") == false, false)
		if description, _ := s.get(name, "AlarmDescription").(string); len(description) < 40 {
			p.add("%s says too little: %q", name, description)
		}
	}
	throttled := fmt.Sprint(s.get("Throttles", "Metrics"))
	for _, name := range s.ofType("AWS::Lambda::Function") {
		if !strings.Contains(throttled, "<"+name+">") {
			p.add("throttles of %s are not watched", name)
		}
	}
}

// pages: the topic is encrypted with a key that CloudWatch's alarms may use.
func pages(s *stack, p *problems) {
	p.equal("key", s.get("Topic", "KmsMasterKeyId"), "<TopicKey>")
	p.equal("rotation", s.get("TopicKey", "EnableKeyRotation"), true)
	ours := "map[StringEquals:map[aws:SourceAccount:123456789012]]"
	mayUse, mayPublish := false, false
	for _, statement := range list(s.get("TopicKey", "KeyPolicy", "Statement")) {
		mayUse = mayUse || at(statement, "Principal", "Service") == "cloudwatch.amazonaws.com" && fmt.Sprint(at(statement, "Condition")) == ours &&
			fmt.Sprint(at(statement, "Action")) == "[kms:Decrypt kms:GenerateDataKey*]"
	}
	for _, statement := range list(s.get("TopicPolicy", "PolicyDocument", "Statement")) {
		mayPublish = mayPublish || at(statement, "Principal", "Service") == "cloudwatch.amazonaws.com" && at(statement, "Action") == "sns:Publish" && fmt.Sprint(at(statement, "Condition")) == ours
	}
	if !mayUse || !mayPublish {
		p.add("alarms may use the key: %t, may publish: %t", mayUse, mayPublish)
	}
	p.equal("subscription", s.resources["Email"]["Properties"], "map[Endpoint:ops@example.com Protocol:email TopicArn:<Topic>]")
}

// logs: every log is kept for a time, and functions write to theirs as JSON.
func logs(s *stack, p *problems) {
	for _, name := range s.ofType("AWS::Logs::LogGroup") {
		p.equal("retention of "+name, s.get(name, "RetentionInDays"), s.parameters["LogRetentionDays"])
	}
	for _, name := range s.ofType("AWS::Lambda::Function") {
		p.equal("log of "+name, s.get(name, "LoggingConfig"), "map[LogFormat:JSON LogGroup:<"+name+"Logs>]")
		if s.resources[name+"Logs"]["Type"] != "AWS::Logs::LogGroup" {
			p.add("%s has no log group", name)
		}
	}
	p.equal("names", fmt.Sprint(s.get("GenerateLogs", "LogGroupName"), s.get("ClearLimitLogs", "LogGroupName"), s.get("SpendAlarmLogs", "LogGroupName")),
		"/aws/lambda/fuse-generate/aws/lambda/fuse-clearlimit/aws/lambda/fuse-spendalarm")
}

// permissions: nothing is allowed widely, and no item without its key. That the
// functions may do what they do is tested in TestLife.
func permissions(s *stack, p *problems) {
	*p = append(*p, s.tooWide()...)
	for _, function := range s.ofType("AWS::Lambda::Function") {
		for _, g := range s.grants(function) {
			if strings.HasPrefix(g.action, "dynamodb:") && (g.key == "" || g.key == "*") && g != (grant{"dynamodb:Query", "<Spend.Arn>", ""}) {
				p.add("%s may %s any item of %s", function, g.action, g.resource)
			}
		}
	}
	// generate reads all secrets below the prefix, clearlimit the one of the hashes, and
	// spendalarm none.
	for policy, names := range map[string][2]string{"ReadSecrets": {"*", "*"}, "ReadFingerprintSecret": {"fingerprint-secret", "fingerprint-secret-??????"}} {
		p.equal(policy, s.get(policy, "PolicyDocument", "Statement"), "[map[Action:ssm:GetParameters Effect:Allow Resource:arn:aws:ssm:eu-central-1:123456789012:parameter/tokenfuse/"+names[0]+"]"+
			" map[Action:secretsmanager:GetSecretValue Effect:Allow Resource:arn:aws:secretsmanager:eu-central-1:123456789012:secret:tokenfuse/"+names[1]+"]"+
			" map[Action:kms:Decrypt Condition:map[StringEquals:map[kms:ViaService:[ssm.eu-central-1.amazonaws.com secretsmanager.eu-central-1.amazonaws.com]]]"+
			" Effect:Allow Resource:arn:aws:kms:eu-central-1:123456789012:key/k]]")
	}
	for role, managed := range map[string]any{"GenerateRole": "[<ReadSecrets>]", "ClearLimitRole": "[<ReadFingerprintSecret>]", "SpendAlarmRole": nil} {
		p.equal("managed policies of "+role, s.get(role, "ManagedPolicyArns"), managed)
	}
}

// noOptions: what is not asked for is not there.
func noOptions(s *stack, p *problems) {
	for _, kind := range []string{"AWS::WAFv2::WebACL", "AWS::WAFv2::WebACLAssociation", "AWS::SNS::Subscription", "AWS::CloudFront::Distribution", "AWS::CloudFront::CachePolicy", "AWS::CloudFront::OriginRequestPolicy"} {
		if there := s.ofType(kind); len(there) > 0 {
			p.add("%v", there)
		}
	}
	for _, g := range append(s.grants("Generate"), s.grants("ClearLimit")...) {
		if strings.HasPrefix(g.action, "bedrock:") || strings.HasPrefix(g.action, "kms:") || strings.HasPrefix(g.action, "xray:") {
			p.add("%v", g)
		}
	}
	p.equal("tracing", fmt.Sprint(s.get("Generate", "TracingConfig", "Mode"), " ", s.get("ApiStage", "TracingEnabled")), "PassThrough false")
}

// options: what is asked for is there.
func options(s *stack, p *problems) {
	var bedrock, xray []grant
	for _, g := range s.grants("Generate") {
		if strings.HasPrefix(g.action, "bedrock:") {
			bedrock = append(bedrock, g)
		}
		if strings.HasPrefix(g.action, "xray:") {
			xray = append(xray, g)
		}
	}
	p.equal("X-Ray", fmt.Sprint(xray, s.get("Generate", "TracingConfig", "Mode"), " ", s.get("ApiStage", "TracingEnabled")),
		"[{xray:PutTraceSegments * } {xray:PutTelemetryRecords * }]Active true")
	p.equal("bedrock", bedrock, "[{bedrock:InvokeModel arn:aws:bedrock:a } {bedrock:InvokeModel arn:aws:bedrock:b }"+
		" {bedrock:InvokeModelWithResponseStream arn:aws:bedrock:a } {bedrock:InvokeModelWithResponseStream arn:aws:bedrock:b }]")
	p.equal("WAF", s.resources["WebAclAssociation"]["Properties"], "map[ResourceArn:arn:aws:apigateway:eu-central-1::/restapis/<Api>/stages/<ApiStage> WebACLArn:arn:acl]")
	for name, want := range map[string]int{"Generate": 50, "ClearLimit": 5, "SpendAlarm": 5} {
		p.equal("concurrency of "+name, s.get(name, "ReservedConcurrentExecutions"), want)
	}
}

// webACL: one of the stack's own blocks floods by address, challenges nobody, and stands
// neither beside another nor behind CloudFront. The tables begin warm.
func webACL(s *stack, p *problems) {
	p.equal("association", s.get("WebAclAssociation", "WebACLArn"), "<WebAcl.Arn>")
	p.equal("what else", fmt.Sprint(s.get("WebAcl", "Scope"), s.get("WebAcl", "DefaultAction")), "REGIONALmap[Allow:map[]]")
	rules := map[any]any{}
	for _, rule := range list(s.get("WebAcl", "Rules")) {
		rules[at(rule, "Name")] = rule
		p.equal("requests are kept", at(rule, "VisibilityConfig", "SampledRequestsEnabled"), false)
	}
	p.equal("requests are kept", s.get("WebAcl", "VisibilityConfig", "SampledRequestsEnabled"), false)
	p.equal("rate", at(rules["rate"], "Statement"), "map[RateBasedStatement:map[AggregateKeyType:IP EvaluationWindowSec:300 Limit:2000]]")
	p.equal("beyond the rate", at(rules["rate"], "Action"), "map[Block:map[]]")
	p.equal("anti-DDoS", at(rules["anti-ddos"], "Statement", "ManagedRuleGroupStatement"), "map[ManagedRuleGroupConfigs:[map[AWSManagedRulesAntiDDoSRuleSet:"+
		"map[ClientSideActionConfig:map[Challenge:map[UsageOfAction:DISABLED]] SensitivityToBlock:LOW]]] Name:AWSManagedRulesAntiDDoSRuleSet VendorName:AWS]")
	p.equal("anti-DDoS acts", at(rules["anti-ddos"], "OverrideAction"), "map[None:map[]]")
	limit := regexp.MustCompile("^(" + fmt.Sprint(at(s.template, "Parameters", "WebAclRateLimit", "AllowedPattern")) + ")$")
	for value, allowed := range map[string]bool{"0": true, "10": true, "2000": true, "": false, "9": false, "-1": false, "010": false, "1e4": false} {
		p.equal("a limit of "+value, limit.MatchString(value), allowed)
	}
	for _, test := range []struct {
		parameters string
		allowed    bool
	}{
		{"WebAclRateLimit 0 WebAclArn arn:acl CloudFront true", true},
		{"WebAclRateLimit 2000", true},
		{"WebAclRateLimit 2000 WebAclArn arn:acl", false},
		{"WebAclRateLimit 2000 CloudFront true", false},
	} {
		with := newStack(s.template, strings.Fields(test.parameters)...)
		for _, a := range list(at(s.template, "Rules", "OneWebAcl", "Assertions")) {
			p.equal("allowed: "+test.parameters, with.resolve(at(a, "Assert")), test.allowed)
		}
	}
	p.equal("assertions", len(list(at(s.template, "Rules", "OneWebAcl", "Assertions"))), 1)
	for _, name := range s.ofType("AWS::DynamoDB::Table") {
		p.equal("warm throughput of "+name, s.get(name, "WarmThroughput"), "map[WriteUnitsPerSecond:10000]")
	}
}

// cloudFront: the distribution proves itself, passes on all that the code looks at,
// keeps nothing, and asks once.
func cloudFront(s *stack, p *problems) {
	config := s.get("Distribution", "DistributionConfig")
	origins := list(at(config, "Origins"))
	if len(origins) != 1 {
		p.add("%d origins", len(origins))
		return
	}
	p.equal("origin", fmt.Sprint(at(origins[0], "DomainName"), at(origins[0], "OriginPath")), "<Api>.execute-api.eu-central-1.amazonaws.com/prod")
	p.equal("attempts", at(origins[0], "ConnectionAttempts"), 1)
	p.equal("protocol", at(origins[0], "CustomOriginConfig", "OriginProtocolPolicy"), "https-only")
	p.equal("secret", at(origins[0], "OriginCustomHeaders"),
		"[map[HeaderName:"+fingerprint.OriginSecretHeader+" HeaderValue:{{resolve:secretsmanager:tokenfuse/origin-b:SecretString}}]]")
	behavior := at(config, "DefaultCacheBehavior")
	p.equal("viewers", at(behavior, "ViewerProtocolPolicy"), "https-only")
	p.equal("compression", at(behavior, "Compress"), false)
	p.equal("policies", fmt.Sprint(at(behavior, "CachePolicyId"), at(behavior, "OriginRequestPolicyId")), "<NoCache><Viewer>")
	p.equal("WAF", at(config, "WebACLId"), "arn:acl")
	if methods := texts(at(behavior, "AllowedMethods")); !slices.Contains(methods, "POST") || !slices.Contains(methods, "OPTIONS") {
		p.add("methods %v", methods)
	}

	cache := s.get("NoCache", "CachePolicyConfig")
	p.equal("times", fmt.Sprint(at(cache, "MinTTL"), at(cache, "DefaultTTL"), at(cache, "MaxTTL")), "0 0 1")
	kept := map[string]bool{}
	for _, e := range list(at(config, "CustomErrorResponses")) {
		kept[fmt.Sprint(at(e, "ErrorCode"))] = true
		p.equal("errors kept", at(e, "ErrorCachingMinTTL"), 0)
	}
	for _, code := range []string{"400", "403", "404", "405", "414", "416", "500", "501", "502", "503", "504"} {
		if !kept[code] {
			p.add("errors %s are kept", code)
		}
	}

	inKey := texts(at(cache, "ParametersInCacheKeyAndForwardedToOrigin", "HeadersConfig", "Headers"))
	passed := texts(s.get("Viewer", "OriginRequestPolicyConfig", "HeadersConfig", "Headers"))
	if len(inKey) > 10 || len(passed) > 10 {
		p.add("%d and %d headers are more than CloudFront takes", len(inKey), len(passed))
	}
	if !slices.Contains(inKey, "Authorization") {
		p.add("Authorization is not in the cache key: it would be dropped")
	}
	for _, needed := range []string{"Authorization", "X-Challenge-Pass", "Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers",
		"Content-Type", "User-Agent", "Accept-Language", "Sec-Fetch-Mode", "Traceparent",
		"CloudFront-Viewer-Address", "CloudFront-Viewer-ASN", "CloudFront-Viewer-TLS", "CloudFront-Viewer-JA3-Fingerprint", "CloudFront-Viewer-JA4-Fingerprint"} {
		if !slices.Contains(append(slices.Clone(inKey), passed...), needed) {
			p.add("%s is not passed on", needed)
		}
	}
	if slices.Contains(append(inKey, passed...), "Host") {
		p.add("Host is passed on: API Gateway would find no API")
	}
	p.equal("query strings", s.get("Viewer", "OriginRequestPolicyConfig", "QueryStringsConfig", "QueryStringBehavior"), "all")
	p.equal("address", s.outputs["CloudFrontEndpoint"], "https://<Distribution.DomainName>/v1")
}

// dashboard: how much, who, is it working. That its metrics are those of the code is
// tested in TestLife.
func dashboard(s *stack, p *problems) {
	var body struct {
		Widgets []struct {
			Type       string
			Properties map[string]any
		}
	}
	text := s.get("Dashboard", "DashboardBody").(string)
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		p.add("the dashboard is no JSON: %v", err)
		return
	}
	var titles []string
	for _, w := range body.Widgets {
		switch w.Type {
		case "text":
			titles = append(titles, fmt.Sprint(w.Properties["markdown"]))
		case "alarm":
			var shown []string
			for _, alarm := range texts(w.Properties["alarms"]) {
				shown = append(shown, strings.TrimSuffix(strings.Trim(alarm, "<>"), ".Arn"))
			}
			slices.Sort(shown)
			p.equal("alarms shown", shown, fmt.Sprint(s.ofType("AWS::CloudWatch::Alarm")))
		case "log":
			if query := fmt.Sprint(w.Properties["query"]); !regexp.MustCompile(`^SOURCE '<(Generate|SpendAlarm)Logs>' \| `).MatchString(query) {
				p.add("query %s", query)
			}
		}
	}
	p.equal("parts", titles, "[## How much ## Who ## Is it working]")
}

// parameters: each is described, and stands in one group.
func parameters(s *stack, p *problems) {
	groups := list(at(s.template, "Metadata", "AWS::CloudFormation::Interface", "ParameterGroups"))
	var grouped []string
	for _, g := range groups {
		grouped = append(grouped, texts(at(g, "Parameters"))...)
	}
	slices.Sort(grouped)
	all := at(s.template, "Parameters").(object)
	p.equal("grouped", grouped, fmt.Sprint(slices.Sorted(maps.Keys(all))))
	for name, parameter := range all {
		if description, _ := at(parameter, "Description").(string); len(description) < 20 || len(description) > 4000 {
			p.add("%s is described by %q", name, description)
		}
		// `sam deploy` without a word must work.
		value, ok := at(parameter, "Default").(string)
		if pattern, restricted := at(parameter, "AllowedPattern").(string); restricted && (!ok || !regexp.MustCompile("^(?:"+pattern+")$").MatchString(value)) {
			p.add("%s: %q does not match %s", name, value, pattern)
		}
		if at(parameter, "Default") == nil {
			p.add("%s has no default", name)
		}
	}
}

func outputs(s *stack, p *problems) {
	for name, want := range map[string]string{
		"ApiEndpoint":      "https://<Api>.execute-api.eu-central-1.amazonaws.com/prod/v1",
		"AdminEndpoint":    "https://<Api>.execute-api.eu-central-1.amazonaws.com/prod",
		"SupportPolicyArn": "<SupportPolicy>", "TopicArn": "<Topic>", "LimitsTable": "<Limits>", "SpendTable": "<Spend>",
		"DashboardUrl": "https://eu-central-1.console.aws.amazon.com/cloudwatch/home?region=eu-central-1#dashboards/dashboard/<Dashboard>",
	} {
		p.equal(name, s.outputs[name], want)
	}
	p.equal("CloudFront", s.outputs["CloudFrontEndpoint"], "")
	for name, o := range at(s.template, "Outputs").(object) {
		if at(o, "Description") == nil {
			p.add("the output %s is not described", name)
		}
	}
}

// configuration: defaults suit the tokenfuse.yaml that comes with the project.
func configuration(s *stack, p *problems) {
	cfg, err := policy.Load("../tokenfuse.yaml")
	if err != nil {
		p.add("%v", err)
		return
	}
	seconds := func(name string) time.Duration {
		n, _ := s.parameters[name].(float64)
		return time.Duration(n) * time.Second
	}
	// LongestCall has the time to admit and settle in it; a container takes some to start.
	if got, least := seconds("GenerateTimeout"), cfg.LongestCall()+5*time.Second; got < least {
		p.add("GenerateTimeout is %s, less than %s", got, least)
	}
	if got, least := seconds("OriginReadTimeout"), cfg.LongestCall(); got < least {
		p.add("OriginReadTimeout is %s, less than %s", got, least)
	}
	threshold, _ := s.parameters["SpendThresholdUsd"].(float64)
	if dollars := price.Pico(threshold * float64(price.Dollar)); dollars <= cfg.Alarm.Threshold || dollars >= cfg.Pools["all"].Ceiling {
		p.add("SpendThresholdUsd is %g, not between alarm.threshold_usd and the pool all", threshold)
	}
	prefix := "/" + s.parameters["SecretPrefix"].(string) + "/"
	p.equal("clearlimit may read", prefix+s.parameters["FingerprintSecret"].(string), cfg.Fingerprint.Secret.SSM)
	for _, secret := range cfg.Secrets() {
		if !strings.HasPrefix(secret.SSM, prefix) && !strings.HasPrefix("/"+secret.Secret, prefix) {
			p.add("the functions may not read %s%s", secret.SSM, secret.Secret)
		}
	}
}

// TestMutations shows that the checks can fail: each mistake is found by its check.
func TestMutations(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(file)
	check.OK(t, err)
	mutations := []struct{ check, old, new string }{
		{"streaming", "ResponseTransferMode: RESPONSE_STREAM", "ResponseTransferMode: STREAM"},
		{"streaming", "            ResponseTransferMode: RESPONSE_STREAM\n", ""},
		{"streaming", "Method: ANY", "Method: POST"},
		{"streaming", "TimeoutInMillis: 900000", "TimeoutInMillis: 29000"},
		{"streaming", "{Type: REGIONAL}", "{Type: EDGE}"},
		{"admin", "Path: /admin/fuse, Method: PUT, Auth: {Authorizer: AWS_IAM, InvokeRole: NONE}", "Path: /admin/fuse, Method: PUT"},
		{"admin", "Method: GET, Auth: {Authorizer: AWS_IAM, InvokeRole: NONE}}\n        SetFuse", "Method: GET, Auth: {Authorizer: AWS_IAM}}\n        SetFuse"},
		{"admin", "Path: /admin/block, Method: POST, Auth: {Authorizer: AWS_IAM, InvokeRole: NONE}", "Path: /admin/block, Method: POST"},
		{"admin", "${StageName}/PUT/admin/fuse", "${StageName}/*"},
		{"gateway responses", `"param":null,"code":"request_refused"}}`, `"param":null,"code":"request_refused"}`},
		{"gateway responses", `"message":$context.error.messageString`, `"message":"$context.error.message"`},
		{"gateway responses", "        DEFAULT_5XX:", "        API_CONFIGURATION_ERROR:"},
		{"gateway responses", `x-should-retry: "'true'"`, `x-should-retry: "'false'"`},
		{"gateway responses", `Headers: {Access-Control-Allow-Origin: "'*'", `, `Headers: {`},
		{"stage", "    Default: 1000\n", "    Default: 20\n"},
		{"stage", "$context.identity.userArn", "$context.identity.sourceIp"},
		{"stage", `LoggingLevel: "OFF"`, "LoggingLevel: INFO"},
		{"stage", "role of ${LogAccount}", "role"},
		{"tables", "    DeletionPolicy: Retain\n    UpdateReplacePolicy: Retain\n    Properties:\n      BillingMode", "    DeletionPolicy: Delete\n    UpdateReplacePolicy: Retain\n    Properties:\n      BillingMode"},
		{"tables", "{AttributeName: expires, Enabled: true}", "{AttributeName: ttl, Enabled: true}"},
		{"tables", "PointInTimeRecoveryEnabled: true", "PointInTimeRecoveryEnabled: false"},
		{"tables", "{SSEEnabled: true}", "{SSEEnabled: false}"},
		{"functions", "Architectures: [arm64]", "Architectures: [x86_64]"},
		{"functions", "          TOPIC_ARN: !Ref Topic\n", ""},
		{"functions", "TOKENFUSE_ENDPOINT: !Sub https://${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}/${StageName}", "TOKENFUSE_ENDPOINT: !Sub https://${Api}.execute-api.${AWS::Region}.${AWS::URLSuffix}/${StageName}/v1"},
		{"canary", "        Alarms: [!Ref NewVersionErrors, !Ref NewVersionFailed]\n", ""},
		{"canary", "Alarms: [!Ref NewVersionErrors, !Ref NewVersionFailed]", "Alarms: [!Ref NewVersionErrors]"},
		{"canary", "      Threshold: 0.25\n", "      Threshold: 0.5\n"},
		{"canary", "Dimensions: [{Name: Version, Value: !GetAtt Generate.Version.Version}]", "Dimensions: [{Name: Version, Value: live}]"},
		{"alarms", "MetricName: 5XXError", "MetricName: 5xx"},
		{"canary", "!GetAtt Generate.Version.Version", "$LATEST"},
		{"canary", ", secrets ${SecretsRevision}", ""},
		{"canary", "      VersionDescription:", "      # "},
		{"schedule", "rate(5 minutes)", "rate(1 hour)"},
		{"schedule", "            DeadLetterConfig: {Arn: !GetAtt DeadLetters.Arn}\n", ""},
		{"schedule", "RetryPolicy: {MaximumRetryAttempts: 3", "RetryPolicy: {MaximumRetryAttempts: 0"},
		{"schedule", "            Name: !Sub ${AWS::StackName}-spendalarm # the default is the same for every stack\n", ""},
		{"schedule", "SqsManagedSseEnabled: true", "SqsManagedSseEnabled: false"},
		{"alarms", "TreatMissingData: breaching", "TreatMissingData: notBreaching"},
		{"alarms", "      AlarmActions: [!Ref Topic]\n", ""},
		{"alarms", "MetricName: TrailingHourDollars\n      Statistic: Maximum", "MetricName: TrailingHourDollar\n      Statistic: Maximum"},
		{"alarms", "Value: store_unavailable", "Value: store_failed"},
		{"alarms", "Value: spend_ceiling_reached", "Value: spend_ceiling"},
		{"alarms", "      Period: 300\n      EvaluationPeriods: 2\n      Threshold: 5\n", "      Period: 300\n      EvaluationPeriods: 1\n      Threshold: 5\n"},
		{"dashboard", `"${CeilingDenies.Arn}", `, ""},
		{"pages", "KmsMasterKeyId: !Ref TopicKey", "KmsMasterKeyId: alias/aws/sns"},
		{"pages", "Action: [kms:Decrypt, kms:GenerateDataKey*]", "Action: [kms:Decrypt]"},
		{"logs", "      RetentionInDays: !Ref LogRetentionDays\n", ""},
		{"logs", "LoggingConfig: {LogGroup: !Ref SpendAlarmLogs, LogFormat: JSON}", "LoggingConfig: {LogFormat: JSON}"},
		{"permissions", "Action: dynamodb:Query", "Action: dynamodb:*"},
		{"permissions", "                Resource: !Ref Topic\n              # SNS", "                Resource: \"*\"\n              # SNS"},
		{"permissions", `                Condition: {StringEquals: {"cloudwatch:namespace": !Ref AWS::StackName}}`, ""},
		{"permissions", `                Condition: {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["used#*"]}}`, ""},
		{"permissions", "parameter/${SecretPrefix}/*", "parameter/*"},
		{"permissions", "ManagedPolicyArns: [!Ref ReadFingerprintSecret]", "ManagedPolicyArns: [!Ref ReadSecrets]"},
		{"permissions", "parameter/${SecretPrefix}/${FingerprintSecret}", "parameter/${SecretPrefix}/*"},
		{"permissions", "${FingerprintSecret}-??????", "${FingerprintSecret}*"},
		{"configuration", "    Default: fingerprint-secret\n", "    Default: hashes\n"},
		{"functions", "!If [HasOperatorConcurrency, !Ref OperatorConcurrency, !Ref AWS::NoValue]", "!Ref OperatorConcurrency"},
		{"options", "      ReservedConcurrentExecutions: !If [HasOperatorConcurrency, !Ref OperatorConcurrency, !Ref AWS::NoValue]\n", ""},
		{"canary", "      EvaluationPeriods: 5\n      DatapointsToAlarm: 2\n", "      EvaluationPeriods: 1\n      DatapointsToAlarm: 1\n"},
		{"canary", "      DatapointsToAlarm: 2\n      Threshold: 25\n", "      DatapointsToAlarm: 5\n      Threshold: 25\n"},
		{"canary", "      Threshold: 25\n", "      Threshold: 1\n"},
		{"no options", "    Condition: HasWebAcl\n", ""},
		{"no options", "  HasBedrock: !Not [!Equals [!Join [\"\", !Ref BedrockModelArns], \"\"]]", "  HasBedrock: !Equals [\"\", \"\"]"},
		{"options", "Resource: !Ref BedrockModelArns", "Resource: arn:aws:bedrock:*::foundation-model/*"},
		{"cloudfront", "HeaderName: X-Origin-Secret", "HeaderName: X-Secret"},
		{"cloudfront", "Headers: [Authorization, X-Challenge-Pass", "Headers: [X-Challenge-Pass"},
		{"cloudfront", "            - Content-Type\n", "            - Host\n"},
		{"cloudfront", "          - {ErrorCode: 503, ErrorCachingMinTTL: 0}\n", ""},
		{"cloudfront", "MaxTTL: 1", "MaxTTL: 60"},
		{"cloudfront", "SecretPrefix}/origin-${OriginSecret}", "SecretPrefix}/origin"},
		{"dashboard", `"${StoreSlow.Arn}"]`, `"${StoreSlow.Arn}"`},
		{"dashboard", `"${SpendHigh.Arn}", `, ""},
		{"parameters", "    Description: How callers move to a new version of generate. One that fails meanwhile is taken back.\n", ""},
		{"parameters", "Parameters: [RequestsPerSecond, RequestBurst, ", "Parameters: [RequestsPerSecond, "},
		{"web ACL", "AggregateKeyType: IP", "AggregateKeyType: CONSTANT"},
		{"web ACL", "          Action: {Block: {}}", "          Action: {Count: {}}"},
		{"web ACL", "UsageOfAction: DISABLED", "UsageOfAction: ENABLED"},
		{"web ACL", "          OverrideAction: {None: {}}", "          OverrideAction: {Count: {}}"},
		{"web ACL", "SampledRequestsEnabled: false", "SampledRequestsEnabled: true"},
		{"web ACL", "!If [GivesWebAcl, !Ref WebAclArn, !GetAtt WebAcl.Arn]", "!If [HasEmail, !GetAtt WebAcl.Arn, !Ref WebAclArn]"},
		{"web ACL", `!And [!Equals [!Ref WebAclArn, ""], !Equals [!Ref CloudFront, "false"]]`, `!Equals [!Ref WebAclArn, ""]`},
		{"web ACL", `!And [!Equals [!Ref WebAclArn, ""], !Equals [!Ref CloudFront, "false"]]`, `!Equals [!Ref CloudFront, "false"]`},
		{"web ACL", "    AllowedPattern: \"0|[1-9][0-9]{1,8}\"", "    AllowedPattern: \"[0-9]+\""},
		{"web ACL", "!If [HasWarmWrites, {WriteUnitsPerSecond: !Ref WarmWritesPerSecond}, !Ref AWS::NoValue]", "!Ref AWS::NoValue"},
		{"tables", "!If [HasWarmWrites, {WriteUnitsPerSecond: !Ref WarmWritesPerSecond}, !Ref AWS::NoValue]", "{WriteUnitsPerSecond: 8000}"},
		{"no options", "    Condition: MakesWebAcl\n", ""},
		{"parameters", "    Default: prod\n", "    Default: pro-d\n"},
		{"outputs", "${StageName}/v1\n  CloudFrontEndpoint", "${StageName}\n  CloudFrontEndpoint"},
		{"configuration", "    Default: 120\n    MinValue: 20", "    Default: 60\n    MinValue: 20"},
		{"configuration", "    Default: 16\n", "    Default: 8\n"},
		{"functions", "          METRICS_NAMESPACE: !Ref AWS::StackName\n", ""},
		{"configuration", "    Default: tokenfuse\n", "    Default: fuse\n"},
	}
	dir := t.TempDir()
	files := make([]string, len(mutations))
	for i, m := range mutations {
		check.Must(t, strings.Contains(string(source), m.old), "%s: %q is not in the template", m.check, m.old)
		files[i] = filepath.Join(dir, strconv.Itoa(i))
		check.OK(t, os.WriteFile(files[i], []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600))
	}
	for i, template := range transformed(t, files...) {
		c, ok := checks[mutations[i].check]
		var p problems
		if !ok {
			t.Fatalf("no check %s", mutations[i].check)
		}
		if c.check(newStack(template, c.parameters...), &p); len(p) == 0 {
			t.Errorf("%s does not find %q instead of %q", mutations[i].check, mutations[i].new, mutations[i].old)
		}
	}
}
