package dynamo

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

func TestValuesAndBack(t *testing.T) {
	t.Parallel()
	it := Key("user#1")
	it["most"], it["least"], it["at"] = Number(math.MaxInt64), Number(math.MinInt64), Seconds(time.UnixMilli(1_800_000_000_999))
	for name, want := range map[string]int64{"most": math.MaxInt64, "least": math.MinInt64, "at": 1_800_000_000} {
		if got, ok := NumberOf(it, name); !ok || got != want {
			t.Errorf("%s: %d, %t, want %d", name, got, ok, want)
		}
		check.Equal(t, TextOf(it, name), "", "the number %s reads as the text", name)
	}
	check.Equal(t, TextOf(it, Partition), "user#1", "the key reads as")
	it["fraction"], it["beyond"] = &types.AttributeValueMemberN{Value: "1.5"}, &types.AttributeValueMemberN{Value: "9223372036854775808"}
	for _, name := range []string{Partition, "fraction", "beyond", "absent"} {
		if got, ok := NumberOf(it, name); ok {
			t.Errorf("%s reads as the number %d", name, got)
		}
	}
}

func TestConditionFailed(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("sent: %w", &types.ConditionalCheckFailedException{Item: Key("fuse")})
	if found, failed := ConditionFailed(refused); !failed || TextOf(found, Partition) != "fuse" {
		t.Errorf("%v, %t", found, failed)
	}
	for _, err := range []error{nil, errors.New("lost"), &types.ResourceNotFoundException{}} {
		if found, failed := ConditionFailed(err); failed || found != nil {
			t.Errorf("%v: %v, %t", err, found, failed)
		}
	}
}
