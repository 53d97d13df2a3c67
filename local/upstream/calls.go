package upstream

import (
	"slices"
	"sync"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// maxKept bounds the body that is kept of a call, in bytes.
const maxKept = 64 << 10

// Call is one valid request and what it cost.
type Call struct {
	Body            []byte // as it came; nil if it has more than 64 KiB
	Model           string
	Messages        []Message
	Inputs          []string // texts to embed, in place of messages
	MaxOutputTokens int
	MaxTokensField  string // max_tokens or max_completion_tokens; nothing for embeddings
	Stream          bool
	PromptTokens    int
	Status          int         // HTTP status of the answer, 0 while there is none
	Billed          price.Usage // so far, while the call lasts
}

// Message is a message of a chat. Its parts are one text.
type Message struct{ Role, Content string }

// Calls gives the last calls, the oldest first.
func (u *Upstream) Calls() []Call { return u.log.list() }

// Totals gives the number of calls ever made, and what they were billed.
func (u *Upstream) Totals() (calls int64, usage price.Usage) {
	u.log.mu.Lock()
	defer u.log.mu.Unlock()
	return u.log.count, u.log.total
}

// callLog remembers the last calls and sums up all.
type callLog struct {
	keep int

	mu    sync.Mutex
	last  []*Call
	count int64
	total price.Usage
}

// logged is what the log tells of a chat.
func (r *request) logged(prompt int) *Call {
	c := &Call{
		Model:           r.Model,
		MaxOutputTokens: r.maxOutputTokens(),
		MaxTokensField:  "max_completion_tokens",
		Stream:          r.Stream,
		PromptTokens:    prompt,
	}
	if r.MaxTokens != nil {
		c.MaxTokensField = "max_tokens"
	}
	for _, m := range r.Messages {
		c.Messages = append(c.Messages, Message{Role: m.Role, Content: m.text})
	}
	return c
}

func (l *callLog) add(c *Call, body []byte) {
	if len(body) <= maxKept {
		c.Body = body
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.last = append(l.last, c)
	if len(l.last) > l.keep {
		l.last = slices.Delete(l.last, 0, 1)
	}
}

func (l *callLog) answered(c *Call, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Status = status
}

func (l *callLog) bill(c *Call, u price.Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sum := range []*price.Usage{&c.Billed, &l.total} {
		sum.Input += u.Input
		sum.CachedInput += u.CachedInput
		sum.Output += u.Output
		sum.Reasoning += u.Reasoning
	}
}

func (l *callLog) list() []Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := make([]Call, len(l.last))
	for i, c := range l.last {
		calls[i] = *c
		calls[i].Messages = slices.Clone(c.Messages)
		calls[i].Inputs = slices.Clone(c.Inputs)
	}
	return calls
}
