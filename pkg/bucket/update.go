package bucket

import (
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// update is a conditional UpdateItem under construction. Its placeholders are legible:
// #t_tokens_3600 is the attribute t_tokens_3600, and :now is a value.
type update struct {
	set, remove, cond terms
	names             map[string]string
	values            map[string]types.AttributeValue
}

// terms are a part of an expression.
type terms struct{ strings.Builder }

// add adds a term, which is given in pieces.
func (t *terms) add(before string, pieces []string) {
	if t.Len() > 0 {
		t.WriteString(before)
	} else {
		t.Grow(256)
	}
	for _, p := range pieces {
		t.WriteString(p)
	}
}

func newUpdate() *update {
	return &update{
		names:  make(map[string]string, 16),
		values: make(map[string]types.AttributeValue, 16),
	}
}

// name gives the placeholder of an attribute; number, micros and binary give that of a
// value, which label describes. The same again is the same placeholder.

func (u *update) name(attr string) string {
	p := placeholder(u.names, "#"+attr, func(other string) bool { return other == attr })
	u.names[p] = attr
	return p
}

func (u *update) number(label string, n int64) string {
	v := &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
	p := placeholder(u.values, label, func(other types.AttributeValue) bool {
		n, ok := other.(*types.AttributeValueMemberN)
		return ok && n.Value == v.Value
	})
	u.values[p] = v
	return p
}

func (u *update) micros(label string, m micros) string { return u.number(label, int64(m)) }
func (u *update) zero() string                         { return u.number(":zero", 0) }
func (u *update) one() string                          { return u.number(":one", 1) }

func (u *update) binary(label string, b []byte) string {
	p := placeholder(u.values, label, func(types.AttributeValue) bool { return false })
	u.values[p] = &types.AttributeValueMemberB{Value: b}
	return p
}

// An expression has at most 4 KB, and names of limits and clients may be long. So only
// so many placeholders of a write are legible, and only so many bytes of each; what a
// write has beyond them are the attributes of a client that gives way, and numbers do.
const (
	maxLegible = 24
	maxLabel   = 24
)

// placeholder is a label, which begins with # or :, in the characters that the store
// allows: letters, digits and underscores. If it already stands for another thing it
// gets a number.
func placeholder[V any](taken map[string]V, label string, same func(V) bool) string {
	label = strings.ReplaceAll(label[:min(len(label), maxLabel)], "-", "_")
	for p, n := label, 2; ; n++ {
		v, there := taken[p]
		switch {
		case there && same(v), !there && len(taken) < maxLegible:
			return p
		case len(taken) >= maxLegible:
			return label[:1] + strconv.Itoa(len(taken))
		}
		p = label + "_" + strconv.Itoa(n)
	}
}

func (u *update) setTo(pieces ...string)   { u.set.add(", ", pieces) }
func (u *update) removeAttr(name string)   { u.remove.add(", ", []string{name}) }
func (u *update) require(pieces ...string) { u.cond.add(" AND ", pieces) }

// expression is all that is set and removed, and condition all that must hold.

func (u *update) expression() string {
	set, remove := u.set.String(), u.remove.String()
	if set != "" {
		set = "SET " + set
	}
	if remove != "" {
		remove = " REMOVE " + remove
	}
	return set + remove
}

func (u *update) condition() string { return u.cond.String() }

// What follows are the terms of which the writes are made.

// advance moves a TAT on by inc, if that fits within bound, in a form.
func (u *update) advance(s slot, f form, now, inc, bound micros) {
	t := u.name(s.tat())
	if f.running {
		// This commutes with what others do. A limit that was never used starts at now.
		since := u.micros(":now", now)
		u.setTo(t, " = if_not_exists(", t, ", ", since, ") + ", u.micros(":inc_"+s.name, inc))
		u.require("(attribute_not_exists(", t, ") OR (", t, " > ", since, " AND ", t, " <= ", u.micros(":latest_"+s.name, latest(now, inc, bound)), "))")
		return
	}
	u.setTo(t, " = ", u.micros(":tat_"+s.name, f.base+inc))
	u.require(u.atMost(s.tat(), ":base", f.base))
}

// overrun moves a TAT on by what exceeded a reservation, given what it is believed to
// be: from where it is if the limit is running, else from now, so that no debt is lost
// in the past. No debt reaches beyond most, however often it grows.
func (u *update) overrun(s slot, inc, tat, now, most micros) {
	t := u.name(s.tat())
	switch {
	case tat <= now:
		u.setTo(t, " = ", u.micros(":tat_"+s.name, now+inc))
		u.require(u.atMost(s.tat(), ":now", now))
	case tat <= most-inc:
		u.setTo(t, " = ", t, " + ", u.micros(":inc_"+s.name, inc))
		u.require(t, " > ", u.micros(":now", now), " AND ", t, " <= ", u.micros(":latest_"+s.name, most-inc))
	default:
		u.setTo(t, " = ", u.micros(":most", most))
		u.require(t, " > ", u.micros(":latest_"+s.name, most-inc))
	}
}

// giveBack takes a TAT back by n and counts that in the credits.
func (u *update) giveBack(s slot, n micros) {
	t, back := u.name(s.tat()), u.micros(":back_"+s.name, n)
	u.setTo(t, " = ", t, " - ", back)
	u.increase(s.credits(), back)
}

// fence adds what every clear adds to a limit's credits.
func (u *update) fence(s slot) {
	u.increase(s.credits(), u.micros(":fence_"+s.name, clearCredits*s.period))
}

// increase adds a value to a number, which is 0 where it is absent, and decrease takes
// one off a count.

func (u *update) increase(attr, value string) {
	a := u.name(attr)
	u.setTo(a, " = if_not_exists(", a, ", ", u.zero(), ") + ", value)
}

func (u *update) decrease(attr string) {
	a := u.name(attr)
	u.setTo(a, " = ", a, " - ", u.one())
}

// expires sets when the store may drop the item, in s.
func (u *update) expires(at int64) { u.setTo(u.name(attrExpires), " = ", u.number(":expires", at)) }

// leaves takes a call out of the counts of open ones.
func (u *update) leaves(client string) {
	u.decrease(attrOpen)
	if client != "" {
		u.decrease(openAttr(client))
	}
}

// still is the condition that a time is what it was; 0: absent.
func (u *update) still(attr, label string, m micros) string {
	if m == 0 {
		return "attribute_not_exists(" + u.name(attr) + ")"
	}
	return u.name(attr) + " = " + u.micros(label, m)
}

// atMost is the condition that a time is absent or not above m, and below the one that
// a number is absent or below a value.

func (u *update) atMost(attr, label string, m micros) string {
	return u.absentOr(attr, " <= "+u.micros(label, m))
}

func (u *update) below(attr, value string) string { return u.absentOr(attr, " < "+value) }

func (u *update) absentOr(attr, is string) string {
	a := u.name(attr)
	return "(attribute_not_exists(" + a + ") OR " + a + is + ")"
}
