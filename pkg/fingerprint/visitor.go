package fingerprint

import (
	"encoding/base32"
	"time"
)

// Visitor returns keys of somebody whom another server knows by an id of its own: like
// those of a network and of its one client. keys are those that the visitor may have had
// in the time d before now, as Networks has them, and client is that of Client. They last
// a day. The id is of any length; two servers must not mean different people by one id.
func (k *Keyer) Visitor(id string, now time.Time, d time.Duration) (keys []string, client string) {
	visitor := visitorOf(id)
	key := k.mac(forClient, visitor, dayBytes(k.dayOf(visitor, now)))
	return k.networks(visitor, now, d), base32.StdEncoding.EncodeToString(key[:clientKeyBytes])
}

// Account is Visitor for somebody who has an account there: one key, of the same form,
// that stays the same while the secret does. What is counted over days needs that.
func (k *Keyer) Account(id string) string {
	return encoding.EncodeToString(k.mac(forAccount, visitorOf(id))[:keyBytes])
}

// visitorOf stands where a network does: its first byte is that of no network, and what
// may follow it, a day, has a fixed length.
func visitorOf(id string) []byte { return append([]byte{0}, id...) }
