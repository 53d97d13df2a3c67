package chatapi

import (
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// chatForm writes chat completions.
type chatForm struct {
	usage bool // a stream ends with its usage
}

func (chatForm) completion(x *exchange, object string) openai.Completion {
	return openai.Completion{
		ID:      "chatcmpl-" + x.admission.ID(),
		Object:  object,
		Created: x.admission.Start().Unix(),
		Model:   x.entry.feature,
		Choices: []openai.Choice{},
	}
}

func (f chatForm) whole(x *exchange, all *reply) any {
	m := openai.Reply{Role: "assistant", ToolCalls: all.toolCalls(), Reasoning: all.reasoning.String()}
	if all.content.Len() > 0 || m.ToolCalls == nil {
		m.Content = new(all.content.String())
	}
	if all.refusal.Len() > 0 {
		m.Refusal = new(all.refusal.String())
	}
	c := f.completion(x, openai.WholeObject)
	c.Choices = []openai.Choice{{Message: &m, FinishReason: &x.meter.FinishReason}}
	c.Usage, c.Notice = openai.UsageOf(x.usage()), x.empty()
	return c
}

func (f chatForm) open(x *exchange) bool {
	return f.chunk(x, &openai.Delta{Role: "assistant", Content: new("")})
}

func (f chatForm) part(x *exchange, p provider.Part) bool { return f.chunk(x, deltaOf(p)) }

func (f chatForm) chunk(x *exchange, d *openai.Delta) bool {
	c := f.completion(x, openai.ChunkObject)
	c.Choices = append(c.Choices, openai.Choice{Delta: d})
	return x.out.event(openai.Encode(c))
}

func (f chatForm) end(x *exchange) {
	last := f.completion(x, openai.ChunkObject)
	last.Choices, last.Notice = []openai.Choice{{Delta: &openai.Delta{}, FinishReason: &x.meter.FinishReason}}, x.empty()
	if f.usage {
		x.out.event(openai.Encode(last))
		last = f.completion(x, openai.ChunkObject)
		last.Usage = openai.UsageOf(x.usage())
	}
	last.Limits = views(x.admission.Left())
	x.out.event(openai.Encode(last))
	x.out.event([]byte(openai.Done))
}

func (chatForm) failure(err *openai.Error) []byte { return openai.Event(err.Envelope()) }
