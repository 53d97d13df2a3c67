package admin

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// changes answers GET /admin/audit: a page of what administrators changed, the newest
// first; of one identity, of a pool or of the fuse if the request names one.
func (h *Handler) changes(w http.ResponseWriter, r *request) *openai.Error {
	var q asked
	field := queryField(r)
	since, apiErr := field("since")
	if apiErr != nil {
		return apiErr
	}
	before, apiErr := field("before")
	if apiErr != nil {
		return apiErr
	}
	if since != "" {
		if q.since, apiErr = moment("since", since); apiErr != nil {
			return apiErr
		}
	}
	if before != "" {
		var err error
		if q.before, err = strconv.ParseInt(before, 10, 64); err != nil || q.before < 1 {
			return openai.Errorf(openai.InvalidValue, "before", "before must be the number of a change, from 1.")
		}
	}
	if q.whom, apiErr = h.changed(r, field); apiErr != nil {
		return apiErr
	}
	page, next, err := h.Audit.list(r.Context(), q)
	if err != nil {
		return unavailable(r, err)
	}
	type view struct {
		N    int64  `json:"n"`
		At   int64  `json:"at"` // Unix seconds
		Who  string `json:"who"`
		Whom string `json:"whom"`
		What string `json:"what"`
		Why  string `json:"why"`
	}
	answer := struct {
		Changes []view `json:"changes"`
		// Next is the before of the next page; null: there is none. A page may be empty and
		// yet have a next one.
		Next *int64 `json:"next"`
	}{Changes: []view{}}
	for _, c := range page {
		answer.Changes = append(answer.Changes, view{c.N, c.At.Unix(), c.Who, c.Whom, c.What, c.Why})
	}
	if next > 0 {
		answer.Next = &next
	}
	openai.Answer(w, answer)
	return nil
}

// changed is the key of what a request names, "" if it names nothing.
func (h *Handler) changed(r *request, field func(string) (string, *openai.Error)) (string, *openai.Error) {
	named := false
	for _, name := range whom {
		value, apiErr := field(name)
		if apiErr != nil {
			return "", apiErr
		}
		named = named || value != ""
	}
	if identity, _ := field("identity"); identity == keys.Fuse {
		return keys.Fuse, nil
	}
	if !named {
		return "", nil
	}
	if p, apiErr := h.poolNamed(field); apiErr != nil || p != nil {
		if apiErr != nil {
			return "", apiErr
		}
		return keys.Pool.Key(p.name), nil
	}
	t, _, apiErr := h.named(r, field)
	if apiErr != nil {
		return "", apiErr
	}
	return t.key(), nil
}

// queryField reads the values of a query, each of which may stand once.
func queryField(r *request) func(name string) (string, *openai.Error) {
	query := r.URL.Query()
	return func(name string) (string, *openai.Error) {
		if len(query[name]) > 1 {
			return "", openai.Errorf(openai.InvalidValue, name, "%s stands twice: send it once.", name)
		}
		return query.Get(name), nil
	}
}

// moment reads a time in Unix seconds or RFC 3339.
func moment(name, value string) (time.Time, *openai.Error) {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Unix(seconds, 0), nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, openai.Errorf(openai.InvalidValue, name, "%s must be a time in Unix seconds, or such as 2026-11-30T12:00:00Z.", name)
	}
	return t, nil
}
