package emails

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

const (
	address = "a@example.com"
	hour    = time.Hour
	day     = 24 * time.Hour
)

// seen is a call of a user with the address, after some time, and who is found then.
type seen struct {
	after time.Duration
	sub   string
	want  []string
}

func TestAddressThatMoves(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][]seen{
		"to a new user": {
			{0, "ann", []string{"ann"}},
			{7 * day, "ann", []string{"ann"}},
			{3 * day, "bea", []string{"bea"}},
			{30 * day, "bea", []string{"bea"}},
		},
		"on the day of the former's last call": {
			{0, "ann", []string{"ann"}},
			{hour, "bea", []string{"bea"}},
		},
		"twice": {
			{0, "ann", []string{"ann"}},
			{day, "bea", []string{"bea"}},
			{day, "cat", []string{"cat"}},
		},
		"and comes back": {
			{0, "ann", []string{"ann"}},
			{day, "bea", []string{"bea"}},
			{day, "ann", []string{"ann", "bea"}}, // who of them has it is for people to find out
			{day, "bea", []string{"ann", "bea"}},
		},
		"from two users who shared it": {
			{0, "ann", []string{"ann"}},
			{hour, "bea", []string{"bea"}},
			{hour, "ann", []string{"ann", "bea"}},
			{day, "cat", []string{"cat"}},
			{hour, "bea", []string{"bea", "cat"}},
		},
		// The issuer let somebody have the address of ann, who is still there.
		"to somebody who should not have it": {
			{0, "ann", []string{"ann"}},
			{6 * day, "mallory", []string{"mallory"}},
			{time.Minute, "ann", []string{"ann", "mallory"}},
			{30 * day, "mallory", []string{"ann", "mallory"}},
			{30 * day, "ann", []string{"ann", "mallory"}},
		},
		"at the same second": {
			{0, "ann", []string{"ann"}},
			{0, "bea", []string{"ann", "bea"}},
		},
		"to somebody who is then forgotten": {
			{0, "ann", []string{"ann"}},
			{day, "bea", []string{"bea"}},
			{80 * day, "ann", []string{"ann", "bea"}},
			{20 * day, "", []string{"ann"}},
		},
	} {
		for _, processes := range []string{"one process", "a process for each call"} {
			t.Run(name+", "+processes, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				x := w.process(secret)
				for i, c := range calls {
					w.now = w.now.Add(c.after)
					if processes != "one process" {
						x = w.process(secret)
					}
					if c.sub != "" {
						w.learn(x, address, c.sub)
					}
					check.Must(t, !t.Failed(), "call %d", i)
					w.wantUsers(x, address, c.want...)
				}
			})
		}
	}
}

// Users of one address cost a write more each time another turns up, and no more than
// that, in one process and in many.
func TestSharedAddressCostsAWriteAWeek(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.process(secret)
	for d := range 14 {
		for i := range 50 {
			w.now = w.now.Add(time.Minute)
			w.learn(x, address, []string{"ann", "bea"}[i%2])
		}
		// ann, bea, and ann again since bea was new; then both once a week.
		want := int64(3 + 2*(d/7))
		check.Must(t, w.calls.Load() == want, "%d writes after %d days, want %d", w.calls.Load(), d+1, want)
		w.now = w.now.Add(day - 50*time.Minute)
	}
}

// Denials at the same time make one write.
func TestFloodMakesOneWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.process(secret)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := x.Learn(t.Context(), address, "ann"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	check.Equal(t, w.calls.Load(), 1, "writes")
	// An address of very many users is not remembered without bound.
	for i := range 3 * perAddress {
		w.learn(x, address, fmt.Sprint("user", i))
	}
	key, err := x.key(address)
	check.OK(t, err)
	n := len(x.usersOf(key))
	check.That(t, n <= perAddress, "%d users are remembered", n)
}

// Items of the version before know when a user was last seen, and no more. Two users
// who have the address stay both, whoever of them is recorded first.
func TestItemOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := w.process(secret)
	key, err := x.key(address)
	check.OK(t, err)
	item := dynamo.Key(key)
	item["s_ann"], item["s_bea"], item["expires"] = dynamo.Seconds(w.now.Add(-10*day)), dynamo.Seconds(w.now.Add(-3*day)), dynamo.Seconds(w.now.Add(80*day))
	if _, err := w.db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &w.table, Item: item}); err != nil {
		t.Fatal(err)
	}
	w.wantUsers(x, address, "ann", "bea")
	w.learn(x, address, "ann")
	w.wantUsers(x, address, "ann", "bea")
	w.now = w.now.Add(time.Minute)
	w.learn(x, address, "bea")
	w.wantUsers(x, address, "ann", "bea")
	w.now = w.now.Add(time.Minute)
	w.learn(x, address, "cat")
	w.wantUsers(x, address, "cat")
}
