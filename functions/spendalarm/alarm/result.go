package alarm

import (
	"time"

	"github.com/tokenfuse/tokenfuse/internal/ledger"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Result is what a run found and did. It is also the report for machines that goes
// with a page. Dollars are exact decimals.
type Result struct {
	Time          time.Time        `json:"time"`
	SpendUSD      string           `json:"spend_usd"` // of the last 60 minutes
	Calls         int64            `json:"calls"`
	ThresholdUSD  string           `json:"threshold_usd,omitempty"` // absent: there is no alarm
	ThresholdFrom string           `json:"threshold_from,omitempty"`
	NormalPeakUSD string           `json:"normal_peak_usd,omitempty"` // absent: less than a day of data
	ProjectedUSD  string           `json:"projected_usd,omitempty"`   // of the next 60 minutes; with a page only
	State         string           `json:"state"`                     // off, normal, alarm or unknown
	Since         *time.Time       `json:"since,omitempty"`           // when the incident was first seen
	Level         int              `json:"level,omitempty"`           // how many times the threshold: 1, 2 or 4, the highest so far
	Paged         string           `json:"paged,omitempty"`           // opened, escalated, repeated or cleared
	Outdated      bool             `json:"outdated,omitempty"`        // a run that has seen more was first: this one changed nothing
	Fuse          string           `json:"fuse,omitempty"`            // what it is now; absent: unknown
	FuseSetBy     string           `json:"fuse_set_by,omitempty"`
	FuseUntil     *time.Time       `json:"fuse_until,omitempty"`
	Tiers         map[string]Share `json:"tiers"`
	Features      map[string]Share `json:"features"`
	Models        map[string]Share `json:"models"`
	Top           []Spender        `json:"top"` // the dearest identities, at most 10

	threshold price.Pico // ThresholdUSD; 0: there is none
}

// States of a Result.
const (
	stateOff    = "off"
	stateNormal = "normal"
	stateAlarm  = "alarm"
	// stateUnknown: there is an alarm, but its state could not be read.
	stateUnknown = "unknown"
)

// compared takes what was compared with.
func (r *Result) compared(t threshold, b baseline) {
	r.threshold, r.ThresholdUSD, r.ThresholdFrom, r.NormalPeakUSD = t.amount, t.amount.String(), t.why, ""
	if b.known {
		r.NormalPeakUSD = b.highest.String()
	}
}

// Share is a part of what was spent.
type Share struct {
	USD     string `json:"usd"`
	Calls   int64  `json:"calls"`
	Percent int64  `json:"percent"` // of all dollars, rounded
}

// Spender is what an identity spent.
type Spender struct {
	Identity string `json:"identity"`
	Share
}

// unknown stands for a name that is not known: an abandoned call's tier.
const unknown = "unknown"

func newResult(now time.Time, sum ledger.Summary) Result {
	share := func(a ledger.Amount) Share {
		return Share{USD: a.Cost.String(), Calls: a.Calls, Percent: percent(a.Cost, sum.Total.Cost)}
	}
	shares := func(amounts map[string]ledger.Amount) map[string]Share {
		all := make(map[string]Share, len(amounts))
		for name, a := range amounts {
			if name == "" {
				name = unknown
			}
			all[name] = share(a)
		}
		return all
	}
	r := Result{
		Time: now, SpendUSD: sum.Total.Cost.String(), Calls: sum.Total.Calls, State: stateOff,
		Tiers: shares(sum.Tiers), Features: shares(sum.Features), Models: shares(sum.Models), Top: []Spender{},
	}
	for _, s := range sum.Top {
		r.Top = append(r.Top, Spender{s.Identity, share(s.Amount)})
	}
	return r
}

// percent is the share of part in whole, rounded.
func percent(part, whole price.Pico) int64 {
	if whole == 0 {
		return 0
	}
	return int64(float64(part)/float64(whole)*100 + 0.5)
}
