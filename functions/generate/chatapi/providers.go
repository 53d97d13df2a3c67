package chatapi

import (
	"context"
	"fmt"

	"github.com/tokenfuse/tokenfuse/internal/policy"
	"github.com/tokenfuse/tokenfuse/internal/provider"
	"github.com/tokenfuse/tokenfuse/internal/provider/kind"
)

// Provider makes what calls the models of one provider, of Secret and AWS alone. Bedrock
// has no key: calls are signed as the function's own.
func (p Parts) Provider(ctx context.Context, from *policy.Provider) (provider.Provider, error) {
	var key string
	if from.APIKey != nil {
		var err error
		if key, err = p.Secret(ctx, *from.APIKey); err != nil {
			return nil, err
		}
	}
	billsErrors := from.MayBillErrors()
	switch from.Kind {
	case kind.OpenAI:
		return provider.NewOpenAI(provider.OpenAIConfig{
			BaseURL: from.BaseURL, APIKey: key, KeyHeader: from.KeyHeader, Headers: from.Headers, NoStreamOptions: from.NoStreamOptions, BillsErrors: billsErrors})
	case kind.Anthropic:
		return provider.NewAnthropic(provider.AnthropicConfig{BaseURL: from.BaseURL, APIKey: key, Headers: from.Headers, BillsErrors: billsErrors})
	case kind.Bedrock:
		return provider.NewBedrock(provider.BedrockConfig{
			Region: p.AWS.Region, Credentials: p.AWS.Credentials, BaseURL: from.BaseURL, BillsErrors: billsErrors})
	}
	return nil, fmt.Errorf("unknown kind %s", from.Kind)
}
