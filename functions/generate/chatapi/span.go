package chatapi

import (
	"log/slog"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// asked is what the log says of the call to a model.
type asked struct {
	model     *policy.Model // that was asked last
	server    string        // its host; "": not known
	usage     *price.Usage  // as reported; nil: nothing was
	finish    string        // its finish reason; "": there was none
	requestID string        // what the provider calls the request; "": nothing
}

// span is the request as a span, named as OpenTelemetry's conventions for generative AI
// name it (1.37 and later), after what else a line has. It is flat: whoever makes a span of
// a line need not rename.
func (e *entry) span(attrs []slog.Attr) []slog.Attr {
	add := func(name, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	add("trace_id", e.trace.Trace)
	add("span_id", e.trace.Span)
	add("parent_span_id", e.trace.Parent)
	a := e.asked
	if a == nil {
		return attrs
	}
	add("provider_request_id", a.requestID)
	operation := "chat"
	if a.model.Embeds {
		operation = "embeddings"
	}
	add("gen_ai.operation.name", operation)
	add("gen_ai.provider.name", providerName(a.model.Provider.Kind, a.server))
	add("gen_ai.request.model", a.model.ID)
	add("server.address", a.server)
	if most := e.admission.Call.MaxOutput; most > 0 {
		attrs = append(attrs, slog.Int64("gen_ai.request.max_tokens", most))
	}
	if a.usage != nil {
		attrs = append(attrs, slog.Int64("gen_ai.usage.input_tokens", a.usage.Input), slog.Int64("gen_ai.usage.output_tokens", a.usage.Output))
	}
	if a.finish != "" {
		attrs = append(attrs, slog.Any("gen_ai.response.finish_reasons", []string{a.finish}))
	}
	if e.outcome != outcomeAnswered {
		add("error.type", e.outcome)
	}
	return attrs
}

// vendors are the names that the conventions have for those who speak OpenAI's API, by
// what their hosts end in.
var vendors = []struct{ host, name string }{
	{".openai.azure.com", "azure.ai.openai"},
	{"generativelanguage.googleapis.com", "gcp.gemini"},
	{".groq.com", "groq"},
	{".deepseek.com", "deepseek"},
	{".mistral.ai", "mistral_ai"},
	{".x.ai", "x_ai"},
	{".perplexity.ai", "perplexity"},
}

// providerName is what the conventions call a provider. A server that they do not know
// has the name of the API that it speaks.
func providerName(k kind.Kind, server string) string {
	if k == kind.Bedrock {
		return "aws.bedrock"
	}
	for _, v := range vendors {
		if strings.HasSuffix(server, v.host) {
			return v.name
		}
	}
	return string(k)
}
