package openai

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestParseEmbedding(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]EmbeddingRequest{
		`{"model":"m","input":"a"}`: {"m", []string{"a"}, Float, 0},
		`{"model":"m","input":["a"," "],"encoding_format":"base64","dimensions":16384,"user":"u","metadata":{}}`: {"m", []string{"a", " "}, Base64, 16384},
		`{"model":"m","input":[ "\u00e4" ],"encoding_format":null,"dimensions":null,"frobnicate":null}`:          {"m", []string{"ä"}, Float, 0},
	} {
		got, err := ParseEmbedding([]byte(body))
		check.Must(t, err == nil, "%s: %+v", body, err)
		check.Diff(t, cmp.Diff(want, *got), "%s", body)
		again, err := ParseEmbedding(Encode(got))
		check.That(t, err == nil && cmp.Equal(got, again), "%s: encoded and read again: %+v %+v", body, again, err)
	}
}

// What is written is read as the same numbers, in either encoding.
func TestVectors(t *testing.T) {
	t.Parallel()
	vectors := [][]float32{{0.1, -1e-30, math.MaxFloat32}, {0, 1e21, math.SmallestNonzeroFloat32}}
	for _, list := range []Embeddings{{Model: "m<", Vectors: vectors, Tokens: 7}, {Model: "m<", Vectors: vectors, Tokens: 7, Base64: true}} {
		var b strings.Builder
		n, err := list.WriteTo(&b)
		check.That(t, err == nil && n == int64(b.Len()), "%d bytes of %d: %v", n, b.Len(), err)
		var got struct {
			Object, Model string
			Data          []struct {
				Object    string
				Index     int
				Embedding json.RawMessage
			}
			Usage map[string]int
		}
		err = json.Unmarshal([]byte(b.String()), &got)
		check.Must(t, err == nil && len(got.Data) == 2, "%v: %s", err, b.String())
		check.That(t, got.Object == "list" && got.Model == "m<" && cmp.Equal(got.Usage, map[string]int{"prompt_tokens": 7, "total_tokens": 7}), "%+v", got)
		for i, item := range got.Data {
			v, ok := ReadVector(item.Embedding)
			check.That(t, ok && item.Object == "embedding" && item.Index == i && (item.Embedding[0] == '"') == list.Base64, "%+v", item)
			check.Diff(t, cmp.Diff(vectors[i], v), "vector %d", i)
		}
	}
	check.Equal(t, string(appendBase64(nil, []float32{1, -2})), `"AACAPwAAAMA="`, "the lowest byte first")
	for _, raw := range []string{``, `null`, `[]`, `""`, `"AACAPw"`, `"AACAPwA="`, `"????"`, `{}`, `1`, `[null]`, `[1,"2"]`, `[[1]]`, `[1e39]`, `"AADAfw=="`, `"AACAfw=="`} {
		v, ok := ReadVector(json.RawMessage(raw))
		check.That(t, !ok, "%s is read as %v", raw, v)
	}
}

// Whatever a caller sends, what is accepted is within the bounds.
func FuzzParseEmbedding(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":"a"}`))
	f.Add([]byte(`{"model":"m","input":["a","b"],"encoding_format":"base64","dimensions":3,"user":"u"}`))
	f.Add([]byte(`{"model":"m","input":[[1,2]],"Input":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		req, apiErr := ParseEmbedding(body)
		if apiErr != nil {
			check.That(t, apiErr.Message != "" && apiErr.Code.Status() == http.StatusBadRequest, "%+v", apiErr)
			return
		}
		check.That(t, req.Model != "" && len(req.Input) >= 1 && len(req.Input) <= MaxInputs && req.Dimensions >= 0 && req.Dimensions <= maxDimensions, "%+v", req)
		again, apiErr := ParseEmbedding(Encode(req))
		check.That(t, apiErr == nil && cmp.Equal(req, again), "encoded and read again: %+v", apiErr)
	})
}
