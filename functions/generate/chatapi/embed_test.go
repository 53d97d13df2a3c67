package chatapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// vectors gives the policy a feature that makes embeddings.
func vectors(yaml string) string {
	return strings.NewReplacer(
		"models:\n", "models:\n  vectors: {kind: embedding, provider: main, id: text-embedding-3-small, tokenizer: cl100k_base, context: 100, price_per_mtok: {input: \"0.02\"}}\n",
		"features:\n", "features:\n  search: {model: vectors, max_inputs: 4, quota: {capacity: 3, per: 24h}}\n",
	).Replace(yaml)
}

const embedPath = "/v1/embeddings"

func (g *rig) embed(token, body string) answer {
	g.t.Helper()
	return g.do(g.request(http.MethodPost, embedPath, token, body))
}

func embedding(extra string, texts ...string) string {
	list, _ := json.Marshal(texts)
	return `{"model":"search","input":` + string(list) + extra + `}`
}

// embedded are the vectors and the tokens of an answer.
func (g *rig) embedded(a answer) (list [][]float32, tokens int64) {
	g.t.Helper()
	var got struct {
		Object, Model string
		Data          []struct {
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int64 `json:"prompt_tokens"`
			Total  int64 `json:"total_tokens"`
		}
	}
	err := json.Unmarshal([]byte(a.body), &got)
	check.Must(g.t, err == nil && a.status == http.StatusOK && got.Object == "list" && got.Model == "search" && got.Usage.Prompt == got.Usage.Total, "%v, %d %.200s", err, a.status, a.body)
	check.Equal(g.t, a.header.Get("Content-Type"), "application/json", "Content-Type")
	for i, item := range got.Data {
		v, ok := openai.ReadVector(item.Embedding)
		check.That(g.t, ok && item.Index == i, "vector %d: %.100s", i, item.Embedding)
		list = append(list, v)
	}
	return list, got.Usage.Total
}

// wantEmbedded asserts what calls to search, at a clock that stands still, have taken of
// the limits of user#123, and the spend event of the last; outcome "" is none.
func (g *rig) wantEmbedded(token string, calls, tokens, quota int64, cost price.Pico, outcome ledger.Outcome, estimated bool) {
	g.t.Helper()
	left := g.remaining(token)
	for limit, remain := range map[string]int64{"requests": 60 - calls, "tokens": 50_000 - tokens, "spend": (2*price.Dollar - cost).MicroDollars() - oneIfPart(cost), "search": 3 - quota} {
		check.Equal(g.t, left[limit], remain, "%s: remain", limit)
	}
	check.Equal(g.t, g.open("user#123"), 0, "calls are still open")
	events := g.spendEvents()
	if outcome == "" {
		check.Equal(g.t, len(events), 0, "spend events")
		return
	}
	e := events[len(events)-1]
	check.That(g.t, e.Feature == "search" && e.Model == "vectors" && e.Outcome == outcome && e.Estimated == estimated && e.Output == 0, "spend event %+v", e)
}

// oneIfPart is 1 if money has a part of a micro-dollar: what is left is shown rounded down.
func oneIfPart(p price.Pico) int64 {
	if p%price.MicroDollar > 0 {
		return 1
	}
	return 0
}

// A call takes what its texts are worth, and gives their vectors in the encoding that was
// asked for.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	g := newRig(t, vectors)
	g.freeze(0)
	token := g.token("123", "")
	texts := []string{"A token bucket holds tokens.", "Fuses blow.", "Fuses blow."}
	a := g.embed(token, embedding(`,"encoding_format":"base64","user":"u"`, texts...))
	coded, tokens := g.embedded(a)
	check.That(t, strings.Contains(a.body, `"embedding":"`) && len(coded) == 3 && cmp.Equal(coded[1], coded[2]) && !cmp.Equal(coded[0], coded[1]), "%.200s", a.body)
	check.Equal(t, g.reserved(), tokens, "the exact count is reserved")
	check.Equal(t, a.header.Get("X-Max-Output-Tokens")+a.header.Get("X-Input-Truncated"), "", "headers of answers with text")
	check.Equal(t, a.header.Get("X-Ratelimit-Remaining-Tokens"), fmt.Sprint(50_000-tokens), "tokens that are left")
	cost := 20_000 * price.Pico(tokens)
	g.wantEmbedded(token, 1, tokens, 1, cost, ledger.Completed, false)

	a = g.embed(token, embedding("", texts...))
	plain, _ := g.embedded(a)
	check.That(t, strings.Contains(a.body, `"embedding":[`), "%.200s", a.body)
	check.Diff(t, cmp.Diff(coded, plain), "vectors by encoding")
	one, few := g.embedded(g.embed(token, `{"model":"search","input":"Fuses blow.","dimensions":8,"encoding_format":"float"}`))
	check.That(t, len(one) == 1 && len(one[0]) == 8, "%v", one)
	g.wantEmbedded(token, 3, 2*tokens+few, 3, 2*cost+20_000*price.Pico(few), ledger.Completed, false)
	sent := strings.Split(strings.TrimSpace(g.sent.String()), "\n")
	check.Equal(t, sent[2], `{"model":"text-embedding-3-small","input":["Fuses blow."],"encoding_format":"float","dimensions":8}`, "request")

	// The quota is used up, and the sentence says so.
	e := g.wireError(g.embed(token, embedding("", "a")))
	check.That(t, e.Code == string(openai.InsufficientQuota) && strings.HasPrefix(e.Message, "Your quota for search is used up: 3 in 1 day."), "%+v", e)
	line := string(g.logged("request")[0])
	check.That(t, strings.Contains(line, `"path":"/v1/embeddings"`) && strings.Contains(line, `"gen_ai.operation.name":"embeddings"`) && !strings.Contains(line, "max_tokens") && !strings.Contains(g.log.String(), "Fuses"), "%s", line)

	// GET /v1/models shows it, by its own bounds.
	a = g.do(g.request(http.MethodGet, "/v1/models/search", token, ""))
	check.That(t, strings.Contains(a.body, `"max_input_chars":null,"max_inputs":4}`), "%s", a.body)
}

// What is wrong is told by the field, before anything is counted.
func TestBadEmbeddings(t *testing.T) {
	t.Parallel()
	g := newRig(t, vectors)
	user := g.token("123", "")
	for _, tt := range []struct {
		name, body string
		code       openai.Code
		param      string
		says       string
	}{
		{"no object", `[]`, openai.InvalidJSON, "", ""},
		{"trailing garbage", embedding("", "a") + "x", openai.InvalidJSON, "", ""},
		{"twice", `{"model":"search","input":"a","input":"b"}`, openai.InvalidJSON, "input", ""},
		{"case", `{"model":"search","Input":"a"}`, openai.UnsupportedParameter, "Input", "it is written input"},
		{"unknown", embedding(`,"input_type":"query"`, "a"), openai.UnsupportedParameter, "input_type", ""},
		{"no model", `{"input":"a"}`, openai.InvalidValue, "model", ""},
		{"unknown model", `{"model":"text-embedding-3-small","input":"a"}`, openai.ModelNotFound, "model", "/v1/models"},
		{"no input", `{"model":"search"}`, openai.InvalidValue, "input", "missing"},
		{"input null", `{"model":"search","input":null}`, openai.InvalidValue, "input", "missing"},
		{"empty text", `{"model":"search","input":""}`, openai.InvalidValue, "input", "must not be empty"},
		{"empty list", `{"model":"search","input":[]}`, openai.InvalidValue, "input", "1 to 2048 texts"},
		{"an empty text among others", embedding("", "a", ""), openai.InvalidValue, "input[1]", "must not be empty"},
		{"number", `{"model":"search","input":1}`, openai.InvalidValue, "input", ""},
		{"object", `{"model":"search","input":{"text":"a"}}`, openai.InvalidValue, "input", ""},
		{"tokens", `{"model":"search","input":[1212,318]}`, openai.InvalidValue, "input", "lists of tokens are not taken"},
		{"lists of tokens", `{"model":"search","input":[[1212,318],[1]]}`, openai.InvalidValue, "input", "lists of tokens are not taken"},
		{"tokens after text", `{"model":"search","input":["a",[1]]}`, openai.InvalidValue, "input", "lists of tokens are not taken"},
		{"null among texts", `{"model":"search","input":["a",null]}`, openai.InvalidValue, "input[1]", "must be a string"},
		{"an image among texts", `{"model":"search","input":[{"type":"image_url"}]}`, openai.InvalidValue, "input[0]", "must be a string"},
		{"2,049 texts", `{"model":"search","input":["a"` + strings.Repeat(`,"a"`, 2048) + `]}`, openai.InvalidValue, "input", "1 to 2048 texts"},
		{"more texts than the feature takes", embedding("", "a", "b", "c", "d", "e"), openai.InputTooLong, "input", "There are 5 texts; at most 4 are allowed."},
		{"too many tokens", embedding("", strings.Repeat(" fuse", 3000), strings.Repeat(" fuse", 3001)), openai.InputTooLong, "input", "The texts have 6001 tokens together; at most 6000 are allowed."},
		{"encoding_format", embedding(`,"encoding_format":"int8"`, "a"), openai.InvalidValue, "encoding_format", "float or base64"},
		{"encoding_format as a list", embedding(`,"encoding_format":["float"]`, "a"), openai.InvalidValue, "encoding_format", ""},
		{"dimensions 0", embedding(`,"dimensions":0`, "a"), openai.InvalidValue, "dimensions", "at least 1"},
		{"dimensions 1.5", embedding(`,"dimensions":1.5`, "a"), openai.InvalidValue, "dimensions", ""},
		{"many dimensions", embedding(`,"dimensions":16385`, "a"), openai.InvalidValue, "dimensions", "at most 16384"},
		{"user as a number", embedding(`,"user":1`, "a"), openai.InvalidValue, "user", ""},
		{"a feature of conversations", `{"model":"open","input":"a"}`, openai.InvalidValue, "model", "open answers with text: ask it at https://example.com/v1/chat/completions."},
		{"messages", `{"model":"search","messages":[` + hello + `]}`, openai.UnsupportedParameter, "messages", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := g.do(g.request(http.MethodPost, "https://example.com"+embedPath, user, tt.body))
			g.refused(t, a, tt.code, tt.param)
			check.That(t, strings.Contains(g.wireError(a).Message, tt.says), "%s", a.body)
		})
	}
	t.Run("a conversation with a feature of embeddings", func(t *testing.T) {
		a := g.do(g.request(http.MethodPost, "https://example.com/v1/chat/completions", user, `{"model":"search","messages":[`+hello+`]}`))
		g.refused(t, a, openai.InvalidValue, "model")
		check.That(t, strings.Contains(a.body, "search makes embeddings: ask it at https://example.com/v1/embeddings."), "%s", a.body)
	})
	t.Run("long texts of a visitor", func(t *testing.T) {
		a := g.embed("", embedding("", strings.Repeat("ä", 1999), "bc"))
		g.refused(t, a, openai.InputTooLong, "input")
		check.That(t, strings.Contains(a.body, "The texts have 2001 characters together; at most 2000 are allowed. Nothing is cut off them."), "%s", a.body)
	})
	g.untouched(t)
}

// However a call ends, what it takes follows the same table as that of a conversation.
func TestSettleEmbeddings(t *testing.T) {
	t.Parallel()
	const (
		nothing = iota
		billed
		counted
	)
	for _, tt := range []struct {
		mark      string
		code      openai.Code
		status    int // the provider's, as the caller is told it
		tokens    int
		quota     int64
		money     int
		outcome   ledger.Outcome
		estimated bool
	}{
		{"", "", 0, billed, 1, billed, ledger.Completed, false},
		{"[[usage:70]]", "", 0, billed, 1, billed, ledger.Completed, false},
		{"[[usage:201]]", "", 0, counted, 1, counted, ledger.Completed, true}, // more than the contexts of two texts hold
		{"[[fail:nousage]]", "", 0, counted, 1, counted, ledger.Completed, true},
		{"[[fail:500]]", openai.ProviderError, 500, nothing, 0, nothing, "", false},
		{"[[fail:429]]", openai.ProviderError, 429, nothing, 0, nothing, "", false},
		{"[[fail:cut]]", openai.ProviderError, 200, nothing, 0, counted, ledger.Failed, true},
		{"[[fail:empty]]", openai.ProviderError, 200, nothing, 0, counted, ledger.Failed, true},
		{"[[fail:timeout]]", openai.ProviderTimeout, 0, nothing, 0, counted, ledger.Failed, true},
	} {
		t.Run(tt.mark, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, vectors, func(yaml string) string {
				if tt.code == openai.ProviderTimeout {
					yaml = strings.ReplaceAll(yaml, "timeout: 20s", "timeout: 1s")
				}
				return yaml
			})
			g.freeze(0)
			token := g.token("123", "")
			a := g.embed(token, embedding("", "I am a welder.", tt.mark+" Me too."))
			g.wantAnswer(a, false, tt.code, tt.status)
			calls := g.upstream.Calls()
			check.Must(t, len(calls) == 1, "%d calls upstream, want 1", len(calls))
			amount := map[int]int64{billed: calls[0].Billed.Input, counted: g.reserved()}
			if tt.mark == "[[usage:70]]" {
				amount[billed] = 70 // above what was reserved: debt
			}
			check.That(t, tt.tokens == nothing || amount[tt.tokens] > 0, "the row tests nothing: %v", amount)
			g.wantEmbedded(token, 1, amount[tt.tokens], tt.quota, 20_000*price.Pico(amount[tt.money]), tt.outcome, tt.estimated)
		})
	}
}

// Answers that are wrong in the middle, and with a report.
func TestSettleStrangeVectors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer string
		tokens int64 // reported; 0: nothing was
	}{
		"one too few": {`{"data":[{"embedding":[1]}],"usage":{"prompt_tokens":40}}`, 40},
		"no vectors":  {`{"data":[{"embedding":[]},{"embedding":[]}]}`, 0},
		"an error":    {`{"error":{"code":"overloaded"},"usage":{"total_tokens":40}}`, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := setup{model: modelOf(http.StatusOK, "", tt.answer, "")}.newRig(t, vectors)
			g.freeze(0)
			token := g.token("123", "")
			g.wantAnswer(g.embed(token, embedding("", "a", "b")), false, openai.ProviderError, http.StatusOK)
			cost := 20_000 * price.Pico(max(tt.tokens, 2))
			g.wantEmbedded(token, 1, tt.tokens, 0, cost, ledger.Failed, tt.tokens == 0)
		})
	}
}

// What the provider finds wrong with the texts is told to the caller, by the field.
func TestBlamedEmbeddings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says, asks  string
		code, param string // "": a 502
		sentence    string
	}{
		{`"param":null,"code":"context_length_exceeded"`, "", "context_length_exceeded", "input", "A text, or all of them together, is too long"},
		{`"param":"input","type":"max_tokens_per_request"`, "", "context_length_exceeded", "input", "Shorter or fewer ones may fit."},
		{`"param":"input","code":"content_filter"`, "", "content_filter", "input", "The content filter"},
		{`"param":"dimensions","code":"unsupported_parameter"`, `,"dimensions":9`, "unsupported_parameter", "dimensions", "The model does not take dimensions."},
		{`"param":"dimensions","code":"invalid_value"`, `,"dimensions":9`, "invalid_value", "dimensions", "The model does not take this value of dimensions."},
		{`"param":"encoding_format","code":"unsupported_value"`, "", "unsupported_value", "encoding_format", "The model does not take this value of encoding_format."},
		{`"param":"dimensions","code":"invalid_value"`, "", "", "", "The model failed to answer."},
		{`"param":"model","code":"invalid_value"`, "", "", "", "The model failed to answer."},
		{`"param":"input","code":"invalid_value"`, "", "", "", "The model failed to answer."},
	} {
		g := setup{model: modelOf(http.StatusBadRequest, "", `{"error":{"message":"SECRET",`+tt.says+`}}`, "")}.newRig(t, vectors)
		a := g.embed(g.token("123", ""), embedding(tt.asks, "a"))
		e := g.wireError(a)
		want := http.StatusBadGateway
		if tt.code != "" {
			want = http.StatusBadRequest
		}
		check.That(t, a.status == want && (tt.code == "" || e.Code == tt.code) && value(e.Param) == tt.param && strings.Contains(e.Message, tt.sentence) && strings.HasSuffix(strings.TrimSuffix(e.Message, " Try again later."), "Nothing was taken from your quota.") && !strings.Contains(a.body, "SECRET"),
			"%s: %d %s", tt.says, a.status, a.body)
	}
}

// Who leaves pays for what was counted, since nobody knows what was billed, and ends the
// call; a panic settles, too.
func TestLeaveEmbeddings(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	g := setup{model: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			close(asked)
			<-r.Context().Done()
		})
	}}.newRig(t, vectors)
	g.freeze(0)
	token := g.token("123", "")
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-asked; leave() }()
	r := g.request(http.MethodPost, embedPath, token, embedding("", "a", "b"))
	a := g.do(r.WithContext(ctx))
	check.That(t, a.status == openai.CallerLeft.Status(), "%d %s", a.status, a.body)
	g.wantEmbedded(token, 1, 2, 0, 40_000, ledger.Left, true)
}

// A response writer that fails as the answer is written takes nothing back: it was made.
type panicking struct{ http.ResponseWriter }

func (panicking) Write([]byte) (int, error) { panic("the writer") }

// panickingProvider panics, as a fault of ours in it would.
type panickingProvider struct{}

func (panickingProvider) Call(context.Context, provider.Request) (provider.Answer, error) {
	panic("no chat")
}

func (panickingProvider) Embed(context.Context, provider.EmbedRequest) (provider.Embedded, error) {
	panic("no vectors")
}

func TestPanicInEmbeddings(t *testing.T) {
	t.Parallel()
	broken := newRig(t, vectors)
	broken.freeze(0)
	broken.handler.providers["main"] = panickingProvider{}
	a := broken.embed(broken.token("123", ""), embedding("", "a", "b"))
	check.That(t, a.status == http.StatusInternalServerError && strings.Contains(a.body, "Something went wrong on our side.") && !strings.Contains(a.body, "vectors"), "%d %s", a.status, a.body)
	broken.wantEmbedded(broken.token("123", ""), 1, 0, 0, 40_000, ledger.Failed, true)

	g := newRig(t, vectors)
	g.freeze(0)
	token := g.token("123", "")
	func() {
		defer func() { _ = recover() }() // of the writer, in the answer to the first panic
		g.handler.ServeHTTP(panicking{httptest.NewRecorder()}, g.request(http.MethodPost, embedPath, token, embedding("", "a", "b")))
	}()
	g.wantEmbedded(token, 1, 2, 1, 40_000, ledger.Completed, false)
}
