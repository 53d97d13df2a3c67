package chatapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// taken tells the caller what a call that gave no whole answer has taken from their
// limits, and what it has not. Of the request itself it does not speak: that counts
// whatever happens.
func taken(o *admission.Offer, b admission.Bill) string {
	if !b.Settled {
		return "The call could not be settled: your quota comes back by itself, but tokens and dollars may stay counted at the most that it can have used."
	}
	has := func(is func(limits.Limit) bool) bool { return slices.ContainsFunc(o.Limits, is) }
	var counted []string
	if b.Caller.Tokens > 0 && has(func(l limits.Limit) bool { return l.Unit == policy.Tokens }) {
		counted = append(counted, fmt.Sprintf("%d tokens", b.Caller.Tokens))
	}
	if b.Caller.Money > 0 && has(func(l limits.Limit) bool { return l.Unit == policy.USDMicros }) {
		spent := "$" + b.Caller.Money.String() + " of your spending limit"
		if b.Estimated {
			spent += " (the most that the call can have cost)"
		}
		counted = append(counted, spent)
	}
	quota := has(limits.Limit.IsQuota)
	if quota && b.Caller.Results > 0 {
		counted = append(counted, fmt.Sprintf("%d of your quota", b.Caller.Results))
	}
	what := ""
	if len(counted) > 0 {
		what = "Counted: " + strings.Join(counted, " and ") + "."
	}
	switch {
	case what == "":
		return "Nothing was taken from your quota."
	case quota && b.Caller.Results == 0:
		return what + " Nothing was taken from your quota."
	}
	return what
}

// empty is the notice of an answer that has no text, so that it uses no quota. The log
// has the reason, too: it may be a cap that is too small for the model.
func (x *exchange) empty() string {
	if x.meter.Text {
		return ""
	}
	notice, call := "The model gave no text.", x.admission.Call
	logger(x.ctx).Warn("the model gave no text", "feature", x.entry.feature, "model", x.meter.Model.Name,
		"finish_reason", x.meter.FinishReason, "reasoning", x.meter.Thought, "max_output_tokens", call.MaxOutput)
	if x.meter.FinishReason == "length" {
		notice = fmt.Sprintf("The model used up the %d tokens of its output before it gave any text.", call.MaxOutput)
		if x.meter.Thought {
			notice = fmt.Sprintf("The model used up the %d tokens of its output for reasoning, before it gave any text.", call.MaxOutput)
		}
		if most := call.Offer.MaxOutput(); call.MaxOutput < most {
			notice += fmt.Sprintf(" A larger max_tokens may help: at most %d.", most)
		}
	}
	return notice + " " + x.entry.taken()
}
