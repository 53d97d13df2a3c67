package provider

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// canned is a client that answers with body without a network.
func canned(contentType, body string) *http.Client {
	return &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})}
}

// BenchmarkAnswer reads an answer as OpenAI sends it: of 200 chunks with text, or with the
// arguments of a call, and in one piece.
func BenchmarkAnswer(b *testing.B) {
	chunk := `data: {"id":"chatcmpl-x","object":"chat.completion.chunk","created":1793000000,"model":"gpt-4.1-mini-2026-04-14","service_tier":"default",` +
		`"system_fingerprint":"fp_x","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"abc"}` + "\n\n"
	for _, bb := range []struct {
		name, contentType, body string
	}{
		{"called", "text/event-stream", roleEvent + strings.Replace(strings.Repeat(strings.Replace(chunk, `"content":" word"`, `"tool_calls":[{"index":0,"function":{"arguments":" word"}}]`, 1), 200),
			`"function":{`, `"id":"call_1","type":"function","function":{"name":"f",`, 1) + finishEvent + usageEvent + doneEvent},
		{"streamed", "text/event-stream", roleEvent + strings.Repeat(chunk, 200) + finishEvent + usageEvent + doneEvent},
		{"whole", "application/json", strings.Replace(wholeAnswer, testAnswer, strings.Repeat(" word", 200), 1)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			o, err := NewOpenAI(OpenAIConfig{BaseURL: "http://provider.test", HTTPClient: canned(bb.contentType, bb.body)})
			check.OK(b, err)
			b.ReportAllocs()
			for b.Loop() {
				a, err := o.Call(b.Context(), request(bb.name != "whole"))
				for err == nil {
					_, err = a.Next()
				}
				check.Must(b, err == io.EOF, "%v", err)
			}
		})
	}
}
