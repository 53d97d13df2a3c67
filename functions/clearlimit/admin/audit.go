package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/internal/dynamo"
	"github.com/tokenfuse/tokenfuse/internal/keys"
)

const (
	// auditKeep is how long an audit item is kept, by its TTL.
	auditKeep = 365 * 24 * time.Hour
	// auditTimeout bounds the write of one.
	auditTimeout = 3 * time.Second
)

// AuditDB is the part of *dynamodb.Client that an Audit uses.
type AuditDB interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
}

// Audit keeps what administrators changed: an item of keys.Audit with who,
// whom, what, why and when. It is written before the change, so a change that
// failed is in it, too.
type Audit struct {
	db    AuditDB
	table string
	now   func() time.Time
}

// NewAudit makes an Audit in a table of the shape of Limits.
func NewAudit(db AuditDB, table string, now func() time.Time) *Audit {
	return &Audit{db, table, now}
}

// Change is something that an administrator changes.
type Change struct {
	Who  string // the caller's ARN
	Whom string // the identity's key, or fuse
	What string
	Why  string // as the caller gave it; may be empty
}

// Record keeps a change. Without it the change must not be made.
func (a *Audit) Record(ctx context.Context, c Change) error {
	ctx, cancel := context.WithTimeout(ctx, auditTimeout)
	defer cancel()
	now := a.now()
	_, err := a.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(a.table), Item: dynamo.Item{
		dynamo.Partition: dynamo.Text(keys.Audit(now, rand.Text())),
		"who":            dynamo.Text(c.Who),
		"whom":           dynamo.Text(c.Whom),
		"what":           dynamo.Text(c.What),
		"why":            dynamo.Text(c.Why),
		dynamo.Expires:   dynamo.Seconds(now.Add(auditKeep)),
	}})
	if err != nil {
		return fmt.Errorf("writing the audit: %w", err)
	}
	return nil
}
