package bucket

import (
	"errors"
	"slices"
	"testing"
	"time"
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
		if err := b.ClearClient(ctx, "net#1", one, clientTokens); err != nil {
			t.Fatal(err)
		}
		w.settle(w.admit(b, w.visit(one, 5000)), 5000, 5000)
		w.deny(b, w.visit(two, 1), "tokens")
		if got := w.left("net#1", networkTokens); got != 35_000 {
			t.Errorf("network: %d remain, want 35000", got)
		}
	})
	t.Run("a call that was open credits nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process()
		open := w.admit(b, w.visit(one, 5000))
		if err := b.ClearClient(ctx, "net#1", one, clientTokens); err != nil {
			t.Fatal(err)
		}
		w.settle(w.admit(b, w.visit(one, 5000)), 5000, 5000)
		w.settle(open, 0, 0)
		w.deny(w.process(), w.visit(one, 100), "tokens")
		if got := w.number("net#1", "o_"+one); got != 0 {
			t.Errorf("%d calls of the client still count as open", got)
		}
	})
	t.Run("brings nobody back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		b := w.process()
		if err := b.ClearClient(ctx, "net#1", one, clientTokens); !errors.Is(err, ErrNotFound) {
			t.Errorf("no network: error %v, want ErrNotFound", err)
		}
		if w.item("net#1") != nil {
			t.Error("an item was made")
		}
		w.settle(w.admit(b, w.visit(two, 1)), 1, 1)
		if err := b.ClearClient(ctx, "net#1", one, clientTokens); !errors.Is(err, ErrNotFound) {
			t.Errorf("no client: error %v, want ErrNotFound", err)
		}
		if _, there := w.item("net#1")[slot{one, "tokens", hour}.tat()]; there {
			t.Error("limits of a client that is not there were made")
		}
		for _, bad := range []string{"", "abc"} {
			if err := b.ClearClient(ctx, "net#1", bad, clientTokens); err == nil || errors.Is(err, ErrNotFound) {
				t.Errorf("key %q: error %v", bad, err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Clients, []string{one, two}) {
		t.Errorf("clients %v", s.Clients)
	}
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
		if got := s.HasLimit(test.client, test.limit); got != test.there {
			t.Errorf("client %q, limit %s: %v", test.client, test.limit.Name, got)
		}
	}
}
