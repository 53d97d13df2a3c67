package ledger

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// decodeRecord reads an event's record. encoding/json would be most of our own work
// in a sum, so it is for those only that scan cannot read.
func decodeRecord(it item) (record, error) {
	data := textOf(it, attrEvent)
	r := record{Time: -1, Cost: -1} // if they are missing they stay so
	if !r.scan(data) {
		r = record{Time: -1, Cost: -1}
		if err := json.Unmarshal([]byte(data), &r); err != nil {
			r.Time = -1
		}
	}
	if r.Time < 0 || r.Cost < 0 {
		return r, errors.New("an item without a valid " + attrEvent)
	}
	return r, nil
}

// scan reads JSON as json.Marshal writes most records: no spaces, known members,
// true, numbers that are not negative, strings of plain ASCII. It reports false for
// all else, valid or not; what it reads is what encoding/json would.
func (r *record) scan(data string) bool {
	rest, ok := strings.CutPrefix(data, "{")
	for ok {
		var name, value string
		if rest, ok = strings.CutPrefix(rest, `"`); !ok {
			return false
		}
		if name, rest, ok = strings.Cut(rest, `":`); !ok {
			return false
		}
		if after, quoted := strings.CutPrefix(rest, `"`); quoted {
			value, rest, ok = strings.Cut(after, `"`)
			ok = ok && plain(value) && r.setText(name, value)
		} else {
			end := max(0, strings.IndexAny(rest, ",}"))
			value, rest = rest[:end], rest[end:]
			ok = r.setOther(name, value)
		}
		if rest == "}" {
			return ok
		}
		if ok {
			rest, ok = strings.CutPrefix(rest, ",")
		}
	}
	return false
}

// plain reports whether a JSON string stands for itself.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func (r *record) setText(name, value string) bool {
	switch name {
	case "identity":
		r.Identity = strings.Clone(value) // it outlives the item, of which it is a part
	case "tier":
		r.Tier = value
	case "feature":
		r.Feature = value
	case "model":
		r.Model = value
	case "outcome":
		r.Outcome = Outcome(value)
	default:
		return false
	}
	return true
}

// setOther sets what is not a string.
func (r *record) setOther(name, value string) bool {
	if name == "estimated" {
		r.Estimated = true
		return value == "true"
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || value[0] < '0' || value[0] > '9' || value[0] == '0' && value != "0" {
		return false // or it is no JSON
	}
	switch name {
	case "time":
		r.Time = n
	case "pico_dollars":
		r.Cost = n
	case "input":
		r.Input = n
	case "cached_input":
		r.CachedInput = n
	case "cache_write":
		r.CacheWrite = n
	case "output":
		r.Output = n
	case "reasoning":
		r.Reasoning = n
	default:
		return false
	}
	return true
}
