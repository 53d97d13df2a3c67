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
)

// The item is pk "alarm", version, writer and, where they are not zero, seen (unix
// microseconds), since, told and claimed (unix seconds), level, and hours (a set of
// numbers).
const stateKey = "alarm"

// stateTimeout bounds a read or a write, with the client's own retries.
const stateTimeout = 10 * time.Second

type item = map[string]types.AttributeValue

func (h *Handler) readState(ctx context.Context) (state, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	out, err := h.State.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &h.Table, Key: item{"pk": text(stateKey)}, ConsistentRead: aws.Bool(true)})
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
		in.ExpressionAttributeValues = item{":version": number(s.version)}
	}
	_, err := h.State.PutItem(ctx, in)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		if w, ok := failed.Item["writer"].(*types.AttributeValueMemberS); !ok || w.Value != writer {
			return false, nil
		}
	} else if err != nil {
		return false, fmt.Errorf("writing the alarm's state: %w", err)
	}
	s.version++
	return true, nil
}

func encode(s state, writer string) item {
	it := item{"pk": text(stateKey), "version": number(s.version + 1), "writer": text(writer)}
	for name, t := range map[string]time.Time{"since": s.since, "told": s.told, "claimed": s.claimed} {
		if !t.IsZero() {
			it[name] = number(t.Unix())
		}
	}
	if !s.seen.IsZero() {
		it["seen"] = number(s.seen.UnixMicro())
	}
	if s.level > 0 {
		it["level"] = number(int64(s.level))
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

func decode(it item) (state, error) {
	var s state
	if it == nil {
		return s, nil
	}
	var seen, since, told, claimed, level int64
	for name, to := range map[string]*int64{"version": &s.version, "seen": &seen, "since": &since, "told": &told, "claimed": &claimed, "level": &level} {
		v, ok := it[name]
		if !ok {
			continue
		}
		n, ok := v.(*types.AttributeValueMemberN)
		if !ok {
			return s, fmt.Errorf("%s is not a number", name)
		}
		var err error
		if *to, err = strconv.ParseInt(n.Value, 10, 64); err != nil {
			return s, fmt.Errorf("%s is not an integer", name)
		}
	}
	s.level = int(level)
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

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}
