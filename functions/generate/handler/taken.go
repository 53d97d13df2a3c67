package handler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
)

// taken tells the caller what a call that gave no whole answer has taken from their
// limits, and what it has not. Of the request itself it does not speak: that counts
// whatever happens.
func (o *offer) taken(b bill) string {
	if !b.settled {
		return "The call could not be settled: your quota comes back by itself, but tokens and dollars may stay counted at the most that it can have used."
	}
	has := func(is func(limits.Limit) bool) bool { return slices.ContainsFunc(o.limits, is) }
	var counted []string
	if b.caller.tokens > 0 && has(func(l limits.Limit) bool { return l.Unit == policy.Tokens }) {
		counted = append(counted, fmt.Sprintf("%d tokens", b.caller.tokens))
	}
	if b.caller.money > 0 && has(func(l limits.Limit) bool { return l.Unit == policy.USDMicros }) {
		spent := "$" + b.caller.money.String() + " of your spending limit"
		if b.estimated {
			spent += " (the most that the call can have cost)"
		}
		counted = append(counted, spent)
	}
	quota := has(func(l limits.Limit) bool { return l.Quota })
	if quota && b.caller.results > 0 {
		counted = append(counted, fmt.Sprintf("%d of your quota", b.caller.results))
	}
	what := ""
	if len(counted) > 0 {
		what = "Counted: " + strings.Join(counted, " and ") + "."
	}
	switch {
	case what == "":
		return "Nothing was taken from your quota."
	case quota && b.caller.results == 0:
		return what + " Nothing was taken from your quota."
	}
	return what
}

// empty is the notice of an answer that has no text, so that it uses no quota.
func (x *exchange) empty() string {
	if x.tally.text {
		return ""
	}
	notice := "The model gave no text."
	if x.finish == "length" {
		notice = fmt.Sprintf("The model used up the %d tokens of its output before it gave any text.", x.call.maxOutput)
		if u := x.tally.usage; u != nil && u.Reasoning > 0 {
			notice = fmt.Sprintf("The model used up the %d tokens of its output for reasoning, before it gave any text.", x.call.maxOutput)
		}
		if most := x.call.offer.maxOutput(); x.call.maxOutput < most {
			notice += fmt.Sprintf(" A larger max_tokens may help: at most %d.", most)
		}
	}
	return notice + " " + x.call.offer.taken(x.entry.settled)
}
