package auth

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/strictjson"
)

// claims are the claims of a token. Names are taken in their exact case.
type claims struct {
	jwt.RegisteredClaims        // as read; checked by user
	all                  object // every claim
}

// UnmarshalJSON reads strictly: each name once, times as numbers within a
// human range, strings where strings belong. Else a token could mean one thing
// to its issuer and another to us.
func (c *claims) UnmarshalJSON(raw []byte) error {
	all, err := parseObject(raw)
	if err != nil {
		return err
	}
	*c = claims{all: all}
	var ok [6]bool
	c.Issuer, ok[0] = all.text("iss")
	c.Subject, ok[1] = all.text("sub")
	c.Audience, ok[2] = all.texts("aud")
	c.ExpiresAt, ok[3] = all.date("exp")
	c.NotBefore, ok[4] = all.date("nbf")
	c.IssuedAt, ok[5] = all.date("iat")
	if slices.Contains(ok[:], false) {
		return errors.New("a registered claim is of the wrong type")
	}
	return nil
}

// user checks the claims and says whose they are. Expiry comes last, so that
// ErrExpired is said only of a token that is good in all else.
func (c *claims) user(cfg Config) (User, error) {
	switch {
	case c.Issuer != cfg.Issuer && strings.TrimRight(c.Issuer, "/") == strings.TrimRight(cfg.Issuer, "/"):
		return User{}, refuse(IssuerSlash)
	case c.Issuer != cfg.Issuer:
		return User{}, refuse(Issuer)
	case c.all["aud"] == nil && c.all["client_id"] == nil:
		return User{}, refuse(AudienceNone)
	case !c.meantFor(cfg.Audience):
		return User{}, refuse(Audience)
	case !keys.ValidSubject(c.Subject):
		return User{}, refuse(Subject)
	}
	if err := c.times().check(cfg.Now()); err != nil {
		return User{}, err
	}
	plans, err := c.all.plans(cfg.PlanClaim)
	if err != nil {
		return User{}, refuse(Malformed)
	}
	user := User{Subject: c.Subject, Plans: plans}
	user.Email, user.EmailUnsaid = c.email(cfg.AssumeEmailVerified)
	for _, b := range cfg.Backends {
		texts, err := c.all.plans(b.Claim)
		if err != nil {
			return User{}, refuse(Malformed)
		}
		if slices.ContainsFunc(texts, func(s string) bool { return slices.Contains(b.Values, s) }) {
			user.Backend = b.Name
		}
	}
	return user, nil
}

// times are the registered times of a token; nil: it has none such.
type times struct{ notBefore, issued, expiry *jwt.NumericDate }

func (c *claims) times() times { return times{c.NotBefore, c.IssuedAt, c.ExpiresAt} }

// check refuses a token whose times do not hold.
func (t times) check(now time.Time) error {
	latest := now.Add(leeway)
	switch {
	case t.notBefore != nil && t.notBefore.After(latest):
		return refuse(NotYet)
	case t.issued != nil && t.issued.After(latest):
		return refuse(IssuedLater)
	case t.expiry == nil:
		return refuse(ExpiryNone)
	case !now.Before(t.expiry.Time):
		return refuse(Expired)
	}
	return nil
}

func (c *claims) meantFor(audience string) bool {
	if _, ok := c.all["aud"]; ok {
		return slices.Contains(c.Audience, audience)
	}
	use, _ := c.all.text("token_use")
	client, _ := c.all.text("client_id")
	return use == "access" && client == audience
}

// email is the user's address if the issuer vouches for it, or if it says nothing of that
// and assume is true; unsaid: if that were true, there would be one. Some issuers write
// the flag as a string.
func (c *claims) email(assume bool) (verified string, unsaid bool) {
	email, _ := c.all.text("email")
	switch flag := string(c.all["email_verified"]); {
	case flag == `true`, flag == `"true"`:
		return email, false
	case flag != "" && flag != "null":
		return "", false
	case assume:
		return email, false
	}
	return "", email != ""
}

// object is a JSON object whose members are not decoded yet.
type object map[string]json.RawMessage

// parseObject reads raw, refusing a name that stands twice at the top. Deeper levels are
// not looked at: plans reads one by this again before it takes anything from there.
func parseObject(raw []byte) (object, error) {
	members, err := strictjson.Object(raw)
	if err != nil {
		return nil, err
	}
	o := make(object, len(members))
	for _, m := range members {
		o[m.Name] = m.Value
	}
	return o, nil
}

// text returns the string called name, or "" if there is none or it is null; ok
// is false if it is there and not a string.
func (o object) text(name string) (s string, ok bool) {
	raw, there := o[name]
	if !there {
		return "", true
	}
	ok = json.Unmarshal(raw, &s) == nil
	return s, ok
}

// texts is text for a list of strings, or one string in its place.
func (o object) texts(name string) (list []string, ok bool) {
	raw, there := o[name]
	if !there {
		return nil, true
	}
	if s, ok := o.text(name); ok {
		return []string{s}, true
	}
	ok = json.Unmarshal(raw, &list) == nil
	return list, ok
}

// plans are the strings at a path, be there one or a list; see Config.PlanClaim. A
// backend's claim is read in the same way. It fails
// if a name stands twice where the path leads through.
func (o object) plans(path string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	// The longest name that there is comes first: a claim may be a URL, with dots.
	for name := path; ; {
		if raw, there := o[name]; there && name == path {
			return stringsIn(raw), nil
		} else if there && strings.HasPrefix(string(raw), "{") {
			inner, err := parseObject(raw)
			if err != nil {
				return nil, err
			}
			if found, err := inner.plans(path[len(name)+1:]); found != nil || err != nil {
				return found, err
			}
		}
		dot := strings.LastIndexByte(name, '.')
		if dot < 0 {
			return nil, nil
		}
		name = name[:dot]
	}
}

// stringsIn are the strings that raw is or has in its list; what else a list has is not
// looked at.
func stringsIn(raw json.RawMessage) (list []string) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}
	}
	var items []json.RawMessage
	_ = json.Unmarshal(raw, &items)
	for _, item := range items {
		if len(item) > 0 && item[0] == '"' && json.Unmarshal(item, &one) == nil {
			list = append(list, one)
		}
	}
	return list
}

// date is text for a time in seconds since 1970, before the year 10000. RFC
// 7519 allows fractions.
func (o object) date(name string) (date *jwt.NumericDate, ok bool) {
	raw, there := o[name]
	if !there {
		return nil, true
	}
	seconds, err := strconv.ParseFloat(string(raw), 64) // fails on all JSON but a number
	const year10000 = 253402300800
	if err != nil || seconds < 0 || seconds >= year10000 {
		return nil, false
	}
	whole, fraction := math.Modf(seconds)
	return &jwt.NumericDate{Time: time.Unix(int64(whole), int64(fraction*1e9))}, true
}
