package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/trace"
)

// perVector bounds what an answer has of each text, in bytes: 6,000 figures as text. No
// answer needs to be smaller than maxJSON.
const perVector = 128 << 10

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

// vectors is an answer as it is read: its vectors as they come, so that their text, which
// is some five times as large, is never here as a whole.
type vectors struct {
	texts   int
	list    []vector
	usage   *usage
	failure json.RawMessage
	wrong   bool
}

type vector struct {
	index   *int // of its text; nil: not said
	figures []float32
}

// readVectors reads an answer as OpenAI's API has it.
func readVectors(body io.Reader, texts int) (Embedded, error) {
	limited := &io.LimitedReader{R: body, N: max(maxJSON, int64(texts)*perVector)}
	v := vectors{texts: texts}
	err := v.read(json.NewDecoder(limited))
	answer := Embedded{Usage: v.usage.ofInput()}
	var syntax *json.SyntaxError
	switch {
	case limited.N <= 0:
		return answer, errTooLarge
	case errors.As(err, &syntax):
		return answer, errMalformed
	case err != nil:
		return answer, err
	case saysError(v.failure):
		return answer, saidFailure{codeOf(v.failure)}
	}
	answer.Vectors = v.ordered()
	if answer.Vectors == nil {
		return answer, errMalformed
	}
	return answer, nil
}

// read reads the object that an answer is.
func (v *vectors) read(d *json.Decoder) error {
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return cmp.Or(err, error(errMalformed))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		switch name {
		case "data":
			err = v.readData(d)
		case "usage":
			var raw json.RawMessage
			if err = d.Decode(&raw); err == nil {
				_ = json.Unmarshal(raw, &v.usage) // of another type, it tells nothing
			}
		case "error":
			err = d.Decode(&v.failure)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (v *vectors) readData(d *json.Decoder) error {
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		return cmp.Or(err, error(errMalformed))
	}
	for d.More() {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		var item struct{ Index, Embedding json.RawMessage }
		_ = json.Unmarshal(raw, &item) // what is no object has no vector
		figures, ok := openai.ReadVector(item.Embedding)
		v.wrong = v.wrong || !ok || len(v.list) == v.texts || len(v.list) > 0 && len(figures) != len(v.list[0].figures)
		if !v.wrong {
			one := vector{figures: figures}
			if index, err := strconv.Atoi(string(item.Index)); err == nil {
				one.index = &index
			}
			v.list = append(v.list, one)
		}
	}
	_, err := d.Token()
	return err
}

// ordered are the figures in the order of the texts; nil if they are not all there, once.
// Vectors may come in any order, if they say which texts they are of. Some servers say 0 of
// all, or nothing: then they stand in the order of the texts.
func (v *vectors) ordered() [][]float32 {
	if v.wrong || len(v.list) != v.texts {
		return nil
	}
	said := slices.ContainsFunc(v.list, func(one vector) bool { return one.index != nil && *one.index != 0 })
	ordered := make([][]float32, v.texts)
	for i, one := range v.list {
		if said && one.index != nil {
			i = *one.index
		}
		if i < 0 || i >= v.texts || ordered[i] != nil {
			return nil
		}
		ordered[i] = one.figures
	}
	return ordered
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
