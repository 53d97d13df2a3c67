package challenge

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/testkit/check"
	"github.com/tokenfuse/tokenfuse/testkit/enginetest"
	"github.com/tokenfuse/tokenfuse/testkit/faults"
)

// newUsed gives a Used whose n-th send meets the n-th fault, and the last fault
// from then on.
func newUsed(t *testing.T, plan []faults.Fault) (*Used, *network) {
	n := &network{}
	n.Transport.Plan = func(string, []byte) faults.Fault {
		i := int(n.sends.Add(1)) - 1
		if len(plan) == 0 {
			return faults.None
		}
		return plan[min(i, len(plan)-1)]
	}
	db, table := enginetest.Table(t, func(o *dynamodb.Options) { o.HTTPClient = &http.Client{Transport: &n.Transport} })
	n.db, _ = enginetest.Table(t)
	return NewUsed(db, table, time.Now), n
}

// network is what lies between a Used and its table.
type network struct {
	faults.Transport
	sends atomic.Int64
	db    *dynamodb.Client // past the faults
}

func solution(id string) Solution {
	return Solution{ID: id, Expires: time.Now().Add(time.Minute)}
}

func TestClaimOfOneSolution(t *testing.T) {
	t.Parallel()
	u, _ := newUsed(t, nil)
	for round := range 8 {
		s := solution("id" + strconv.Itoa(round))
		var won, lost atomic.Int64
		var all sync.WaitGroup
		for range 2 + round {
			all.Go(func() {
				switch err := u.Claim(context.Background(), s); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ErrUsed):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		check.That(t, won.Load() == 1 && lost.Load() == int64(1+round), "%d claims: %d won, %d lost", 2+round, won.Load(), lost.Load())
	}
}

func TestClaimThroughFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plan  []faults.Fault
		want  error
		sends int64
	}{
		"none":                    {plan: []faults.Fault{faults.None}, sends: 1},
		"lost request":            {plan: []faults.Fault{faults.LostRequest, faults.None}, sends: 2},
		"lost reply":              {plan: []faults.Fault{faults.LostReply, faults.None}, sends: 2},
		"three lost replies":      {plan: []faults.Fault{faults.LostReply, faults.LostReply, faults.LostReply, faults.None}, sends: 4},
		"done, but a 500":         {plan: []faults.Fault{faults.ErrorReply, faults.None}, sends: 2},
		"a 500":                   {plan: []faults.Fault{faults.ServerError, faults.None}, sends: 2},
		"throttled":               {plan: []faults.Fault{faults.Throttled, faults.None}, sends: 2},
		"done, no answer":         {plan: []faults.Fault{faults.HangReply, faults.None}, sends: 2},
		"no answer":               {plan: []faults.Fault{faults.Hang, faults.None}, sends: 2},
		"late":                    {plan: []faults.Fault{faults.LateRequest, faults.None}, sends: 2},
		"always throttled":        {plan: []faults.Fault{faults.Throttled}, want: ErrUnavailable, sends: claimAttempts},
		"replies always lost":     {plan: []faults.Fault{faults.LostReply}, want: ErrUnavailable, sends: claimAttempts},
		"never reached the store": {plan: []faults.Fault{faults.LostRequest}, want: ErrUnavailable, sends: claimAttempts},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, net := newUsed(t, tc.plan)
			s := solution("id")
			if err := u.Claim(context.Background(), s); !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			check.Equal(t, net.sends.Load(), tc.sends, "sends")
			check.OK(t, net.Deliver())
			if tc.want == nil {
				// Nobody else gets it, whatever arrived late.
				other := NewUsed(net.db, u.table, time.Now)
				err := other.Claim(context.Background(), s)
				check.That(t, errors.Is(err, ErrUsed), "another's claim: %v", err)
			}
		})
	}
}

func TestClaimIsBounded(t *testing.T) {
	t.Parallel()
	u, _ := newUsed(t, []faults.Fault{faults.Hang})
	began := time.Now()
	err := u.Claim(context.Background(), solution("id"))
	took := time.Since(began)
	check.That(t, errors.Is(err, ErrUnavailable) && took <= claimTimeout+time.Second, "%v after %v", err, took)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := u.Claim(ctx, solution("id")); !errors.Is(err, ErrUnavailable) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestClaimIsRememberedAsLongAsNeeded(t *testing.T) {
	t.Parallel()
	u, net := newUsed(t, nil)
	c := &clock{start}
	u.now = c.now
	s := Solution{ID: "id", Expires: start.Add(90*time.Second + 1)}
	check.OK(t, u.Claim(context.Background(), s))
	got, err := net.db.GetItem(context.Background(), &dynamodb.GetItemInput{
		TableName: &u.table, Key: dynamo.Key("used#id"),
	})
	check.OK(t, err)
	expires, ok := got.Item["expires"].(*types.AttributeValueMemberN)
	want := strconv.FormatInt(start.Unix()+91, 10)
	check.That(t, ok && expires.Value == want, "item %v, want expires %s", got.Item, want)

	c.t = s.Expires.Add(-1)
	if err := u.Claim(context.Background(), s); !errors.Is(err, ErrUsed) {
		t.Errorf("in the last moment: %v", err)
	}
	// From here on the store may have forgotten it.
	c.t = s.Expires
	if err := u.Claim(context.Background(), s); !errors.Is(err, ErrExpired) {
		t.Errorf("too late: %v", err)
	}
	if err := u.Claim(context.Background(), Solution{ID: "other"}); !errors.Is(err, ErrExpired) {
		t.Errorf("without an expiry: %v", err)
	}
}
