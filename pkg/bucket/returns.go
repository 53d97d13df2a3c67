package bucket

// returns is what a limit had given back by some moment: in settles and sweeps, and by
// clears, which end what open calls are owed. Whoever gives back compares it with what
// it was at the reserve.
type returns struct {
	credits micros // given back
	cleared micros // when the limit was last cleared; 0: never
	// named is, for a client's limit, when the identity's limit of that name was
	// cleared. A process of an older version, which may still run while this one is
	// deployed, marks a clear of a client's limit there.
	named micros
}

// identitys is where an identity's limit is that has the name and period of a client's.
func (s slot) identitys() slot { return slot{"", s.name, s.period} }

// returns reads them from an item.
func (i item) returns(s slot) (r returns, err error) {
	if r.credits, err = i.micros(s.credits()); err != nil {
		return r, err
	}
	if r.cleared, err = i.micros(s.cleared()); err != nil || s.client == "" {
		return r, err
	}
	r.named, err = i.micros(s.identitys().cleared())
	return r, err
}

// clearedSince reports whether the limit was cleared between then and r. An older
// version's clear of a client's limit is told from that of a neighbour by the credits
// that every clear adds.
func (r returns) clearedSince(then returns, period micros) bool {
	return r.cleared != then.cleared || r.named != then.named && r.credits >= then.credits+clearCredits*period
}

// clearedAfter reports whether the limit was cleared after start, by whatever clock.
func (r returns) clearedAfter(start micros) bool {
	last := max(r.cleared, r.named)
	return last != 0 && start <= last+clearMargin
}

// requireUncleared makes a write fail if the limit was cleared since then.
func (u *update) requireUncleared(s slot, then returns) {
	u.require(u.still(s.cleared(), ":cleared_"+s.name, then.cleared))
	if s.client == "" {
		return
	}
	u.require("(", u.still(s.identitys().cleared(), ":named_"+s.name, then.named), " OR ",
		u.atMost(s.credits(), ":unfenced_"+s.name, then.credits+clearCredits*s.period-1), ")")
}
