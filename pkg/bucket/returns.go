package bucket

// returns is what a limit had given back by some moment: in settles and sweeps, and by
// clears, which end what open calls are owed. Whoever gives back compares it with what
// it was at the reserve.
type returns struct {
	credits int64 // µs given back
	cleared int64 // when the limit was last cleared, in µs; 0: never
	// named is, for a client's limit, when the identity's limit of that name was
	// cleared. A process of an older version, which may still run while this one is
	// deployed, marks a clear of a client's limit there.
	named int64
}

// returns reads them from an item, for a limit of a client or, if that is "", of the
// identity itself.
func (i item) returns(client, name string, period int64) (r returns, err error) {
	if r.credits, err = i.number(creditsAttr(client, name, period)); err != nil {
		return r, err
	}
	if r.cleared, err = i.number(clearedAttr(client, name)); err != nil || client == "" {
		return r, err
	}
	r.named, err = i.number(clearedAttr("", name))
	return r, err
}

// clearedSince reports whether the limit was cleared between then and r. An older
// version's clear of a client's limit is told from that of a neighbour by the credits
// that every clear adds.
func (r returns) clearedSince(then returns, period int64) bool {
	return r.cleared != then.cleared || r.named != then.named && r.credits >= then.credits+clearCredits*period
}

// clearedAfter reports whether the limit was cleared after start, by whatever clock.
func (r returns) clearedAfter(start int64) bool {
	last := max(r.cleared, r.named)
	return last != 0 && start <= last+clearMargin
}

// requireUncleared makes a write fail if the limit was cleared since then.
func (u *update) requireUncleared(client, name string, period int64, then returns) {
	u.require(u.still(clearedAttr(client, name), then.cleared))
	if client == "" {
		return
	}
	u.require("(", u.still(clearedAttr("", name), then.named), " OR ",
		u.atMost(creditsAttr(client, name, period), then.credits+clearCredits*period-1), ")")
}

// still is the condition that a number is what it was; 0: absent.
func (u *update) still(attr string, n int64) string {
	if n == 0 {
		return "attribute_not_exists(" + u.name(attr) + ")"
	}
	return u.name(attr) + " = " + u.number(n)
}

// atMost is the condition that a number is absent or not above n.
func (u *update) atMost(attr string, n int64) string {
	a := u.name(attr)
	return "(attribute_not_exists(" + a + ") OR " + a + " <= " + u.number(n) + ")"
}

// giveBack takes a TAT back by n µs and counts them.
func (u *update) giveBack(tat, credits string, n int64) {
	t, g, back := u.name(tat), u.name(credits), u.number(n)
	u.setTo(t, " = ", t, " - ", back)
	u.setTo(g, " = if_not_exists(", g, ", ", u.number(0), ") + ", back)
}
