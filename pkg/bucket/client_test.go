package bucket

import (
	"encoding/base32"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

var (
	networkTokens = Limit{Name: "network_tokens", Capacity: 50_000, Period: time.Hour, Return: OnSettle}
	clientTokens  = tokens // 5,000 an hour
)

// clientNumber makes the key of the n-th client.
func clientNumber(n int) string {
	var b [5]byte
	binary.BigEndian.PutUint32(b[1:], uint32(n))
	return base32.StdEncoding.EncodeToString(b[:])
}

func (w *world) visit(client string, cost int64) Request {
	return Request{Key: "net#1", MaxInFlight: 1000, Client: Client{Key: client, MaxInFlight: 4}, Deadline: w.clock.now().Add(time.Minute),
		Charges: []Charge{{Limit: networkTokens, Cost: cost}, {Limit: clientTokens, Cost: cost, OfClient: true}}}
}

func (w *world) clients() (n int) {
	for attr := range w.item("net#1") {
		if len(attr) == len("o_")+8 && attr[:2] == "o_" {
			n++
		}
	}
	return n
}

func TestTwoLevelsInOneWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	one, two := clientNumber(1), clientNumber(2)
	r := w.admit(b, w.visit(one, 4000))
	check.Equal(t, w.calls.Load(), 1, "round trips")
	d := w.deny(b, w.visit(one, 2000), "tokens")
	check.Equal(t, d.Remaining, 1000, "remain")
	// The denial of one client is not remembered against another.
	other := w.admit(b, w.visit(two, 2000))
	check.Equal(t, w.left("net#1", networkTokens), 44_000, "network: remain")
	w.settle(r, 100, 100)
	w.settle(other, 0, 0)
	check.Equal(t, w.left("net#1", networkTokens), 49_900, "network: remain")
	w.admit(b, w.visit(one, 4900))
	w.admit(b, w.visit(two, 5000))
	w.wantOpen("net#1", 2)
	check.Equal(t, w.number("net#1", "n"), 2, "counts … clients")
}

func TestClientInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	one := clientNumber(1)
	var last *Reservation
	for range 4 {
		last = w.admit(b, w.visit(one, 1))
	}
	if d := w.deny(b, w.visit(one, 1), InFlight); d.Limit.Capacity != 4 {
		t.Errorf("denial %+v", d)
	}
	w.admit(b, w.visit(clientNumber(2), 1)) // a campus is one network
	w.settle(last, 1, 1)
	w.admit(b, w.visit(one, 1))
	req := w.visit(clientNumber(3), 1)
	req.MaxInFlight = 5
	if d := w.deny(b, req, InFlight); d.Limit.Capacity != 5 {
		t.Errorf("denial %+v", d)
	}
	// Lost calls of a client are swept from its count too.
	w.clock.advance(2 * time.Minute)
	w.settle(w.admit(w.process(), w.visit(clientNumber(9), 1)), 1, 1)
	check.Equal(t, w.number("net#1", "o_"+one), 0, "calls of the client still count as open")
	w.wantOpen("net#1", 0)
}

// More clients than there is room for, of which many can give way at any time, since
// their calls gave everything back: none is turned away because others were
// quicker.
func TestCrowdOfClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var processes []*Buckets
	for range 8 {
		processes = append(processes, w.process())
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 8 {
				req := w.visit(clientNumber(i), 10)
				req.Client.MaxInFlight = 64 // those without room share it
				d, err := processes[i%8].Reserve(ctx, req)
				if err != nil || d.Reservation == nil {
					t.Errorf("%v, %+v", err, d.Denials)
					continue
				}
				if err := d.Reservation.Settle(ctx, []int64{0, 0}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := w.clients()
	check.That(t, n <= maxClients+1, "%d clients in the item", n)
	w.wantOpen("net#1", 0)
}

// Rotating the user agent makes new clients, but they stay within the network's
// limit, and within the item.
func TestRotatingClientsStayWithinTheNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	processes := []*Buckets{w.process(), w.process(), w.process(), w.process()}
	var mu sync.Mutex
	var admitted int64
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 63 {
				req := w.visit(clientNumber(worker*63+i), 500)
				d, err := processes[worker%4].Reserve(ctx, req)
				if err != nil {
					t.Error(err)
				} else if d.Reservation != nil {
					mu.Lock()
					admitted += 500
					mu.Unlock()
					if err := d.Reservation.Settle(ctx, []int64{500, 500}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	// 32 clients have a bucket of their own; all others share one of 5,000.
	// The slack of a wrong guess may cost the last of them its place.
	most := int64(32*500 + 5000)
	check.That(t, admitted <= most && admitted >= most-500, "%d admitted of 1008 clients, want %d", admitted, most)
	check.Equal(t, w.left("net#1", networkTokens), 50_000-admitted, "network: remain after %d were admitted", admitted)
	if n := w.clients(); n != 33 || w.number("net#1", "n") != 32 {
		t.Errorf("%d clients in the item, %d counted", n, w.number("net#1", "n"))
	}
	w.wantOpen("net#1", 0)
	size := engine.ItemSize(w.item("net#1"))
	check.That(t, size <= 4096, "the item has %d bytes", size)
}

// A client that is full and idle gives way to a new one, which loses nothing.
func TestIdleClientGivesWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	for i := range 31 {
		w.settle(w.admit(b, w.visit(clientNumber(i), 1000)), 1000, 1000)
	}
	w.settle(w.admit(b, w.visit(clientNumber(31), 10)), 10, 10)
	w.clock.advance(10 * time.Second) // client 31 is full again, the others are not
	w.settle(w.admit(b, w.visit(clientNumber(100), 5000)), 5000, 5000)
	it := w.item("net#1")
	if _, there := it["o_"+clientNumber(31)]; there {
		t.Error("the idle client is still there")
	}
	if _, there := it[slot{clientNumber(31), "tokens", hour}.tat()]; there {
		t.Error("a limit of the idle client is still there")
	}
	if w.number("net#1", "n") != 32 || w.clients() != 32 {
		t.Errorf("%d clients, %d counted", w.clients(), w.number("net#1", "n"))
	}
	w.deny(b, w.visit(clientNumber(100), 1000), "tokens")
	// Nobody gives way now: newcomers share what is left for them.
	w.settle(w.admit(b, w.visit(clientNumber(101), 3000)), 3000, 3000)
	w.deny(b, w.visit(clientNumber(102), 3000), "tokens")
	w.settle(w.admit(b, w.visit(clientNumber(102), 2000)), 2000, 2000)
	// A client with an open call does not give way, however full it is.
	w.clock.advance(time.Hour)
	open := w.admit(w.process(), w.visit(clientNumber(0), 1))
	w.clock.advance(30 * time.Second)
	for i := range 40 {
		w.settle(w.admit(w.process(), w.visit(clientNumber(200+i), 1)), 1, 1)
		w.clock.advance(800 * time.Millisecond)
	}
	w.settle(open, 0, 0)
	check.Equal(t, w.number("net#1", "o_"+clientNumber(0)), 0, "open count")
}

func TestSoftShareChallenges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	soft := func(cost int64, share float64) Request {
		req := w.visit(clientNumber(1), cost)
		req.Charges[1].Soft = share
		return req
	}
	challenged := func(req Request) {
		t.Helper()
		before := w.item("net#1")
		d, err := b.Reserve(ctx, req)
		check.Must(t, err == nil && d.Challenged && d.Reservation == nil && len(d.Denials) == 0, "decision %+v, error %v", d, err)
		check.That(t, len(w.item("net#1")) == len(before), "something was stored")
	}
	challenged(soft(2600, 0.5))
	check.That(t, w.calls.Load() == 0, "the store was asked for what never fits the share")
	w.settle(w.admit(b, soft(2000, 0.5)), 2000, 2000)
	challenged(soft(600, 0.5))
	w.calls.Store(0)
	challenged(soft(600, 0.5))
	check.That(t, w.calls.Load() == 0, "a repeated challenge cost a round trip")
	w.settle(w.admit(b, soft(500, 0.5)), 500, 500)
	challenged(soft(100, 0.5))
	// What fails the limit itself is denied, not challenged.
	d, err := b.Reserve(ctx, soft(2600, 0.7))
	check.That(t, err == nil && !d.Challenged && len(d.Denials) == 1, "decision %+v, error %v", d, err)
	w.admit(b, soft(2500, 1)) // no share
}

func TestBadClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	for name, req := range map[string]Request{
		"lower case":   w.visit("abcdefgh", 1),
		"short":        w.visit("ABC", 1),
		"none":         w.visit("", 1),
		"nobody flies": {Key: "net#1", MaxInFlight: 1, Client: Client{Key: "ABCDEFGH"}, Deadline: w.clock.now().Add(time.Minute), Charges: []Charge{{Limit: tokens, Cost: 1}}},
	} {
		if _, err := b.Reserve(ctx, req); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Late and lost sends of a client's calls are as harmless as others.
func TestClientSendFails(t *testing.T) {
	t.Parallel()
	for _, f := range faults.Unsure {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.faulty(f)
			b := w.process(quick)
			r := w.admit(b, w.visit(clientNumber(1), 1000))
			w.faulty(f)
			w.settle(r, 100, 100)
			check.OK(t, w.net.Deliver())
			check.Equal(t, w.left("net#1", networkTokens), 49_900, "network: remain")
			w.wantOpen("net#1", 0)
			check.Equal(t, w.number("net#1", "o_"+clientNumber(1)), 0, "client: open")
			check.Equal(t, w.number("net#1", "n"), 1, "clients")
		})
	}
}

// fullNetwork is a network with as many clients as have room, of which here has seen one
// become full again.
func fullNetwork(t *testing.T) (w *world, here, there *Buckets, idle string) {
	w = newWorld(t)
	here, there = w.process(), w.process()
	for i := range 31 {
		w.settle(w.admit(here, w.visit(clientNumber(i), 1000)), 1000, 1000)
	}
	idle = clientNumber(31)
	w.settle(w.admit(here, w.visit(idle, 1)), 1, 1)
	w.clock.advance(time.Second) // full again
	return w, here, there, idle
}

// A client with an open call does not give way, even to a process that has not
// heard of the call, and even if its limits are full again.
func TestOpenCallKeepsItsClient(t *testing.T) {
	t.Parallel()
	w, here, there, idle := fullNetwork(t)
	open := w.admit(there, w.visit(idle, 1))
	w.clock.advance(time.Second) // full again, the call still open
	w.settle(w.admit(here, w.visit(clientNumber(100), 1)), 1, 1)
	check.Equal(t, w.number("net#1", "o_"+idle), 1, "open calls of the client are counted")
	w.settle(open, 0, 0)
	w.wantOpen("net#1", 0)
}

// Nor does one whose limits are in use by now, to a process that has only seen them
// full: what it used would be forgotten.
func TestUsedClientKeepsItsLimits(t *testing.T) {
	t.Parallel()
	w, here, there, idle := fullNetwork(t)
	w.settle(w.admit(there, w.visit(idle, 5000)), 5000, 5000)
	w.settle(w.admit(here, w.visit(clientNumber(100), 1)), 1, 1)
	check.Equal(t, remaining(w.micros("net#1", clientTokens.of(idle).tat()), w.now(), clientTokens.Capacity, clientTokens.period()), 0, "of the client's remain")
}
