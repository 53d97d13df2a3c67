package admin

import (
	"errors"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/emails"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/limits"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// target is an identity that a request is about.
type target struct {
	kind  limits.Kind
	id    string
	state bucket.State // when it was found
}

func (t *target) key() string { return t.kind.Key(t.id) }

// whom are the ways to name an identity, of which a request takes one.
var whom = []string{"user", "email", "identity"}

// find finds the identity that a request names. One that has never called does not
// exist, and nothing here makes it.
func (h *Handler) find(r *request, field func(string) (string, *openai.Error)) (*target, *openai.Error) {
	t, by, apiErr := h.named(r, field)
	if apiErr == nil && !t.state.Exists {
		return nil, by.unknown()
	}
	return t, apiErr
}

// namedBy is how a request names an identity.
type namedBy struct{ field, value string }

func (by namedBy) unknown() *openai.Error {
	return openai.Errorf(openai.IdentityNotFound, by.field, "Nothing is known of %q: check the spelling. If that is right, they have not called for so long that all their limits are full.", openai.Clip(by.value))
}

// named gives the identity that a request names, which may have no item.
func (h *Handler) named(r *request, field func(string) (string, *openai.Error)) (*target, namedBy, *openai.Error) {
	var by namedBy
	for _, w := range whom {
		value, err := field(w)
		if err != nil {
			return nil, by, err
		}
		if value == "" {
			continue
		}
		if by.field != "" {
			return nil, by, openai.Errorf(openai.InvalidValue, w, "Name one of user, email and identity, not several.")
		}
		by = namedBy{w, value}
	}
	var t *target
	var apiErr *openai.Error
	switch by.field {
	case "":
		return nil, by, openai.Errorf(openai.InvalidValue, "user", "Say who is meant: name a user, an email or an identity.")
	case "user":
		t, apiErr = userNamed(by.field, by.value)
	case "email":
		t, apiErr = h.byEmail(r, by.value)
	default:
		t, apiErr = identityNamed(by.value)
	}
	if apiErr != nil {
		return nil, by, apiErr
	}
	var err error
	if t.state, err = h.Buckets.Peek(r.Context(), t.key()); err != nil {
		return nil, by, unavailable(r, err)
	}
	return t, by, nil
}

func userNamed(field, sub string) (*target, *openai.Error) {
	if !keys.ValidSubject(sub) {
		return nil, openai.Errorf(openai.InvalidValue, field, "%s must be a user's id: the sub of their token, 1 to 128 printable characters without spaces and #.", field)
	}
	return &target{kind: limits.User, id: sub}, nil
}

func (h *Handler) byEmail(r *request, email string) (*target, *openai.Error) {
	if h.Emails == nil {
		return nil, openai.Errorf(openai.InvalidValue, "email", "E-mail addresses are not known here, since the configuration has no fingerprint.secret. Name the user by id.")
	}
	index, err := h.Emails(r.Context())
	if err != nil {
		r.log.Error("e-mail addresses cannot be looked up", "error", err)
		return nil, openai.Errorf(openai.SecretUnavailable, "email", "E-mail addresses cannot be looked up at the moment, since their secret cannot be read: the log says why. Name the user by id, or try again.")
	}
	subs, err := index.Find(r.Context(), email)
	switch {
	case errors.Is(err, emails.ErrAddress):
		return nil, openai.Errorf(openai.InvalidValue, "email", "email must be an e-mail address.")
	case err != nil:
		return nil, unavailable(r, err)
	case len(subs) == 0:
		return nil, openai.Errorf(openai.IdentityNotFound, "email", "No user with this verified e-mail address has called in the last %d days: check the spelling, or name the user by id.", int(emails.Keep.Hours()/24))
	case len(subs) > 1:
		return nil, openai.Errorf(openai.AmbiguousEmail, "email", "Several users have this e-mail address: %s. Name one of them by id.", clipList(subs))
	}
	return userNamed("email", subs[0])
}

// clipList names the first of many.
func clipList(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}

// identityNamed reads an identity as the log and /v1/limits name it. Pools are looked
// for before; the fuse and whatever else is in the table are none.
func identityNamed(identity string) (*target, *openai.Error) {
	kind, id, ok := keys.Identity(identity)
	switch {
	case ok && kind == keys.User && !strings.Contains(id, "#"): // else a backend's visitor
		return userNamed("identity", id)
	case ok:
		return &target{kind: limits.Kind(kind), id: id}, nil
	}
	return nil, openai.Errorf(openai.InvalidValue, "identity", "identity must be user#ID, net#KEY or pass#KEY, as the log and the person's own /v1/limits show it; or, for limits, pool#NAME.")
}
