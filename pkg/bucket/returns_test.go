package bucket

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// orders gives all orders of n things.
func orders(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, shorter := range orders(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(shorter), at, n-1))
		}
	}
	return all
}

// Calls that were open together and gave nothing take nothing, in whatever order they
// end and whether or not the process that ends one knows of the others.
func TestEveryOrderOfEndsLeavesTheQuotaWhole(t *testing.T) {
	t.Parallel()
	for n := 2; n <= 4; n++ {
		for _, order := range orders(n) {
			w := newWorld(t)
			one := w.process()
			var open []*Reservation
			for range n {
				b := one
				if len(open)%2 == 1 {
					b = w.process()
				}
				open = append(open, w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 100}, Charge{Limit: quota, Cost: 2})))
			}
			for _, i := range order {
				w.calls.Store(0)
				w.settle(open[i], 0, 0)
				check.Equal(t, w.calls.Load(), 1, "order %v: round trips for a settle, what others were given makes no difference here", order)
			}
			if w.left("user#1", tokens) != 5000 || w.left("user#1", quota) != 10 {
				t.Errorf("order %v: %d tokens and %d of the quota remain, want all", order, w.left("user#1", tokens), w.left("user#1", quota))
			}
		}
	}
}

// Of calls that were open for a while no more stays charged than was billed and was
// refilled meanwhile; and not less than was billed.
func TestNoMoreStaysChargedThanWasRefilled(t *testing.T) {
	t.Parallel()
	for _, order := range orders(3) {
		w := newWorld(t)
		b := w.process()
		var open []*Reservation
		for range 3 {
			open = append(open, w.admit(b, w.request("user#1", Charge{Limit: tokens, Cost: 1000})))
			w.clock.advance(time.Second)
		}
		began := w.clock.now().Add(-3 * time.Second)
		for _, i := range order {
			w.settle(open[i], 200)
			w.clock.advance(time.Second)
		}
		now := w.clock.now()
		charged := (w.micros("user#1", "t_tokens_3600") - at(now)).duration()
		billed := 600 * 720 * time.Millisecond
		if charged > billed || charged < billed-now.Sub(began) {
			t.Errorf("order %v: %s stay charged, want %s less at most %s of refill", order, charged, billed, now.Sub(began))
		}
	}
}

// What was charged before a clear has gone with it: a call that was open then gives
// nothing back, whether it knows what its reserve left behind or lost that reply. What
// was charged after it comes back. The clear of a neighbour makes no difference.
func TestClearEndsWhatOpenCallsAreOwed(t *testing.T) {
	t.Parallel()
	const reserved, gap = 10, 10 * time.Second
	type scene struct {
		name      string
		replyLost bool
		before    bool // cleared before the reserve, not after it
		gap       time.Duration
		want      int64 // of 10 for the next call, when the first gives its 10 back
	}
	for _, tc := range []scene{
		{"cleared while open", false, false, gap, 0},
		{"cleared while open, at once", false, false, 0, 0},
		{"cleared while open, reply lost", true, false, gap, 0},
		{"cleared while open at once, reply lost", true, false, 0, 0},
		{"cleared before", false, true, gap, 10},
		{"cleared just before", false, true, 0, 10},
		{"cleared before, reply lost", true, true, gap, 10},
		// By its start alone it might have been charged before the clear.
		{"cleared just before, reply lost", true, true, 0, 0},
	} {
		for _, client := range []string{"", clientNumber(1)} {
			t.Run(tc.name+" "+client, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				b := w.process()
				request := func(cost int64) Request {
					req := w.request("net#1", Charge{Limit: quota, Cost: cost, OfClient: client != ""})
					req.Client = Client{Key: client, MaxInFlight: 8}
					req.Deadline = req.Deadline.Add(time.Hour)
					return req
				}
				clear := func() {
					t.Helper()
					check.OK(t, w.process().clear(ctx, "net#1", client, []Limit{quota}))
				}
				w.settle(w.admit(b, request(1)), 1)
				w.clock.advance(time.Minute)
				w.settle(w.admit(b, request(1)), 0) // there are credits of before
				if tc.before {
					clear()
					w.clock.advance(tc.gap)
				}
				switch {
				case tc.replyLost && tc.before: // the first guess, of before the clear, is wrong
					w.faulty(faults.None, faults.LostReply)
				case tc.replyLost:
					w.faulty(faults.LostReply)
				}
				if !tc.before { // the quota is not whole: one was used
					open := w.admit(b, request(9))
					w.clock.advance(tc.gap)
					clear()
					w.settle(w.admit(w.process(), request(10)), 10)
					w.settle(open, 0)
				} else {
					w.settle(w.admit(b, request(reserved)), 0)
				}
				attr := quota.of(client).tat()
				left := remaining(w.micros("net#1", attr), w.now(), quota.Capacity, quota.period())
				check.Equal(t, left, tc.want, "remain")
				w.wantOpen("net#1", 0)
			})
		}
	}
}

// A reply is lost and the limit cleared before it is asked for again: what is known of
// the reserve then is of after the clear. It is given back nothing, at the first try or,
// if another limit was cleared since, at the second.
func TestClearedBeforeTheReserveIsKnown(t *testing.T) {
	t.Parallel()
	for tries := int64(1); tries <= 2; tries++ {
		w := newWorld(t)
		b := w.process()
		r := w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10}, Charge{Limit: tokens, Cost: 1000}))
		w.clock.advance(time.Minute / 2)
		clear := func(l Limit) {
			t.Helper()
			check.OK(t, b.Clear(ctx, "user#1", l))
		}
		clear(quota)
		// As the reserve would have found it, had its second send come only now.
		r.afterKnown = false
		for i, c := range r.charges {
			var err error
			if r.charges[i], err = c.charge.taken(w.item("user#1"), w.now()); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10})), 10)
		if tries == 2 {
			clear(tokens)
		}
		w.calls.Store(0)
		w.settle(r, 0, 0)
		if w.left("user#1", quota) != 0 || w.left("user#1", tokens) != 5000 {
			t.Errorf("%d of the quota and %d tokens remain, want 0 and 5000", w.left("user#1", quota), w.left("user#1", tokens))
		}
		check.Equal(t, w.calls.Load(), tries, "round trips")
	}
}

// Without the reply to its reserve, a call that used a part gets the rest back, though
// more time has passed than a plain "unused less age" would leave of it.
func TestUnknownReserveGivesBackWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.faulty(faults.LostReply)
	r := w.admit(w.process(), w.request("user#1", Charge{Limit: tokens, Cost: 5000}))
	w.clock.advance(30 * time.Second)
	w.settle(r, 4900) // 100 unused are 72 s
	if got, want := w.micros("user#1", "g_tokens_3600"), 72*second; got != want {
		t.Errorf("%d µs came back, want %d", got, want)
	}
}

// Clearing one client's limit leaves what open calls of the others, and of the network
// itself, are owed; in settles and in sweeps.
func TestClearOfOneClientLeavesItsNeighbours(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{false, true} {
		w := newWorld(t)
		b := w.process()
		one, two := clientNumber(1), clientNumber(2)
		visit := func(client string, cost int64) Request {
			req := w.request("net#1", Charge{Limit: quota, Cost: 1}, Charge{Limit: quota, Cost: cost, OfClient: true})
			req.Client = Client{Key: client, MaxInFlight: 8}
			return req
		}
		w.admit(b, visit(one, 10))
		neighbour := w.admit(b, visit(two, 10))
		check.OK(t, b.ClearClient(ctx, "net#1", one, quota))
		if swept {
			w.clock.advance(10 * time.Minute)
			var err error
			if _, err = b.sweep(ctx, "net#1", w.item("net#1"), w.now()); err != nil {
				t.Fatal(err)
			}
		} else {
			w.settle(neighbour, 0, 0)
			w.wantOpen("net#1", 1)
		}
		left := func(client string) int64 {
			return remaining(w.micros("net#1", slot{client, "cv", day}.tat()), w.now(), 10, day)
		}
		if left(two) != 10 || left(one) != 10 {
			t.Errorf("swept %t: %d and %d remain, want 10 each", swept, left(one), left(two))
		}
		// Of the network's own one is in use by the call that is still open, or the time
		// that both were is what a sweep cannot tell from refill.
		check.Equal(t, left(""), 9, "swept %t: remain of the network's own", swept)
		check.Equal(t, w.micros("net#1", "g_"+one+"_cv_86400"), 16*day, "swept %t: the cleared client's credits are", swept)
	}
}

// While a deployment lasts, a process of the version before may clear a client's limit:
// it sets the TAT to 0, adds 16 periods to the credits and marks the time under the
// limit's name alone. That ends what this client's open calls are owed, and no other's.
func TestClearByAnOlderVersion(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{false, true} {
		w := newWorld(t)
		b := w.process()
		one, two := clientNumber(1), clientNumber(2)
		visit := func(client string, cost int64) Request {
			req := w.request("net#1", Charge{Limit: quota, Cost: cost, OfClient: true})
			req.Client = Client{Key: client, MaxInFlight: 8}
			return req
		}
		cleared := w.admit(b, visit(one, 5))
		neighbour := w.admit(b, visit(two, 5))
		w.clock.advance(time.Second)
		w.put("net#1", slot{one, "cv", day}.tat(), "0")
		w.put("net#1", slot{one, "cv", day}.credits(), strconv.FormatInt(int64(16*day), 10))
		w.put("net#1", "cleared_cv", strconv.FormatInt(int64(w.now()), 10))
		w.settle(w.admit(b, visit(one, 10)), 10)
		if swept {
			w.clock.advance(10 * time.Minute)
			if _, err := b.sweep(ctx, "net#1", w.item("net#1"), w.now()); err != nil {
				t.Fatal(err)
			}
		} else {
			w.settle(cleared, 0)
			w.settle(neighbour, 0)
		}
		w.wantOpen("net#1", 0)
		left := func(client string) int64 {
			return remaining(w.micros("net#1", slot{client, "cv", day}.tat()), w.now(), 10, day)
		}
		check.Equal(t, left(one), 0, "swept %t: remain", swept)
		if !swept && left(two) != 10 {
			t.Errorf("%d remain of the neighbour's, want 10", left(two))
		}
	}
}

// A clear is known by its time; one of an older version by its time and its credits. By
// the start alone, what is within the clocks' margin counts as before it.
func TestClearedSince(t *testing.T) {
	t.Parallel()
	const period = 100
	then := returns{credits: 7, cleared: 50, named: 60}
	for now, want := range map[returns]bool{
		then:                                                 false,
		{credits: 1e9, cleared: 50, named: 60}:               false, // others were given back a lot
		{credits: 7, cleared: 51, named: 60}:                 true,
		{credits: 7, cleared: 50, named: 61}:                 false, // a neighbour's
		{credits: 7 + 16*period - 1, cleared: 50, named: 61}: false,
		{credits: 7 + 16*period, cleared: 50, named: 61}:     true,
	} {
		check.Equal(t, now.clearedSince(then, period), want, "%+v after %+v", now, then)
	}
	for _, tc := range []struct {
		returns
		start micros
		want  bool
	}{
		{returns{}, 0, false},
		{returns{}, 5, false},
		{returns{cleared: 100}, 99, true},
		{returns{cleared: 100}, 100 + clearMargin, true},
		{returns{cleared: 100}, 101 + clearMargin, false},
		{returns{named: 100}, 100 + clearMargin, true},
		{returns{cleared: 100, named: 90}, 100 + clearMargin, true},
		{returns{cleared: 90, named: 100}, 101 + clearMargin, false},
	} {
		check.Equal(t, tc.clearedAfter(tc.start), tc.want, "%+v, start %d", tc.returns, tc.start)
	}
}

// A client that gives way takes the marks of its clears along.
func TestEvictionTakesTheClearsAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	idle := clientNumber(31)
	daily := clientTokens
	daily.Period = 24 * time.Hour
	for i := range 31 {
		w.settle(w.admit(b, w.visit(clientNumber(i), 1000)), 1000, 1000)
	}
	req := w.visit(idle, 10)
	req.Charges = append(req.Charges, Charge{Limit: daily, Cost: 1, OfClient: true})
	w.settle(w.admit(b, req), 0, 0, 0)
	check.OK(t, b.ClearClient(ctx, "net#1", idle, clientTokens, daily))
	w.clock.advance(time.Second)
	w.settle(w.admit(b, w.visit(clientNumber(100), 10)), 10, 10)
	for attr := range w.item("net#1") {
		check.That(t, !strings.Contains(attr, idle), "%s is still there", attr)
	}
}

// Clears at one instant are told apart: a call of between two of them is owed nothing
// after the second.
func TestClearsAtOneInstant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 1})), 1)
	clear := func() {
		t.Helper()
		check.OK(t, w.process().Clear(ctx, "user#1", quota))
	}
	clear()
	between := w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10}))
	clear()
	clear()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10})), 10)
	w.settle(between, 0)
	check.Equal(t, w.left("user#1", quota), 0, "remain")
}

// A send of a clear that comes late changes nothing: neither is what was used since
// cleared, nor does it end what is owed by then.
func TestLateClearChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10})), 10)
	w.faulty(faults.LateRequest)
	check.OK(t, b.Clear(ctx, "user#1", quota))
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 4})), 4)
	open := w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 6}))
	check.OK(t, w.net.Deliver())
	check.Equal(t, w.left("user#1", quota), 0, "remain")
	w.settle(open, 0)
	check.Equal(t, w.left("user#1", quota), 6, "remain")
}

// One write clears several periods of a limit.
func TestClearSeveralPeriodsOfALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	longer := quota
	longer.Period = 12 * time.Hour
	w.settle(w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10}, Charge{Limit: longer, Cost: 10})), 10, 10)
	check.OK(t, b.Clear(ctx, "user#1", quota, longer))
	if w.left("user#1", quota) != 10 || w.left("user#1", longer) != 10 {
		t.Errorf("%d and %d remain, want 10 each", w.left("user#1", quota), w.left("user#1", longer))
	}
}

// A sweep that meets a clear of one limit still gives back the others.
func TestSweepMeetsAClearOfOneLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	linkedin := Limit{Name: "linkedin", Capacity: 10, Period: 24 * time.Hour, Return: OnExpiry}
	w.admit(b, w.request("user#1", Charge{Limit: quota, Cost: 10}, Charge{Limit: linkedin, Cost: 10}))
	w.clock.advance(2 * time.Minute)
	stale := w.item("user#1")
	check.OK(t, w.process().Clear(ctx, "user#1", quota))
	if _, err := b.sweep(ctx, "user#1", stale, w.now()); err != nil {
		t.Fatal(err)
	}
	w.wantOpen("user#1", 0)
	if got := w.micros("user#1", "g_cv_86400"); got != 16*day {
		t.Errorf("%d µs of the quota that was cleared came back", got-16*day)
	}
	if got, want := w.micros("user#1", "g_linkedin_86400"), day-120*second; got != want {
		t.Errorf("%d µs of the other came back, want %d", got, want)
	}
}
