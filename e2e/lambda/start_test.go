package lambda

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/tokenfuse/tokenfuse/internal/version"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/runtimeapi"
)

// A function that cannot start ends at once with exit code 1 and one line in its log,
// which says all that is wrong. It posts nothing: Lambda reports the end of the process
// (Runtime.ExitError) beside that line.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	all := []string{"generate", "clearlimit", "spendalarm"}
	wrong := func(yaml string) string {
		yaml = strings.Replace(yaml, "max_in_flight: 4", "max_in_flght: 4", 1)    // on line 11
		yaml = strings.Replace(yaml, "pools: {anonymous:", "pools: {mystery:", 1) // which line 11 draws on
		return yaml + "more: 1\n"
	}
	keptIn := func(where string) func(string) string {
		return func(yaml string) string { return strings.Replace(yaml, "{env: FINGERPRINT_SECRET}", where, 1) }
	}
	for name, test := range map[string]struct {
		functions []string
		edit      func(yaml string) string
		unset     []string
		env       []string
		remove    bool // the configuration
		says      []string
	}{
		"every mistake of the configuration": {functions: all, edit: wrong,
			says: []string{"line 11: tiers.anonymous.max_in_flght: unknown key", "line 11: tiers.anonymous.pool: unknown pool", "line 20: more: unknown key"}},
		"no configuration":           {functions: all, remove: true, says: []string{"tokenfuse.yaml", "no such file"}},
		"another configuration":      {functions: all, env: []string{"TOKENFUSE_CONFIG=other.yaml"}, says: []string{"other.yaml"}},
		"no table of limits":         {functions: all, unset: []string{"LIMITS_TABLE"}, says: []string{"LIMITS_TABLE is not set: it names the table"}},
		"no table of events":         {functions: all, unset: []string{"SPEND_TABLE"}, says: []string{"SPEND_TABLE is not set"}},
		"no topic":                   {functions: []string{"spendalarm"}, unset: []string{"TOPIC_ARN"}, says: []string{"TOPIC_ARN is not set"}},
		"all that is missing":        {functions: []string{"spendalarm"}, unset: []string{"LIMITS_TABLE", "SPEND_TABLE", "TOPIC_ARN"}, remove: true, says: []string{"LIMITS_TABLE", "SPEND_TABLE", "TOPIC_ARN", "tokenfuse.yaml"}},
		"no key of the model":        {functions: []string{"generate"}, unset: []string{"MODEL_KEY"}, says: []string{"provider main", "MODEL_KEY is not set"}},
		"no secret of fingerprints":  {functions: []string{"generate"}, unset: []string{"FINGERPRINT_SECRET"}, says: []string{"fingerprint", "FINGERPRINT_SECRET is not set"}},
		"a secret that is too short": {functions: []string{"generate"}, env: []string{"FINGERPRINT_SECRET=" + fingerprintSecret[:8]}, says: []string{"secret must have at least"}},
		"no such SSM parameter":      {functions: []string{"generate"}, edit: keptIn("{ssm: /app/absent}"), says: []string{"fingerprint", "/app/absent", "ParameterNotFound"}},
		"no SSM at all": {functions: []string{"generate"}, edit: keptIn("{ssm: /app/fingerprint}"), env: []string{"AWS_ENDPOINT_URL_SSM=http://127.0.0.1:1"},
			says: []string{"fingerprint", "/app/fingerprint", "connection refused"}},
		"no such managed secret": {functions: []string{"generate"}, edit: keptIn("{secret: app/absent}"), says: []string{"fingerprint", "app/absent", "ResourceNotFoundException"}},
	} {
		for _, function := range test.functions {
			t.Run(name+"/"+function, func(t *testing.T) {
				t.Parallel()
				g := newRig(t, func(g *rig) { g.edit = test.edit })
				g.setSecrets(map[string]string{})
				g.env = append(g.env, test.env...)
				for _, name := range test.unset {
					g.env = append(g.env, name+"=")
				}
				if test.remove {
					check.OK(t, os.Remove(filepath.Join(g.dir, "tokenfuse.yaml")))
				}
				f := g.start(function)
				select {
				case <-f.Exited():
				case <-within(t).Done():
					t.Fatal("it neither ends nor says why")
				}
				if code := f.State().ExitCode(); code != 1 {
					t.Errorf("%v", f.State())
				}
				lines := logged(t, f)
				check.Must(t, len(lines) == 1 && lines[0]["msg"] == "the function cannot start" && lines[0]["level"] == "ERROR", "the log: %v", lines)
				check.That(t, lines[0]["version"] == version.Number, "it says version %v", lines[0]["version"])
				said, _ := lines[0]["error"].(string)
				for _, want := range test.says {
					check.That(t, strings.Contains(said, want), "it says %q, and nothing of %q", said, want)
				}
				if f.InitError() != nil {
					t.Errorf("it posted %v", f.InitError())
				}
				check.That(t, !strings.Contains(f.Log(), fingerprintSecret[:8]), "the log shows a part of a secret")
			})
		}
	}
}

// setSecrets makes SSM and Secrets Manager hold these and no others.
func (g *rig) setSecrets(held map[string]string) {
	url := g.serve(secretStore(held))
	g.env = append(g.env, "AWS_ENDPOINT_URL_SSM="+url, "AWS_ENDPOINT_URL_SECRETS_MANAGER="+url)
}

// secretStore answers as SSM and Secrets Manager do.
type secretStore map[string]string

func (s secretStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Names          []string
		SecretId       string
		WithDecryption bool
	}
	decodeBody(r, &in)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	switch target := r.Header.Get("X-Amz-Target"); {
	case target == "AmazonSSM.GetParameters" && in.WithDecryption:
		found, invalid := []map[string]string{}, []string{}
		for _, name := range in.Names {
			if value, ok := s[name]; ok {
				found = append(found, map[string]string{"Name": name, "Value": value})
			} else {
				invalid = append(invalid, name)
			}
		}
		writeJSON(w, http.StatusOK, map[string]any{"Parameters": found, "InvalidParameters": invalid})
	case target == "secretsmanager.GetSecretValue" && s[in.SecretId] != "":
		writeJSON(w, http.StatusOK, map[string]string{"SecretString": s[in.SecretId]})
	default:
		writeJSON(w, http.StatusBadRequest, map[string]string{"__type": "ResourceNotFoundException"})
	}
}

// Secrets that AWS keeps are read at the start, and by clearlimit when an address is
// first looked up.
func TestSecretsOfAWS(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"{ssm: app/fingerprint}", "{secret: app/fingerprint}"} {
		g := newRig(t, func(g *rig) {
			g.edit = func(yaml string) string { return strings.Replace(yaml, "{env: FINGERPRINT_SECRET}", where, 1) }
		})
		g.setSecrets(map[string]string{"app/fingerprint": fingerprintSecret})
		a := whole(t, g.ask(g.warm("generate"), "", chat("ask", question, false), time.Minute))
		check.That(t, a.status == 200, "%s: %d %s", where, a.status, a.body)
		g.byEmail(g.warm("clearlimit")).refused(t, 404, "identity_not_found")
	}
}

// byEmail asks clearlimit for the limits of somebody whom it knows by address alone.
func (g *rig) byEmail(f *runtimeapi.Function) answered {
	g.t.Helper()
	var e events.APIGatewayProxyRequest
	check.OK(g.t, json.Unmarshal(event(g.t, "iam", "GET", "/admin/limits", "", ""), &e))
	e.QueryStringParameters, e.MultiValueQueryStringParameters = nil, map[string][]string{"email": {"ann@example.com"}}
	raw, err := json.Marshal(e)
	check.OK(g.t, err)
	return buffered(g.t, f.Invoke(raw, timeout))
}

// Whoever must cut off an attack needs no secret: clearlimit starts without, and serves
// all but the search by address.
func TestFuseWithoutSecrets(t *testing.T) {
	t.Parallel()
	for name, where := range map[string]string{"absent": "{ssm: /app/absent}", "unreachable": "{secret: app/key}", "not set": "{env: NOWHERE}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, func(g *rig) {
				g.edit = func(yaml string) string { return strings.Replace(yaml, "{env: FINGERPRINT_SECRET}", where, 1) }
			})
			g.setSecrets(map[string]string{})
			g.env = append(g.env, "AWS_ENDPOINT_URL_SECRETS_MANAGER=http://127.0.0.1:1")
			f := g.warm("clearlimit")
			if a := g.admin(f, "PUT", "/admin/fuse", `{"state":"open","for":"1h"}`); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
			g.byEmail(f).refused(t, 503, "secret_unavailable")
			if a := g.admin(f, "GET", "/admin/fuse", ""); a.status != 200 || !strings.Contains(a.body, `"open"`) {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
}

// A start is one line in the log, with the version, and one metric.
func TestStartSaysItsVersion(t *testing.T) {
	t.Parallel()
	for _, function := range []string{"generate", "clearlimit", "spendalarm"} {
		f := newRig(t).warm(function)
		f.Close() // its log is whole then
		lines := logged(t, f)
		check.Must(t, len(lines) == 2, "%s: the log: %v", function, lines)
		start, metric := lines[0], lines[1]
		check.That(t, start["msg"] == "the function starts" && start["level"] == "INFO" && start["version"] == version.Number, "%s: the log: %v", function, lines)
		check.That(t, metric["Starts"] == 1.0 && metric["Release"] == version.Number, "%s: the metrics: %v", function, metric)
	}
}
