package upstream

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/tokens"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// embedded is an answer with vectors.
type embedded struct {
	vectors [][]float32
	tokens  int
}

func embed(t *testing.T, url, fields string) (e embedded) {
	t.Helper()
	status, header, answer := postTo(t, url+"/v1/embeddings", `{"model":"text-embedding-3-small",`+fields+`}`)
	check.Must(t, status == 200 && header.Get("Content-Type") == "application/json", "%.200s: status %d, %s", fields, status, answer)
	var list struct {
		Object, Model string
		Data          []struct {
			Object    string
			Index     int
			Embedding json.RawMessage
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Total  int `json:"total_tokens"`
		}
	}
	check.OK(t, json.Unmarshal([]byte(answer), &list))
	check.That(t, list.Object == "list" && list.Model == "text-embedding-3-small" && list.Usage.Prompt == list.Usage.Total, "%.200s", answer)
	e.tokens = list.Usage.Total
	for i, d := range list.Data {
		check.That(t, d.Object == "embedding" && d.Index == i, "%d: %+v", i, d.Object)
		var vector []float32
		if d.Embedding[0] == '"' {
			var text string
			check.OK(t, json.Unmarshal(d.Embedding, &text))
			raw, err := base64.StdEncoding.DecodeString(text)
			check.OK(t, err)
			vector = make([]float32, len(raw)/4)
			_, err = binary.Decode(raw, binary.LittleEndian, vector)
			check.OK(t, err)
		} else {
			check.OK(t, json.Unmarshal(d.Embedding, &vector))
		}
		check.That(t, math.Abs(cosine(vector, vector)-1) < 1e-5, "%d is no unit vector: %v", i, cosine(vector, vector))
		e.vectors = append(e.vectors, vector)
	}
	return e
}

func cosine(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// The vectors tell what texts have in common, in the order in which the texts stand.
func TestEmbeddings(t *testing.T) {
	u, url := serve(t, Options{})
	cl100k, err := tokens.New("cl100k_base")
	check.OK(t, err)
	texts := []string{"How do I reset my password?", "reset my PASSWORD", "Opening hours on Sundays", "?!", "naïve 😀"}
	input, _ := json.Marshal(texts)
	all := embed(t, url, `"input":`+string(input))
	want := 0
	for i, text := range texts {
		want += cl100k.Count(text)
		one := embed(t, url, fmt.Sprintf(`"input":%q,"user":"u"`, text))
		check.That(t, slices.Equal(one.vectors[0], all.vectors[i]) && len(one.vectors) == 1 && len(one.vectors[0]) == 1536 && one.tokens == cl100k.Count(text), "%s: %d tokens", text, one.tokens)
		short := embed(t, url, fmt.Sprintf(`"input":[%q],"dimensions":256,"encoding_format":"base64"`, text)).vectors[0]
		check.That(t, len(short) == 256 && cosine(short, one.vectors[0][:256]) > 0.3, "%s: %d dimensions", text, len(short))
		check.That(t, math.Abs(float64(short[9]/short[8]-one.vectors[0][9]/one.vectors[0][8])) < 1e-4, "%s: not the beginning", text)
	}
	check.That(t, all.tokens == want, "%d tokens, want %d", all.tokens, want)
	near, far := cosine(all.vectors[0], all.vectors[1]), cosine(all.vectors[0], all.vectors[2])
	check.That(t, near > 0.5 && far < 0.2, "near %v, far %v", near, far)
	check.Equal(t, len(embed(t, url, `"input":"x","dimensions":1`).vectors[0]), 1, "dimensions")

	calls := u.Calls()
	check.Equal(t, calls[0].Billed, price.Usage{Input: int64(want)}, "billed")
	check.That(t, slices.Equal(calls[0].Inputs, texts) && calls[0].Status == 200 && calls[0].PromptTokens == want, "%+v", calls[0])

	tokens := embed(t, url, `"input":[1,2,3]`)
	check.That(t, tokens.tokens == 3 && len(tokens.vectors) == 1, "%+v", tokens.tokens)
	tokens = embed(t, url, `"input":[[1,2],[3]]`)
	check.That(t, tokens.tokens == 3 && len(tokens.vectors) == 2, "%+v", tokens.tokens)
}

func TestEmbeddingsAreChecked(t *testing.T) {
	u, url := serve(t, Options{})
	input := func(input string) string { return `{"model":"text-embedding-3-small","input":` + input + `}` }
	with := func(model, more string) string { return `{"model":"` + model + `","input":"x",` + more + `}` }
	many := func(n int, input string) string { return "[" + strings.Repeat(input+",", n-1) + input + "]" }
	long := strings.Repeat(" hello", maxInputTokens)
	for _, tt := range []struct{ body, param, code, says string }{
		{`[]`, "", "invalid_json", ""},
		{`{"input":"x"}`, "model", "missing_required_parameter", ""},
		{`{"model":"m"}`, "input", "missing_required_parameter", "Missing required parameter: 'input'."},
		{input(`null`), "input", "missing_required_parameter", ""},
		{input(`""`), "input", "", "Invalid 'input': input cannot be an empty string."},
		{input(`[]`), "input", "empty_array", ""},
		{input(`["a",""]`), "input[1]", "", "Invalid 'input[1]': input cannot be an empty string."},
		{input(`["a",null]`), "input[1]", "invalid_type", ""},
		{input(`["a",1]`), "input[1]", "invalid_type", ""},
		{input(`[1,"a"]`), "input", "invalid_type", ""},
		{input(`[null]`), "input[0]", "invalid_type", ""},
		{input(`[[]]`), "input[0]", "empty_array", ""},
		{input(`[5,-1]`), "input[1]", "invalid_value", ""},
		{input(`[[5],[100277]]`), "input[1][0]", "invalid_value", ""},
		{input(`{"text":"x"}`), "input", "invalid_type", ""},
		{input(many(2049, `"a"`)), "input", "array_above_max_length", "Expected an array with maximum length 2048, but got an array with length 2049 instead."},
		{input(`"` + long + ` hello"`), "", "", "This model's maximum context length is 8192 tokens, however you requested 8193 tokens (8193 in your prompt; 0 for the completion). Please reduce your prompt; or completion length."},
		{input(many(8193, "1")), "", "", "you requested 8193 tokens"},
		{input(many(37, `"`+long+`"`)), "", "max_tokens_per_request", "Requested 303104 tokens, max 300000 tokens per request"},
		{with("text-embedding-3-small", `"dimensions":0`), "dimensions", "integer_below_min_value", ""},
		{with("text-embedding-3-small", `"dimensions":1537`), "dimensions", "", "Must be less than or equal to 1536."},
		{with("text-embedding-ada-002", `"dimensions":1536`), "dimensions", "", "This model does not support specifying dimensions."},
		{with("m", `"dimensions":"9"`), "dimensions", "invalid_type", ""},
		{with("m", `"encoding_format":"int8"`), "encoding_format", "invalid_value", "Supported values are: 'float' and 'base64'."},
		{with("m", `"user":1`), "user", "invalid_type", ""},
		{with("m", `"input_type":"query"`), "input_type", "unknown_parameter", ""},
	} {
		status, _, answer := postTo(t, url+"/v1/embeddings", tt.body)
		var got struct {
			Error struct{ Message, Type, Param, Code string }
		}
		check.OK(t, json.Unmarshal([]byte(answer), &got))
		check.That(t, status == 400 && got.Error.Param == tt.param && got.Error.Code == tt.code && strings.Contains(got.Error.Message, tt.says), "%.99s: status %d, %s", tt.body, status, answer)
	}
	calls, _ := u.Totals()
	check.Equal(t, calls, int64(0), "calls logged")
	for _, body := range []string{
		input(many(2048, `"a"`)), input(`"` + long + `"`), input(many(36, `"`+long+`"`)), input(many(8192, "1")), input(`[0,100276]`),
		with("text-embedding-3-large", `"dimensions":3072`), with("text-embedding-ada-002", `"dimensions":null,"encoding_format":null`),
	} {
		status, _, answer := postTo(t, url+"/v1/embeddings", body)
		check.That(t, status == 200, "%.99s: status %d, %.200s", body, status, answer)
	}
}

// The markers that make sense without an output work for embeddings, too.
func TestEmbeddingMarkers(t *testing.T) {
	for _, tt := range []struct {
		marker string
		status int
		says   string // in the answer; "" if it is empty or broken
		billed int64
	}{
		{"[[fail:500]]", 500, "server_error", 0},
		{"[[fail:429]]", 429, "rate_limit_exceeded", 0},
		{"[[fail:500]] [[billed]]", 500, "server_error", -1},
		{"[[fail:empty]]", 200, "", -1},
		{"[[fail:cut]]", 200, "", -1},
		{"[[fail:nousage]]", 200, `"model":"m"}`, -1},
		{"[[usage:7]]", 200, `"usage":{"prompt_tokens":7,"total_tokens":7}}`, -1},
		{"[[long]] [[fail:error]] [[over:9]]", 200, `"usage":{"prompt_tokens":`, -1},
	} {
		u, url := serve(t, Options{})
		resp, err := http.Post(url+"/v1/embeddings", "application/json", strings.NewReader(`{"model":"m","input":["first [[fail:503]]","`+tt.marker+`"]}`))
		check.OK(t, err)
		answer, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		cut := errors.Is(err, io.ErrUnexpectedEOF)
		check.That(t, resp.StatusCode == tt.status && cut == (tt.marker == "[[fail:cut]]") && cut == (err != nil), "%s: status %d, %v", tt.marker, resp.StatusCode, err)
		check.That(t, strings.Contains(string(answer), tt.says) && (tt.says != "" || cut || len(answer) == 0), "%s: %s", tt.marker, answer[max(0, len(answer)-200):])
		call := u.Calls()[0]
		if tt.billed < 0 {
			tt.billed = int64(call.PromptTokens)
		}
		check.That(t, call.Billed == price.Usage{Input: tt.billed} && call.Status == tt.status, "%s: %+v", tt.marker, call)
	}
}

// A client that leaves is billed for the input, whether the answer never came or stalled.
func TestEmbeddingsThatDoNotCome(t *testing.T) {
	for marker, status := range map[string]int{"[[fail:timeout]]": 0, "[[fail:stall]]": 200} {
		u := New(Options{})
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/embeddings", strings.NewReader(`{"model":"m","input":"`+marker+`"}`))
		r.Header.Set("Content-Type", "application/json")
		w, ended := httptest.NewRecorder(), make(chan struct{})
		go func() {
			u.ServeHTTP(w, r)
			close(ended)
		}()
		for len(u.Calls()) == 0 || u.Calls()[0].Billed == (price.Usage{}) {
			runtime.Gosched()
		}
		leave()
		<-ended
		call := u.Calls()[0]
		check.That(t, call.Status == status && call.Billed.Input == int64(call.PromptTokens) && w.Body.Len() == 0, "%s: %+v, %s", marker, call, w.Body)
	}
}
