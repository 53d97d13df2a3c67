package bucket

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tokenfuse/tokenfuse/local/faults"
)

// model drives two processes on one identity at random and holds every step of
// the store against the pure rule: what an item becomes must follow from what it
// was, whatever is lost, repeated or late on the way.
type model struct {
	w         *world
	t         *rapid.T
	key       string
	processes []*Buckets
	denied    [2]int64 // when each process was last denied by a limit
	limits    []Limit
	open      []*Reservation
	costs     map[*Reservation][]int64
	used      map[string][]*use // really used since the last clear, by TAT attribute
	pending   map[*Reservation][]*use
}

const modelInFlight = 6

var modelKeys atomic.Int64

func TestStoreFollowsTheRule(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(t *rapid.T) {
		w.plan = nil
		w.net.Forget()
		w.clock.micros.Store(newClock().micros.Load())
		m := &model{w: w, t: t, key: fmt.Sprintf("user#%d", modelKeys.Add(1)),
			processes: []*Buckets{w.process(), w.process()},
			limits: []Limit{
				{Name: "tokens", Capacity: 1000, Period: 1000 * time.Second, Return: OnSettle},
				{Name: "requests", Capacity: 30, Period: time.Minute, Return: Never},
				{Name: "quota", Capacity: 7, Period: time.Hour, Return: OnExpiry},
			},
			costs: map[*Reservation][]int64{}, used: map[string][]*use{}, pending: map[*Reservation][]*use{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) { m.t = t; m.reserve() },
			"settle":  func(t *rapid.T) { m.t = t; m.settle() },
			"clear":   func(t *rapid.T) { m.t = t; m.clear() },
			"deliver": func(t *rapid.T) { m.t = t; m.deliver() },
			"time": func(t *rapid.T) {
				w.clock.advance(time.Duration(rapid.Int64Range(0, 200_000_000).Draw(t, "µs")) * time.Microsecond)
			},
			"clock steps back": func(t *rapid.T) {
				w.clock.advance(-time.Duration(rapid.Int64Range(0, 300_000).Draw(t, "µs")) * time.Microsecond)
			},
			"": func(t *rapid.T) { m.t = t; m.wantConsistent() },
		})
		m.t = t
		for len(m.open) > 0 {
			m.settle()
		}
		m.deliver()
		m.wantConsistent()
		for attr, used := range m.used {
			for _, l := range m.limits {
				if tatAttr("", l.Name, l.period()) != attr {
					continue
				}
				// A clock that steps back by up to 0.3 s makes windows look shorter, and
				// each rounded-up start from a tolerance admits one unit at most.
				over := excess(used, l.Capacity, l.period())
				if slackUnits := 1 + l.Capacity*500_000/l.period() + 1; over > slackUnits {
					t.Fatalf("%s: a window used %d more than it may", l.Name, over)
				}
			}
		}
	})
}

// fault draws what happens to the next send; the ones after it go through.
func (m *model) fault(kinds ...faults.Fault) faults.Fault {
	f := rapid.SampledFrom(append(kinds, faults.None, faults.None, faults.None)).Draw(m.t, "fault")
	m.w.faulty(f)
	return f
}

func (m *model) item() item { return m.w.item(m.key) }

func (m *model) reserve() {
	which := rapid.IntRange(0, 1).Draw(m.t, "process")
	b := m.processes[which]
	req := Request{Key: m.key, MaxInFlight: modelInFlight, Deadline: m.w.clock.now().Add(12 * time.Hour)}
	var costs []int64
	for i, l := range m.limits {
		if i > 0 && !rapid.Bool().Draw(m.t, "with "+l.Name) {
			continue
		}
		cost := rapid.Int64Range(1, l.Capacity).Draw(m.t, l.Name)
		if rapid.Bool().Draw(m.t, "little") {
			cost = 1 + cost/20
		}
		req.Charges = append(req.Charges, Charge{Limit: l, Cost: cost})
		costs = append(costs, cost)
	}
	m.fault(faults.LostRequest, faults.LostReply, faults.LateRequest, faults.ErrorReply, faults.Throttled)
	before, now := m.item(), m.w.clock.now().UnixMicro()
	d, err := b.Reserve(context.Background(), req)
	if err != nil {
		m.t.Fatal(err)
	}
	after := m.item()

	fit := true
	for i, c := range req.Charges {
		p := c.Limit.period()
		attr := tatAttr("", c.Limit.Name, p)
		inc, _ := increment(costs[i], c.Limit.Capacity, p)
		was, is := m.number(before, attr), m.number(after, attr)
		fit = fit && fits(was, now, inc, p)
		if d.Reservation == nil {
			if was != is {
				m.t.Fatalf("a denial moved %s from %d to %d", attr, was, is)
			}
			continue
		}
		right := []int64{max(was, now) + inc}
		if was <= now+near {
			right = append(right, now+max(0, min(slack, p-inc))+inc)
		}
		if !slices.Contains(right, is) {
			m.t.Fatalf("%s went from %d to %d at %d, want one of %d", attr, was, is, now, right)
		}
	}
	full := m.number(before, attrOpen) >= modelInFlight
	switch {
	case d.Reservation != nil:
		if !fit || full {
			m.t.Fatalf("admitted though it fits %t, in flight full %t", fit, full)
		}
		m.open = append(m.open, d.Reservation)
		m.costs[d.Reservation] = costs
		for i, c := range d.Reservation.charges {
			u := &use{now, costs[i]}
			m.used[c.tat] = append(m.used[c.tat], u)
			m.pending[d.Reservation] = append(m.pending[d.Reservation], u)
		}
	case fit && !full && now-m.denied[which] >= denialMemory:
		m.t.Fatalf("denied by %+v though it fits", d.Denials)
	case !fit:
		m.denied[which] = now
	}
}

func (m *model) settle() {
	if len(m.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(m.t, "which")
	r := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	used := make([]int64, len(r.charges))
	for j, cost := range m.costs[r] {
		used[j] = rapid.SampledFrom([]int64{0, cost / 2, cost, cost}).Draw(m.t, "used")
	}
	m.fault(faults.LostRequest, faults.LostReply, faults.LateRequest, faults.ErrorReply, faults.Throttled)
	before, now := m.item(), m.w.clock.now().UnixMicro()
	if err := r.Settle(context.Background(), used); err != nil {
		m.t.Fatal(err)
	}
	after := m.item()
	for j, c := range r.charges {
		amount := used[j]
		if c.Limit.Return == Never {
			amount = m.costs[r][j]
		}
		m.pending[r][j].amount = amount
		g, gAfter := m.number(before, c.credits), m.number(after, c.credits)
		back := m.number(before, c.tat) - m.number(after, c.tat)
		var want int64
		if c.Limit.Return != Never {
			unused := c.inc
			if amount > 0 {
				inc, _ := increment(amount, c.Limit.Capacity, c.period)
				unused -= inc
			}
			if r.afterKnown {
				want = credit(unused, c.after, c.creditsAfter, g, now)
			} else if g <= c.creditsAfter+c.period {
				want = creditByAge(unused, r.start, now)
			}
		}
		if back != want || gAfter-g != want {
			m.t.Fatalf("%s: gave back %d, counted %d, want %d", c.tat, back, gAfter-g, want)
		}
	}
	if m.number(after, attrOpen) != m.number(before, attrOpen)-1 {
		m.t.Fatal("the open count did not go down by one")
	}
}

func (m *model) clear() {
	l := rapid.SampledFrom(m.limits).Draw(m.t, "limit")
	m.fault(faults.LostReply, faults.Throttled)
	before := m.item()
	err := m.processes[rapid.IntRange(0, 1).Draw(m.t, "process")].Clear(context.Background(), m.key, l)
	if before == nil {
		if !errors.Is(err, ErrNotFound) || m.item() != nil {
			m.t.Fatalf("clearing nobody: %v", err)
		}
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	after := m.item()
	attr := tatAttr("", l.Name, l.period())
	if m.number(after, attr) != 0 || m.number(after, attrOpen) != m.number(before, attrOpen) {
		m.t.Fatal("not cleared, or more than that")
	}
	delete(m.used, attr)
}

// deliver lets late requests arrive: they must change nothing.
func (m *model) deliver() {
	before := m.item()
	if err := m.w.net.Deliver(); err != nil {
		m.t.Fatal(err)
	}
	after := m.item()
	for attr := range after {
		if strings.HasPrefix(attr, tatPrefix) || attr == attrOpen {
			if m.number(before, attr) != m.number(after, attr) {
				m.t.Fatalf("a late request changed %s", attr)
			}
		}
	}
}

func (m *model) wantConsistent() {
	it := m.item()
	var live []string
	for h := range it.holds() {
		if !h.dead {
			live = append(live, h.id)
		}
	}
	if open := m.number(it, attrOpen); open != int64(len(m.open)) || len(live) != len(m.open) {
		m.t.Fatalf("%d calls are open, the item counts %d and marks %d", len(m.open), open, len(live))
	}
	for _, r := range m.open {
		if !it.hasHold(r.id, r.hold) {
			m.t.Fatalf("the hold of %s is gone", r.id)
		}
	}
}

func (m *model) number(it item, attr string) int64 {
	n, err := it.number(attr)
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}
