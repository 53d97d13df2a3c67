package chatapi

import (
	"slices"

	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/provider"
)

// blamed is the answer to a call that the provider refused for what the caller asked, in
// our own words; nil if it was refused for anything else. What the caller has not set,
// such as the name of the model or an extra field, is for the owner to mend.
func (x *exchange) blamed(p *provider.Error) *openai.Error {
	code, param, theirs := openai.Code(p.Fault), p.Param, x.has(p.Param)
	what := "a parameter of the request"
	if param != "" {
		what = param
	}
	says := ""
	switch p.Fault {
	case provider.TooLong:
		param, says = "messages", "The conversation is too long for the model. A shorter one may fit."
		if x.embedding != nil {
			says = "A text, or all of them together, is too long for the model. Shorter or fewer ones may fit."
		}
	case provider.FilteredContent:
		param, says = "messages", "The content filter of the model refused the request. It will refuse the same again."
	case provider.ForbiddenPrompt:
		param, says = "messages", "The model's provider takes the request for one against its rules. It will refuse the same again."
	case provider.LongString:
		if theirs || param == "" {
			says = "A text in the request is longer than the model takes."
		}
	case provider.ParameterNotTaken:
		if theirs {
			says = "The model does not take " + what + "."
		}
	case provider.ValueNotTaken:
		if theirs {
			says = "The model does not take this value of " + what + "."
		}
	case provider.ImageNotTaken:
		if x.admission.Call.Images() > 0 {
			code, param, says = openai.InvalidValue, "messages", "The model cannot take an image of the request."
		}
	case provider.WrongValue:
		// Messages are as we wrote them.
		if theirs && param != "" && param != "messages" && param != "input" {
			says = "The model does not take this value of " + what + "."
		}
	}
	if says == "" {
		return nil
	}
	if x.embedding != nil && param == "messages" {
		param = "input"
	}
	e := openai.Errorf(code, param, "%s %s", says, x.entry.taken())
	e.Upstream = p.Status
	return e
}

// has reports whether the caller has set a field that goes to the provider; "" is any but
// the messages.
func (x *exchange) has(param string) bool {
	if e := x.embedding; e != nil {
		return param == "input" || param == "encoding_format" || (param == "dimensions" || param == "") && e.Dimensions > 0
	}
	r := x.req
	switch param {
	case "":
		return slices.ContainsFunc(settable, x.has)
	case "messages":
		return true
	case "temperature":
		return r.Temperature != nil
	case "top_p":
		return r.TopP != nil
	case "presence_penalty":
		return r.PresencePenalty != nil
	case "frequency_penalty":
		return r.FrequencyPenalty != nil
	case "seed":
		return r.Seed != nil
	case "stop":
		return r.Stop != nil
	case "response_format":
		return r.ResponseFormat != nil
	case "tools":
		return len(r.Tools) > 0 && !x.admission.Call.OwnTools
	case "tool_choice":
		return r.ToolChoice != (openai.ToolChoice{})
	case "parallel_tool_calls":
		return r.ParallelToolCalls != nil
	case "reasoning_effort":
		return r.ReasoningEffort != ""
	}
	return false
}

// settable are the fields, beside the messages, that go to a provider as a caller has set them.
var settable = []string{"temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "response_format",
	"tools", "tool_choice", "parallel_tool_calls", "reasoning_effort"}
