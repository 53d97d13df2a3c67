package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync/atomic"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/trace"
)

// maxVectors bounds an answer with vectors, in bytes.
const maxVectors = 64 << 20

// EmbedRequest asks for a vector of each text.
type EmbedRequest struct {
	openai.EmbeddingRequest // its Model is the provider's own id
	// As in Request.
	Extra    json.RawMessage
	Trace    trace.Context
	Answered func(id string)
}

// Embedded is the answer to an EmbedRequest.
type Embedded struct {
	Vectors [][]float32  // in the order of the texts, each with the same number of finite figures
	Usage   *price.Usage // as reported, of input alone; nil: nothing was that can be true
}

// Embedder makes vectors of texts.
type Embedder interface {
	// Embed sends one request; ctx bounds it to the end of its answer. A failure is an
	// *Error. Usage is told of an answer that is wrong in another way, too.
	Embed(ctx context.Context, req EmbedRequest) (Embedded, error)
}

// Embed asks p for vectors. Not every provider makes any.
func Embed(ctx context.Context, p Provider, req EmbedRequest) (Embedded, error) {
	if e, ok := p.(Embedder); ok {
		return e.Embed(ctx, req)
	}
	return Embedded{}, impossible("the provider makes no embeddings")
}

// Embed asks for the encoding that the caller wants, who knows as little of the server as
// we do, and takes whichever comes.
func (o *OpenAI) Embed(ctx context.Context, req EmbedRequest) (Embedded, error) {
	if req.Model == "" || len(req.Input) == 0 {
		return Embedded{}, unsent(errors.New("request without a model or a text"))
	}
	resp, _, cancel, err := o.post(ctx, o.embeddings, withExtra(req.EmbeddingRequest, req.Extra), Request{Trace: req.Trace, Answered: req.Answered})
	if err != nil {
		return Embedded{}, err
	}
	defer cancel()
	defer resp.Body.Close()
	if err := o.status(ctx, resp, cancel); err != nil {
		return Embedded{}, err
	}
	begun := new(atomic.Bool)
	body := &arrival{resp.Body, begun}
	answer, err := readVectors(body, len(req.Input))
	if err != nil {
		return answer, failed(ctx, resp.StatusCode, begun.Load(), err)
	}
	readBriefly(body, cancel) // so that the connection is used again
	return answer, nil
}

// readVectors reads an answer as OpenAI's API has it. Items may come in any order, if they
// say which texts they are of.
func readVectors(body io.Reader, texts int) (answer Embedded, err error) {
	limited := &io.LimitedReader{R: body, N: maxVectors}
	type item struct {
		Index  *int            `json:"index"`
		Vector json.RawMessage `json:"embedding"`
	}
	var list struct {
		Data  []item          `json:"data"`
		Usage *usage          `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	var wrong *json.UnmarshalTypeError
	switch err := json.NewDecoder(limited).Decode(&list); {
	case limited.N <= 0:
		return answer, errTooLarge
	case errors.As(err, &wrong):
		answer.Usage = list.Usage.ofInput()
		return answer, errMalformed
	case err != nil:
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return answer, errMalformed
		}
		return answer, err
	}
	answer.Usage = list.Usage.ofInput()
	if saysError(list.Error) {
		return answer, saidFailure{codeOf(list.Error)}
	}
	if len(list.Data) != texts {
		return answer, errMalformed
	}
	// Some servers say 0 of all, or nothing: then they stand in the order of the texts.
	ordered := !slices.ContainsFunc(list.Data, func(i item) bool { return i.Index != nil && *i.Index != 0 })
	vectors, length := make([][]float32, texts), 0
	for i, item := range list.Data {
		at := i
		if item.Index != nil && !ordered {
			at = *item.Index
		}
		v, ok := openai.ReadVector(item.Vector)
		length = cmp.Or(length, len(v))
		if !ok || len(v) != length || at < 0 || at >= texts || vectors[at] != nil {
			return answer, errMalformed
		}
		vectors[at] = v
	}
	answer.Vectors = vectors
	return answer, nil
}

// ofInput is a report on vectors, whose tokens are of input, whatever they are called.
func (u *usage) ofInput() *price.Usage {
	if u == nil {
		return nil
	}
	w := *u
	if w.Prompt == 0 && (w.Input == nil || *w.Input == 0) {
		w.Prompt = w.Total
	}
	w.Completion, w.Output, w.Total = 0, nil, 0
	return w.read(false)
}
