package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/functions/clearlimit/admin"
	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/local/gateway"
	"github.com/tokenfuse/tokenfuse/local/sigv4"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

const (
	adminKey    = "AKIDEXAMPLE"
	adminSecret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	internKey   = "AKIDINTERN"
	supportARN  = "arn:aws:iam::123456789012:user/support"
)

const adminPolicy = `
providers:
  main: {kind: openai, base_url: "http://127.0.0.1:1/v1", timeout: 20s}
models:
  small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 1000000, price_per_mtok: {input: "0.40", output: "1.60"}}
features:
  docqa: {model: small, max_output_tokens: 400}
  cv:    {model: small, max_output_tokens: 2000, tiers: [user, pro], quota: {capacity: 10, per: 24h}}
tiers:
  anonymous: {max_input_tokens: 2000, max_messages: 16, max_output_tokens: 400, max_in_flight: 4, limits: {tokens: {capacity: 5000, per: 1h}}}
  user: {max_input_tokens: 6000, max_messages: 64, max_output_tokens: 4000, max_in_flight: 8,
         limits: {tokens: {capacity: 50000, per: 1h}, spend: {usd: "2.00", per: 24h}}}
  pro:  {max_input_tokens: 6000, max_messages: 64, max_output_tokens: 4000, max_in_flight: 8,
         limits: {tokens: {capacity: 100000, per: 1h}, spend: {usd: "2.00", per: 24h}}}
auth: {issuer: "https://issuer.example.com", audience: "test", jwks_url: "https://issuer.example.com/jwks.json", plan_claim: plan}
fingerprint: {secret: {env: TEST_SECRET}}
admin: {allow_arns: ["` + supportARN + `"]}
`

// deployment is the admin function behind a gateway that checks signatures, on the
// real engine. Users 123 (jane@example.com) and 124 share an address; 123 has used
// up the quota of cv.
type deployment struct {
	url     string
	buckets *bucket.Buckets
}

func deploy(t *testing.T) deployment {
	t.Helper()
	const secret = "a-secret-of-some-length"
	p, err := policy.Parse([]byte(adminPolicy))
	check.OK(t, err)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	db, table := enginetest.Table(t)
	_, spend := enginetest.SpendTable(t)
	h, err := admin.Build(t.Context(), admin.Parts{
		Policy: p, DynamoDB: db, Bucket: bucket.Options{Table: table}, Spend: spend, Log: slog.New(slog.DiscardHandler), Now: clock,
		Secret: func(context.Context, policy.Secret) (string, error) { return secret, nil },
	})
	check.OK(t, err)
	lookup := func(id string) (secret, arn string, ok bool) {
		switch id {
		case adminKey:
			return adminSecret, supportARN, true
		case internKey:
			return adminSecret, "arn:aws:iam::123456789012:user/intern", true
		}
		return "", "", false
	}
	front := httptest.NewServer(gateway.New(gateway.Options{Stage: "prod", Identity: sigv4.Identity(lookup, time.Now)}, gateway.Buffered(admin.Lambda(h))))
	t.Cleanup(front.Close)

	users, err := emails.New(db, table, []byte(secret), clock)
	check.OK(t, err)
	for email, sub := range map[string]string{"jane@example.com": "123", "both@example.com": "123", "BOTH@example.com": "124"} {
		check.OK(t, users.Learn(t.Context(), email, sub))
	}
	d := deployment{url: front.URL}
	if d.buckets, err = bucket.New(db, bucket.Options{Table: table, LongestPeriod: 24 * time.Hour, Now: clock}); err != nil {
		t.Fatal(err)
	}
	var charges []bucket.Charge
	for _, l := range limits.Of(p, p.Tiers["user"], limits.User) {
		charges = append(charges, bucket.Charge{Limit: l.Limit, Cost: map[string]int64{"cv": 10, "tokens": 25_000, "spend": 500_000_000_000}[l.Name]})
	}
	r, err := d.buckets.Reserve(t.Context(), bucket.Request{Key: "user#123", Charges: charges, MaxInFlight: 1, Deadline: now.Add(time.Minute)})
	check.Must(t, err == nil && r.Reservation != nil, "%+v, %v", r, err)
	return d
}

// asAdmin sets the environment of a shell with AWS credentials, and of nothing else
// that AWS tools read.
func asAdmin(t *testing.T, key, secret string) {
	t.Helper()
	nothing := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": nothing, "AWS_SHARED_CREDENTIALS_FILE": nothing, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_CLOUDFORMATION": "", "TOKENFUSE_ENDPOINT": "", "TOKENFUSE_STACK": "",
	} {
		t.Setenv(name, value)
	}
}

func TestAdminCommands(t *testing.T) {
	asAdmin(t, adminKey, adminSecret)
	d := deploy(t)
	t.Setenv("TOKENFUSE_ENDPOINT", d.url+"/prod/")
	for _, step := range []struct{ args, want string }{
		{"limits jane@example.com", `user 123: 1 calls in flight; the fuse is closed
tier: pro or user, as the token of the user says
LIMIT   FOR TIER   LEFT       OF         PER  FULL IN
tokens  user       25000      50000      1h   30m
tokens  pro        50000      100000     1h   30m
spend   user, pro  $1.500000  $2.000000  24h  6h
cv      user, pro  0          10         24h  24h
`},
		{"clear-limit jane@example.com --type cv --reason ticket", `cleared cv of user 123
LIMIT  FOR TIER   LEFT BEFORE  LEFT NOW  OF  PER
cv     user, pro  0            10        10  24h
`},
		{"clear-limit user#123 --type all", `cleared all of user 123
LIMIT   FOR TIER   LEFT BEFORE  LEFT NOW   OF         PER
tokens  user       25000        50000      50000      1h
tokens  pro        50000        100000     100000     1h
spend   user, pro  $1.500000    $2.000000  $2.000000  24h
cv      user, pro  10           10         10         24h
`},
		{"fuse show", "the fuse is closed\n"},
		{"fuse set challenge --for 1h --endpoint " + d.url, "the fuse is challenge until 2026-11-30 13:00:00 UTC, set by " + supportARN + "\n"},
		{"fuse set open --reason emergency", "the fuse is open until 2026-11-30 13:00:00 UTC, set by " + supportARN + ": emergency\nnote: an hour, since no time was given: --for gives one, and --no-end none\n"},
		{"fuse set open --for 1d12h", "the fuse is open until 2026-12-02 00:00:00 UTC, set by " + supportARN + "\n"},
		{"fuse set open --no-end", "the fuse is open, set by " + supportARN + "\n"},
		{"unblock jane@example.com", "user 123 was not blocked: nothing was changed\n"},
		{"block jane@example.com --for 1d --reason ticket", "user 123 is blocked until 2026-12-01 12:00:00 UTC, by " + supportARN + "\n"},
		{"block later --for 2h", "user later is blocked until 2026-11-30 14:00:00 UTC, by " + supportARN + "\nnote: nothing is known of them at the moment: is it spelt right?\n"},
		{"unblock user#123", "user 123 is not blocked any more\n"},
		{"audit --identity jane@example.com", `WHEN                     WHO                                     WHOM      WHAT                              WHY
2026-11-30 12:00:00 UTC  arn:aws:iam::123456789012:user/support  user#123  unblock                           
2026-11-30 12:00:00 UTC  arn:aws:iam::123456789012:user/support  user#123  block until 2026-12-01T12:00:00Z  ticket
2026-11-30 12:00:00 UTC  arn:aws:iam::123456789012:user/support  user#123  clear all                         
2026-11-30 12:00:00 UTC  arn:aws:iam::123456789012:user/support  user#123  clear cv                          ticket
`},
		{"audit --identity nobody", "no changes\n"},
		{"audit --identity fuse --before 4", "WHEN                     WHO                                     WHOM  WHAT\n2026-11-30 12:00:00 UTC  " + supportARN + "  fuse  set challenge until 2026-11-30T13:00:00Z\n"},
		{"fuse show", "the fuse is open, set by " + supportARN + "\n"},
	} {
		got := command(t, strings.Fields(step.args)...)
		check.That(t, got.code == 0 && got.stderr == "" && got.stdout == step.want, "%s: code %d, %s\n%s", step.args, got.code, got.stderr, got.stdout)
	}
	for args, member := range map[string]string{
		"limits 123 --json": "holds", "clear-limit 123 --type all --json": "limits", "fuse show --json": "set_by", "fuse set closed --json": "state",
		"audit --json": "changes", "status --json": "pools", "block 123 --for 1h --json": "blocked", "unblock 123 --json": "was_blocked",
	} {
		got := command(t, strings.Fields(args)...)
		var answer map[string]any
		err := json.Unmarshal([]byte(got.stdout), &answer)
		check.That(t, err == nil && answer[member] != nil && got.code == 0, "%s: %+v, %v", args, got, err)
	}
}

func TestAdminCommandsFail(t *testing.T) {
	asAdmin(t, adminKey, adminSecret)
	d := deploy(t)
	gone := httptest.NewServer(nil)
	gone.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ok/admin/fuse" {
			_, _ = w.Write([]byte("<html>\x1b[2J"))
			return
		}
		http.Redirect(w, r, d.url, http.StatusFound)
	}))
	t.Cleanup(other.Close)
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"limits typo", 1, `Nothing is known of "typo"`},
		{"clear-limit typo@example.com --type all", 1, "No user with this verified e-mail address has called in the last 90 days"},
		{"clear-limit both@example.com --type all", 1, "Several users have this e-mail address: 123, 124. Name one of them by id."},
		{"clear-limit 123 --type docqa", 1, "docqa has no quota of its own"},
		{"clear-limit 123 --type nothing", 1, "type must be one of all, tokens, spend, cv"},
		{"block 12#3 --for 1h", 1, "user must be a user's id"},
		{"block 123 --for 0s", 1, "--for must be at least 1s"},
		{"block 123 --for 367d", 1, "The block must end at least a second and at most 366 days from now."},
		{"block 123", 2, "--for"},
		{"fuse set open --for 1h --no-end", 2, "--for"},
		{"limits 12#3", 1, "user must be a user's id"},
		{"limits pool:none", 1, "pools"},
		{"clear-limit pool:none", 1, "pools"},
		{"fuse set open --for 0s", 1, "--for must be at least 1s"},
		{"fuse show --endpoint " + gone.URL, 1, "no answer from " + gone.URL},
		{"fuse show --endpoint " + other.URL, 1, "answered 302 Found: does the address end with the stage"},
		{"fuse show --endpoint " + other.URL + "/ok", 1, "gave no readable answer"},
		{"fuse show --endpoint 127.0.0.1:8787", 1, "--endpoint must be an address such as"},
		{"fuse show --endpoint ftp://127.0.0.1", 1, "--endpoint must be an address such as"},
		{"fuse show", 2, "--endpoint"},
		{"fuse set ajar", 2, "Try: tokenfuse fuse set --help"},
		{"fuse set open --for soon", 2, "--for"},
		{"clear-limit 123", 2, "--type"},
		{"limits", 2, "Try: tokenfuse limits --help"},
	} {
		args := strings.Fields(test.args)
		if test.code == 1 && !strings.Contains(test.args, "--endpoint") {
			args = append(args, "--endpoint", d.url)
		}
		got := command(t, args...)
		check.That(t, got.code == test.code && got.stdout == "" && strings.Contains(got.stderr, test.says), "%s: %+v", test.args, got)
	}
	if state, err := d.buckets.Peek(t.Context(), "user#typo"); err != nil || state.Exists {
		t.Errorf("the mistyped user has an item, %v", err)
	}

	for _, who := range []struct{ name, key, secret, says string }{
		{"another secret", adminKey, "wrong", "the signature was refused (the signature does not match the request: is the secret key right?)"},
		{"another key", "AKIDNOBODY", adminSecret, "the region, which was us-east-1"},
		{"no administrator", internKey, adminSecret, "arn:aws:iam::123456789012:user/intern is no administrator here"},
		{"nobody", "", "", "no AWS credentials were found: set AWS_PROFILE"},
	} {
		t.Run(who.name, func(t *testing.T) {
			asAdmin(t, who.key, who.secret)
			got := command(t, "fuse", "show", "--endpoint", d.url)
			check.That(t, got.code == 1 && strings.Contains(got.stderr, who.says) && !strings.Contains(got.stderr, adminSecret), "%+v", got)
		})
	}
}

func TestAdminCommandsAreLimited(t *testing.T) {
	asAdmin(t, adminKey, adminSecret)
	t.Setenv("TOKENFUSE_ENDPOINT", deploy(t).url)
	for range 60 {
		got := command(t, "fuse", "show")
		check.Must(t, got.code == 0, "%+v", got)
	}
	got := command(t, "fuse", "show")
	want := "tokenfuse: Too many admin requests: 60 a minute and 16 at a time are allowed. Try again in 1 s.\n"
	check.That(t, got.code == 1 && got.stdout == "" && got.stderr == want, "%+v", got)
}

func TestRegionIsTheEndpoints(t *testing.T) {
	asAdmin(t, adminKey, adminSecret)
	for _, test := range []struct{ endpoint, environment, want string }{
		{"https://a1b2.execute-api.eu-central-1.amazonaws.com/prod", "us-west-2", "eu-central-1"},
		{"https://a1b2.execute-api.cn-north-1.amazonaws.com.cn/prod", "", "cn-north-1"},
		{"https://ai.example.com", "us-west-2", "us-west-2"},
		{"https://ai.example.com", "", "us-east-1"},
	} {
		t.Setenv("AWS_REGION", test.environment)
		req := httptest.NewRequest("GET", test.endpoint, nil)
		cfg, err := awsConfig(t.Context())
		check.OK(t, err)
		region, err := sign(t.Context(), cfg, req, nil)
		check.That(t, err == nil && region == test.want && strings.Contains(req.Header.Get("Authorization"), "/"+test.want+"/execute-api/"),
			"%s: %s, %v", test.endpoint, region, err)
	}
}

func TestWhom(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"123": "user", "auth0|123": "user", "a@example.com": "email", "user#a@example.com": "identity",
		"net#abc": "identity", "pass#abc": "identity", "pool#all": "identity", "pool:all": "identity", "user#pool:all": "identity", "user": "user", "": "user",
	} {
		field, value := whom(name)
		check.That(t, field == want && (value == strings.Replace(name, "pool:all", "pool#all", 1) || value == name), "%q: %s %q, want %s", name, field, value, want)
	}
}

func TestInTime(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[int64]string{0: "0s", 1: "1s", 60: "1m", 90: "1m30s", 600: "10m", 3600: "1h", 3660: "1h1m", 3601: "1h0m1s", 86400: "24h", 36000: "10h"} {
		check.Equal(t, inTime(seconds), want, "%d", seconds)
	}
}
