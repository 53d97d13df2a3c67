package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/awslabs/aws-lambda-go-api-proxy/core"

	"github.com/tokenfuse/tokenfuse/internal/environ"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// secretsOfKeys are what the keys of withKeys are.
var secretsOfKeys = map[string]string{
	"ANN_1": strings.Repeat("a", 32), "ANN_2": strings.Repeat("A", 32), "BOB": strings.Repeat("b", 40),
	"SHORT": strings.Repeat("s", 31), "SPACED": strings.Repeat("s", 32) + "\n",
}

// withKeys gives the handler of a rig's policy that goes by keys, or why there is none.
func (g *rig) withKeys(keys string) (*Handler, error) {
	text := testPolicy[:strings.Index(testPolicy, "admin:")] + "admin: {allow_arns: [\"" + support + "\"]" + keys + "}\n"
	p, err := policy.Parse([]byte(text))
	check.OK(g.t, err)
	return Build(g.t.Context(), Parts{Policy: p, DynamoDB: g.db, Bucket: bucket.Options{Table: g.table}, Spend: g.spends, ByKey: true,
		Log: environ.NewLog(g.log), Now: g.Now, Secret: func(_ context.Context, s policy.Secret) (string, error) {
			if v := secretsOfKeys[s.Env]; v != "" {
				return v, nil
			}
			return "", errors.New("it is not set")
		}})
}

const annAndBob = `, keys: {ann: [{env: ANN_1}, {env: ANN_2}], bob: [{env: BOB}]}`

// Who has a key gets in and is named by it; nobody else does, whatever AWS identity a
// request claims.
func TestKeys(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	h, err := g.withKeys(annAndBob)
	check.OK(t, err)
	signed := g.event("GET", "/admin/fuse", "").RequestContext
	send := func(method, path, body string, authorization ...string) *httptest.ResponseRecorder {
		ctx, err := (&core.RequestAccessor{}).EventToRequestWithContext(t.Context(), events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, RequestContext: signed})
		check.OK(t, err)
		r := httptest.NewRequestWithContext(ctx.Context(), method, path, strings.NewReader(body))
		r.Header["Authorization"] = authorization
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, refused := range [][]string{nil, {""}, {"Bearer"}, {"Bearer "}, {"Bearer " + secretsOfKeys["ANN_1"] + "a"}, {"Bearer " + secretsOfKeys["ANN_1"][1:]},
		{"Basic " + secretsOfKeys["BOB"]}, {secretsOfKeys["BOB"]}, {"Bearer " + secretsOfKeys["BOB"], "Bearer x"}, {"AWS4-HMAC-SHA256 Credential=AKID"}} {
		if w := send("GET", "/admin/fuse", "", refused...); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "admin_not_allowed") {
			t.Errorf("%q: %d %s", refused, w.Code, w.Body)
		}
	}
	for _, good := range []string{"Bearer " + secretsOfKeys["ANN_1"], "bearer  " + secretsOfKeys["ANN_2"], "Bearer " + secretsOfKeys["BOB"]} {
		if w := send("GET", "/admin/fuse", "", good); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", good, w.Code, w.Body)
		}
	}
	if w := send("PUT", "/admin/fuse", `{"state":"open","reason":"an attack"}`, "Bearer "+secretsOfKeys["ANN_2"]); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := send("GET", "/admin/audit", "", "Bearer "+secretsOfKeys["BOB"]); !strings.Contains(w.Body.String(), `"key:ann"`) {
		t.Errorf("the audit does not name ann: %s", w.Body)
	}
	for _, s := range secretsOfKeys {
		if strings.Contains(g.log.String(), s) {
			t.Error("a key is in the log")
		}
	}
}

// A key that cannot be kept apart or can be guessed is no key, and the error says which.
func TestWrongKeys(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for keys, says := range map[string]string{
		"":                               "admin.keys is required",
		`, keys: {ann: [{env: SHORT}]}`:  "admin.keys.ann: a key must have at least 32 characters",
		`, keys: {ann: [{env: SPACED}]}`: "visible ASCII",
		`, keys: {ann: [{env: ANN_1}], eve: [{env: BOB}, {env: ANN_1}]}`: "admin.keys.eve: its secret is also that of ann",
		`, keys: {ann: [{env: NOWHERE}]}`:                                "admin.keys.ann: it is not set",
	} {
		if _, err := g.withKeys(keys); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", keys, err)
		}
	}
}
