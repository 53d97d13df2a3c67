package alarm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
	"github.com/tokenfuse/tokenfuse/internal/verdict"
)

// The item has the attributes version, writer and, where they are not zero, seen (unix
// microseconds), since, told and claimed (unix seconds), level, hours (a set of numbers),
// and those of a verdict.
// stateTimeout bounds a read or a write, with the client's own retries.
const stateTimeout = 10 * time.Second

func (h *Handler) readState(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	out, err := h.State.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &h.Table, Key: dynamo.Key(keys.Alarm), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return state{}, fmt.Errorf("reading the alarm's state: %w", err)
	}
	s, err := decode(out.Item)
	if err != nil {
		return state{}, fmt.Errorf("the alarm's state: %w", err)
	}
	return s, nil
}

// writeState replaces the state that s was made from, if it is still there, and
// counts up s.version. It reports false if another run came first.
func (h *Handler) writeState(ctx context.Context, s *state) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	// The writer's name tells our own write, whose reply was lost, from another's: the
	// client sends again by itself.
	writer := rand.Text()
	in := &dynamodb.PutItemInput{
		TableName: &h.Table, Item: encode(*s, writer),
		ConditionExpression:                 aws.String("attribute_not_exists(pk)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if s.version > 0 {
		in.ConditionExpression = aws.String("#version = :version")
		in.ExpressionAttributeNames = map[string]string{"#version": "version"}
		in.ExpressionAttributeValues = dynamo.Item{":version": dynamo.Number(s.version)}
	}
	_, err := h.State.PutItem(ctx, in)
	if found, failed := dynamo.ConditionFailed(err); failed {
		if dynamo.TextOf(found, "writer") != writer {
			return false, nil
		}
	} else if err != nil {
		return false, fmt.Errorf("writing the alarm's state: %w", err)
	}
	s.version++
	return true, nil
}

func encode(s state, writer string) dynamo.Item {
	it := dynamo.Key(keys.Alarm)
	it["version"], it["writer"] = dynamo.Number(s.version+1), dynamo.Text(writer)
	for name, t := range map[string]time.Time{"since": s.since, "told": s.told, "claimed": s.claimed} {
		if !t.IsZero() {
			it[name] = dynamo.Number(t.Unix())
		}
	}
	if !s.seen.IsZero() {
		it["seen"] = dynamo.Number(s.seen.UnixMicro())
	}
	s.verdict.Put(it)
	if s.level > 0 {
		it["level"] = dynamo.Number(int64(s.level))
	}
	if len(s.past) > 0 {
		hours := &types.AttributeValueMemberNS{}
		for _, h := range s.past {
			hours.Value = append(hours.Value, strconv.FormatInt(h, 10))
		}
		it["hours"] = hours
	}
	return it
}

func decode(it dynamo.Item) (state, error) {
	var s state
	if it == nil {
		return s, nil
	}
	var seen, since, told, claimed, level int64
	for name, to := range map[string]*int64{"version": &s.version, "seen": &seen, "since": &since, "told": &told, "claimed": &claimed, "level": &level} {
		if it[name] == nil {
			continue
		}
		var ok bool
		if *to, ok = dynamo.NumberOf(it, name); !ok {
			return s, fmt.Errorf("%s is not an integer", name)
		}
	}
	s.level, s.verdict = int(level), verdict.Of(it)
	if seen != 0 {
		s.seen = time.UnixMicro(seen).UTC()
	}
	for to, unix := range map[*time.Time]int64{&s.since: since, &s.told: told, &s.claimed: claimed} {
		if unix != 0 {
			*to = time.Unix(unix, 0).UTC()
		}
	}
	if hours, ok := it["hours"].(*types.AttributeValueMemberNS); ok {
		for _, value := range hours.Value {
			h, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return s, errors.New("hours are not integers")
			}
			s.past = append(s.past, h)
		}
	}
	return s, nil
}
