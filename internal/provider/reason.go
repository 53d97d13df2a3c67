package provider

import (
	"strconv"
	"strings"
)

// The finish reasons of OpenAI's API that an answer of ours may have.
const (
	stopped   = "stop"
	cutShort  = "length"
	toolCalls = "tool_calls"
	filtered  = "content_filter"
)

// reasons are the finish reasons of servers, in lower case, and what each is in OpenAI's
// words; "" means that there is none yet. Those that mean failure are failureReasons.
var reasons = func() map[string]string {
	known := map[string]string{}
	for reason, words := range map[string]string{
		"":        "null none nil undefined unspecified finish_reason_unspecified",
		stopped:   "stop stopped stop_sequence stop_sequences end_turn end_of_turn eos eos_token eot finish finished complete completed done end normal",
		cutShort:  "length max_tokens max_token max_output_tokens max_completion_tokens max_new_tokens max_length model_length length_limit token_limit context_length context_length_exceeded model_context_window_exceeded error_limit",
		toolCalls: "tool_calls tool_call tool_use function_call function_calls",
		filtered:  "content_filter content_filtered filtered safety image_safety recitation blocklist prohibited_content spii language sensitive refusal guardrail_intervened moderation flagged error_toxic",
	} {
		for word := range strings.FieldsSeq(words) {
			known[word] = reason
		}
	}
	return known
}()

// failureReasons are finish reasons of servers whose answer has failed: vLLM, SGLang,
// Mistral and OpenRouter (error, abort), Zhipu (network_error), DeepSeek
// (insufficient_system_resource), TensorRT-LLM (cancelled, timed_out), and what others
// would say. So is whatever begins with malformed_ (Bedrock, Gemini) or ends in error.
var failureReasons = " error abort aborted cancelled canceled user_cancel failed failure timeout timed_out insufficient_system_resource "

// readReason gives a finish reason in OpenAI's words, "" if there is none yet; one that
// means failure is a saidFailure. Case does not matter, nor does what stands around the
// word: "STOP", "FinishReason.STOP", "stop: eos" and "max tokens" are read. What nobody
// knows is stop, since the server has ended its answer; unknown is then its own word,
// or "other" if that may be more than a word.
func readReason(said any) (reason, unknown string, err error) {
	var text string
	switch said := said.(type) {
	case nil:
		return "", "", nil
	case bool: // false: not finished
		if !said {
			return "", "", nil
		}
	case float64: // 0 is "unspecified" where reasons are numbers
		if said == 0 {
			return "", "", nil
		}
		text = strconv.FormatFloat(said, 'f', -1, 64)
	case string:
		text = said
		if known, ok := reasons[said]; ok { // as nearly all are
			return known, "", nil
		}
	}
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	})
	if text, ok := said.(string); ok && strings.TrimSpace(text) == "" {
		return "", "", nil
	}
	for _, word := range append([]string{strings.Join(words, "_")}, words...) {
		if known, ok := reasons[word]; ok {
			return known, "", nil
		}
		if meansFailure(word) {
			return "", "", saidFailure{word}
		}
	}
	if len(words) != 1 || !isReason(words[0]) {
		return stopped, "other", nil
	}
	return stopped, words[0], nil
}

func meansFailure(word string) bool {
	return isCode(word) && (strings.Contains(failureReasons, " "+word+" ") ||
		strings.HasPrefix(word, "malformed_") || strings.HasSuffix(word, "error"))
}

// finish takes in a finish reason.
func (p *Part) finish(said any) (err error) {
	p.FinishReason, p.UnknownReason, err = readReason(said)
	return err
}

// isReason reports whether s may be shown as a finish reason of a provider's own.
func isReason(s string) bool { return isWord(s, 32, "abcdefghijklmnopqrstuvwxyz0123456789_") }
