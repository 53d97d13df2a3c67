// Package emails finds the users of an e-mail address, so that support can name
// people as they name themselves.
//
// Guarantees: the table holds keyed hashes, no address, and none can be tested
// against it without the secret. Upper and lower case, Unicode's several spellings
// and the two forms of an international domain are one address; dots and plus
// signs tell addresses apart, since only the mail provider knows what they mean
// there. A user is forgotten Keep after having last been seen.
//
// Trusted: the caller of Learn, that the issuer verified the address, and the
// secret. An address that two users have is told as such, never decided.
package emails

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jellydator/ttlcache/v3"
)

const (
	// Keep is how long after having last been seen a user is found.
	Keep = 90 * 24 * time.Hour

	// refresh is how old a record may become before it is written anew.
	refresh = 7 * 24 * time.Hour
	// remembered is how many users a process knows to be recorded.
	remembered = 10_000
	// timeout bounds a call to the store.
	timeout = 2 * time.Second

	minSecretBytes = 16
)

// An address's item has an attribute for each of its users: when the user was last
// seen with it, in Unix seconds.
const subPrefix = "s_"

// ErrAddress: that is no e-mail address.
var ErrAddress = errors.New("not an e-mail address")

// DynamoDB is the part of *dynamodb.Client that an Index uses.
type DynamoDB interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// Index is the users by address in one table. It is safe for concurrent use.
type Index struct {
	db       DynamoDB
	table    string
	secret   []byte
	now      func() time.Time
	recorded *ttlcache.Cache[string, time.Time] // when this process last saw to a user's record
}

// New makes an Index on a table of the shape of Limits. The secret has at least 16
// bytes; whoever has the same finds the same.
func New(db DynamoDB, table string, secret []byte, now func() time.Time) (*Index, error) {
	if len(secret) < minSecretBytes {
		return nil, fmt.Errorf("emails: the secret must have at least %d bytes", minSecretBytes)
	}
	return &Index{db, table, slices.Clone(secret), now,
		ttlcache.New(ttlcache.WithCapacity[string, time.Time](remembered))}, nil
}

// Learn records that a user has an address, which the issuer must have verified.
// It costs one write a week at most for each user and process, else nothing. What
// is no address is ignored: it is the issuer's business, and support will not type
// it. An error says that the store could not be asked; the next Learn tries again.
func (x *Index) Learn(ctx context.Context, email, sub string) error {
	key, err := x.key(email)
	if err != nil || sub == "" {
		return nil
	}
	now := x.now()
	memory := string(key) + " " + sub
	if e := x.recorded.Get(memory); e != nil && now.Sub(e.Value()) < refresh {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = x.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:           &x.table,
		Key:                 key.item(),
		UpdateExpression:    aws.String("SET #sub = :now, expires = :expires"),
		ConditionExpression: aws.String("attribute_not_exists(#sub) OR #sub < :old"),
		ExpressionAttributeNames: map[string]string{
			"#sub": subPrefix + sub,
		},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":now": seconds(now), ":old": seconds(now.Add(-refresh)), ":expires": seconds(now.Add(Keep)),
		},
	})
	var fresh *types.ConditionalCheckFailedException // another process has seen to it
	if err != nil && !errors.As(err, &fresh) {
		return fmt.Errorf("recording the user of an e-mail address: %w", err)
	}
	x.recorded.Set(memory, now, ttlcache.NoTTL)
	return nil
}

// Find gives the users that were seen with an address, sorted; none if nobody was.
// The error is ErrAddress, or that the store could not be asked.
func (x *Index) Find(ctx context.Context, email string) (subs []string, err error) {
	key, err := x.key(email)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := x.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &x.table, Key: key.item(), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, fmt.Errorf("finding the user of an e-mail address: %w", err)
	}
	oldest := x.now().Add(-Keep).Unix()
	for attr, value := range out.Item {
		sub, ok := strings.CutPrefix(attr, subPrefix)
		if !ok {
			continue
		}
		n, ok := value.(*types.AttributeValueMemberN)
		if !ok {
			continue
		}
		if seen, err := strconv.ParseInt(n.Value, 10, 64); err == nil && seen > oldest {
			subs = append(subs, sub)
		}
	}
	slices.Sort(subs)
	return subs, nil
}

// partition is the partition key of an address.
type partition string

func (p partition) item() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: string(p)}}
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// keyBytes of the HMAC are kept: with 128 bits no two addresses meet.
const keyBytes = 16

func (x *Index) key(email string) (partition, error) {
	address, err := canonical(email)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, x.secret)
	h.Write([]byte("tokenfuse e-mail address\x00" + address))
	return partition("email#" + encoding.EncodeToString(h.Sum(nil)[:keyBytes])), nil
}

func seconds(t time.Time) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(t.Unix(), 10)}
}
