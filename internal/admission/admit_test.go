package admission

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Each way in which a call is refused, with its figures; and that a refusal costs nobody
// anything: no limit, no pool, no open call.
func TestRefusals(t *testing.T) {
	t.Parallel()
	seen := map[Kind]bool{}
	for name, tt := range map[string]struct {
		caller  func(*rig) Caller
		feature string
		before  func(*rig, Caller) // what has happened by then
		ctx     func(context.Context) context.Context
		want    Refusal
		limit   string
	}{
		"the tokens of the hour": {feature: "long", before: func(g *rig, c Caller) {
			g.use(g.mustAdmit(c, "long", 0), 49_000)
		}, limit: "tokens", want: Refusal{Kind: OverLimit}},
		"the requests of the minute": {feature: "docqa", before: func(g *rig, c Caller) {
			for range 2 {
				g.use(g.mustAdmit(c, "docqa", 10), 20)
			}
		}, limit: "requests", want: Refusal{Kind: OverLimit, Wait: 30 * time.Second, Requested: 1}},
		"the quota of the day": {feature: "cv", before: func(g *rig, c Caller) {
			g.use(g.mustAdmit(c, "cv", 10), 20)
		}, limit: "cv", want: Refusal{Kind: OverLimit, Wait: 24 * time.Hour, Requested: 1}},
		"open calls": {feature: "docqa", before: func(g *rig, c Caller) {
			g.mustAdmit(c, "docqa", 10)
		}, limit: "in_flight", want: Refusal{Kind: TooManyOpen, Wait: 2 * time.Second, Requested: 1}},
		"the calls of a pass": {feature: "open", caller: func(g *rig) Caller {
			return Caller{Kind: limits.Pass, ID: "P", Tier: g.Policy.Tiers[policy.Anonymous]}
		}, before: func(g *rig, c Caller) {
			for range 2 {
				g.use(g.mustAdmit(c, "open", 10), 20)
			}
		}, want: Refusal{Kind: PassUsedUp}},
		"a client's share": {feature: "open", caller: func(g *rig) Caller { return g.visitor("N", "CLIENTAA") }, before: func(g *rig, c Caller) {
			g.use(g.mustAdmit(c, "open", 400), 3_800)
		}, want: Refusal{Kind: ChallengeDue}},
		"a pool": {feature: "docqa", before: func(g *rig, _ Caller) { g.drain("all") }, want: Refusal{Kind: CeilingReached}},
		"the fuse is open": {feature: "docqa", before: func(g *rig, _ Caller) {
			g.setFuse(fuse.Open, g.now().Add(7*time.Minute))
		}, want: Refusal{Kind: SwitchedOff, Wait: 7 * time.Minute}},
		"a block of the caller": {feature: "docqa", before: func(g *rig, c Caller) { g.block(c.Key()) }, want: Refusal{Kind: Blocked}},
		"a block of the network of a pass": {feature: "open", caller: func(g *rig) Caller {
			return Caller{Kind: limits.Pass, ID: "P", Tier: g.Policy.Tiers[policy.Anonymous], Networks: []string{"net#TODAY", "net#YESTERDAY"}}
		}, before: func(g *rig, _ Caller) { g.block("net#YESTERDAY") }, want: Refusal{Kind: Blocked}},
		"the fuse is open without an end": {feature: "docqa", before: func(g *rig, _ Caller) { g.setFuse(fuse.Open, time.Time{}) },
			want: Refusal{Kind: SwitchedOff, Wait: time.Minute}},
		"the fuse cuts off visitors": {feature: "docqa", caller: func(g *rig) Caller { return g.visitor("N", "CLIENTAA") }, before: func(g *rig, _ Caller) {
			g.setFuse(fuse.AnonymousOff, time.Time{})
		}, want: Refusal{Kind: SwitchedOff, Wait: time.Minute}},
		"the fuse asks for challenges": {feature: "docqa", caller: func(g *rig) Caller { return g.visitor("N", "CLIENTAA") }, before: func(g *rig, _ Caller) {
			g.setFuse(fuse.Challenge, time.Time{})
		}, want: Refusal{Kind: ChallengeDue}},
		"the store is down": {feature: "docqa", before: func(g *rig, _ Caller) { g.down.Store(true) }, want: Refusal{Kind: StoreDown}},
		"nobody waits": {feature: "docqa", ctx: func(ctx context.Context) context.Context {
			ctx, leave := context.WithCancel(ctx)
			leave()
			return ctx
		}, want: Refusal{Kind: CallerLeft}},
	} {
		seen[tt.want.Kind] = true
		// Known beforehand, a state refuses before anything is taken; else it is read beside
		// the taking, and what was taken goes back.
		for _, known := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", the fuse is known", false: ""}[known], func(t *testing.T) {
				t.Parallel()
				g := newRig(t)
				caller := g.user("ann")
				if tt.caller != nil {
					caller = tt.caller(g)
				}
				if tt.before != nil {
					tt.before(g, caller)
				}
				if known {
					if _, err := g.Fuse.Begin(t.Context())(); err != nil {
						t.Fatal(err)
					}
				} else {
					g.advance(10 * time.Millisecond) // not for long: limits refill
					g.Fuse = fuse.NewReader(g.db, g.table, g.now)
				}
				down := g.down.Swap(false)
				before, open := g.standing(caller)
				g.down.Store(down)
				if !known {
					g.Fuse = fuse.NewReader(g.db, g.table, g.now)
				}
				anonymous, all := g.committed("anonymous"), g.committed("all")
				ctx := t.Context()
				if tt.ctx != nil {
					ctx = tt.ctx(ctx)
				}
				sent := g.sends.Load()
				a, r := g.Admit(ctx, caller, g.call(caller, tt.feature, 0))
				check.Must(t, a == nil && r != nil, "admitted")
				check.That(t, r.Kind == tt.want.Kind && r.Limit.Name == tt.limit && (tt.want.Wait == 0 || r.Wait <= tt.want.Wait && r.Wait >= tt.want.Wait-20*time.Millisecond) && (tt.want.Requested == 0 || r.Requested == tt.want.Requested && r.Remaining == 0 && r.Affordable == 0),
					"%s %+v, want %s %+v of %q", r.Kind, r, tt.want.Kind, tt.want, tt.limit)
				blocked := r.Kind == Blocked
				check.That(t, blocked == !r.Until.IsZero() && (!blocked || r.Until.Equal(g.blockEnd())), "blocked until %s", r.Until)
				byFuse := r.Kind == SwitchedOff || r.Kind == Blocked || r.Kind == ChallengeDue && tt.feature == "docqa"
				check.That(t, !byFuse || !known || g.sends.Load() == sent, "something was taken, and the fuse was known to refuse")
				check.That(t, len(r.Left) != 0 || r.Kind != OverLimit && r.Kind != TooManyOpen, "%d limits", len(r.Left))
				g.down.Store(false)
				after, stillOpen := g.standing(caller)
				if byFuse && !known { // the attempt counts
					for _, left := range []map[string]int64{before, after} {
						delete(left, "requests")
						delete(left, "network_requests")
					}
				}
				check.That(t, maps.Equal(before, after) && open == stillOpen, "%d open and left %v, before %d and %v", stillOpen, after, open, before)
				// Less than what is refilled in a tenth of a second, as a draw may cost.
				if got := g.committed("anonymous"); got > anonymous+1e-4 {
					t.Errorf("the pool of visitors has %g out, before %g", got, anonymous)
				}
				if got := g.committed("all"); got > all+1e-4 {
					t.Errorf("the pool of all has %g out, before %g", got, all)
				}
			})
		}
	}

	g := newRig(t)
	user, visitor := g.user("ann"), g.visitor("N", "CLIENTAA")
	for _, tt := range []struct {
		caller  Caller
		feature string
		want    Kind
	}{
		{user, "nothing", NoSuchFeature}, {visitor, "cv", FeatureClosed},
	} {
		seen[tt.want] = true
		if o, r := g.Offer(tt.caller, tt.feature); o != nil || r == nil || r.Kind != tt.want {
			t.Errorf("%s: %+v, want %s", tt.feature, r, tt.want)
		}
	}
	says := func(role, text string) openai.Message { return openai.Message{Role: role, Content: text} }
	hi := []openai.Message{says("user", "Hi")}
	called := append(slices.Clone(hi), openai.Message{Role: "assistant", ToolCalls: openai.ToolCalls{{ID: "1", Name: "f", Arguments: "{}"}}},
		openai.Message{Role: "tool", ToolCallID: "1", Content: "2"})
	tools := func(names ...string) (t openai.Tooling) {
		for _, name := range names {
			t.Tools = append(t.Tools, tool(name))
		}
		return t
	}
	choose := func(mode, name string, t openai.Tooling) openai.Tooling {
		t.ToolChoice = openai.ToolChoice{Mode: mode, Name: name}
		return t
	}
	show := func(images ...openai.Image) []openai.Message {
		return append(slices.Clone(hi), openai.Message{Role: "user", Content: "What is this?", Images: images})
	}
	image := openai.Image{Part: 1, URL: "data:image/png;base64,AAAA", Type: "image/png", Width: 10, Height: 10}
	link := openai.Image{URL: "https://example.com/a.png"}
	for _, tt := range []struct {
		caller  Caller
		feature string
		prompt  Prompt
		want    Refusal
	}{
		{user, "docqa", Prompt{Messages: slices.Repeat([]openai.Message{says("user", "Hi")}, 5)}, Refusal{Kind: TooManyMessages, Requested: 5, Most: 4}},
		{user, "docqa", Prompt{Messages: []openai.Message{says("user", "Hi"), says("developer", "Obey.")}}, Refusal{Kind: SystemMessage, Message: 1}},
		{user, "docqa", Prompt{Messages: []openai.Message{says("system", "Obey.")}}, Refusal{Kind: SystemMessage}},
		{user, "docqa", Prompt{Inputs: []string{"Hi"}}, Refusal{Kind: OtherAPI}},
		{user, "vectors", Prompt{Messages: []openai.Message{says("user", "Hi")}}, Refusal{Kind: OtherAPI}},
		{user, "vectors", Prompt{Inputs: []string{"a", "b", "c", "d"}}, Refusal{Kind: TooManyTexts, Requested: 4, Most: 3}},
		{user, "vectors", Prompt{Inputs: []string{strings.Repeat("ä", 9_000), "b"}}, Refusal{Kind: TextsTooLong, Requested: 9_001, Most: 9_000}},
		{visitor, "vectors", Prompt{Inputs: []string{strings.Repeat("a", 2_001)}}, Refusal{Kind: TextsTooLong, Requested: 2_001, Most: 2_000}},
		{user, "e5", Prompt{Inputs: []string{strings.Repeat("a", 2_995), strings.Repeat("a", 2_990)}}, Refusal{Kind: TextsOfTooManyTokens, Requested: 6_001, Most: 6_000}},
		{user, "docqa", Prompt{Messages: []openai.Message{says("user", "Hi")}, Format: 22}, Refusal{Kind: FormatNotTaken}},
		{user, "open", Prompt{Messages: []openai.Message{says("user", strings.Repeat("a ", 4_501))}}, Refusal{Kind: TooLong, Requested: 9_002, Most: 9_000}},
		// A schema of 6,000 bytes, 64 for its framing, and "Hi" with its own.
		{user, "open", Prompt{Messages: []openai.Message{says("user", "Hi")}, Format: 6_000}, Refusal{Kind: TooManyTokens, Requested: 6_000 + 64 + 8, Most: 6_000}},
		{visitor, "open", Prompt{Messages: []openai.Message{says("user", "Hi")}, Format: 2_000}, Refusal{Kind: TooManyTokens, Requested: 2_000 + 64 + 3, Most: 2_000}},
		{visitor, "open", Prompt{Messages: []openai.Message{says("user", "Hi")}, Format: 1_930}, Refusal{Kind: NothingFits}},
		// Tools, where there are none, of callers who may send none, and where they are the owner's.
		{user, "open", Prompt{Messages: hi, Tooling: tools("f")}, Refusal{Kind: ToolsNotTaken, Field: "tools"}},
		{user, "open", Prompt{Messages: hi, Tooling: choose("required", "", tools())}, Refusal{Kind: ToolsNotTaken, Field: "tool_choice"}},
		{user, "open", Prompt{Messages: hi, Tooling: choose("", "f", tools())}, Refusal{Kind: ToolsNotTaken, Field: "tool_choice"}},
		{user, "open", Prompt{Messages: called}, Refusal{Kind: ToolsNotTaken, Field: "messages[1].tool_calls"}},
		{user, "open", Prompt{Messages: called[2:]}, Refusal{Kind: ToolsNotTaken, Field: "messages[0].role"}},
		{visitor, "tools", Prompt{Messages: hi, Tooling: tools("f")}, Refusal{Kind: ToolsClosed, Field: "tools"}},
		{visitor, "tools", Prompt{Messages: called}, Refusal{Kind: ToolsClosed, Field: "messages[1].tool_calls"}},
		{visitor, "tools", Prompt{Messages: hi, Tooling: choose("required", "", tools())}, Refusal{Kind: ToolsClosed, Field: "tool_choice"}},
		{visitor, "desk", Prompt{Messages: hi, Tooling: tools("look_up")}, Refusal{Kind: ToolsFixed}},
		{user, "desk", Prompt{Messages: hi, Tooling: tools("f")}, Refusal{Kind: ToolsFixed}},
		{user, "tools", Prompt{Messages: hi, Tooling: tools("a", "b", "c")}, Refusal{Kind: TooManyTools, Requested: 3, Most: 2}},
		{user, "tools", Prompt{Messages: hi, Tooling: choose("", "c", tools("a", "b"))}, Refusal{Kind: ToolNotOffered}},
		{user, "tools", Prompt{Messages: hi, Tooling: choose("required", "", tools())}, Refusal{Kind: ToolNotOffered}},
		{visitor, "desk", Prompt{Messages: hi, Tooling: choose("", "f", tools())}, Refusal{Kind: ToolNotOffered}},
		// Images likewise, and their addresses.
		{user, "open", Prompt{Messages: show(image)}, Refusal{Kind: ImagesNotTaken, Field: "messages[1].content[1].type"}},
		{user, "open", Prompt{Messages: show(link)}, Refusal{Kind: ImagesNotTaken, Field: "messages[1].content[0].type"}},
		{visitor, "links", Prompt{Messages: show(link)}, Refusal{Kind: ImagesClosed, Field: "messages[1].content[0].type"}},
		{user, "eyes", Prompt{Messages: show(image, link)}, Refusal{Kind: ImageURLNotTaken, Field: "messages[1].content[0].image_url.url"}},
		{user, "links", Prompt{Messages: show(link, image, image)}, Refusal{Kind: TooManyImages, Requested: 3, Most: 2}},
		{user, "open", Prompt{Messages: hi, Effort: "low"}, Refusal{Kind: EffortNotTaken}},
		{visitor, "open", Prompt{Messages: hi, Effort: "low"}, Refusal{Kind: EffortNotTaken}},
		{user, "desk", Prompt{Messages: hi, Effort: "high"}, Refusal{Kind: EffortNotOffered, Offered: []string{"low", "medium"}}},
	} {
		seen[tt.want.Kind] = true
		o, _ := g.Offer(tt.caller, tt.feature)
		if c, r := o.Cap(tt.prompt); c != nil || r == nil || r.Kind != tt.want.Kind || r.Requested != tt.want.Requested || r.Most != tt.want.Most || r.Message != tt.want.Message || r.Field != tt.want.Field || !slices.Equal(r.Offered, tt.want.Offered) {
			t.Errorf("%s %.100v: %+v, want %+v", tt.feature, tt.prompt, r, tt.want)
		}
	}
	for _, k := range Kinds {
		check.That(t, seen[k], "nothing here is refused as %q", k)
	}
	check.That(t, len(Kinds) == len(seen), "%d kinds, %d were seen", len(Kinds), len(seen))
}

// What refused a moment ago is asked again before anything is taken, and a call that it
// refuses no more is admitted.
func TestStaleFuse(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ann := g.user("ann")
	g.block(ann.Key())
	_, err := g.Fuse.Begin(t.Context())()
	check.OK(t, err)
	g.advance(4 * time.Second)
	sent := g.sends.Load()
	_, r := g.Admit(t.Context(), ann, g.call(ann, "docqa", 0))
	check.That(t, r != nil && r.Kind == Blocked && g.sends.Load() == sent, "%+v, %d writes", r, g.sends.Load()-sent)

	_, err = fuse.NewWriter(g.db, g.table, g.now).Unblock(t.Context(), ann.Key())
	check.OK(t, err)
	g.advance(4 * time.Second)
	g.use(g.mustAdmit(ann, "docqa", 10), 10)
}

// Of several denials the longest is named: coming back sooner would be of no use.
func TestLongestDenial(t *testing.T) {
	t.Parallel()
	o := offerOf(t, testPolicy(t), "docqa", policy.User, limits.User)
	full := bucket.Denial{Limit: bucket.Limit{Name: bucket.InFlight, Capacity: 1}, Requested: 1}
	for wait, want := range map[time.Duration]Refusal{
		time.Second: {Kind: TooManyOpen, Wait: 2 * time.Second}, // nobody knows when a call ends
		time.Minute: {Kind: OverLimit, Wait: time.Minute},
	} {
		denial := bucket.Denial{Limit: o.Limits[0].Limit, Requested: 1, RetryAfter: wait}
		for _, denials := range [][]bucket.Denial{{denial, full}, {full, denial}} {
			r := Denied(o.Limits, denials...)
			check.That(t, r.Kind == want.Kind && r.Wait == want.Wait && r.Limit.Unit == policy.Requests, "%s: %+v, want %+v", wait, r, want)
		}
	}
}

// What a denial says would fit does, and one more does not.
func TestAffordable(t *testing.T) {
	t.Parallel()
	for limit, use := range map[string]func(*rig, *Admission){
		"tokens": func(g *rig, a *Admission) { g.use(a, 48_500) },
		"spend":  func(g *rig, a *Admission) { a.Settle(g.t.Context(), answered(a, 30_300)) },
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			ann := g.user("ann")
			use(g, g.mustAdmit(ann, "long", 0))
			_, r := g.admit(ann, "long", 0)
			check.Must(t, r != nil && r.Kind == OverLimit && r.Limit.Name == limit && r.Affordable >= 1, "%+v", r)
			if _, again := g.admit(ann, "long", r.Affordable+1); again == nil || again.Affordable != r.Affordable {
				t.Errorf("%d tokens would fit, and so do more: %+v", r.Affordable, again)
			}
			g.mustAdmit(ann, "long", r.Affordable)
		})
	}
}

// What is reserved fits whoever answers: tokens by the larger count, money by the
// higher price.
func TestFallbackReservesTheDearer(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	c := g.call(g.user("ann"), "docqa", 100)
	// "You answer questions." and "What is a token bucket?" have 21 and 23 bytes;
	// exactly they are 4 and 6 tokens.
	const bytes = 21 + 23
	framing := c.Input - bytes
	check.That(t, framing >= 3 && framing <= 2*12+64, "%d tokens are counted: the fallback counts at least %d bytes", c.Input, bytes)
	small, big := c.Offer.Candidates[0].Model.Prices, c.Offer.Candidates[1].Model.Prices
	check.That(t, c.Worst.Tokens == c.Input+100 && c.Worst.Money == big.WorstCase(c.Input, 100) && c.Worst.Money > small.WorstCase(c.Input, 100),
		"worst case of %d input tokens: %+v", c.Input, c.Worst)
}
