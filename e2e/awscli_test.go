//go:build awscli

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// adminModel describes the admin routes to the AWS CLI, so that it signs requests to
// them as it does to any service.
const adminModel = `{
  "version": "2.0",
  "metadata": {
    "apiVersion": "2026-11-30", "serviceId": "tokenfuse", "serviceFullName": "tokenfuse", "uid": "tokenfuse-2026-11-30",
    "protocol": "rest-json", "endpointPrefix": "execute-api", "signingName": "execute-api", "signatureVersion": "v4"
  },
  "operations": {
    "GetLimits":   {"name": "GetLimits", "http": {"method": "GET", "requestUri": "/admin/limits"}, "input": {"shape": "Whom"}, "output": {"shape": "Limits"}},
    "ClearLimits": {"name": "ClearLimits", "http": {"method": "POST", "requestUri": "/admin/limits/clear"}, "input": {"shape": "Clear"}, "output": {"shape": "Limits"}},
    "SetFuse":     {"name": "SetFuse", "http": {"method": "PUT", "requestUri": "/admin/fuse"}, "input": {"shape": "Fuse"}, "output": {"shape": "Fuse"}}
  },
  "shapes": {
    "Text":   {"type": "string"},
    "Number": {"type": "integer"},
    "Whom":   {"type": "structure", "members": {"email": {"shape": "Text", "location": "querystring", "locationName": "email"}}},
    "Clear":  {"type": "structure", "members": {"email": {"shape": "Text"}, "type": {"shape": "Text"}, "reason": {"shape": "Text"}}},
    "Left":   {"type": "structure", "members": {"remaining": {"shape": "Number"}}},
    "Limit":  {"type": "structure", "members": {"name": {"shape": "Text"}, "remaining": {"shape": "Number"}, "before": {"shape": "Left"}, "after": {"shape": "Left"}}},
    "List":   {"type": "list", "member": {"shape": "Limit"}},
    "Limits": {"type": "structure", "members": {"limits": {"shape": "List"}}},
    "Fuse":   {"type": "structure", "members": {"state": {"shape": "Text"}, "set_by": {"shape": "Text"}}}
  }
}`

// Requests that the AWS CLI signs, of either major version: dev accepts those of its
// own key pair and no others.
func TestSignedByTheAWSCLI(t *testing.T) {
	t.Parallel()
	cli, err := exec.LookPath("aws")
	check.Must(t, err == nil, "the AWS CLI is needed (pip install awscli): %v", err)
	data := t.TempDir()
	model := filepath.Join(data, "tokenfuse", "2026-11-30", "service-2.json")
	check.OK(t, os.MkdirAll(filepath.Dir(model), 0o700))
	check.OK(t, os.WriteFile(model, []byte(adminModel), 0o600))
	d := startDev(t, supportConfig(t), "--verbose")
	d.complete(t, d.tokenOf(t, "--sub", "ann", "--email", "ann+cv@example.com"), question{feature: "cv", text: "Hi", most: 1})

	id, secret := d.keys(t)
	aws := func(id, secret, token string, args ...string) result {
		t.Helper()
		// An AWS_PROFILE that is set but empty is an error to this tool.
		env := []string{"-i", "PATH=" + os.Getenv("PATH"), "HOME=" + data, "AWS_DATA_PATH=" + data, "AWS_EC2_METADATA_DISABLED=true",
			"AWS_DEFAULT_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=" + secret}
		if token != "" {
			env = append(env, "AWS_SESSION_TOKEN="+token)
		}
		return run(t, nil, "env", append(append(env, cli), args...)...)
	}
	clear := []string{"tokenfuse", "clear-limits", "--email", "ann+cv@example.com", "--type", "cv", "--endpoint-url", d.url}
	// A command of the CLI's own that signs for execute-api; there is no such route.
	connection := []string{"apigatewaymanagementapi", "get-connection", "--connection-id", "a b+c/d=", "--endpoint-url", d.url + "/admin"}
	for _, test := range []struct {
		name, id, secret, token string
		args                    []string
		says                    string // without the spaces
	}{
		{"query", id, secret, "", []string{"tokenfuse", "get-limits", "--email", "ann+cv@example.com", "--endpoint-url", d.url}, `{"name":"cv","remaining":3}`},
		{"another secret", id, "wrong", "", clear, "(403)whencallingtheClearLimitsoperation:thesignaturedoesnotmatchtherequest"},
		{"another key", "AKIDNOBODY", secret, "", clear, "(403)whencallingtheClearLimitsoperation:theaccesskeyisunknown"},
		{"body", id, secret, "", clear, `"before":{"remaining":3},"after":{"remaining":4}`},
		{"with a session token", id, secret, "token/of+a=session", clear, `"before":{"remaining":4},"after":{"remaining":4}`},
		{"PUT", id, secret, "", []string{"tokenfuse", "set-fuse", "--state", "challenge", "--endpoint-url", d.url}, `{"state":"challenge","set_by":"arn:aws:iam::000000000000:role/tokenfuse-dev"}`},
		{"a path to be escaped", id, secret, "", connection, "(404)whencallingtheGetConnectionoperation"},
		{"that with another secret", id, "wrong", "", connection, "(403)whencallingtheGetConnectionoperation:thesignaturedoesnotmatchtherequest"},
	} {
		got := aws(test.id, test.secret, test.token, test.args...)
		said := strings.Join(strings.Fields(got.stdout+got.stderr), "")
		check.That(t, strings.Contains(said, test.says) && (got.code == 0) != strings.Contains(test.says, "(40"), "%s: %+v", test.name, got)
	}
	if n := len(d.changeable(t)); n != 7 { // the user, their address, a fuse that was set, three changes in the audit, and their number
		t.Errorf("%d items: %v", n, d.changeable(t))
	}
}
