package chatapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// requestLine is what the log says of a request.
type requestLine struct {
	ID       string `json:"request_id"`
	Method   string
	Path     string
	Outcome  string
	Identity string
	Tier     string
	Feature  string
	Reserved *loggedAmount
	Settled  *loggedAmount
	Tools    int
	Images   int
}

type loggedAmount struct {
	Tokens int64
	USD    string
}

// secretPrompt and secretAnswer must never show in a log.
const (
	secretPrompt = "xylophone-in-the-prompt"
	secretAnswer = "xylophone-in-the-answer"

	secretAnswerTokens = 6
)

// indiscreet is a provider that repeats what it heard wherever it can.
func indiscreet(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Stream   bool
			Messages []openai.Message
		}
		_ = json.NewDecoder(r.Body).Decode(&req)
		prompt := req.Messages[len(req.Messages)-1].Content
		quoted := `{"error":{"message":` + string(openai.Encode(prompt)) + `,"type":` + string(openai.Encode(prompt+" ")) + `,"code":` + string(openai.Encode(prompt+"!")) + `}}`
		content := `{"choices":[{"index":0,"delta":{"content":"` + secretAnswer + `"}}]}`
		switch {
		case strings.Contains(prompt, "refuse"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(quoted))
		case strings.Contains(prompt, "break"):
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte("data: " + content + "\n\ndata: " + quoted + "\n\n"))
		case strings.Contains(prompt, "garbage"):
			w.Header().Set("Content-Type", secretAnswer)
			_, _ = w.Write([]byte(secretAnswer))
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"` + secretAnswer + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":30,"completion_tokens":9}}`))
		}
	})
}

// xylophones is a call that says in each of its parts what must never show in a log.
var xylophones = callKind{
	before: []object{
		{"role": "user", "content": []object{onePixel, {"type": "text", "text": "xylophone"}}},
		{"role": "assistant", "tool_calls": []object{{"id": "xylophone", "type": "function", "function": object{"name": "xylophone", "arguments": `{"xylophone":1}`}}}},
		{"role": "tool", "tool_call_id": "xylophone", "content": "xylophone"},
	},
	with: object{"tools": []object{
		{"type": "function", "function": object{"name": "xylophone", "description": "xylophone"}},
		{"type": "function", "function": object{"name": "xylophone_2", "parameters": object{"type": "object", "properties": object{"xylophone": object{}}}}},
	}, "tool_choice": object{"type": "function", "function": object{"name": "xylophone"}}},
}

// Each request has one line that tells all about it but what was said.
func TestLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, body string
		token      func(*rig) string // nil: a good one
		leaves     bool              // the caller, during the provider's call
		storeFails bool
		want       requestLine
		settled    price.Usage // Input 0: as we count it, if there is any output
		reserved   bool
		worst      bool // in dollars: nothing is known of what was billed
	}{
		{name: "answered", body: cvCall(secretPrompt, false),
			settled: price.Usage{Input: 30, Output: 9},
			want:    requestLine{Outcome: "answered", Identity: "user#123", Tier: "user", Feature: "cv"}, reserved: true},
		{name: "streamed", body: cvCall(secretPrompt, true),
			settled: price.Usage{Input: 30, Output: 9},
			want:    requestLine{Outcome: "answered", Identity: "user#123", Tier: "user", Feature: "cv"}, reserved: true},
		{name: "tools and images", body: xylophones.call(secretPrompt, false),
			settled: price.Usage{Input: 30, Output: 9},
			want:    requestLine{Outcome: "answered", Identity: "user#123", Tier: "user", Feature: "cv", Tools: 2, Images: 1}, reserved: true},
		{name: "refused by the provider", body: cvCall(secretPrompt+" refuse", false),
			want: requestLine{Outcome: "provider_error", Identity: "user#123", Tier: "user", Feature: "cv"}, reserved: true},
		{name: "broken in the stream", body: cvCall(secretPrompt+" break", true), settled: price.Usage{Output: secretAnswerTokens}, worst: true,
			want: requestLine{Outcome: "provider_error", Identity: "user#123", Tier: "user", Feature: "cv"}, reserved: true},
		{name: "garbage", body: cvCall(secretPrompt+" garbage", false), worst: true,
			want: requestLine{Outcome: "provider_error", Identity: "user#123", Tier: "user", Feature: "cv"}, reserved: true},
		{name: "left", body: cvCall(secretPrompt, false),
			leaves: true, settled: price.Usage{Output: cvCap},
			want: requestLine{Outcome: "caller_left", Identity: "user#123", Tier: "user", Feature: "cv"}, reserved: true},
		{name: "no store", body: cvCall(secretPrompt, false), storeFails: true,
			want: requestLine{Outcome: "store_unavailable", Identity: "user#123", Tier: "user", Feature: "cv"}},
		{name: "too long", body: cvCall(strings.Repeat(secretPrompt+" ", 2000), false),
			want: requestLine{Outcome: "input_too_long", Identity: "user#123", Tier: "user", Feature: "cv"}},
		{name: "not allowed", body: cvCall(secretPrompt, false), token: func(*rig) string { return "" },
			want: requestLine{Outcome: "feature_not_allowed", Tier: "anonymous"}},
		{name: "bad token", body: cvCall(secretPrompt, false), token: func(*rig) string { return "xylophone-in-the-token" },
			want: requestLine{Outcome: "invalid_token"}},
		{name: "bad JSON", body: `{"model":"cv","messages":"` + secretPrompt,
			want: requestLine{Outcome: "invalid_json", Identity: "user#123", Tier: "user"}},
		{name: "no such model", body: `{"model":"` + secretPrompt + `","messages":[{"role":"user","content":"` + secretPrompt + `"}]}`,
			want: requestLine{Outcome: "model_not_found", Identity: "user#123", Tier: "user"}},
		{name: "unknown field", body: `{"model":"cv","` + secretPrompt + `":1}`,
			want: requestLine{Outcome: "unsupported_parameter", Identity: "user#123", Tier: "user"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := setup{model: indiscreet, bucket: bucket.Options{ReserveTimeout: 500 * time.Millisecond}}.newRig(t, openToAll)
			if tt.storeFails {
				g.net.Plan = faults.Always(faults.Throttled)
			}
			token := g.token("123", "")
			if tt.token != nil {
				token = tt.token(g)
			}
			r := g.request(http.MethodPost, "/v1/chat/completions", token, tt.body)
			if tt.leaves {
				ctx, leave := context.WithCancel(r.Context())
				r = r.WithContext(ctx)
				g.provide(leaving(leave))
			}
			a := g.do(r)

			text := g.log.String()
			check.That(t, !strings.Contains(text, "xylophone") && (token == "" || !strings.Contains(text, token)), "the log tells what was said: %s", text)
			check.That(t, !strings.Contains(text, testSecret), "the log tells a secret: %s", text)
			lines := g.logged("request")
			check.Must(t, len(lines) == 1, "%d lines, want 1: %s", len(lines), text)
			var got requestLine
			check.OK(t, json.Unmarshal(lines[0], &got))
			check.That(t, got.ID != "" && got.ID == a.header.Get("X-Request-Id"), "request_id %q, the answer has %q", got.ID, a.header.Get("X-Request-Id"))
			if (got.Reserved != nil) != tt.reserved || (got.Settled != nil) != tt.reserved {
				t.Errorf("reserved and settled: %s", lines[0])
			}
			if tt.reserved && got.Reserved != nil && got.Settled != nil {
				input := got.Reserved.Tokens - cvCap
				if worst := testPrices.WorstCase(input, cvCap).String(); input < 20 || got.Reserved.USD != worst {
					t.Errorf("reserved %+v, want $%s for %d tokens of input", *got.Reserved, worst, input)
				}
				if tt.settled.Input == 0 && tt.settled.Output > 0 {
					tt.settled.Input = input
				}
				cost := testPrices.Cost(tt.settled)
				if tt.worst {
					cost = testPrices.WorstCase(input, cvCap)
				}
				want := (loggedAmount{tt.settled.Total(), cost.String()})
				check.That(t, *got.Settled == want, "settled %+v, want %+v", *got.Settled, want)
			}
			if tt.want.Tier == "anonymous" {
				check.That(t, strings.HasPrefix(got.Identity, "net#") && !strings.Contains(text, "203.0.113"), "an anonymous caller is %q: %s", got.Identity, text)
				got.Identity = ""
			}
			tt.want.ID, tt.want.Method, tt.want.Path = got.ID, http.MethodPost, "/v1/chat/completions"
			tt.want.Reserved, tt.want.Settled = got.Reserved, got.Settled
			check.Equal(t, got, tt.want, "got")
			// All other lines name the request, too.
			for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
				check.That(t, strings.Contains(line, `"request_id":"`+got.ID+`"`), "a line without the request's id: %s", line)
			}
		})
	}
}

// leaving is a provider during whose call the caller leaves.
type leaving context.CancelFunc

func (leave leaving) Call(context.Context, provider.Request) (provider.Answer, error) {
	leave()
	return nil, &provider.Error{Failure: provider.Cancelled}
}
