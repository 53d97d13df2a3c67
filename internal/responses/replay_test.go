package responses

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Whatever a model says, in whatever order: who puts the events together has the response of
// the last one, in which nothing that was said is lost, and which is that of an answer in
// one piece.
func TestReplay(t *testing.T) {
	t.Parallel()
	type said struct{ text, refusal, reasoning, arguments string }
	rapid.Check(t, func(t *rapid.T) {
		req, apiErr := Parse([]byte(with("")))
		check.Must(t, apiErr == nil, "%+v", apiErr)
		streamed, whole := req.Answer(Head{ID: "x"}), req.Answer(Head{ID: "x"})
		stream, want := string(streamed.Begin()), said{}
		left := [][]string{{`{"a`, `":`, ` 1`, `}`}, {``, `{}`}, {`[`, `"not`, ` closed`}, {``}}
		for range rapid.IntRange(0, 20).Draw(t, "pieces") {
			word := rapid.SampledFrom([]string{"a", " b", "<&>", "\n\n", "\u2028", "data: x"}).Draw(t, "word")
			d := &openai.Delta{}
			switch n := rapid.IntRange(0, 3).Draw(t, "kind"); n {
			case 0:
				d, want.text = content(word), want.text+word
			case 1:
				d, want.refusal = refusal(word), want.refusal+word
			case 2:
				d, want.reasoning = reasoning(word), want.reasoning+word
			case 3:
				at := rapid.IntRange(0, len(left)-1).Draw(t, "call")
				if len(left[at]) == 0 {
					continue
				}
				d = piece(at, fmt.Sprint("call_", at), "f", left[at][0])
				want.arguments += left[at][0]
				left[at] = left[at][1:]
			}
			stream += string(streamed.Add(d))
			whole.Add(d)
		}
		last := Last{FinishReason: rapid.SampledFrom([]string{"stop", "length", "content_filter", "tool_calls"}).Draw(t, "finish")}
		stream += string(streamed.End(last))
		whole.End(last)
		check.Diff(t, cmp.Diff(string(openai.Encode(whole.Response())), string(openai.Encode(streamed.Response()))), "in one piece")

		// As OpenAI's clients put them together.
		var output []map[string]any
		var final map[string]any
		for n, text := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
			_, data, _ := strings.Cut(text, "\ndata: ")
			var e struct {
				Type     string         `json:"type"`
				Number   int            `json:"sequence_number"`
				At       int            `json:"output_index"`
				Content  int            `json:"content_index"`
				Delta    string         `json:"delta"`
				Item     map[string]any `json:"item"`
				Part     map[string]any `json:"part"`
				Response map[string]any `json:"response"`
			}
			err := json.Unmarshal([]byte(data), &e)
			check.Must(t, err == nil && e.Number == n, "%v: event %d is %q", err, n, text)
			part := func(list, member string) {
				p := output[e.At][list].([]any)[e.Content].(map[string]any)
				p[member] = p[member].(string) + e.Delta
			}
			switch e.Type {
			case "response.output_item.added":
				check.Must(t, e.At == len(output), "item %d is added as %d", len(output), e.At)
				output = append(output, e.Item)
			case "response.content_part.added":
				output[e.At]["content"] = append(output[e.At]["content"].([]any), e.Part)
			case "response.reasoning_summary_part.added":
				output[e.At]["summary"] = append(output[e.At]["summary"].([]any), e.Part)
			case "response.output_text.delta":
				part("content", "text")
			case "response.refusal.delta":
				part("content", "refusal")
			case "response.reasoning_summary_text.delta":
				part("summary", "text")
			case "response.function_call_arguments.delta":
				output[e.At]["arguments"] = output[e.At]["arguments"].(string) + e.Delta
			case "response.output_item.done":
				state := e.Item["status"]
				if state != nil {
					check.That(t, state == "completed" || state == "incomplete", "item %d ends %v", e.At, state)
					output[e.At]["status"] = state
				}
				check.Diff(t, cmp.Diff(output[e.At], e.Item), "item %d", e.At)
			case "response.completed", "response.incomplete":
				final = e.Response
			}
		}
		var got said
		items, _ := final["output"].([]any)
		check.Must(t, len(items) == len(output), "%d items were told of, the response has %d", len(output), len(items))
		calls := map[string]string{}
		for i, item := range items {
			check.Diff(t, cmp.Diff(any(output[i]), item), "item %d of the response", i)
			for _, list := range []string{"content", "summary"} {
				parts, _ := output[i][list].([]any)
				for _, p := range parts {
					text, _ := p.(map[string]any)["text"].(string)
					refusal, _ := p.(map[string]any)["refusal"].(string)
					got.refusal += refusal
					if list == "summary" {
						got.reasoning += text
					} else {
						got.text += text
					}
				}
			}
			if id, ok := output[i]["call_id"].(string); ok {
				calls[id] = output[i]["arguments"].(string)
				got.arguments += calls[id]
			}
		}
		check.Equal(t, len(got.arguments), len(want.arguments), "bytes of arguments")
		got.arguments, want.arguments = "", ""
		check.Equal(t, got, want, "what was said")
	})
}
