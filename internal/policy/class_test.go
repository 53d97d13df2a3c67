package policy

import (
	"math/rand/v2"
	"regexp"
	"testing"

	"github.com/tokenfuse/tokenfuse/testkit/check"
)

// What reads a text by plain code takes what the schema's expression for it takes.
func TestPatterns(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for name, tt := range map[string]struct {
		pattern string
		plain   func(string) bool
		pieces  []string // of the texts that are tried
	}{
		"name":         {namePattern, validName, []string{"a", "z", "0", "9", "_", "-", "A", ".", "\n", "é", "ten-chars-"}},
		"variable":     {envName, validVariable, []string{"A", "z", "0", "9", "_", "-", "@", "[", "`", "{"}},
		"parameter":    {ssmName.pattern(), ssmName.all, []string{"A", "z", "0", "9", "_", ".", "/", ":", "-", ";", " ", "+"}},
		"secret":       {secretName.pattern(), secretName.all, []string{"A", "0", "/", "_", "+", "=", ".", "@", ":", "!", "-", ",", "\""}},
		"header":       {headerName, validHeader, []string{"A", "z", "0", "_", "-", ".", ":", "twenty-characters-and"}},
		"tool":         {toolName, validHeader, []string{"A", "z", "0", "_", "-", ".", ":", "twenty-characters-and"}},
		"header value": {headerValue, validValue, []string{"a", "~", "!", " ", "\t", "\x7f", "é"}},
		"like a key":   {keyLike, likeKey, []string{"B", "b", "earer", "asic", "K", "k", "ey", " ", "sk-", "s"}},
		"choking name": {clientsChoke, chokesClients, []string{"o", "0", "9", "gpt-", "gpt-5", "code", "x", "-"}},
		"rare":         {bedrockHost.pattern, bedrockHost.matches, []string{"bedrock", "-runtime", ".", "us-east-1", "vpce.", "amazonaws.com", ".cn", "api.aws"}},
		"origin": {originShape.pattern, func(s string) bool { return plainOrigin(s) || originShape.matches(s) },
			[]string{"https", "http", "://", "a", "-b", ".", ".c", "*", ":", "443", "0", "[::1]", "moz-extension", "_", "/", "A"}},
	} {
		expression := regexp.MustCompile(tt.pattern)
		for range 2000 {
			s := ""
			for range random.IntN(9) {
				s += tt.pieces[random.IntN(len(tt.pieces))]
			}
			check.Equal(t, tt.plain(s), expression.MatchString(s), "%s %q", name, s)
		}
	}
}
