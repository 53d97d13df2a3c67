package provider

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What a server says of a fault is told in known words alone, however it says it, and each
// time the same.
func FuzzRefusal(f *testing.F) {
	for _, body := range []string{
		`{"error":{"message":"Invalid 'x': PROMPT","type":"invalid_request_error","param":"messages[0].content","code":"string_above_max_length"}}`,
		`{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`,
		`{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":"maximum context length"}]}`,
		`{"__type":"ValidationException","message":"Input is too long for requested model."}`, `[{"error":{"code":400,"status":"INVALID_ARGUMENT"}}]`,
		`{"error":"context length"}`, `{"error":{"code":null,"type":[]}}`, strings.Repeat(`{"error":`, 20) + `{"code":"refusal"}` + strings.Repeat("}", 20), `{"a":{"param":"top_p"},"b":{"param":"seed"}}`, `"`, ``,
	} {
		f.Add(400, body)
	}
	f.Add(413, `{"error":{"type":"request_too_large"}}`)
	f.Add(500, `{"error":{"code":"x","type":"overloaded"}}`)
	known := []Fault{"", TooLong, FilteredContent, ForbiddenPrompt, LongString, ValueNotTaken, ParameterNotTaken, WrongValue, ImageNotTaken}
	f.Fuzz(func(t *testing.T, status int, body string) {
		said := func() *Error { return refused(status, errorCode([]byte(body)), false).blame([]byte(body)) }
		e := said()
		check.That(t, slices.Contains(known, e.Fault), "the fault %q", e.Fault)
		for _, word := range []string{e.Code, e.Param} {
			check.That(t, word == "" || isCode(word), "%q is shown", word)
		}
		check.That(t, e.Fault == "" && e.Param == "" || status == 400 || status == 413 || status == 422, "%d is the request's fault %s", status, e.Fault)
		check.That(t, len(errText(e.Err)) <= len("code , param ")+2*64, "an error of %d bytes", len(errText(e.Err)))
		for range 4 {
			check.Diff(t, cmp.Diff(said(), e, cmp.Comparer(func(a, b error) bool { return errText(a) == errText(b) })), "the same answer, read again")
		}
	})
}

// An answer gives each text one vector, all of a length and of figures alone, or none.
func FuzzVectors(f *testing.F) {
	for _, body := range []string{
		`{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2]}],"object":"list","usage":{"prompt_tokens":5,"total_tokens":5}}`,
		`{"data":[{"index":0,"embedding":"AACAPwAAAEA="},{"embedding":[3.0,4e0]}]}`, `{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1e39]}]}`,
		`{"data":[{"embedding":"AADAfw=="},{"embedding":[1]}]}`, `{"data":[{"embedding":[1]}],"data":[{"embedding":[2]}],"usage":{"total_tokens":-1},"usage":{"prompt_tokens":1e3}}`,
		`{"error":{"code":"x"},"data":[]}`, `{"data":[{"index":-1,"embedding":[1]},{"index":9223372036854775808,"embedding":[1]}]}`, `{"data":{}}`, `[`, ``,
	} {
		f.Add(body, 2)
	}
	f.Fuzz(func(t *testing.T, body string, texts int) {
		if texts < 1 || texts > 100 {
			return
		}
		answer, err := readVectors(strings.NewReader(body), texts)
		if answer.Usage != nil {
			u := *answer.Usage
			check.That(t, u.Valid() && u.Input > 0 && u.Output == 0, "usage %+v", u)
		}
		if err != nil {
			var wire wireError
			var said saidFailure
			check.That(t, errors.As(err, &wire) || errors.As(err, &said) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(safe(err).Error(), "json"),
				"unsafe failure %v", err)
			check.That(t, answer.Vectors == nil, "%v with vectors", err)
			return
		}
		check.Must(t, len(answer.Vectors) == texts, "%d vectors of %d texts", len(answer.Vectors), texts)
		for _, v := range answer.Vectors {
			check.That(t, len(v) > 0 && len(v) == len(answer.Vectors[0]), "a vector of %d figures beside one of %d", len(v), len(answer.Vectors[0]))
			check.That(t, !slices.ContainsFunc(v, func(x float32) bool { return math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) }), "a figure that is none: %v", v)
		}
		again, err := readVectors(bytes.NewReader([]byte(body)), texts)
		check.That(t, err == nil && cmp.Equal(answer, again), "read again: %v", err)
	})
}

// What a server calls a request is told if it is a plain word, and no more of its headers.
func FuzzAnswered(f *testing.F) {
	f.Add("req_1-a", "", "")
	f.Add("", "a b", "x")
	f.Add(strings.Repeat("x", 129), "\r\n", "é")
	f.Fuzz(func(t *testing.T, id, other, last string) {
		h, told := http.Header{"X-Request-Id": {id}, "Request-Id": {other}, "X-Amzn-Requestid": {last}}, ""
		Request{Answered: func(id string) { told = id }}.answered(&http.Response{Header: h})
		check.That(t, told == "" || isWord(told, 128, codeAlphabet) && (told == id || told == other || told == last), "%q is told", told)
	})
}
