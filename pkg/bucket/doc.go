// Package bucket keeps token buckets in DynamoDB for calls whose cost is known
// only afterwards: reserve the worst case before the call, settle to what was
// really used after it.
//
//	Reserve ──► admitted: a Reservation ──► call ──► Settle(used) or Cancel
//	        └─► denied: which limits, how long to wait, how much would fit
//
// docs/bucket.md in the repository has the whole of it: what is stored, each write
// with what every term of it prevents, and why the bounds below hold.
//
// # Guarantees
//
//   - All or nothing. A request charges all its limits or none, in one
//     conditional write. A denial changes nothing.
//   - No over-admission. The limit is checked inside the write, so any number of
//     processes may share a table. What is really used over any time t since a
//     limit was full is at most capacity + rate x t, the very first requests of an
//     identity included. Clocks that differ by d add what 2d refill, once.
//   - Fair. In whatever order calls end that were open together, what stays charged
//     is what was used, plus at most what was refilled while the call itself was
//     open. Debt beyond a reservation is charged in full, up to 142 years of refill.
//   - Exactly once. A reservation is settled once, whatever is retried, lost or
//     late on the way: its hold in the item decides. A reply that got lost is
//     recognised by the hold; a send that may still arrive finds a tombstone.
//   - Nothing leaks. Each open call is a hold that expires. Whoever comes by next
//     sweeps it: quotas come back, while tokens and money, which may have been
//     billed, stay charged. OnAbandoned is told first. An identity that never comes
//     back keeps its hold until the item's TTL.
//   - Bounded. Without an answer from the store, Reserve fails with ErrUnavailable
//     within its timeout; it never admits unasked.
//
// One round trip admits when the state is guessed right, which a process that has
// seen the identity does; a wrong guess costs one more and nothing else. Only when
// others keep changing the limit meanwhile may a call cost up to a tenth of a second
// of refill more than it reserved. The item of an identity with 4 limits and 8 open
// calls is below 1 KB, one write unit.
//
// # Where to read on
//
//   - gcra.go is the rule, pure: when a cost fits, how long to wait, what comes back.
//   - prepare.go checks a request; judge.go, pure, says what denies it; reserve.go is
//     the attempt: guess, write, judge, guess anew; receipt.go is what remains of it.
//   - settle.go, sweep.go and clear.go are the other writes, update.go the terms of
//     which all are made, and item.go, hold.go and client.go say what is stored.
//   - pool.go is a ceiling that many identities share. pool_lease.go and pool_till.go
//     are its arithmetic, pure.
//
// # Trust
//
// The table is trusted; nothing else may write these items. Clocks are expected to
// be within seconds of each other. Keys, limits and notes are the caller's: keys
// should carry no personal data that the table may not hold.
//
// # Permissions
//
// dynamodb:UpdateItem and, for Peek, dynamodb:GetItem on the table.
package bucket
