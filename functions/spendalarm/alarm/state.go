package alarm

import (
	"maps"
	"slices"
	"time"

	"github.com/tokenfuse/tokenfuse/internal/price"
	"github.com/tokenfuse/tokenfuse/internal/verdict"
)

// state is what runs know of each other. Deciding is pure: see due.
type state struct {
	version int64           // of the item; 0: there is none
	seen    time.Time       // up to when the newest run has seen; zero: not known
	since   time.Time       // when the incident was first seen; zero: there is none
	level   int             // the highest level that was told of; 0: nobody was told yet
	told    time.Time       // when the last page went out
	claimed time.Time       // until when a page under way is another run's
	past    []int64         // hours of past incidents, by hourOf
	verdict verdict.Verdict // of the newest run, for others to show
}

const (
	// seenUnit is how exactly the state remembers up to when a run has seen.
	seenUnit = time.Microsecond
	// overlap is the most that a run at work can be older than another: the longest
	// time that Lambda gives a function.
	overlap = 15 * time.Minute
)

// sawMoreThan reports whether a newer run has been here than one that has seen up to
// now: an older one began before it and took longer, or its clock is behind. A state
// from further ahead than runs can overlap is of a clock that was wrong, and must not
// silence the alarm until then.
func (s state) sawMoreThan(now time.Time) bool {
	ahead := s.seen.Sub(now.Truncate(seenUnit))
	return ahead > 0 && ahead <= overlap
}

// othersPage reports whether a page of another run is under way at now. A claim from
// further ahead than clocks may differ is of a clock that was wrong.
func (s state) othersPage(now time.Time) bool {
	return now.Before(s.claimed) && s.claimed.Sub(now) <= claimFor+time.Minute
}

// event is a reason to page.
type event string

const (
	none      event = ""
	opened    event = "opened"
	escalated event = "escalated"
	repeated  event = "repeated"
	cleared   event = "cleared"
)

// level is how far spending is above the threshold: 0 if it is not, else 1, 2 at
// twice and 4 at four times.
func level(spend, threshold price.Pico) int {
	switch { // divided, not multiplied: this cannot overflow
	case spend <= threshold:
		return 0
	case spend/4 >= threshold:
		return 4
	case spend/2 >= threshold:
		return 2
	}
	return 1
}

// due says what is to be told.
func (s state) due(now time.Time, spend, threshold price.Pico, repeatEvery time.Duration) event {
	l := level(spend, threshold)
	switch {
	case s.since.IsZero() && l == 0:
		return none
	case s.since.IsZero():
		return opened
	case spend < threshold-threshold/5:
		return cleared
	case s.level == 0:
		return opened
	case l > s.level:
		return escalated
	case now.Sub(s.told) >= repeatEvery:
		return repeated
	}
	return none
}

// after is the state when e has been told of at now.
func (s state) after(e event, now time.Time, spend, threshold price.Pico) state {
	s.claimed = time.Time{}
	if e == cleared {
		s.past = slices.Sorted(maps.Keys(s.hoursInAlarm(now)))
		s.since, s.told, s.level = time.Time{}, time.Time{}, 0
		return s
	}
	s.told = now
	s.level = max(1, s.level, level(spend, threshold))
	return s
}

// hoursInAlarm are the hours of incidents within the past that the baseline looks at,
// this incident included, from an hour before it was seen: at most 722.
func (s state) hoursInAlarm(now time.Time) map[int64]bool {
	oldest := hourOf(now.Add(-past))
	hours := map[int64]bool{}
	for _, h := range s.past {
		if h >= oldest {
			hours[h] = true
		}
	}
	if !s.since.IsZero() {
		for h := max(oldest, hourOf(s.since.Add(-window))); h <= hourOf(now); h++ {
			hours[h] = true
		}
	}
	return hours
}
