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

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// model drives two processes on one identity at random and holds every step of
// the store against the pure rule: what an item becomes must follow from what it
// was, whatever is lost, repeated or late on the way.
type model struct {
	w         *world
	t         *rapid.T
	key       string
	processes []*Buckets
	denied    [2]micros // when each process was last denied by a limit
	limits    []Limit
	open      []*Reservation
	lost      []*Reservation // open, but nobody will settle them
	steps     int            // reserves and clears so far
	cleared   map[string]modelClear
	receipts  map[*Reservation]modelReceipt
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
			cleared: map[string]modelClear{}, receipts: map[*Reservation]modelReceipt{},
			costs: map[*Reservation][]int64{}, used: map[string][]*use{}, pending: map[*Reservation][]*use{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) { m.t = t; m.reserve() },
			"settle":  func(t *rapid.T) { m.t = t; m.settle() },
			"clear":   func(t *rapid.T) { m.t = t; m.clear() },
			"lose":    func(t *rapid.T) { m.t = t; m.lose() },
			"sweep":   func(t *rapid.T) { m.t = t; m.sweep() },
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
		for len(m.lost) > 0 {
			m.sweep()
		}
		m.deliver()
		m.wantConsistent()
		for attr, used := range m.used {
			for _, l := range m.limits {
				if l.of("").tat() != attr {
					continue
				}
				// A clock that steps back by up to 0.3 s makes windows look shorter, and
				// each rounded-up start from a tolerance admits one unit at most.
				over := excess(used, l.Capacity, l.period())
				most := 1 + l.Capacity*500_000/int64(l.period()) + 1
				check.Must(t, over <= most, "%s: a window used %d more than it may", l.Name, over)
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
	before, now := m.item(), m.w.now()
	d, err := b.Reserve(context.Background(), req)
	check.OK(m.t, err)
	after := m.item()

	fit := true
	for i, c := range req.Charges {
		p := c.Limit.period()
		attr := c.Limit.of("").tat()
		inc, _ := increment(costs[i], c.Limit.Capacity, p)
		was, is := m.micros(before, attr), m.micros(after, attr)
		fit = fit && fits(was, now, inc, p)
		if d.Reservation == nil {
			check.Must(m.t, was == is, "a denial moved %s from %d to %d", attr, was, is)
			continue
		}
		if right := max(was, now) + inc; is != right { // one wrong guess costs nothing
			m.t.Fatalf("%s went from %d to %d at %d, want %d", attr, was, is, now, right)
		}
		if got, want := d.Limits[i].Remaining, remaining(is, now, c.Limit.Capacity, p); got != want {
			m.t.Fatalf("%s: told that %d remain, want %d", attr, got, want)
		}
	}
	full := m.number(before, attrOpen) >= modelInFlight
	switch {
	case d.Reservation != nil:
		check.Must(m.t, fit && !full, "admitted though it fits %t, in flight full %t", fit, full)
		m.open = append(m.open, d.Reservation)
		m.costs[d.Reservation] = costs
		m.steps++
		receipt := modelReceipt{at: m.steps}
		for i, c := range d.Reservation.charges {
			tat := m.micros(after, c.tat())
			inc, _ := increment(costs[i], c.Limit.Capacity, c.period)
			receipt.states = append(receipt.states, modelState{tat, max(0, m.micros(before, c.tat())-now), m.micros(after, c.credits())})
			if tat != max(m.micros(before, c.tat()), now)+inc {
				m.t.Fatalf("%s: the TAT is %d", c.tat(), tat)
			}
		}
		m.receipts[d.Reservation] = receipt
		for i, c := range d.Reservation.charges {
			u := &use{now, costs[i]}
			m.used[c.tat()] = append(m.used[c.tat()], u)
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
	before, now := m.item(), m.w.now()
	check.OK(m.t, r.Settle(context.Background(), used))
	after := m.item()
	for j, c := range r.charges {
		amount := used[j]
		if c.Limit.Return == Never {
			amount = m.costs[r][j]
		}
		m.pending[r][j].amount = amount
		m.wantBack(r, j, amount, before, after, now)
	}
	check.Must(m.t, m.number(after, attrOpen) == m.number(before, attrOpen)-1, "the open count did not go down by one")
}

// wantBack asserts what one limit of a call gave back when it ended: by the rule, and
// never less than what was unused but for the refill of the time that it was open.
func (m *model) wantBack(r *Reservation, j int, amount int64, before, after item, now micros) {
	c := &r.charges[j]
	g, gAfter := m.micros(before, c.credits()), m.micros(after, c.credits())
	back := m.micros(before, c.tat()) - m.micros(after, c.tat())
	var want, least micros
	if c.Limit.Return != Never && !m.cleared[c.Limit.Name].after(r, m.receipts[r].at) {
		unused := c.inc
		if amount > 0 {
			inc, _ := increment(amount, c.Limit.Capacity, c.period)
			unused -= inc
		}
		least = min(unused, c.inc-max(0, now-r.start))
		want = max(0, least)
		if s := m.receipts[r].states[j]; r.afterKnown {
			want = refund(unused, s.tat, s.below, g-s.credits, now)
		}
	}
	if back != want || gAfter-g != want || back < least {
		m.t.Fatalf("%s: gave back %d, counted %d, want %d, at least %d", c.tat(), back, gAfter-g, want, least)
	}
}

// lose lets the process of a call die.
func (m *model) lose() {
	if len(m.open) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.open)-1).Draw(m.t, "which")
	m.lost = append(m.lost, m.open[i])
	m.open = slices.Delete(m.open, i, i+1)
}

// sweep removes the hold of a lost call, as whoever comes by after its expiry does.
func (m *model) sweep() {
	if len(m.lost) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.lost)-1).Draw(m.t, "which")
	r := m.lost[i]
	m.lost = slices.Delete(m.lost, i, i+1)
	b := m.processes[rapid.IntRange(0, 1).Draw(m.t, "process")]
	m.deliver() // whatever was late has arrived by the time that a hold expires
	m.fault(faults.LostRequest, faults.LostReply, faults.LateRequest, faults.ErrorReply, faults.Throttled)
	before, now := m.item(), m.w.now()
	h, err := decodeHold(before.holdBytes(r.id))
	check.OK(m.t, err)
	if _, err := b.removeExpired(context.Background(), m.key, before, storedHold{h, r.id, r.hold}); err != nil {
		m.t.Fatal(err)
	}
	r.afterKnown = false // a sweep knows only the hold
	after := m.item()
	for j, c := range r.charges {
		amount := m.costs[r][j]
		if c.Limit.Return == OnExpiry {
			amount = 0
			m.wantBack(r, j, 0, before, after, now)
		} else if m.micros(before, c.tat()) != m.micros(after, c.tat()) {
			m.t.Fatalf("%s came back with a sweep", c.tat())
		}
		m.pending[r][j].amount = amount
	}
	check.Must(m.t, m.number(after, attrOpen) == m.number(before, attrOpen)-1, "the open count did not go down by one")
}

// modelReceipt is what is known of a reserve, from the item itself.
type modelReceipt struct {
	at     int // its place among the steps
	states []modelState
}

type modelState struct{ tat, below, credits micros }

// modelClear is the last clear of a limit.
type modelClear struct {
	step int // 0: never
	when micros
}

// after reports whether a call was charged before the clear, or, where only its start
// is known, may have been.
func (c modelClear) after(r *Reservation, step int) bool {
	return c.step > step || !r.afterKnown && c.step > 0 && r.start <= c.when+clearMargin
}

func (m *model) clear() {
	l := rapid.SampledFrom(m.limits).Draw(m.t, "limit")
	m.fault(faults.LostReply, faults.Throttled)
	before := m.item()
	err := m.processes[rapid.IntRange(0, 1).Draw(m.t, "process")].Clear(context.Background(), m.key, l)
	if before == nil {
		check.Must(m.t, errors.Is(err, ErrNotFound) && m.item() == nil, "clearing nobody: %v", err)
		return
	}
	check.OK(m.t, err)
	after := m.item()
	attr := l.of("").tat()
	m.steps++
	m.cleared[l.Name] = modelClear{m.steps, m.micros(after, l.of("").cleared())}
	if g := m.micros(after, l.of("").credits()) - m.micros(before, l.of("").credits()); l.Return != Never && (g == 0 || g%(clearCredits*l.period()) != 0) { // twice if a reply was lost
		m.t.Fatalf("a clear added %d µs to the credits", g)
	}
	check.Must(m.t, m.cleared[l.Name].when > m.micros(before, l.of("").cleared()), "a clear is not later than the one before")
	check.Must(m.t, m.micros(after, attr) == 0 && m.number(after, attrOpen) == m.number(before, attrOpen), "not cleared, or more than that")
	delete(m.used, attr)
}

// deliver lets late requests arrive: they must change nothing.
func (m *model) deliver() {
	before := m.item()
	check.OK(m.t, m.w.net.Deliver())
	after := m.item()
	for attr := range after {
		if strings.HasPrefix(attr, tatPrefix) || attr == attrOpen {
			check.Must(m.t, m.micros(before, attr) == m.micros(after, attr), "a late request changed %s", attr)
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
	all := slices.Concat(m.open, m.lost)
	if open := m.number(it, attrOpen); open != int64(len(all)) || len(live) != len(all) {
		m.t.Fatalf("%d calls are open, the item counts %d and marks %d", len(all), open, len(live))
	}
	for _, r := range all {
		check.Must(m.t, it.hasHold(r.id, r.hold), "the hold of %s is gone", r.id)
	}
}

func (m *model) micros(it item, attr string) micros { return micros(m.number(it, attr)) }

func (m *model) number(it item, attr string) int64 {
	n, err := it.number(attr)
	check.OK(m.t, err)
	return n
}
