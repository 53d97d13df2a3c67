package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// authorize lets administrators in. Without an allow-list that is every IAM
// identity that may call the routes.
func (h *Handler) authorize(r *request) *openai.Error {
	if h.Keys != nil {
		if r.arn == "" {
			return openai.Errorf(openai.AdminNotAllowed, "", "The request has no key of an administrator. Send one as Authorization: Bearer KEY.")
		}
		return nil
	}
	if r.arn == "" {
		return openai.Errorf(openai.AdminNotAllowed, "", "The request is not signed by an AWS identity. Sign it with Signature Version 4 for execute-api.")
	}
	if h.Policy.Admin == nil || len(h.Policy.Admin.AllowARNs) == 0 { // keys alone say nothing of AWS's identities
		return nil
	}
	for _, allowed := range h.Policy.Admin.AllowARNs {
		if matches(allowed, r.arn) {
			return nil
		}
	}
	return openai.Errorf(openai.AdminNotAllowed, "", "%s is no administrator here: admin.allow_arns of the configuration does not list it. Use credentials that it lists, or have these added.", r.arn)
}

// matches reports whether a caller's ARN is the allowed one, or a session of the
// allowed role: a role arn:aws:iam::ACCOUNT:role/PATH/ROLE calls as
// arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION, which does not tell its path. An
// account has each name of a role once, whatever its path.
func matches(allowed, caller string) bool {
	if allowed == caller {
		return true
	}
	role, ok := splitARN(allowed, "iam", "role/")
	if !ok {
		return false
	}
	session, ok := splitARN(caller, "sts", "assumed-role/")
	name, _, named := strings.Cut(session.rest, "/")
	return ok && named && name != "" && session.owner == role.owner &&
		name == role.rest[strings.LastIndexByte(role.rest, '/')+1:]
}

type arnParts struct{ owner, rest string } // partition and account; what follows the type

func splitARN(arn, service, resource string) (arnParts, bool) {
	f := strings.SplitN(arn, ":", 6)
	if len(f) != 6 || f[0] != "arn" || f[2] != service || f[3] != "" {
		return arnParts{}, false
	}
	rest, ok := strings.CutPrefix(f[5], resource)
	return arnParts{f[1] + ":" + f[4], rest}, ok
}

// adminLimit bounds what one caller may ask: a script that has gone astray must
// not read or clear everybody.
var adminLimit = bucket.Limit{Name: "admin", Capacity: 60, Period: time.Minute, Return: bucket.Never}

const (
	// adminInFlight is the most requests that a caller may have open.
	adminInFlight = 16
	// answerTime is how long a request takes at the most.
	answerTime = 30 * time.Second
)

// admit counts a request. done must be called when it is over.
func (h *Handler) admit(r *request) (done func(), refused *openai.Error) {
	hash := sha256.Sum256([]byte(r.arn))
	d, err := h.Buckets.Reserve(r.Context(), bucket.Request{
		Key:         keys.Admin.Key(hex.EncodeToString(hash[:16])),
		Charges:     []bucket.Charge{{Limit: adminLimit, Cost: 1}},
		MaxInFlight: adminInFlight,
		Deadline:    h.Now().Add(answerTime),
	})
	if err != nil {
		return nil, unavailable(r, err)
	}
	if d.Reservation == nil {
		wait := max(time.Second, d.Denials[0].RetryAfter)
		e := openai.Errorf(openai.RateLimitExceeded, "", "Too many admin requests: %d a minute and %d at a time are allowed. Try again in %d s.", adminLimit.Capacity, adminInFlight, openai.Seconds(wait))
		e.RetryAfter = wait
		return nil, e
	}
	return func() {
		if err := d.Reservation.Settle(context.WithoutCancel(r.Context()), []int64{1}); err != nil {
			r.log.Warn("settle failed: the hold expires by itself", "error", err)
		}
	}, nil
}
