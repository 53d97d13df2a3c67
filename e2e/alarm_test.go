package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// alarmThreshold is crossed by ten large calls. From there to its double, where the
// alarm would tell of the incident again, are two hundred small ones.
const alarmThreshold = 2 * price.Dollar

// alarmPrices tell each kind of token apart by the last digits of a sum.
var alarmPrices = price.Table{Rates: price.Rates{Input: 400_000_010, CachedInput: 100_003_000, CacheWrite: 400_000_010, Output: 1_600_700_000}}

func alarmConfig(t *testing.T, fuse string) string {
	t.Helper()
	return writeConfig(t, fmt.Sprintf(`
providers: {main: {kind: openai, base_url: "https://model.invalid/v1", api_key: {env: E2E_NO_SUCH_KEY}, timeout: 30s}}
models: {small: {provider: main, id: test-model, tokenizer: o200k_base, max_tokens_field: max_completion_tokens, context: 100000,
                 price_per_mtok: {input: "400.00001", cached_input: "100.003", output: "1600.7"}}}
features: {ask: {model: small, max_output_tokens: 100}}
tiers:
  anonymous: {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 100, limits: {tokens: {capacity: 100000, per: 100d}}}
  user:      {max_input_tokens: 200, max_output_tokens: 100, max_in_flight: 100, limits: {tokens: {capacity: 100000, per: 100d}}}
pools: {all: {usd: "40.00", per: 1h}}
auth: {issuer: "https://issuer.invalid/", audience: "e2e", jwks_url: "https://issuer.invalid/jwks.json"}
fingerprint: {secret: {env: E2E_NO_SUCH_KEY}}
alarm: {threshold_usd: %q, repeat_every: 10h, fuse: %s}
`, alarmThreshold, fuse))
}

// spender asks, and adds up what the answers say that they cost.
type spender struct {
	*dev
	spent price.Pico
	calls int
}

// take adds up an answer. It reports whether the fuse refused it instead.
func (s *spender) take(t *testing.T, a answer) (refused bool) {
	t.Helper()
	c, err := a.completion()
	switch {
	case err == nil && a.status == http.StatusOK && c.done && c.Usage.Total > 0:
		s.calls++
		s.spent += alarmPrices.Cost(price.Usage{
			Input: int64(c.Usage.Total - c.Usage.Output), CachedInput: int64(c.Usage.InputDetails.Cached), Output: int64(c.Usage.Output)})
	case err == nil && a.status == http.StatusServiceUnavailable && c.Error.Code == "fuse_open":
		return true
	default:
		t.Fatalf("neither an answer nor the fuse: %v: %d %s", err, a.status, a.body)
	}
	return false
}

// small is a question that costs little.
var small = question{feature: "ask", text: "Hi", most: 1}

// cross spends more than the threshold, most of it anonymously.
func (s *spender) cross(t *testing.T, token string) {
	t.Helper()
	texts := []string{"Why? [[long]]", "Why? [[long]] [[cached:50]]", "Why? [[long]] [[reasoning:30]]", "Why? [[long]] [[cached:999]]"}
	for s.spent <= alarmThreshold {
		for _, a := range together(t, 12, func(i int) (answer, error) {
			who := ""
			if i < 2 {
				who = token
			}
			return s.ask(t.Context(), who, question{feature: "ask", text: texts[i%len(texts)] + strings.Repeat(" Why?", 60), most: 100, stream: i%3 == 0})
		}) {
			check.Must(t, !s.take(t, a), "the fuse is set")
		}
	}
}

// wantSpend asserts that the trailing hour holds what the answers cost.
func (s *spender) wantSpend(t *testing.T) {
	t.Helper()
	var view struct {
		Total string `json:"total_usd"`
		Tiers map[string]struct{ Calls int }
	}
	s.get(t, "/dev/spend", &view)
	calls := view.Tiers["anonymous"].Calls + view.Tiers["user"].Calls
	check.That(t, view.Total == s.spent.String() && calls == s.calls, "%d calls for $%s, want %d for $%s by the answers", calls, view.Total, s.calls, s.spent)
}

func (d *dev) get(t *testing.T, path string, into any) {
	t.Helper()
	a, err := read(client.Get(d.url + path))
	check.OK(t, err)
	if err := json.Unmarshal([]byte(a.body), into); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %v: %d %s", path, err, a.status, a.body)
	}
}

// alarmResult is what a run of spendalarm says.
type alarmResult struct {
	State, Paged, Fuse string
	SetBy              string `json:"fuse_set_by"`
	Spend              string `json:"spend_usd"`
}

func (a answer) alarm(t *testing.T) (r alarmResult) {
	t.Helper()
	err := json.Unmarshal([]byte(a.body), &r)
	check.Must(t, err == nil && a.status == http.StatusOK, "%v: %d %s", err, a.status, a.body)
	return r
}

// runAlarm runs spendalarm now.
func (d *dev) runAlarm(t *testing.T) alarmResult {
	t.Helper()
	a, err := read(post(t.Context(), d.url+"/dev/alarm", "", ""))
	check.OK(t, err)
	return a.alarm(t)
}

// inbox is what was published and put.
type inbox struct {
	SNS []struct {
		Time             time.Time
		Subject, Message string
		Attributes       map[string]string
	}
	Metrics []struct {
		Time       time.Time
		Name       string
		Value      float64
		Dimensions map[string]string
	}
}

func (d *dev) inbox(t *testing.T) (b inbox) {
	t.Helper()
	d.get(t, "/dev/inbox", &b)
	return b
}

const devARN = "arn:aws:iam::000000000000:role/tokenfuse-dev"

// An attack, from the first cent to the person who is woken: one page, the fuse that
// the alarm sets, and the page's own commands, pasted into a shell.
func TestAlarm(t *testing.T) {
	t.Parallel()
	const instances = 4
	d := startDev(t, alarmConfig(t, "anonymous_off"), "--instances", fmt.Sprint(instances), "--alarm-every", "10h")
	s := &spender{dev: d}
	user := d.token(t, "123")
	// all asks each instance, since they take turns, and reports whether all do the same.
	all := func(token string, refused bool) bool {
		same := true
		for _, a := range together(t, instances, func(int) (answer, error) { return s.ask(t.Context(), token, small) }) {
			same = s.take(t, a) == refused && same
		}
		return same
	}
	obeyed := func(what, token string, refused bool) {
		t.Helper()
		await(t, what, func() bool { return all(token, refused) })
		check.That(t, all(token, refused), "%s: not for long", what)
	}

	check.That(t, all("", false), "refused while nothing is wrong")
	check.Equal(t, d.runAlarm(t), (alarmResult{State: "normal", Fuse: "closed", Spend: s.spent.String()}), "while nothing is wrong")
	if a := s.mustAsk(t, "", question{feature: "ask", text: "[[fail:500]]", most: 100}); a.status != http.StatusBadGateway {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.cross(t, user)
	s.wantSpend(t)

	// However often spendalarm runs, even at once, there is one page.
	paged := 0
	for _, a := range together(t, 4, func(int) (answer, error) { return read(post(t.Context(), d.url+"/dev/alarm", "", "")) }) {
		if r := a.alarm(t); r.Paged != "" {
			paged++
		}
	}
	if r := d.runAlarm(t); paged != 1 || r != (alarmResult{State: "alarm", Fuse: "anonymous_off", SetBy: "alarm", Spend: s.spent.String()}) {
		t.Errorf("%d of 4 runs paged; the next one: %+v", paged, r)
	}
	got := d.inbox(t)
	check.Must(t, len(got.SNS) == 1, "%d pages", len(got.SNS))
	page := got.SNS[0]
	if a := page.Attributes; a["event"] != "opened" || a["threshold_usd"] != "2" || !strings.Contains(a["report"], `"spend_usd":"`+s.spent.String()+`"`) {
		t.Errorf("attributes %v", a)
	}
	dollars, last := float64(s.spent)/float64(price.Dollar), 0.0
	for _, m := range got.Metrics {
		if m.Name == "TrailingHourDollars" && len(m.Dimensions) == 0 {
			last = m.Value
		}
	}
	check.Equal(t, last, dollars, "the last TrailingHourDollars is")

	obeyed("no instance serves anonymous callers", "", true)
	check.That(t, all(user, false), "a user is refused")

	// What the page says to do, one after the other.
	until := ` until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, set by ` + devARN + `\n`
	steps := []struct {
		begins, prints string
		then           func()
	}{
		{"status", `last hour .*\nalarm +ALARM since .*\nthreshold +\$2\.00: .*\nfuse +the fuse is anonymous_off until .* UTC, set by alarm: spending is above its threshold\n(?s:.*)net#(?s:.*)`, nil},
		{"limits 'net#", `net#\S+: 0 calls in flight; the fuse is anonymous_off\ntier: anonymous\nLIMIT (?s:.*)tokens (?s:.*)`, nil},
		{"block 'net#", `(net#\S+) is blocked until .* UTC, by ` + devARN + `\n`, func() {
			who := regexp.MustCompile(`block '(net#\S+)'`).FindStringSubmatch(page.Message)[1]
			d.must(t, "unblock", who)
		}},
		{"fuse set challenge", `the fuse is challenge` + until, nil},
		{"fuse set anonymous_off", `the fuse is anonymous_off` + until, nil},
		{"fuse set open", `the fuse is open` + until, func() { obeyed("no instance serves users", user, true) }},
		{"fuse set closed", `the fuse is closed, set by ` + devARN + `\n`, func() {
			obeyed("each instance serves anonymous callers", "", false)
			// It lasts, but the alarm obeys, too.
			check.Equal(t, d.runAlarm(t), (alarmResult{State: "alarm", Fuse: "closed", SetBy: devARN, Spend: s.spent.String()}), "after a person closed the fuse")
			if got := d.must(t, "fuse", "show"); got != "the fuse is closed, set by "+devARN+"\n" {
				t.Error(got)
			}
			obeyed("each instance serves users", user, false)
		}},
		{"clear-limit USER", `cleared all of user 123\nLIMIT (?s:.*)tokens +user +9\d{4} +100000 +100000 +2400h\n`, func() {
			check.Equal(t, d.remaining(t, user, "tokens"), 100_000, "the user has … tokens")
		}},
	}
	commands := regexp.MustCompile(`(?m)^    tokenfuse (.*)$`).FindAllStringSubmatch(page.Message, -1)
	check.Must(t, len(commands) == len(steps), "%d commands, want %d:\n%s", len(commands), len(steps), page.Message)
	env := append(awsEnv(d.keys(t)), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"))
	for i, step := range steps {
		command := commands[i][1]
		check.That(t, strings.HasPrefix(command, step.begins) && strings.HasSuffix(command, " --endpoint "+d.url),
			"command %d is %q, want %q", i, command, step.begins)
		got := run(t, env, "sh", "-c", "tokenfuse "+strings.Replace(command, "USER", "123", 1))
		check.That(t, got.code == 0 && got.stderr == "", "%s: %+v", command, got)
		wantText(t, got.stdout, step.prints)
		if step.then != nil {
			step.then()
		}
	}

	s.wantSpend(t)
	pages := d.inbox(t).SNS
	check.That(t, len(pages) == 1, "%d pages in the end", len(pages))
}

// spendalarm runs by itself, pages once, and leaves alone what a person set before.
func TestAlarmSchedule(t *testing.T) {
	t.Parallel()
	d := startDev(t, alarmConfig(t, "open"), "--alarm-every", "200ms")
	s := &spender{dev: d}
	d.must(t, "fuse", "set", "closed", "--for", "1h")
	s.cross(t, d.token(t, "123"))
	await(t, "a page comes by itself", func() bool { return len(d.inbox(t).SNS) > 0 })
	page := d.inbox(t).SNS[0]
	await(t, "spendalarm runs again and again", func() bool {
		later := 0
		for _, m := range d.inbox(t).Metrics {
			if m.Name == "TrailingHourCalls" && m.Time.After(page.Time) {
				later++
			}
		}
		return later > 5
	})
	if pages := d.inbox(t).SNS; len(pages) != 1 || page.Attributes["event"] != "opened" || !strings.Contains(page.Message, "\nThe fuse is closed: all callers are served.\n") {
		t.Errorf("%d pages, the first: %s", len(pages), page.Message)
	}
	if got := d.must(t, "fuse", "show"); !regexp.MustCompile(`^the fuse is closed until .*, set by ` + devARN).MatchString(got) {
		t.Error(got)
	}
	check.That(t, !s.take(t, s.mustAsk(t, "", small)), "the fuse was set over a person's setting")
	s.wantSpend(t)
}
