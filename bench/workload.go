package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/pkg/bucket"
)

// visit is one call of the workload: who calls, when, what it reserves and what
// it is found to have used when it settles.
type visit struct {
	at      time.Time
	user    string
	charges []bucket.Charge
	used    []int64
	lasts   time.Duration // until it settles
}

// workload is how people use a product in a working day: they come for a
// session of 1 to 15 calls, 5 to 90 s apart, and come back hours later. Every
// third call is for cv, which has a quota; the others are for docqa. Of its worst
// case, 600 to 4,000 tokens, a call uses 10 to 60% and settles after 2 to 8 s.
func (l *lab) workload(users int, seed uint64) []visit {
	const day = 8 * time.Hour
	start := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(seed, 0))
	between := func(from, to time.Duration) time.Duration {
		return from + time.Duration(random.Int64N(int64(to-from)))
	}
	var visits []visit
	for u := range users {
		at := start.Add(between(0, 4*time.Hour))
		for at.Before(start.Add(day)) {
			for range 1 + random.IntN(15) {
				v := l.visit(random)
				v.at, v.user, v.lasts = at, fmt.Sprintf("user#%d", u), between(2*time.Second, 8*time.Second)
				visits = append(visits, v)
				at = at.Add(between(5*time.Second, 90*time.Second))
			}
			at = at.Add(between(time.Hour, 6*time.Hour))
		}
	}
	slices.SortFunc(visits, func(a, b visit) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.user, b.user)) })
	return visits
}

func (l *lab) visit(random *rand.Rand) visit {
	f := l.policy.Features["docqa"]
	if random.IntN(3) == 0 {
		f = l.policy.Features["cv"]
	}
	input := 100 + random.Int64N(1900)
	output := min(500+random.Int64N(1500), f.MaxOutputTokens)
	worst := f.Model.Prices.WorstCase(input, output).MicroDollars()
	share := 0.1 + 0.5*random.Float64()

	limits := l.userLimits(f)
	v := visit{charges: make([]bucket.Charge, len(limits)), used: make([]int64, len(limits))}
	for i, limit := range limits {
		cost, used := int64(1), int64(1)
		switch limit.Name {
		case policy.LimitTokens:
			cost, used = input+output, int64(share*float64(input+output))
		case policy.LimitSpend:
			cost, used = worst, int64(share*float64(worst))
		}
		v.charges[i], v.used[i] = bucket.Charge{Limit: limit, Cost: cost}, used
	}
	return v
}
