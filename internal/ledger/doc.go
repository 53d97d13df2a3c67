// Package ledger keeps what provider calls cost, one spend event each, in
// DynamoDB, and sums it over any window of up to a day.
//
// # Guarantees
//
//   - Once. An event's key is made of its reservation, so that recording it again,
//     or a reply that got lost, changes nothing. What a call really cost replaces
//     what was assumed of it as abandoned, and never the reverse.
//   - Exact. A sum holds every event whose recording was acknowledged before the
//     sum began and whose time is in the window, to the microsecond and the
//     pico-dollar, each in full, the dearest identities included. It holds nothing
//     else but what is recorded while it is being made. A sum beyond int64 (9.2
//     million dollars) is the most that int64 holds.
//   - Late is not lost. A minute is closed, summed for good in a roll-up beside the
//     events, once no settle can come any more: LongestCall and Grace after its
//     end. Whatever still comes, an abandoned call above all, takes its minute's
//     and its hour's roll-ups back, and the next sum makes them anew. Both times
//     are the same for all processes, whatever timeouts they are configured with,
//     so that a deployment that changes a timeout loses nothing. The price is that
//     each sum reads the events of the last quarter of an hour.
//   - No text. An event holds token counts, never prompts or answers.
//
// # The table
//
// All keys are strings of UTC.
//
//	pk                  sk                  item
//	2026-11-30T04:11#2  reservation         spend event: partition is its minute and shard
//	minutes#2026-11-30T04  11#2             roll-up of that partition
//	hours#2026-11       2026-11-30T04       roll-up of an hour
//
// An hour's item is made before the hour's first event, so that hours without one
// are known to be empty and cost no reads. An event is a line in the attribute "event"; what
// the provider calls the request is beside it, in "provider_request". An event stays below
// 1 KB, whatever its names, so that it is one write unit.
// Events and roll-ups have the TTL attribute "expires", 40 days after their time.
//
// A roll-up counts the times that it was taken back ("late"). Who makes one reads
// that count, then the events, and writes only if the count is still the same; who
// is late puts the event, then raises the count. In any order of these steps,
// either the roll-up holds the event or it does not stay.
//
// The roll-up of a partition holds the sum of each identity, since a window needs the
// dearest of all of them. Where they do not fit an item (at 4 shards about 1.5
// million calls an hour, all of different identities) there is no roll-up, and the
// partition's events are read each time.
//
// # Trust
//
// The table is trusted; nothing else may write to it. Clocks are expected to be
// within Grace of each other. All processes must have the same number of shards.
//
// # Permissions
//
// Recording needs dynamodb:PutItem and dynamodb:UpdateItem on the table, summing
// dynamodb:Query and, unless it is ReadOnly, dynamodb:UpdateItem.
package ledger
