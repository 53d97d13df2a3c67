package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	claudeUsageJSON = `{"input_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":` +
		`{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":5,"output_tokens_details":{"thinking_tokens":0},` +
		`"service_tier":"standard","inference_geo":"global","speed":"standard"}`
	claudeWhole = `{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"ANSWER"}],` +
		`"stop_reason":"end_turn","stop_sequence":null,"usage":` + claudeUsageJSON + `}`
)

// claudeEvent is an event with its name, as the API sends it.
func claudeEvent(data string) string {
	var e struct{ Type string }
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		panic(err)
	}
	return "event: " + e.Type + "\ndata: " + data + "\n\n"
}

var claudeStream = []string{
	claudeEvent(`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[],` +
		`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}`),
	claudeEvent(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
	claudeEvent(`{"type":"ping"}`),
	claudeEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ANS"}}`),
	claudeEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"WER"}}`),
	claudeEvent(`{"type":"content_block_stop","index":0}`),
	claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":5}}`),
	claudeEvent(`{"type":"message_stop"}`),
}

const overloaded = `{"type":"error","error":{"type":"overloaded_error","message":"PROMPT"},"request_id":"req_1"}`

var anthropicDialect = dialect{
	name: "anthropic",
	make: func(t *testing.T, url string, client *http.Client) Provider {
		return newAnthropic(t, AnthropicConfig{BaseURL: url, APIKey: testKey, HTTPClient: client})
	},
	makeBilling: func(t *testing.T, url string, billsErrors bool) Provider {
		return newAnthropic(t, AnthropicConfig{BaseURL: url, APIKey: testKey, BillsErrors: billsErrors})
	},
	judge:       judgeAnthropic,
	wholeType:   "application/json",
	whole:       claudeWhole,
	streamType:  "text/event-stream",
	events:      claudeStream,
	complete:    7, // all but message_stop
	failing:     claudeEvent(overloaded),
	failingText: "provider broken (status 200): error instead of an answer, code overloaded_error",
	refusal:     overloaded,
	refusedAs:   "provider refused (status 529): code overloaded_error",
	ended: func(reason string) []string {
		ended := slices.Clone(claudeStream)
		ended[6] = strings.Replace(ended[6], "end_turn", reason, 1)
		return ended
	},
}

func newAnthropic(t *testing.T, cfg AnthropicConfig) *Anthropic {
	t.Helper()
	a, err := NewAnthropic(cfg)
	check.OK(t, err)
	if cfg.HTTPClient == nil {
		t.Cleanup(a.client.CloseIdleConnections)
	}
	return a
}

// claudeRequest is all that a request may hold here.
type claudeRequest struct {
	Model      string        `json:"model"`
	MaxTokens  int           `json:"max_tokens"`
	System     []claudePiece `json:"system"`
	Messages   []claudeTurn  `json:"messages"`
	Tools      []claudeTool  `json:"tools"`
	ToolChoice *struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		NotMany bool   `json:"disable_parallel_tool_use"`
	} `json:"tool_choice"`
	OutputConfig  struct{ Effort string } `json:"output_config"`
	StopSequences []string                `json:"stop_sequences"`
	Stream        bool                    `json:"stream"`
}

type claudeTurn struct {
	Role    string        `json:"role"`
	Content []claudePiece `json:"content"`
}

type claudeTool struct {
	Name, Description string
	Schema            map[string]any `json:"input_schema"`
	Strict            bool           `json:"strict"`
}

type claudePiece struct {
	Type, Text string
	Source     *struct {
		Type, Data, URL string
		MediaType       string `json:"media_type"`
	}
	ID, Name  string
	Input     map[string]any
	ToolUseID string `json:"tool_use_id"`
	Content   []claudePiece
}

// judgeAnthropic has the rules of the Messages API: what it demands and what it
// refuses.
func judgeAnthropic(t *testing.T, r *http.Request, body []byte) {
	err := claudeWrong(r, body)
	check.That(t, err == nil, "%v: %s", err, body)
}

func claudeWrong(r *http.Request, body []byte) error {
	key := r.Header.Get("X-Api-Key")
	if key == "" {
		key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/v1/messages":
		return fmt.Errorf("%s %s", r.Method, r.URL)
	case key != testKey:
		return fmt.Errorf("key %q", key)
	case r.Header.Get("Anthropic-Version") != "2026-10-21":
		return fmt.Errorf("version %q", r.Header.Get("Anthropic-Version"))
	case r.Header.Get("Content-Type") != "application/json":
		return fmt.Errorf("content type %q", r.Header.Get("Content-Type"))
	}
	var req claudeRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields() // "Extra inputs are not permitted"
	if err := dec.Decode(&req); err != nil {
		return err
	}
	switch {
	case req.Model == "":
		return errors.New("no model")
	case req.MaxTokens < 1:
		return errors.New("no max_tokens")
	case len(req.Messages) == 0:
		return errors.New("no messages")
	case req.Messages[0].Role != "user":
		return errors.New("the user does not begin")
	}
	tools := map[string]bool{}
	for _, tool := range req.Tools {
		if tools[tool.Name] = true; !isWord(tool.Name, 128, nameAlphabet) || tool.Schema["type"] != "object" {
			return fmt.Errorf("tool %+v", tool)
		}
	}
	if c := req.ToolChoice; c != nil && (len(tools) == 0 || !slices.Contains([]string{"auto", "any", "tool", "none"}, c.Type) || (c.Type == "tool") != tools[c.Name] || c.Type == "none" && c.NotMany) {
		return fmt.Errorf("tool choice %+v", *c)
	}
	for _, b := range req.System {
		if b.Type != "text" || strings.TrimSpace(b.Text) == "" {
			return fmt.Errorf("block %+v", b)
		}
	}
	var open []string // calls of the turn before
	for i, m := range req.Messages {
		if want := [...]string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			return fmt.Errorf("message %d of %q with %d blocks", i, m.Role, len(m.Content))
		}
		var calls []string
		for j, b := range m.Content {
			user := m.Role == "user"
			ok := false
			switch b.Type {
			case "text":
				ok = strings.TrimSpace(b.Text) != ""
			case "image":
				ok = user && b.Source != nil && (b.Source.Type == "url" && b.Source.URL != "" || b.Source.Type == "base64" && b.Source.MediaType != "" && b.Source.Data != "")
			case "tool_use":
				ok = !user && isWord(b.ID, 64, nameAlphabet) && isWord(b.Name, 64, nameAlphabet) && b.Input != nil && len(tools) > 0
				calls = append(calls, b.ID)
			case "tool_result":
				at := slices.Index(open, b.ToolUseID)
				if ok = at >= 0 && (j == 0 || m.Content[j-1].Type == "tool_result"); ok {
					open = slices.Delete(open, at, at+1)
				}
			}
			if !ok {
				return fmt.Errorf("block %d of message %d: %+v", j, i, b)
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("no results of %v", open)
		}
		open = calls
	}
	return nil
}

func TestAnthropicRequestOnTheWire(t *testing.T) {
	req := Request{
		Model: "claude",
		Messages: []openai.Message{
			{Role: "system", Content: "a < b & c"}, {Role: "assistant", Content: "Hello!"}, {Role: "user", Content: "\"hé\"\n"}, {Role: "user", Content: " \n"}, {Role: "user", Content: "two"},
			{Role: "assistant", Content: ""}, {Role: "developer", Content: "and"}, {Role: "assistant", Content: "so"},
		},
		MaxOutputTokens: 7, Stream: true, Sampling: openai.Sampling{Stop: []string{"<|end|>"},
			Temperature: ptr(0.5), TopP: ptr(0.5), Seed: ptr(int64(1)), PresencePenalty: ptr(1.0), FrequencyPenalty: ptr(1.0)},
	}
	want := `{"model":"claude","max_tokens":7,"system":[{"type":"text","text":"a < b & c"},{"type":"text","text":"and"}],` +
		`"messages":[{"role":"user","content":[{"type":"text","text":"..."}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"Hello!"}]},` +
		`{"role":"user","content":[{"type":"text","text":"\"hé\"\n"},{"type":"text","text":"two"}]},` +
		`{"role":"assistant","content":[{"type":"text","text":"so"}]}],"stop_sequences":["<|end|>"],"stream":true}`
	var got, accept string
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got, accept = string(body), r.Header.Get("Accept")
		if err := claudeWrong(r, body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusTeapot)
	})
	_, err := call(t.Context(), t, newAnthropic(t, AnthropicConfig{BaseURL: strings.TrimSuffix(url, "/v1"), APIKey: testKey}), req)
	wantFailure(t, err, Failed, http.StatusTeapot)
	check.That(t, got == want && accept == "text/event-stream", "sent %s\nwant %s", got, want)
}

// What Anthropic and Bedrock cannot be asked is not asked, and does not count against
// them: any caller can bring it about.
func TestRequestsThatCannotBeMade(t *testing.T) {
	for _, d := range []dialect{anthropicDialect, bedrockDialect} {
		url, calls := d.serve(t, d.answer(false, d.whole))
		for name, change := range map[string]func(*Request){
			"a response format": func(r *Request) { r.ResponseFormat = json.RawMessage(`{"type":"json_object"}`) },
			"no turn": func(r *Request) {
				r.Messages = []openai.Message{{Role: "system", Content: testPrompt}, {Role: "user", Content: " "}}
			},
			"a result without text or tools": func(r *Request) { r.Messages = []openai.Message{{Role: "tool", ToolCallID: "x"}} },
		} {
			req := request(false)
			change(&req)
			_, err := call(t.Context(), t, d.make(t, url, nil), req)
			if wantFailure(t, err, Refused, 0); t.Failed() || saysDown(err) || saysUp(err) {
				t.Errorf("%s: %s: %v", d.name, name, err)
			}
		}
		check.Equal(t, calls.Load(), 0, "requests were sent")
	}
}

func TestNewAnthropicRefuses(t *testing.T) {
	for _, cfg := range []AnthropicConfig{
		{},
		{APIKey: testKey + "\n"},
		{APIKey: testKey, BaseURL: "api.anthropic.com"},
		{APIKey: testKey, BaseURL: "https://user:" + testKey + "@h"},
		{APIKey: testKey, BaseURL: "https://h#" + testKey},
		{APIKey: testKey, Headers: map[string]string{"a": "b\n"}},
	} {
		_, err := NewAnthropic(cfg)
		if err == nil {
			t.Errorf("%+v is accepted", cfg)
		} else if strings.Contains(err.Error(), testKey) {
			t.Errorf("%q contains the key", err)
		}
	}
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	if a := newAnthropic(t, AnthropicConfig{APIKey: testKey}); a.endpoint != "https://api.anthropic.com/v1/messages" {
		t.Error(a.endpoint)
	}
}

func TestAnthropicStreams(t *testing.T) {
	start, delta, stop := claudeStream[0], claudeStream[6], claudeStream[7]
	text := claudeStream[1] + claudeStream[3] + claudeStream[4] + claudeStream[5]
	said := func(reason, usage string) string {
		return claudeEvent(`{"type":"message_delta","delta":{"stop_reason":` + reason + `},"usage":` + usage + `}`)
	}
	known := &price.Usage{Input: 9, Output: 5}
	begun := &price.Usage{Input: 9, Output: 1} // what is told at the start
	finished := Part{Content: testAnswer, FinishReason: "stop", AtLeast: begun}
	for _, tt := range []struct {
		name, body string
		want       Part
		failure    Failure // "" if it succeeds
	}{
		{"at its cap", start + text + said(`"max_tokens"`, `{"output_tokens":5}`) + stop, answered("length", known), ""},
		{"context full", start + text + said(`"model_context_window_exceeded"`, `{"output_tokens":5}`) + stop, answered("length", known), ""},
		{"stop sequence", start + text + said(`"stop_sequence"`, `{"output_tokens":5}`) + stop, answered("stop", known), ""},
		{"refusal", start + text + said(`"refusal"`, `{"output_tokens":5}`) + stop, answered("content_filter", known), ""},
		{"a reason of its own", start + text + said(`"pause_turn"`, `{"output_tokens":5}`) + stop, unknown("pause_turn", known), ""},
		{"a reason that is prose", start + text + said(`"ANSWER it is"`, `{"output_tokens":5}`) + stop, unknown("other", known), ""},
		{"cache and thinking", start +
			claudeEvent(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"PROMPT","signature":""}}`) +
			claudeEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"PROMPT"}}`) +
			claudeEvent(`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"PROMPT"}}`) + text +
			said(`"end_turn"`, `{"input_tokens":9,"cache_read_input_tokens":60,"cache_creation_input_tokens":30,"output_tokens":50,"output_tokens_details":{"thinking_tokens":40}}`) + stop,
			Part{Content: testAnswer, Reasoning: testPrompt + testPrompt, FinishReason: "stop",
				Usage: &price.Usage{Input: 99, CachedInput: 60, CacheWrite: 30, Output: 50, Reasoning: 40}}, ""},
		{"input counted at the end alone", claudeEvent(`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`) + text +
			said(`"end_turn"`, `{"input_tokens":9,"output_tokens":5}`) + stop, answered("stop", known), ""},
		{"counts grow", start + text + said(`null`, `{"output_tokens":3}`) + said(`"end_turn"`, `{"output_tokens":5}`) + stop, answered("stop", known), ""},
		{"a reason of another kind", start + text + said(`7`, `{"output_tokens":5}`) + stop, unknown("7", known), ""},
		{"billed, then cut", start + text + delta, answered("stop", known), ""},
		{"billed, then broken", start + text + delta + "data: {{{\n\n", answered("stop", known), Broken}, // which takes nothing from the answer
		{"OpenAI's end", start + text + delta + doneEvent, answered("stop", known), ""},
		{"events that say nothing", start + ": comment\n\nevent: ping\ndata: {}\n\ndata: {\"type\":null}\n\ndata: null\n\ndata: []\n\ndata: 7\n\ndata: ping\n\ndata:\n\n" + text + delta + stop, answered("stop", known), ""},
		{"unknown blocks", start + claudeEvent(`{"type":"content_block_start","content_block":{"type":"redacted_thinking","data":"PROMPT"}}`) +
			claudeEvent(`{"type":"content_block_start","content_block":{"type":"new_block","text":"PROMPT"}}`) +
			claudeEvent(`{"type":"content_block_delta","delta":{"type":"citations_delta","citation":{"text":"PROMPT"}}}`) + text + delta + stop, answered("stop", known), ""},
		{"members of other kinds", start + claudeEvent(`{"type":"content_block_delta","index":"0","delta":{"type":"text_delta","text":["AN",{"type":"text","text":"SW"}]}}`) +
			claudeEvent(`{"type":"content_block_delta","content_block":7,"message":[],"usage":"PROMPT","delta":{"text":"ER"}}`) +
			`data: {"type":"content_block_delta","delta":null}` + "\n\n" + delta + stop, answered("stop", known), ""},
		{"no types", strings.NewReplacer(`"type":"message_start",`, "", `"type":"content_block_delta",`, "", `"type":"message_delta",`, "").Replace(text+said(`"end_turn"`, `{"input_tokens":9,"output_tokens":5}`)) + stop,
			answered("stop", known), ""},
		{"all in one event", "data: " + claudeWhole + "\n\n" + stop, answered("stop", known), ""},
		{"a reason in capitals", start + text + said(`"MAX_TOKENS"`, `{"output_tokens":5}`) + stop, answered("length", known), ""},
		{"usage in the delta", start + text + claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn","usage":{"output_tokens":5}}}`) + stop, answered("stop", known), ""},
		{"usage at the end", start + text + claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`) + claudeEvent(`{"type":"message_stop","usage":{"output_tokens":5}}`), answered("stop", known), ""},
		{"usage of an unknown event", start + text + claudeEvent(`{"type":"new_thing","usage":{"output_tokens":5}}`) + claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`) + stop, answered("stop", known), ""},
		{"cache writes by their parts", start + text + said(`"end_turn"`, `{"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":10},"output_tokens":5,"output_tokens_details":[]}`) + stop,
			answered("stop", &price.Usage{Input: 39, CacheWrite: 30, Output: 5}), ""},
		{"an empty error", start + text + `data: {"type":"message_delta","error":{},"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}` + "\n\n" + stop, answered("stop", known), ""},
		{"unknown events", start + claudeEvent(`{"type":"new_thing","delta":{"type":"x","text":"no"}}`) + text + delta + stop, answered("stop", known), ""},
		{"text in the block's start", start + claudeEvent(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"ANSWER"}}`) + delta + stop,
			answered("stop", known), ""},
		{"nothing said", start + said(`"refusal"`, `{"output_tokens":0}`) + stop, Part{FinishReason: "content_filter", Usage: &price.Usage{Input: 9}}, ""},
		{"after the end comes nothing", start + text + delta + stop + text, answered("stop", known), ""},

		// Usage that is missing or cannot be true is none, and never that of the start,
		// which is a part of it.
		{"no usage", start + text + claudeEvent(`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`) + stop, finished, ""},
		{"no output counted", start + text + said(`"end_turn"`, `{}`) + stop, finished, ""},
		{"negative output", start + text + said(`"end_turn"`, `{"output_tokens":-5}`) + stop, finished, ""},
		{"negative input", start + text + said(`"end_turn"`, `{"input_tokens":-9,"output_tokens":5}`) + stop, finished, ""},
		{"absurd cache", start + text + said(`"end_turn"`, `{"cache_read_input_tokens":9223372036854775807,"output_tokens":5}`) + stop, finished, ""},
		{"no input", text + delta + stop, answered("stop", nil), ""},
		{"input of another kind", strings.Replace(start, `"input_tokens":9`, `"input_tokens":"9"`, 1) + text + delta + stop, answered("stop", nil), ""},
		{"output of another kind", start + text + said(`"end_turn"`, `{"output_tokens":"5"}`) + stop, finished, ""},

		{"no stop reason", start + text + said(`null`, `{"output_tokens":5}`) + stop, answered("", known), Broken},
		{"broken while counts grow", start + text + said(`null`, `{"output_tokens":3}`) + "data: ?\n\n", Part{Content: testAnswer, AtLeast: &price.Usage{Input: 9, Output: 3}}, Broken},
		{"cut in the text", start + text, Part{Content: testAnswer, AtLeast: begun}, Broken},
		{"an error in the text", start + text + claudeEvent(overloaded), Part{Content: testAnswer, AtLeast: begun}, Broken},
		{"a reason that is a failure", start + text + said(`"error"`, `{"output_tokens":5}`) + stop, answered("", known), Broken},
		{"only the end", stop, Part{}, Broken},
		{"billed, then an error", start + text + delta + claudeEvent(overloaded), answered("stop", known), Broken},
		{"an event of an error", start + text + "event: error\ndata: {\"code\":\"busy\"}\n\n", Part{Content: testAnswer, AtLeast: begun}, Broken},
		{"an error without a type", start + text + `data: {"error":{"type":"overloaded_error","message":"PROMPT"}}` + "\n\n", Part{Content: testAnswer, AtLeast: begun}, Broken},
		{"an error with usage", start + text + `data: {"type":"error","error":{"type":"overloaded_error"},"usage":{"output_tokens":5}}` + "\n\n", answered("", known), Broken},
		{"an end without a reason", start + text + `data: {"type":"message_stop","usage":{"output_tokens":5}}` + "\n\n", answered("", known), Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := anthropicDialect
			url, calls := d.serve(t, d.answer(true, tt.body))
			got, err := call(t.Context(), t, d.make(t, url, nil), request(true))
			if tt.failure != "" {
				wantFailure(t, err, tt.failure, 200)
			} else if err != io.EOF {
				t.Error(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			check.Equal(t, calls.Load(), 1, "requests for one call")
		})
	}
}

func TestAnthropicWhole(t *testing.T) {
	body := func(content, reason, usage string) string {
		return `{"type":"message","content":` + content + `,"stop_reason":` + reason + `,"usage":` + usage + `}`
	}
	known := &price.Usage{Input: 9, Output: 5}
	for _, tt := range []struct {
		name, body string
		want       Part
		wrong      error
	}{
		{"usual", claudeWhole, usualAnswer, nil},
		{"blocks", body(`[{"type":"thinking","thinking":"PROMPT"},{"type":"text","text":"ANS"},{"type":"text","text":"WER"},{"type":"redacted_thinking","data":"PROMPT"}]`, `"max_tokens"`, claudeUsageJSON),
			Part{Content: testAnswer, Reasoning: testPrompt, FinishReason: "length", Usage: known}, nil},
		{"nothing said", body(`[]`, `"refusal"`, `{"input_tokens":9,"output_tokens":0}`), Part{FinishReason: "content_filter", Usage: &price.Usage{Input: 9}}, nil},
		{"no usage", body(`[{"type":"text","text":"ANSWER"}]`, `"end_turn"`, `null`), Part{Content: testAnswer, FinishReason: "stop"}, nil},
		{"more thinking than output", body(`[]`, `"end_turn"`, `{"input_tokens":9,"output_tokens":5,"output_tokens_details":{"thinking_tokens":6}}`),
			Part{FinishReason: "stop"}, nil},
		{"no stop reason", body(`[]`, `null`, claudeUsageJSON), Part{Usage: known}, errUnfinished},
		{"a stop reason of another kind", body(`[{"type":"text","text":"ANSWER"}]`, `7`, claudeUsageJSON), unknown("7", known), nil},
		{"no stop reason, but text", body(`[{"type":"text","text":"ANSWER"}]`, `null`, claudeUsageJSON), unknown("none", known), nil},
		{"a text for content", body(`"ANSWER"`, `"end_turn"`, claudeUsageJSON), answered("stop", known), nil},
		{"no type", `{"content":[{"text":"ANSWER"}],"stop_reason":"end_turn","usage":` + claudeUsageJSON + `}`, answered("stop", known), nil},
		{"unknown blocks", body(`[7,null,{"type":"new","text":"no"},{"type":"text","text":"ANSWER"},{"type":"text","text":{}}]`, `"end_turn"`, claudeUsageJSON), answered("stop", known), nil},
		{"an error beside an answer", strings.Replace(claudeWhole, `"type":"message",`, `"type":"message","error":{"type":"overloaded_error"},`, 1), answered("", known), saidFailure{"overloaded_error"}},
		{"a stop reason that is a failure", body(`[{"type":"text","text":"ANSWER"}]`, `"error"`, claudeUsageJSON), answered("", known), saidFailure{"error"}},
		{"content of another kind", body(`[{"type":"text","text":["ANSWER"]}]`, `"end_turn"`, claudeUsageJSON), answered("stop", known), nil},
		{"usage of another kind", body(`[{"type":"text","text":"ANSWER"}]`, `"end_turn"`, `{"input_tokens":9,"output_tokens":"5"}`), answered("stop", nil), nil},
		{"two near 2^63", body(`[]`, `"end_turn"`, `{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807,"output_tokens":5}`), Part{FinishReason: "stop"}, nil},
		{"no message", `{"type":"completion"}`, Part{}, errMalformed},
		{"an error", overloaded, Part{}, saidFailure{"overloaded_error"}},
		{"an error in prose", `{"type":"error","error":{"type":"PROMPT it was"}}`, Part{}, saidFailure{""}},
	} {
		got, err := parseClaudeMessage([]byte(tt.body))
		check.That(t, errors.Is(err, tt.wrong), "%s: %v, want %v", tt.name, err, tt.wrong)
		check.Equal(t, cmp.Diff(tt.want, got), "", "%s", tt.name)
	}
}

func FuzzAnthropicAnswer(f *testing.F) {
	f.Add(claudeWhole)
	f.Add(overloaded)
	for _, e := range claudeStream {
		_, data, _ := strings.Cut(e, "data: ")
		f.Add(strings.TrimSpace(data))
	}
	f.Fuzz(func(t *testing.T, body string) {
		checkPart := func(p Part, err error) {
			var wire wireError
			var said saidFailure
			check.Must(t, err == nil || errors.As(err, &wire) || errors.As(err, &said), "unsafe failure %v", err)
			check.Must(t, err == nil || p.FinishReason == "", "%v with finish reason %s", err, p.FinishReason)
			if p.AtLeast != nil && (!p.AtLeast.Valid() || p.AtLeast.Input == 0) {
				t.Fatalf("at least %+v", *p.AtLeast)
			}
			if p.Usage != nil && (!p.Usage.Valid() || p.Usage.Input == 0) {
				t.Fatalf("usage %+v", *p.Usage)
			}
			checkReason(t, p)
		}
		p, err := parseClaudeMessage([]byte(body))
		checkPart(p, err)
		check.Must(t, err != nil || p.FinishReason != "", "a whole answer without a finish reason")
		var c claudeEvents
		for range 2 {
			p, _, err := c.read([]byte(body))
			checkPart(p, err)
		}
	})
}
