package chatapi

import (
	"net/http"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tokenfuse/tokenfuse/internal/admission"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// Each solution that a third party verifies costs a call to it, a wrong one too. Whoever
// sends nonsense must not make us flood it, and must not use up what neighbours need. So
// there are three bounds, each wider than the one before:
//
//   - what one browser of an address has sent wrongly, in this process alone and for
//     nothing: a plain script ends here, and takes nothing from others behind its address;
//   - what an address sends: a script that changes its user agent ends here, and takes
//     nothing from other addresses of its network;
//   - what a network sends.
var (
	wrongOfClient = bucket.Limit{Name: policy.LimitSiteverify, Capacity: 20, Period: time.Minute}
	sentOfSource  = bucket.Limit{Name: policy.LimitSiteverify, Capacity: 60, Period: time.Minute}
	sentOfNetwork = bucket.Limit{Name: policy.LimitSiteverify, Capacity: 240, Period: time.Minute}
)

// mayAsk counts a call to the third party, or refuses it.
func (h *Handler) mayAsk(r *http.Request, at location, allowed admission.Allowance) *openai.Error {
	source, client, err := h.sender(at)
	if err != nil {
		return unknownSource(r, err)
	}
	if wait := h.wrong.wait(source+client, h.Now()); wait > 0 {
		return tooManyChallenges(bucket.Denial{Limit: wrongOfClient, Requested: 1, RetryAfter: wait})
	}
	// An item of its own: sources are not to crowd the browsers out of the network's.
	return h.take(r, allowed, bucket.Request{
		Key:     keys.Siteverify(at.networks[0]),
		Client:  bucket.Client{Key: source, MaxInFlight: maxNetworkCalls},
		Charges: []bucket.Charge{{Limit: sentOfNetwork, Cost: 1}, {Limit: sentOfSource, Cost: 1, OfClient: true}},
	})
}

// refusedBy counts a solution that the third party has refused.
func (h *Handler) refusedBy(at location) {
	if source, client, err := h.sender(at); err == nil {
		h.wrong.add(source+client, h.Now())
	}
}

// sender gives the codes of an address and of a browser.
func (h *Handler) sender(at location) (source, client string, err error) {
	if at.client != "" { // a backend knows it by this alone
		return at.client, "", nil
	}
	if source, err = h.Networks.SourceKey(at.signals.Addr, h.Now()); err != nil {
		return "", "", err
	}
	client, err = h.Networks.Client(at.signals, h.Now())
	return source, client, err
}

// wrongs counts wrong solutions by who sent them, in memory: the last of many.
type wrongs struct {
	mu   sync.Mutex
	full *lru.Cache[string, time.Time] // when each is as if nothing had been
}

func newWrongs() *wrongs {
	full, _ := lru.New[string, time.Time](10_000) // it fails for less than one
	return &wrongs{full: full}
}

// wrongCost is how long a wrong solution takes to be forgotten.
var wrongCost = wrongOfClient.Period / time.Duration(wrongOfClient.Capacity)

// wait is how long somebody must wait until another solution of theirs is looked at; 0:
// not at all.
func (w *wrongs) wait(key string, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if full, ok := w.full.Get(key); ok {
		return max(0, full.Add(wrongCost).Sub(now)-wrongOfClient.Period)
	}
	return 0
}

func (w *wrongs) add(key string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := now
	if full, ok := w.full.Get(key); ok && full.After(now) {
		from = full
	}
	w.full.Add(key, from.Add(wrongCost))
}
