package chatapi

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
	"github.com/tokenfuse/tokenfuse/pkg/fingerprint"
)

// refused gives each refusal of an admission its code and its sentence. It is the only
// place that does. feature is what the caller named.
func (h *Handler) refused(r *http.Request, x *admission.Refusal, id identity, feature string) *openai.Error {
	switch x.Kind {
	case admission.NoSuchFeature:
		return noSuchModel(feature)
	case admission.FeatureClosed:
		return openai.Errorf(openai.FeatureNotAllowed, "model", "%s is not open to %s callers.", feature, id.Tier.Name)

	case admission.TooManyMessages:
		return openai.Errorf(openai.InputTooLong, "messages", "There are %d messages; at most %d are allowed.", x.Requested, x.Most)
	case admission.SystemMessage:
		path := fmt.Sprintf("messages[%d].role", x.Message)
		return openai.Errorf(openai.InvalidValue, path, "%s must be user or assistant: %s has its own instructions.", path, feature)
	case admission.FormatNotTaken:
		return openai.Errorf(openai.UnsupportedParameter, "response_format", "response_format is supported by %s only as text.", feature)
	case admission.TooLong:
		return openai.Errorf(openai.InputTooLong, "messages", "The messages have %d characters; at most %d are allowed.", x.Requested, x.Most)
	case admission.TooManyTokens:
		return openai.Errorf(openai.InputTooLong, "messages", "The input has %d tokens; at most %d are allowed.", x.Requested, x.Most)
	case admission.NothingFits:
		return openai.Errorf(openai.InputTooLong, "messages", "Nothing of the input fits.")

	case admission.ToolsNotTaken:
		return openai.NoTools(x.Field)
	case admission.ToolsClosed:
		return openai.Errorf(openai.UnsupportedParameter, x.Field, "%s takes no tools of %s callers: %s is not supported.", feature, id.Tier.Name, x.Field)
	case admission.ToolsFixed:
		return openai.Errorf(openai.UnsupportedParameter, "tools", "%s has its own tools, which cannot be changed: tools is not supported.", feature)
	case admission.TooManyTools:
		return openai.Errorf(openai.InputTooLong, "tools", "There are %d tools; at most %d are allowed.", x.Requested, x.Most)
	case admission.ToolNotOffered:
		return openai.Errorf(openai.InvalidValue, "tool_choice", "tool_choice asks for a tool that the model is not offered.")
	case admission.ImagesNotTaken:
		return openai.Errorf(openai.UnsupportedParameter, x.Field, "%s takes no images: %s is supported only as text.", feature, x.Field)
	case admission.ImagesClosed:
		return openai.Errorf(openai.UnsupportedParameter, x.Field, "%s takes no images of %s callers: %s is supported only as text.", feature, id.Tier.Name, x.Field)
	case admission.ImageURLNotTaken:
		return openai.Errorf(openai.UnsupportedValue, x.Field, "%s must be a data URL: %s takes no addresses of images.", x.Field, feature)
	case admission.TooManyImages:
		return openai.Errorf(openai.InputTooLong, "messages", "There are %d images; at most %d are allowed.", x.Requested, x.Most)
	case admission.EffortNotTaken:
		return openai.Errorf(openai.UnsupportedParameter, "reasoning_effort", "reasoning_effort is not supported by %s.", feature)
	case admission.EffortNotOffered:
		return openai.Errorf(openai.UnsupportedValue, "reasoning_effort", "reasoning_effort must be %s.", oneOf(x.Offered))

	case admission.OtherAPI:
		does, where := "answers with text", "/chat/completions"
		if h.Policy.Features[feature].Model.Embeds {
			does, where = "makes embeddings", "/embeddings"
		}
		return openai.Errorf(openai.InvalidValue, "model", "%s %s: ask it at %s/v1%s.", feature, does, h.base(r), where)
	case admission.TooManyTexts:
		return openai.Errorf(openai.InputTooLong, "input", "There are %d texts; at most %d are allowed.", x.Requested, x.Most)
	case admission.TextsTooLong:
		return openai.Errorf(openai.InputTooLong, "input", "The texts have %d characters together; at most %d are allowed. Nothing is cut off them.", x.Requested, x.Most)
	case admission.TextsOfTooManyTokens:
		return openai.Errorf(openai.InputTooLong, "input", "The texts have %d tokens together; at most %d are allowed.", x.Requested, x.Most)

	case admission.Blocked:
		e := openai.Errorf(openai.IdentityBlocked, "", "You are blocked until %s.", x.Until.UTC().Format("2 January 2006 15:04:05 UTC"))
		e.BlockedUntil = x.Until
		return e
	case admission.SwitchedOff:
		return later(openai.FuseOpen, x.Wait, "This service is switched off for the moment.")
	case admission.ChallengeDue:
		return h.challengeDue(r, id, "")
	case admission.PassUsedUp:
		return h.challengeDue(r, id, "Your pass is used up. ")
	case admission.OverLimit:
		return overLimit(x, feature)
	case admission.TooManyOpen:
		return denied(openai.RateLimitExceeded, x, "Too many calls at a time: at most %d may be open.", x.Limit.Capacity)
	case admission.CeilingReached:
		return later(openai.SpendCeilingReached, x.Wait, "This service has reached its spending limit.")
	case admission.StoreDown:
		return storeDown("The call could not be admitted")
	case admission.CallerLeft:
		return openai.Errorf(openai.CallerLeft, "", "The answer was not taken in time. Nothing was taken from your quota.")
	}
	panic("no answer to a refusal: " + string(x.Kind))
}

// oneOf lists words of which one is right.
func oneOf(words []string) string {
	if len(words) == 0 {
		return "left out"
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// noSuchModel answers who names a model that is no feature.
func noSuchModel(name string) *openai.Error {
	return openai.Errorf(openai.ModelNotFound, "model", "There is no model %s. See /v1/models.", openai.Clip(name))
}

// overLimit answers a denial by what the limit counts.
func overLimit(x *admission.Refusal, feature string) *openai.Error {
	l := x.Limit
	period := "in " + inWords(l.Period)
	switch {
	case l.IsQuota():
		return denied(openai.InsufficientQuota, x, "Your quota for %s is used up: %d %s.", feature, l.Capacity, period)
	case l.Unit == policy.USDMicros:
		return denied(openai.InsufficientQuota, x, "Your spending limit is reached: $%s %s.", price.Pico(l.Capacity), period)
	case l.Unit == policy.Requests:
		return denied(openai.RateLimitExceeded, x, "Too many requests: %d are allowed %s.", l.Capacity, period)
	}
	e := denied(openai.RateLimitExceeded, x, "This call may need %d tokens and %d of %d are left.", x.Requested, x.Remaining, l.Capacity)
	if x.Affordable > 0 {
		e.Message += fmt.Sprintf(" An answer of at most %d tokens would fit now.", x.Affordable)
	}
	return e
}

// denied is an answer that names the limit and what would fit.
func denied(c openai.Code, x *admission.Refusal, format string, args ...any) *openai.Error {
	e := openai.Errorf(c, "", format, args...)
	e.RetryAfter = x.Wait
	e.Message += " You can ask again in " + inWords(x.Wait) + "."
	e.Denied = &openai.Denied{Limit: x.Limit.Name, Unit: string(x.Limit.Unit), Requested: x.Requested, Remaining: x.Remaining}
	if x.Affordable > 0 {
		e.Denied.Affordable = &x.Affordable
	}
	return e
}

// tooManyChallenges is the answer to a denial by what a network, or somebody in it, may
// solve.
func tooManyChallenges(denials ...bucket.Denial) *openai.Error {
	return denied(openai.RateLimitExceeded, admission.Denied(nil, denials...), "Too many challenges were solved from your network.")
}

// later is a refusal of everybody, for a time of at least a second.
func later(c openai.Code, wait time.Duration, message string) *openai.Error {
	return &openai.Error{Code: c, RetryAfter: max(time.Second, wait), Message: message + " You can ask again in " + inWords(wait) + "."}
}

// challengeDue asks for a solved challenge. A server that calls for its visitors can be
// told apart from them: it learns how.
func (h *Handler) challengeDue(r *http.Request, id identity, because string) *openai.Error {
	e := &openai.Error{Code: openai.ChallengeRequired, ChallengeURL: h.challengeURL(r),
		Message: because + "Please solve a challenge first; then you can go on at once."}
	if id.Backend == nil && fingerprint.LooksLikeServer(r) {
		e.Message += " If you are a server that calls for its visitors, make it a trusted backend, so that they are told apart (" + backendsPage + ")."
	}
	return e
}

// storeDown says what could not be done without the store.
func storeDown(what string) *openai.Error {
	return openai.Unavailable(openai.StoreUnavailable, what+" at the moment. Try again.")
}

// inWords gives a wait as a person says it, rounded up.
func inWords(d time.Duration) string {
	s := openai.Seconds(d)
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}} {
		// 90 minutes say more than 2 hours.
		if s >= 2*unit.seconds || s == unit.seconds {
			n := int64(math.Ceil(float64(s) / float64(unit.seconds)))
			if n == 1 {
				return "1 " + unit.name
			}
			return fmt.Sprintf("%d %ss", n, unit.name)
		}
	}
	return "a moment"
}
