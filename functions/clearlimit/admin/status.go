package admin

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/fuse"
	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/openai"
	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/verdict"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

const (
	// statusWindow is what a status looks back on.
	statusWindow = time.Hour
	// statusTimeout bounds the reading of a status, of which each part is read for itself.
	statusTimeout = 22 * time.Second
)

// statusView is how a deployment stands. A part that could not be read is null, and
// problems says so: who is paged at night needs the rest. Dollars are exact decimals.
type statusView struct {
	Time    int64            `json:"time"` // Unix seconds, like all times here
	Spend   *spendView       `json:"spend"`
	Alarm   *alarmView       `json:"alarm"`
	Fuse    *fuseView        `json:"fuse"`
	Blocks  []namedBlock     `json:"blocks"` // those that end last, first
	Pools   []poolStatus     `json:"pools"`
	Denials map[string]int64 `json:"denials"` // calls of the last hour, by limit or by the error's code
	// DenialsOf is process where those of other processes are not among the denials.
	DenialsOf string   `json:"denials_of,omitempty"`
	Problems  []string `json:"problems"`
}

// spendView is what was spent in the last hour, and by whom.
type spendView struct {
	USD   string    `json:"usd"`
	Calls int64     `json:"calls"`
	Top   []spender `json:"top"` // the dearest identities, at most 10
}

type spender struct {
	Identity string `json:"identity"`
	USD      string `json:"usd"`
	Calls    int64  `json:"calls"`
}

// alarmView is what spendalarm compared with when it ran last, null where it is not
// known.
type alarmView struct {
	State     string  `json:"state"` // normal, alarm, or off: the configuration has none
	Since     *int64  `json:"since"` // of an alarm
	Threshold *string `json:"threshold_usd"`
	From      *string `json:"threshold_from"`
	Peak      *string `json:"normal_peak_usd"`
	Seen      *int64  `json:"seen"` // up to when it has seen
}

type namedBlock struct {
	Identity string `json:"identity"`
	blockView
}

// poolStatus is how a pool stands. What is committed was spent or is out on lease, and
// has not been refilled yet: which of the two, only the processes know.
type poolStatus struct {
	Name      string  `json:"name"`
	Ceiling   string  `json:"ceiling_usd"`
	Period    int64   `json:"period_seconds"`
	AtOnce    string  `json:"at_once_usd"` // of the ceiling: the rest comes back evenly
	Spent     *string `json:"spent_usd"`   // in the last hour, by the ledger; null: not known
	Committed string  `json:"committed_usd"`
	Free      string  `json:"free_usd"` // may be spent now
	Debt      string  `json:"debt_usd"`
}

// status answers GET /admin/status.
func (h *Handler) status(w http.ResponseWriter, r *request) *openai.Error {
	ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
	defer cancel()
	now := h.Now()
	view := statusView{Time: now.Unix(), Problems: []string{}}
	var mu sync.Mutex // of view
	var all sync.WaitGroup
	// part reads a part of the view; take, which it gives, puts it there.
	part := func(what string, read func() (take func(), err error)) {
		all.Go(func() {
			take, err := read()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.log.Error("a part of the status cannot be read", "part", what, "error", err)
				view.Problems = append(view.Problems, what+" cannot be read: the log of clearlimit says why")
				return
			}
			take()
		})
	}
	var sum *ledger.Summary
	part("what was spent", func() (func(), error) {
		s, err := h.Spend.Sum(ctx, now.Add(-statusWindow), now)
		return func() { sum, view.Spend = &s, viewOfSpend(s) }, err
	})
	part("the alarm", func() (func(), error) {
		a, err := verdict.Read(ctx, h.DB, h.Table)
		return func() { view.Alarm = h.viewOfAlarm(a) }, err
	})
	part("the fuse", func() (func(), error) {
		s, err := h.Fuse.Current(ctx)
		return func() { view.Fuse, view.Blocks = new(viewOf(s.Setting)), viewOfBlocks(s.Blocks.At(now)) }, err
	})
	states := map[string]bucket.PoolState{}
	for name, p := range h.Pools {
		part("the pool "+name, func() (func(), error) {
			s, err := p.State(ctx)
			return func() { states[name] = s }, err
		})
	}
	if h.Apart {
		view.DenialsOf = "process"
	}
	if h.Denials != nil {
		part("the number of denials", func() (func(), error) {
			denials, err := h.Denials(ctx, now.Add(-statusWindow), now)
			return func() { view.Denials = denials }, err
		})
	}
	all.Wait()
	slices.Sort(view.Problems)
	view.Pools = []poolStatus{}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		view.Pools = append(view.Pools, h.viewOfPool(name, states[name], sum))
	}
	openai.Answer(w, view)
	return nil
}

func viewOfSpend(s ledger.Summary) *spendView {
	v := &spendView{USD: s.Total.Cost.String(), Calls: s.Total.Calls, Top: []spender{}}
	for _, top := range s.Top {
		v.Top = append(v.Top, spender{top.Identity, top.Cost.String(), top.Calls})
	}
	return v
}

func (h *Handler) viewOfAlarm(a verdict.Alarm) *alarmView {
	if h.Policy.Alarm == nil {
		return &alarmView{State: "off"}
	}
	v := &alarmView{State: "normal"}
	if !a.Since.IsZero() {
		v.State, v.Since = "alarm", new(a.Since.Unix())
	}
	if a.Threshold > 0 {
		v.Threshold, v.From = new(a.Threshold.String()), &a.From
	}
	if a.Peak > 0 {
		v.Peak = new(a.Peak.String())
	}
	if !a.Seen.IsZero() {
		v.Seen = new(a.Seen.Unix())
	}
	return v
}

func viewOfBlocks(blocks fuse.Blocks) []namedBlock {
	views := []namedBlock{}
	for identity, b := range blocks {
		views = append(views, namedBlock{identity, blockView{b.Until.Unix(), b.SetBy}})
	}
	slices.SortFunc(views, func(a, b namedBlock) int {
		if a.Until != b.Until {
			return int(b.Until - a.Until)
		}
		return strings.Compare(a.Identity, b.Identity)
	})
	return views
}

func (h *Handler) viewOfPool(name string, s bucket.PoolState, sum *ledger.Summary) poolStatus {
	p := h.Policy.Pools[name]
	v := poolStatus{
		Name: name, Ceiling: p.Ceiling.String(), Period: int64(p.Period.Seconds()), AtOnce: price.Pico(s.Limit.Capacity).String(),
		Committed: price.Pico(s.Limit.Capacity - s.Remaining + s.Debt).String(), Free: price.Pico(s.Remaining).String(), Debt: price.Pico(s.Debt).String(),
	}
	if sum != nil {
		v.Spent = new(h.spentOf(name, *sum).String())
	}
	return v
}

// spentOf is what callers of a pool have spent: of the one that all draw on everything,
// else what the tiers have that draw on it.
func (h *Handler) spentOf(pool string, sum ledger.Summary) price.Pico {
	if pool == policy.PoolAll {
		return sum.Total.Cost
	}
	var spent price.Pico
	for name, a := range sum.Tiers {
		if t := h.Policy.Tiers[name]; t != nil && t.Pool == pool {
			spent = price.Sum(spent, a.Cost)
		}
	}
	return spent
}
