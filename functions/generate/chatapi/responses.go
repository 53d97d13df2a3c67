package chatapi

import (
	"net/http"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/responses"
)

// respond answers POST /v1/responses.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, e *entry) *openai.Error {
	var req *responses.Request
	err := h.complete(w, r, e, func(body []byte) (chat *openai.ChatRequest, f form, err *openai.Error) {
		if req, err = responses.Parse(body); err != nil {
			return nil, nil, err
		}
		return req.ChatRequest, &responseForm{req: req, entry: e}, nil
	})
	if err != nil && req != nil {
		return req.Respell(err)
	}
	return err
}

// responseForm writes a response.
type responseForm struct {
	req   *responses.Request
	entry *entry
	begun *responses.Answer
}

// answer is what has come of the answer to an admitted call.
func (f *responseForm) answer() *responses.Answer {
	if f.begun == nil {
		a := f.entry.admission
		f.begun = f.req.Answer(responses.Head{ID: a.ID(), Created: a.Start().Unix(), Model: f.entry.feature, MaxOutput: a.Call.MaxOutput})
	}
	return f.begun
}

func (f *responseForm) last(x *exchange) responses.Last {
	return responses.Last{FinishReason: x.meter.FinishReason, Usage: x.usage(), Completed: x.h.Now().Unix(), Notice: f.req.Spell(x.empty())}
}

func (f *responseForm) whole(x *exchange, all *reply) any {
	a := f.answer()
	a.Add(deltaOf(provider.Part{Content: all.content.String(), Refusal: all.refusal.String(), Reasoning: all.reasoning.String(), ToolCalls: all.toolCalls()}))
	a.End(f.last(x))
	return a.Response()
}

func (f *responseForm) open(x *exchange) bool { return x.out.events(f.answer().Begin()) }

func (f *responseForm) part(x *exchange, p provider.Part) bool {
	return x.out.events(f.answer().Add(deltaOf(p)))
}

func (f *responseForm) end(x *exchange) {
	last := f.last(x)
	last.Limits = views(x.admission.Left())
	x.out.events(f.answer().End(last))
}

func (f *responseForm) failure(err *openai.Error) []byte { return f.answer().Fail(err) }
