package admission

import (
	"time"

	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Kind is why a call is not made.
type Kind string

const (
	// The feature: nothing was asked of the store yet.

	NoSuchFeature Kind = "no such feature"
	FeatureClosed Kind = "feature closed" // there is one, but not for callers of this tier

	// The caps: still nothing.

	TooManyMessages Kind = "too many messages" // Requested, of at most Most
	SystemMessage   Kind = "system message"    // Message is one, and the feature takes none from callers
	FormatNotTaken  Kind = "format not taken"  // a response format beyond text, and the feature takes none
	TooLong         Kind = "too long"          // Requested characters, of at most Most
	TooManyTokens   Kind = "too many tokens"   // Requested tokens of input, of at most Most
	NothingFits     Kind = "nothing fits"      // of an input that is cut to fit, nothing remains

	// The caps of what is more than text; Field is at fault where one is named.

	ToolsNotTaken    Kind = "tools not taken"     // Field belongs to tools, and the feature has none
	ToolsClosed      Kind = "tools closed"        // likewise, and it takes none of callers of this tier
	ToolsFixed       Kind = "tools fixed"         // the caller sends tools, and the feature has its own
	TooManyTools     Kind = "too many tools"      // Requested, of at most Most
	ToolNotOffered   Kind = "tool not offered"    // a choice that asks for a tool that the model is not shown
	ImagesNotTaken   Kind = "images not taken"    // Field is an image, and the feature takes none
	ImagesClosed     Kind = "images closed"       // likewise, of callers of this tier
	ImageURLNotTaken Kind = "image URL not taken" // Field is the address of an image, and the feature takes only images themselves
	TooManyImages    Kind = "too many images"     // Requested, of at most Most
	EffortNotTaken   Kind = "effort not taken"    // of reasoning, and callers cannot choose it
	EffortNotOffered Kind = "effort not offered"  // but one of Offered could be chosen

	OtherAPI             Kind = "other API"                // the feature makes vectors, and something else was asked for, or the reverse
	TooManyTexts         Kind = "too many texts"           // to embed: Requested, of at most Most
	TextsTooLong         Kind = "texts too long"           // Requested characters, of at most Most
	TextsOfTooManyTokens Kind = "texts of too many tokens" // likewise

	// Fuse, pools and limits. What was taken has been given back.

	Blocked        Kind = "blocked"         // the caller is, Until a time
	SwitchedOff    Kind = "switched off"    // by the fuse. Wait: until it ends by itself, or a minute
	ChallengeDue   Kind = "challenge due"   // by the fuse, or as the caller has used a share of the limits
	PassUsedUp     Kind = "pass used up"    // so a challenge is due, too
	OverLimit      Kind = "over limit"      // Limit denied, for Wait: Requested, Remaining and Affordable say why
	TooManyOpen    Kind = "too many open"   // too many calls are open, of at most Limit.Capacity
	CeilingReached Kind = "ceiling reached" // a pool is used up, for Wait
	StoreDown      Kind = "store down"      // it could not be asked
	CallerLeft     Kind = "caller left"     // nobody waits for the answer
)

// Kinds are all of them, for whoever must have an answer to each.
var Kinds = []Kind{NoSuchFeature, FeatureClosed, TooManyMessages, SystemMessage, FormatNotTaken, TooLong, TooManyTokens, NothingFits,
	ToolsNotTaken, ToolsClosed, ToolsFixed, TooManyTools, ToolNotOffered, ImagesNotTaken, ImagesClosed, ImageURLNotTaken, TooManyImages, EffortNotTaken, EffortNotOffered,
	OtherAPI, TooManyTexts, TextsTooLong, TextsOfTooManyTokens,
	Blocked, SwitchedOff, ChallengeDue, PassUsedUp, OverLimit, TooManyOpen, CeilingReached, StoreDown, CallerLeft}

// Refusal says why a call is not made, in figures. Which of them are set is up to the
// kind; the rest are zero.
type Refusal struct {
	Kind Kind
	// Wait is when to come back.
	Wait time.Duration
	// Until is when a block ends.
	Until time.Time
	// Limit is what denied. Requested and Remaining are in its unit: asked for, rounded
	// up; the most that would have fitted, rounded down.
	Limit                limits.Limit
	Requested, Remaining int64
	// Affordable is the largest output cap, in tokens, with which the same call would be
	// admitted now; 0: there is none.
	Affordable int64
	// Most is the bound that Requested exceeds, where that is no limit but a cap.
	Most int64
	// Message is the index of the message at fault, and Field the field, as the API of chat
	// completions calls it.
	Message int
	Field   string
	// Offered are the values of which one could have been chosen.
	Offered []string
	// Left are the caller's limits when they denied, in the order of Offer.Limits.
	Left []limits.Seen
}

// inFlightWait is the wait that is advised when too many calls are open: nobody knows
// when one ends.
const inFlightWait = 2 * time.Second

// wait is how long a denial lasts.
func wait(d bucket.Denial) time.Duration {
	if d.Limit.Name == bucket.InFlight {
		return inFlightWait
	}
	return d.RetryAfter
}

// Denied is the refusal of what denials are about. Of several the one with the longest
// wait is named: coming back sooner would be of no use. list says what the limits count;
// one that is not in it counts requests.
func Denied(list []limits.Limit, denials ...bucket.Denial) *Refusal {
	longest := denials[0]
	for _, d := range denials[1:] {
		if wait(d) > wait(longest) {
			longest = d
		}
	}
	if longest.Limit.Name == bucket.InFlight {
		return &Refusal{Kind: TooManyOpen, Wait: wait(longest), Limit: ofRequests(longest.Limit), Requested: longest.Requested, Remaining: longest.Remaining}
	}
	l := named(list, longest.Limit)
	if l.Role == limits.PassCalls {
		return &Refusal{Kind: PassUsedUp}
	}
	return &Refusal{Kind: OverLimit, Wait: wait(longest), Limit: l, Requested: l.Asked(longest.Requested), Remaining: l.Shown(longest.Remaining)}
}

// named finds a bucket's limit in a list.
func named(list []limits.Limit, of bucket.Limit) limits.Limit {
	for _, l := range list {
		if l.Name == of.Name {
			return l
		}
	}
	return ofRequests(of)
}

func ofRequests(l bucket.Limit) limits.Limit { return limits.Limit{Limit: l, Unit: policy.Requests} }
