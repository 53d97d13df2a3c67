package emails

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }

var secret = []byte("a-secret-of-some-length")

// world is a table with a clock, and processes that share nothing else.
type world struct {
	t     *testing.T
	db    *dynamodb.Client
	table string
	now   time.Time
	fault faults.Fault
	calls atomic.Int64
	sent  strings.Builder
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	net := &faults.Transport{Plan: func(_ string, body []byte) faults.Fault {
		w.calls.Add(1)
		w.sent.Write(body)
		return w.fault
	}}
	w.db, w.table = enginetest.Table(t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: net} })
	return w
}

func (w *world) process(secret []byte) *Index {
	w.t.Helper()
	x, err := New(w.db, w.table, secret, func() time.Time { return w.now })
	check.OK(w.t, err)
	return x
}

func (w *world) learn(x *Index, email, sub string) {
	w.t.Helper()
	check.OK(w.t, x.Learn(w.t.Context(), email, sub))
}

func (w *world) wantUsers(x *Index, email string, want ...string) {
	w.t.Helper()
	if got, err := x.Find(w.t.Context(), email); err != nil || !slices.Equal(got, want) {
		w.t.Errorf("%s: %v, %v; want %v", email, got, err, want)
	}
}

func TestFindsWhomItLearned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x, other := w.process(secret), w.process(secret)
	w.wantUsers(x, "a@example.com")
	w.learn(x, "A@Example.com", "auth0|123")
	w.wantUsers(other, "a@example.com", "auth0|123")
	w.wantUsers(other, "a+b@example.com")
	w.wantUsers(w.process([]byte("another secret of enough bytes")), "a@example.com")

	w.learn(other, "a@example.com", "124") // the same address in two accounts
	w.wantUsers(x, "a@example.com", "124", "auth0|123")

	w.now = w.now.Add(80 * 24 * time.Hour) // one of them is still in use
	w.learn(x, "a@example.com", "124")
	w.now = w.now.Add(10 * 24 * time.Hour)
	w.wantUsers(x, "a@example.com", "124")

	check.That(t, !strings.Contains(strings.ToLower(w.sent.String()), "example"), "an address was sent to the store")
}

func TestCostsAWriteAWeek(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.process(secret)
	for day := range 15 {
		for range 10 {
			w.learn(x, "a@example.com", "123")
		}
		want := int64(1 + day/7)
		check.Must(t, w.calls.Load() == want, "%d calls by day %d, want %d", w.calls.Load(), day, want)
		w.now = w.now.Add(24 * time.Hour)
	}
	// A second process asks once; the record is fresh and stays as it is.
	w.calls.Store(0)
	other := w.process(secret)
	w.learn(other, "a@example.com", "123")
	w.learn(other, "a@example.com", "123")
	check.Equal(t, w.calls.Load(), 1, "calls")
	w.calls.Store(0)
	w.learn(x, "", "123")
	w.learn(x, "nobody", "123")
	w.learn(x, "b@example.com", "")
	check.That(t, w.calls.Load() == 0, "nothing to learn, and a call was made")
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.process(secret)
	w.fault = faults.Hang
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := x.Learn(ctx, "a@example.com", "123"); err == nil {
		t.Error("learned without a store")
	}
	if _, err := x.Find(ctx, "a@example.com"); err == nil || errors.Is(err, ErrAddress) {
		t.Errorf("found without a store: %v", err)
	}
	// However many calls are denied meanwhile, a store that is down is asked once a minute.
	w.calls.Store(0)
	for range 100 {
		w.learn(x, "a@example.com", "123")
	}
	check.Equal(t, w.calls.Load(), 0, "calls")
	w.fault = faults.None
	w.now = w.now.Add(time.Minute)
	w.learn(x, "a@example.com", "123") // a failure is not remembered as done
	w.wantUsers(x, "a@example.com", "123")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.process(secret).Find(t.Context(), "nobody"); !errors.Is(err, ErrAddress) {
		t.Errorf("%v", err)
	}
	if _, err := New(w.db, w.table, []byte("short"), time.Now); err == nil {
		t.Error("a short secret was accepted")
	}
}
