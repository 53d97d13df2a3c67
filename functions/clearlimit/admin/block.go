package admin

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/openai"
)

// blockView is a block as it stands.
type blockView struct {
	Until int64  `json:"until"` // Unix seconds
	SetBy string `json:"set_by"`
}

// blockOf is the block of an identity, or nil.
func (h *Handler) blockOf(key string, s fuse.Status) *blockView {
	b, blocked := s.Blocks.Of(h.Now(), key)
	if !blocked {
		return nil
	}
	return &blockView{b.Until.Unix(), b.SetBy}
}

// blocked is the answer to both changes of a block.
type blocked struct {
	Identity identityView `json:"identity"`
	// Known: there is something about the identity in the table. One that is not known
	// may be misspelt, or its limits may be full.
	Known bool       `json:"known"`
	Was   bool       `json:"was_blocked"`
	Block *blockView `json:"blocked"` // null: it is not blocked now
}

// block answers POST /admin/block: it blocks an identity for a time, whether it has
// called lately or not, or replaces its block.
func (h *Handler) block(w http.ResponseWriter, r *request) *openai.Error {
	body, apiErr := readObject(r, append(slices.Clone(whom), "until", "for", "reason")...)
	if apiErr != nil {
		return apiErr
	}
	b := fuse.Block{SetBy: r.arn}
	if b.Until, apiErr = h.until(body, "The block"); apiErr != nil {
		return apiErr
	}
	if b.Until.IsZero() {
		return openai.Errorf(openai.InvalidValue, "for", "Say for how long: for must be a duration such as 2h or 1d.")
	}
	return h.changeBlock(w, r, body, "block until "+b.Until.UTC().Format(time.RFC3339), func(key string) error { return h.Fuse.Block(r.Context(), key, b) })
}

// unblock answers POST /admin/unblock. Who is not blocked is left as they are.
func (h *Handler) unblock(w http.ResponseWriter, r *request) *openai.Error {
	body, apiErr := readObject(r, append(slices.Clone(whom), "reason")...)
	if apiErr != nil {
		return apiErr
	}
	return h.changeBlock(w, r, body, unblocking, func(key string) error { _, err := h.Fuse.Unblock(r.Context(), key); return err })
}

// unblocking is what the audit calls the end of a block.
const unblocking = "unblock"

// changeBlock makes a change of the block of whom the body names, and answers with how
// they stand then.
func (h *Handler) changeBlock(w http.ResponseWriter, r *request, body object, what string, change func(key string) error) *openai.Error {
	reason, apiErr := text(body, "reason")
	if apiErr != nil {
		return apiErr
	}
	t, _, apiErr := h.named(r, func(name string) (string, *openai.Error) { return text(body, name) })
	if apiErr != nil {
		return apiErr
	}
	before, err := h.Fuse.Current(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	answer := blocked{Identity: h.identityView(t), Known: t.state.Exists, Was: h.blockOf(t.key(), before) != nil}
	if answer.Was || what != unblocking {
		if err := h.Audit.Record(r.Context(), Change{Who: r.arn, Whom: t.key(), What: what, Why: reason}); err != nil {
			return unavailable(r, err)
		}
		switch err := change(t.key()); {
		case errors.Is(err, fuse.ErrFull):
			return openai.Errorf(openai.TooManyBlocks, "", "%d identities are blocked, and no more can be. Look for one to unblock, or set the fuse.", fuse.MaxBlocks)
		case err != nil:
			return unavailable(r, err)
		}
		r.log.Warn("block changed", "identity", t.key(), "change", what, "reason", reason)
	}
	after, err := h.Fuse.Current(r.Context())
	if err != nil {
		return unavailable(r, err)
	}
	answer.Block = h.blockOf(t.key(), after)
	openai.Answer(w, answer)
	return nil
}
