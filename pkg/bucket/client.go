package bucket

import (
	"fmt"
	"regexp"
	"strings"
)

// An item may hold small buckets of its own for the clients of an identity: for
// anonymous callers the identity is a network, and a client is what tells its
// members apart. Their attributes carry the client's key:
//
//	t_<client>_<limit>_<period>, g_<client>_…  as for the identity's own limits
//	o_<client>                                 open holds of the client
//	n                                          number of clients, Overflow excepted
//
// An item holds at most maxClients of them. When a new one comes, one that is
// full and has no call open gives way, which loses nothing. If there is none, the
// newcomer shares Overflow with all others that found no room.

// Overflow is the key of the bucket that clients share for whom there is no room.
const Overflow = "OVERFLOW"

// maxClients bounds an item's size.
const maxClients = 32

const attrClients = "n"

// clientKey is upper case, unlike any limit's name.
var clientKey = regexp.MustCompile(`^[A-Z2-7]{8}$`)

// Client is a part of an identity with limits of its own.
type Client struct {
	// Key is 8 characters A-Z and 2-7; "" means that there is no client.
	Key string
	// MaxInFlight is the most calls that the client may have open; at least 1.
	MaxInFlight int
}

func (c Client) validate() error {
	switch {
	case c.Key == "":
		return nil
	case !clientKey.MatchString(c.Key):
		return fmt.Errorf("bucket: client key %q must be 8 characters A-Z, 2-7", c.Key)
	case c.MaxInFlight < 1:
		return fmt.Errorf("bucket: client %s: MaxInFlight is below 1", c.Key)
	}
	return nil
}

// scope is what stands before a limit's name in its attributes.
func scope(client string) string {
	if client == "" {
		return ""
	}
	return client + "_"
}

func openAttr(client string) string {
	if client == "" {
		return attrOpen
	}
	return attrOpen + "_" + client
}

// presence is how a reserve takes its client to be.
type presence struct {
	known bool   // the client is in the item
	evict string // it is not, there is no room, and this one gives way
}

// joins adds the client to the write: one more open call, and one more client if
// it is new.
func (u *update) joins(c Client, p presence, it item, now int64) {
	if c.Key == "" {
		return
	}
	o, one := u.name(openAttr(c.Key)), u.number(1)
	if p.known {
		u.setTo(o, " = ", o, " + ", one)
		u.require(o, " < ", u.number(int64(c.MaxInFlight)))
		return
	}
	u.setTo(o, " = ", one)
	u.require("attribute_not_exists(", o, ")")
	switch {
	case c.Key == Overflow:
	case p.evict != "":
		u.evict(p.evict, it, now)
	default:
		n := u.name(attrClients)
		u.setTo(n, " = if_not_exists(", n, ", ", u.number(0), ") + ", one)
		u.require("(attribute_not_exists(", n, ") OR ", n, " < ", u.number(maxClients), ")")
	}
}

// evict removes a client that is full and has no call open, if it still is.
func (u *update) evict(client string, it item, now int64) {
	o := u.name(openAttr(client))
	u.removeAttr(o)
	u.require(o, " = ", u.number(0))
	for attr := range it {
		switch {
		case strings.HasPrefix(attr, tatPrefix+scope(client)):
			t := u.name(attr)
			u.removeAttr(t)
			u.require(t, " <= ", u.number(now))
		case strings.HasPrefix(attr, creditsPrefix+scope(client)):
			u.removeAttr(u.name(attr))
		}
	}
}

// place finds out how the client stands in an item: there, new, or without room.
func (c Client) place(it item, now int64) (presence, bool) {
	if c.Key == "" {
		return presence{}, true
	}
	if _, known := it[openAttr(c.Key)]; known {
		return presence{known: true}, true
	}
	if n, err := it.number(attrClients); c.Key == Overflow || err == nil && n < maxClients {
		return presence{}, true
	}
	for attr := range it {
		client, ok := strings.CutPrefix(attr, attrOpen+"_")
		if ok && client != Overflow && it.idle(client, now) {
			return presence{evict: client}, true
		}
	}
	return presence{}, false
}

// idle reports whether a client is full and has no call open.
func (i item) idle(client string, now int64) bool {
	if open, err := i.number(openAttr(client)); err != nil || open != 0 {
		return false
	}
	for attr := range i {
		if strings.HasPrefix(attr, tatPrefix+scope(client)) {
			if tat, err := i.number(attr); err != nil || tat > now {
				return false
			}
		}
	}
	return true
}
