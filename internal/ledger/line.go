package ledger

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// record is an event as it is kept: as a line in one attribute. To take apart an
// attribute for each, or JSON within the store's own JSON, was most of the work of a
// sum, for the store and for us.
type record struct {
	Time                           int64 // microseconds since 1970
	Cost                           int64 // pico-dollars
	Outcome                        Outcome
	Estimated                      bool
	Tier, Feature, Model           string // "": not known
	Input, CachedInput, CacheWrite int64
	Output, Reasoning              int64
	Identity                       string
}

// The fields of a line are separated by single spaces. Only the last may hold some.
//
//	1 time pico-dollars outcome estimated tier feature model input cached-input cache-write output reasoning identity
//
// The first is the number of this form. estimated is 0 or 1; a name that is not known
// is a full stop, which no name in a policy is.
const (
	lineForm   = "1"
	lineFields = 14
	unknown    = "."
)

func (e Event) record() record {
	u := e.Usage
	return record{Time: e.Time.UnixMicro(), Cost: int64(e.Cost), Outcome: e.Outcome, Estimated: e.Estimated,
		Tier: e.Tier, Feature: e.Feature, Model: e.Model,
		Input: u.Input, CachedInput: u.CachedInput, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning,
		Identity: e.Identity}
}

// line is r as it is kept. It fails for what parseLine would not read.
func (r record) line() (string, error) {
	estimated := "0"
	if r.Estimated {
		estimated = "1"
	}
	fields := []string{lineForm, digits(r.Time), digits(r.Cost), string(r.Outcome), estimated, named(r.Tier), named(r.Feature), named(r.Model),
		digits(r.Input), digits(r.CachedInput), digits(r.CacheWrite), digits(r.Output), digits(r.Reasoning), r.Identity}
	line := strings.Join(fields, " ")
	if again, err := parseLine(line); err != nil || again != r {
		return "", fmt.Errorf("ledger: an event of feature %q, model %q, tier %q, outcome %q cannot be kept", r.Feature, r.Model, r.Tier, r.Outcome)
	}
	return line, nil
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

func named(name string) string {
	if name == "" {
		return unknown
	}
	return name
}

var errLine = errors.New("an item without a valid " + attrEvent)

// parseLine reads a line. It fails for all that line does not write.
func parseLine(line string) (record, error) {
	var fields [lineFields]string
	for i := range fields[:lineFields-1] {
		var ok bool
		if fields[i], line, ok = strings.Cut(line, " "); !ok || fields[i] == "" {
			return record{}, errLine
		}
	}
	estimated := fields[4] == "1"
	if fields[0] != lineForm || !estimated && fields[4] != "0" {
		return record{}, errLine
	}
	r := record{Outcome: Outcome(fields[3]), Estimated: estimated,
		Tier: nameOf(fields[5]), Feature: nameOf(fields[6]), Model: nameOf(fields[7]),
		Identity: line}
	for _, f := range [...]struct {
		field string
		to    *int64
	}{{fields[1], &r.Time}, {fields[2], &r.Cost}, {fields[8], &r.Input}, {fields[9], &r.CachedInput}, {fields[10], &r.CacheWrite},
		{fields[11], &r.Output}, {fields[12], &r.Reasoning}} {
		n, err := strconv.ParseInt(f.field, 10, 64)
		if c := f.field[0]; err != nil || c < '0' || c > '9' || c == '0' && f.field != "0" {
			return record{}, errLine
		}
		*f.to = n
	}
	return r, nil
}

func nameOf(field string) string {
	if field == unknown {
		return ""
	}
	return field
}

// recordOf reads an event.
func recordOf(it item) (record, error) { return parseLine(dynamo.TextOf(it, attrEvent)) }

// amount is r by itself.
func (r record) amount() Amount {
	a := Amount{Calls: 1, Cost: price.Pico(r.Cost)}
	if r.Outcome == Abandoned {
		a.Abandoned, a.AbandonedCost = 1, a.Cost
	}
	if r.Estimated {
		a.Estimated = 1
	}
	return a
}
