package chatapi

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

type shownIdentity struct{ Kind, ID, Tier string }

// whoIs asks /v1/limits whom a request is from.
func (g *rig) whoIs(t *testing.T, edit func(*http.Request)) shownIdentity {
	t.Helper()
	r := g.request(http.MethodGet, "/v1/limits", "", "")
	edit(r)
	a := g.do(r)
	var view struct{ Identity shownIdentity }
	err := json.Unmarshal([]byte(a.body), &view)
	check.Must(t, err == nil && a.status == http.StatusOK, "%d %s", a.status, a.body)
	return view.Identity
}

func TestAnonymousForms(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	want := g.whoIs(t, func(*http.Request) {})
	check.Must(t, want.Kind == "anonymous" && want.Tier == "anonymous", "%+v", want)
	for _, value := range []string{"", " ", "Bearer", "Bearer ", "bearer", "BEARER   ", "Bearer anonymous", "bearer anonymous", "Bearer  anonymous"} {
		check.Equal(t, g.whoIs(t, func(r *http.Request) { r.Header.Set("Authorization", value) }), want, "%q", value)
	}
	// An unauthenticated caller of a deployment without users is one, too.
	alone := newRig(t, func(yaml string) string {
		i, j := strings.Index(yaml, "  user: "), strings.Index(yaml, "auth: ")
		yaml = yaml[:i] + yaml[j:]
		i, j = strings.Index(yaml, "auth: "), strings.Index(yaml, "cors: ")
		yaml = yaml[:i] + yaml[j:]
		i, j = strings.Index(yaml, "  cv: "), strings.Index(yaml, "tiers:\n")
		return yaml[:i] + yaml[j:]
	})
	a := alone.chat("anonymous", chatBody("docqa", "Hi"))
	check.That(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
	alone.refused(t, alone.chat(g.token("123", ""), chatBody("docqa", "Hi")), openai.InvalidToken, "")
}

func TestTokenForms(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	for _, value := range []string{"Bearer " + user, "bearer " + user, "BEARER   " + user, "  Bearer " + user + "\t"} {
		got := g.whoIs(t, func(r *http.Request) { r.Header.Set("Authorization", value) })
		want := (shownIdentity{"user", "123", "user"})
		check.That(t, got == want, "%.20q: %+v, want %+v", value, got, want)
	}
}

func TestPlanIsTheTier(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	tierOf := func(t *testing.T, g *rig, token string) string {
		got := g.whoIs(t, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
		check.That(t, got.Kind == "user" && got.ID == "123", "%+v", got)
		return got.Tier
	}
	for range 2 {
		for plan, tier := range map[string]string{
			"": "user", "user": "user", "pro": "pro", "gold": "user", "Pro": "user", "anonymous": "user", "admin": "user", " pro": "user",
		} {
			check.Equal(t, tierOf(t, g, g.token("123", plan)), tier, "plan %q", plan)
		}
	}
	// A plan that names no tier is told once.
	unknown := regexp.MustCompile(`a plan names no tier.*"plan":"([^"]*)"`)
	var told []string
	for _, m := range unknown.FindAllStringSubmatch(g.log.String(), -1) {
		told = append(told, m[1])
	}
	slices.Sort(told)
	want := []string{" pro", "Pro", "admin", "anonymous", "gold"}
	check.That(t, slices.Equal(told, want), "told %q, want %q", told, want)
	// And not for ever, nor at any length.
	before := len(g.log.String())
	for i := range 100 {
		tierOf(t, g, g.token("123", strings.Repeat("x", 3000)+strconv.Itoa(i)))
	}
	n := len(unknown.FindAllString(g.log.String(), -1))
	check.That(t, n <= 32 && len(g.log.String())-before <= 100*600, "%d plans were told, %d bytes", n, len(g.log.String())-before)

	without := newRig(t, func(yaml string) string { return strings.Replace(yaml, ", plan_claim: plan", "", 1) })
	check.Equal(t, tierOf(t, without, without.token("123", "pro")), "user", "without a plan claim")
}

// A 401 has its reason in the log, in fixed words, and says what to send where a key or
// an opaque token was sent; neither is in the log.
func TestReasonOf401(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user, other := g.token("123", ""), g.token("9", "")
	alone := newRig(t, func(yaml string) string { // without users
		yaml = regexp.MustCompile(`(?ms)^  user: .*?^auth: [^\n]*\n`).ReplaceAllString(yaml, "")
		return regexp.MustCompile(`(?m)^  cv: .*\n`).ReplaceAllString(yaml, "")
	})
	closed := newRig(t, func(yaml string) string { // without anonymous callers
		yaml = regexp.MustCompile(`(?ms)^  anonymous: .*?^  user`).ReplaceAllString(yaml, "  user")
		return regexp.MustCompile(`(?m)^fingerprint: .*\n`).ReplaceAllString(yaml, "")
	})
	const (
		keyOrToken = "Send the token of a user who has signed in, or the key anonymous."
		key        = "The key of a model provider does not belong here: whoever sees it can use it. "
		noToken    = "The Authorization header has no valid token."
	)
	for _, tt := range []struct {
		g              *rig
		header         string
		reason, answer string
	}{
		{g, "Bearer sk-proj-4711", "key of a model provider", key + keyOrToken},
		{g, "Bearer sk-ant-api03-4711", "key of a model provider", key + keyOrToken},
		{g, "Bearer AIzaSy4711", "key of a model provider", key + keyOrToken},
		{g, "Bearer gsk_4711", "key of a model provider", key + keyOrToken},
		{alone, "Bearer sk-4711", "key of a model provider", key + "Send the key anonymous, or none."},
		{closed, "Bearer sk-4711", "key of a model provider", key + "Send the token of a user who has signed in."},
		{g, "Bearer opaque-4711", "opaque", noToken + " " + keyOrToken},
		{g, "Basic b3BhcXVlOjQ3MTE=", "not a bearer token", noToken + " " + keyOrToken},
		{g, "Bearer " + user[:strings.LastIndex(user, ".")] + other[strings.LastIndex(other, "."):], "signature", noToken},
		{g, "Bearer 4711.a.b", "malformed", noToken},
		{alone, "Bearer " + user, "no tokens accepted", "Tokens are not accepted here. Send the key anonymous, or none."},
		{closed, "", "token missing", "A token is needed. Sign in."},
	} {
		r := tt.g.request(http.MethodPost, chatPath, "", chatBody("docqa", "Hi"))
		r.Header.Set("Authorization", tt.header)
		a := tt.g.do(r)
		tt.g.refused(t, a, openai.InvalidToken, "")
		check.Equal(t, tt.g.wireError(a).Message, tt.answer, "%s", tt.header)
		lines := tt.g.logged("request")
		line := string(lines[len(lines)-1])
		check.That(t, strings.Contains(line, `"outcome":"invalid_token","ms":`) && strings.Contains(line, `"reason":"`+tt.reason+`"`), "%s: %s", tt.header, line)
		check.That(t, !strings.Contains(tt.g.log.String(), "4711") && !strings.Contains(a.body, "4711"), "%s is repeated", tt.header)
	}
	g.freeze(2 * time.Hour)
	g.refused(t, g.chat(user, chatBody("docqa", "Hi")), openai.TokenExpired, "")
	if lines := g.logged("request"); !strings.Contains(string(lines[len(lines)-1]), `"reason":"expired"`) {
		t.Errorf("%s", lines[len(lines)-1])
	}
}

// A network is a /24 or a /48; each line below is one.
func TestNetworks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	from := func(addr string) shownIdentity {
		return g.whoIs(t, func(r *http.Request) { r.RemoteAddr = addr })
	}
	seen := map[string]string{} // key to address
	for _, network := range [][]string{
		{"203.0.113.7:4711", "203.0.113.7:80", "203.0.113.250:1", "203.0.113.0", "[::ffff:203.0.113.9]:5"},
		{"203.0.112.7:4711", "203.0.112.255:4711"},
		{"203.1.113.7:4711"},
		{"[2001:db8:1::1]:443", "[2001:db8:1:2:3:4:5:6]:443", "2001:db8:1:ffff::"},
		{"[2001:db8:2::1]:443"},
		{"127.0.0.1:9"},
		{"[::1]:9"},
	} {
		first := from(network[0])
		for _, addr := range network[1:] {
			if got := from(addr); got != first {
				t.Errorf("%s is not of the network of %s", addr, network[0])
			}
		}
		if seen[first.ID] != "" {
			t.Errorf("%s has the key of %s", network[0], seen[first.ID])
		}
		seen[first.ID] = network[0]
	}
	for _, addr := range []string{"", "@", "example.com:80", "203.0.113.7:", "300.1.1.1:80"} {
		r := g.request(http.MethodGet, "/v1/limits", "", "")
		r.RemoteAddr = addr
		g.refused(t, g.do(r), openai.InvalidToken, "")
	}
}

// What a caller writes into headers opens no fresh bucket.
func TestHeadersAreNotAnAddress(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	want := g.whoIs(t, func(*http.Request) {})
	const gateway = `{"identity":{"sourceIp":"198.51.100.1","userArn":"arn:aws:iam::1:user/a"},"requestId":"forged"}`
	headers := map[string]string{
		"X-Forwarded-For": "198.51.100.1", "Forwarded": "for=198.51.100.1", "X-Real-Ip": "198.51.100.1", "True-Client-Ip": "198.51.100.1",
		"Cf-Connecting-Ip": "198.51.100.1", "X-Client-Ip": "198.51.100.1", "X-Envoy-External-Address": "198.51.100.1",
		"X-Amzn-Vpc-Id": "vpc-1", "X-Amz-Source-Ip": "198.51.100.1",
		"CloudFront-Viewer-Address": "198.51.100.1:4711", "CloudFront-Viewer-JA3-Fingerprint": "0123", "CloudFront-Viewer-JA4-Fingerprint": "t13d",
		"CloudFront-Viewer-ASN": "64496", "X-GoLambdaProxy-ApiGw-Context": gateway, "X-GoLambdaProxy-ApiGw-StageVars": "{}",
		"Cookie": "session=other", "X-Request-Id": "forged",
	}
	for name, value := range headers {
		check.Equal(t, g.whoIs(t, func(r *http.Request) { r.Header.Set(name, value) }), want, "%s", name)
	}
	// And the bucket is indeed the same: each call takes from what is left.
	for i := range 5 {
		r := g.request(http.MethodPost, chatPath, "", chatBody("docqa", "Hi"))
		for name, value := range headers {
			r.Header.Set(name, value+strings.Repeat("0", i))
		}
		a := g.do(r)
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		check.Equal(t, intHeader(t, a, "X-Ratelimit-Remaining-Requests"), int64(19-i), "call %d: requests left", i)
		id := a.header.Get("X-Request-Id")
		check.That(t, !strings.HasPrefix(id, "forged"), "x-request-id %s", id)
	}
}

// Callers of one address have the same bucket if they are anonymous, and their
// own if they are users.
func TestBucketsOfOneAddress(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		return strings.Replace(yaml, "requests: {capacity: 20, per: 1m}", "requests: {capacity: 1, per: 1h}", 1)
	})
	g.freeze(0)
	g.admitted(t, "", chatBody("docqa", "Hi"))
	g.denied(t, "", chatBody("docqa", "Hi"), "requests", "requests")
	ann, bob := g.token("ann", ""), g.token("bob", "")
	g.admitted(t, ann, chatBody("docqa", "Hi"))
	check.Equal(t, g.remaining(ann)["requests"], 59, "ann has … requests left")
	check.Equal(t, g.remaining(bob)["requests"], 60, "bob has … requests left")
	// A user is the same from everywhere.
	r := g.request(http.MethodPost, chatPath, ann, chatBody("docqa", "Hi"))
	r.RemoteAddr = "198.51.100.1:1"
	if a := g.do(r); a.status != http.StatusOK || intHeader(t, a, "X-Ratelimit-Remaining-Requests") != 58 {
		t.Errorf("%d %v", a.status, a.header)
	}
	// A subject that looks like a network's key has nothing to do with it.
	id := strings.TrimPrefix(g.whoIs(t, func(*http.Request) {}).ID, "net#")
	g.admitted(t, g.token(id, ""), chatBody("docqa", "Hi"))
	// Another network is not held up.
	r = g.request(http.MethodPost, chatPath, "", chatBody("docqa", "Hi"))
	r.RemoteAddr = "198.51.100.1:1"
	if a := g.do(r); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Whatever happens, nobody reads what is not theirs: not in the log, not in an
// answer, not at the provider.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	var got http.Header
	s := impatient
	s.model = func(up http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Clone()
			up.ServeHTTP(w, r)
		})
	}
	g := s.newRig(t, func(yaml string) string {
		return strings.Replace(yaml, "timeout: 20s", "timeout: 2s, api_key: {env: PROVIDER_KEY}", 1)
	})
	const (
		prompt  = "zebra-prompt-4711"
		address = "203.0.113."
	)
	user := g.token("123", "")
	var bodies strings.Builder
	do := func(r *http.Request) answer {
		r.Header.Set("Cookie", "session=cookie-4711")
		a := g.do(r)
		bodies.WriteString(a.body)
		for name, values := range a.header {
			bodies.WriteString(name + ": " + strings.Join(values, ",") + "\n")
		}
		return a
	}
	post := func(token, body string) answer { return do(g.request(http.MethodPost, chatPath, token, body)) }
	for _, token := range []string{user, ""} {
		for _, stream := range []string{`,"stream":true}`, "}"} {
			for _, marker := range []string{"", "[[fail:500]]", "[[fail:429]]", "[[fail:cut]]", "[[fail:nousage]]", "[[fail:empty]]"} {
				body := strings.TrimSuffix(chatBody("docqa", prompt, prompt, prompt+marker), "}")
				a := post(token, body+`,"user":"`+prompt+`","metadata":{"a":"`+prompt+`"},"max_tokens":200`+stream)
				check.Must(t, a.status == http.StatusOK || a.status == http.StatusBadGateway, "%s: %d %s", marker, a.status, a.body)
			}
		}
	}
	check.That(t, got.Get("Authorization") == "Bearer "+testSecret, "the provider got %v", got)
	for name, values := range got {
		for _, v := range values {
			check.That(t, !strings.Contains(v, user) && !strings.Contains(v, address) && !strings.Contains(v, "4711"), "the provider got %s: %s", name, v)
		}
	}
	for _, body := range []string{
		`{"model":"docqa","messages":"` + prompt + `"}`,
		`{"model":"docqa","messages":[{"role":"` + prompt + `","content":"a"}]}`,
		`{"model":"docqa","messages":[{"role":"user","content":{"` + prompt + `":1}}]}`,
		`{"model":"docqa","messages":[{"role":"user","content":"` + prompt + `"`,
		with(`"stop":["` + prompt + `",""]`), with(`"response_format":"` + prompt + `"`), with(`"temperature":"` + prompt + `"`),
		with(`"n":"` + prompt + `"`), with(`"user":["` + prompt + `"]`), chatBody("docqa", strings.Repeat(prompt, 3_000)),
	} {
		a := post(user, body)
		check.That(t, a.status == http.StatusBadRequest, "%d %s", a.status, a.body)
	}
	post(user[:len(user)-5], chatBody("docqa", prompt))
	post("sk-"+prompt, chatBody("docqa", prompt))
	do(g.request(http.MethodGet, "/v1/models", user, ""))
	do(g.request(http.MethodGet, "/v1/limits", user, ""))
	do(g.request(http.MethodGet, "/v1/limits", "", ""))
	for range 25 { // until it is denied
		post("", chatBody("docqa", prompt))
	}
	g.net.Plan = faults.Always(faults.LostRequest)
	post(user, chatBody("docqa", prompt))
	g.net.Plan = nil
	// A panic, too.
	broken := *g.handler
	broken.Policy = nil
	g.handler = &broken
	if a := post(user, chatBody("docqa", prompt)); a.status != http.StatusInternalServerError || g.wireError(a).Code != "internal_error" {
		t.Errorf("%d %s", a.status, a.body)
	}

	log := g.log.String()
	check.Must(t, strings.Count(log, `"msg":"request"`) >= 50 && strings.Contains(log, `"msg":"panic"`), "the log is not whole: %.1000s", log)
	for what, secret := range map[string]string{
		"the token": user, "its signature": user[strings.LastIndex(user, ".")+1:], "a bad token": "sk-zebra", "the prompt": prompt,
		"the answer": "built-in upstream", "part of the answer": "stands in for", "the address": address, "the provider's key": testSecret,
		"a cookie": "cookie-4711", "the system prompt": "You answer questions",
	} {
		check.That(t, !strings.Contains(log, secret), "%s is in the log", what)
		check.That(t, !strings.Contains(bodies.String(), secret) || strings.Contains(what, "the answer"), "%s is in an answer", what)
	}
	for _, internal := range []string{"dynamodb", "goroutine", ".go:", "connection", "127.0.0.1", g.bucket.Table} {
		check.That(t, !strings.Contains(strings.ToLower(bodies.String()), internal), "an answer speaks of %s", internal)
	}
}
