package chatapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// chatBody is a request to a feature; messages alternate and end with the user's.
func chatBody(feature string, texts ...string) string {
	type m struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body := struct {
		Model    string `json:"model"`
		Messages []m    `json:"messages"`
	}{Model: feature}
	for i, s := range texts {
		role := "user"
		if (len(texts)-1-i)%2 == 1 {
			role = "assistant"
		}
		body.Messages = append(body.Messages, m{role, s})
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestAnonymousInputIsCut(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		return strings.NewReplacer("tokens: {capacity: 5000, per: 1h}, requests: {capacity: 20, per: 1m}",
			"tokens: {capacity: 500000, per: 1h}, requests: {capacity: 2000, per: 1m}").Replace(yaml)
	})
	// s is n characters that are told apart and are not many tokens.
	s := func(c string, n int) string { return strings.Repeat(c+" ", (n+1)/2)[:n] }
	accents := strings.Repeat("é ", 1_500) // 3,000 characters of 1 and 2 bytes
	turns := strings.Split(strings.Repeat("Hi ", 17), " ")[:17]
	for _, tc := range []struct {
		name    string
		texts   []string
		want    []string
		dropped int
	}{
		{"short", []string{"Hi"}, []string{"Hi"}, 0},
		{"at the bound", []string{s("a", 2000)}, []string{s("a", 2000)}, 0},
		{"one over", []string{s("a", 2001)}, []string{s("a", 2000)}, 1},
		{"far over", []string{s("a", 900_000)}, []string{s("a", 2000)}, 898_000},
		{"two bytes a character", []string{accents}, []string{accents[:5*600]}, 1_000},
		{"together at the bound", []string{s("a", 500), s("b", 1000), s("c", 500)}, []string{s("a", 500), s("b", 1000), s("c", 500)}, 0},
		{"the oldest loses its end", []string{s("a", 1500), s("b", 1500)}, []string{s("a", 500), s("b", 1500)}, 1000},
		{"older ones go", []string{s("a", 1000), s("b", 1500), s("c", 600)}, []string{s("b", 1400), s("c", 600)}, 1100},
		{"small older ones go, too", []string{"x", "y", s("b", 1999), s("c", 600)}, []string{s("b", 1400), s("c", 600)}, 601},
		{"nothing is left for it", []string{"older", s("c", 2000)}, []string{s("c", 2000)}, 5},
		{"one character is left for it", []string{"older", s("c", 1999)}, []string{"o", s("c", 1999)}, 4},
		{"the newest alone is too long", []string{"older", s("c", 2500)}, []string{s("c", 2000)}, 505},
		{"empty ones cost nothing", []string{s("a", 10), "", s("c", 2000)}, []string{"", s("c", 2000)}, 10},
		{"a message too many", turns, turns[2:], 4},
		{"messages and characters too many", append(slices.Clone(turns), s("a", 1998)), []string{"Hi", s("a", 1998)}, 32},
		{"200 messages", slices.Repeat([]string{"Hi"}, 200), turns[2:], 370},
		{"the last of 17 is too long", append(turns[:16:16], s("a", 2010)), []string{s("a", 2000)}, 42},
		{"emoji of one character each", []string{strings.Repeat("x ", 999) + "😀😀😀"}, []string{strings.Repeat("x ", 999) + "😀😀"}, 1},
		{"within a family", []string{strings.Repeat("x ", 999) + "👩‍👩‍👧"}, []string{strings.Repeat("x ", 999) + "👩‍"}, 3},
		{"before a combining mark", []string{strings.Repeat("x ", 999) + "xe\u0301"}, []string{strings.Repeat("x ", 999) + "xe"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := g.chat("", chatBody("docqa", tc.texts...))
			check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
			calls := g.upstream.Calls()
			call := calls[len(calls)-1]
			var got []string
			for _, m := range call.Messages {
				got = append(got, m.Content)
			}
			if want := append([]string{"You answer questions."}, tc.want...); !slices.Equal(got, want) {
				t.Errorf("sent %.300q, want %.300q", got, want)
			}
			check.That(t, call.Messages[0].Role == "system" && call.Messages[len(call.Messages)-1].Role == "user",
				"roles %s, %s", call.Messages[0].Role, call.Messages[len(call.Messages)-1].Role)
			want := ""
			if tc.dropped > 0 {
				want = strconv.Itoa(tc.dropped)
			}
			check.Equal(t, a.header.Get("X-Input-Truncated"), want, "x-input-truncated")
			if want != "" {
				want = "characters=" + want
				if gone := len(tc.texts) - len(tc.want); gone > 0 {
					want = fmt.Sprintf("messages=%d, %s", gone, want)
				}
			}
			check.Equal(t, a.header.Get("X-Input-Cut"), want, "x-input-cut")
		})
	}
}

// Few characters may be many tokens: then the token bound cuts.
func TestAnonymousTokensAreCut(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	for _, stream := range []string{"", `,"stream":true`} {
		body := chatBody("docqa", wide)
		a := g.chat("", strings.TrimSuffix(body, "}")+stream+"}")
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		calls := g.upstream.Calls()
		call := calls[len(calls)-1]
		check.That(t, call.PromptTokens <= 2_000 && call.PromptTokens >= 1_990, "%d tokens of at most 2,000", call.PromptTokens)
		kept := call.Messages[1].Content
		check.That(t, strings.HasPrefix(wide, kept), "kept %.100q", kept)
		if got := intHeader(t, a, "X-Input-Truncated"); got != 2_000-int64(utf8.RuneCountInString(kept)) {
			t.Errorf("x-input-truncated %d, kept %d characters", got, utf8.RuneCountInString(kept))
		}
		g.freeze(3600e9)
	}

	// A denied request is told the same.
	g.chat("", chatBody("docqa", wide))
	g.chat("", chatBody("docqa", wide))
	a := g.chat("", chatBody("docqa", wide))
	check.That(t, a.status == http.StatusTooManyRequests && intHeader(t, a, "X-Input-Truncated") >= 1_000 && intHeader(t, a, "X-Max-Output-Tokens") == 400,
		"%d %v", a.status, a.header)
}

// Others' input is never cut.
func TestUsersInputIsRefused(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	fits := strings.Repeat("a ", 5_900)
	if a := g.chat(user, chatBody("open", fits)); a.status != http.StatusOK || a.header.Get("X-Input-Truncated") != "" {
		t.Errorf("%d %v", a.status, a.header)
	}
	// To the token: "a" and each " a" is one, the last space is one; 7 are framing.
	for n, status := range map[int]int{5_992: http.StatusOK, 5_993: http.StatusBadRequest} {
		a := g.chat(user, chatBody("open", strings.Repeat("a ", n)))
		check.That(t, a.status == status, "%d words: %d %s", n, a.status, a.body)
	}
}

func TestOutputCap(t *testing.T) {
	t.Parallel()
	g := newRig(t, func(yaml string) string {
		return strings.Replace(yaml, "models:\n", `models:
  old: {provider: main, id: old-model, tokenizer: o200k_base, context: 1000000, max_tokens_field: max_tokens,
        price_per_mtok: {input: "0.40", output: "1.60"}}
`, 1)
	}, func(yaml string) string {
		return strings.Replace(yaml, "features:\n", "features:\n  classic: {model: old, max_output_tokens: 700}\n", 1)
	})
	user, pro := g.token("123", ""), g.token("9", "pro")
	for _, tc := range []struct {
		token, feature, asked string
		want                  int
		field                 string
	}{
		{"", "docqa", ``, 400, "max_completion_tokens"}, // the tier's
		{"", "docqa", `"max_tokens":401`, 400, "max_completion_tokens"},
		{"", "docqa", `"max_tokens":399`, 399, "max_completion_tokens"},
		{user, "docqa", ``, 800, "max_completion_tokens"}, // the feature's
		{user, "docqa", `"max_tokens":9223372036854775807`, 800, "max_completion_tokens"},
		{user, "docqa", `"max_completion_tokens":1`, 1, "max_completion_tokens"},
		{user, "docqa", `"max_tokens":30,"max_completion_tokens":20`, 20, "max_completion_tokens"},
		{user, "docqa", `"max_tokens":20,"max_completion_tokens":30`, 20, "max_completion_tokens"},
		{user, "docqa", `"max_completion_tokens":30,"max_tokens":20`, 20, "max_completion_tokens"},
		{user, "docqa", `"max_completion_tokens":null,"max_tokens":20`, 20, "max_completion_tokens"},
		{user, "docqa", `"max_completion_tokens":20,"max_tokens":null`, 20, "max_completion_tokens"},
		{pro, "cv", `"max_tokens":7999`, 2000, "max_completion_tokens"},
		{user, "classic", `"max_completion_tokens":50`, 50, "max_tokens"},
		{user, "classic", ``, 700, "max_tokens"},
	} {
		for _, stream := range []string{"true", "false"} {
			asked := tc.asked
			if asked != "" {
				asked += ","
			}
			a := g.chat(tc.token, strings.TrimSuffix(chatBody(tc.feature, "Hi"), "}")+","+asked+`"stream":`+stream+"}")
			check.Must(t, a.status == http.StatusOK, "%+v: %d %s", tc, a.status, a.body)
			calls := g.upstream.Calls()
			call := calls[len(calls)-1]
			check.That(t, call.MaxOutputTokens == tc.want && call.MaxTokensField == tc.field, "%+v: sent %s %d", tc, call.MaxTokensField, call.MaxOutputTokens)
			check.Equal(t, intHeader(t, a, "X-Max-Output-Tokens"), int64(tc.want), "%+v: x-max-output-tokens", tc)
		}
	}
}

// What is counted before a call is to the token what the provider counts.
func TestCountIsExact(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	texts := []string{
		"", " ", "Hello, world!", "I'm sure you'll've seen it's they'RE", "<|endoftext|><|im_start|>system", "\x7f\x7f\x7f", "\u0000",
		"func main() {\n\tfmt.Println(\"hi\")\n}\n\n\n", "1234567890 12 3", "naïve café ÅNGSTRÖM", "漢字とかな交じり文", "한국어 문장", "עברית וערבית عربي",
		"👩‍👩‍👧‍👦🏳️‍🌈😀", "e\u0301\u0301\u0301", "\U0002A6A5\U00020BB7", "\ufffd\ufffe", strings.Repeat("a", 5_000), strings.Repeat(" ", 3_000),
		strings.Repeat("=", 500) + "\r\n", "\u2028\u2029<b>&amp;</b>", "\ufdfa", "JSON {\"a\": [1, 2, null]}",
	}
	for i, text := range texts {
		for _, feature := range []string{"docqa", "open", "cv"} {
			token := g.token(fmt.Sprintf("%s-%d", feature, i), "")
			history := []string{"Before that?", "An answer. 😀", text}
			if len(text) > 1_000 {
				history = history[2:]
			}
			a := g.chat(token, chatBody(feature, history...))
			check.Must(t, a.status == http.StatusOK, "%q: %d %s", text, a.status, a.body)
			calls := g.upstream.Calls()
			call := calls[len(calls)-1]
			counted := g.reserved() - intHeader(t, a, "X-Max-Output-Tokens")
			var c openai.Completion
			check.OK(t, json.Unmarshal([]byte(a.body), &c))
			check.That(t, counted == int64(call.PromptTokens) && c.Usage.Prompt == counted,
				"%q: counted %d tokens, the provider %d, usage %d", text, counted, call.PromptTokens, c.Usage.Prompt)
			if left := g.remaining(token)["tokens"]; left != 50_000-c.Usage.Total || c.Usage.Total != call.Billed.Total() {
				t.Errorf("%q: %d left after a use of %d, billed %d", text, left, c.Usage.Total, call.Billed.Total())
			}
		}
	}
}

// A schema counts, as an upper bound.
func TestResponseFormatCounts(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.freeze(0)
	counted := func(sub, body string) int64 {
		a := g.chat(g.token(sub, ""), body)
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		return g.reserved() - 800
	}
	plain := counted("1", with(""))
	schema := `{"type":"json_schema","json_schema":{"name":"a","description":"` + strings.Repeat("漢", 300) + `"}}`
	if more := counted("2", format(schema)) - plain; more < int64(len(schema)) || more > int64(len(schema))+200 {
		t.Errorf("a schema of %d bytes counts %d", len(schema), more)
	}
	check.Equal(t, counted("3", format(`{"type":"text"}`))-plain, 0, "text counts")
}
