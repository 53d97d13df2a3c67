package engine

import "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

// ItemSize is the size of an item as DynamoDB counts it: names and values in
// bytes, a number as one byte and half a byte a digit.
func ItemSize(item map[string]types.AttributeValue) int {
	size := 0
	for name, v := range item {
		size += len(name)
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberB:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += 1 + (len(v.Value)+1)/2
		}
	}
	return size
}
