package ledger

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Amount is what some calls come to. A sum saturates: beyond int64, which in money is
// 9.2 million dollars, it is the most that int64 holds. An error instead would keep
// the alarm from seeing any of it.
type Amount struct {
	Calls         int64
	Cost          price.Pico
	Abandoned     int64      // of Calls: those that nobody knows the end of
	AbandonedCost price.Pico // of Cost: the worst that those can have cost
	Estimated     int64      // of Calls: those whose usage is not what the provider reported
}

// add adds b. Neither may be negative. No part grows beyond its whole, since all
// saturate at the same figure.
func (a *Amount) add(b Amount) {
	a.Calls = price.Sum(a.Calls, b.Calls)
	a.Cost = price.Sum(a.Cost, b.Cost)
	a.Abandoned = price.Sum(a.Abandoned, b.Abandoned)
	a.AbandonedCost = price.Sum(a.AbandonedCost, b.AbandonedCost)
	a.Estimated = price.Sum(a.Estimated, b.Estimated)
}

// valid reports whether a can be a sum of events.
func (a Amount) valid() bool {
	return a.Abandoned >= 0 && a.Abandoned <= a.Calls && a.AbandonedCost >= 0 && a.AbandonedCost <= a.Cost &&
		a.Estimated >= 0 && a.Estimated <= a.Calls
}

// Spender is what one identity spent.
type Spender struct {
	Identity string
	Amount
}

// most is the number of spenders in a Summary.
const most = 10

// kind is what a tally distinguishes calls by.
type kind int

const (
	byTier kind = iota
	byFeature
	byModel
	byIdentity
	kinds
)

// tally adds up calls, in total and by each kind.
type tally struct {
	total Amount
	by    [kinds]map[string]Amount
}

func newTally() *tally {
	t := &tally{}
	for k := range t.by {
		t.by[k] = map[string]Amount{}
	}
	return t
}

func (t *tally) addRecord(r record) {
	a := r.amount()
	t.total.add(a)
	for k, name := range [kinds]string{byTier: r.Tier, byFeature: r.Feature, byModel: r.Model, byIdentity: r.Identity} {
		t.addTo(kind(k), name, a)
	}
}

func (t *tally) addTo(k kind, name string, a Amount) {
	sum, known := t.by[k][name]
	if !known {
		name = strings.Clone(name) // it outlives the item, of which it is a part
	}
	sum.add(a)
	t.by[k][name] = sum
}

func (t *tally) merge(o *tally) {
	t.total.add(o.total)
	for k, sums := range o.by {
		for name, a := range sums {
			t.addTo(kind(k), name, a)
		}
	}
}

// top gives the dearest identities, the dearest first.
func (t *tally) top() []Spender {
	top := make([]Spender, 0, most+1)
	for identity, a := range t.by[byIdentity] {
		s := Spender{identity, a}
		if len(top) == most && byCost(s, top[most-1]) > 0 {
			continue
		}
		i, _ := slices.BinarySearchFunc(top, s, byCost)
		top = slices.Insert(top, i, s)
		top = top[:min(len(top), most)]
	}
	return top
}

// byCost orders the dearest first, equals by name.
func byCost(a, b Spender) int {
	return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Identity, b.Identity))
}
