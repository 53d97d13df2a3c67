package bucket

import (
	"fmt"
	"iter"
	"strings"
)

// An item may hold small buckets of its own for the clients of an identity: for
// anonymous callers the identity is a network, and a client is what tells its
// members apart. Their attributes carry the client's key:
//
//	t_<client>_<limit>_<period>, g_<client>_…, cleared_<client>_<limit>
//	                                           as for the identity's own limits
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

// validClientKey reports whether s may be the key of a client: 8 of A-Z and 2-7, upper
// case unlike any limit's name.
func validClientKey(s string) bool {
	return len(s) == 8 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

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
	case !validClientKey(c.Key):
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
func (u *update) joins(c Client, p presence, last seen, now micros) {
	if c.Key == "" {
		return
	}
	o, one := u.name(openAttr(c.Key)), u.one()
	if p.known {
		u.setTo(o, " = ", o, " + ", one)
		u.require(o, " < ", u.number(":most_"+c.Key, int64(c.MaxInFlight)))
		return
	}
	u.setTo(o, " = ", one)
	u.require("attribute_not_exists(", o, ")")
	switch {
	case c.Key == Overflow:
	case p.evict != "":
		u.evict(p.evict, last, now)
	default:
		u.increase(attrClients, one)
		u.require(u.below(attrClients, u.number(":most_clients", maxClients)))
	}
}

// evict removes a client that is full and has no call open, if it still is. With no
// call open nobody has a receipt that its credits or clears are compared with.
func (u *update) evict(client string, last seen, now micros) {
	o := u.name(openAttr(client))
	u.removeAttr(o)
	u.require(o, " = ", u.zero())
	clears := map[string]bool{} // of several periods of a limit there is one
	for attr := range last.ofClient(client) {
		t := u.name(attr)
		u.removeAttr(t)
		u.require(t, " <= ", u.micros(":now", now))
		suffix := strings.TrimPrefix(attr, tatPrefix)
		u.removeAttr(u.name(creditsPrefix + suffix))
		if end := strings.LastIndexByte(suffix, '_'); end > 0 { // where the period begins
			clears[clearedPrefix+suffix[:end]] = true
		}
	}
	for attr := range clears {
		u.removeAttr(u.name(attr))
	}
}

// place finds out how the client stands in an item: there, new, or without room.
func (c Client) place(last seen, now micros) (p presence, room bool) {
	if c.Key == "" {
		return presence{}, true
	}
	if _, known := last.opens[openAttr(c.Key)]; known {
		return presence{known: true}, true
	}
	others := len(last.opens)
	if _, there := last.opens[openAttr(Overflow)]; there {
		others--
	}
	if c.Key == Overflow || others < maxClients {
		return presence{}, true
	}
	for attr, open := range last.opens {
		client := strings.TrimPrefix(attr, openAttr("")+"_")
		if client != Overflow && open == 0 && last.full(client, now) {
			return presence{evict: client}, true
		}
	}
	return presence{}, false
}

// ofClient gives a client's TATs by attribute.
func (s seen) ofClient(client string) iter.Seq2[string, micros] {
	return func(yield func(string, micros) bool) {
		for attr, tat := range s.tats {
			if strings.HasPrefix(attr, tatPrefix+scope(client)) && !yield(attr, tat) {
				return
			}
		}
	}
}

// full reports whether all limits of a client are full.
func (s seen) full(client string, now micros) bool {
	for _, tat := range s.ofClient(client) {
		if tat > now {
			return false
		}
	}
	return true
}
