package admission

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// An admission is settled once, to the first tally, whoever comes how often.
func TestSettledOnce(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ann := g.user("ann")
	a := g.mustAdmit(ann, "cv", 100)
	if _, open := g.standing(ann); open != 1 {
		t.Errorf("%d calls open", open)
	}
	want := a.Settle(t.Context(), answered(a, 40))
	check.That(t, want.Settled && !want.Estimated && want.Caller == (Amount{Tokens: a.Call.Input + 40, Money: want.Cost, Results: 1}) && want.Cost == a.Call.Offer.Candidates[0].Model.Prices.Cost(price.Usage{Input: a.Call.Input, Output: 40}),
		"%+v", want)
	before, open := g.standing(ann)
	check.That(t, open == 0 && before["tokens"] == 50_000-a.Call.Input-40 && before["cv"] == 0 && before["requests"] == 1, "%d open, left %v", open, before)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			check.Equal(t, a.Settle(t.Context(), Tally{Model: a.Call.Offer.Candidates[0].Model, Ending: Unbilled}), want, "settled again to")
		})
	}
	all.Wait()
	if after, _ := g.standing(ann); !maps.Equal(after, before) {
		t.Errorf("left %v, before %v", after, before)
	}
	check.Equal(t, g.spent(), (ledger.Amount{Calls: 1, Cost: want.Cost}), "the ledger has")
}

// spent is what the ledger has.
func (g *rig) spent() ledger.Amount {
	g.t.Helper()
	sum, err := g.Ledger.Sum(g.t.Context(), g.now().Add(-time.Hour), g.now().Add(time.Hour))
	check.OK(g.t, err)
	return sum.Total
}

// A settle that does not reach the store says so, and its hold stays, to tell of the call.
func TestSettleWithoutAStore(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	ann := g.user("ann")
	a := g.mustAdmit(ann, "long", 100)
	g.down.Store(true)
	b := a.Settle(t.Context(), answered(a, 40))
	check.That(t, !b.Settled && b.Caller.Tokens == a.Call.Input+40, "%+v", b)
	g.down.Store(false)
	if _, open := g.standing(ann); open != 1 {
		t.Errorf("%d calls open", open)
	}
}

// Who dies with a call open leaves a hold that tells what it may have cost.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := g.mustAdmit(g.user("ann"), "cv", 100)
	state, err := g.Buckets.Peek(t.Context(), "user#ann")
	check.Must(t, err == nil && len(state.Holds) == 1, "%+v, %v", state, err)
	h := state.Holds[0]
	end := h.Expiry.Sub(g.now())
	check.That(t, end <= time.Minute+SettleMargin+bucket.HoldGrace && end >= 50*time.Second, "the hold lasts %s", end)
	for range 2 { // it may be told twice
		check.OK(t, g.Abandoned(t.Context(), bucket.Abandoned{Key: "user#ann", ID: h.ID, Start: h.Start, Expiry: h.Expiry, Note: h.Note}))
	}
	if got, worst := g.spent(), a.Call.Worst.Money; got != (ledger.Amount{Calls: 1, Cost: worst, Abandoned: 1, AbandonedCost: worst, Estimated: 1}) {
		t.Errorf("the ledger has %+v, the worst case was %s", got, worst)
	}
	if err := g.Abandoned(t.Context(), bucket.Abandoned{Key: "user#ann", Note: []byte("?")}); err == nil {
		t.Error("a note that nobody can read is no error: its hold would be swept, and its call forgotten")
	}
}

// An answer that goes on beyond its cap is ended there; an honest one loses nothing.
func TestMeter(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := g.mustAdmit(g.user("ann"), "long", 100)
	candidate := a.Call.Offer.Candidates[0]
	for _, tt := range []struct {
		words   int // one token each
		overran bool
		shown   int
	}{{99, false, 99}, {100, false, 100}, {100 + 12 + 16, false, 128}, {100 + 12 + 17, true, 100}} {
		m := a.Meter(t.Context(), candidate)
		shown := 0
		for range tt.words {
			p := provider.Part{Content: " a"}
			m.Take(&p)
			shown += len(p.Content) / 2
		}
		m.Count()
		check.That(t, m.Overran == tt.overran && m.Finished == tt.overran && m.Text && m.Made == int64(tt.words), "%d tokens: %+v", tt.words, m.Tally)
		want := int64(tt.words)
		check.That(t, tt.overran || m.Output == want, "%d tokens: the caller is held to %d", tt.words, m.Output)
		// What was shown before it was certain stays.
		check.That(t, !tt.overran || shown == tt.words-1 && m.Output == int64(shown) && m.FinishReason == "length",
			"%d tokens: %d shown, held to %d, %q", tt.words, shown, m.Output, m.FinishReason)
	}

	m := a.Meter(t.Context(), candidate)
	one := provider.Part{Content: " a", FinishReason: "stop", Usage: &price.Usage{Input: 999_999, Output: 2}}
	m.Take(&one)
	check.That(t, m.Usage == nil && m.Finished, "a report above the model's context is believed: %+v", m.Tally)
	m.Take(&provider.Part{Usage: &price.Usage{Input: 999_999, Output: 1}})
	check.That(t, m.Usage != nil, "a report of all that the context holds is not believed")
}

// Calls of tools are part of the answer: they are something to show, count, and end at the
// output cap, which leaves of a part what is within it.
func TestMeterOfCalls(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	a := g.mustAdmit(g.user("ann"), "long", 100)
	candidate := a.Call.Offer.Candidates[0]
	type calls = []openai.ToolCall
	word := func(index, n int) openai.ToolCall {
		return openai.ToolCall{Index: index, Arguments: strings.Repeat(" a", n)}
	} // within a string: a token each
	open := func(index int) openai.ToolCall {
		return openai.ToolCall{Index: index, ID: "1", Name: "f", Arguments: `{"q":"`}
	}
	first := int64(candidate.Tokenizer.Count(`f{"q":"`)) // one less after " a": " af" is a token
	for name, tt := range map[string]struct {
		parts   []provider.Part
		made    int64
		overran bool
		last    provider.Part // what is left of the last
	}{
		"a call":                {[]provider.Part{{ToolCalls: calls{{ID: "1", Name: "f"}}}}, 1, false, provider.Part{ToolCalls: calls{{ID: "1", Name: "f"}}}},
		"arguments":             {[]provider.Part{{ToolCalls: calls{open(0)}}, {ToolCalls: calls{word(0, 90)}}}, first + 90, false, provider.Part{ToolCalls: calls{word(0, 90)}}},
		"arguments in two":      {[]provider.Part{{ToolCalls: calls{open(0)}}, {ToolCalls: calls{open(1)}}, {ToolCalls: calls{word(1, 60), word(0, 60)}}}, 2*first + 120, false, provider.Part{ToolCalls: calls{word(1, 60), word(0, 60)}}},
		"beyond the cap":        {[]provider.Part{{ToolCalls: calls{open(0)}}, {ToolCalls: calls{word(0, 300)}}}, first + 300, true, provider.Part{ToolCalls: calls{word(0, 100-int(first))}}},
		"text, then a call":     {[]provider.Part{{Content: strings.Repeat(" a", 90), ToolCalls: calls{open(0), word(0, 300)}}}, 90 + first - 1 + 300, true, provider.Part{Content: strings.Repeat(" a", 90), ToolCalls: calls{open(0), word(0, 11-int(first))}}},
		"a call that is beyond": {[]provider.Part{{Content: strings.Repeat(" a", 300), ToolCalls: calls{open(0)}}}, 300 + first - 1, true, provider.Part{Content: strings.Repeat(" a", 100), ToolCalls: calls{}}},
		// What a server wrote anew, with blanks and escapes, is not longer than what a model
		// had to write: 66 characters of a token each.
		"written anew": {[]provider.Part{{ToolCalls: calls{open(0)}}, {ToolCalls: calls{{Arguments: strings.Repeat(`\u4e2d\u56fd`, 33) + "\"" + strings.Repeat(" ", 400) + "}"}}}}, first + 33 + 1, false,
			provider.Part{ToolCalls: calls{{Arguments: strings.Repeat(`\u4e2d\u56fd`, 33) + "\"" + strings.Repeat(" ", 400) + "}"}}}},
	} {
		m := a.Meter(t.Context(), candidate)
		var last provider.Part
		for _, last = range tt.parts {
			last.ToolCalls = slices.Clone(last.ToolCalls)
			m.Take(&last)
		}
		m.Count()
		check.That(t, m.Text && m.Made == tt.made && m.Overran == tt.overran && m.Finished == tt.overran && (m.FinishReason == "length") == tt.overran, "%s: %+v, want %d tokens", name, m.Tally, tt.made)
		check.That(t, tt.overran || m.Output == m.Made, "%s: held to %d of %d tokens", name, m.Output, m.Made)
		check.That(t, !tt.overran || m.Output <= 100 && m.Output >= 95, "%s: held to %d tokens of the cap of 100", name, m.Output)
		check.Diff(t, cmp.Diff(tt.last, last), "%s: of the last part is left", name)
	}
	m := a.Meter(t.Context(), candidate)
	m.Take(&provider.Part{ToolCalls: calls{{ID: "1"}}})
	check.That(t, !m.Text, "a call that has neither a name nor arguments is something to show")

	// A name that the request gave was not written by the model, which is billed for
	// {"name":"Jason","age":25} alone with 9 tokens.
	a.Call.ToolChoice.Name = "UserExtract"
	m = a.Meter(t.Context(), candidate)
	m.Take(&provider.Part{ToolCalls: calls{{ID: "1", Name: "UserExtract", Arguments: `{"name":"Jason","age":25}`}}})
	m.Count()
	check.That(t, m.Made == 9 && m.Text, "of a call that was asked for by name: %+v", m.Tally)
}

// What a model at least wrote is the same however its server writes it, and however that is
// cut in pieces.
func TestWritten(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a": 1, "b": [true, "x y"]}`:                 `{"a":1,"b":[true,"x y"]}`,
		"{\n  \"a\":\t\"\\n\\\"  \\\\\"\r\n}":          `{"a":"\n\"  \\"}`,
		`{"a":"\u4e2d\ud83d\ude00\u003c\uD83D\u0041"}`: "{\"a\":\"中😀<\ufffd\"}",
		`"\uzzzz" "\ud83d"`:                            "\"\ufffd\"\"\"",
		`not JSON "at all`:                             `notJSON"at all`,
		`{"a":"中"}`:                                    `{"a":"中"}`,
	} {
		for size := 1; size <= len(in); size++ {
			var w written
			got := ""
			for piece := range slices.Chunk([]byte(in), size) {
				before, whole := w, string(piece)
				added := w.add(whole)
				got += added
				short := before
				check.That(t, len(added) == 0 || len(short.add(before.fits(whole, len(added)-1))) < len(added), "%q: more than fits", in)
			}
			check.Equal(t, got, want, "%q, %d bytes at a time", in, size)
		}
	}
}
