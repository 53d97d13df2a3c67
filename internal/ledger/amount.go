package ledger

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/price"
)

// ErrOverflow: a sum is beyond int64: in money, above 9.2 million dollars.
var ErrOverflow = errors.New("ledger: a sum is too large")

// Amount is what some calls come to.
type Amount struct {
	Calls         int64
	Cost          price.Pico
	Abandoned     int64      // of Calls: those that nobody knows the end of
	AbandonedCost price.Pico // of Cost: the worst that those can have cost
	Estimated     int64      // of Calls: those whose usage the provider did not report
}

// add adds b. Neither may be negative.
func (a *Amount) add(b Amount) error {
	if b.Calls > math.MaxInt64-a.Calls || b.Cost > math.MaxInt64-a.Cost {
		return ErrOverflow // the other parts are not larger
	}
	a.Calls += b.Calls
	a.Cost += b.Cost
	a.Abandoned += b.Abandoned
	a.AbandonedCost += b.AbandonedCost
	a.Estimated += b.Estimated
	return nil
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

func (t *tally) addRecord(r record) error {
	a := r.amount()
	// If the total does not overflow no part of it does.
	if err := t.total.add(a); err != nil {
		return err
	}
	for k, name := range [kinds]string{byTier: r.Tier, byFeature: r.Feature, byModel: r.Model, byIdentity: r.Identity} {
		if err := t.addTo(kind(k), name, a); err != nil {
			return err
		}
	}
	return nil
}

func (t *tally) addTo(k kind, name string, a Amount) error {
	sum, known := t.by[k][name]
	if !known {
		name = strings.Clone(name) // it outlives the item, of which it is a part
	}
	err := sum.add(a)
	t.by[k][name] = sum
	return err
}

func (t *tally) merge(o *tally) error {
	if err := t.total.add(o.total); err != nil {
		return err
	}
	for k, sums := range o.by {
		for name, a := range sums {
			if err := t.addTo(kind(k), name, a); err != nil {
				return err
			}
		}
	}
	return nil
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
