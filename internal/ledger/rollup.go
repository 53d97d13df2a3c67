package ledger

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/price"
)

// Attributes of a roll-up.
const (
	// attrSums is JSON of the sums: of a tally for a partition, of an Amount for an
	// hour. An item without it is no roll-up, or one that was taken back.
	attrSums = "sums"
	// attrLate counts the times that it was taken back; absent: none.
	attrLate = "late"
)

// maxRollUp bounds the sums of a roll-up, in bytes. An item may have 400 KB.
const maxRollUp = 390_000

// rollUp is a roll-up as it stands in the table.
type rollUp struct {
	late int64
	sums string // "": none, or taken back
}

func decodeRollUp(it item) (rollUp, error) {
	r := rollUp{sums: dynamo.TextOf(it, attrSums)}
	if it[attrLate] == nil {
		return r, nil
	}
	var err error
	r.late, err = numberOf(it, attrLate)
	return r, err
}

// writeRollUp writes sums, made after late was read, unless the roll-up was taken
// back since: then the sums may lack what is late. A failure costs no more than that
// the next one tries again.
func (l *Ledger) writeRollUp(ctx context.Context, key item, of, late int64, sums any) {
	if l.opts.ReadOnly {
		return
	}
	data, err := json.Marshal(sums)
	if err == nil && len(data) <= maxRollUp {
		err = l.putSums(ctx, key, of, late, string(data))
	}
	if err != nil {
		l.opts.Log.WarnContext(ctx, "ledger: a roll-up could not be written", "partition", dynamo.TextOf(key, dynamo.Partition), "error", err)
	}
}

func (l *Ledger) putSums(ctx context.Context, key item, of, late int64, sums string) error {
	in := &dynamodb.UpdateItemInput{
		Key:                       key,
		UpdateExpression:          aws.String("SET " + attrSums + " = :s, " + dynamo.Expires + " = :e"),
		ConditionExpression:       aws.String("attribute_not_exists(" + attrLate + ")"),
		ExpressionAttributeValues: item{":s": dynamo.Text(sums), ":e": expiry(of)},
	}
	if late > 0 {
		in.ConditionExpression = aws.String(attrLate + " = :late")
		in.ExpressionAttributeValues[":late"] = dynamo.Number(late)
	}
	err := l.update(ctx, in)
	if _, takenBack := dynamo.ConditionFailed(err); takenBack {
		return nil
	}
	return err
}

var errInvalidSums = errors.New("a roll-up without valid sums")

// numbers are an Amount as it is kept, zeros at the end left out.
type numbers []int64

func (a Amount) numbers() numbers {
	n := numbers{a.Calls, int64(a.Cost), a.Estimated, a.Abandoned, int64(a.AbandonedCost)}
	for len(n) > 0 && n[len(n)-1] == 0 {
		n = n[:len(n)-1]
	}
	return n
}

func (n numbers) amount() (Amount, error) {
	var all [5]int64
	if len(n) > len(all) {
		return Amount{}, errInvalidSums
	}
	copy(all[:], n)
	a := Amount{Calls: all[0], Cost: price.Pico(all[1]), Estimated: all[2], Abandoned: all[3], AbandonedCost: price.Pico(all[4])}
	if !a.valid() {
		return Amount{}, errInvalidSums
	}
	return a, nil
}

func decodeAmount(sums string) (Amount, error) {
	var n numbers
	if err := json.Unmarshal([]byte(sums), &n); err != nil {
		return Amount{}, errInvalidSums
	}
	return n.amount()
}

// kindNames are what the kinds of a tally are called in its roll-up.
var kindNames = [kinds]string{byTier: "tiers", byFeature: "features", byModel: "models", byIdentity: "identities"}

// sums is t as it is kept.
func (t *tally) sums() map[string]map[string]numbers {
	sums := make(map[string]map[string]numbers, kinds)
	for k, amounts := range t.by {
		sums[kindNames[k]] = make(map[string]numbers, len(amounts))
		for name, a := range amounts {
			sums[kindNames[k]][name] = a.numbers()
		}
	}
	return sums
}

// decodeTally reverses sums.
func decodeTally(data string) (*tally, error) {
	var sums map[string]map[string]numbers
	if err := json.Unmarshal([]byte(data), &sums); err != nil {
		return nil, errInvalidSums
	}
	t := newTally()
	for k, amounts := range t.by {
		for name, n := range sums[kindNames[k]] {
			a, err := n.amount()
			if err != nil {
				return nil, err
			}
			amounts[name] = a
		}
	}
	for _, a := range t.by[byTier] { // every call has one, even if it is empty
		t.total.add(a)
	}
	return t, nil
}
