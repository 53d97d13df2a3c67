package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// supportInstances copies of generate share nothing in memory. The gateway takes
// them in turn: as many calls, one after the other, are one on each.
const supportInstances = 4

// supportConfig has quotas of one answer on each instance, and limits that refill
// by less than one unit during a test.
func supportConfig(t *testing.T) string {
	t.Helper()
	return writeConfig(t, `
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, timeout: 30s}}
models: {small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000, price_per_mtok: {input: "0.40", output: "1.60"}}}
features:
  ask:      {model: small, max_output_tokens: 100}
  cv:       {model: small, max_output_tokens: 100, tiers: [user], quota: {capacity: 4, per: 100d}}
  linkedin: {model: small, max_output_tokens: 100, tiers: [user], quota: {capacity: 4, per: 100d}}
tiers:
  anonymous: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 8, limits: {tokens: {capacity: 500, per: 100d}},
              network: {tokens: {capacity: 2000, per: 100d}}}
  user:      {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 8,
              limits: {tokens: {capacity: 5000, per: 100d}, requests: {capacity: 500, per: 100d}, spend: {usd: "0.01", per: 100d}}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
`)
}

// awsEnv is what the environment says to AWS tools: one key pair and nothing else.
func awsEnv(id, secret string) []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=" + secret, "AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_REGION=", "AWS_DEFAULT_REGION=",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
	}
}

var printedKeys = regexp.MustCompile(`AWS_ACCESS_KEY_ID=(\S+) AWS_SECRET_ACCESS_KEY=(\S+) `)

// keys is the key pair that dev prints.
func (d *dev) keys(t *testing.T) (id, secret string) {
	t.Helper()
	found := printedKeys.FindStringSubmatch(d.output())
	check.Must(t, found != nil, "dev prints no key pair")
	return found[1], found[2]
}

// admin runs an admin command with dev's key pair.
func (d *dev) admin(t *testing.T, args ...string) result {
	t.Helper()
	if d.adminURL != "" { // serve's
		return run(t, append(awsEnv("", ""), "TOKENFUSE_ADMIN_KEY="+serveKey, "TOKENFUSE_ENDPOINT="+d.adminURL), binary, args...)
	}
	return run(t, append(awsEnv(d.keys(t)), "TOKENFUSE_ENDPOINT="+d.url), binary, args...)
}

// must runs an admin command that must succeed, and gives what it prints.
func (d *dev) must(t *testing.T, args ...string) string {
	t.Helper()
	got := d.admin(t, args...)
	check.Must(t, got.code == 0 && got.stderr == "", "%v: exit code %d: %s", args, got.code, got.stderr)
	return got.stdout
}

// left is what is left of each limit of somebody, by limit, and by client and limit
// for those of a network's clients, as support sees it.
func (d *dev) left(t *testing.T, whom string) map[string]int {
	t.Helper()
	var view struct {
		InFlight int `json:"in_flight"`
		Limits   []struct {
			Name, Client string
			Remaining    int
		}
	}
	check.OK(t, json.Unmarshal([]byte(d.must(t, "limits", whom, "--json")), &view))
	check.Equal(t, view.InFlight, 0, "calls of %s count as open", whom)
	left := map[string]int{}
	for _, l := range view.Limits {
		left[strings.TrimPrefix(l.Client+"/"+l.Name, "/")] = l.Remaining
	}
	return left
}

// items are the items of the table of limits, as JSON, by key.
func (d *dev) items(t *testing.T) map[string]string {
	t.Helper()
	out, err := engine.Client(d.store).Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("tokenfuse-limits"), ConsistentRead: aws.Bool(true)})
	check.OK(t, err)
	items := map[string]string{}
	for _, item := range out.Items {
		text, err := json.Marshal(item)
		check.OK(t, err)
		var key struct{ PK struct{ Value string } }
		check.OK(t, json.Unmarshal(text, &key))
		items[key.PK.Value] = string(text)
	}
	return items
}

// changeable are the items that an administrator's request may change; what else
// there is counts the requests of administrators.
func (d *dev) changeable(t *testing.T) map[string]string {
	t.Helper()
	items := d.items(t)
	maps.DeleteFunc(items, func(key, _ string) bool { return strings.HasPrefix(key, "admin#") })
	return items
}

// tokenOf makes a user's token with the command.
func (d *dev) tokenOf(t *testing.T, args ...string) string {
	t.Helper()
	if d.issuer != nil { // serve's, which has no routes of its own for that
		claims := issuer.Claims{TTL: time.Hour}
		for i := 0; i+1 < len(args); i += 2 {
			*map[string]*string{"--sub": &claims.Subject, "--plan": &claims.Plan}[args[i]] = args[i+1]
		}
		token, err := d.issuer.Token(claims)
		check.OK(t, err)
		return token
	}
	got := run(t, nil, binary, append([]string{"token", "--endpoint", d.url}, args...)...)
	check.Must(t, got.code == 0 && got.stderr == "", "no token: %+v", got)
	return strings.TrimSpace(got.stdout)
}

// mustAsk asks and reads the whole answer.
func (d *dev) mustAsk(t *testing.T, token string, q question) answer {
	t.Helper()
	a, err := d.ask(t.Context(), token, q)
	check.OK(t, err)
	return a
}

// wantQuotaUsedUp asserts that the answer is the denial of a used up quota.
func wantQuotaUsedUp(t *testing.T, a answer, feature string) {
	t.Helper()
	c, err := a.completion()
	check.Must(t, err == nil && c.Error != nil, "no denial: %v: %d %s", err, a.status, a.body)
	check.That(t, a.status == http.StatusTooManyRequests && c.Error.Type == "insufficient_quota" && c.Error.Code == "insufficient_quota" && c.Error.Limit == feature && c.Error.Remaining == 0 && a.header.Get("Retry-After") != "" && a.header.Get("X-Should-Retry") == "false",
		"no denial by the quota of %s: %d %s %v", feature, a.status, a.body, a.header)
}

// servesAgain asks each instance in its turn until all have answered. None may deny
// what it is asked a second or more after a clear was done. It gives when the last
// denial was asked for, after the clear.
func (d *dev) servesAgain(t *testing.T, done time.Time, token string, ask func() answer) (waited time.Duration) {
	t.Helper()
	served := make([]bool, supportInstances)
	for i := 0; slices.Contains(served, false); i = (i + 1) % supportInstances {
		if served[i] {
			d.remaining(t, token, "tokens") // takes the turn
			continue
		}
		asked := time.Since(done)
		a := ask()
		if served[i] = a.status == http.StatusOK; served[i] {
			continue
		}
		if waited = asked; a.status != http.StatusTooManyRequests || asked >= time.Second {
			t.Fatalf("instance %d, asked %v after the clear: %d %s", i, asked, a.status, a.body)
		}
	}
	return waited
}

// The scene that clear-limit exists for, from the outage to the next draft.
func TestSupport(t *testing.T) {
	t.Parallel()
	d := startDev(t, supportConfig(t), "--instances", fmt.Sprint(supportInstances), "--verbose")
	ann := d.tokenOf(t, "--sub", "auth0|ann", "--email", "Ann@Example.com")
	bob := d.tokenOf(t, "--sub", "auth0|bob", "--email", "bob@example.com")
	draft := question{feature: "cv", text: "I am a welder from Leeds.", most: 5}
	broken := question{feature: "cv", text: "I am a welder from Leeds. [[fail:500]]", most: 5}

	d.complete(t, bob, draft)

	// The model is out. All that Ann loses is the count of her requests. Support finds
	// her by her address, though no call of hers has succeeded yet.
	for range 6 {
		a := d.mustAsk(t, ann, broken)
		if c, err := a.completion(); err != nil || a.status != http.StatusBadGateway || c.Error == nil || c.Error.Code != "provider_error" {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	full := map[string]int{"requests": 500 - 6, "tokens": 5000, "spend": 10000, "cv": 4, "linkedin": 4}
	if left := d.left(t, "ann@example.com"); !cmp.Equal(full, left) {
		t.Errorf("after calls that gave nothing %v remain, want %v", left, full)
	}
	d.complete(t, ann, question{feature: "linkedin", text: "I am a welder.", most: 5})

	// She uses up her drafts.
	for range 4 {
		d.complete(t, ann, draft)
	}
	wantText(t, d.must(t, "limits", "ann@example.com"), `user auth0\|ann: 0 calls in flight; the fuse is closed
tier: user
LIMIT     FOR TIER  LEFT       OF         PER    FULL IN
requests  user      489        500        2400h  \S+
tokens    user      \d+       5000       2400h  \S+
spend     user      \$0\.009\d{3}  \$0\.010000  2400h  \S+
cv        user      0          4          2400h  \S+
linkedin  user      3          4          2400h  \S+
`)

	before, ofBob := d.left(t, "ann@example.com"), d.left(t, "user#auth0|bob")

	// Every instance denies her more, and remembers it when support clears that quota.
	for range supportInstances {
		wantQuotaUsedUp(t, d.mustAsk(t, ann, draft), "cv")
	}
	cleared := d.must(t, "clear-limit", "ann@example.com", "--type", "cv", "--reason", "outage of Tuesday")
	done := time.Now()
	wantText(t, cleared, `cleared cv of user auth0\|ann
LIMIT  FOR TIER  LEFT BEFORE  LEFT NOW  OF  PER
cv     user      0            4         4   2400h
`)

	// Every one serves her again within a second.
	waited := d.servesAgain(t, done, ann, func() answer { return d.mustAsk(t, ann, draft) })
	t.Logf("the last denial was asked for %v after the clear", waited)
	after := d.left(t, "ann@example.com")
	check.That(t, after["cv"] == 0 && after["linkedin"] == 3 && after["requests"] == before["requests"]-4,
		"after the clear and four drafts: %v, before: %v", after, before)

	// Those that remember none serve her at once. The other limits stay as they are.
	before = d.left(t, "user#auth0|ann")
	var got struct {
		Identity struct{ Kind, ID string }
		Type     string
		Limits   []struct {
			Name          string
			Before, After struct{ Remaining int }
		}
	}
	check.OK(t, json.Unmarshal([]byte(d.must(t, "clear-limit", "auth0|ann", "--type", "cv", "--json")), &got))
	check.That(t, len(got.Limits) == 1 && got.Identity.Kind == "user" && got.Identity.ID == "auth0|ann" && got.Type == "cv" && got.Limits[0].Name == "cv" && got.Limits[0].Before.Remaining == 0 && got.Limits[0].After.Remaining == 4,
		"%+v", got)
	before["cv"] = 4
	check.Equal(t, cmp.Diff(before, d.left(t, "user#auth0|ann")), "", "the clear changed more than cv")
	for range supportInstances {
		d.complete(t, ann, draft)
	}

	// Clearing twice is clearing once.
	d.must(t, "clear-limit", "ann@example.com", "--type", "cv")
	again := d.must(t, "clear-limit", "ann@example.com", "--type", "cv")
	check.That(t, regexp.MustCompile(`\ncv +user +4 +4 +4 +2400h\n`).MatchString(again) && d.left(t, "ann@example.com")["cv"] == 4, "cleared twice: %s", again)
	check.Equal(t, cmp.Diff(ofBob, d.left(t, "bob@example.com")), "", "Bob's limits have changed")

	// Who did what to whom, when and why, is in the log, and for a year in the table.
	// Neither has the address.
	const by, reason = "arn:aws:iam::000000000000:role/tokenfuse-dev", "outage of Tuesday"
	await(t, "each clear is in the log", func() bool { return strings.Count(d.output(), `"msg":"limits cleared"`) == 4 })
	log, items := d.output(), d.items(t)
	check.That(t, regexp.MustCompile(`"msg":"limits cleared",.*"arn":"`+by+`","identity":"user#auth0\|ann","type":"cv",.*"reason":"`+reason+`"`).MatchString(log),
		"the log does not say who cleared what of whom and why")
	check.That(t, !strings.Contains(strings.ToLower(log+fmt.Sprint(items)), "example.com"), "the address is in the log or in the table")
	audits := slices.DeleteFunc(slices.Sorted(maps.Keys(items)), func(key string) bool { return !strings.HasPrefix(key, "audit#") })
	check.Must(t, len(audits) == 4, "audit items %v, want one of each clear", audits)
	var audit struct{ At, Who, Whom, What, Why, Expires struct{ Value string } }
	check.OK(t, json.Unmarshal([]byte(items[audits[0]]), &audit))
	check.That(t, audit.Who.Value == by && audit.Whom.Value == "user#auth0|ann" && audit.What.Value == "clear cv" && audit.Why.Value == reason, "audit %+v", audit)
	seconds, err := strconv.ParseInt(audit.At.Value, 10, 64)
	at := time.Unix(seconds, 0)
	if expires, _ := strconv.ParseInt(audit.Expires.Value, 10, 64); err != nil || expires != at.Add(365*24*time.Hour).Unix() || done.Sub(at).Abs() > patience {
		t.Errorf("audit of %v expires %d: %v", at, expires, err)
	}
	listed := d.must(t, "audit", "--since", "1h", "--identity", "ann@example.com")
	lines := strings.Split(listed, "\n")
	check.That(t, len(lines) == 6 && regexp.MustCompile(`UTC  `+by+` +user#auth0\|ann  clear cv +`+reason+`$`).MatchString(lines[4]), "listed:\n%s", listed)
}

// wantText asserts that a command printed this, a regular expression.
func wantText(t *testing.T, got, want string) {
	t.Helper()
	check.That(t, regexp.MustCompile("^"+want+"$").MatchString(got), "printed:\n%s\nwant:\n%s", got, want)
}

// Support can unblock a network by the name that its callers see themselves.
func TestSupportOfNetwork(t *testing.T) {
	t.Parallel()
	d := startDev(t, supportConfig(t), "--instances", fmt.Sprint(supportInstances))
	one, two := visitor{d: d, agent: "Mozilla/5.0 (one)"}, visitor{d: d, agent: "Mozilla/5.0 (two)"}
	q := question{feature: "ask", text: strings.Repeat("Why? ", 40), most: 1}
	exhaust := func(v visitor) {
		t.Helper()
		for range 100 {
			a := v.mustAsk(t, q)
			if a.status == http.StatusOK {
				continue
			}
			if c, err := a.completion(); err != nil || c.Error == nil || c.Error.Limit != "tokens" {
				t.Fatalf("%d %s", a.status, a.body)
			}
			return
		}
		t.Fatal("no end of tokens")
	}
	exhaust(one)
	exhaust(two)
	a := one.mustSend(t, http.MethodGet, d.url+"/v1/limits", "")
	var view struct{ Identity struct{ ID string } }
	if err := json.Unmarshal([]byte(a.body), &view); err != nil || !strings.HasPrefix(view.Identity.ID, "net#") {
		t.Fatalf("%v: %s", err, a.body)
	}
	before := d.left(t, view.Identity.ID)
	// The network has a limit of its own, and each of its browsers one.
	wantText(t, d.must(t, "clear-limit", view.Identity.ID, "--type", "tokens"), `cleared tokens of `+view.Identity.ID+`
LIMIT   CLIENT    LEFT BEFORE  LEFT NOW  OF   PER
tokens  [A-Z2-7]{8}  \d{1,2} +500       500  2400h
tokens  [A-Z2-7]{8}  \d{1,2} +500       500  2400h
`)
	after := d.left(t, view.Identity.ID)
	check.That(t, len(after) == 3 && after["network_tokens"] == before["network_tokens"] && before["network_tokens"] <= 1200, "before %v, after %v", before, after)
	d.must(t, "clear-limit", view.Identity.ID, "--type", "all")
	done := time.Now()
	for _, left := range d.left(t, view.Identity.ID) {
		if left != 500 && left != 2000 {
			t.Errorf("not everything is full: %v", d.left(t, view.Identity.ID))
		}
	}
	d.servesAgain(t, done, "", func() answer { return two.mustAsk(t, q) })
}

// What support gets wrong is said with what to do about it, and changes nothing.
func TestSupportMistakes(t *testing.T) {
	t.Parallel()
	d := startDev(t, supportConfig(t))
	hello := question{feature: "ask", text: "Hi", most: 1}
	d.complete(t, d.tokenOf(t, "--sub", "ann", "--email", "ann@example.com"), hello)
	for _, sub := range []string{"tim", "tom", "tim"} { // else the address would have moved to Tom
		d.complete(t, d.tokenOf(t, "--sub", sub, "--email", "both@example.com"), hello)
	}
	d.complete(t, d.tokenOf(t, "--sub", "eve", "--email", "claimed@example.com", "--unverified"), hello)
	d.complete(t, "", hello)

	before := d.changeable(t)
	for _, test := range []struct {
		args string
		code int
		says string // a regular expression
	}{
		{"clear-limit typo --type all", 1, `Nothing is known of "typo": check the spelling`},
		{"clear-limit typo@example.com --type all", 1, `No user with this verified e-mail address has called in the last 90 days: check the spelling, or name the user by id.`},
		{"clear-limit claimed@example.com --type all", 1, `No user with this verified e-mail address`},
		{"clear-limit both@example.com --type all", 1, `Several users have this e-mail address: tim, tom. Name one of them by id.`},
		{"clear-limit net#aaaaaaaaaaaaaaaa --type all", 1, `Nothing is known of "net#aaaaaaaaaaaaaaaa"`},
		{"clear-limit ann --type ask", 1, `ask has no quota of its own .* type must be one of all, requests, tokens, spend, cv, linkedin`},
		{"clear-limit ann --type CV", 1, `type must be one of all, `},
		{"limits typo", 1, `Nothing is known of "typo"`},
		{"limits both@example.com", 1, `tim, tom`},
		{"clear-limit ann", 2, `missing flags: --type=.*\nTry: tokenfuse clear-limit --help`},
		{"clear-limit --type all", 2, `<whom>.*\nTry: tokenfuse clear-limit --help`},
		{"limits", 2, `<whom>.*\nTry: tokenfuse limits --help`},
	} {
		got := d.admin(t, strings.Fields(test.args)...)
		check.That(t, got.code == test.code && got.stdout == "" && regexp.MustCompile(`^tokenfuse: (?s:.*)`+test.says).MatchString(got.stderr),
			"%s: %+v", test.args, got)
	}
	check.Equal(t, cmp.Diff(before, d.changeable(t)), "", "something has changed")
}

// Whoever has no right to clear is refused, that is logged, and nothing changes.
func TestSupportIsSigned(t *testing.T) {
	t.Parallel()
	d := startDev(t, supportConfig(t), "--verbose")
	ann := d.token(t, "ann")
	d.complete(t, ann, question{feature: "cv", text: "Hi", most: 1})
	id, secret := d.keys(t)
	const clear, forged = `{"user":"ann","type":"cv"}`, `{"identity":{"userArn":"arn:aws:iam::000000000000:role/tokenfuse-dev"}}`
	send := func(body string, sign func(*http.Request)) answer {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+"/admin/limits/clear", strings.NewReader(body))
		check.OK(t, err)
		req.Header.Set("Content-Type", "application/json")
		sign(req)
		a, err := read(client.Do(req))
		check.OK(t, err)
		return a
	}
	// with signs a clear.
	with := func(id, secret string, at time.Time) func(*http.Request) {
		return func(req *http.Request) {
			hash := sha256.Sum256([]byte(clear))
			check.OK(t, v4.NewSigner().SignHTTP(t.Context(), aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, req,
				hex.EncodeToString(hash[:]), "execute-api", "us-east-1", at))
		}
	}
	before, refused := d.items(t), 0
	for name, test := range map[string]struct {
		body string
		sign func(*http.Request)
		says string
	}{
		"unsigned":        {clear, func(*http.Request) {}, "the request is not signed"},
		"a user's token":  {clear, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+ann) }, "the request is not signed"},
		"forged context":  {clear, func(r *http.Request) { r.Header.Set("X-GoLambdaProxy-ApiGw-Context", forged) }, "the request is not signed"},
		"unknown key":     {clear, with("AKIDNOBODY", secret, time.Now()), "the access key is unknown"},
		"wrong secret":    {clear, with(id, "wrong", time.Now()), "the signature does not match the request"},
		"another body":    {strings.Replace(clear, "cv", "all", 1), with(id, secret, time.Now()), "the signature does not match the request"},
		"expired":         {clear, with(id, secret, time.Now().Add(-6*time.Minute)), "the signature has expired"},
		"from the future": {clear, with(id, secret, time.Now().Add(6*time.Minute)), "the signature has expired"},
	} {
		refused++
		a := send(test.body, test.sign)
		check.That(t, a.status == http.StatusForbidden && strings.Contains(a.body, test.says), "%s: %d %s", name, a.status, a.body)
		await(t, name+" is in the log", func() bool {
			return strings.Count(d.output(), `"msg":"request refused","method":"POST","path":"/admin/limits/clear","reason":"`) == refused
		})
	}
	check.Equal(t, cmp.Diff(before, d.items(t)), "", "something has changed")
	for name, env := range map[string][]string{"wrong secret": awsEnv(id, "wrong"), "no credentials": awsEnv("", "")} {
		got := run(t, env, binary, "clear-limit", "ann", "--type", "cv", "--endpoint", d.url)
		check.That(t, got.code == 1 && got.stdout == "" && regexp.MustCompile(`the signature was refused|no AWS credentials were found: set AWS_PROFILE`).MatchString(got.stderr),
			"%s: %+v", name, got)
	}
	check.That(t, !strings.Contains(strings.Replace(d.output(), "AWS_SECRET_ACCESS_KEY="+secret, "", 1), secret), "the secret is in the log")
	if a := send(clear, with(id, secret, time.Now())); a.status != http.StatusOK || !strings.Contains(a.body, `"after":{"remaining":4,`) {
		t.Errorf("signed: %d %s", a.status, a.body)
	}
}
