package provider

import "strings"

// Unsupported names the first parameter of req that a provider of the kind
// (openai, anthropic or bedrock) cannot honour, as OpenAI's API calls it; "" if
// there is none. Values that ask for what happens anyway are no parameters.
//
// Callers are told before anything is spent. A call that is made all the same, as
// a fallback is, goes without what only tunes the sampling, but is not made
// without a response format: that would be another answer than was asked for.
//
//   - Anthropic has no seed and no penalties and, as of API version 2026-10-21, no
//     temperature and no top_p; its models of 4.7 and later took only 1 before.
//     Its stop sequences need something besides white space.
//   - Bedrock's Converse has no seed and no penalties, and a temperature of at most
//     1. Some of its models take neither temperature nor top_p, or not both; that
//     is for them to say.
//   - Both would show a schema to the model in words of their own, as input that
//     nobody has counted.
func Unsupported(kind string, req Request) string {
	isAnthropic, isBedrock := kind == "anthropic", kind == "bedrock"
	if !isAnthropic && !isBedrock {
		return ""
	}
	is := func(p *float64, neutral float64) bool { return p == nil || *p == neutral }
	if _, turns := conversation(req.Messages); len(turns) == 0 {
		return "messages"
	}
	switch {
	case req.ResponseFormat != nil:
		return "response_format"
	case req.Seed != nil:
		return "seed"
	case !is(req.PresencePenalty, 0):
		return "presence_penalty"
	case !is(req.FrequencyPenalty, 0):
		return "frequency_penalty"
	case isAnthropic && !is(req.Temperature, 1),
		isBedrock && req.Temperature != nil && *req.Temperature > 1:
		return "temperature"
	case isAnthropic && !is(req.TopP, 1):
		return "top_p"
	}
	if isAnthropic {
		for _, s := range req.Stop {
			if strings.TrimSpace(s) == "" {
				return "stop"
			}
		}
	}
	return ""
}
