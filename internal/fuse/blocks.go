package fuse

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

// Block says that an identity is refused.
type Block struct {
	Until time.Time // to the second
	SetBy string
}

// Blocks are blocks by the keys of their identities. Some may have ended.
type Blocks map[string]Block

// MaxBlocks is the most blocks that there can be at a time. Every process reads all of
// them each few seconds.
const MaxBlocks = 100

// Of is the block of the first of some keys that has one at now.
func (b Blocks) Of(now time.Time, keys ...string) (Block, bool) {
	for _, key := range keys {
		if block, ok := b[key]; ok && now.Before(block.Until) {
			return block, true
		}
	}
	return Block{}, false
}

// At are the blocks that have not ended at now.
func (b Blocks) At(now time.Time) Blocks {
	running := maps.Clone(b)
	maps.DeleteFunc(running, func(_ string, block Block) bool { return !now.Before(block.Until) })
	return running
}

// ErrFull says that there are MaxBlocks blocks.
var ErrFull = errors.New("fuse: there are as many blocks as there can be")

// Block blocks an identity, or replaces its block. SetBy must not be empty. It returns
// ErrFull if MaxBlocks others are blocked.
func (w *Writer) Block(ctx context.Context, key string, b Block) error {
	if key == "" || b.SetBy == "" || b.Until.IsZero() {
		return fmt.Errorf("%q cannot be blocked until %s by %q", key, b.Until, b.SetBy)
	}
	_, err := w.changeBlocks(ctx, key, &b)
	return err
}

// Unblock ends the block of an identity. It reports false if there was none.
func (w *Writer) Unblock(ctx context.Context, key string) (bool, error) {
	return w.changeBlocks(ctx, key, nil)
}

const (
	// blockTries is how often a change of the blocks is tried, of those that others
	// come before.
	blockTries = 20
	// mostSwept is how many ended blocks a write removes: an expression has 4 KB.
	mostSwept = 25
)

// changeBlocks sets the block of a key, or removes it if to is nil, and sweeps blocks
// that have ended. It reports whether the key was blocked before. The blocks are read
// first; the write succeeds only if none has come since, so that they cannot become
// too many. Writing the same once more, after a reply that got lost, changes nothing.
func (w *Writer) changeBlocks(ctx context.Context, key string, to *Block) (was bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	item, err := read(ctx, w.db, w.table)
	for try := 0; err == nil && try < blockTries; try++ {
		var s Status
		if s, err = decode(item); err != nil {
			return was, err
		}
		now := w.now()
		if _, blocked := s.Blocks.Of(now, key); blocked {
			was = true // also if it is gone at the next try: that was ours, or another's at the same time
		}
		_, replaced := s.Blocks[key]
		switch {
		case to == nil && !replaced:
			return was, nil
		case to != nil && !replaced && len(s.Blocks.At(now)) >= MaxBlocks:
			return was, ErrFull
		}
		_, err = w.db.UpdateItem(ctx, w.blocksUpdate(s.Blocks, item["blocks"] != nil, key, to, now))
		found, overtaken := dynamo.ConditionFailed(err)
		if !overtaken {
			break
		}
		item, err = found, nil
		if try == blockTries-1 {
			err = errors.New("others changed them at the same time")
		}
	}
	if err != nil {
		return was, fmt.Errorf("changing the blocks: %w", err)
	}
	return was, nil
}

// blocksUpdate is the write of a change to blocks as they were read. there says whether
// the item has the attribute at all.
func (w *Writer) blocksUpdate(blocks Blocks, there bool, key string, to *Block, now time.Time) *dynamodb.UpdateItemInput {
	in := &dynamodb.UpdateItemInput{
		TableName: &w.table, Key: dynamo.Key(keys.Fuse),
		ExpressionAttributeNames:            map[string]string{"#blocks": "blocks"},
		ExpressionAttributeValues:           dynamo.Item{},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	names, values := in.ExpressionAttributeNames, in.ExpressionAttributeValues
	if !there {
		// Whoever reads the item expects a state in it.
		in.UpdateExpression = aws.String("SET #blocks = :blocks, #state = if_not_exists(#state, :closed)")
		in.ConditionExpression = aws.String("attribute_not_exists(#blocks)")
		names["#state"] = "state"
		values[":blocks"] = &types.AttributeValueMemberM{Value: dynamo.Item{key: encodeBlock(*to)}}
		values[":closed"] = dynamo.Text(string(Closed))
		return in
	}
	names["#key"] = key
	var update string
	var remove []string
	conditions := []string{"attribute_exists(#blocks)"}
	if to != nil {
		update = "SET #blocks.#key = :block "
		values[":block"], values[":size"] = encodeBlock(*to), dynamo.Number(int64(len(blocks)))
		conditions = append(conditions, "size(#blocks) <= :size")
	} else {
		remove = append(remove, "#blocks.#key")
	}
	for _, ended := range slices.Sorted(maps.Keys(blocks)) {
		if len(remove) >= mostSwept || ended == key || now.Before(blocks[ended].Until) {
			continue
		}
		name := "#e" + strconv.Itoa(len(remove))
		names[name], names["#until"] = ended, "until"
		values[":now"] = dynamo.Seconds(now)
		remove = append(remove, "#blocks."+name)
		conditions = append(conditions, "#blocks."+name+".#until <= :now") // nobody has set it anew
	}
	if len(remove) > 0 {
		update += "REMOVE " + strings.Join(remove, ", ")
	}
	in.UpdateExpression, in.ConditionExpression = &update, aws.String(strings.Join(conditions, " AND "))
	if len(values) == 0 {
		in.ExpressionAttributeValues = nil
	}
	return in
}

func encodeBlock(b Block) types.AttributeValue {
	return &types.AttributeValueMemberM{Value: dynamo.Item{"until": dynamo.Seconds(b.Until), "set_by": dynamo.Text(b.SetBy)}}
}

// decodeBlocks reads the attribute; nil if nobody was ever blocked.
func decodeBlocks(v types.AttributeValue) (Blocks, error) {
	if v == nil {
		return nil, nil
	}
	errInvalid := errors.New("the fuse's item has no valid blocks")
	all, ok := v.(*types.AttributeValueMemberM)
	if !ok {
		return nil, errInvalid
	}
	blocks := make(Blocks, len(all.Value))
	for key, v := range all.Value {
		one, ok := v.(*types.AttributeValueMemberM)
		if !ok {
			return nil, errInvalid
		}
		until, ok := dynamo.NumberOf(one.Value, "until")
		if !ok {
			return nil, errInvalid
		}
		blocks[key] = Block{Until: time.Unix(until, 0), SetBy: dynamo.TextOf(one.Value, "set_by")}
	}
	return blocks, nil
}
