package bucket

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestClearClient(t *testing.T) {
	t.Parallel()
	one, two := clientNumber(1), clientNumber(2)
	t.Run("makes full what was named and nothing else", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process()
		w.settle(w.admit(b, w.visit(one, 5000)), 5000, 5000)
		w.settle(w.admit(b, w.visit(two, 5000)), 5000, 5000)
		w.deny(b, w.visit(one, 1), "tokens")
		check.OK(t, b.ClearClient(ctx, "net#1", one, clientTokens))
		w.settle(w.admit(b, w.visit(one, 5000)), 5000, 5000)
		w.deny(b, w.visit(two, 1), "tokens")
		check.Equal(t, w.left("net#1", networkTokens), 35_000, "network: remain")
	})
	t.Run("a call that was open credits nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process()
		open := w.admit(b, w.visit(one, 5000))
		check.OK(t, b.ClearClient(ctx, "net#1", one, clientTokens))
		w.settle(w.admit(b, w.visit(one, 5000)), 5000, 5000)
		w.settle(open, 0, 0)
		w.deny(w.process(), w.visit(one, 100), "tokens")
		check.Equal(t, w.number("net#1", "o_"+one), 0, "calls of the client still count as open")
	})
	t.Run("brings nobody back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process()
		if err := b.ClearClient(ctx, "net#1", one, clientTokens); !errors.Is(err, ErrNotFound) {
			t.Errorf("no network: error %v, want ErrNotFound", err)
		}
		check.That(t, w.item("net#1") == nil, "an item was made")
		w.settle(w.admit(b, w.visit(two, 1)), 1, 1)
		if err := b.ClearClient(ctx, "net#1", one, clientTokens); !errors.Is(err, ErrNotFound) {
			t.Errorf("no client: error %v, want ErrNotFound", err)
		}
		if _, there := w.item("net#1")[slot{one, "tokens", hour}.tat()]; there {
			t.Error("limits of a client that is not there were made")
		}
		for _, bad := range []string{"", "abc"} {
			err := b.ClearClient(ctx, "net#1", bad, clientTokens)
			check.That(t, err != nil && !errors.Is(err, ErrNotFound), "key %q: error %v", bad, err)
		}
	})
}

func TestStateTellsWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	two, one := clientNumber(2), clientNumber(1)
	w.settle(w.admit(b, w.visit(two, 1)), 1, 1)
	w.settle(w.admit(b, w.visit(one, 1)), 1, 1)
	s, err := b.Peek(ctx, "net#1")
	check.OK(t, err)
	check.That(t, slices.Equal(s.Clients, []string{one, two}), "clients %v", s.Clients)
	daily := clientTokens
	daily.Period = 24 * time.Hour
	for _, test := range []struct {
		client string
		limit  Limit
		there  bool
	}{
		{"", networkTokens, true}, {one, clientTokens, true}, {"", clientTokens, false},
		{one, networkTokens, false}, {one, daily, false}, {clientNumber(3), clientTokens, false},
	} {
		check.Equal(t, s.HasLimit(test.client, test.limit), test.there, "client %q, limit %s", test.client, test.limit.Name)
	}
}
