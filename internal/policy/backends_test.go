package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestBackends(t *testing.T) {
	t.Parallel()
	file := strings.Replace(good, toPools, backend(`secrets: [{ssm: /app/web-a}, {secret: app/web-b}], token: {claim: azp, values: [web]}, tiers: [user], pool: web}
  app: {secrets: [{env: APP}], pool: small`), 1)
	p := parse(t, file)
	want := map[string]*Backend{
		"web": {Name: "web", Secrets: []Secret{{SSM: "/app/web-a"}, {Secret: "app/web-b"}}, Claim: "azp", Values: []string{"web"}, Tiers: []string{"user"}, Pool: p.Pools["web"]},
		"app": {Name: "app", Secrets: []Secret{{Env: "APP"}}, Pool: p.Pools["small"]},
	}
	if diff := cmp.Diff(want, p.Backends); diff != "" {
		t.Error(diff)
	}
	secrets := p.Secrets()
	for _, b := range want {
		for _, s := range b.Secrets {
			check.That(t, slices.Contains(secrets, s), "%+v is not fetched", s)
		}
	}
	for tier, serves := range map[string][2]bool{"anonymous": {true, true}, "user": {true, false}, "gold": {false, false}, "": {false, false}} {
		check.Equal(t, [2]bool{want["web"].Serves(tier), want["app"].Serves(tier)}, serves, "web and app serve %q", tier)
	}

	// What a backend needs of other sections.
	cut := func(file, from, to string) string {
		i := strings.Index(file, from)
		return file[:i] + file[i+strings.Index(file[i:], to):]
	}
	tier := cut(strings.Replace(file, "tiers: [user], pool: web}", "pool: web}", 1), "  anonymous:\n", "  user:\n")
	for name, test := range map[string]struct{ file, places, said string }{
		"a claim without auth":         {cut(file, "auth:", "cors:"), "58 backends.web.token", "section auth"},
		"nobody to call for":           {tier, "42 backends.web.tiers | 43 backends.app.tiers", "call for nobody"},
		"hashes without a fingerprint": {cut(cut(strings.Replace(file, "pool: small", "tiers: [user], pool: small", 1), "  anonymous:\n", "  user:\n"), "fingerprint:", "cloudfront:"), "", "stand for their visitors"},
		"no pools":                     {cut(file, toPools, "auth:"), "58 backends.web.pool | 59 backends.app.pool", "no section pools"},
	} {
		places, text := problemsOf(t, test.file)
		got := strings.Join(places, " | ")
		check.That(t, (test.places == "" || got == test.places) && strings.Contains(text, test.said), "%s: %s: %s", name, got, text)
	}

	// What costs nothing is bounded by no pool.
	if notes := strings.Join(parse(t, file).Notes(), "\n"); strings.Contains(notes, "backends.") {
		t.Errorf("notes of backends whose calls all cost: %s", notes)
	}
	free := strings.Replace(strings.Replace(file, `input: "0.40"`, "input: 0", 1), `output: "1.60"`, "output: 0", 1)
	if notes := strings.Join(parse(t, free).Notes(), "\n"); !strings.Contains(notes, "backends.app: calls to ask cost nothing") || !strings.Contains(notes, "backends.web: calls to ask cost nothing") {
		t.Errorf("of free calls: %s", notes)
	}

	// Users for whom backends vouch need no auth.
	p = parse(t, cut(strings.Replace(file, "token: {claim: azp, values: [web]}, ", "", 1), "auth:", "cors:"))
	if notes := strings.Join(p.Notes(), "\n"); !p.Reached(User) || !strings.Contains(notes, "those for whom a backend vouches") {
		t.Errorf("without auth: %s", notes)
	}
}
