// Package emails finds the users of an e-mail address, so that support can name
// people as they name themselves.
//
// Guarantees: the table holds keyed hashes, no address, and none can be tested
// against it without the secret. Upper and lower case, Unicode's several spellings
// and the two forms of an international domain are one address; dots and plus
// signs tell addresses apart, since only the mail provider knows what they mean
// there. A user is forgotten Keep after having last been seen.
//
// An address that moves from one user to another finds the new one: who was last seen
// with it before the other was first seen with it has it no longer. Two users who both
// have been seen with it since are both told, never decided between.
//
// Trusted: the caller of Learn, that the issuer verified the address, and the
// secret. With an issuer that verifies badly, or lets a verified address be changed
// unverified, somebody may be found in the place of the address's owner, but only
// until the owner calls once more, if only to be denied; from then on both are told.
package emails

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

const (
	// Keep is how long after having last been seen a user is found.
	Keep = 90 * 24 * time.Hour

	// refresh is how old a record may become before it is written anew.
	refresh = 7 * 24 * time.Hour
	// again is how long after a write that failed, or is still under way, the next is
	// sent for the same user.
	again = time.Minute
	// remembered is how many addresses a process knows the users of, and perAddress how
	// many users of each.
	remembered, perAddress = 10_000, 20
	// timeout bounds a call to the store.
	timeout = 2 * time.Second

	minSecretBytes = 16
)

// An address's item has two attributes for each of its users: when they were last seen
// with it, and when for the first time, in Unix seconds. attrLast is the user who was
// recorded last.
const (
	subPrefix   = "s_"
	firstPrefix = "f_"
	attrLast    = "last"
)

// ErrAddress: that is no e-mail address.
var ErrAddress = errors.New("not an e-mail address")

// DynamoDB is the part of *dynamodb.Client that an Index uses.
type DynamoDB interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// Index is the users by address in one table. It is safe for concurrent use.
type Index struct {
	db     DynamoDB
	table  string
	secret []byte
	now    func() time.Time

	mu    sync.Mutex
	users *lru.Cache[string, map[string]*record] // of an address, by sub, as this process recorded them
}

// record is what a process knows of its recording of a user.
type record struct {
	due  time.Time // when to write next
	done bool      // it was written once
}

// New makes an Index on a table of the shape of Limits. The secret has at least 16
// bytes; whoever has the same finds the same.
func New(db DynamoDB, table string, secret []byte, now func() time.Time) (*Index, error) {
	if len(secret) < minSecretBytes {
		return nil, fmt.Errorf("emails: the secret must have at least %d bytes", minSecretBytes)
	}
	users, _ := lru.New[string, map[string]*record](remembered) // it fails for less than one
	return &Index{db: db, table: table, secret: slices.Clone(secret), now: now, users: users}, nil
}

// Learn records that a user has an address, which the issuer must have verified.
// It costs one write a week at most for each user and process, and one more when
// another user turns up with the same address; else nothing. What is no address is
// ignored: it is the issuer's business, and support will not type it. An error says
// that the store could not be asked; a Learn a minute later tries again.
func (x *Index) Learn(ctx context.Context, email, sub string) error {
	key, err := x.key(email)
	if err != nil || sub == "" {
		return nil
	}
	now := x.now()
	if !x.begin(key, sub, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = x.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &x.table,
		Key:       dynamo.Key(key),
		// A record of the version before has no first time; what it has was not before.
		UpdateExpression: aws.String("SET #first = if_not_exists(#first, if_not_exists(#sub, :now)), #sub = :now, #last = :sub, expires = :expires"),
		// Who was not recorded last is recorded even if that is not a week ago: it must
		// be known whether they were seen since another turned up.
		ConditionExpression: aws.String("attribute_not_exists(#sub) OR #sub < :old OR attribute_not_exists(#last) OR #last <> :sub"),
		ExpressionAttributeNames: map[string]string{
			"#sub": subPrefix + sub, "#first": firstPrefix + sub, "#last": attrLast,
		},
		ExpressionAttributeValues: dynamo.Item{
			":now": dynamo.Seconds(now), ":old": dynamo.Seconds(now.Add(-refresh)), ":expires": dynamo.Seconds(now.Add(Keep)),
			":sub": dynamo.Text(sub),
		},
	})
	if _, fresh := dynamo.ConditionFailed(err); err != nil && !fresh { // fresh: another process has seen to it
		return fmt.Errorf("recording the user of an e-mail address: %w", err)
	}
	x.recorded(key, sub, now)
	return nil
}

// begin reports whether a user is to be recorded now, and if so keeps others from
// doing the same for a while.
func (x *Index) begin(key, sub string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	users := x.usersOf(key)
	r := users[sub]
	if r == nil {
		if len(users) >= perAddress {
			clear(users)
		}
		r = &record{}
		users[sub] = r
	}
	if now.Before(r.due) {
		return false
	}
	r.due = now.Add(again)
	return true
}

// recorded notes that a user is recorded. With the first time of one user those of the
// others become due: whether they still have the address must show.
func (x *Index) recorded(key, sub string, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	users := x.usersOf(key)
	r := users[sub]
	if r == nil {
		r = &record{}
		users[sub] = r
	}
	if !r.done {
		for _, other := range users {
			other.due = time.Time{}
		}
	}
	r.done, r.due = true, now.Add(refresh)
}

// usersOf are the users of an address that this process recorded.
func (x *Index) usersOf(key string) map[string]*record {
	users, known := x.users.Get(key)
	if !known {
		users = map[string]*record{}
		x.users.Add(key, users)
	}
	return users
}

// Find gives the users who have an address, as far as they were seen with it, sorted;
// none if nobody was. Who was last seen with it before another was first seen with it
// is not among them. The error is ErrAddress, or that the store could not be asked.
func (x *Index) Find(ctx context.Context, email string) (subs []string, err error) {
	key, err := x.key(email)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out, err := x.db.GetItem(ctx, &dynamodb.GetItemInput{TableName: &x.table, Key: dynamo.Key(key), ConsistentRead: aws.Bool(true)})
	if err != nil {
		return nil, fmt.Errorf("finding the user of an e-mail address: %w", err)
	}
	oldest := x.now().Add(-Keep).Unix()
	seen := map[string]int64{}
	var taken int64 // when the newest of its users was first seen with it
	for attr := range out.Item {
		sub, ok := strings.CutPrefix(attr, subPrefix)
		if !ok {
			continue
		}
		if last, ok := dynamo.NumberOf(out.Item, attr); ok && last > oldest {
			seen[sub] = last
			first, _ := dynamo.NumberOf(out.Item, firstPrefix+sub)
			taken = max(taken, first)
		}
	}
	for sub, last := range seen {
		if last >= taken {
			subs = append(subs, sub)
		}
	}
	slices.Sort(subs)
	return subs, nil
}

var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// keyBytes of the HMAC are kept: with 128 bits no two addresses meet.
const keyBytes = 16

// key is the partition key of an address.
func (x *Index) key(email string) (string, error) {
	address, err := canonical(email)
	if err != nil {
		return "", err
	}
	h := hmac.New(sha256.New, x.secret)
	h.Write([]byte("tokenfuse e-mail address\x00" + address))
	return keys.Email.Key(encoding.EncodeToString(h.Sum(nil)[:keyBytes])), nil
}
