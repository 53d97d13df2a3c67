package engine

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Region is what clients of stand-ins say that they are in.
const Region = "us-east-1"

// Credentials are a key pair for stand-ins, which check no signatures.
var Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "local", SecretAccessKey: "local"}, nil
})

// Client is an ordinary DynamoDB client for the engine at url.
func Client(url string, opts ...func(*dynamodb.Options)) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{BaseEndpoint: aws.String(url), Region: Region, Credentials: Credentials}, opts...)
}

// CreateLimitsTable creates a table of the shape of Limits, if it is not there.
func CreateLimitsTable(ctx context.Context, db *dynamodb.Client, name string) error {
	return createTable(ctx, db, name, "pk")
}

// CreateSpendTable creates a table of the shape of Spend, if it is not there.
func CreateSpendTable(ctx context.Context, db *dynamodb.Client, name string) error {
	return createTable(ctx, db, name, "pk", "sk")
}

// createTable creates a table whose keys are strings: the partition key, then the
// sort key if there is one.
func createTable(ctx context.Context, db *dynamodb.Client, name string, keys ...string) error {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, key := range keys {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &key, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &key, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
	}
	_, err := db.CreateTable(ctx, in)
	var exists *types.ResourceInUseException
	if errors.As(err, &exists) {
		return nil
	}
	return err
}
