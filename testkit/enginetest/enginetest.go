// Package enginetest gives tests the engine: one child for a test binary, a
// table for each test.
package enginetest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tokenfuse/tokenfuse/local/engine"
	"github.com/tokenfuse/tokenfuse/testkit/check"
)

var (
	shared *engine.Engine
	tables atomic.Int64
)

// Main runs a test binary's tests with one engine. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }
func Main(m *testing.M) int {
	e, err := engine.Start(context.Background(), engine.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer e.Close()
	shared = e
	return m.Run()
}

// URL is the engine's address.
func URL() string { return shared.URL }

// Table creates a table of the shape of Limits that only this test uses and
// gives a client for it.
func Table(t testing.TB, opts ...func(*dynamodb.Options)) (db *dynamodb.Client, table string) {
	t.Helper()
	db, table, err := NewTable(opts...)
	check.OK(t, err)
	return db, table
}

// NewTable is Table for examples, which have no testing.TB.
func NewTable(opts ...func(*dynamodb.Options)) (db *dynamodb.Client, table string, err error) {
	table = "limits-" + strconv.FormatInt(tables.Add(1), 10)
	err = engine.CreateLimitsTable(context.Background(), engine.Client(shared.URL), table)
	return engine.Client(shared.URL, opts...), table, err
}

// SpendTable creates a table of the shape of Spend that only this test uses and
// gives a client for it.
func SpendTable(t testing.TB, opts ...func(*dynamodb.Options)) (db *dynamodb.Client, table string) {
	t.Helper()
	table = "spend-" + strconv.FormatInt(tables.Add(1), 10)
	check.OK(t, engine.CreateSpendTable(context.Background(), engine.Client(shared.URL), table))
	return engine.Client(shared.URL, opts...), table
}
