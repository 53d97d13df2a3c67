package bucket

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// Placeholders say what they stand for, in characters that the store allows, and each
// stands for one thing.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	u := newUpdate()
	long := "t_ABCDEFGH_" + strings.Repeat("x", 32)
	for _, tc := range []struct{ attr, want string }{
		{"t_tokens_3600", "#t_tokens_3600"},
		{"t_a-b_60", "#t_a_b_60"},
		{"t_a_b_60", "#t_a_b_60_2"},
		{long + "_60", "#t_ABCDEFGH_xxxxxxxxxxxx"},
		{long + "_3600", "#t_ABCDEFGH_xxxxxxxxxxxx_2"},
		{"t_tokens_3600", "#t_tokens_3600"},
		{long + "_3600", "#t_ABCDEFGH_xxxxxxxxxxxx_2"},
	} {
		got := u.name(tc.attr)
		check.That(t, got == tc.want && u.names[got] == tc.attr, "%s: %s, which stands for %s, want %s", tc.attr, got, u.names[got], tc.want)
	}
	for i, tc := range []struct {
		got, want string
	}{
		{u.micros(":now", 5), ":now"}, {u.micros(":now", 5), ":now"}, {u.micros(":now", 6), ":now_2"}, {u.micros(":now", 5), ":now"},
		{u.binary(":now", []byte{5}), ":now_3"}, {u.zero(), ":zero"}, {u.number(":zero", 0), ":zero"},
	} {
		check.Equal(t, tc.got, tc.want, "%d", i)
	}
}

// recorder keeps the largest expressions that are sent, and the most operators.
type recorder struct {
	DynamoDB
	longest, operators int
}

func (r *recorder) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	for _, e := range []string{*in.UpdateExpression, *in.ConditionExpression} {
		r.longest = max(r.longest, len(e))
		n := 0
		for _, word := range []string{" AND ", " OR ", "exists(", " = ", " < ", " > ", " <= ", " + ", " - "} {
			n += strings.Count(e, word)
		}
		r.operators = max(r.operators, n)
	}
	return r.DynamoDB.UpdateItem(ctx, in, opts...)
}

// The store takes expressions of at most 4 KB and 300 operators: with as many limits as
// one write may have, of the longest names, no write of any kind comes near that.
func TestExpressionsFitTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := &recorder{DynamoDB: w.db}
	process := func() *Buckets {
		b := w.process()
		b.db = r
		return b
	}
	b := process()
	limits := make([]Limit, MaxLimits)
	for i := range limits {
		limits[i] = Limit{Name: fmt.Sprintf("a-limit-with-the-longest-name-%02d", i), Capacity: 1000 + int64(i), Period: 24 * time.Hour, Return: OnExpiry}
	}
	client := clientNumber(1)
	request := func() Request {
		req := w.request("net#1")
		req.Client, req.MaxInFlight = Client{Key: client, MaxInFlight: 8}, MaxInFlight
		for _, l := range limits {
			req.Charges = append(req.Charges, Charge{Limit: l, Cost: 10, OfClient: true})
		}
		return req
	}
	used := func(n int64) (all []int64) {
		for range limits {
			all = append(all, n)
		}
		return all
	}
	largest := func(write string) {
		t.Helper()
		t.Logf("%s: %d bytes, %d operators", write, r.longest, r.operators)
		check.That(t, r.longest <= 4096 && r.operators <= 300, "%s: an expression of %d bytes and %d operators", write, r.longest, r.operators)
		r.longest, r.operators = 0, 0
	}
	w.settle(w.admit(b, request()), used(5)...)
	w.admit(process(), request()) // running
	largest("reserve, of another process and of one that knows")
	w.clock.advance(time.Minute)
	x, y, z := w.admit(b, request()), w.admit(b, request()), w.admit(b, request())
	w.settle(x, used(0)...)
	w.clock.advance(5 * time.Millisecond)
	w.settle(y, used(3)...) // others have been given back meanwhile
	largest("settle with a refund")
	w.settle(z, used(30)...)
	largest("settle with an overrun")
	w.clock.advance(10 * time.Minute)
	if _, err := b.sweep(ctx, "net#1", w.item("net#1"), w.now()); err != nil {
		t.Fatal(err)
	}
	w.wantOpen("net#1", 0)
	largest("sweep")
	check.OK(t, b.ClearClient(ctx, "net#1", client, limits...))
	largest("clear")
	for _, l := range append(slices.Clone(limits), tokens) {
		if s, err := b.Peek(ctx, "net#1"); err != nil || s.ClientLimit(client, l).Remaining != l.Capacity {
			t.Errorf("%s: %+v, %v", l.Name, s.ClientLimit(client, l), err)
		}
	}

	// A client with twice as many gives way: it keeps those of a policy of before, too.
	for i := range limits {
		limits[i].Name = fmt.Sprintf("another-limit-with-a-long-name%02d", i)
	}
	w.settle(w.admit(b, request()), used(1)...)
	for i := range 31 {
		client = clientNumber(10 + i)
		w.admit(b, request())
	}
	largest("reserve of a new client")
	w.clock.advance(time.Hour)
	client = clientNumber(50)
	w.admit(b, request())
	for attr := range w.item("net#1") {
		check.That(t, !strings.Contains(attr, clientNumber(1)), "%s is still there", attr)
	}
	largest("reserve that another client gives way to")
}

func TestNoMoreLimitsThanAWriteHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	b := w.process()
	req := w.request("user#1")
	var limits []Limit
	for i := range MaxLimits + 1 {
		limits = append(limits, Limit{Name: fmt.Sprint("limit-", i), Capacity: 10, Period: time.Hour})
		req.Charges = append(req.Charges, Charge{Limit: limits[i], Cost: 1})
	}
	if _, err := b.Prepare(req); err == nil || !strings.Contains(err.Error(), "Request.Charges") {
		t.Errorf("a request with %d limits: %v", len(limits), err)
	}
	if err := b.Clear(ctx, "user#1", limits...); err == nil || !strings.Contains(err.Error(), fmt.Sprint(MaxLimits)) {
		t.Errorf("a clear of %d limits: %v", len(limits), err)
	}
	check.That(t, w.calls.Load() == 0, "the store was asked")
	req.Charges = req.Charges[:MaxLimits]
	w.settle(w.admit(b, req), make([]int64, MaxLimits)...)
	if err := b.Clear(ctx, "user#1", limits[:MaxLimits]...); err != nil {
		t.Error(err)
	}
}
