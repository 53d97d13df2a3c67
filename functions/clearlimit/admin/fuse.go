package admin

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/span"
)

// fuseView is the fuse as it stands.
type fuseView struct {
	State fuse.State `json:"state"`
	Until *int64     `json:"until"` // Unix seconds; null: until somebody sets it otherwise
	SetBy *string    `json:"set_by"`
	Why   string     `json:"reason,omitempty"`
}

// showFuse answers GET /admin/fuse.
func (h *Handler) showFuse(w http.ResponseWriter, r *request) *openai.Error {
	s, err := h.Fuse.Current(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	openai.Answer(w, viewOf(s.Setting))
	return nil
}

func viewOf(s fuse.Setting) fuseView {
	v := fuseView{State: s.State, Why: s.Why}
	if !s.Until.IsZero() {
		until := s.Until.Unix()
		v.Until = &until
	}
	if s.SetBy != "" {
		v.SetBy = &s.SetBy
	}
	return v
}

// setFuse answers PUT /admin/fuse with the fuse as it stands then. Who set it is
// the caller, whatever set_by in the body says: that is accepted so that what GET
// gave can be sent back.
func (h *Handler) setFuse(w http.ResponseWriter, r *request) *openai.Error {
	body, apiErr := readObject(r, "state", "until", "for", "set_by", "reason")
	if apiErr != nil {
		return apiErr
	}
	state, apiErr := text(body, "state")
	if apiErr != nil {
		return apiErr
	}
	setting := fuse.Setting{State: fuse.State(state), SetBy: r.arn}
	if !setting.State.Valid() {
		return openai.Errorf(openai.InvalidValue, "state", "state must be one of closed, challenge, anonymous_off, open.")
	}
	if setting.Until, apiErr = h.until(body, "The fuse"); apiErr != nil {
		return apiErr
	}
	reason, apiErr := text(body, "reason")
	if apiErr != nil {
		return apiErr
	}
	setting.Why = reason
	what := "set " + state
	if !setting.Until.IsZero() {
		what += " until " + setting.Until.UTC().Format(time.RFC3339)
	}
	if err := h.Audit.Record(r.Context(), Change{Who: r.arn, Whom: keys.Fuse, What: what, Why: reason}); err != nil {
		return unavailable(r, err)
	}
	if err := h.Fuse.Set(r.Context(), setting); err != nil {
		return unavailable(r, err)
	}
	r.log.Warn("fuse set", "change", what, "reason", reason)
	return h.showFuse(w, r)
}

// longest is the longest time for which the fuse may be set, or somebody blocked.
const longest = 366 * 24 * time.Hour

// until is when what a request sets ends: "until" in Unix seconds or RFC 3339, or "for"
// a duration such as 1h30m or 1d; zero if neither is there.
func (h *Handler) until(body object, what string) (time.Time, *openai.Error) {
	now := h.Now()
	var until time.Time
	field := "until"
	switch raw, given := body["until"]; {
	case given && body["for"] != nil:
		return time.Time{}, openai.Errorf(openai.InvalidValue, "for", "Give until or for, not both.")
	case given:
		var seconds int64
		if json.Unmarshal(raw, &seconds) == nil {
			until = time.Unix(seconds, 0)
		} else if json.Unmarshal(raw, &until) != nil {
			return time.Time{}, openai.Errorf(openai.InvalidValue, "until", "until must be a time in Unix seconds, or such as 2026-11-30T12:00:00Z.")
		}
	case body["for"] != nil:
		field = "for"
		text, apiErr := text(body, "for")
		if apiErr != nil {
			return time.Time{}, apiErr
		}
		d, err := span.Parse(text)
		if err != nil {
			return time.Time{}, openai.Errorf(openai.InvalidValue, "for", "for must be a duration such as 30m, 2h or 1d.")
		}
		until = now.Add(d)
	default:
		return time.Time{}, nil
	}
	if d := until.Sub(now); d < time.Second || d > longest {
		return time.Time{}, openai.Errorf(openai.InvalidValue, field, "%s must end at least a second and at most %d days from now.", what, int(longest.Hours()/24))
	}
	return until, nil
}
