package chatapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const responsesPath = "/v1/responses"

// cvResponse is cvCall for the Responses API.
func cvResponse(prompt string, stream bool) string {
	return fmt.Sprintf(`{"model":"cv","stream":%t,"max_output_tokens":%d,"input":%q}`, stream, cvCap, prompt)
}

// respond posts a request for a response.
func (g *rig) respond(token, body string) answer {
	g.t.Helper()
	return g.do(g.request(http.MethodPost, responsesPath, token, body))
}

// eventsOf are the types of a stream's events; repeated ones stand once. last is the data of
// the last.
func eventsOf(t *testing.T, body string) (types []string, last map[string]any) {
	t.Helper()
	n := 0
	for _, text := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		if strings.HasPrefix(text, ":") {
			continue
		}
		name, data, _ := strings.Cut(text, "\ndata: ")
		last = nil
		err := json.Unmarshal([]byte(data), &last)
		check.Must(t, err == nil && name == "event: "+last["type"].(string) && last["sequence_number"] == float64(n), "%v: event %d is %q", err, n, text)
		if kind := strings.TrimPrefix(last["type"].(string), "response."); len(types) == 0 || types[len(types)-1] != kind {
			types = append(types, kind)
		}
		n++
	}
	return types, last
}

// A call of a function is an answer: it is told event by event, and uses the quota.
func TestResponsesCall(t *testing.T) {
	t.Parallel()
	eachWay(t, both, func(t *testing.T, stream bool) {
		g := newRig(t, func(yaml string) string {
			return strings.Replace(yaml, "quota: {capacity: 3,", "allow: [tools], quota: {capacity: 3,", 1)
		})
		g.freeze(0)
		token := g.token("123", "")
		const tools = `,"tools":[{"type":"function","name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]}`
		a := g.respond(token, strings.TrimSuffix(cvResponse("The weather?", stream), "}")+tools)
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		var r map[string]any
		if stream {
			types, last := eventsOf(t, a.body)
			check.Diff(t, cmp.Diff([]string{"created", "in_progress", "output_item.added", "function_call_arguments.delta",
				"function_call_arguments.done", "output_item.done", "completed"}, types), "events")
			r = last["response"].(map[string]any)
		} else {
			check.OK(t, json.Unmarshal([]byte(a.body), &r))
		}
		call := r["output"].([]any)[0].(map[string]any)
		check.That(t, call["type"] == "function_call" && call["name"] == "get_weather" && call["arguments"] == `{"city":"text"}` && call["call_id"] != "" && r["notice"] == nil, "%v", r)
		g.wantSettled(token, settled{paysBilled, 1, hasBilled, ledger.Completed}, g.upstream.Calls()[0].Billed)
	})
}

// An answer says what was said, in one piece and as the last event of a stream, and in its
// headers what chat completions say.
func TestResponses(t *testing.T) {
	t.Parallel()
	eachWay(t, both, func(t *testing.T, stream bool) {
		g := setup{model: answering(`{"prompt_tokens":40,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}`)}.newRig(t)
		g.freeze(0)
		a := g.respond(g.token("123", ""), cvResponse("Hi.", stream))
		check.Must(t, a.status == http.StatusOK, "%d %s", a.status, a.body)
		var r map[string]any
		kind := "application/json"
		if stream {
			_, last := eventsOf(t, a.body)
			r, kind = last["response"].(map[string]any), "text/event-stream; charset=utf-8"
			limits := string(openai.Encode(r["limits"]))
			check.That(t, strings.Contains(limits, `"name":"cv"`) && strings.Contains(limits, `"remaining":49958`), "limits %s", limits)
			delete(r, "limits")
		} else {
			check.OK(t, json.Unmarshal([]byte(a.body), &r))
		}
		check.That(t, a.header.Get("Content-Type") == kind && a.header.Get("RateLimit") != "" && a.header.Get("X-Max-Output-Tokens") == strconv.Itoa(cvCap), "%v", a.header)
		id, _ := strings.CutPrefix(r["id"].(string), "resp_")
		check.Equal(t, id, g.spendEvents()[0].Reservation, "the id is that of the reservation")
		want := decodeJSON(t, `{"input_tokens":40,"input_tokens_details":{"cached_tokens":8,"cache_write_tokens":0},"output_tokens":2,
			"output_tokens_details":{"reasoning_tokens":0},"total_tokens":42}`)
		check.Diff(t, cmp.Diff(want, decodeJSON(t, string(openai.Encode(r["usage"])))), "usage")
		check.Diff(t, cmp.Diff(decodeJSON(t, `[{"type":"message","id":"msg_`+id+`_0","status":"completed","role":"assistant",
			"content":[{"type":"output_text","text":"Hello there","annotations":[],"logprobs":[]}]}]`), r["output"]), "output")
		at := float64(g.now().Unix())
		check.That(t, r["model"] == "cv" && r["status"] == "completed" && r["store"] == false && r["max_output_tokens"] == float64(cvCap) && r["created_at"] == at && r["completed_at"] == at, "%v", r)
	})
}

// What is refused before a call is named as it was written.
func TestResponsesRefused(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	user := g.token("123", "")
	for _, tt := range []struct {
		body        string
		code        openai.Code
		param, says string
	}{
		{`{"model":"cv","input":"Hi","instructions":"Be brief."}`, openai.InvalidValue, "instructions", "instructions cannot be given: cv has its own instructions."},
		{`{"model":"cv","input":[{"role":"user","content":"Hi"},{"type":"reasoning","summary":[]},{"role":"developer","content":"D"}]}`, openai.InvalidValue, "input[2].role", "input[2].role must be user or assistant: cv has its own instructions."},
		{`{"model":"cv","input":"Hi","text":{"format":{"type":"json_object"}}}`, openai.UnsupportedParameter, "text.format", "text.format is supported by cv only as text."},
		{`{"model":"cv","input":"` + strings.Repeat("a b ", 4000) + `"}`, openai.InputTooLong, "input", ""},
		{`{"model":"nope","input":"Hi"}`, openai.ModelNotFound, "model", ""},
		{`{"model":"cv","input":"Hi","previous_response_id":"resp_1"}`, openai.UnsupportedParameter, "previous_response_id", ""},
		{`{`, openai.InvalidJSON, "", ""},
	} {
		a := g.respond(user, tt.body)
		g.refused(t, a, tt.code, tt.param)
		check.That(t, tt.says == "" || g.wireError(a).Message == tt.says, "%q, want %q", g.wireError(a).Message, tt.says)
	}
	g.untouched(t)
}

// What the provider finds wrong is named so, too.
func TestResponsesBlamed(t *testing.T) {
	t.Parallel()
	const refusal = `{"error":{"message":"x","type":"invalid_request_error","code":"unsupported_parameter","param":"response_format"}}`
	g := setup{model: modelOf(400, "application/json", refusal, refusal)}.newRig(t)
	a := g.respond(g.token("123", ""), `{"model":"open","input":"Hi","text":{"format":{"type":"json_object"}}}`)
	e := g.wireError(a)
	check.That(t, e.Code == string(openai.UnsupportedParameter) && value(e.Param) == "text.format" && strings.HasPrefix(e.Message, "The model does not take text.format."), "%d %s", a.status, a.body)
}

// Whoever leaves a response pays as whoever leaves a chat completion.
func TestLeaveResponses(t *testing.T) {
	t.Parallel()
	for writes, want := range []settled{
		leftWithNothing,
		leftWithNothing, // that it has begun is no content
		leftWithSome,
		leftWithSome,
	} {
		t.Run(strconv.Itoa(writes), func(t *testing.T) {
			t.Parallel()
			f := newFront(t, nil, longTimeout)
			f.path = responsesPath
			f.ServeHTTP(&deaf{httptest.NewRecorder(), writes}, f.request(http.MethodPost, f.path, f.token, cvResponse("Hi.", true)))
			f.wantLeft(want)
		})
	}
	t.Run("in Lambda", func(t *testing.T) {
		t.Parallel()
		f := newFront(t, nil, longTimeout)
		f.path = responsesPath
		answer, err := f.gateway(t.Context(), cvResponse("Hi.", true))
		check.OK(t, err)
		readUntil(t, bufio.NewReaderSize(answer.Body, 16), `"delta":" is"`)
		check.OK(t, answer.Body.(io.Closer).Close())
		f.wantLeft(leftWithSome)
	})
}

// Comments keep a stream open before its first event; a failure after them is told by events.
func TestSilentResponses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pieces []string
		events []string
		want   settled
	}{
		"answered": {[]string{contentEvent + finishEvent + usageEvent}, []string{"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
			"output_text.done", "content_part.done", "output_item.done", "completed"}, settled{paysBilled, 1, hasBilled, ledger.Completed}},
		"failed": {[]string{"data: ?\n\n"}, []string{"created", "in_progress", "error", "failed"}, settled{paysNothing, 0, hasWorst, ledger.Failed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			f := newQuietFront(t, aMoment, pausing(next, tt.pieces...))
			f.path = responsesPath
			a, err := f.gateway(t.Context(), cvResponse("Hi.", true))
			check.OK(t, err)
			var all strings.Builder
			r := bufio.NewReader(io.TeeReader(a.Body, &all))
			readUntil(t, r, ": waiting")
			next <- struct{}{}
			_, err = io.Copy(io.Discard, r)
			check.OK(t, err)
			types, _ := eventsOf(t, all.String())
			check.Diff(t, cmp.Diff(tt.events, types), "events")
			await(t, f.returned, "the handler returns")
			billed := price.Usage{Input: f.cvInput()}
			if tt.want.ledger == hasBilled {
				billed = price.Usage{Input: 40, Output: 2}
			}
			f.wantSettled(f.token, tt.want, billed)
		})
	}
}
