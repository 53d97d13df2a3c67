package chatapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/dunglas/httpsfv"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/lambdahttp"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/local/issuer"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func intHeader(t *testing.T, a answer, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(a.header.Get(name), 10, 64)
	check.Must(t, err == nil, "%s: %v", name, err)
	return n
}

// common checks what every answer has.
func (g *rig) common(t *testing.T, a answer) {
	t.Helper()
	check.That(t, a.header.Get("X-Request-Id") != "" && a.header.Get("Cache-Control") == "no-store",
		"x-request-id %q, Cache-Control %q", a.header.Get("X-Request-Id"), a.header.Get("Cache-Control"))
}

// item is a member of RateLimit or RateLimit-Policy, with its parameters.
type item struct {
	name   string
	params map[string]any
}

// list parses a structured field.
func list(t *testing.T, a answer, header string) []item {
	t.Helper()
	parsed, err := httpsfv.UnmarshalList(a.header.Values(header))
	if err != nil {
		t.Fatalf("%s: %v: %q", header, err, a.header.Values(header))
	}
	var items []item
	for _, member := range parsed {
		i, ok := member.(httpsfv.Item)
		check.Must(t, ok, "%s: %v is no item", header, member)
		name, ok := i.Value.(string)
		check.Must(t, ok && regexp.MustCompile(`^[a-z0-9_-]+$`).MatchString(name), "%s: name %v", header, i.Value)
		params := map[string]any{}
		for _, p := range i.Params.Names() {
			params[p], _ = i.Params.Get(p)
		}
		items = append(items, item{name, params})
	}
	return items
}

// userPolicy is what RateLimit-Policy must be for a user of a feature without a quota.
var userPolicy = []item{
	{"requests", map[string]any{"q": int64(60), "w": int64(60)}},
	{"tokens", map[string]any{"q": int64(50_000), "w": int64(3_600), "qu": "tokens"}},
	{"spend", map[string]any{"q": int64(2_000_000), "w": int64(86_400), "qu": "usd_micros"}},
}

var items = cmp.AllowUnexported(item{})

func TestBufferedAnswer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	user := g.token("123", "")
	a := g.chat(user, chatBody("docqa", "Hi"))
	check.Must(t, a.status == http.StatusOK && a.header.Get("Content-Type") == "application/json", "%d %v", a.status, a.header)
	g.common(t, a)
	body := decodeJSON(t, a.body).(map[string]any)
	if id, _ := body["id"].(string); !strings.HasPrefix(id, "chatcmpl-") {
		t.Errorf("id %v", body["id"])
	}
	check.That(t, body["created"] == json.Number(strconv.FormatInt(g.now().Unix(), 10)), "created %v", body["created"])
	call := g.upstream.Calls()[0]
	content := body["choices"].([]any)[0].(map[string]any)["message"].(map[string]any)["content"].(string)
	check.That(t, strings.Contains(content, "built-in upstream"), "content %q", content)
	delete(body, "id")
	delete(body, "created")
	want := fmt.Sprintf(`{"object":"chat.completion","model":"docqa","choices":[{"index":0,"message":{"role":"assistant","content":%q,"refusal":null},
		"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,
		"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`,
		content, call.PromptTokens, call.Billed.Output, call.Billed.Total())
	check.Diff(t, cmp.Diff(decodeJSON(t, want), any(body)), "difference")

	// The usage is the provider's, cached and reasoning tokens included.
	a = g.chat(user, chatBody("docqa", "[[cached:5]][[reasoning:7]]"))
	var c openai.Completion
	check.OK(t, json.Unmarshal([]byte(a.body), &c))
	billed := g.upstream.Calls()[1].Billed
	check.That(t, c.Usage.Completion == billed.Output && c.Usage.PromptDetails.Cached == 5 && c.Usage.CompletionDetails.Reasoning == 7,
		"usage %+v, billed %+v", c.Usage, billed)
	// Cut by the cap.
	a = g.chat(user, strings.TrimSuffix(chatBody("docqa", "[[long]]"), "}")+`,"max_tokens":5}`)
	check.That(t, strings.Contains(a.body, `"finish_reason":"length"`) && strings.Contains(a.body, `"completion_tokens":5,`), "%s", a.body)
}

// eventData is the data of a stream's events.
func eventData(t *testing.T, body string) []string {
	t.Helper()
	var list []string
	for _, e := range strings.SplitAfter(body, "\n\n") {
		if e == "" {
			continue
		}
		data, ok := strings.CutPrefix(e, "data: ")
		check.Must(t, ok && strings.HasSuffix(data, "\n\n") && strings.Count(data, "\n") == 2, "event %q", e)
		list = append(list, strings.TrimSpace(data))
	}
	return list
}

func TestStreamedAnswer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	for _, withUsage := range []bool{false, true} {
		a := g.chat(user, strings.TrimSuffix(chatBody("docqa", "Hi"), "}")+
			fmt.Sprintf(`,"stream":true,"stream_options":{"include_usage":%t}}`, withUsage))
		check.Must(t, a.status == http.StatusOK && strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream"), "%d %v", a.status, a.header)
		g.common(t, a)
		list := eventData(t, a.body)
		check.Equal(t, list[len(list)-1], "[DONE]", "last event")
		var chunks []openai.Completion
		ids := map[string]bool{}
		for _, e := range list[:len(list)-1] {
			var c openai.Completion
			check.OK(t, json.Unmarshal([]byte(e), &c))
			check.That(t, c.Object == "chat.completion.chunk" && c.Model == "docqa" && c.Created != 0 && strings.HasPrefix(c.ID, "chatcmpl-"), "chunk %s", e)
			check.That(t, !strings.Contains(e, `"message"`) && strings.Contains(e, `"choices":[`), "chunk %s", e)
			ids[c.ID] = true
			chunks = append(chunks, c)
		}
		check.That(t, len(ids) == 1, "ids %v", ids)
		if d := chunks[0].Choices[0].Delta; d.Role != "assistant" || d.Content == nil || *d.Content != "" {
			t.Errorf("first chunk %+v", chunks[0])
		}
		billed := g.upstream.Calls()[len(g.upstream.Calls())-1].Billed
		if withUsage {
			c := chunks[len(chunks)-1]
			check.That(t, len(c.Choices) == 0 && c.Usage != nil && c.Usage.Total == billed.Total() && c.Usage.Prompt == billed.Input, "usage chunk %+v", c)
			chunks = chunks[:len(chunks)-1]
		}
		var text strings.Builder
		for i, c := range chunks {
			check.That(t, c.Usage == nil && len(c.Choices) == 1 && c.Choices[0].Index == 0, "chunk %d %+v", i, c)
			choice := c.Choices[0]
			check.That(t, (choice.FinishReason != nil) == (i == len(chunks)-1), "chunk %d of %d: finish_reason %v", i, len(chunks), choice.FinishReason)
			if choice.Delta.Content != nil {
				text.WriteString(*choice.Delta.Content)
			}
		}
		f := chunks[len(chunks)-1].Choices[0].FinishReason
		check.That(t, f != nil && *f == "stop", "finish_reason %v", f)
		check.That(t, strings.Contains(text.String(), "built-in upstream") && len(chunks) >= 20, "%d chunks: %q", len(chunks), text.String())
	}
}

// The headers of an answer in one piece say how the limits stand after the settle. Those
// of a stream, which come before, have the worst case taken; its last chunk says the rest.
func TestHeadersOfSuccess(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	for body, settled := range map[string]bool{`}`: true, `,"stream":true}`: false, `,"stream":true,"stream_options":{"include_usage":true}}`: false} {
		user := g.token(strconv.Itoa(len(body)), "")
		a := g.chat(user, strings.TrimSuffix(chatBody("docqa", "Hi"), "}")+body)
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		check.Diff(t, cmp.Diff(userPolicy, list(t, a, "RateLimit-Policy"), items), "RateLimit-Policy")
		calls := g.upstream.Calls()
		call := calls[len(calls)-1]
		used := price.Usage{Input: int64(call.PromptTokens), Output: 800}
		if settled {
			used = call.Billed
		}
		tokens, cost := used.Total(), testPrices.Cost(used).MicroDollars()
		// A token is 72 ms, a micro-dollar 43.2 ms, a request 1 s.
		want := []item{
			{"requests", map[string]any{"r": int64(59), "t": int64(1)}},
			{"tokens", map[string]any{"r": 50_000 - tokens, "t": int64(1)}},
			{"spend", map[string]any{"r": 2_000_000 - cost, "t": int64(1)}},
		}
		check.Diff(t, cmp.Diff(want, list(t, a, "RateLimit"), items), "RateLimit")
		for name, want := range map[string]string{
			"X-Ratelimit-Limit-Tokens": "50000", "X-Ratelimit-Remaining-Tokens": strconv.FormatInt(50_000-tokens, 10),
			"X-Ratelimit-Reset-Tokens": (time.Duration(tokens) * 72 * time.Millisecond).String(), "X-Ratelimit-Limit-Requests": "60",
			"X-Ratelimit-Remaining-Requests": "59", "X-Ratelimit-Reset-Requests": "1s",
			"X-Max-Output-Tokens": "800", "X-Input-Truncated": "", "X-Input-Cut": "", "X-Should-Retry": "", "Retry-After": "",
		} {
			check.Equal(t, a.header.Get(name), want, "%s", name)
		}
		chunks := streamed(a.body)
		for i, chunk := range chunks {
			if last := i == len(chunks)-2; last != strings.Contains(chunk, `"limits":[`) {
				t.Errorf("chunk %d of %d: %s", i, len(chunks), chunk)
			} else if last {
				g.wantViews(chunk, user)
			}
		}
	}

	// A quota is a limit among the others, the tightest of requests here.
	a := g.chat(g.token("applicant", ""), chatBody("cv", "Hi"))
	all := list(t, a, "RateLimit")
	check.That(t, len(all) == 4 && all[3].name == "cv" && all[3].params["r"] == int64(2) && all[3].params["t"] == int64(8*3600), "RateLimit %v", all)
	quota := list(t, a, "RateLimit-Policy")[3]
	check.That(t, quota.params["q"] == int64(3) && quota.params["w"] == int64(86_400) && quota.params["qu"] == nil, "RateLimit-Policy %v", quota)
	check.That(t, intHeader(t, a, "X-Ratelimit-Limit-Requests") == 3 && intHeader(t, a, "X-Ratelimit-Remaining-Requests") == 2 && a.header.Get("X-Ratelimit-Reset-Requests") == "8h0m0s",
		"%v", a.header)
}

func TestResetIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ms", 20 * time.Millisecond: "20ms", 20*time.Millisecond + 1: "21ms",
		45*time.Minute + 11*time.Second + 160*time.Millisecond: "45m11.16s",
	} {
		check.Equal(t, ceilMillis(d).String(), want, "%d", d)
	}
}

// wantViews asserts that a chunk tells the limits as GET /v1/limits does.
func (g *rig) wantViews(chunk, token string) {
	g.t.Helper()
	got := decodeJSON(g.t, chunk).(map[string]any)["limits"].([]any)
	want := decodeJSON(g.t, g.do(g.request(http.MethodGet, "/v1/limits", token, "")).body).(map[string]any)["limits"].([]any)
	if len(got) == 0 || !cmp.Equal(got, want[:len(got)]) { // beyond those of the call are the quotas of other features
		g.t.Errorf("the last chunk has %v, want %v", got, want)
	}
}

// denial checks a 429: envelope and headers agree with each other and with the
// state that it leaves alone.
func (g *rig) denial(t *testing.T, a answer, limit, unit string) wireError {
	t.Helper()
	e := g.wireError(a)
	check.Must(t, a.status == http.StatusTooManyRequests && e.Limit == limit && e.Unit == unit, "%d, limit %q, unit %q: %s", a.status, e.Limit, e.Unit, a.body)
	g.common(t, a)
	wantType, wantCode := unit, "rate_limit_exceeded"
	if unit == "usd_micros" || !slices.Contains([]string{"tokens", "requests", "in_flight"}, limit) {
		wantType, wantCode = "insufficient_quota", "insufficient_quota"
	}
	check.That(t, e.Type == wantType && e.Code == wantCode && e.Param == nil, "type %s, code %s, param %v", e.Type, e.Code, e.Param)
	check.That(t, e.Remaining != nil && *e.Remaining >= 0 && *e.Remaining < e.Requested, "requested %d, remaining %v", e.Requested, e.Remaining)
	check.Must(t, e.RetryAfter != nil && *e.RetryAfter == intHeader(t, a, "Retry-After") && *e.RetryAfter >= 1,
		"retry_after_seconds %v, Retry-After %s", e.RetryAfter, a.header.Get("Retry-After"))
	retry := wantCode == "rate_limit_exceeded" && *e.RetryAfter <= 10
	if got := a.header.Get("X-Should-Retry"); got != strconv.FormatBool(retry) {
		t.Errorf("x-should-retry %s after %d s", got, *e.RetryAfter)
	}
	check.That(t, strings.Contains(e.Message, "You can ask again in ") && strings.HasSuffix(e.Message, "."), "message %q", e.Message)
	fields := decodeJSON(t, a.body).(map[string]any)["error"].(map[string]any)
	want := []string{"affordable_max_tokens", "code", "limit", "message", "param", "remaining", "requested", "retry_after_seconds", "type", "unit"}
	if got := slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
		t.Errorf("fields %v", got)
	}
	if limit == "in_flight" {
		for name := range a.header {
			check.That(t, !strings.Contains(strings.ToLower(name), "ratelimit"), "header %s", name)
		}
		return e
	}
	states, policies := list(t, a, "RateLimit"), list(t, a, "RateLimit-Policy")
	check.That(t, len(states) == len(policies) && len(states) >= 2, "RateLimit %v, RateLimit-Policy %v", states, policies)
	for i, s := range states {
		if s.name != policies[i].name || s.name == limit && (s.params["r"] != *e.Remaining || s.params["t"].(int64) < 1 || s.params["t"].(int64) > *e.RetryAfter) {
			t.Errorf("RateLimit %v after %v: %+v", s, policies[i], e)
		}
	}
	for _, name := range []string{"Limit-Tokens", "Remaining-Tokens", "Limit-Requests", "Remaining-Requests", "Reset-Tokens", "Reset-Requests"} {
		value := a.header.Get("X-Ratelimit-" + name)
		if !strings.HasPrefix(name, "Reset") {
			check.That(t, intHeader(t, a, "X-Ratelimit-"+name) >= 0, "%s %s", name, value)
		} else if d, err := time.ParseDuration(value); err != nil || d.String() != value || d%time.Millisecond != 0 {
			t.Errorf("%s %q", name, value)
		}
	}
	return e
}

// denied expects a denial that changes nothing.
func (g *rig) denied(t *testing.T, token, body, limit, unit string) wireError {
	t.Helper()
	before, calls := g.remaining(token), len(g.upstream.Calls())
	e := g.denial(t, g.chat(token, body), limit, unit)
	diff := cmp.Diff(before, g.remaining(token))
	check.That(t, diff == "", "the denial changed (-before +after):\n%s", diff)
	check.That(t, len(g.upstream.Calls()) == calls, "the provider was called")
	return e
}

func (g *rig) admitted(t *testing.T, token, body string) {
	t.Helper()
	a := g.chat(token, body)
	check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
}

// limitsOf sets a user's limits; caps are small so that small limits are legal.
func limitsOf(limits string) func(string) string {
	return func(yaml string) string {
		i := strings.Index(yaml, "  user: ")
		j := strings.Index(yaml, "  pro: ")
		return yaml[:i] + "  user: {max_input_tokens: 1000, max_messages: 64, max_output_tokens: 4000, max_in_flight: 8,\n              limits: {" + limits + "}}\n" + yaml[j:]
	}
}

func asking(feature, text string, maxTokens int64) string {
	return fmt.Sprintf(`%s,"max_tokens":%d}`, strings.TrimSuffix(chatBody(feature, text), "}"), maxTokens)
}

// What is said to be affordable is: that much is admitted at once, one more is not.
func TestAffordableIsTrue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, limits string
		wait         string // which of the limits has the longest wait
		bound        string // which bounds what is affordable
	}{
		{"tokens", `tokens: {capacity: 3100, per: 1h}, requests: {capacity: 60, per: 1m}`, "tokens", "tokens"},
		{"spend", `requests: {capacity: 60, per: 1m}, tokens: {capacity: 50000, per: 1h}, spend: {usd: "0.004", per: 24h}`, "spend", "spend"},
		{"both", `tokens: {capacity: 3100, per: 2h}, requests: {capacity: 60, per: 1m}, spend: {usd: "0.0048", per: 1h}`, "tokens", "spend"},
	} {
		unit := map[string]string{"tokens": "tokens", "spend": "usd_micros"}
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, limitsOf(tc.limits))
			g.freeze(0)
			user := g.token("123", "")
			for range 3 {
				g.admitted(t, user, chatBody("docqa", "[[long]]"))
			}
			e := g.denied(t, user, chatBody("docqa", "[[long]]"), tc.wait, unit[tc.wait])
			check.Must(t, e.Affordable != nil && *e.Affordable >= 1 && *e.Affordable < 800, "affordable %v", e.Affordable)
			more := g.denied(t, user, asking("docqa", "[[long]]", *e.Affordable+1), tc.bound, unit[tc.bound])
			check.That(t, more.Affordable != nil && *more.Affordable == *e.Affordable, "affordable %d, then %v", *e.Affordable, more.Affordable)
			g.admitted(t, user, asking("docqa", "[[long]]", *e.Affordable))

			// Now not even one token fits, and lowering does not help.
			e = g.denied(t, user, asking("docqa", "[[long]]", 1), tc.bound, unit[tc.bound])
			check.That(t, e.Affordable == nil, "something is affordable: %+v", e)
		})
	}
}

func TestAffordableOfFreeModel(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		return strings.Replace(yaml, `{input: "0.40", cached_input: "0.10", output: "1.60"}`, `{input: "0", output: "0"}`, 1)
	}, limitsOf(`tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: "0.000001", per: 24h}`))
	g.freeze(0)
	// While a call is open it holds the least amount, so that a second does not fit.
	user := g.token("123", "")
	end := g.hold(t, user, 1)
	defer end()
	e := g.denied(t, user, chatBody("docqa", "Hi"), "spend", "usd_micros")
	check.That(t, e.Affordable == nil, "something is affordable: %+v", e)
}

// hold opens n calls that last until the returned function is called, which
// waits for their ends.
func (g *rig) hold(t *testing.T, token string, n int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	before, _ := g.upstream.Totals()
	done := make(chan answer, n)
	for range n {
		go func() {
			r := g.request(http.MethodPost, chatPath, token, chatBody("docqa", "[[fail:timeout]]"))
			done <- g.do(r.WithContext(ctx))
		}()
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if now, _ := g.upstream.Totals(); now == before+int64(n) {
			break
		}
		check.Must(t, !time.Now().After(deadline), "the calls do not arrive")
	}
	return func() {
		cancel()
		for range n {
			<-done
		}
	}
}

func TestTooManyInFlight(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	end := g.hold(t, user, 8)
	g.freeze(0)
	e := g.denied(t, user, chatBody("docqa", "Hi"), "in_flight", "requests")
	check.That(t, *e.RetryAfter == 2 && e.Requested == 1 && *e.Remaining == 0 && e.Affordable == nil, "%+v", e)
	g.admitted(t, g.token("456", ""), chatBody("docqa", "Hi"))
	end()
	g.admitted(t, user, chatBody("docqa", "Hi"))
}

func TestRequestsDeny(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		per  string
		wait int64 // of two in a period, the third
	}{{"2s", 1}, {"20s", 10}, {"22s", 11}, {"1h", 1800}} {
		t.Run(tc.per, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, limitsOf(`tokens: {capacity: 50000, per: 1h}, requests: {capacity: 2, per: `+tc.per+`}`))
			g.freeze(0)
			user := g.token("123", "")
			g.admitted(t, user, chatBody("docqa", "Hi"))
			g.admitted(t, user, chatBody("docqa", "Hi"))
			for range 3 { // denials do not put off the end of the wait
				e := g.denied(t, user, chatBody("docqa", "Hi"), "requests", "requests")
				check.That(t, *e.RetryAfter == tc.wait && e.Affordable == nil && e.Requested == 1 && *e.Remaining == 0, "%+v", e)
			}
			g.freeze(time.Duration(tc.wait)*time.Second - 10*time.Millisecond)
			g.denied(t, user, chatBody("docqa", "Hi"), "requests", "requests")
			g.freeze(10 * time.Millisecond)
			g.admitted(t, user, chatBody("docqa", "Hi"))
		})
	}
}

// Who comes back after Retry-After is admitted, whichever limit denied.
func TestRetryAfterIsTrue(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ feature, limits, limit, unit string }{
		{"docqa", `tokens: {capacity: 3100, per: 1h}, requests: {capacity: 60, per: 1m}`, "tokens", "tokens"},
		{"docqa", `tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}, spend: {usd: "0.004", per: 24h}`, "spend", "usd_micros"},
		{"cv", `tokens: {capacity: 50000, per: 1h}, requests: {capacity: 60, per: 1m}`, "cv", "requests"},
	} {
		t.Run(tc.limit, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, limitsOf(tc.limits))
			g.freeze(0)
			user, err := g.issuer.Token(issuer.Claims{Subject: "123", TTL: 48 * time.Hour})
			check.OK(t, err)
			body := asking(tc.feature, "[[long]]", 800)
			for range 3 {
				g.admitted(t, user, body)
			}
			e := g.denied(t, user, body, tc.limit, tc.unit)
			check.That(t, tc.limit != "cv" || *e.RetryAfter == 8*3600 && strings.Contains(e.Message, "8 hours") && e.Affordable == nil, "%+v", e)
			g.freeze(time.Duration(*e.RetryAfter)*time.Second - 1001*time.Millisecond)
			g.denied(t, user, body, tc.limit, tc.unit)
			g.freeze(1001 * time.Millisecond)
			g.admitted(t, user, body)
		})
	}
}

// Of several limits that deny, the one with the longest wait is named.
func TestLongestWaitIsNamed(t *testing.T) {
	t.Parallel()
	quota := func(yaml string) string {
		return strings.Replace(yaml, "quota: {capacity: 3, per: 24h}", "quota: {capacity: 1, per: 24h}", 1)
	}
	for _, tc := range []struct{ limits, limit, unit string }{
		{`tokens: {capacity: 3100, per: 1m}, requests: {capacity: 1, per: 1m}`, "cv", "requests"},
		{`tokens: {capacity: 3100, per: 48h}, requests: {capacity: 1, per: 48h}`, "requests", "requests"},
		{`tokens: {capacity: 3100, per: 240h}, requests: {capacity: 1, per: 48h}`, "tokens", "tokens"},
		{`tokens: {capacity: 3100, per: 48h}, requests: {capacity: 1, per: 1m}, spend: {usd: "0.0036", per: 240h}`, "spend", "usd_micros"},
	} {
		t.Run(tc.limit, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, quota, limitsOf(tc.limits))
			g.freeze(0)
			user := g.token("123", "")
			g.admitted(t, user, chatBody("cv", "[[long]]"))
			// Requests or the quota deny, too: lowering max_tokens cannot help.
			e := g.denied(t, user, chatBody("cv", "[[long]]"), tc.limit, tc.unit)
			check.That(t, e.Affordable == nil, "something is affordable: %+v", e)
		})
	}
}

// impatient is a setup that gives the store less time than usual.
var impatient = setup{bucket: bucket.Options{AttemptTimeout: 600 * time.Millisecond, ReserveTimeout: 600 * time.Millisecond}}

// Without the store there is no call, and an answer within bounded time.
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faults.Fault{
		"lost requests": faults.LostRequest, "lost replies": faults.LostReply, "throttled": faults.Throttled,
		"errors": faults.ServerError, "hangs": faults.Hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := impatient
			if fault == faults.Hang {
				s = setup{bucket: bucket.Options{AttemptTimeout: time.Second, ReserveTimeout: 2500 * time.Millisecond}} // as in production
			}
			g := s.newRig(t)
			user := g.token("123", "")
			g.net.Plan = faults.Always(fault)
			requests := []*http.Request{g.request(http.MethodPost, chatPath, user, chatBody("docqa", "Hi"))}
			if fault == faults.Hang || fault == faults.LostRequest {
				requests = append(requests, g.request(http.MethodGet, "/v1/limits", user, ""),
					g.request(http.MethodPost, chatPath, "", chatBody("docqa", "Hi")))
			}
			began := time.Now()
			answers := make(chan answer, len(requests))
			for _, r := range requests {
				go func() { answers <- g.do(r) }()
			}
			for range requests {
				a := <-answers
				took := time.Since(began)
				check.That(t, took <= 6*time.Second, "took %s", took)
				e := g.wireError(a)
				check.That(t, a.status == http.StatusServiceUnavailable && e.Code == "store_unavailable" && e.Type == "server_error" && e.Message != "",
					"%d %s", a.status, a.body)
				check.That(t, a.header.Get("Retry-After") == "1" && a.header.Get("X-Should-Retry") == "true", "%v", a.header)
				g.common(t, a)
			}
			check.That(t, len(g.upstream.Calls()) == 0, "the provider was called without a reservation")
			g.net.Plan = nil
			g.admitted(t, user, chatBody("docqa", "Hi"))
		})
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for _, tc := range []struct {
		token string
		want  []string
		caps  []string // characters, messages, tokens of output: what the next one is cut or refused for
	}{
		{"", []string{"docqa", "open"}, []string{"2000 16 400", "2000 16 400"}},
		{"anonymous", []string{"docqa", "open"}, []string{"2000 16 400", "2000 16 400"}},
		{g.token("123", ""), []string{"cv", "docqa", "open"}, []string{"<nil> 64 2000", "<nil> 64 800", "<nil> 64 800"}},
		{g.token("123", "pro"), []string{"cv", "docqa", "open"}, []string{"<nil> 256 2000", "<nil> 256 800", "<nil> 256 800"}},
	} {
		a := g.do(g.request(http.MethodGet, "/v1/models", tc.token, ""))
		check.Must(t, a.status == http.StatusOK && a.header.Get("Content-Type") == "application/json", "%d %s", a.status, a.body)
		g.common(t, a)
		body := decodeJSON(t, a.body).(map[string]any)
		check.That(t, body["object"] == "list" && len(body) == 2, "%s", a.body)
		var got, caps []string
		for _, m := range body["data"].([]any) {
			m := m.(map[string]any)
			caps = append(caps, fmt.Sprintf("%v %v %v", m["max_input_chars"], m["max_messages"], m["max_output_tokens"]))
			check.That(t, m["object"] == "model" && m["owned_by"] == "tokenfuse" && len(m) == 7, "%v", m)
			if created, err := m["created"].(json.Number).Int64(); err != nil || created < 1 {
				t.Errorf("created %v", m["created"])
			}
			got = append(got, m["id"].(string))
		}
		check.That(t, slices.Equal(got, tc.want) && slices.Equal(caps, tc.caps), "%v %v, want %v %v", got, caps, tc.want, tc.caps)
		// Each by its name is the same object; no other is there.
		for i, name := range got {
			one := g.do(g.request(http.MethodGet, "/v1/models/"+name, tc.token, ""))
			g.common(t, one)
			check.That(t, one.status == http.StatusOK && cmp.Equal(decodeJSON(t, one.body), body["data"].([]any)[i]), "%s: %d %s", name, one.status, one.body)
		}
		for _, name := range []string{"nope", "Open", "open/x", "small", strings.Repeat("a", 4000)} {
			g.refused(t, g.do(g.request(http.MethodGet, "/v1/models/"+name, tc.token, "")), openai.ModelNotFound, "model")
		}
	}
	g.refused(t, g.do(g.request(http.MethodGet, "/v1/models/cv", "", "")), openai.ModelNotFound, "model") // another tier's
	g.refused(t, g.do(g.request(http.MethodGet, "/v1/models/open", "nonsense", "")), openai.InvalidToken, "")
	g.untouched(t)
}

// Slashes that a base URL ends in, or has twice, change nothing.
func TestSlashes(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for _, tc := range []struct{ method, path string }{
		{"POST", "/v1/chat/completions/"}, {"POST", "//v1/chat/completions"}, {"POST", "/v1//chat/completions"}, {"POST", "///v1///chat//completions///"},
		{"GET", "/v1/models/"}, {"GET", "/v1//models"}, {"GET", "/v1/models/open/"}, {"GET", "//v1/models//open"}, {"GET", "/v1/limits/"},
	} {
		body := ""
		if tc.method == "POST" {
			body = with("")
		}
		r := g.request(tc.method, "/", "", body)
		r.URL.Path = tc.path
		a := g.do(r)
		check.That(t, a.status == http.StatusOK && (!strings.HasSuffix(tc.path, "open/") || strings.Contains(a.body, `"id":"open"`)),
			"%s %s: %d %s", tc.method, tc.path, a.status, a.body)
	}
	if lines := g.logged("request"); !bytes.Contains(lines[0], []byte(`"path":"/v1/chat/completions"`)) || !bytes.Contains(lines[7], []byte(`"path":"/v1/models/{id}"`)) {
		t.Errorf("%s\n%s", lines[0], lines[7])
	}
	// Nor do they change the address that is told, whichever of the gateway's two paths has them.
	for path, public := range map[string]string{"/v1/nope": "/prod//v1/nope/", "/v1//nope/": "/prod/v1/nope", "/v1/a%2F%2Fb": "/prod/v1/a%2F%2Fb", "//v1/nope": "/prod//v1/nope"} {
		r, err := lambdahttp.NewRequest(t.Context(), &events.APIGatewayProxyRequest{HTTPMethod: "GET", Path: path,
			RequestContext: events.APIGatewayProxyRequestContext{Path: public, DomainName: "x.example"}})
		check.OK(t, err)
		check.Equal(t, g.handler.base(r), "https://x.example/prod", "%s", public)
	}
}

// Who asks for what is not here is told where to go, in words that a page can read.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	for path, what := range map[string]string{
		"/chat/completions": "There is nothing at this address.", "/models": "There is nothing at this address.", "/v1": "There is nothing at this address.",
		"/v1/v1/chat/completions": "There is nothing at this address.", "/openai/deployments/open/chat/completions": "There is nothing at this address.",
		"/embeddings/":    "There is nothing at this address.",
		"/v1/completions": "The completions API is not served here.", "/responses": "There is nothing at this address.",
		"/v1//responses/x": "Nothing is stored here, so nothing can be asked of a response.", "/v1/images/generations": "The images API is not served here.",
		"/v1/messages": "The messages API is not served here.", "/api/generate": "The generate API is not served here.",
	} {
		r := g.from(appOrigin, http.MethodPost, "/", "", "{}")
		r.URL.Path = path
		a := g.do(r)
		g.refused(t, a, openai.NotFound, "")
		readable(t, a, appOrigin)
		want := what + " Chat completions are: POST https://example.com/v1/chat/completions. Responses are: POST https://example.com/v1/responses. The base URL of a client is https://example.com/v1."
		check.Equal(t, g.wireError(a).Message, want, "%s", path)
		r = g.from(appOrigin, http.MethodOptions, "/", "", "")
		r.URL.Path = path
		if a := g.do(r); a.status != http.StatusNoContent {
			t.Errorf("preflight of %s: %d", path, a.status)
		}
	}
	g.untouched(t)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	user := g.token("123", "")
	view := func(token string) map[string]any {
		a := g.do(g.request(http.MethodGet, "/v1/limits", token, ""))
		check.Must(t, a.status == http.StatusOK && a.header.Get("Content-Type") == "application/json", "%d %s", a.status, a.body)
		g.common(t, a)
		return decodeJSON(t, a.body).(map[string]any)
	}
	shows := func(token, want string) {
		t.Helper()
		check.Diff(t, cmp.Diff(decodeJSON(t, want), any(view(token))), "difference")
	}
	limit := func(name, unit string, capacity, period, remaining, reset int64) string {
		return fmt.Sprintf(`{"name":%q,"unit":%q,"capacity":%d,"period_seconds":%d,"remaining":%d,"reset_seconds":%d,"retry_after_seconds":0}`,
			name, unit, capacity, period, remaining, reset)
	}
	head := func(kind, id, tier string) string {
		return fmt.Sprintf(`{"identity":{"kind":%q,"id":%q,"tier":%q},"fuse":"closed","challenge":{"required":false},"limits":[`, kind, id, tier)
	}
	shows(user, head("user", "123", "user")+limit("requests", "requests", 60, 60, 60, 0)+","+limit("tokens", "tokens", 50_000, 3600, 50_000, 0)+","+
		limit("spend", "usd_micros", 2_000_000, 86_400, 2_000_000, 0)+","+limit("cv", "requests", 3, 86_400, 3, 0)+`]}`)

	g.admitted(t, user, chatBody("cv", "Hi"))
	u := g.upstream.Calls()[0].Billed
	cost := (u.Input*400_000 + u.Output*1_600_000 + 999_999) / 1_000_000
	shows(user, head("user", "123", "user")+limit("requests", "requests", 60, 60, 59, 1)+","+
		limit("tokens", "tokens", 50_000, 3600, 50_000-u.Total(), openai.Seconds(time.Duration(u.Total())*72*time.Millisecond))+","+
		limit("spend", "usd_micros", 2_000_000, 86_400, 2_000_000-cost, openai.Seconds(time.Duration(cost)*43200*time.Microsecond))+","+
		limit("cv", "requests", 3, 86_400, 2, 8*3600)+`]}`)

	// A used-up quota says when the next is free.
	g.admitted(t, user, chatBody("cv", "Hi"))
	g.admitted(t, user, chatBody("cv", "Hi"))
	limits := view(user)["limits"].([]any)
	cv := limits[3].(map[string]any)
	check.That(t, cv["remaining"] == json.Number("0") && cv["retry_after_seconds"] == json.Number("28800") && cv["reset_seconds"] == json.Number("86400"), "%v", cv)

	anonymous := view("")
	id := anonymous["identity"].(map[string]any)["id"].(string)
	check.That(t, regexp.MustCompile(`^net#[a-z2-7]{16}$`).MatchString(id), "id %q", id)
	shows("", head("anonymous", id, "anonymous")+limit("requests", "requests", 20, 60, 20, 0)+","+limit("tokens", "tokens", 5_000, 3600, 5_000, 0)+`]}`)
	shows(g.token("9", "pro"), head("user", "9", "pro")+limit("requests", "requests", 120, 60, 120, 0)+","+limit("tokens", "tokens", 400_000, 3600, 400_000, 0)+","+
		limit("spend", "usd_micros", 10_000_000, 86_400, 10_000_000, 0)+","+limit("cv", "requests", 3, 86_400, 3, 0)+`]}`)
	if u := view(user); len(u) != 4 {
		t.Errorf("%v", u)
	}
}
