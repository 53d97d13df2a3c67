package provider

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Fault is what a provider finds wrong with a request itself.
type Fault string

// The faults, as OpenAI's API calls them.
const (
	TooLong           Fault = "context_length_exceeded"
	FilteredContent   Fault = "content_filter"
	ForbiddenPrompt   Fault = "invalid_prompt"
	LongString        Fault = "string_above_max_length"
	ValueNotTaken     Fault = "unsupported_value"
	ParameterNotTaken Fault = "unsupported_parameter"
	WrongValue        Fault = "invalid_value"
	ImageNotTaken     Fault = "invalid_image" // it cannot be read, fetched or shown to the model
)

// faults are what servers call what is wrong with a request itself, without case and
// without what joins words, and what it is.
var faults = func() map[string]Fault {
	known := map[string]Fault{}
	for code, words := range map[Fault]string{
		TooLong:           "contextlengthexceeded contextwindowexceeded contextwindowexceedederror modelcontextwindowexceeded exceedcontextsizeerror requesttoolarge maxtokensperrequest inputtoolong prompttoolong",
		FilteredContent:   "contentfilter contentfiltered contentpolicyviolation contentpolicyviolationerror responsibleaipolicyviolation datainspectionfailed imagecontentpolicyviolation moderationblocked prohibitedcontent contentblocked refusal modelrefusal safety sensitive 1301",
		ForbiddenPrompt:   "invalidprompt",
		LongString:        "stringabovemaxlength",
		ValueNotTaken:     "unsupportedvalue",
		ParameterNotTaken: "unsupportedparameter extraforbidden",
		ImageNotTaken:     "invalidimage invalidimageformat invalidbase64image invalidimageurl imagetoolarge imagetoosmall imageparseerror imagefiletoolarge unsupportedimagemediatype emptyimagefile failedtodownloadimage",
		WrongValue:        "invalidvalue invalidtype invalidjsonschema decimalabovemaxvalue decimalbelowminvalue integerabovemaxvalue integerbelowminvalue arrayabovemaxlength",
	} {
		for word := range strings.FieldsSeq(words) {
			known[word] = code
		}
	}
	return known
}()

// phrases tell, in lower case, of what servers have no code for, or hide it in that of
// somebody behind them.
var phrases = []struct {
	text string
	code Fault
}{
	{"context_length_exceeded", TooLong},
	{"contextwindowexceedederror", TooLong},
	{"maximum context length", TooLong}, // OpenAI, vLLM, Mistral, DeepSeek, OpenRouter
	{"maximum prompt length", TooLong},  // xAI
	{"context length", TooLong},         // LM Studio, Ollama
	{"context limit", TooLong},          // Anthropic
	{"context window", TooLong},
	{"context size", TooLong},       // llama.cpp
	{"prompt is too long", TooLong}, // Anthropic
	{"input is too long", TooLong},  // Bedrock
	{"too many input tokens", TooLong},
	{"exceeds the maximum number of tokens", TooLong}, // Gemini
	{"content filtering policy", FilteredContent},     // Anthropic
	{"content management policy", FilteredContent},    // Azure
	{"contentpolicyviolationerror", FilteredContent},
	{"content exists risk", FilteredContent}, // DeepSeek
	{"violating our usage policy", ForbiddenPrompt},
	{"cannot both be specified", ValueNotTaken}, // Claude in Bedrock, of temperature and top_p
	{"is deprecated for this model", ParameterNotTaken},
	{"could not process image", ImageNotTaken}, // Anthropic
}

// blame notes what is wrong with the request itself, if a refusal says so in a way that is
// known. Its text is searched for fixed phrases and never kept, since it may quote the
// prompt: who makes it quote a phrase is told of a fault that is none, and no more.
func (e *Error) blame(body []byte) *Error {
	var said any
	if !slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.Status) ||
		json.Unmarshal(body, &said) != nil {
		return e
	}
	var c complaint
	c.read(said, "", 0)
	slices.Sort(c.words)
	e.Param = c.param
	for _, word := range c.words {
		if code, ok := faults[word]; ok && (e.Fault == "" || e.Fault == WrongValue) { // which says least
			e.Fault = code
		}
	}
	for _, phrase := range phrases {
		if e.Fault == "" && strings.Contains(c.text.String(), phrase.text) {
			e.Fault = phrase.code
		}
	}
	if e.Fault == "" && e.Param != "" {
		e.Fault = WrongValue
	}
	if e.Param != "" {
		e.Err = wireError(strings.TrimPrefix(errText(e.Err)+", param "+e.Param, ", "))
	}
	return e
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// complaint is what a refusal says, wherever it says it.
type complaint struct {
	words []string // codes and types
	text  strings.Builder
	param string // the field at fault, without what is below it
}

// read goes through what a member by that name says. Servers put their errors into
// objects, lists and plain strings.
func (c *complaint) read(said any, name string, depth int) {
	if depth > 8 {
		return
	}
	switch said := said.(type) {
	case string:
		switch strings.ToLower(name) {
		case "code", "type", "status", "__type":
			c.words = append(c.words, strings.ToLower(strings.NewReplacer("_", "", "-", "", " ", "").Replace(said)))
		case "param":
			c.blame(said)
		default:
			c.text.WriteString(strings.ToLower(said) + "\n")
		}
	case []any:
		if name == "loc" && len(said) > 1 { // of FastAPI: ["body", "temperature"]
			param, _ := said[1].(string)
			c.blame(param)
			return
		}
		for _, item := range said {
			c.read(item, name, depth+1)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(said)) { // else an answer with two fields at fault would tell of either
			if name != "input" { // which quotes the request
				c.read(said[name], name, depth+1)
			}
		}
	}
}

func (c *complaint) blame(param string) {
	if i := strings.IndexAny(param, ".["); i >= 0 {
		param = param[:i]
	}
	if isCode(param) && c.param == "" {
		c.param = param
	}
}
