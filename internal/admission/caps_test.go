package admission

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// The cut is never above either bound, and takes no more than it must.
func TestCutProperties(t *testing.T) {
	t.Parallel()
	p := testPolicy(t)
	alphabets := []string{
		"a", "ab ", "The quick brown fox. ", "é", "漢字かな", "😀👩\u200d👧🏽", "\u0301e", "\U0002A6A5\U00020BB7", "<|endoftext|>",
		"\x7f", "\n\t ", "0123456789", "\ufdfa", "کتاب", "a\U0010ffff\u0000", "!?.,;", "AbC", "ไทย", "\ufffd",
	}
	text := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "pieces") {
			runes := []rune(rapid.SampledFrom(alphabets).Draw(t, "alphabet"))
			if rapid.Bool().Draw(t, "repeated") {
				b.WriteString(strings.Repeat(string(runes), rapid.IntRange(0, 900).Draw(t, "times")))
			} else {
				b.WriteString(rapid.StringOfN(rapid.SampledFrom(runes), 0, 900, -1).Draw(t, "text"))
			}
		}
		return b.String()
	})
	for _, feature := range []string{"docqa", "open"} {
		for _, tokenizer := range tokens.Names() {
			t.Run(feature+"/"+tokenizer, func(t *testing.T) {
				o := *offerOf(t, p, feature, policy.Anonymous, limits.Network)
				tk, err := tokens.New(tokenizer)
				check.OK(t, err)
				model := *p.Features[feature].Model
				model.Tokenizer = tokenizer
				candidate, err := newCandidate(&model, p.Features[feature])
				check.OK(t, err)
				o.Candidates = candidates{candidate}
				base := o.Candidates.base()
				rapid.Check(t, func(t *rapid.T) {
					tier := *o.tier
					tier.MaxInputTokens = rapid.Int64Range(base+int64(tk.PerMessage())+40, 2_000).Draw(t, "tokens")
					tier.MaxInputChars = rapid.SampledFrom([]int64{0, 10, 500, 2_000}).Draw(t, "characters")
					tier.MaxMessages = rapid.Int64Range(1, 8).Draw(t, "messages")
					o := o
					o.tier = &tier
					var before []openai.Message
					for _, s := range rapid.SliceOfN(text, 1, 6).Draw(t, "texts") {
						before = append(before, openai.Message{Role: "user", Content: s})
					}
					checkCut(t, &o, before)
				})
			})
		}
	}
}

// Of a conversation that is longer than the tier allows the oldest go, which says nothing
// about who has it; and what remains begins with a question, as conversations do.
func TestLongConversation(t *testing.T) {
	t.Parallel()
	o := *offerOf(t, testPolicy(t), "open", policy.Anonymous, limits.Network)
	tier := *o.tier
	tier.MaxMessages, o.tier = 4, &tier
	said := func(n int, text string) (all []openai.Message) {
		for i := range n {
			all = append(all, openai.Message{Role: []string{"user", "assistant"}[i%2], Content: text})
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		messages []openai.Message
		kept     int
		tooMuch  bool
	}{
		{"short", said(3, "Hi."), 3, false},
		{"as long as may be, an answer first", said(5, "Hi.")[1:], 4, false},
		{"longer", said(7, "Hi."), 3, false},
		{"ends in an answer", said(6, "Hi."), 4, false},
		{"answers alone", []openai.Message{{Role: "assistant", Content: "a"}, {Role: "assistant", Content: "b"}, {Role: "assistant", Content: "c"}, {Role: "assistant", Content: "d"}, {Role: "assistant", Content: "e"}}, 1, false},
		{"too much text, too", said(3, strings.Repeat("word ", 1_000)), 1, true},
	} {
		c, refusal := o.Cap(Prompt{Messages: slices.Clone(tc.messages)})
		check.Must(t, refusal == nil, "%s: refused", tc.name)
		cut := len(c.Messages) < len(tc.messages)
		check.That(t, len(c.Messages) == tc.kept && c.TooMuch == tc.tooMuch, "%s: kept %d, too much: %t", tc.name, len(c.Messages), c.TooMuch)
		check.That(t, !cut || len(c.Messages) == 1 || c.Messages[0].Role == "user", "%s: begins with %s", tc.name, c.Messages[0].Role)
	}
}

func checkCut(t *rapid.T, o *Offer, before []openai.Message) {
	slack := int64(8)
	tk := o.Candidates[0].Tokenizer
	if !tk.Exact() {
		slack = 64
	}
	system := 0
	if o.Feature.System != "" {
		system = 1
	}
	c, refusal := o.Cap(Prompt{Messages: slices.Clone(before)})
	if refusal != nil {
		t.Fatalf("refused: %s", refusal.Kind)
	}
	kept := c.Messages[system:]
	input, chars, all := o.Candidates.base()+o.Candidates.count(kept...), int64(0), int64(0)
	for _, m := range kept {
		chars += int64(utf8.RuneCountInString(m.Content))
	}
	for _, m := range before {
		all += int64(utf8.RuneCountInString(m.Content))
	}
	check.Must(t, c.Input == input && input <= o.tier.MaxInputTokens, "%d tokens, counted as %d, of at most %d", input, c.Input, o.tier.MaxInputTokens)
	check.Must(t, o.tier.MaxInputChars <= 0 || chars <= o.tier.MaxInputChars, "%d characters of at most %d", chars, o.tier.MaxInputChars)
	check.Must(t, int64(c.Cut.Characters) == all-chars, "dropped %d, says %d", all-chars, c.Cut.Characters)
	if most := o.tier.MaxMessages; int64(len(kept)) > most {
		t.Fatalf("kept %d messages of at most %d", len(kept), most)
	} else if oldest := before[len(before)-len(kept)]; int64(len(kept)) == most && reflect.DeepEqual(kept[0], oldest) {
		slack = o.tier.MaxInputTokens // no more could be kept, whatever is in it
	}
	// The newest are whole; the oldest that is kept is a beginning.
	from := before[len(before)-len(kept):]
	check.Must(t, slices.EqualFunc(kept[1:], from[1:], same) && strings.HasPrefix(from[0].Content, kept[0].Content) && utf8.ValidString(kept[0].Content),
		"kept %.200q of %.200q", kept, before)
	if c.Cut.Characters == 0 {
		return
	}
	// As much as fits is kept: to the character where those are what binds. A cut
	// by tokens may leave some, at most what one character and the marks on it
	// count, and a message of which nothing would remain is left out.
	free := o.tier.MaxInputTokens - input - int64(tk.PerMessage())
	check.Must(t, chars == o.tier.MaxInputChars || free <= slack,
		"kept %d tokens and %d characters of at most %d and %d", input, chars, o.tier.MaxInputTokens, o.tier.MaxInputChars)
}

func same(a, b openai.Message) bool { return reflect.DeepEqual(a, b) }
