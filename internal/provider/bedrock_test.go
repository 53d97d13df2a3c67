package provider

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// frame is a message of AWS's event stream.
func frame(kind, name, payload string) string {
	m := eventstream.Message{Payload: []byte(payload)}
	m.Headers.Set(":message-type", eventstream.StringValue(kind))
	m.Headers.Set(":"+kind+"-type", eventstream.StringValue(name))
	m.Headers.Set(":content-type", eventstream.StringValue("application/json"))
	var buf bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&buf, m); err != nil {
		panic(err)
	}
	return buf.String()
}

const converseWhole = `{"metrics":{"latencyMs":42},"output":{"message":{"content":[{"text":"ANSWER"}],"role":"assistant"}},` +
	`"stopReason":"end_turn","usage":{"inputTokens":9,"outputTokens":5,"totalTokens":14}}`

var converseStream1 = []string{
	frame("event", "messageStart", `{"p":"abc","role":"assistant"}`),
	frame("event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"ANS"},"p":"abcdefgh"}`),
	frame("event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"WER"},"p":"a"}`),
	frame("event", "contentBlockStop", `{"contentBlockIndex":0,"p":"abcd"}`),
	frame("event", "messageStop", `{"p":"abcdefghijk","stopReason":"end_turn"}`),
	frame("event", "metadata", `{"metrics":{"latencyMs":42},"p":"ab","usage":{"inputTokens":9,"outputTokens":5,"totalTokens":14}}`),
}

var bedrockDialect = dialect{
	name: "bedrock",
	make: func(t *testing.T, url string, client *http.Client) Provider {
		return newBedrock(t, BedrockConfig{BaseURL: url, HTTPClient: client})
	},
	makeBilling: func(t *testing.T, url string, billsErrors bool) Provider {
		return newBedrock(t, BedrockConfig{BaseURL: url, BillsErrors: billsErrors})
	},
	judge:       judgeBedrock,
	wholeType:   "application/json",
	whole:       converseWhole,
	streamType:  "application/vnd.amazon.eventstream",
	events:      converseStream1,
	complete:    6,
	failing:     frame("exception", "throttlingException", `{"message":"PROMPT"}`),
	failingText: "provider broken (status 200): error instead of an answer, code ThrottlingException",
	refusal:     `{"__type":"com.amazon.coral.service#ThrottlingException","message":"PROMPT"}`,
	refusedAs:   "provider refused (status 529): code ThrottlingException",
	ended: func(reason string) []string {
		ended := slices.Clone(converseStream1)
		ended[4] = frame("event", "messageStop", `{"stopReason":"`+reason+`"}`)
		return ended
	},
}

func newBedrock(t *testing.T, cfg BedrockConfig) *Bedrock {
	t.Helper()
	cfg.Region = "eu-west-1"
	if cfg.Credentials == nil {
		cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: testKey}, nil
		})
	}
	b, err := NewBedrock(cfg)
	check.OK(t, err)
	if cfg.HTTPClient == nil {
		t.Cleanup(b.client.CloseIdleConnections)
	}
	return b
}

// converseRequest is all that a request may hold here.
type converseRequest struct {
	System     []conversePiece
	Messages   []converseTurn
	ToolConfig *struct {
		Tools []struct {
			ToolSpec struct {
				Name        string
				Description *string
				InputSchema struct{ JSON map[string]any }
				Strict      bool
			}
		}
		ToolChoice struct {
			Any  *struct{}
			Tool *struct{ Name string }
		}
	}
	InferenceConfig struct {
		MaxTokens         int
		Temperature, TopP *float64
		StopSequences     []string
	}
}

type converseTurn struct {
	Role    string
	Content []conversePiece
}

// conversePiece has one of its members.
type conversePiece struct {
	Text  *string
	Image *struct {
		Format string
		Source struct{ Bytes []byte }
	}
	ToolUse *struct {
		ToolUseID, Name string
		Input           map[string]any
	}
	ToolResult *struct {
		ToolUseID string
		Content   []conversePiece
	}
}

func (p conversePiece) hasText() bool { return p.Text != nil && strings.TrimSpace(*p.Text) != "" }

// judgeBedrock has the rules of Converse: what it demands and what it refuses.
func judgeBedrock(t *testing.T, r *http.Request, body []byte) {
	err := converseWrong(r, body)
	check.That(t, err == nil, "%v: %s", err, body)
}

func converseWrong(r *http.Request, body []byte) error {
	auth := r.Header.Get("Authorization")
	switch {
	case r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/model/") ||
		!strings.HasSuffix(r.URL.Path, "/converse") && !strings.HasSuffix(r.URL.Path, "/converse-stream"):
		return fmt.Errorf("%s %s", r.Method, r.URL)
	case !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKID/") || !strings.Contains(auth, "/eu-west-1/bedrock/aws4_request"):
		return fmt.Errorf("signed %q", auth)
	}
	var req converseRequest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return err
	}
	if req.InferenceConfig.MaxTokens < 1 {
		return errors.New("no maxTokens")
	}
	if t := req.InferenceConfig.Temperature; t != nil && *t > 1 {
		return fmt.Errorf("temperature %g", *t)
	}
	if len(req.Messages) == 0 {
		return errors.New("no messages")
	}
	for _, p := range req.System {
		if !p.hasText() {
			return errors.New("blank system")
		}
	}
	if c := req.ToolConfig; c != nil {
		if len(c.Tools) == 0 {
			return errors.New("no tools")
		}
		for _, tool := range c.Tools {
			if s := tool.ToolSpec; !isWord(s.Name, 64, nameAlphabet) || s.InputSchema.JSON["type"] != "object" || s.Description != nil && *s.Description == "" {
				return fmt.Errorf("tool %+v", s)
			}
		}
	}
	var open []string // calls of the turn before
	for i, m := range req.Messages {
		if want := [...]string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			return fmt.Errorf("message %d of %q with %d blocks", i, m.Role, len(m.Content))
		}
		var calls []string
		for j, p := range m.Content {
			user, ok := m.Role == "user", p.hasText()
			switch {
			case p.Image != nil:
				ok = user && slices.Contains([]string{"png", "jpeg", "gif", "webp"}, p.Image.Format) && len(p.Image.Source.Bytes) > 0
			case p.ToolUse != nil:
				ok = !user && isWord(p.ToolUse.ToolUseID, 64, nameAlphabet) && isWord(p.ToolUse.Name, 64, nameAlphabet) && p.ToolUse.Input != nil && req.ToolConfig != nil
				calls = append(calls, p.ToolUse.ToolUseID)
			case p.ToolResult != nil:
				at := slices.Index(open, p.ToolResult.ToolUseID)
				if ok = at >= 0 && len(p.ToolResult.Content) == 1 && p.ToolResult.Content[0].hasText() && (j == 0 || m.Content[j-1].ToolResult != nil); ok {
					open = slices.Delete(open, at, at+1)
				}
			}
			if !ok {
				return fmt.Errorf("block %d of message %d", j, i)
			}
		}
		if len(open) > 0 {
			return fmt.Errorf("no results of %v", open)
		}
		open = calls
	}
	return nil
}

func TestBedrockRequestOnTheWire(t *testing.T) {
	req := Request{
		Model: "arn:aws:bedrock:eu-west-1:1:inference-profile/m",
		Messages: []openai.Message{
			{Role: "system", Content: "a < b & c"}, {Role: "assistant", Content: "Hello!"}, {Role: "user", Content: "\"hé\"\n"}, {Role: "user", Content: " \n"}, {Role: "user", Content: "two"},
			{Role: "assistant", Content: ""}, {Role: "developer", Content: "and"}, {Role: "assistant", Content: "so"},
		},
		MaxOutputTokens: 7, Sampling: openai.Sampling{Stop: []string{"<|end|>"},
			Temperature: ptr(1.5), TopP: ptr(0.7), Seed: ptr(int64(1)), PresencePenalty: ptr(1.0), FrequencyPenalty: ptr(1.0)},
	}
	want := `{"system":[{"text":"a < b & c"},{"text":"and"}],` +
		`"messages":[{"role":"user","content":[{"text":"..."}]},{"role":"assistant","content":[{"text":"Hello!"}]},` +
		`{"role":"user","content":[{"text":"\"hé\"\n"},{"text":"two"}]},{"role":"assistant","content":[{"text":"so"}]}],` +
		`"inferenceConfig":{"maxTokens":7,"stopSequences":["<|end|>"],"temperature":1,"topP":0.7}}`
	for _, stream := range []bool{false, true} {
		var path string
		var got any
		url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			path = r.URL.EscapedPath()
			if err := converseWrong(r, body); err != nil {
				t.Error(err)
			}
			if err := json.Unmarshal(body, &got); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusTeapot)
		})
		req.Stream = stream
		_, err := call(t.Context(), t, newBedrock(t, BedrockConfig{BaseURL: strings.TrimSuffix(url, "/v1")}), req)
		wantFailure(t, err, Failed, http.StatusTeapot)
		var wanted any
		check.OK(t, json.Unmarshal([]byte(want), &wanted))
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Error(diff)
		}
		operation := map[bool]string{false: "/converse", true: "/converse-stream"}[stream]
		if want := "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A1%3Ainference-profile%2Fm" + operation; path != want {
			t.Errorf("sent to %s, want %s", path, want)
		}
	}
}

func TestNewBedrockRefuses(t *testing.T) {
	some := aws.AnonymousCredentials{}
	for _, cfg := range []BedrockConfig{
		{},
		{Region: "eu-west-1"},
		{Credentials: some},
		{Region: "eu-west-1", Credentials: some, BaseURL: "bedrock"},
		{Region: "eu-west-1", Credentials: some, BaseURL: "https://user:" + testKey + "@h"},
	} {
		_, err := NewBedrock(cfg)
		if err == nil {
			t.Errorf("%+v is accepted", cfg)
		} else if strings.Contains(err.Error(), testKey) {
			t.Errorf("%q contains the key", err)
		}
	}
}

// Without a base URL the region's own endpoint is called, whatever the environment
// says.
func TestBedrockEndpoint(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://127.0.0.1:1")
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "other")
	var host, auth string
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		host, auth = r.URL.Host, r.Header.Get("Authorization")
		return nil, errors.New("no route")
	})}
	_, err := call(t.Context(), t, newBedrock(t, BedrockConfig{HTTPClient: client}), request(false))
	wantFailure(t, err, Broken, 0) // who knows what a transport of another kind has sent
	check.That(t, host == "bedrock-runtime.eu-west-1.amazonaws.com" && strings.HasPrefix(auth, "AWS4-HMAC-SHA256"), "called %s with %q", host, auth)
}

func TestBedrockWithoutCredentials(t *testing.T) {
	url, calls := server(t, func(http.ResponseWriter, *http.Request) {})
	b := newBedrock(t, BedrockConfig{BaseURL: url, Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("expired")
	})})
	for _, stream := range []bool{false, true} {
		_, err := call(t.Context(), t, b, request(stream))
		wantFailure(t, err, Unreachable, 0)
		check.That(t, calls.Load() == 0 && strings.Contains(err.Error(), "expired"), "%v after %d requests", err, calls.Load())
	}
}

func TestBedrockStreams(t *testing.T) {
	start, text, stop, metadata := converseStream1[0], converseStream1[1]+converseStream1[2], converseStream1[4], converseStream1[5]
	stopped := func(reason string) string { return frame("event", "messageStop", `{"stopReason":`+reason+`}`) }
	used := func(usage string) string {
		return frame("event", "metadata", `{"metrics":{"latencyMs":1},"usage":`+usage+`}`)
	}
	known := &price.Usage{Input: 9, Output: 5}
	exception := func(name string) string { return frame("exception", name, `{"message":"PROMPT"}`) }
	unmodelled := eventstream.Message{}
	unmodelled.Headers.Set(":message-type", eventstream.StringValue("error"))
	unmodelled.Headers.Set(":error-code", eventstream.StringValue("Internal"))
	unmodelled.Headers.Set(":error-message", eventstream.StringValue(testPrompt))
	var broken bytes.Buffer
	check.OK(t, eventstream.NewEncoder().Encode(&broken, unmodelled))
	for _, tt := range []struct {
		name, body string
		want       Part
		failure    string // "" if it succeeds
	}{
		{"at its cap", start + text + stopped(`"max_tokens"`) + metadata, answered("length", known), ""},
		{"context full", start + text + stopped(`"model_context_window_exceeded"`) + metadata, answered("length", known), ""},
		{"stop sequence", start + text + stopped(`"stop_sequence"`) + metadata, answered("stop", known), ""},
		{"filtered", start + text + stopped(`"content_filtered"`) + metadata, answered("content_filter", known), ""},
		{"guardrail", start + text + stopped(`"guardrail_intervened"`) + metadata, answered("content_filter", known), ""},
		{"a reason of its own", start + text + stopped(`"new_reason"`) + metadata, unknown("new_reason", known), ""},
		{"a reason that is a failure", start + text + stopped(`"malformed_model_output"`) + metadata, answered("", known), "error instead of an answer, code malformed_model_output"},
		{"a failure, and no usage", start + text + stopped(`"error"`), answered("", nil), "error instead of an answer, code error"},
		{"usage, then an error", start + text + metadata + exception("modelStreamErrorException"), answered("", known), "error instead of an answer, code ModelStreamErrorException"},
		{"a reason that is prose", start + text + stopped(`"ANSWER it is"`) + metadata, unknown("other", known), ""},
		{"cache", start + text + stop + used(`{"inputTokens":9,"outputTokens":50,"totalTokens":149,"cacheReadInputTokens":60,"cacheWriteInputTokens":30,`+
			`"cacheDetails":[{"inputTokens":30,"ttl":"5m"}]}`),
			answered("stop", &price.Usage{Input: 99, CachedInput: 60, CacheWrite: 30, Output: 50}), ""},
		{"reasoning", start + frame("event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"PROMPT"}}}`) +
			frame("event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"PROMPT"}}}`) + text + stop + metadata,
			Part{Content: testAnswer, Reasoning: testPrompt, FinishReason: "stop", Usage: known}, ""},
		{"unknown events", start + frame("event", "newThing", `{"text":"PROMPT"}`) + text + stop + metadata, answered("stop", known), ""},
		{"usage before the stop", start + text + metadata + stop, answered("stop", known), ""},
		{"usage in the second metadata", start + text + stop + frame("event", "metadata", `{"metrics":{"latencyMs":1}}`) + metadata, answered("stop", known), ""},
		{"after the end comes nothing", start + text + stop + metadata + text, answered("stop", known), ""},
		{"after the end comes an error", start + text + stop + metadata + exception("modelStreamErrorException"), answered("stop", known), ""},

		{"no usage", start + text + stop, answered("stop", nil), "answer ended early"},
		{"usage that cannot be true", start + text + stop + used(`{"inputTokens":-9,"outputTokens":5,"totalTokens":14}`), answered("stop", nil), "answer ended early"},
		{"no output for text", start + text + stop + used(`{"inputTokens":9,"outputTokens":0,"totalTokens":9}`), answered("stop", nil), "answer ended early"},
		{"no stop", start + text + metadata, answered("", known), "answer ended early"},
		{"throttled", start + text + exception("throttlingException"), Part{Content: testAnswer}, "error instead of an answer, code ThrottlingException"},
		{"model failed", start + text + exception("modelStreamErrorException"), Part{Content: testAnswer}, "error instead of an answer, code ModelStreamErrorException"},
		{"invalid", exception("validationException"), Part{}, "error instead of an answer, code ValidationException"},
		{"unknown exception", start + text + exception("newException"), Part{Content: testAnswer}, "error instead of an answer, code NewException"},
		{"unmodelled error", start + text + broken.String(), Part{Content: testAnswer}, "error instead of an answer, code Internal"},
		{"bad checksum", start + text + stop[:len(stop)-1] + "\x00" + metadata, Part{Content: testAnswer}, "malformed answer"},
		{"bad JSON", start + text + frame("event", "metadata", "{PROMPT") + stop + metadata, Part{Content: testAnswer}, "malformed answer"},
		{"bad checksum after all", start + text + stop + metadata[:len(metadata)-1] + "\x00", answered("stop", nil), "malformed answer"}, // which takes nothing from the text
		{"usage, then a bad checksum", start + text + metadata + stop[:len(stop)-1] + "\x00", Part{Content: testAnswer, Usage: known}, "malformed answer"},
		{"members of other kinds", frame("event", "messageStart", `[]`) + frame("event", "contentBlockDelta", `{"contentBlockIndex":"0","delta":{"text":["AN",{"text":"SW"}],"reasoningContent":7}}`) +
			frame("event", "contentBlockDelta", `{"delta":null}`) + frame("event", "contentBlockDelta", "") + frame("event", "contentBlockDelta", `{"delta":{"text":"ER"},"usage":[]}`) + stop + metadata, answered("stop", known), ""},
		{"unknown blocks", start + frame("event", "contentBlockStart", `{"start":{"newUse":{"name":"PROMPT"}}}`) + frame("event", "contentBlockDelta", `{"delta":{"newUse":{"input":"PROMPT"}}}`) +
			frame("event", "contentBlockDelta", `{"delta":{"reasoningContent":{"redactedContent":"?"}}}`) + text + stop + metadata, answered("stop", known), ""},
		{"a reason in capitals", start + text + stopped(`"MAX_TOKENS"`) + metadata, answered("length", known), ""},
		{"a reason of another kind", start + text + stopped(`7`) + metadata, unknown("7", known), ""},
		{"usage of the stop", start + text + frame("event", "messageStop", `{"stopReason":"end_turn","usage":{"inputTokens":9,"outputTokens":5.0}}`), answered("stop", known), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := bedrockDialect
			url, calls := d.serve(t, d.answer(true, tt.body))
			got, err := call(t.Context(), t, d.make(t, url, nil), request(true))
			if tt.failure != "" {
				wantFailure(t, err, Broken, 200)
				want := "provider broken (status 200): " + tt.failure
				check.That(t, err.Error() == want, "%v, want %s", err, want)
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

// An endless stream is given up, and so is an event without end.
func TestBedrockStreamsAreBounded(t *testing.T) {
	large := frame("event", "contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"`+strings.Repeat("a", 1<<18)+`"}}`)
	endless := []byte(large)
	copy(endless, "\xff\xff\xff\xf0\x00\x00\x00\x00") // 4 GB without headers
	binary.BigEndian.PutUint32(endless[8:], crc32.ChecksumIEEE(endless[:8]))
	for name, first := range map[string]string{"events": large, "one event": string(endless)} {
		t.Run(name, func(t *testing.T) {
			d := bedrockDialect
			url, _ := d.serve(t, func(w http.ResponseWriter, r *http.Request) {
				d.answer(true, first)(w, r)
				for {
					if _, err := io.WriteString(w, large); err != nil {
						return
					}
				}
			})
			a, err := d.make(t, url, nil).Call(t.Context(), request(true))
			check.OK(t, err)
			defer a.Close()
			for err == nil {
				_, err = a.Next()
			}
			wantSafe(t, err)
			check.That(t, errors.Is(err, errTooLarge), "got %v, want %v", err, errTooLarge)
		})
	}
}

func TestBedrockWhole(t *testing.T) {
	body := func(content, reason, usage string) string {
		return `{"output":{"message":{"role":"assistant","content":` + content + `}},"stopReason":` + reason + `,"usage":` + usage + `}`
	}
	const usage = `{"inputTokens":9,"outputTokens":5,"totalTokens":14}`
	for _, tt := range []struct {
		name, body string
		want       Part
		failure    string
	}{
		{"blocks", body(`[{"reasoningContent":{"reasoningText":{"text":"PROMPT"}}},{"text":"ANS"},{"reasoningContent":{"redactedContent":"UFJPTVBU"}},{"text":"WER"}]`, `"max_tokens"`, usage),
			Part{Content: testAnswer, Reasoning: testPrompt, FinishReason: "length", Usage: &price.Usage{Input: 9, Output: 5}}, ""},
		{"nothing said", body(`[]`, `"guardrail_intervened"`, `{"inputTokens":9,"outputTokens":0,"totalTokens":9}`),
			Part{FinishReason: "content_filter", Usage: &price.Usage{Input: 9}}, ""},
		{"no usage", body(`[{"text":"ANSWER"}]`, `"end_turn"`, `null`), Part{Content: testAnswer, FinishReason: "stop"}, ""},
		{"no stop reason", body(`[]`, `null`, usage), Part{Usage: &price.Usage{Input: 9, Output: 5}}, "answer ended early"},
		{"a stop reason that is a failure", body(`[{"text":"ANSWER"}]`, `"malformed_model_output"`, usage),
			answered("", &price.Usage{Input: 9, Output: 5}), "error instead of an answer, code malformed_model_output"},
		{"no output", `{"stopReason":"end_turn","usage":` + usage + `}`, Part{Usage: &price.Usage{Input: 9, Output: 5}}, "malformed answer"},
		{"text of another kind", body(`[{"text":["ANSWER"]},7,{"newUse":{"name":"PROMPT"}}]`, `"end_turn"`, usage), answered("stop", &price.Usage{Input: 9, Output: 5}), ""},
		{"all of another kind", body(`[{"text":["ANSWER"]}]`, `7`, `[7]`), unknown("7", nil), ""},
		{"no stop reason, but text", body(`[{"text":"ANSWER"}]`, `null`, usage), unknown("none", &price.Usage{Input: 9, Output: 5}), ""},
		{"usage that no model can have", body(`[{"text":"ANSWER"}]`, `"end_turn"`, `{"inputTokens":9,"outputTokens":2147483647,"totalTokens":2147483647}`),
			answered("stop", &price.Usage{Input: 9, Output: 1<<31 - 1}), ""}, // for who knows the model's context to refuse
		{"usage beyond 32 bits", body(`[{"text":"ANSWER"}]`, `"end_turn"`, `{"inputTokens":4294967305,"outputTokens":5,"totalTokens":14}`),
			answered("stop", &price.Usage{Input: 4294967305, Output: 5}), ""},
		{"usage that is negative", body(`[{"text":"ANSWER"}]`, `"end_turn"`, `{"inputTokens":-9,"outputTokens":5}`), answered("stop", nil), ""},
		{"cut", converseWhole[:len(converseWhole)-1], Part{}, "malformed answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := bedrockDialect
			url, calls := d.serve(t, d.answer(false, tt.body))
			got, err := call(t.Context(), t, d.make(t, url, nil), request(false))
			if tt.failure != "" {
				wantFailure(t, err, Broken, 200)
				want := "provider broken (status 200): " + tt.failure
				check.That(t, err.Error() == want, "%v, want %s", err, want)
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

func FuzzBedrockAnswer(f *testing.F) {
	f.Add(converseWhole, false)
	f.Add(strings.Join(converseStream1, ""), true)
	f.Add(converseStream1[0]+bedrockDialect.failing, true)
	f.Fuzz(func(t *testing.T, body string, stream bool) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			h := http.Header{"Content-Type": {map[bool]string{false: bedrockDialect.wholeType, true: bedrockDialect.streamType}[stream]}}
			return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})}
		p, err := call(t.Context(), t, newBedrock(t, BedrockConfig{HTTPClient: client}), request(stream))
		if p.Usage != nil && (!p.Usage.Valid() || p.Usage.Input == 0) {
			t.Fatalf("usage %+v", *p.Usage)
		}
		checkReason(t, p)
		check.Must(t, err != io.EOF || p.FinishReason != "", "an answer without a finish reason")
	})
}
