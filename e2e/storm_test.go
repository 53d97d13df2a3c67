package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// together asks n times at once and gives the answers, in order.
func together(t *testing.T, n int, ask func(i int) (answer, error)) []answer {
	t.Helper()
	answers := make([]answer, n)
	errs := make([]error, n)
	begin := make(chan struct{})
	var clients sync.WaitGroup
	for i := range n {
		clients.Go(func() {
			<-begin
			answers[i], errs[i] = ask(i)
		})
	}
	close(begin)
	clients.Wait()
	for _, err := range errs {
		check.OK(t, err)
	}
	return answers
}

// storm asks all questions at once and gives their answers, in order.
func (d *dev) storm(t *testing.T, token string, questions []question) []answer {
	t.Helper()
	return together(t, len(questions), func(i int) (answer, error) { return d.ask(t.Context(), token, questions[i]) })
}

// tally sums up what a storm used. Every denial must be an honest one.
func tally(t *testing.T, answers []answer) (admitted, used int) {
	t.Helper()
	for _, a := range answers {
		c, err := a.completion()
		check.Must(t, err == nil, "%v: %s", err, a.body)
		switch {
		case a.status == http.StatusOK && c.done && c.Usage.Total > 0:
			admitted++
			used += c.Usage.Total
		case a.status == http.StatusTooManyRequests && c.Error.Limit == "tokens":
			check.That(t, c.Error.Remaining < c.Error.Requested, "denied though it fits: %s", a.body)
			if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait != c.Error.RetryAfter || wait < 60 {
				t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), a.body)
			}
			check.Equal(t, a.header.Get("X-Should-Retry"), "false", "x-should-retry … on a wait of %d s", c.Error.RetryAfter)
		default:
			t.Errorf("neither an answer nor a denial by tokens: %d %s", a.status, a.body)
		}
	}
	return admitted, used
}

// Through four instances that share nothing in memory, a cold network and cold
// users get all that they may have and not a token more.
func TestNoOverAdmission(t *testing.T) {
	t.Parallel()
	const capacity = 600 // refills by a token in four hours
	d := startDev(t, testConfig(t, capacity), "--instances", "4")

	// Calls that use their worst case to the token: as many are admitted as fit.
	for u := range 4 {
		t.Run(fmt.Sprintf("user-%d", u), func(t *testing.T) {
			t.Parallel()
			questions := make([]question, 16)
			for i := range questions {
				questions[i] = question{feature: "ask", text: "Go on. [[long]]", most: 40, stream: i%2 == 0}
			}
			token := d.token(t, t.Name())
			cost := d.complete(t, d.token(t, "probe-"+t.Name()), questions[0])
			admitted, used := tally(t, d.storm(t, token, questions))
			if want := capacity / cost; admitted != want || used != want*cost {
				t.Errorf("%d calls of %d tokens admitted, %d tokens used of %d; want %d calls", admitted, cost, used, capacity, want)
			}
			check.Equal(t, d.remaining(t, token, "tokens"), capacity-used, "tokens remain")
		})
	}

	// Calls of all sizes that give back what they do not use, and clients that
	// come again: in the end all but what no call fits in has been used.
	t.Run("network", func(t *testing.T) {
		t.Parallel()
		questions := make([]question, 64)
		for i := range questions {
			questions[i] = question{feature: "ask", text: "What is a token bucket?", most: 20 + i, stream: i%2 == 0}
		}
		smallest := d.complete(t, d.token(t, t.Name()), questions[0])
		total := 0
		for round, end := 0, time.Now().Add(patience); ; round++ {
			admitted, used := tally(t, d.storm(t, "", questions))
			total += used
			check.Must(t, total <= capacity, "%d tokens used of %d", total, capacity)
			left := d.remaining(t, "", "tokens")
			check.Equal(t, left, capacity-total, "tokens remain")
			check.That(t, round != 0 || admitted != len(questions), "nothing was denied: the storm is too small")
			if left < smallest {
				return
			}
			check.Must(t, !time.Now().After(end), "%d tokens remain, and calls of %d are denied", left, smallest)
		}
	})
}
